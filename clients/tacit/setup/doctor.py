"""Checks of a party's own machine before anything runs. Nothing leaves it but a question for the time."""

import email.utils
import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.client.http import HttpRequest, HttpResponse, parse_item
from tacit.client.tester import Client, token_source
from tacit.client.transport import HttpTransport, TokenSource, Transport, way
from tacit.errors import (
    ConfigurationError,
    InputError,
    ProblemError,
    ResponseError,
    ServiceError,
    TransportError,
)
from tacit.setup.configuration import read_toml, route_of, text_field
from tacit.setup.keys import load_key, readable_by_others
from tacit.setup.processes import ServiceKind, service_command
from tacit_protocol.addresses import DIRECT, Route
from tacit_protocol.messages.answers import BudgetBalance, EnrolledParty
from tacit_protocol.privacy.guarantee import EPSILON_UNITS

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

ROOM_BYTES = 2**24
"""Room that a database and its write-ahead log need at least to go on."""

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
            version = _read_sqlite(path, f"SELECT version_num FROM alembic_{component}")  # noqa: S608 (ours)
            yield _tables(version, component)


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
        with tempfile.TemporaryFile(dir=path.parent) as room:
            room.write(bytes(ROOM_BYTES))
            room.flush()
            os.fsync(room.fileno())
    except sqlite3.Error as error:
        return Diagnostic(
            "database", "failed", f"cannot write {path} ({error}): check the folder's permissions"
        )
    except OSError as error:
        return Diagnostic(
            "database", "failed", f"no room beside {path} ({error.strerror}): free space on that disk"
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
    journal = _read_sqlite(path, "PRAGMA journal_mode") or "unknown" if path.exists() else "wal"
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


def _read_sqlite(path: Path, statement: str) -> str | None:
    """Return the first value that a statement reads; None where it cannot be read, or there is none."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=DATABASE_WAIT_S)
        try:
            row = connection.execute(statement).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])


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
    route: Route = DIRECT
    insecure_plain_http: bool = False
    replaced: Callable[[str], Transport] | None = None

    def open(self, token: TokenSource | None = None) -> Transport:
        """Return what sends requests there.

        Raises:
            InputError: others could read what is sent to this address.
            ConfigurationError: certificates or a proxy cannot be used.
        """
        if self.replaced is not None:
            return self.replaced(self.url)
        insecure = self.insecure_plain_http
        return HttpTransport(self.url, token, **way(self.route, self.url), insecure_plain_http=insecure)


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


CLOCK_SKEW_MAX_S = 30.0
"""Largest difference of two clocks at which request tokens still work."""

CHECK_TIMEOUT_S = 600.0
"""How long reading a whole data set may take."""

COLUMNS_CAUTION = (
    "This is exact, and for your eyes alone, on this machine. Look for a mistaken unit or coding; do not "
    "change declared bounds or levels to fit what the data are, because that leaks them"
)

STORAGE_KEY = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class ServiceCheck:
    """What a service's own check said."""

    passed: bool
    text: str
    report: Any


def examine(
    configuration: Path,
    *,
    ca_file: Path | None = None,
    clock: Callable[[], float] = time.time,
    transport: Callable[[str], Transport] | None = None,
) -> Iterator[Diagnostic]:
    """Look at everything that a party's configuration file names, one check after the other.

    Args:
        configuration: an agent.toml, tester.toml, curator.toml, party.toml or owner.toml.
        ca_file: certificates that services' must chain to; comes before what the configuration names.
        clock: Unix time in seconds.
        transport: replaces the network, for tests.
    """
    try:
        fields = read_toml(configuration)
    except ConfigurationError as error:
        yield Diagnostic("configuration", "failed", str(error))
        return
    yield Diagnostic("configuration", "ok", f"{configuration} can be read")
    yield _key(configuration, fields)
    yield _files(configuration, fields)
    yield from _procedures()
    if "storage_keys_file" in fields:
        yield _storage_key(configuration.parent / str(fields["storage_keys_file"]))
    if "database_url" in fields or "policy_file" in fields:
        component = component_of(fields)
        url = str(fields.get("database_url", f"sqlite:///{component}.sqlite3"))
        yield from database_findings(configuration.parent, url, component)
    for peer in ("tester", "curator"):
        if f"{peer}_url" in fields:
            url, key = str(fields[f"{peer}_url"]), fields.get(f"{peer}_key")
            try:
                route = route_of(fields, peer, configuration).trusting(ca_file)
            except ConfigurationError as error:
                yield Diagnostic(peer, "failed", str(error))
                continue
            connection = Connection(
                url,
                route,
                fields.get("insecure_plain_http") is True,
                transport,
            )
            answered = yield from _peer(peer, connection, key, clock)
            if answered and peer == "tester":
                yield enrolment(configuration, fields, clock, connection)
    if "policy_file" in fields:
        yield from _data(configuration)
    elif "storage_keys_file" in fields:
        yield from _curator(configuration)


def component_of(fields: Mapping[str, Any]) -> str:
    """Return whose configuration this is that has a database: an agent's, a curator's or a tester's."""
    if "policy_file" in fields:
        return "agent"
    return "curator" if "storage_keys_file" in fields else "tester"


def run_check(kind: ServiceKind, configuration: Path, arguments: Sequence[str] = ()) -> ServiceCheck:
    """Run a service's check of what its configuration names in a process of its own.

    An agent's reads policy and data too. What it says and whether it passes are the service's own.

    Raises:
        ServiceError: the check could not be run.
    """
    command = [*service_command(kind, "check", configuration), *arguments, "--json"]
    try:
        done = subprocess.run(  # noqa: S603 (our own module, by an argument list)
            command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"the {kind}'s check took longer than {CHECK_TIMEOUT_S:g} s") from error
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {"error": done.stderr.strip().splitlines()[-1:] or ["the check said nothing"]}
    return ServiceCheck(done.returncode == 0, _report_text(report), report)


def _key(configuration: Path, fields: dict[str, Any]) -> Diagnostic:
    try:
        path = configuration.parent / text_field(fields, "key_file", configuration)
        load_key(path)
    except ConfigurationError as error:
        return Diagnostic("key", "failed", str(error))
    if readable_by_others(path):
        return Diagnostic("key", "failed", f"others may read {path}: run chmod 600 {path}")
    return Diagnostic("key", "ok", f"{path} can be read by its owner alone")


def _files(configuration: Path, fields: Mapping[str, Any]) -> Diagnostic:
    """Look at the rights of everything beside the keys that tells others what is not theirs."""
    folder = configuration.parent
    names = ["policy_file", "tls_key_file", "storage_folder"]
    for peer in ("tester", "curator"):
        names += [f"{peer}_certificate_key_file", f"{peer}_proxy_credentials_file"]
    named = (fields.get(name) for name in names)
    files = [configuration, *(folder / str(name) for name in named if name is not None)]
    url = str(fields.get("database_url", ""))
    if url.startswith("sqlite:///"):
        database = folder / url.removeprefix("sqlite:///")
        files += [database, Path(f"{database}-wal"), Path(f"{database}-shm")]
    open_to_others = [str(path) for path in files if path.exists() and readable_by_others(path)]
    if open_to_others:
        listed = " ".join(open_to_others)
        return Diagnostic("files", "failed", f"others may read {listed}: run chmod go= {listed}")
    return Diagnostic("files", "ok", "configuration and database can be read by their owner alone")


def _procedures() -> Iterator[Diagnostic]:
    """Say which procedures other distributions bring, and why some are left out; nothing where none does."""
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load)

    for where, reason in PROCEDURES.left_out.items():
        yield Diagnostic("procedures", "warning", f"left out, {where}: {reason}")
    others = [f"{name} ({one.origin})" for name, one in PROCEDURES.items() if one.origin is not None]
    if others:
        yield Diagnostic("procedures", "ok", f"from other distributions: {', '.join(others)}")


