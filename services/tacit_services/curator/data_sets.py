"""The data sets that owners have registered, and the rows held for them.

What may change when a data set is registered again: its policy and its caps, at any time; a changed cap is
an entry of the ledger. Its columns and its privacy unit are fixed while rows are held, which were read by
them, and for ever once anything was spent: what the ledger has added up is a promise about that unit, and
bounds chosen after looking at results are no longer public.

An account outlives its data set. Whoever registers a deleted data set again finds the account with
everything that was spent, because the people may be the same.

The curator's tables are here too, beside those of the ledger. docs/curator-storage.md tells each row's life.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import sqlalchemy as sa
from pydantic import Field, TypeAdapter, model_validator
from sqlalchemy.engine import Connection

from tacit_protocol.domain import Column, ColumnName, DataError, Domain, VectorColumn
from tacit_protocol.messages.catalogue import ANY
from tacit_protocol.messages.study import DataSetName, PartyName
from tacit_protocol.privacy.accounting import Division
from tacit_protocol.privacy.guarantee import EPSILON_MAX, Budget
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.strict import StrictModel
from tacit_services.agent.data.opening import SourceSettings
from tacit_services.agent.data.source import Source
from tacit_services.agent.settings import Part
from tacit_services.agent.study.intake import Procedures
from tacit_services.agent.study.policy import Rules
from tacit_services.agent.study.readings import lock_of
from tacit_services.curator.store import RowStore, StoredRows
from tacit_services.ledger.accounts import DivisionRefusedError, account_of, set_caps, standing_of
from tacit_services.shared.pages.sessions import SignInTables
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.roster import Roster, invitations_table, parties_table

METADATA = sa.MetaData()

NAME_LENGTH = 63
"""Longest name of an owner or a data set, as in the protocol's ``PartyName``."""

OWNERS = parties_table(METADATA, "curator_owners")

INVITATIONS = invitations_table(METADATA, "curator_invitations")

ROSTER = Roster(OWNERS, INVITATIONS)
"""Who is enrolled here; every role is ``owner``."""

