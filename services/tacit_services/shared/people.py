"""People of a party: who may look, decide and change rules, and the record of what they changed.

A party's key may do everything: whoever holds it is the admin :data:`KEY_HOLDER`, and a party that names
nobody else works as it always did. No row of a person is ever deleted: who was removed keeps the name, so
that what is recorded of one person can never be read as another's.

The record is a chain of hashes for each party, as the ledger's: an entry says who changed what, when.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from sqlalchemy.engine import Connection, Engine
from starlette.responses import Response

from tacit_protocol.messages.answers import ChangeRecord, ListPage, NamedUser, User
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import PartyName
from tacit_protocol.names import folded
from tacit_protocol.strict import StrictModel
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.http_app import answer_schema, body_schema, json_body, json_response
from tacit_services.shared.problem_responses import RegisteredProblemError

Role = Literal["viewer", "steward", "officer", "admin"]
"""What a person may do; each may what those before may. A viewer reads, a steward decides on studies, an
officer changes the policy, an admin all that pages offer."""

ROLES: tuple[Role, ...] = get_args(Role)

DECIDING = ROLES[ROLES.index("steward") :]
"""Roles whose people may decide on studies."""

KEY_HOLDER = "key-holder"
"""Whoever holds the party's key, and whose sign-in link names nobody: an admin. No person has this name."""

USERS_MAX = 1000
"""People of one party, those removed among them."""

CHANGES_MAX = 20_000
"""Entries of a party's record from which on it adds and changes nobody: what a caller may store ends."""

RECORD_BYTES = 2**18
"""About how much of a record is shown at once."""

BY_FILE = "file"
"""In the record: whoever changed a file, whom nothing names. No person has this name either."""

ADDED, CHANGED, REMOVED = ACTIONS = ("user added", "user changed", "user removed")
"""Actions of the record that are of people."""

BY_KEY = "whoever holds the key makes, changes and removes admins (users add, users remove)"

FIRST_HASH = "0" * 64


@dataclass(frozen=True)
class Person:
    """A person of the party with that key, and what the person may do."""

    key: str
    name: str = KEY_HOLDER
    role: Role = "admin"

    def may(self, least: Role) -> bool:
        """Say whether the person's role is that one or one above it."""
        return ROLES.index(self.role) >= ROLES.index(least)

    def require(self, least: Role) -> None:
        """Raise the problem ``role-needed`` unless the person's role is that one or one above it."""
        if not self.may(least):
            raise RegisteredProblemError(
                "role-needed", detail=f"this needs the role {least}, and yours is {self.role}"
            )


ADDRESS = r"^[!#-&(-;=?A-~]+@[!#-&(-;=?A-~]+$"
"""An e-mail address in ASCII, without spaces, quotes or angle brackets: beyond ASCII, two that look the same
may be two people's."""


class UserRequest(StrictModel):
    """What is said of a person: the role, and the address by which a provider of identities knows them."""

    role: Role
    email: Annotated[str, Field(min_length=3, max_length=254, pattern=ADDRESS)] | None = None


@dataclass(frozen=True)
class PeopleTables:
    """A service's people and the record of their changes."""

    users: sa.Table
    record: sa.Table

    @classmethod
    def make(cls, metadata: sa.MetaData, prefix: str) -> "PeopleTables":
        """Describe the tables ``<prefix>users`` and ``<prefix>record``."""
        users = sa.Table(
            f"{prefix}users",
            metadata,
            sa.Column("key", sa.String(64), primary_key=True),
            sa.Column("name", sa.String(63), primary_key=True),
            sa.Column("role", sa.String(16), nullable=False),
            sa.Column("email", sa.String(254), nullable=True),
            sa.Column("subject", sa.String(255), nullable=True),
            sa.Column("added_at", sa.BigInteger, nullable=False),
            sa.Column("removed_at", sa.BigInteger, nullable=True),
            sa.Column("demotions", sa.BigInteger, nullable=False, server_default="0"),
        )
        record = sa.Table(
            f"{prefix}record",
            metadata,
            sa.Column("key", sa.String(64), primary_key=True),
            sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("at", sa.BigInteger, nullable=False),
            sa.Column("person", sa.String(63), nullable=False),
            sa.Column("action", sa.String(32), nullable=False),
            sa.Column("detail", sa.Text, nullable=False),
            sa.Column("previous_hash", sa.String(64), nullable=False),
            sa.Column("entry_hash", sa.String(64), nullable=False),
        )
        return cls(users, record)


def record_change(
    connection: Connection,
    tables: PeopleTables,
    by: Person,
    action: str,
    detail: Mapping[str, Any],
    *,
    at: int,
) -> None:
    """Append an entry to a party's record, in the caller's transaction; ``detail`` is JSON."""
    record = tables.record
    newest, previous = _newest(connection, record, by.key)
    entry = {
        "key": by.key,
        "sequence": newest + 1,
        "at": at,
        "person": by.name,
        "action": action,
        "detail": encode_json(dict(detail)).decode(),
        "previous_hash": previous,
    }
    connection.execute(record.insert().values(**entry, entry_hash=_hash(entry)))


