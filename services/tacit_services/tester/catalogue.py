"""What owners publish of their data sets: taken from their agents, and shown to every party."""

from collections.abc import Collection
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.signing import CATALOGUE_TYPE, EnvelopeError, open_envelope
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.parties import require_party
from tacit_services.tester.tables import CATALOGUE, PARTIES

PAGE_SIZE = 20
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
        raise ProblemError("invalid-signature") from None
    if (entry.owner, entry.tester) != (owner, tester_key):
        raise ProblemError("digest-mismatch")
    return run_transaction(engine, partial(_store, entry=entry, envelope=envelope, key=key))


def _store(connection: Connection, entry: CatalogueMessage, envelope: bytes, key: str) -> bool:
    require_party(connection, key, entry.owner, "owner")
    named = CATALOGUE.c.owner == entry.owner
    before = connection.execute(CATALOGUE.select().where(named)).one_or_none()
    if before is not None and before.key == key:
        if bytes(before.envelope) == envelope:
            return False
        if before.version >= entry.version:
            raise ProblemError("conflicting-upload")
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
        raise ProblemError("not-found", detail="this owner publishes no data sets here")
    return found


def entries(engine: Engine, after: str | None = None) -> tuple[tuple[CatalogueMessage, ...], str | None]:
    """Return one page of what is published, by owner's name, and the next page's cursor, or None."""
    query = _held() if after is None else _held().where(CATALOGUE.c.owner > after)
    found = _opened(engine, query.limit(PAGE_SIZE + 1))
    shown = found[:PAGE_SIZE]
    return shown, shown[-1].owner if len(found) > PAGE_SIZE else None


def entries_of(engine: Engine, owners: Collection[str]) -> tuple[CatalogueMessage, ...]:
    """Return what these owners publish; of one that publishes nothing, nothing."""
    return _opened(engine, _held().where(CATALOGUE.c.owner.in_(owners)))


def _opened(engine: Engine, query: sa.Select[tuple[str, str, bytes]]) -> tuple[CatalogueMessage, ...]:
    rows = read_from(engine, lambda connection: connection.execute(query).all())
    envelopes = ((bytes(row.envelope), row.key) for row in rows)
    return tuple(decode(CatalogueMessage, open_envelope(e, CATALOGUE_TYPE, key)) for e, key in envelopes)
