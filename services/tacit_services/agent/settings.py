"""The agent's settings, and those that say where a data set's rows are, in agents and in curators.

docs/reference/agent-configuration.md, docs/data-sources.md.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import SettingsConfigDict
from sqlalchemy.engine import make_url

from tacit_protocol.addresses import Route, is_loopback
from tacit_protocol.domain import Column, ColumnName, DataError, VectorColumn
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import UNITS_MAX, DataSetName, PartyName, PublicKeyHex
from tacit_protocol.privacy.accounting import Division, Family
from tacit_protocol.privacy.guarantee import EPSILON_MAX, Budget
from tacit_protocol.public_knowledge import ColumnSchema
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.file_source import EXCEL, READERS, ExcelSource, StatisticsSource
from tacit_services.agent.data.parquet_source import ParquetFolder, ParquetSource, partition_files
from tacit_services.agent.data.regular_files import opened
from tacit_services.agent.data.source import HasSchema, Source
from tacit_services.agent.data.sql_source import Ranges, SqlSource
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.settings import (
    FILE_DATABASES,
    ListeningSettings,
    SettingsError,
    read_toml,
    resolve_database_url,
)


def is_database(source: str) -> bool:
    """Say whether a setting names a database."""
    return "://" in source


SUFFIXES = (".csv", ".csv.gz", ".parquet", *EXCEL, *READERS)
"""What names of data files end in."""


def open_source(
    source: str,
    query: str | None,
    folder: Path,
    ranges: Ranges | None = None,
    *,
    quoted_line_breaks: bool = False,
    sheet: str | None = None,
    value_labels: bool = False,
) -> Source:
    """Return the source that a setting names.

    ``source`` is a path to a file of a known kind or a folder of Parquet files, relative to ``folder``, or a
    database's URL, which needs a ``query`` and may be cut by ``ranges``. Values of a CSV file hold no line
    breaks unless it is said that they do, between quotes.

    Raises:
        DataError: the setting names no known kind of source.
    """
    if is_database(source):
        if query is None:
            raise DataError("a database source needs a query")
        try:
            return SqlSource(resolve_database_url(source, folder), query, ranges)
        except SettingsError as error:
            raise DataError(str(error)) from None
    if query is not None:
        raise DataError("a file source takes no query")
    path = folder / source
    if source.endswith((".csv", ".csv.gz")):
        return CsvSource(path, quoted_line_breaks=quoted_line_breaks)
    if source.endswith("/") or path.is_dir():
        return ParquetFolder(path)
    if source.endswith(".parquet"):
        return ParquetSource(path)
    if path.suffix in EXCEL:
        return ExcelSource(path, sheet)
    if path.suffix in READERS:
        return StatisticsSource(path, value_labels=value_labels)
    raise DataError(
        "a source is a .csv, .csv.gz, .parquet, .xlsx, .sav, .dta, .sas7bdat or .xpt file, a folder of "
        ".parquet files (is it there?), or a database URL with a query"
    )


PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433, "oracle": 1521}
"""Where databases listen unless told otherwise."""


def database_of(url: str, folder: Path) -> tuple[object, ...]:
    """Return which database a URL leads to: its file, or its server and name."""
    try:
        parsed = make_url(resolve_database_url(url, folder))
    except SettingsError:
        return (url,)
    kind = parsed.get_backend_name().replace("mariadb", "mysql")
    if kind in FILE_DATABASES:
        return kind, _identity(Path(parsed.database or "").resolve())
    host = parsed.query.get("unix_socket") or parsed.query.get("host") or parsed.host or "localhost"
    host = "localhost" if is_loopback(str(host)) else host
    return kind, host, parsed.port or PORTS.get(kind), parsed.database


def share_files(one: Path, other: Path) -> bool:
    """Say whether two real paths are of one file, or one is a folder that holds the other."""
    if one == other or one in other.parents or other in one.parents or _identity(one) == _identity(other):
        return True
    folder, file = (one, other) if one.is_dir() else (other, one)
    try:
        if not folder.is_dir() or not file.is_file() or file.stat().st_nlink < 2:
            return False
        return any(_identity(found.path) == _identity(file) for found in partition_files(folder))
    except (OSError, DataError):
        return False


def _identity(path: Path) -> object:
    """Return what tells a file from others whatever its name is; its path where there is none."""
    try:
        status = path.stat()
    except OSError:
        return path
    return (status.st_dev, status.st_ino) if status.st_ino else path


_SQL_WORD = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \w+ | [^\w\s]""",
    re.DOTALL | re.VERBOSE,
)


def query_words(query: str) -> list[str]:
    """Return the words and signs of a query, in small letters but for what is quoted, without comments.

    Queries of the same words read the same rows. Queries of other words may as well, which no text tells.
    """
    found = [
        one[0] if one[0][0] in "'\"`" else one[0].lower()
        for one in _SQL_WORD.finditer(query)
        if one["comment"] is None
    ]
    while found[-1:] == [";"]:
        found.pop()
    return found


CONCEPTS_MAX = 10_000
"""Most numbers in a set of concepts."""

_CONCEPT_SET = re.compile(r"\(\s*:([a-z][a-z0-9_]*)\s*\)")
"""A set in a query, in the brackets of IN."""


