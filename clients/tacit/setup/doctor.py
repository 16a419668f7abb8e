"""Checks of a party's own machine before anything runs. Nothing leaves it but a question for the time."""

import email.utils
import json
import re
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.client.answers import Standing, parse_item
from tacit.client.http import HttpRequest, HttpResponse
from tacit.client.transport import Transport
from tacit.errors import ConfigurationError, InputError, ResponseError, ServiceError, TransportError
from tacit.setup.configuration import beside, read_toml, text_field
from tacit.setup.diagnostics import Connection, Diagnostic, database_findings, enrolment
from tacit.setup.keys import load_key, readable_by_others
from tacit.setup.processes import ServiceKind, service_command
from tacit_protocol.privacy.guarantee import EPSILON_UNITS

CLOCK_SKEW_MAX_S = 30.0
"""Largest difference of two clocks at which request tokens still work."""

CHECK_TIMEOUT_S = 600.0
"""How long reading a whole data set may take."""

BOUNDS_HOLD = "all values lie within"
"""What the agent's check says of a column where nothing is clipped."""

UNREADABLE_ROWS = (
    "some rows do not have the header's values, and count as rows without values: repair the file before the "
    "first study; if values hold line breaks, set quoted_line_breaks = true"
)

BOUNDS_CAUTION = (
    "This is for your eyes alone, on this machine. Look for a mistaken unit or coding; do not change bounds "
    "or levels to fit what the data are, because that leaks them"
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
            connection = Connection(
                url,
                ca_file or beside(configuration, fields.get(f"{peer}_ca_file")),
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


def run_check(kind: ServiceKind, configuration: Path) -> ServiceCheck:
    """Run a service's check of what its configuration names in a process of its own.

    An agent's reads policy and data too.

    Raises:
        ServiceError: the check could not be run.
    """
    command = [*service_command(kind, "check", configuration), "--json"]
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
    named = (fields.get(name) for name in ("policy_file", "tls_key_file", "storage_folder"))
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
    from tacit_protocol.procedures.discovery import LEFT_OUT, PROCEDURES  # noqa: PLC0415 (statistics load)

    for where, reason in LEFT_OUT.items():
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
        yield Diagnostic(peer, "failed", str(error))
        yield Diagnostic("clock", "skipped", f"needs the {peer}'s time to compare with")
        return False
    except (ResponseError, ValueError, KeyError, TypeError):
        yield Diagnostic(peer, "failed", f"what answers at {url} is not a {peer}: check {peer}_url")
        yield Diagnostic("clock", "skipped", f"needs the {peer}'s time to compare with")
        return False
    finally:
        sender.close()
    same = bool(key == pinned_key)
    if same:
        yield Diagnostic(peer, "ok", f"{url} answers, with the key that you pinned")
    else:
        yield Diagnostic(peer, "failed", f"the {peer} has another key than {peer}_key: ask its operator")
    yield _clock(peer, answer, clock())
    return same


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
    for data_set in data_sets:
        yield _budget(str(data_set.get("name")), data_set.get("budget"))
        if data_set.get("bounds"):
            yield _bounds(str(data_set.get("name")), data_set["bounds"])
        if data_set.get("unreadable_rows"):
            yield Diagnostic("rows", "warning", f"{data_set.get('name')}: {UNREADABLE_ROWS}")


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


def _compute(compute: Mapping[str, Any]) -> Diagnostic:
    if compute.get("error"):
        return Diagnostic("compute", "failed", str(compute["error"]))
    return Diagnostic("compute", "ok", str(compute.get("text")))


def _budget(name: str, budget: Mapping[str, Any] | None) -> Diagnostic:
    if budget is None:
        return Diagnostic(
            "budget", "warning", f"{name}: the ledger cannot be read: see `tacit ledger verify`"
        )
    standing = parse_item(Standing, budget)
    if standing.exhausted:
        cap = standing.epsilon_cap_micro / EPSILON_UNITS
        return Diagnostic(
            "budget", "warning", f"{name}: nothing is left of epsilon {cap:g}; studies will be refused"
        )
    return Diagnostic("budget", "ok", f"{name}: epsilon {standing.left_words} is left")


def _bounds(name: str, bounds: Mapping[str, str]) -> Diagnostic:
    beyond = {column: words for column, words in bounds.items() if words != BOUNDS_HOLD}
    if not beyond:
        return Diagnostic("bounds", "ok", f"{name}: all values lie within the declared bounds and levels")
    listed = ", ".join(f"{column} ({words})" for column, words in beyond.items())
    return Diagnostic("bounds", "warning", f"{name}: {listed}. {BOUNDS_CAUTION}")


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