def _storage_key(path: Path) -> Diagnostic:
    try:
        words = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return Diagnostic("storage key", "failed", f"cannot read {path}: restore it, or the rows are lost")
    if not words or not all(STORAGE_KEY.fullmatch(word) for word in words):
        return Diagnostic("storage key", "failed", f"{path} must hold 64 hexadecimal digits to a line")
    if readable_by_others(path):
        return Diagnostic("storage key", "failed", f"others may read {path}: run chmod 600 {path}")
    return Diagnostic("storage key", "ok", f"{path} can be read by its owner alone")


def _peer(
    peer: str, connection: Connection, pinned_key: Any, clock: Callable[[], float]
) -> Generator[Diagnostic, None, bool]:
    url = connection.url
    try:
        sender = connection.open()
    except (InputError, ConfigurationError) as error:
        yield Diagnostic(peer, "failed", str(error))
        yield Diagnostic("clock", "skipped", f"needs the {peer}'s time to compare with")
        return False
    try:
        answer = sender.send(HttpRequest("GET", "/v1/identity", signed=False))
        key = json.loads(answer.body)["key"]
    except TransportError as error:
        yield from _hops(peer, connection, error)
        yield Diagnostic("clock", "skipped", f"needs the {peer}'s time to compare with")
        return False
    except (ResponseError, ValueError, KeyError, TypeError):
        yield from _hops(peer, connection)
        yield Diagnostic(peer, "failed", f"what answers at {url} is not a {peer}: check {peer}_url")
        yield Diagnostic("clock", "skipped", f"needs the {peer}'s time to compare with")
        return False
    finally:
        sender.close()
    yield from _hops(peer, connection)
    same = bool(key == pinned_key)
    if same:
        yield Diagnostic(peer, "ok", f"{url} answers, with the key that you pinned")
    else:
        yield Diagnostic(peer, "failed", f"the {peer} has another key than {peer}_key: ask its operator")
    yield _clock(peer, answer, clock())
    return same


