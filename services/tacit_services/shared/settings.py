"""Settings: a TOML file, overridden by the environment; secrets may be in files of their own.

Order, first wins: ``PREFIX_NAME`` in the environment; ``PREFIX_NAME_FILE``, a file that holds the value; the
TOML file; the default. Relative paths are relative to the file that names them.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from tacit_protocol.addresses import is_loopback
from tacit_protocol.messages.faults import faults_of, written
from tacit_protocol.messages.study import PartyName
from tacit_protocol.signing import PrivateKey, SignatureError

CONFIG_VARIABLE = "TACIT_CONFIG"
SECRET_BYTES_MAX = 2**16
"""Largest file that holds a secret."""


class SettingsError(Exception):
    """The service cannot start with these settings. The text says which one and what to do."""


class _SecretFiles(PydanticBaseSettingsSource):
    """Reads ``PREFIX_NAME_FILE``: the setting's value is what that file holds."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        prefix = self.config.get("env_prefix", "")
        path = os.environ.get(f"{prefix}{field_name.upper()}_FILE")
        return (None if path is None else read_secret(Path(path)), field_name, False)

    def __call__(self) -> dict[str, Any]:
        fields = self.settings_cls.model_fields
        found = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: value for name, value in found.items() if value is not None}


class ServiceSettings(BaseSettings):
    """The base of a service's settings; subclasses set ``env_prefix``."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment come before the file, whose values are the constructor's arguments."""
        return env_settings, _SecretFiles(settings_cls), init_settings

    @classmethod
    def load(cls, config: Path | None) -> Self:
        """Read the settings from a TOML file (or the one that ``TACIT_CONFIG`` names) and the environment.

        Raises:
            SettingsError: the file cannot be read, or a setting is missing, unknown or wrong.
        """
        named = os.environ.get(CONFIG_VARIABLE)
        path = config or (Path(named) if named else None)
        values = {} if path is None else read_toml(path)
        directory = Path.cwd() if path is None else path.resolve().parent
        try:
            return cls(**cls._resolved(values, directory))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            # What is misspelt explains what is missing.
            if any(one["type"] == "extra_forbidden" for one in found):
                fault = faults_of(cls, error)[0]
                raise SettingsError(f"setting {written(fault.place)}: {fault.words}") from None
            first = found[0]
            where = ".".join(str(part) for part in first["loc"])
            what = f"setting {where}" if where else "settings"
            raise SettingsError(f"{what}: {first['msg'].removeprefix('Value error, ')}") from None

    @classmethod
    def _resolved(cls, values: dict[str, Any], directory: Path) -> dict[str, Any]:
        """Make the file's own relative paths absolute."""
        resolved = dict(values)
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field is None:
                continue
            if isinstance(value, dict) and _is_settings(field.annotation):
                resolved[name] = field.annotation._resolved(value, directory)
            elif not isinstance(value, str):
                continue
            elif field.annotation in (Path, Path | None):
                resolved[name] = directory / value
            elif name == "database_url":
                try:
                    resolved[name] = resolve_database_url(value, directory)
                except SettingsError as error:
                    raise SettingsError(f"{name}: {error}") from None
        return resolved


Address = Annotated[str, Field(pattern=r"^https?://[^\s?#]+$", max_length=500)]


class OpenIdSettings(ServiceSettings):
    """The provider at which the people of this service's own party sign in; none unless ``issuer`` is set."""

    model_config = SettingsConfigDict(env_prefix="TACIT_OPENID_")

    issuer: Address | None = None
    """As the provider writes it of itself, to the letter."""
    client_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    client_secret_file: Path | None = None
    """The secret, where the provider gave one; a public client has none."""
    url: Address | None = None
    """Where browsers reach the pages; the public URL of a service that has one."""
    ca_file: Path | None = None
    """Certificates that the provider's must chain to, where the public ones do not do."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.issuer is None) != (self.client_id is None):
            raise ValueError("issuer and client_id need each other")
        if self.issuer is not None and not is_private(self.issuer):
            raise ValueError("issuer must begin with https, or be on this machine")
        return self


def is_private(url: object) -> bool:
    """Say whether nobody on the way can read what is sent to an address."""
    if not isinstance(url, str):
        return False
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


class DatabaseSettings(ServiceSettings):
    """The base of the settings of what has a database."""

    database_url: str
    """``sqlite:///file`` or ``postgresql://user:password@host/name``."""


