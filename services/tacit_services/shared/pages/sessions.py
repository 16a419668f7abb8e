"""Signing in without passwords: a one-time link, asked for with a party's key, becomes a browser's cookie.

Each service has two tables of its own: links, deleted when they are used or too old, and browsers that are
signed in, deleted at sign-out or when they are too old. Of links and cookies only digests are stored.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.problem_responses import ProblemError


@dataclass(frozen=True)
class SignInTables:
    """A service's links and sessions."""

    links: sa.Table
    sessions: sa.Table

    @classmethod
    def make(cls, metadata: sa.MetaData, prefix: str) -> "SignInTables":
        """Describe the tables ``<prefix>sign_in_links`` and ``<prefix>page_sessions``."""
        return cls(*(sa.Table(prefix + name, metadata, *_columns()) for name in NAMES))


NAMES = ("sign_in_links", "page_sessions")


def _columns() -> list[sa.Column[str] | sa.Column[int]]:
    return [
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    ]


def create_tables(prefix: str) -> None:
    """Create both tables; for migrations."""
    from alembic import op  # noqa: PLC0415 (migrations alone need it)

    for name in NAMES:
        op.create_table(prefix + name, *_columns())


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
    """A browser that is signed in: whose key asked for its link, and what its forms must carry."""

    key: str
    form_token: str


class Sessions:
    """The links and sessions of one service."""

    def __init__(self, engine: Engine, tables: SignInTables, clock: Clock) -> None:
        self._engine, self._tables, self._clock = engine, tables, clock

    def make_link(self, key: str) -> tuple[str, int]:
        """Return a new link's secret and when it ends (Unix seconds)."""
        secret, now = secrets.token_urlsafe(32), int(self._clock())
        links = self._tables.links
        expires_at = now + LINK_LIFE_S

        def write(connection: Connection) -> None:
            self._forget_old(connection, now)
            mine = sa.select(links.c.digest).where(links.c.key == key).order_by(links.c.expires_at.desc())
            kept = connection.execute(mine.limit(LINKS_MAX - 1)).scalars().all()
            connection.execute(links.delete().where(links.c.key == key, links.c.digest.not_in(kept)))
            connection.execute(links.insert().values(digest=_digest(secret), key=key, expires_at=expires_at))

        run_transaction(self._engine, write)
        return secret, expires_at

    def use_link(self, secret: str) -> str:
        """Use a link up; returns the secret of a new session, for a cookie.

        Raises:
            ProblemError: ``sign-in-invalid``: it was used before, is too old, or never was.
        """
        if len(secret) > SECRET_LENGTH_MAX:
            raise ProblemError("sign-in-invalid")
        cookie, now = secrets.token_urlsafe(32), int(self._clock())
        links, sessions = self._tables.links, self._tables.sessions

        def exchange(connection: Connection) -> bool:
            self._forget_old(connection, now)
            known = links.c.digest == _digest(secret)
            key = connection.execute(sa.select(links.c.key).where(known)).scalar_one_or_none()
            # The deletion decides, so that of two browsers with one link only one gets in.
            if key is None or connection.execute(links.delete().where(known)).rowcount != 1:
                return False
            row = {"digest": _digest(cookie), "key": key, "expires_at": now + SESSION_LIFE_S}
            connection.execute(sessions.insert().values(**row))
            return True

        if not run_transaction(self._engine, exchange):
            raise ProblemError("sign-in-invalid")
        return cookie

    def find(self, cookie: str | None) -> Session | None:
        """Return the session that a cookie stands for, or None."""
        if cookie is None or len(cookie) > SECRET_LENGTH_MAX:
            return None
        sessions = self._tables.sessions
        query = sa.select(sessions.c.key).where(
            sessions.c.digest == _digest(cookie), sessions.c.expires_at > int(self._clock())
        )
        key = read_from(self._engine, lambda connection: connection.execute(query).scalar_one_or_none())
        return None if key is None else Session(key, _form_token(cookie))

    def end(self, cookie: str | None) -> None:
        """Sign a browser out."""
        if cookie is None:
            return
        sessions = self._tables.sessions
        ended = sessions.delete().where(sessions.c.digest == _digest(cookie))
        run_transaction(self._engine, lambda connection: connection.execute(ended))

    def _forget_old(self, connection: Connection, now: int) -> None:
        for table in (self._tables.links, self._tables.sessions):
            connection.execute(table.delete().where(table.c.expires_at <= now))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _form_token(cookie: str) -> str:
    # Another site cannot read the cookie, and the stored digest does not lead to it.
    return hmac.new(cookie.encode(), b"tacit form", hashlib.sha256).hexdigest()
