"""Diagnostics: one check of a party's set-up, and those of its database and of its enrolment."""

import importlib.util
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.client.answers import EnrolledParty
from tacit.client.tester import Client, token_source
from tacit.client.transport import HttpTransport, TokenSource, Transport, tls_of
from tacit.errors import ConfigurationError, ProblemError, ResponseError, TransportError
from tacit.setup.configuration import text_field
from tacit.setup.keys import load_key

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Diagnostic:
    """One check: what was looked at, how it is, and what to do where it is not well."""

    name: str
    state: State
    text: str


DATABASE_WAIT_S = 10.0
"""How long a running service may hold the database before it counts as not writable."""

NETWORK_FILE_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "davfs", "ncpfs"),
}
"""File systems of other machines: SQLite's locks and write-ahead log do not hold there."""

MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
"""File systems that a restart empties."""

MOUNTS = Path("/proc/self/mounts")

_REVISION = re.compile(r'^revision(?:: str)? = "([^"]+)"', re.MULTILINE)
_BEFORE = re.compile(r'^down_revision(?:: [^=]+)? = "([^"]+)"', re.MULTILINE)


def database_findings(folder: Path, url: str, component: str) -> Iterator[Diagnostic]:
    """Look at a database: that it can be written, that it is durable, and that its tables are current.

    Args:
        folder: what a relative path is relative to.
        url: as the service's settings say it.
        component: ``agent``, ``tester`` or ``curator``: whose tables it has.
    """
    if not url.startswith("sqlite:///"):
        yield from _server_findings(url, component)
        return
    path = folder / url.removeprefix("sqlite:///")
    written = _written(path)
    yield written
    if written.state == "ok":
        yield _durable(path)
        if path.exists():
            yield _tables(_sqlite_version(path, component), component)


