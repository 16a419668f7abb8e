"""Signing in without passwords: a one-time link, asked for with a party's key, becomes a browser's cookie.

A link names one of the party's people, or nobody: then the holder of the key. Each service has two tables of
its own: links, deleted when they are used or too old, and browsers that are signed in, deleted at sign-out or
when they are too old. Of links and cookies only digests are stored.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.people import KEY_HOLDER, People, PeopleTables, Person, person_of
from tacit_services.shared.problem_responses import RegisteredProblemError


@dataclass(frozen=True)
class SignInTables:
    """A service's links and sessions, and the people whose they are."""

    links: sa.Table
    sessions: sa.Table
    people: PeopleTables

    @classmethod
    def make(cls, metadata: sa.MetaData, prefix: str) -> "SignInTables":
        """Describe the tables ``<prefix>sign_in_links`` and ``<prefix>page_sessions``, and people's."""
        links, sessions = (
            sa.Table(
                prefix + name,
                metadata,
                sa.Column("digest", sa.String(64), primary_key=True),
                sa.Column("key", sa.String(64), nullable=False),
                sa.Column("expires_at", sa.BigInteger, nullable=False),
                sa.Column("person", sa.String(63), nullable=False, server_default=KEY_HOLDER),
            )
            for name in ("sign_in_links", "page_sessions")
        )
        return cls(links, sessions, PeopleTables.make(metadata, prefix))

    def of_people(self, engine: Engine, clock: Clock) -> People:
        """Return the people, whose links and browsers end with them."""
        return People(engine, self.people, clock, (self.links, self.sessions))


LINK_LIFE_S = 300
"""How long a link waits to be used: time to carry it from a terminal to a browser."""

SESSION_LIFE_S = 8 * 3600
"""How long a browser stays signed in: a working day."""

LINKS_MAX = 100
"""Unused links of one party at once; the oldest give way."""

SECRET_LENGTH_MAX = 100
"""A link's or a cookie's secret has 43 characters; a longer one is not looked at."""


@dataclass(frozen=True)
class Session:
    """A browser that is signed in: who uses it, and what its forms must carry."""

    person: Person
    form_token: str

    @property
    def key(self) -> str:
        """The key of the person's party."""
        return self.person.key


class Sessions:
    """The links and sessions of one service."""

    def __init__(self, engine: Engine, tables: SignInTables, clock: Clock) -> None:
        self._engine, self._tables, self._clock = engine, tables, clock
        self.people = tables.of_people(engine, clock)

    def make_link(self, key: str, name: str = KEY_HOLDER) -> tuple[str, int]:
        """Return the secret of a new link for a party's person, and when it ends (Unix seconds).

        Raises:
            ProblemError: ``unknown-user``.
        """
        secret, now = secrets.token_urlsafe(32), int(self._clock())
        links = self._tables.links
        expires_at = now + LINK_LIFE_S

        def write(connection: Connection) -> None:
            self._forget_old(connection, now)
            if person_of(connection, self._tables.people, key, name) is None:
                raise RegisteredProblemError("unknown-user")
            mine = sa.select(links.c.digest).where(links.c.key == key).order_by(links.c.expires_at.desc())
            kept = connection.execute(mine.limit(LINKS_MAX - 1)).scalars().all()
            connection.execute(links.delete().where(links.c.key == key, links.c.digest.not_in(kept)))
            row = {"digest": digest_of(secret), "key": key, "person": name, "expires_at": expires_at}
            connection.execute(links.insert().values(**row))

        run_transaction(self._engine, write)
        return secret, expires_at

    def use_link(self, secret: str) -> str:
        """Use a link up; returns the secret of a new session, for a cookie.

        Raises:
            ProblemError: ``sign-in-invalid``: it was used before, is too old, or never was.
        """
        if len(secret) > SECRET_LENGTH_MAX:
            raise RegisteredProblemError("sign-in-invalid")
        cookie, now = secrets.token_urlsafe(32), int(self._clock())
        links = self._tables.links

        def exchange(connection: Connection) -> bool:
            self._forget_old(connection, now)
            known = links.c.digest == digest_of(secret)
            link = connection.execute(links.select().where(known)).one_or_none()
            # The deletion decides, so that of two browsers with one link only one gets in.
            if link is None or connection.execute(links.delete().where(known)).rowcount != 1:
                return False
            self._begin(connection, cookie, link.key, link.person, now)
            return True

        if not run_transaction(self._engine, exchange):
            raise RegisteredProblemError("sign-in-invalid")
        return cookie

    def begin(self, person: Person) -> str:
        """Sign a person in who has proved by other means who it is; returns the secret for a cookie."""
        cookie, now = secrets.token_urlsafe(32), int(self._clock())
        run_transaction(self._engine, lambda c: self._begin(c, cookie, person.key, person.name, now))
        return cookie

    def _begin(self, connection: Connection, cookie: str, key: str, name: str, now: int) -> None:
        row = {"digest": digest_of(cookie), "key": key, "person": name, "expires_at": now + SESSION_LIFE_S}
        connection.execute(self._tables.sessions.insert().values(**row))

    def find(self, cookie: str | None) -> Session | None:
        """Return the session that a cookie stands for, or None."""
        if cookie is None or len(cookie) > SECRET_LENGTH_MAX:
            return None
        sessions = self._tables.sessions
        query = sa.select(sessions.c.key, sessions.c.person).where(
            sessions.c.digest == digest_of(cookie), sessions.c.expires_at > int(self._clock())
        )

        def read(connection: Connection) -> Person | None:
            row = connection.execute(query).one_or_none()
            return None if row is None else person_of(connection, self._tables.people, row.key, row.person)

        person = read_from(self._engine, read)
        return None if person is None else Session(person, _form_token(cookie))

    def end(self, cookie: str | None) -> None:
        """Sign a browser out."""
        if cookie is not None:
            self.end_by_digest(digest_of(cookie))

    def end_by_digest(self, digest: str) -> None:
        """Sign out the browser whose cookie has that digest, if there is one."""
        sessions = self._tables.sessions
        ended = sessions.delete().where(sessions.c.digest == digest)
        run_transaction(self._engine, lambda connection: connection.execute(ended))

    def _forget_old(self, connection: Connection, now: int) -> None:
        for table in (self._tables.links, self._tables.sessions):
            connection.execute(table.delete().where(table.c.expires_at <= now))


def digest_of(secret: str) -> str:
    """Return what is stored of a link's or a cookie's secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _form_token(cookie: str) -> str:
    # Another site cannot read the cookie, and the stored digest does not lead to it.
    return hmac.new(cookie.encode(), b"tacit form", hashlib.sha256).hexdigest()
