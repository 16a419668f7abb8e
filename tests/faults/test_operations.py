"""What an operator relies on: full disks are seen, files are one user's, a caller's leaving is no fault."""

import errno
import os
import re
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
import served
import sqlalchemy as sa
from fastapi import Request
from starlette.responses import Response

from tacit.errors import TransportError
from tacit.setup.configuration import (
    CuratorAddress,
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_curator,
    init_owner,
    init_party,
    init_tester,
)
from tacit.setup.doctor import examine
from tacit_services.agent.study import loops
from tacit_services.agent.study.tester_client import InboxItem, TesterUnavailableError
from tacit_services.curator.store import RowStore, StorageKeys
from tacit_services.shared import database
from tacit_services.shared.database import (
    DatabaseUnavailableError,
    StorageFullError,
    check_database,
    check_room,
    create_engine,
    run_transaction,
)
from tacit_services.shared.http_app import create_app, json_response
from tacit_services.tester.tables import JOBS
from tacit_services.tester.verdicts import Leases

PATIENCE_S = 120.0


# Disks without room.


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of so many bytes; its mode lets the database server's user in."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room on a disk."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        for size in (2**20, 2**12):
            with suppress(OSError):
                while True:
                    filler.write(b"\0" * size)
    return file


def readiness(engine: sa.Engine) -> int:
    """The status that /readyz answers with, by the check that services use."""
    app = create_app(title="t", version="0", metrics_prefix="t", check_ready=lambda: check_database(engine))
    with served.serving(app) as url:
        return int(httpx.get(f"{url}/readyz", trust_env=False).status_code)


def test_a_service_whose_disk_is_full_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        engine = create_engine(f"sqlite:///{disk / 'x.sqlite3'}")
        assert readiness(engine) == 200
        filler = fill(disk)
        with pytest.raises(StorageFullError):
            check_database(engine)
        assert readiness(engine) == 503
        filler.unlink()
        assert readiness(engine) == 200
        engine.dispose()
        assert [path.name for path in disk.iterdir() if not path.name.startswith("x.sqlite3")] == []


def test_a_service_whose_database_server_has_a_full_disk_is_not_ready(
    tmp_path: Path, postgres_server: str
) -> None:
    place = Path("/tmp") / f"tacit-small-{os.getpid()}"  # noqa: S108 (the server's user cannot enter tmp_path)
    try:
        with small_disk(place, "48m") as disk, psycopg.connect(postgres_server, autocommit=True) as admin:
            name = f"small_{os.getpid()}"
            owner = Path(str(admin.execute("SHOW data_directory").fetchone()[0])).stat()  # type: ignore[index]
            (disk / "space").mkdir()
            os.chown(disk / "space", owner.st_uid, owner.st_gid)
            admin.execute(f"CREATE TABLESPACE {name} LOCATION '{disk / 'space'}'".encode())
            admin.execute(f"CREATE DATABASE {name} TABLESPACE {name}".encode())
            engine = create_engine(postgres_server.replace("/postgres?", f"/{name}?"))
            try:
                check_database(engine)
                filler = fill(disk)
                with pytest.raises(StorageFullError):
                    check_database(engine)
                filler.unlink()
                check_database(engine)
                tables = run_transaction(engine, lambda c: sa.inspect(c).get_table_names(), read_only=True)
                assert tables == []
            finally:
                engine.dispose()
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                admin.execute(f"DROP TABLESPACE {name}".encode())
    finally:
        with suppress(OSError):
            place.rmdir()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (errno.ENOSPC, StorageFullError),
        (errno.EDQUOT, StorageFullError),
        (errno.EROFS, DatabaseUnavailableError),
        (errno.EIO, DatabaseUnavailableError),
    ],
)
def test_what_keeps_a_folder_from_being_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, named: type[Exception]
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(code, "planted")

    check_room(tmp_path)
    monkeypatch.setattr(database.os, "posix_fallocate", fails)
    with pytest.raises(named):
        check_room(tmp_path)
    assert list(tmp_path.iterdir()) == []


# Whose files they are.


