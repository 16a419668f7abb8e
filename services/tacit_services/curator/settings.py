"""The curator's settings. docs/reference/curator-configuration.md."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from tacit_protocol.messages.study import RESPOND_AFTER_S, PartyName, PublicKeyHex, RespondAfter
from tacit_services.agent.settings import POLL_WAIT_S_MAX
from tacit_services.curator.data_sets import ConfiguredDataSet
from tacit_services.curator.uploads import UPLOAD_BYTES_MAX, UPLOADS_MAX
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.settings import PublicSettings

PORT = 8720
"""Where the curator listens unless told otherwise."""


class CuratorSettings(PublicSettings):
    """Everything a curator needs to know; environment variables begin with ``TACIT_CURATOR_``."""

    model_config = SettingsConfigDict(env_prefix="TACIT_CURATOR_")

    name: PartyName
    """The curator's party name, at the tester and in studies."""
    audience: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """What the owners' tokens must be addressed to; the URL unless set."""
    key_file: Path
    """The curator's private key, PEM; whoever holds it is the operator."""
    database_url: str = "sqlite:///curator.sqlite3"
    """``sqlite:///file`` or ``postgresql://user:password@host/name``."""
    storage_folder: Path
    """Where uploaded rows are kept, encrypted."""
    storage_keys_file: Path
    """The keys that wrap the keys of the rows: 64 hexadecimal digits each, the one to use first."""
    upload_bytes_max: Annotated[int, Field(ge=1)] = UPLOAD_BYTES_MAX
    """Largest upload of rows."""
    uploads_max: Annotated[int, Field(ge=1)] = UPLOADS_MAX
    """Most uploads at once."""
    tester_url: str
    tester_key: PublicKeyHex
    tester_audience: str | None = None
    """What the tester expects its tokens to be for; its URL unless it says otherwise."""
    tester_ca_file: Path | None = None
    """Certificates that the tester's must chain to, where the public ones do not do."""
    respond_after_s_min: RespondAfter = RESPOND_AFTER_S
    """When a study is declined that says nothing that could be believed."""
    curator_ca_file: Path | None = None
    """Certificates that this service's own must chain to, for the operator's commands alone."""
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    poll_wait_s: Annotated[float, Field(ge=0, le=POLL_WAIT_S_MAX)] = 20.0
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    """What computes, and in how much memory."""

    data_sets: tuple[ConfiguredDataSet, ...] = ()
    """Data sets whose rows are in a database or a file of the operator's; their owners register them."""

    @field_validator("data_sets")
    @classmethod
    def _names_are_distinct(cls, value: tuple[ConfiguredDataSet, ...]) -> tuple[ConfiguredDataSet, ...]:
        if len({(data_set.owner, data_set.name) for data_set in value}) != len(value):
            raise ValueError("an owner's data sets must have distinct names")
        return value

    @classmethod
    def _resolved(cls, values: dict[str, Any], directory: Path) -> dict[str, Any]:
        resolved = super()._resolved({"database_url": "sqlite:///curator.sqlite3", **values}, directory)
        data_sets = resolved.get("data_sets")
        if isinstance(data_sets, list):
            resolved["data_sets"] = [
                {"folder": directory, **item} if isinstance(item, dict) else item for item in data_sets
            ]
        return resolved

    @property
    def token_audience(self) -> str:
        """The audience that owners' tokens must name."""
        return self.url.rstrip("/") if self.audience is None else self.audience

    @property
    def audience_of_tester(self) -> str:
        """The audience of the tokens sent to the tester."""
        return self.tester_url.rstrip("/") if self.tester_audience is None else self.tester_audience
