"""Checks of a party's own machine before anything runs. Nothing leaves it but a question for the time."""

import email.utils
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.configuration import read_toml, text_field
from tacit.errors import ConfigurationError, ResponseError, ServiceError, TransportError
from tacit.http import HttpRequest, HttpResponse
from tacit.keys import load_key, readable_by_others
from tacit.processes import service_command
from tacit.transport import HttpTransport, Transport

CLOCK_SKEW_MAX_S = 30.0
"""Largest difference of two clocks at which request tokens still work."""

CHECK_TIMEOUT_S = 600.0
"""How long reading a whole data set may take."""

DATABASE_WAIT_S = 2.0
"""How long a running service may hold the database before it counts as not writable."""

STORAGE_KEY = re.compile("[0-9a-fA-F]{64}")

State = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it is, and what to do where it is not well."""

    name: str
    state: State
    text: str


@dataclass(frozen=True)
class AgentCheck:
    """What the agent's own check said."""

    passed: bool
    text: str
    report: Any


def examine(
    configuration: Path,
    *,
    clock: Callable[[], float] = time.time,
    transport: Callable[[str], Transport] = HttpTransport,
) -> Iterator[Finding]:
    """Look at everything that a party's configuration file names, one check after the other.

    ``configuration`` is an agent.toml, tester.toml, curator.toml, party.toml or owner.toml.
    """
    try:
        fields = read_toml(configuration)
    except ConfigurationError as error:
        yield Finding("configuration", "failed", str(error))
        return
    yield Finding("configuration", "ok", f"{configuration} can be read")
    yield _key(configuration, fields)
    if "storage_keys_file" in fields:
        yield _storage_key(configuration.parent / str(fields["storage_keys_file"]))
    if "database_url" in fields:
        yield _database(configuration, str(fields["database_url"]))
    for peer in ("tester", "curator"):
        if f"{peer}_url" in fields:
            url, key = str(fields[f"{peer}_url"]), fields.get(f"{peer}_key")
            yield from _peer(peer, url, key, clock, transport)
    if "policy_file" in fields:
        yield _data(configuration)


def run_agent_check(configuration: Path) -> AgentCheck:
    """Run the agent's check of its configuration, policy and data in a process of its own.

    Raises:
        ServiceError: the check could not be run.
    """
    command = [*service_command("agent", "check", configuration), "--json"]
    try:
        done = subprocess.run(  # noqa: S603 (our own module, by an argument list)
            command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"the agent's check took longer than {CHECK_TIMEOUT_S:g} s") from error
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {"error": done.stderr.strip().splitlines()[-1:] or ["the check said nothing"]}
    return AgentCheck(done.returncode == 0, _report_text(report), report)


def _key(configuration: Path, fields: dict[str, Any]) -> Finding:
    try:
        path = configuration.parent / text_field(fields, "key_file", configuration)
        load_key(path)
    except ConfigurationError as error:
        return Finding("key", "failed", str(error))
    if readable_by_others(path):
        return Finding("key", "failed", f"others may read {path}: run chmod 600 {path}")
    return Finding("key", "ok", f"{path} can be read by its owner alone")


def _storage_key(path: Path) -> Finding:
    try:
        words = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return Finding("storage key", "failed", f"cannot read {path}: restore it, or the rows are lost")
    if not words or not all(STORAGE_KEY.fullmatch(word) for word in words):
        return Finding("storage key", "failed", f"{path} must hold 64 hexadecimal digits to a line")
    if readable_by_others(path):
        return Finding("storage key", "failed", f"others may read {path}: run chmod 600 {path}")
    return Finding("storage key", "ok", f"{path} can be read by its owner alone")


def _database(configuration: Path, url: str) -> Finding:
    if not url.startswith("sqlite:///"):
        return _database_server(url)
    path = configuration.parent / url.removeprefix("sqlite:///")
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
        return Finding("database", "failed", f"cannot write {path} ({error}): check the folder's permissions")
    return Finding("database", "ok", f"{path} can be written")


def _database_server(url: str) -> Finding:
    from sqlalchemy import create_engine, text  # noqa: PLC0415 (only where there is a database server)
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        kind = type(error).__name__
        return Finding("database", "failed", f"the database does not answer ({kind}): check database_url")
    return Finding("database", "ok", "the database answers")


def _peer(
    peer: str,
    url: str,
    pinned_key: Any,
    clock: Callable[[], float],
    transport: Callable[[str], Transport],
) -> Iterator[Finding]:
    sender = transport(url)
    try:
        answer = sender.send(HttpRequest("GET", "/v1/identity", signed=False))
        key = json.loads(answer.body)["key"]
    except TransportError as error:
        yield Finding(peer, "failed", str(error))
        yield Finding("clock", "skipped", f"needs the {peer}'s time to compare with")
        return
    except (ResponseError, ValueError, KeyError, TypeError):
        yield Finding(peer, "failed", f"what answers at {url} is not a {peer}: check {peer}_url")
        yield Finding("clock", "skipped", f"needs the {peer}'s time to compare with")
        return
    finally:
        sender.close()
    if key != pinned_key:
        yield Finding(peer, "failed", f"the {peer} has another key than {peer}_key: ask its operator")
    else:
        yield Finding(peer, "ok", f"{url} answers, with the key that you pinned")
    yield _clock(peer, answer, clock())


def _clock(peer: str, answer: HttpResponse, now: float) -> Finding:
    try:
        theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return Finding("clock", "skipped", f"the {peer} does not tell the time")
    skew_s = now - theirs
    if abs(skew_s) > CLOCK_SKEW_MAX_S:
        return Finding(
            "clock", "failed", f"this clock differs from the {peer}'s by {skew_s:.0f} s: set it by NTP"
        )
    return Finding("clock", "ok", f"within {CLOCK_SKEW_MAX_S:g} s of the {peer}'s")


def _data(configuration: Path) -> Finding:
    try:
        found = run_agent_check(configuration)
    except ServiceError as error:
        return Finding("data", "failed", str(error))
    return Finding("data", "ok" if found.passed else "failed", found.text)


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