def _hops(peer: str, connection: Connection, error: TransportError | None = None) -> Iterator[Diagnostic]:
    """Say of each part of the way, the proxy, the certificates and the service, whether it is well."""
    proxy = None if connection.replaced else way(connection.route, connection.url)["proxy"]
    where = f"{peer} proxy"
    if error is not None and error.hop == "proxy":
        yield Diagnostic(where, "failed", str(error))
        yield Diagnostic(peer, "skipped", "the proxy on the way is not passed")
        return
    if proxy is not None:
        yield Diagnostic(where, "ok", f"{proxy.url} opens a way to {connection.url}")
    if error is not None:
        yield Diagnostic(f"{peer} certificate" if error.hop == "certificate" else peer, "failed", str(error))


def _clock(peer: str, answer: HttpResponse, now: float) -> Diagnostic:
    try:
        theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return Diagnostic("clock", "skipped", f"the {peer} does not tell the time")
    skew_s = now - theirs
    if abs(skew_s) > CLOCK_SKEW_MAX_S:
        return Diagnostic(
            "clock", "failed", f"this clock differs from the {peer}'s by {skew_s:.0f} s: set it by NTP"
        )
    return Diagnostic("clock", "ok", f"within {CLOCK_SKEW_MAX_S:g} s of the {peer}'s")


def _data(configuration: Path) -> Iterator[Diagnostic]:
    """Have the agent's own code read settings, policy and data, in a process of its own."""
    try:
        found = run_check("agent", configuration)
    except ServiceError as error:
        yield Diagnostic("data", "failed", str(error))
        return
    yield Diagnostic("data", "ok" if found.passed else "failed", found.text)
    data_sets = found.report.get("data_sets") if isinstance(found.report, dict) else None
    if not data_sets:
        return
    yield _compute(found.report.get("compute") or {})
    yield Diagnostic("policy", "ok", f"can be read; studies are approved {found.report.get('approval')}")
    for note in found.report.get("notes", ()):
        yield Diagnostic("accounts", "warning", str(note))
    for data_set in data_sets:
        yield _budget(str(data_set.get("name")), data_set.get("budget"))
        if data_set.get("locked"):
            name = str(data_set.get("name"))
            yield _lock(name, data_set["locked"], f"tacit agent unlock {name}")
        if data_set.get("findings"):
            yield _columns(str(data_set.get("name")), data_set["findings"])


def _curator(configuration: Path) -> Iterator[Diagnostic]:
    """Have the curator's own code read its settings and look at what computes, in a process of its own."""
    try:
        found = run_check("curator", configuration)
    except ServiceError as error:
        yield Diagnostic("settings", "failed", str(error))
        return
    compute = found.report.get("compute") if isinstance(found.report, dict) else None
    if compute is None:
        yield Diagnostic("settings", "failed", found.text)
        return
    yield Diagnostic("settings", "ok", "the curator takes them")
    yield _compute(compute)
    for account, lock in (found.report.get("locked") or {}).items():
        yield _lock(account, lock, f"tacit curator unlock --data-set {account}")


def _lock(name: str, lock: Mapping[str, Any], unlocking: str) -> Diagnostic:
    where = f"{lock.get('fault')} in {lock.get('place') or 'no line of code'}"
    return Diagnostic(
        "lock",
        "warning",
        f"{name} is locked: study {str(lock.get('study'))[:12]} failed after its rows were read ({where}). "
        f"It answers no study: find the reason, then `{unlocking}`",
    )


def _compute(compute: Mapping[str, Any]) -> Diagnostic:
    if compute.get("error"):
        return Diagnostic("compute", "failed", str(compute["error"]))
    return Diagnostic("compute", "ok", str(compute.get("text")))


def _budget(name: str, budget: Mapping[str, Any] | None) -> Diagnostic:
    if budget is None:
        return Diagnostic(
            "budget", "warning", f"{name}: the ledger cannot be read: see `tacit ledger verify`"
        )
    standing = parse_item(BudgetBalance, budget)
    if standing.exhausted:
        cap = standing.epsilon_cap_micro / EPSILON_UNITS
        return Diagnostic(
            "budget", "warning", f"{name}: nothing is left of epsilon {cap:g}; studies will be refused"
        )
    return Diagnostic("budget", "ok", f"{name}: {standing.left_words} is left")


def _columns(name: str, findings: Sequence[Mapping[str, Any]]) -> Diagnostic:
    """Say of a data set's columns what the agent's check says."""
    states: list[State] = [found["state"] for found in findings]
    state: State = "failed" if "failed" in states else "warning" if "warning" in states else "ok"
    listed = "; ".join(f"{found['name']}: {found['words']}" for found in findings)
    return Diagnostic("columns", state, f"{name}: {listed}. {COLUMNS_CAUTION}")


def _report_text(report: Any) -> str:
    if not isinstance(report, dict):
        return str(report)
    if "error" in report:
        error = report["error"]
        return str(error if isinstance(error, str) else " ".join(str(part) for part in error))
    parts = []
    for data_set in report.get("data_sets", ()):
        counts = [f"{data_set[what]} {what}" for what in ("rows", "units", "columns") if data_set.get(what)]
        parts.append(f"{data_set.get('name')}: {', '.join(counts)}")
    return "; ".join(parts) or "read"