DATA_SETS = sa.Table(
    "curator_data_sets",
    METADATA,
    sa.Column("owner", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("name", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("columns", sa.Text, nullable=False),
    sa.Column("unit_column", sa.String(128), nullable=True),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("registered_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger, nullable=True),
    sa.Column("file", sa.String(32), nullable=True),
    sa.Column("wrapped_key", sa.LargeBinary, nullable=True),
    sa.Column("rows", sa.BigInteger, nullable=True),
    sa.Column("units", sa.BigInteger, nullable=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=True),
    sa.Column("uploaded_at", sa.BigInteger, nullable=True),
)
"""``version`` grows by one with every change; ``file`` and ``wrapped_key`` are of the rows held, if any."""

STORAGE = sa.Table("curator_storage", METADATA, sa.Column("id", sa.String(32), primary_key=True))
"""One row: which folder holds this database's rows."""

SIGN_IN = SignInTables.make(METADATA, "curator_")
"""Links and browsers of the pages."""

DATA_SETS_MAX = 100
"""Most data sets of one owner: bounds what an owner can make the curator keep."""

_COLUMNS: TypeAdapter[tuple[Column, ...]] = TypeAdapter(tuple[Column, ...])

NO_ROWS = "no rows are held for this data set: upload them"
IN_A_DATABASE = "the curator's operator has configured a database for this data set: it takes no upload"
FIXED = "columns and unit_column are fixed once budget was spent"
FIXED_BY_ROWS = "columns and unit_column are fixed while rows are held: delete the data set first"
TOO_MANY = "an owner may register at most 100 data sets"


class HeldPolicy(Rules):
    """What an owner allows of one data set; all of its declared columns unless it names some."""

    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1)] = (ANY,)

    def columns_of(self, data_set: str) -> tuple[str, ...]:  # noqa: ARG002 (the policy is of one data set)
        """Return the columns that may be used."""
        return self.columns


class Registration(StrictModel):
    """What an owner says of a data set: its declared domain, its privacy unit, its caps and its policy.

    ``pure_share`` and ``approximate_share`` divide the caps, as in an agent's settings.
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    unit_column: ColumnName | None = None
    epsilon: Annotated[float, Field(gt=0, le=EPSILON_MAX)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    pure_share: Part | None = None
    approximate_share: Part | None = None
    policy: HeldPolicy

    @model_validator(mode="after")
    def _columns_are_a_domain(self) -> Self:
        try:
            names = {column.name for column in Domain(columns=self.columns).columns}
        except ValueError:
            raise ValueError("column names must be distinct, and there may be at most 1000") from None
        if self.unit_column in names:
            raise ValueError("the unit column cannot be a column of the domain")
        if ANY not in self.policy.columns and not set(self.policy.columns) <= names:
            raise ValueError("the policy names a column that is not declared")
        try:
            Budget.of(self.epsilon, self.delta)
        except ValueError:
            raise ValueError("epsilon must be at least 0.000001") from None
        return self

    @property
    def caps(self) -> Budget:
        """What the account may spend."""
        return Budget.of(self.epsilon, self.delta)


class ConfiguredDataSet(SourceSettings):
    """Where the operator says that a data set's rows are: ``[[data_sets]]`` in the curator's settings.

    An owner's request never says so: a path or a URL of an owner's choice could read the curator's own files.
    """

    owner: PartyName
    name: DataSetName


@dataclass(frozen=True)
class RegisteredDataSet:
    """A registered data set as studies use it.

    ``version`` grows with every change (registration, rows, deletion): compare it in the transaction that
    spends with the one that was read. ``owner_revoked_at`` is when its owner's key was revoked here: no study
    is answered from it since. ``rows`` and ``units`` are None until rows were uploaded, and where a
    database holds them.
    """

    owner: str
    owner_key: str
    owner_revoked_at: int | None
    name: str
    version: int
    columns: tuple[Column, ...]
    unit_column: str | None
    caps: Budget
    policy: HeldPolicy
    ready: bool
    rows: int | None
    units: int | None
    uploaded_at: int | None
    source: Callable[[], Source] = field(repr=False, compare=False)
    """Returns the source of the rows, unread; raises DataError where there are none, or no key opens them."""

    vectors: tuple[VectorColumn, ...] = ()
    """None: encoders run at owners' agents alone."""

    @property
    def account(self) -> str:
        """The ledger's account."""
        return account_name(self.owner, self.name)


def account_name(owner: str, name: str) -> str:
    """Return the name of a data set's account in the ledger."""
    return f"{owner}/{name}"


class DataSets:
    """The registered data sets; all methods work inside the caller's transaction.

    Args:
        store: where uploaded rows are.
        configured: the data sets whose rows the operator reads from elsewhere.
        procedures: what may run where a policy allows it: how an account is divided depends on it.
    """

    def __init__(
        self,
        store: RowStore,
        configured: Sequence[ConfiguredDataSet] = (),
        procedures: Procedures = PROCEDURES,
    ) -> None:
        self._store, self._procedures = store, procedures
        self._configured = {(item.owner, item.name): item for item in configured}

    def held_data_set(self, connection: Connection, owner: str, name: str) -> RegisteredDataSet | None:
        """Return an owner's data set, or None where none is registered (or it was deleted)."""
        row = connection.execute(
            _registered().where(DATA_SETS.c.owner == owner, DATA_SETS.c.name == name)
        ).one_or_none()
        return None if row is None else self._held(connection, row)

    def held_data_sets(self, connection: Connection, owner: str | None = None) -> list[RegisteredDataSet]:
        """Return all data sets, or one owner's, by owner and name."""
        query = _registered().order_by(DATA_SETS.c.owner, DATA_SETS.c.name)
        if owner is not None:
            query = query.where(DATA_SETS.c.owner == owner)
        return [self._held(connection, row) for row in connection.execute(query).all()]

    def register(
        self, connection: Connection, owner: str, name: str, registration: Registration, now: int
    ) -> bool:
        """Register a data set and open its account, or change what may change; returns whether it is new.

        Raises:
            ProblemError: ``data-set-fixed``, where columns or promised shares would change.
        """
        row = _row(connection, owner, name)
        if row is None:
            owned = sa.select(sa.func.count()).select_from(DATA_SETS).where(DATA_SETS.c.owner == owner)
            if connection.execute(owned).scalar_one() >= DATA_SETS_MAX:
                raise RegisteredProblemError("data-set-fixed", detail=TOO_MANY)
        else:
            _require_changeable(connection, row, registration)
        account, caps = account_name(owner, name), registration.caps
        division = Division.of(
            registration.policy.families(self._procedures),
            registration.pure_share,
            registration.approximate_share,
        )
        try:
            set_caps(connection, account, caps.epsilon_micro, caps.delta_pico, at=now, division=division)
        except DivisionRefusedError as error:
            raise RegisteredProblemError("data-set-fixed", detail=str(error)) from None
        values = {
            "columns": _COLUMNS.dump_json(registration.columns).decode(),
            "unit_column": registration.unit_column,
            "policy": registration.policy.model_dump_json(),
            "deleted_at": None,
        }
        if row is None:
            first = {"owner": owner, "name": name, "version": 1, "registered_at": now}
            connection.execute(DATA_SETS.insert().values(**first, **values))
        elif any(row._mapping[column] != value for column, value in values.items()):
            connection.execute(_update(owner, name, row.version, **values))
        return row is None or row.deleted_at is not None

    def require_takes_rows(self, connection: Connection, owner: str, name: str) -> RegisteredDataSet:
        """Return the data set if rows may be uploaded to it.

        Raises:
            ProblemError: ``unknown-data-set`` or ``data-set-fixed``.
        """
        held = self.held_data_set(connection, owner, name)
        if held is None:
            raise RegisteredProblemError("unknown-data-set")
        if (owner, name) in self._configured:
            raise RegisteredProblemError("data-set-fixed", detail=IN_A_DATABASE)
        return held

    def swap_rows(
        self,
        connection: Connection,
        seen: RegisteredDataSet,
        stored: StoredRows,
        *,
        rows: int,
        units: int,
        size_bytes: int,
        now: int,
    ) -> str | None:
        """Let the data set have new rows, if it is still as ``seen``; returns the old file, if any.

        Raises:
            ProblemError: ``conflicting-upload``.
        """
        row = _row(connection, seen.owner, seen.name)
        if row is None or row.version != seen.version:
            raise RegisteredProblemError(
                "conflicting-upload", detail="the data set changed while its rows arrived"
            )
        connection.execute(
            _update(
                seen.owner,
                seen.name,
                seen.version,
                file=stored.file,
                wrapped_key=stored.wrapped_key,
                rows=rows,
                units=units,
                size_bytes=size_bytes,
                uploaded_at=now,
            )
        )
        return None if row.file is None else str(row.file)

    def delete(self, connection: Connection, owner: str, name: str, now: int) -> str | None:
        """Forget the data set's rows and the key that opens them; returns the file, if any.

        The account stays, with all its entries, and so do the columns, which nothing spent may change.

        Raises:
            ProblemError: ``unknown-data-set``.
        """
        row = _row(connection, owner, name)
        if row is None or row.deleted_at is not None:
            raise RegisteredProblemError("unknown-data-set")
        gone = dict.fromkeys(("file", "wrapped_key", "rows", "units", "size_bytes", "uploaded_at"))
        connection.execute(_update(owner, name, row.version, deleted_at=now, **gone))
        return None if row.file is None else str(row.file)

    def stored(self, connection: Connection) -> list[StoredRows]:
        """Return where all rows that are held are."""
        query = DATA_SETS.select().where(DATA_SETS.c.file.is_not(None))
        return [_stored(row) for row in connection.execute(query)]

    def set_wrapped_key(self, connection: Connection, stored: StoredRows, wrapped_key: bytes) -> None:
        """Keep the data key of these rows as another storage key has wrapped it."""
        connection.execute(
            DATA_SETS.update().where(DATA_SETS.c.file == stored.file).values(wrapped_key=wrapped_key)
        )

    def _held(self, connection: Connection, row: Any) -> RegisteredDataSet:
        account = account_of(connection, account_name(row.owner, row.name))
        configured = self._configured.get((row.owner, row.name))
        columns = _COLUMNS.validate_json(row.columns)
        policy = HeldPolicy.model_validate_json(row.policy)
        if ANY in policy.columns:  # every declared column, and no other
            policy = policy.model_copy(update={"columns": tuple(column.name for column in columns)})
        return RegisteredDataSet(
            owner=row.owner,
            owner_key=row.owner_key,
            owner_revoked_at=row.owner_revoked_at,
            name=row.name,
            version=row.version,
            columns=columns,
            unit_column=row.unit_column,
            caps=Budget(epsilon_micro=account.cap.epsilon_micro, delta_pico=account.cap.delta_pico),
            policy=policy,
            ready=configured is not None or row.file is not None,
            rows=None if configured else row.rows,
            units=None if configured else row.units,
            uploaded_at=None if configured else row.uploaded_at,
            source=self._opener(row, configured),
        )

    def _opener(self, row: Any, configured: ConfiguredDataSet | None) -> Callable[[], Source]:
        if configured is not None:
            return configured.open
        stored = None if row.file is None else _stored(row)

        def open_stored() -> Source:
            if stored is None:
                raise DataError(NO_ROWS)
            return self._store.source(stored)

        return open_stored


def view(connection: Connection, held: RegisteredDataSet, *, to_owner: bool, now: int) -> dict[str, Any]:
    """Return what the interface shows of a data set. How many rows there are, only its owner learns.

    That it is locked, an owner learns when others may that no answer comes, and never where in the code: that
    may be of other owners' rows.
    """
    account, lock = held.account, lock_of(connection, held.account)
    locked: dict[str, Any] | None = None
    if lock is not None and (not to_owner or lock.shown_from <= now):
        locked = {"study": lock.study} if to_owner else lock.view()
    shown = {
        "owner": held.owner,
        "name": held.name,
        "account": account,
        "columns": [column.model_dump() for column in held.columns],
        "unit_column": held.unit_column,
        **standing_of(connection, account).model_dump(),
        "policy": held.policy.model_dump(),
        "ready": held.ready,
        "units": held.units,
        "uploaded_at": held.uploaded_at,
        "locked": locked,
    }
    return shown | ({"rows": held.rows} if to_owner else {})


def _registered() -> sa.Select[Any]:
    return (
        sa.select(DATA_SETS, OWNERS.c.key.label("owner_key"), OWNERS.c.revoked_at.label("owner_revoked_at"))
        .join_from(DATA_SETS, OWNERS, DATA_SETS.c.owner == OWNERS.c.name)
        .where(DATA_SETS.c.deleted_at.is_(None))
    )


def _row(connection: Connection, owner: str, name: str) -> Any:
    return connection.execute(
        DATA_SETS.select().where(DATA_SETS.c.owner == owner, DATA_SETS.c.name == name)
    ).one_or_none()


def _update(owner: str, name: str, version: int, **values: Any) -> sa.Update:
    return (
        DATA_SETS.update()
        .where(DATA_SETS.c.owner == owner, DATA_SETS.c.name == name, DATA_SETS.c.version == version)
        .values(version=version + 1, **values)
    )


def _stored(row: Any) -> StoredRows:
    return StoredRows(account_name(row.owner, row.name), row.file, bytes(row.wrapped_key))


def _require_changeable(connection: Connection, row: Any, registration: Registration) -> None:
    same = (
        json.loads(row.columns) == json.loads(_COLUMNS.dump_json(registration.columns))
        and row.unit_column == registration.unit_column
    )
    if same:
        return
    if account_of(connection, account_name(row.owner, row.name)).debits:
        raise RegisteredProblemError("data-set-fixed", detail=FIXED)
    if row.file is not None:
        raise RegisteredProblemError("data-set-fixed", detail=FIXED_BY_ROWS)
