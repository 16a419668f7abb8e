"""The tester's settings (``TACIT_TESTER_…`` or a TOML file)."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tacit_services.shared.http_server import CONNECTIONS_MAX
from tacit_services.shared.settings import PublicSettings


class TesterSettings(PublicSettings):
    """What a tester needs to run."""

    model_config = SettingsConfigDict(env_prefix="TACIT_TESTER_")

    port: Annotated[int, Field(ge=1, le=65535)] = 8400
    """Port to listen on."""
    database_url: str = "sqlite:///tester.sqlite3"
    serve_only: bool = False
    """Whether verdicts are left to processes that do nothing else (``tacit tester work``)."""
    connections_max: Annotated[int, Field(ge=10, le=100_000)] = CONNECTIONS_MAX
    """Most connections at once; every agent that waits has one."""
    archive_folder: Path | None = None
    """Where ended studies go when they have been kept long enough; needed by ``retention_…_days``."""
    retention_completed_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """Days after its verdict until a completed study is archived and deleted; kept for ever unless set."""
    retention_incomplete_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """The same of studies that missed a release."""
    retention_cancelled_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """The same of studies that their analyst withdrew."""
    tester_ca_file: Path | None = None
    """Certificates that this service's own must chain to, for the operator's commands alone."""
    tester_certificate_file: Path | None = None
    """A certificate chain that the operator's commands show, where ``tls_client_ca_file`` asks for one."""
    tester_certificate_key_file: Path | None = None
    """Its private key, PEM."""

    @property
    def token_audience(self) -> str:
        """The audience that tokens must name."""
        return self.audience or self.url