@pytest.fixture
def umask_of_nobody() -> Iterator[None]:
    """The umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.name for path in files if path.stat().st_mode & 0o077)


@pytest.mark.usefixtures("umask_of_nobody")
def test_a_database_its_log_and_its_index_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'x.sqlite3'}")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x)")
        connection.exec_driver_sql("COMMIT")
        assert {path.name for path in tmp_path.iterdir()} == {
            f"x.sqlite3{suffix}" for suffix in ("", "-wal", "-shm")
        }
        assert open_to_others(tmp_path) == []
    engine.dispose()


def test_a_database_that_is_open_to_all_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    engine = create_engine(f"sqlite:///{path}")
    run_transaction(engine, lambda connection: connection.exec_driver_sql("CREATE TABLE t (x)"))
    reading = engine.connect().execution_options(tacit_read_only=True)
    with reading as held:  # so that the log and its index stay
        held.exec_driver_sql("SELECT * FROM t")
        for file in tmp_path.iterdir():
            file.chmod(0o644)
        other = create_engine(f"sqlite:///{path}")
        run_transaction(other, lambda c: c.exec_driver_sql("INSERT INTO t VALUES (1)"))
        assert open_to_others(tmp_path) == []
        other.dispose()
    engine.dispose()


@pytest.mark.usefixtures("umask_of_nobody")
def test_what_init_writes_and_where_rows_are_kept_is_its_owners_alone(tmp_path: Path) -> None:
    tester = TesterAddress("https://tester.example", "ab" * 32)
    init_tester(tmp_path / "tester", "tester", "127.0.0.1", 8400)
    init_party(tmp_path / "ann", "ann", tester)
    init_curator(tmp_path / "registry", "registry", tester, host="127.0.0.1", port=8720)
    init_owner(tmp_path / "north", "north", CuratorAddress("https://c.example", "ab" * 32))
    source = DataSetSetup("heart", "heart.csv", 1.0, 1e-5)
    init_agent(tmp_path / "agent", "north", tester, source, PolicySetup(), host="127.0.0.1", port=8710)
    rows = tmp_path / "rows"
    rows.mkdir(mode=0o777)
    store = RowStore(rows, StorageKeys.parse("ab" * 32))
    store.acquire()
    store.bind("storage")
    with store.spool() as spool:
        spool.append(b"x" * 2**17)
        assert stat.S_IMODE(os.fstat(spool._file.fileno()).st_mode) & 0o077 == 0
    store.release()
    assert open_to_others(tmp_path) == []
    assert stat.S_IMODE(rows.stat().st_mode) == 0o700


class Nobody:
    """A tester that is not there."""

    def send(self, _: Any) -> Any:
        raise TransportError("no answer")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["agent.toml", "policy.toml", "agent.sqlite3", "agent.sqlite3-wal"])
def test_the_doctor_names_a_file_that_others_may_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = TesterAddress("https://tester.example", "ab" * 32)
    source = DataSetSetup("heart", "heart.csv", 1.0, 1e-5)
    file = init_agent(tmp_path, "north", tester, source, PolicySetup(), host="127.0.0.1", port=8710)
    monkeypatch.setattr("tacit.setup.doctor._data", lambda _: iter(()))
    for database_file in ("agent.sqlite3", "agent.sqlite3-wal"):
        (tmp_path / database_file).touch(mode=0o600)

    def found() -> Any:
        return next(f for f in examine(file, transport=lambda _: Nobody()) if f.name == "files")

    assert found().state == "ok"
    (tmp_path / name).chmod(0o640)
    assert found().state == "failed"
    assert str(tmp_path / name) in found().text
    assert "chmod" in found().text


# Callers who leave.


def test_a_caller_who_leaves_is_no_fault_of_the_service(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(title="test", version="0", metrics_prefix="test", check_ready=lambda: None)
    waits = threading.Event()

    @app.put("/body")
    async def body(request: Request) -> Response:
        waits.set()
        await request.body()
        return json_response({})

    with served.serving(app) as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as caller:
            caller.sendall(b"PUT /body HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf")
            assert waits.wait(PATIENCE_S)
        counted = ""
        for _ in range(10_000):  # until the service has seen it
            counted = httpx.get(f"{url}/metrics", trust_env=False).text
            if "/body" in counted:
                break
    assert re.findall(r'test_requests_total\{method="PUT",route="/body",status="(\d+)"\} (\d+)', counted) == [
        ("499", "1")
    ]
    assert 'status="500"' not in counted
    assert "internal_error" not in caplog.text


# Names that pages are asked for by.

OWN = ("localhost", "tester.example.org")


@pytest.fixture(scope="module")
def pages() -> Iterator[Callable[..., int]]:
    app = create_app(
        title="test", version="0", metrics_prefix="test", check_ready=lambda: None, hosts=frozenset(OWN)
    )

    @app.get("/")
    def page() -> Response:
        return json_response({})

    @app.get("/v1/things")
    def things() -> Response:
        return json_response({})

    with served.running(app) as (server, _):

        def ask(host: str | None, path: str = "/") -> int:
            version = "1.1" if host is not None else "1.0"
            named = f"host: {host}\r\n" if host is not None else ""
            with socket.create_connection(served.address_of(server)) as caller:
                request = f"GET {path} HTTP/{version}\r\n{named}connection: close\r\n\r\n"
                caller.sendall(request.encode("latin-1"))
                caller.settimeout(PATIENCE_S)
                answer = b""
                while piece := caller.recv(2**16):
                    answer += piece
            return int(answer.split()[1])

        yield ask


NAMED = ("localhost", "LOCALHOST:8400", "tester.example.org", "Tester.Example.Org:443")
ADDRESSED = ("127.0.0.1:8400", "[::1]:8400", "192.168.1.5", "127.0.0.2", None)
REBOUND = (
    *("evil.example", "evil.example:8400", "localhost.evil.example", "127.0.0.1.evil.example", "localhost."),
    *("tester.example.org.evil.example", "eviltester.example.org", "localhost:x", "localhost@evil.example"),
    *("a.localhost", "[::1", "[evil.example]", "", "localhost:8400:1", "127.1", "2130706433", "\xff"),
)


@pytest.mark.parametrize("host", [*NAMED, *ADDRESSED])
def test_a_page_answers_to_the_services_names_and_to_addresses(
    pages: Callable[..., int], host: str | None
) -> None:
    assert pages(host) == 200
    assert pages(host, "/metrics") == 200


@pytest.mark.parametrize("host", REBOUND)
def test_a_page_does_not_answer_to_a_name_that_was_bound_to_its_address(
    pages: Callable[..., int], host: str
) -> None:
    assert pages(host) == 421
    assert pages(host, "/metrics") == 421
    # Who balances load asks by names of its own; and behind /v1 a signed token is asked for.
    assert pages(host, "/readyz") == pages(host, "/healthz") == pages(host, "/v1/things") == 200


# Outages.


@pytest.mark.parametrize("error", [DatabaseUnavailableError("away"), TesterUnavailableError("away")])
def test_a_loop_is_back_within_ten_seconds_of_an_outages_end(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Stop:
        """Notes how long a loop would have waited, and stops it after an hour's worth of failures."""

        def is_set(self) -> bool:
            return len(pauses) >= 400

        def wait(self, pause_s: float) -> None:
            pauses.append(pause_s)

    def inbox(_: float) -> list[InboxItem]:
        raise error

    away: Any = SimpleNamespace(client=SimpleNamespace(inbox=inbox), engine=None)

    monkeypatch.setattr(loops.random, "uniform", lambda _, most: most)
    running = loops.Loops(away, Stop(), 20.0)  # type: ignore[arg-type]
    running._forever(running._poll)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert set(pauses[4:]) == {10.0}


def test_a_job_that_an_outage_interrupted_is_free_soon_and_has_cost_no_attempt() -> None:
    leases = Leases("worker", lambda _: sa.literal(1000.0))
    with sa.create_engine("sqlite://").begin() as connection:
        JOBS.create(connection)
        job = {
            "study": "ab" * 32,
            "analyst_key": "",
            "holder": "worker",
            "lease_until": 5000.0,
            "attempts": 3,
        }
        connection.execute(JOBS.insert().values(**job))
        leases.give_back(connection, 5.0)
        (kept,) = connection.execute(sa.select(JOBS)).mappings().all()
    assert (kept["holder"], kept["lease_until"], kept["attempts"]) == (None, 1005.0, 2)