def _newest(connection: Connection, record: sa.Table, key: str) -> tuple[int, str]:
    """Return the number of a party's newest entry and its hash."""
    query = sa.select(record.c.sequence, record.c.entry_hash).where(record.c.key == key)
    last = connection.execute(query.order_by(record.c.sequence.desc()).limit(1)).one_or_none()
    return (0, FIRST_HASH) if last is None else (last.sequence, last.entry_hash)


def recorded(
    connection: Connection, tables: PeopleTables, key: str
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a party's record, oldest first, and what is wrong with its chain of hashes, or None."""
    record = tables.record
    rows = connection.execute(record.select().where(record.c.key == key).order_by(record.c.sequence))
    entries, fault, previous = [], None, FIRST_HASH
    for number, row in enumerate(rows, 1):
        entry = dict(row._mapping)
        stored = entry.pop("entry_hash")
        if (entry["sequence"], entry["previous_hash"], stored) != (number, previous, _hash(entry)):
            fault = fault or f"an entry was changed, removed or added (entry {number})"
        previous = stored
        del entry["key"]
        entries.append({**entry, "detail": json.loads(entry["detail"]), "entry_hash": stored})
    return entries, fault


def _hash(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_json(dict(entry))).hexdigest()


def demotions_of(connection: Connection, tables: PeopleTables, person: Person) -> int:
    """Return how often a person lost the right to decide: what it approved before does not count again."""
    users = tables.users
    query = sa.select(users.c.demotions).where(users.c.key == person.key, users.c.name == person.name)
    return connection.execute(query).scalar_one_or_none() or 0


def person_of(connection: Connection, tables: PeopleTables, key: str, name: str) -> Person | None:
    """Return a party's person of that name, or None where there is none or was."""
    if name == KEY_HOLDER:
        return Person(key)
    users = tables.users
    query = sa.select(users.c.role).where(
        users.c.key == key, users.c.name == name, users.c.removed_at.is_(None)
    )
    role = connection.execute(query).scalar_one_or_none()
    return None if role is None else Person(key, name, role)


@dataclass(frozen=True)
class People:
    """The people of the parties of one service."""

    engine: Engine
    tables: PeopleTables
    clock: Clock
    signed_out: tuple[sa.Table, ...] = ()
    """Tables of links and browsers, of which a removed person's are deleted."""

    def listed(self, key: str) -> list[dict[str, Any]]:
        """Return a party's people by name, those removed among them."""
        users = self.tables.users
        names = ("name", "role", "email", "added_at", "removed_at")
        query = sa.select(*(users.c[name] for name in names)).where(users.c.key == key)

        def read(connection: Connection) -> list[dict[str, Any]]:
            return [dict(row._mapping) for row in connection.execute(query.order_by(users.c.name))]

        return read_from(self.engine, read)

    def changes(self, key: str, length: int) -> list[dict[str, Any]]:
        """Return the newest changes of a party's people, the newest first, as the record has them."""
        entries, _ = read_from(self.engine, recorded, self.tables, key)
        return [entry for entry in entries if entry["action"] in ACTIONS][-length:][::-1]

    def put_below_admin(self, by: Person, name: str, said: UserRequest) -> bool:
        """Add or change a person as an admin's page does: admins are made and changed by the key alone.

        Raises:
            ProblemError: as :meth:`put`; ``role-needed``.
        """
        self._require_below_admin(by, name)
        if said.role == "admin":
            raise RegisteredProblemError("role-needed", detail=BY_KEY)
        return self.put(by, name, said)

    def remove_below_admin(self, by: Person, name: str) -> None:
        """Remove a person as an admin's page does; raises as :meth:`remove` and :meth:`put_below_admin`."""
        self._require_below_admin(by, name)
        self.remove(by, name)

    def _require_below_admin(self, by: Person, name: str) -> None:
        by.require("admin")
        found = read_from(self.engine, person_of, self.tables, by.key, name)
        if found is not None and found.role == "admin":
            raise RegisteredProblemError("role-needed", detail=BY_KEY)

    def put(self, by: Person, name: str, said: UserRequest) -> bool:
        """Add a person, or change what is said of one; returns whether the person is new.

        Raises:
            ProblemError: ``user-exists``: the name is the key holder's or was a removed person's, or another
                has the address; ``malformed-message``: there are too many.
        """
        users, now = self.tables.users, int(self.clock())
        said_of = {"role": said.role, "email": None if said.email is None else folded(said.email)}

        def write(connection: Connection) -> bool:
            own = connection.execute(users.select().where(users.c.key == by.key)).all()
            before = next((row for row in own if row.name == name), None)
            others = {row.email for row in own if row.removed_at is None and row.name != name}
            if name in {KEY_HOLDER, BY_FILE} or (before is not None and before.removed_at is not None):
                raise RegisteredProblemError("user-exists", path="name")
            if said_of["email"] is not None and said_of["email"] in others:
                raise RegisteredProblemError("user-exists", path="email")
            if before is None and len(own) >= USERS_MAX:
                raise RegisteredProblemError(
                    "malformed-message", detail=f"a party has {USERS_MAX} people at most"
                )
            if _newest(connection, self.tables.record, by.key)[0] >= CHANGES_MAX:
                raise RegisteredProblemError("malformed-message", detail="people were changed too often")
            if before is None:
                connection.execute(users.insert().values(key=by.key, name=name, added_at=now, **said_of))
            elif (before.role, before.email) != (said_of["role"], said_of["email"]):
                # Another address may be another person at the provider: the old identity opens nothing more.
                subject = before.subject if before.email == said_of["email"] else None
                changed = users.update().where(users.c.key == by.key, users.c.name == name)
                is_demoted = before.role in DECIDING and said.role not in DECIDING
                kept = {"subject": subject, "demotions": before.demotions + is_demoted}
                connection.execute(changed.values(**said_of, **kept))
                self._sign_out(connection, by.key, name)
            else:
                return False
            action = ADDED if before is None else CHANGED
            record_change(connection, self.tables, by, action, {"name": name, **said_of}, at=now)
            return before is None

        return run_transaction(self.engine, write)

    def remove(self, by: Person, name: str) -> None:
        """Remove a person, whose browsers are signed out at once; raises ``unknown-user``."""
        users, now = self.tables.users, int(self.clock())

        def write(connection: Connection) -> None:
            known = (users.c.key == by.key, users.c.name == name, users.c.removed_at.is_(None))
            if connection.execute(users.update().where(*known).values(removed_at=now)).rowcount != 1:
                raise RegisteredProblemError("unknown-user")
            self._sign_out(connection, by.key, name)
            record_change(connection, self.tables, by, REMOVED, {"name": name}, at=now)

        run_transaction(self.engine, write)

    def _sign_out(self, connection: Connection, key: str, name: str) -> None:
        for table in self.signed_out:
            connection.execute(table.delete().where(table.c.key == key, table.c.person == name))

    def identified(self, key: str, subject: str, email: str | None) -> Person | None:
        """Return the person whom a provider of identities knows by a subject, or by a verified address.

        A person found by the address is known by the subject alone from then on: the address may become
        another's at the provider.
        """
        users = self.tables.users
        present = (users.c.key == key, users.c.removed_at.is_(None))

        def find(connection: Connection) -> Person | None:
            rows = connection.execute(users.select().where(*present, users.c.subject == subject)).all()
            if not rows and email is not None and email.isascii():
                by_address = (users.c.subject.is_(None), users.c.email == folded(email))
                rows = connection.execute(users.select().where(*present, *by_address)).all()
                for row in rows:
                    found = users.update().where(users.c.key == key, users.c.name == row.name)
                    connection.execute(found.values(subject=subject))
            return Person(key, rows[0].name, rows[0].role) if len(rows) == 1 else None

        return run_transaction(self.engine, find)

    def router(self, signer: Callable[..., Any]) -> APIRouter:
        """Return the routes; ``signer`` is a dependency: the key that signed, whose people it is about."""
        router = APIRouter(prefix="/v1")
        Named = Annotated[PartyName, Path()]
        Key = Annotated[str, Depends(signer)]

        @router.get("/users", **answer_schema(ListPage[User]))
        def list_users(key: Key) -> Response:
            """List the caller's own people, by name; those removed, too."""
            return json_response({"items": self.listed(key), "next": None})

        @router.put(
            "/users/{name}",
            status_code=201,
            openapi_extra=body_schema(UserRequest),
            **answer_schema(NamedUser, repeatable=True),
        )
        def put_user(
            key: Key, name: Named, said: Annotated[UserRequest, Depends(json_body(UserRequest))]
        ) -> Response:
            """Add a person, or change the role or the address of one, whose browsers are then signed out."""
            is_new = self.put(Person(key), name, said)
            return json_response({"name": name, **said.model_dump()}, 201 if is_new else 200)

        @router.delete("/users/{name}", **answer_schema(NamedUser))
        def remove_user(key: Key, name: Named) -> Response:
            """Remove a person: its browsers are signed out, and its name is never another's."""
            self.remove(Person(key), name)
            return json_response({"name": name})

        @router.get("/record", **answer_schema(ChangeRecord))
        def show_record(key: Key, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> Response:
            """Show what the caller's people changed, oldest first, and whether the chain is whole."""
            entries, fault = read_from(self.engine, recorded, self.tables, key)
            shown, size = list[dict[str, Any]](), 0
            for entry in entries[after:]:
                # Of a policy the difference is shown; its text is kept for the next one.
                detail = {name: said for name, said in entry["detail"].items() if name != "text"}
                size += len(encode_json(detail))
                if shown and size > RECORD_BYTES:
                    break
                shown.append(entry | {"detail": detail})
            end = after + len(shown)
            return json_response(
                {"entries": shown, "fault": fault, "next": end if end < len(entries) else None}
            )

        return router
