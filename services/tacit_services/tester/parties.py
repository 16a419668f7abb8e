"""Parties at the tester: their roles, and what owners publish of their data sets."""

from collections.abc import Collection
from functools import partial
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.signing import CATALOGUE_TYPE, EnvelopeError, open_envelope
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.roster import Roster
from tacit_services.tester.tables import CATALOGUE, INVITATIONS, PARTIES

Role = Literal["owner", "curator", "analyst"]

ROSTER = Roster(PARTIES, INVITATIONS)


class InvitationRequest(StrictModel):
    """Whom the tester invites."""

    role: Role
    name: PartyName


class EnrolmentRequest(StrictModel):
    """An invited party's answer: the key it will be known by."""

    invitation: str
    name: PartyName
    key: PublicKeyHex
    role: Role


def require_party(connection: Connection, key: str, name: str, role: Role) -> None:
    """Require that a key is enrolled by that name in that role, and was not revoked.

    Raises:
        ProblemError: ``unknown-party``, ``key-revoked``, or ``study-refused``: the key is another party's.
    """
    member = ROSTER.require_member(connection, key)
    if (member.name, member.role) != (name, role):
        raise RegisteredProblemError(
            "study-refused", detail=f"the study gives its {role} another name than its key is enrolled by"
        )


EVERYONE = ("tester", "owner", "curator", "analyst")
"""Every role there is: who may read."""


# What owners publish: taken from their agents, and shown to every party.

ENTRIES_PER_PAGE = 20
"""Owners in one page: an entry may have as many bytes as a request."""


def take_entry(engine: Engine, tester_key: str, owner: str, envelope: bytes, key: str) -> bool:
    """Store what an owner publishes in the place of what it published before; returns whether it is new.

    Raises:
        ProblemError: ``invalid-signature``, ``malformed-message``, ``digest-mismatch``: it is of another
            owner or for another tester; ``conflicting-upload``: a later or another one of that time is here;
            or the key is not enrolled as that owner's.
    """
    try:
        entry = decode(CatalogueMessage, open_envelope(envelope, CATALOGUE_TYPE, key))
    except EnvelopeError:
        raise RegisteredProblemError("invalid-signature") from None
    if (entry.owner, entry.tester) != (owner, tester_key):
        raise RegisteredProblemError("digest-mismatch")
    return run_transaction(engine, partial(_store, entry=entry, envelope=envelope, key=key))


def _store(connection: Connection, entry: CatalogueMessage, envelope: bytes, key: str) -> bool:
    require_party(connection, key, entry.owner, "owner")
    named = CATALOGUE.c.owner == entry.owner
    before = connection.execute(CATALOGUE.select().where(named)).one_or_none()
    if before is not None and before.key == key:
        if bytes(before.envelope) == envelope:
            return False
        if before.version >= entry.version:
            raise RegisteredProblemError("conflicting-upload")
    connection.execute(CATALOGUE.delete().where(named))
    connection.execute(
        CATALOGUE.insert().values(owner=entry.owner, key=key, version=entry.version, envelope=envelope)
    )
    return True


def _held() -> sa.Select[tuple[str, str, bytes]]:
    """Select entries whose owner is enrolled by the key that signed them, and was not revoked."""
    same = sa.and_(PARTIES.c.name == CATALOGUE.c.owner, PARTIES.c.key == CATALOGUE.c.key)
    query = sa.select(CATALOGUE.c.owner, CATALOGUE.c.key, CATALOGUE.c.envelope).join(PARTIES, same)
    return query.where(PARTIES.c.revoked_at.is_(None)).order_by(CATALOGUE.c.owner)


def entry_of(engine: Engine, owner: str) -> bytes:
    """Return what an owner published, as it was signed; raises the problem ``not-found``."""

    def read(connection: Connection) -> bytes | None:
        row = connection.execute(_held().where(CATALOGUE.c.owner == owner)).one_or_none()
        return None if row is None else bytes(row.envelope)

    found = read_from(engine, read)
    if found is None:
        raise RegisteredProblemError("not-found", detail="this owner publishes no data sets here")
    return found


def entries(engine: Engine, after: str | None = None) -> tuple[tuple[CatalogueMessage, ...], str | None]:
    """Return one page of what is published, by owner's name, and the next page's cursor, or None."""
    query = _held() if after is None else _held().where(CATALOGUE.c.owner > after)
    found = _opened(engine, query.limit(ENTRIES_PER_PAGE + 1))
    shown = found[:ENTRIES_PER_PAGE]
    return shown, shown[-1].owner if len(found) > ENTRIES_PER_PAGE else None


def entries_of(engine: Engine, owners: Collection[str]) -> tuple[CatalogueMessage, ...]:
    """Return what these owners publish; of one that publishes nothing, nothing."""
    return _opened(engine, _held().where(CATALOGUE.c.owner.in_(owners)))


def _opened(engine: Engine, query: sa.Select[tuple[str, str, bytes]]) -> tuple[CatalogueMessage, ...]:
    rows = read_from(engine, lambda connection: connection.execute(query).all())
    envelopes = ((bytes(row.envelope), row.key) for row in rows)
    return tuple(decode(CatalogueMessage, open_envelope(e, CATALOGUE_TYPE, key)) for e, key in envelopes)
