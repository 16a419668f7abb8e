"""The curator's settings. docs/reference/curator-configuration.md."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from tacit_protocol.messages.study import RESPOND_AFTER_S, RespondAfter
from tacit_services.agent.settings import ParticipantSettings
from tacit_services.curator.data_sets import ConfiguredDataSet
from tacit_services.curator.uploads import UPLOAD_BYTES_MAX, UPLOADS_MAX
from tacit_services.shared.settings import PublicSettings

PORT = 8720
"""Where the curator listens unless told otherwise."""


class CuratorSettings(ParticipantSettings, PublicSettings):
    """Everything a curator needs to know; environment variables begin with ``TACIT_CURATOR_``."""

    model_config = SettingsConfigDict(env_prefix="TACIT_CURATOR_")

    audience: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """What the owners' tokens must be addressed to; the URL unless set."""
    database_url: str = "sqlite:///curator.sqlite3"
    storage_folder: Path
    """Where uploaded rows are kept, encrypted."""
    storage_keys_file: Path
    """The keys that wrap the keys of the rows: 64 hexadecimal digits each, the one to use first."""
    upload_bytes_max: Annotated[int, Field(ge=1)] = UPLOAD_BYTES_MAX
    """Largest upload of rows."""
    uploads_max: Annotated[int, Field(ge=1)] = UPLOADS_MAX
    """Most uploads at once."""
    respond_after_s_min: RespondAfter = RESPOND_AFTER_S
    """When a study is declined that says nothing that could be believed."""
    curator_ca_file: Path | None = None
    """Certificates that this service's own must chain to, for the operator's commands alone."""
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    data_sets: tuple[ConfiguredDataSet, ...] = ()
    """Data sets whose rows are in a database or a file of the operator's; their owners register them."""

    @field_validator("data_sets")
    @classmethod
    def _names_are_distinct(cls, value: tuple[ConfiguredDataSet, ...]) -> tuple[ConfiguredDataSet, ...]:
        if len({(data_set.owner, data_set.name) for data_set in value}) != len(value):
            raise ValueError("an owner's data sets must have distinct names")
        return value

    @property
    def token_audience(self) -> str:
        """The audience that owners' tokens must name."""
        return self.url.rstrip("/") if self.audience is None else self.audience
