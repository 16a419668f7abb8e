"""The agent's settings, and those that a curator has alike (docs/reference/agent-configuration.md)."""

import hashlib
import json
import os
from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import SettingsConfigDict
from sqlalchemy.engine import make_url

from tacit_protocol.addresses import Route
from tacit_protocol.domain import Column, ColumnName, VectorColumn
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import UNITS_MAX, DataSetName, PartyName, PublicKeyHex
from tacit_protocol.privacy.accounting import Division, Family
from tacit_protocol.privacy.guarantee import EPSILON_MAX, Budget
from tacit_services.agent.data.opening import SourceSettings, is_database
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.settings import (
    FILE_DATABASES,
    ListeningSettings,
    SettingsError,
    read_toml,
    resolve_database_url,
)

PORT = 8710
"""Where the agent's own interface listens unless told otherwise."""

POLL_WAIT_S_MAX = 60.0
"""Longest long poll: proxies between an institution and the tester cut idle connections after about that."""

Part = Annotated[float, Field(ge=0, le=1)]
"""A part of a cap."""

_COLUMNS: TypeAdapter[tuple[Column, ...]] = TypeAdapter(tuple[Column, ...])
_VECTORS: TypeAdapter[tuple[VectorColumn, ...]] = TypeAdapter(tuple[VectorColumn, ...])