class ListeningSettings(DatabaseSettings):
    """The base of every service's settings: who it is, where it listens, how what passes stays private."""

    name: PartyName
    """The party name, at the tester and in studies."""
    key_file: Path
    """The private key, PEM."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe log line that is written."""
    openid: OpenIdSettings = Field(default_factory=OpenIdSettings)
    """Where people sign in, besides by links."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    behind_tls_proxy: bool = False
    """Whether a proxy that serves TLS is all that can reach ``host``, where that is beyond this machine."""
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^[a-z0-9._-]+$", max_length=253)], ...] = ()
    """Names besides loopback's and the public URL's by which browsers may reach the pages."""
    insecure_plain_http: bool = False
    """Lets everything travel in the clear between machines: for tests without real data alone."""

    @property
    def serves_tls(self) -> bool:
        """Whether the service serves TLS itself."""
        return False

    @property
    def by_tls(self) -> bool:
        """Whether browsers reach the pages by https."""
        return self.serves_tls or self.behind_tls_proxy

    @property
    def insists_on_tls(self) -> bool:
        """Whether browsers are told to come by https alone."""
        return self.by_tls

    @property
    def page_hosts(self) -> frozenset[str]:
        """The names by which browsers may reach the pages."""
        return frozenset({"localhost", self.host.lower(), *self.allowed_hosts})

    @model_validator(mode="after")
    def _nobody_can_listen_in(self) -> Self:
        private = self.serves_tls or self.behind_tls_proxy or is_loopback(self.host)
        if not private and not self.insecure_plain_http:
            raise ValueError(
                f"host is {self.host}, which other machines reach, and without TLS everyone on the way could "
                "read what passes: listen on 127.0.0.1, or serve TLS where the service can "
                "(tls_certificate_file, tls_key_file), or set behind_tls_proxy = true where nothing but a "
                "proxy that serves TLS can reach this address"
            )
        return self


class PublicSettings(ListeningSettings):
    """The base of the settings of what other institutions call, which can serve TLS itself."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$", max_length=500)]
    """The public URL that the parties call."""
    audience: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """What callers' tokens must be addressed to; the public URL unless set."""
    tls_certificate_file: Path | None = None
    """Certificate chain, PEM; set it with ``tls_key_file`` to serve TLS without a proxy."""
    tls_key_file: Path | None = None
    """The certificate's private key, PEM."""
    tls_client_ca_file: Path | None = None
    """Certificates that callers' own must chain to (mutual TLS); whoever shows none is not heard."""

    @property
    def serves_tls(self) -> bool:
        return self.tls_certificate_file is not None and self.tls_key_file is not None

    @property
    def by_tls(self) -> bool:
        """Whether browsers reach the pages by https, as the public URL says."""
        return self.url.startswith("https://")

    @property
    def insists_on_tls(self) -> bool:
        """Whether browsers are told to come by https alone; not to this machine, whose name others share."""
        return self.by_tls and not is_loopback(urlsplit(self.url).hostname or "")

    @property
    def page_hosts(self) -> frozenset[str]:
        public = urlsplit(self.url).hostname
        return super().page_hosts | ({public} if public else set())

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file need each other")
        if self.tls_client_ca_file is not None and not self.serves_tls:
            raise ValueError("tls_client_ca_file needs tls_certificate_file and tls_key_file")
        return self


def _is_settings(annotation: object) -> TypeGuard[type[ServiceSettings]]:
    return isinstance(annotation, type) and issubclass(annotation, ServiceSettings)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises SettingsError where it is missing or malformed."""
    try:
        return parse_toml(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not TOML: it is not UTF-8") from None
    except SettingsError as error:
        raise SettingsError(f"{path} {error}") from None


KEY_PARTS_MAX = 8
"""Parts of a dotted key, ``a.b.c``; the time that the parser takes for one grows with the square."""

_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
_PART = r"[^\s.=,\[\]{}]"
_LONG_KEY = re.compile(rf"(?<!{_PART})(?:{_PART}++[ \t]*+\.[ \t]*+){{{KEY_PARTS_MAX}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """Read the text of a TOML file; raises SettingsError, which says where it is malformed or too deep."""
    if _LONG_KEY.search(_QUOTED.sub("'", text)):
        raise SettingsError(
            f"is not taken: a key has more than {KEY_PARTS_MAX} parts with points between them"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"is not TOML: {error}") from None
    except RecursionError:
        raise SettingsError("is not taken: lists or tables are too deep within each other") from None
    except ValueError:
        raise SettingsError("is not taken: a whole number has thousands of digits") from None


def read_private_key(path: Path) -> PrivateKey:
    """Read a PEM key file; raises SettingsError where it is missing or unreadable."""
    try:
        return PrivateKey.from_pem(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read the key file {path}: {error.strerror}") from None
    except SignatureError as error:
        raise SettingsError(f"the key file {path}: {error}") from None


FILE_DATABASES = ("sqlite", "duckdb")
"""Kinds of databases that are files."""


def resolve_database_url(url: str, directory: Path) -> str:
    """Make a relative path in a URL of SQLite or DuckDB absolute; raises SettingsError for what is no URL."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise SettingsError(
            "a database's URL is wrong: write sqlite:///file or postgresql://host/name"
        ) from None
    if parsed.get_backend_name() not in FILE_DATABASES or not parsed.database:
        return url
    resolved = parsed.set(database=str(directory / parsed.database))
    return resolved.render_as_string(hide_password=False)


def read_secret(path: Path) -> str:
    """Return what a file holds, without the space around it; raises SettingsError where it is unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"cannot read the secret in {path}") from None