def _written(path: Path) -> Diagnostic:
    existed = path.exists()
    try:
        connection = sqlite3.connect(path, timeout=DATABASE_WAIT_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
            if not existed:
                path.unlink(missing_ok=True)
    except sqlite3.Error as error:
        return Diagnostic(
            "database", "failed", f"cannot write {path} ({error}): check the folder's permissions"
        )
    return Diagnostic("database", "ok", f"{path} can be written")


def _durable(path: Path) -> Diagnostic:
    kind = file_system_of(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        return Diagnostic(
            "durable",
            "failed",
            f"{path.parent} is on a network file system ({kind}), where SQLite's locks do not hold and a "
            "budget could be spent twice: move it to a local disk, or use PostgreSQL",
        )
    if kind in MEMORY_FILE_SYSTEMS:
        return Diagnostic(
            "durable",
            "warning",
            f"{path.parent} is in memory ({kind}): a restart forgets the ledger, and what was spent could be "
            "spent again. Move it to a disk",
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(b"\0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return Diagnostic(
            "durable", "failed", f"{path.parent} cannot be synchronised to its disk: {error.strerror}"
        )
    journal = _pragma(path, "journal_mode") if path.exists() else "wal"
    if journal != "wal":
        return Diagnostic(
            "durable",
            "warning",
            f"{path} has no write-ahead log (journal_mode is {journal}): the service turns it on when it "
            "starts; start it before you rely on this",
        )
    return Diagnostic(
        "durable", "ok", "write-ahead log, synchronous=FULL at every commit, on a local disk that takes fsync"
    )


def _pragma(path: Path, name: str) -> str:
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=DATABASE_WAIT_S)
        try:
            return str(connection.execute(f"PRAGMA {name}").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return "unknown"


def file_system_of(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on, or None where this machine does not tell."""
    try:
        lines = MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    place, best, kind = folder.resolve(), -1, None
    for line in lines:
        _, point, type_, *_ = [*line.split(), "", "", ""]
        mount = Path(point.replace("\\040", " ") or "/")
        if (place == mount or mount in place.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), type_
    return kind


def _sqlite_version(path: Path, component: str) -> str | None:
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=DATABASE_WAIT_S)
        try:
            row = connection.execute(f"SELECT version_num FROM alembic_{component}").fetchone()  # noqa: S608 (ours)
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


def _tables(version: str | None, component: str) -> Diagnostic:
    """Compare the version of the tables with those that this software can make."""
    known = revisions(component)
    if version is None:
        return Diagnostic("tables", "ok", "not made yet: the service makes them when it starts")
    if not known:
        return Diagnostic("tables", "skipped", "this software's own versions cannot be read")
    if version == known[-1]:
        return Diagnostic("tables", "ok", f"at version {version}, the newest")
    if version in known:
        return Diagnostic(
            "tables",
            "warning",
            f"at version {version}; the service brings them to {known[-1]} when it starts: back the database "
            "up first",
        )
    return Diagnostic(
        "tables",
        "failed",
        f"at version {version}, which this software does not know: a newer one made them. Install that again",
    )


def revisions(component: str) -> list[str]:
    """Return the versions of a component's tables, the oldest first, as its migrations say. None is run."""
    found = importlib.util.find_spec("tacit_services")
    if found is None or not found.submodule_search_locations:
        return []
    folder = Path(found.submodule_search_locations[0]) / component / "migrations"
    after: dict[str | None, str] = {}
    for file in folder.glob("*.py"):
        text = file.read_text("utf-8")
        if (revision := _REVISION.search(text)) is not None:
            before = _BEFORE.search(text)
            after[None if before is None else before.group(1)] = revision.group(1)
    chain: list[str] = []
    newest: str | None = after.get(None)
    while newest is not None:
        chain.append(newest)
        newest = after.get(newest)
    return chain


def _server_findings(url: str, component: str) -> Iterator[Diagnostic]:
    from sqlalchemy import create_engine, make_url, text  # noqa: PLC0415 (only where there is a database server)
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed)
        with engine.connect() as connection:
            settings = {
                name: str(connection.execute(text(f"SHOW {name}")).scalar())
                for name in ("fsync", "full_page_writes")
            }
            there = connection.execute(text(f"SELECT to_regclass('alembic_{component}')")).scalar()
            version = (
                connection.execute(text(f"SELECT version_num FROM alembic_{component}")).scalar()  # noqa: S608 (ours)
                if there
                else None
            )
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        kind = type(error).__name__
        yield Diagnostic("database", "failed", f"the database does not answer ({kind}): check database_url")
        return
    yield Diagnostic("database", "ok", "the database answers")
    off = [name for name, value in settings.items() if value != "on"]
    if off:
        yield Diagnostic(
            "durable",
            "failed",
            f"the database server has {', '.join(off)} off: after a power cut, what was spent could be spent "
            "again. Turn it on",
        )
    else:
        yield Diagnostic(
            "durable", "ok", "the server writes through (fsync); sessions ask for synchronous_commit"
        )
    yield _tables(None if version is None else str(version), component)


ENROL = "enrol with an invitation of the tester's operator"


@dataclass(frozen=True)
class Connection:
    """How a configuration reaches a service; ``replaced`` stands in for the network in tests."""

    url: str
    ca_file: Path | None = None
    insecure_plain_http: bool = False
    replaced: Callable[[str], Transport] | None = None

    def open(self, token: TokenSource | None = None) -> Transport:
        """Return what sends requests there.

        Raises:
            InputError: others could read what is sent to this address.
            ConfigurationError: the certificates cannot be read.
        """
        if self.replaced is not None:
            return self.replaced(self.url)
        tls, insecure = tls_of(self.ca_file), self.insecure_plain_http
        return HttpTransport(self.url, token, tls=tls, insecure_plain_http=insecure)


def enrolment(
    configuration: Path,
    fields: Mapping[str, Any],
    clock: Callable[[], float],
    connection: Connection,
) -> Diagnostic:
    """Ask the tester, signed with the party's key, whether it lists that key by this name."""
    try:
        key = load_key(configuration.parent / text_field(fields, "key_file", configuration))
        name = text_field(fields, "name", configuration)
    except ConfigurationError:
        return Diagnostic("enrolment", "skipped", "needs a name and a key that can be read")
    audience = str(fields.get("tester_audience") or connection.url.rstrip("/"))
    sender = connection.open(token_source(key, audience, clock))
    try:
        with Client(connection.url, key, audience=audience, clock=clock, transport=sender) as client:
            known = client.parties()
    except ProblemError as error:
        return Diagnostic(
            "enrolment", "warning", f"the tester does not know this key [{error.problem}]: {ENROL}"
        )
    except (TransportError, ResponseError) as error:
        return Diagnostic("enrolment", "skipped", f"the tester did not say: {error}")
    found = next((party for party in known if party.key == key.public_hex), None)
    role = "owner" if "policy_file" in fields else "curator" if "storage_keys_file" in fields else None
    return _compared(found, name, role)


def _compared(found: EnrolledParty | None, name: str, role: str | None) -> Diagnostic:
    if found is None:
        return Diagnostic("enrolment", "warning", f"the tester does not list this key yet: {ENROL}")
    if found.name != name:
        return Diagnostic("enrolment", "failed", f"the tester knows this key as {found.name}: use that name")
    if role is not None and found.role != role:
        return Diagnostic(
            "enrolment", "failed", f"the key is enrolled as {found.role} and not as {role}: {ENROL}"
        )
    return Diagnostic("enrolment", "ok", f"enrolled at the tester as {found.role} {name}")