class DataSetSettings(SourceSettings):
    """One data set: where it is, what its privacy unit is, and what may be spent on it in all."""

    name: DataSetName
    people: DataSetName | None = None
    """The account that pays for studies of it, where other data sets are of the same people: one name for all
    of them. None: an account of its own, called as the data set is."""
    unit_column: ColumnName | None = None
    epsilon: Annotated[float, Field(gt=0, le=EPSILON_MAX)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    pure_share: Part | None = None
    """Part of epsilon for Laplace and other pure noise, the rest being for Gaussian noise. None: what may run
    decides."""
    approximate_share: Part | None = None
    """Part of delta for events with a delta of their own, the rest being for Gaussian noise."""
    columns: tuple[Column, ...] = ()
    """The declared domain: a study's bounds and levels must lie within it."""
    vectors: tuple[VectorColumn, ...] = ()
    """Columns of vectors, each with its length and the largest norm that a study may state."""
    image_folder: Path | None = None
    """Where the images lie that a column's relative paths name: none elsewhere is read."""
    about: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """What it is, for the catalogue, if the policy publishes one."""
    units: Annotated[int, Field(ge=1, le=UNITS_MAX)] | None = None
    """Roughly how many privacy units it holds, for the catalogue: a public figure, never counted."""
    measures: dict[ColumnName, Annotated[str, Field(min_length=1, max_length=50)]] = Field(
        default_factory=dict
    )
    """Units of measurement by column, for the catalogue."""

    @field_validator("columns", "vectors", mode="before")
    @classmethod
    def _columns_of_toml(cls, value: Any, field: ValidationInfo) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            return (_VECTORS if field.field_name == "vectors" else _COLUMNS).validate_json(json.dumps(value))
        except ValidationError as error:
            raise ValueError(_column_fault(error)) from None

    @property
    def account(self) -> str:
        """The ledger's account."""
        return self.people or self.name

    @property
    def images(self) -> Path | None:
        """The folder of images, as the configuration's own folder has it."""
        return None if self.image_folder is None else self.folder / self.image_folder

    @property
    def caps(self) -> Budget:
        """What the account may spend."""
        return Budget.of(self.epsilon, self.delta)

    @property
    def terms(self) -> tuple[float | None, ...]:
        """What is said of the account: the same by each data set that spends from it."""
        return self.epsilon, self.delta, self.pure_share, self.approximate_share

    def division(self, families: Collection[Family]) -> Division:
        """Return how the caps are divided: as stated here, or as suits what may run."""
        return Division.of(families, self.pure_share, self.approximate_share)


TWO_ACCOUNTS = "two accounts would let the budget of the same people be spent twice"

ONE_DATABASE = (
    "queries of one database that spend from different accounts. Where the same people are in several of "
    "them, the budget of these people is spent several times: give such data sets the same people"
)


def _column_fault(error: ValidationError) -> str:
    """Say which column, counted from 1, lacks what: a blank that nobody filled in, for one."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = [str(part) for part in first["loc"][1:] if part not in ("numeric", "categorical")]
    number = int(first["loc"][0]) + 1 if first["loc"] else 0
    words = first["msg"].removeprefix("Value error, ")
    where = f"column {number}" + (f", {'.'.join(place)}" if place else "")
    return f"{where}: {words}; fill in every bound and level"


NoticeKind = Literal["waits", "expires", "budget", "locked"]

NOTICE_KINDS: tuple[NoticeKind, ...] = ("waits", "expires", "budget", "locked")

Address = Annotated[str, Field(pattern=r"^[^\s@<>,;:\"()\[\]\\]+@[A-Za-z0-9.-]+$", max_length=254)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s?#]+$", max_length=500)]


class NoticeSettings(BaseModel):
    """One channel: a mail server and whom it writes to, or a webhook with its secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    owner: PartyName | None = None
    """At a curator: whose notices; the operator gets everyone's where it is not set."""
    kinds: Annotated[tuple[NoticeKind, ...], Field(min_length=1)] = NOTICE_KINDS
    """Which notices go here: waits, expires, budget, locked."""
    expires_within_hours: Annotated[float, Field(gt=0, le=2160)] = 24.0
    """How long before its deadline a study that waits is about to expire."""
    budget_left: Annotated[float, Field(ge=0, le=1)] = 0.2
    """What part of a share of a budget is low."""
    link: Url | None = None
    """Where stewards open the pages; the service's own address by default."""
    mail_to: Annotated[tuple[Address, ...], Field(max_length=20)] = ()
    mail_from: Address | None = None
    smtp_host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 587
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """none is for a mail server on this machine."""
    smtp_user: str | None = None
    smtp_password_file: Path | None = None
    webhook: Url | None = None
    webhook_secret_file: Path | None = None
    """What signs messages: whsec_ and base64, or any text of 16 bytes or more."""
    ca_file: Path | None = None
    """Certificates that the server's must chain to, where the public ones do not do."""
    folder: Path = Path()
    """What relative files are relative to."""

    @model_validator(mode="after")
    def _is_one_channel(self) -> Self:
        if bool(self.mail_to) == (self.webhook is not None):
            raise ValueError("a channel of notices has mail_to or webhook, and not both")
        if self.mail_to and (self.mail_from is None or self.smtp_host is None):
            raise ValueError("mail_to needs mail_from and smtp_host")
        if (self.smtp_user is None) != (self.smtp_password_file is None):
            raise ValueError("smtp_user and smtp_password_file need each other")
        if self.webhook is not None and self.webhook_secret_file is None:
            raise ValueError("webhook needs webhook_secret_file")
        return self

    @property
    def name(self) -> str:
        """What the database knows it by: its destination, in whatever order the file has channels."""
        where = encode_json([self.owner, sorted(self.mail_to), self.webhook])
        return hashlib.sha256(where).hexdigest()[:16]


class ParticipantSettings(ListeningSettings):
    """What an agent and a curator need to know alike."""

    tester_url: str
    tester_key: PublicKeyHex
    tester_audience: str | None = None
    """What the tester expects its tokens to be for; its URL unless it says otherwise."""
    tester_ca_file: Path | None = None
    """Certificates that the tester's must chain to, where the public ones do not do."""
    tester_certificate_file: Path | None = None
    """A certificate chain to show to the tester (mutual TLS), PEM; needs ``tester_certificate_key_file``."""
    tester_certificate_key_file: Path | None = None
    """Its private key, PEM, without a password."""
    tester_proxy: Annotated[str, Field(max_length=500)] | None = None
    """A proxy on the way to the tester: a URL, or ``environment`` for what HTTPS_PROXY and NO_PROXY say."""
    tester_proxy_credentials_file: Path | None = None
    """A file of one line, ``user:password``, for the proxy."""
    poll_wait_s: Annotated[float, Field(ge=0, le=POLL_WAIT_S_MAX)] = 20.0
    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    """What computes, and in how much memory."""
    notices: tuple[NoticeSettings, ...] = ()
    """Whom to tell that a study waits or is about to expire, or that a budget runs low."""

    @model_validator(mode="after")
    def _the_way_is_whole(self) -> Self:
        self.route_to_tester  # noqa: B018 (raises where one setting needs another)
        return self

    @classmethod
    def _resolved(cls, values: dict[str, Any], directory: Path) -> dict[str, Any]:
        default = {"database_url": cls.model_fields["database_url"].default}
        resolved = super()._resolved(default | values, directory)
        for name in ("data_sets", "notices"):
            tables = resolved.get(name)
            if isinstance(tables, list):
                resolved[name] = [
                    _without_links({"folder": directory, **item}) if isinstance(item, dict) else item
                    for item in tables
                ]
        return resolved

    @field_validator("notices")
    @classmethod
    def _channels_are_distinct(cls, value: tuple[NoticeSettings, ...]) -> tuple[NoticeSettings, ...]:
        if len({channel.name for channel in value}) != len(value):
            raise ValueError("two channels of notices have the same destination")
        return value

    @property
    def route_to_tester(self) -> Route:
        """How the tester is reached."""
        own = {name: value for name, value in self.__dict__.items() if value is not None}
        return Route.of(own, "tester")

    @property
    def audience_of_tester(self) -> str:
        """The audience of the tokens sent to the tester."""
        return self.tester_url.rstrip("/") if self.tester_audience is None else self.tester_audience


class AgentSettings(ParticipantSettings):
    """Everything an agent needs to know; environment variables begin with ``TACIT_AGENT_``."""

    model_config = SettingsConfigDict(env_prefix="TACIT_AGENT_")

    database_url: str = "sqlite:///agent.sqlite3"
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    policy_file: Path
    data_sets: tuple[DataSetSettings, ...] = ()
    connections: dict[PartyName, str] = Field(default_factory=dict)
    """Databases by name, SQLAlchemy URLs: data sets may name one, and queries of it be added on the page."""
    encoders_folder: Path = Path("encoders")
    """Where public models and projections lie, each called by its SHA-256: ``tacit agent encoder add``."""
    data_folders: tuple[Path, ...] = ()
    """Folders of which files may be added as data sets on the page."""
    data_sets_file: Path | None = None
    """Where added data sets are written; ``data-sets.toml`` beside agent.toml where anything may be added."""

    @classmethod
    def _resolved(cls, values: dict[str, Any], directory: Path) -> dict[str, Any]:
        """Take the added data sets in, and the URLs of the connections that data sets name."""
        resolved = {"encoders_folder": directory / "encoders"} | super()._resolved(values, directory)
        resolved["encoders_folder"] = Path(resolved["encoders_folder"]).resolve()
        if isinstance(resolved.get("data_folders"), list):
            folders = [(directory / str(folder)).resolve() for folder in resolved["data_folders"]]
            resolved["data_folders"] = folders
        connections = resolved.get("connections") or {}
        if isinstance(connections, dict):
            connections = {name: _url_without_links(str(url), directory) for name, url in connections.items()}
            resolved["connections"] = connections
        if resolved.get("data_folders") or connections:
            resolved.setdefault("data_sets_file", directory / "data-sets.toml")
        tables, file = resolved.get("data_sets") or [], resolved.get("data_sets_file")
        if isinstance(file, Path) and file.exists() and isinstance(tables, list):
            added = read_toml(file).get("data_sets", [])
            tables = [*tables, *({"folder": file.parent, **item} for item in added)]
        if isinstance(tables, list) and tables:
            resolved["data_sets"] = [_connected(item, connections) for item in tables]
        return resolved

    @model_validator(mode="after")
    def _there_is_data(self) -> Self:
        if not (self.data_sets or self.data_folders or self.connections):
            raise ValueError("there are no data_sets, and no data_folders or connections to add any of")
        return self

    @field_validator("data_sets")
    @classmethod
    def _names_are_distinct(cls, value: tuple[DataSetSettings, ...]) -> tuple[DataSetSettings, ...]:
        names = [data_set.name for data_set in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two data sets are called {twice}: give one another name")
        return value

    @model_validator(mode="after")
    def _people_have_one_account(self) -> Self:
        for one, other in combinations(self.data_sets, 2):
            if one.account == other.account and one.terms != other.terms:
                raise ValueError(
                    f"data sets {one.name} and {other.name} spend from one account, {one.account}: give both "
                    "the same epsilon, delta, pure_share and approximate_share"
                )
            if one.account != other.account and one.is_of_same_rows(other):
                raise ValueError(
                    f"data sets {one.name} and {other.name} are of the same rows, and {TWO_ACCOUNTS}: give "
                    f'both the same people, such as people = "{one.account}"'
                )
        return self

    def accounts_on_one_database(self) -> list[str]:
        """Name the data sets that are queries of one database and do not spend from one account."""
        found = []
        for data_set in self.data_sets:
            others = [one for one in self.data_sets if data_set.is_of_same_database(one)]
            if others[:1] == [data_set] and len({one.account for one in others}) > 1:
                names = ", ".join(one.name for one in others)
                found.append(f"{names}: {ONE_DATABASE}")
        return found

    def with_data_set(self, added: DataSetSettings) -> Self:
        """Return these settings with a data set more."""
        return self.model_copy(update={"data_sets": (*self.data_sets, added)})

    def data_set(self, name: str) -> DataSetSettings | None:
        """Return the data set of that name, or None."""
        return next((data_set for data_set in self.data_sets if data_set.name == name), None)


def _without_links(table: dict[str, Any]) -> dict[str, Any]:
    """Return a data set's table, each path that is stated through a link being what the link leads to now.

    The operator's file may name links; readers follow none. Raises SettingsError where a link leads to a file
    whose name says another kind.
    """
    found, directory = dict(table), Path(table["folder"])
    for name in ("source", "query_file", "image_folder"):
        value = table.get(name)
        if not isinstance(value, str):
            continue
        if name == "source" and is_database(value):
            found[name] = _url_without_links(value, directory)
            continue
        stated = Path(os.path.abspath(directory / value))
        real = stated.resolve()
        if real == stated:
            continue
        if name == "source" and stated.suffixes[-1:] != real.suffixes[-1:]:
            raise SettingsError(
                f"data set {table.get('name')}: source is a link to a file whose name ends in another way: "
                "name that file, or let the names end alike"
            )
        found[name] = str(real) + ("/" if value.endswith("/") else "")
    return found


def _url_without_links(url: str, directory: Path) -> str:
    """Return a database's URL, with the file that it leads to now where it is one of a file."""
    parsed = make_url(resolve_database_url(url, directory))
    if parsed.get_backend_name() not in FILE_DATABASES or not parsed.database:
        return url
    return parsed.set(database=os.path.realpath(parsed.database)).render_as_string(hide_password=False)


def _connected(item: Any, connections: Any) -> Any:
    """Return a table of a data set with the URL of the connection that it names; raises SettingsError."""
    if not isinstance(item, dict) or "connection" not in item:
        return item
    name = item["connection"]
    if "source" in item or name not in connections:
        raise SettingsError(
            f"data set {item.get('name')}: agent.toml has no connection of that name under [connections], or "
            "the data set has a source as well"
        )
    return {key: value for key, value in item.items() if key != "connection"} | {"source": connections[name]}


def fault_words(error: ValidationError) -> str:
    """Say which setting of a data set is wrong, and how; nothing that was given is repeated."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    words = first["msg"].removeprefix("Value error, ")
    return f"{where}: {words}" if where and where != "columns" else words