def filled_in(query: str, concepts: Mapping[str, Collection[int]]) -> str:
    """Return a query with the numbers of each set of concepts in the place of its name.

    Raises:
        DataError: the query names a set that is not there, or a set is not in the query.
    """
    named = set(_CONCEPT_SET.findall(query))
    if absent := sorted(named - set(concepts)):
        raise DataError(f"concepts lacks the set {absent[0]!r} that the query names")
    if unused := sorted(set(concepts) - named):
        raise DataError(
            f"the query names no set {unused[0]!r} of concepts: it would stand there as (:{unused[0]})"
        )
    return _CONCEPT_SET.sub(lambda found: f"({', '.join(map(str, concepts[found[1]]))})", query)


BOUNDS_MAX = 1000
"""Most places at which a query is cut: there are never so many workers."""


class SourceSettings(BaseModel):
    """Where rows are, and where a query may be cut so that several workers read it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: str
    query: str | None = None
    query_file: Path | None = None
    """The file that holds the query."""

    concepts: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)],
        Annotated[
            tuple[Annotated[StrictInt, Field(ge=0, lt=2**63)], ...],
            Field(min_length=1, max_length=CONCEPTS_MAX),
        ],
    ] = Field(default_factory=dict)
    """Sets of whole numbers, which stand in the query as ``(:name)``: concepts of OMOP."""

    partition_column: ColumnName | None = None
    """A column of numbers of the query, by whose values it is cut."""

    partition_bounds: Annotated[tuple[StrictInt, ...], Field(max_length=BOUNDS_MAX)] = ()
    """Where it is cut. Public: chosen, never looked up in the data."""

    quoted_line_breaks: bool = False
    """Whether values of a CSV file may hold line breaks, between quotes. Otherwise a line is a row."""

    sheet: str | None = None
    """The sheet of an Excel file; the first one where none is named."""

    value_labels: bool = False
    """Whether a category of a file of SPSS, Stata or SAS is its value's label. Otherwise it is the value."""

    folder: Path = Path()
    """What a relative source is relative to: the folder of the configuration file."""

    @model_validator(mode="after")
    def _ranges_are_complete(self) -> Self:
        if (self.partition_column is None) == bool(self.partition_bounds):
            raise ValueError("partition_column and partition_bounds need each other")
        if self.partition_bounds and not is_database(self.source):
            raise ValueError("partition_column is of database sources: Parquet is cut by its row groups")
        if self.quoted_line_breaks and not self.source.endswith((".csv", ".csv.gz")):
            raise ValueError("quoted_line_breaks is of CSV files")
        if self.query is not None and self.query_file is not None:
            raise ValueError("query and query_file are the same thing said twice: leave one out")
        if (self.query_file is not None or self.concepts) and not is_database(self.source):
            raise ValueError("query_file and concepts are of database sources")
        if self.sheet is not None and not self.source.endswith(EXCEL):
            raise ValueError("sheet is of Excel files")
        if self.value_labels and not self.source.endswith(tuple(READERS)):
            raise ValueError("value_labels is of files of SPSS, Stata and SAS")
        if any(first >= second for first, second in pairwise(self.partition_bounds)):
            raise ValueError("partition_bounds must increase")
        return self

    def open(self) -> Source:
        """Return the data source; nothing is read yet.

        Raises:
            DataError: the settings name no known kind of source.
        """
        ranges = None
        if self.partition_column is not None:
            ranges = Ranges(self.partition_column, self.partition_bounds)
        return open_source(
            self.source,
            self.asked_query(),
            self.folder,
            ranges,
            quoted_line_breaks=self.quoted_line_breaks,
            sheet=self.sheet,
            value_labels=self.value_labels,
        )

    def asked_query(self) -> str | None:
        """Return the query, from its file where it stands in one, with its sets of concepts; None of a file.

        Raises:
            DataError: the file cannot be read, or the sets are not those that the query names.
        """
        if self.query_file is None:
            return None if self.query is None else filled_in(self.query, self.concepts)
        try:
            with opened(self.folder / self.query_file) as file, file.stream() as stream:
                text = stream.read().decode("utf-8-sig")
        except (DataError, OSError, UnicodeDecodeError):
            raise DataError("query_file is missing, is no file, may not be read or is not UTF-8") from None
        return filled_in(text, self.concepts)

    def is_of_same_rows(self, other: "SourceSettings") -> bool:
        """Say whether another data set has rows of this one, as far as files and texts of queries tell."""
        if is_database(self.source) or is_database(other.source):
            return self.is_of_same_database(other) and self._query_words() == other._query_words()
        if self.sheet != other.sheet and None not in (self.sheet, other.sheet):
            return False
        return share_files((self.folder / self.source).resolve(), (other.folder / other.source).resolve())

    def is_of_same_database(self, other: "SourceSettings") -> bool:
        """Say whether both are queries of one database, whoever signs in there."""
        if not (is_database(self.source) and is_database(other.source)):
            return False
        return database_of(self.source, self.folder) == database_of(other.source, other.folder)

    def _query_words(self) -> list[str]:
        try:
            return query_words(self.asked_query() or "")
        except DataError:
            return query_words(self.query or "")

    def open_schema(self) -> list[ColumnSchema]:
        """Return the names and types of the columns; no value is read.

        Raises:
            DataError: they cannot be read, or a name is missing or there twice.
        """
        source = self.open()
        if isinstance(source, HasSchema):
            found = source.schema()
        else:
            found = [ColumnSchema(name, "unknown") for name in source.column_names()]
        names = [column.name for column in found]
        if not names or not all(names):
            raise DataError("the data set has no header, or a column without a name: add one line of names")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DataError(f"the data set has more than one column {twice!r}: rename one")
        return found


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
