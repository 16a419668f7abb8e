"""Full disks, torn files, databases that restart: 503 or 507 with Retry-After, and nothing is lost."""

import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agent_process
import httpx
import psycopg
import pytest
import sqlalchemy as sa
from debit_process import COST
from made_studies import SeededNoise
from served import problem
from study_parties import MeanProcedure, Parties
from tester_federation import Federation
from world import key_of, make_agent, sealed, study_of

from tacit_protocol.messages.encoding import digest
from tacit_protocol.privacy.guarantee import Budget
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import OUTBOX, State
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.releases import Releaser
from tacit_services.agent.study.studies import StudyRow, insert_study
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import LedgerDamagedError, debit, debits_of, set_caps
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import (
    DatabaseUnavailableError,
    StorageFullError,
    create_engine,
    run_transaction,
    upgrade,
)
from tacit_services.tester import answers

RESTART_S_MAX = 180


def names_and_rows(engine: sa.Engine) -> dict[str, int]:
    """Count the rows of every table."""

    def count(connection: sa.Connection) -> dict[str, int]:
        tables = sa.inspect(connection).get_table_names()
        return {t: connection.execute(sa.text(f"SELECT count(*) FROM {t}")).scalar_one() for t in tables}  # noqa: S608

    return run_transaction(engine, count, read_only=True)


def integrity(engine: sa.Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("PRAGMA integrity_check").scalar())


@contextmanager
def full_by_page_count(engine: sa.Engine) -> Iterator[None]:
    """Let the database grow no more: its free pages are used up, and no new one is given."""
    engine.dispose()

    def limit(connection: sqlite3.Connection, _: object) -> None:
        used = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={used}")

    sa.event.listen(engine, "connect", limit)
    try:
        yield
    finally:
        sa.event.remove(engine, "connect", limit)
        engine.dispose()


@contextmanager
def full_by_file_size(engine: sa.Engine) -> Iterator[None]:
    """Let no file of this process grow beyond what the database and its log have now."""
    files = [Path(f"{engine.url.database}{suffix}") for suffix in ("", "-wal")]
    size_bytes = max(file.stat().st_size for file in files if file.exists())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = pytest.mark.parametrize("full", [full_by_page_count, full_by_file_size])


@pytest.fixture
def tester(tmp_path: Path, parties: Parties, mean_procedure: MeanProcedure) -> Iterator[Federation]:
    federation = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    federation.enrol_everyone()
    yield federation
    for engine in federation.engines:
        engine.dispose()


def fill(tester: Federation, first: int = 0) -> httpx.Response:
    """Create studies until the tester refuses one; returns the refusal."""
    for index in range(2000):
        study, envelope = tester.parties.sealed_study(title=f"{first + index} {'x' * 150}")
        response = tester.put(f"/v1/studies/{study}", tester.parties.analyst, envelope)
        if response.status_code != 201:
            return response
    raise AssertionError("the disk never was full")


@FULL
def test_a_tester_on_a_full_disk_says_so_and_goes_on_when_there_is_room(
    tester: Federation, full: Callable[[sa.Engine], object]
) -> None:
    study = tester.create()
    with full(tester.engine):  # type: ignore[attr-defined]
        refusal = fill(tester)
        before = names_and_rows(tester.engine)
        assert fill(tester, 5000).status_code == refusal.status_code
        assert names_and_rows(tester.engine) == before
    assert (refusal.status_code, problem(refusal)) in {
        (507, "storage-full"),
        (503, "database-unavailable"),
    }
    assert int(refusal.headers["retry-after"]) > 0
    assert integrity(tester.engine) == "ok"
    assert tester.release(study, "north").status_code == 201


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    engine = create_engine(f"sqlite:///{tmp_path / 'agent.sqlite3'}")
    upgrade(engine, "agent")
    client = TesterClient(
        "http://tester.example", "x", key_of("north"), time.time, lambda _: None, transport=SummaryTransport()
    )
    made = make_agent(
        tmp_path,
        "north",
        engine=engine,
        client=client,
        noise=SeededNoise(1),
        clock=lambda: 1_800_000_000.0,
    )
    yield made
    client.close()
    engine.dispose()


@FULL
def test_an_agent_on_a_full_disk_spends_nothing_and_runs_the_study_when_there_is_room(
    agent: Agent, full: Callable[[sa.Engine], object]
) -> None:
    run_on_a_full_disk(agent, full)


def test_an_agent_that_debits_in_a_transaction_of_its_own_would_be_caught(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Releaser, "release", agent_process.debit_in_its_own_transaction(Releaser.release))
    monkeypatch.setattr(Releaser, "_debit", agent_process.entry_of_earlier_debit)
    with pytest.raises(AssertionError, match="debits and releases differ"):
        run_on_a_full_disk(agent, full_by_page_count)


def run_on_a_full_disk(agent: Agent, full: Callable[[sa.Engine], object]) -> None:
    """Run studies until the disk is full, again while it is, and once there is room."""
    for index in range(STUDIES):
        budget = Budget.of("0.1", "1e-7")
        name, envelope = sealed(study_of(["north", "south"], title=f"study {index}", budget=budget))
        row = StudyRow(name, State.APPROVED, "patients", envelope, 2**31, 1, 1, None, None, verdict=None)
        run_transaction(agent.engine, lambda c, row=row: insert_study(c, row))  # type: ignore[misc]
    with full(agent.engine):  # type: ignore[attr-defined]
        with pytest.raises((StorageFullError, DatabaseUnavailableError)):
            work(agent)
        before = debits_stored(agent)
        with pytest.raises((StorageFullError, DatabaseUnavailableError)):
            work(agent)
        assert debits_stored(agent) == before, "nothing more was spent"
    assert before < STUDIES
    assert integrity(agent.engine) == "ok"
    work(agent)
    assert debits_stored(agent) == STUDIES


STUDIES = 10


def debits_stored(agent: Agent) -> int:
    """Check that debits and stored releases are the same; return how many."""

    def read(connection: sa.Connection) -> int:
        verify(connection)
        debits = {entry.study for entry in debits_of(connection, "patients")}
        assert debits == set(connection.execute(sa.select(OUTBOX.c.study)).scalars()), (
            "debits and releases differ"
        )
        return len(debits)

    return run_transaction(agent.engine, read, read_only=True)


class SummaryTransport(httpx.BaseTransport):
    """A tester that has no release yet and takes every upload."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = b'{"owners":[{"name":"north","sent":false}]}' if request.method == "GET" else b"{}"
        return httpx.Response(200, stream=httpx.ByteStream(body))


def a_ledger(url: str, debits: int) -> sa.Engine:
    engine = create_engine(url)
    upgrade(engine, "agent")
    run_transaction(engine, lambda c: set_caps(c, "patients", 10**6, 0, at=1))
    for index in range(debits):
        add_debit(engine, index)
    return engine


def add_debit(engine: sa.Engine, index: int) -> None:
    study = digest(str(index).encode())
    run_transaction(engine, lambda c: debit(c, "patients", study, COST, at=2))


def studies_debited(engine: sa.Engine) -> list[str | None]:
    return [
        entry.study for entry in run_transaction(engine, lambda c: debits_of(c, "patients"), read_only=True)
    ]


def faults_after_tearing(folder: Path, tear: Callable[[bytes, int], bytes]) -> int:
    """Tear the log of a ledger of eight debits at many places; return how often no sound prefix was left."""
    engine = a_ledger(f"sqlite:///{folder / 'whole.sqlite3'}", 8)
    debited = studies_debited(engine)
    main, wal = (Path(f"{folder / 'whole.sqlite3'}{suffix}") for suffix in ("", "-wal"))
    whole, log = main.read_bytes(), wal.read_bytes()
    found, torn = 0, folder / "torn.sqlite3"
    for at in range(0, len(log), max(1, len(log) // 60)):
        torn.write_bytes(whole)
        Path(f"{torn}-wal").write_bytes(tear(log, at))
        again = create_engine(f"sqlite:///{torn}")
        try:
            assert integrity(again) == "ok"
            left = studies_debited(again)
            run_transaction(again, verify, read_only=True)
            found += left != debited[: len(left)]
        except LedgerDamagedError:
            found += 1
        except (sa.exc.DatabaseError, DatabaseUnavailableError):
            assert at < 8 * 4096 * 8, "only a log torn before the tables were written may hold no ledger"
        finally:
            again.dispose()
            for suffix in ("", "-wal", "-shm"):
                Path(f"{torn}{suffix}").unlink(missing_ok=True)
    engine.dispose()
    return found


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "tear",
    [
        lambda log, at: log[:at],
        lambda log, at: log[:at] + bytes(len(log) - at),
        lambda log, at: log[:at] + bytes([log[at] ^ 255]) + log[at + 1 :],
    ],
    ids=["cut off", "zeros written", "a byte flipped"],
)
def test_a_torn_log_loses_whole_debits_from_its_end(
    tmp_path: Path, tear: Callable[[bytes, int], bytes]
) -> None:
    engine = a_ledger(f"sqlite:///{tmp_path / 'other.sqlite3'}", 0)
    engine.dispose()
    assert faults_after_tearing(tmp_path, tear) == 0


def test_a_debit_in_two_transactions_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account in one, the entry in the next: torn between them, the account is ahead of its entries."""
    genuine = accounts._append

    class Halving:
        """A connection that commits after each statement."""

        def __init__(self, connection: sa.Connection) -> None:
            self._connection = connection

        def execute(self, statement: sa.Executable) -> Any:
            done = self._connection.execute(statement)
            self._connection.exec_driver_sql("COMMIT")
            self._connection.exec_driver_sql("BEGIN IMMEDIATE")
            return done

    monkeypatch.setattr(accounts, "_append", lambda connection, *rest: genuine(Halving(connection), *rest))
    engine = a_ledger(f"sqlite:///{tmp_path / 'other.sqlite3'}", 0)
    engine.dispose()
    assert faults_after_tearing(tmp_path, lambda log, at: log[:at]) > 0


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda content: content[: len(content) // 2],
    "no database": lambda _: b"this is no database" * 1000,
    "its header zeroed": lambda content: bytes(100) + content[100:],
}

DAMAGED = "the database is damaged"


def faults_of_damage(file: Path, damage: Callable[[bytes], bytes]) -> list[str]:
    """Damage a ledger's file, debit, and say what is wrong with the outcome."""
    engine = a_ledger(f"sqlite:///{file}", 8)
    engine.dispose()
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    found = ["a damaged ledger was debited"]
    try:
        add_debit(engine, 100)
    except DatabaseUnavailableError as error:
        found = [] if str(error) == DAMAGED else [str(error)]
    except sa.exc.DatabaseError:
        found = ["the damage was not named"]
    engine.dispose()
    if file.read_bytes() != damaged:
        found.append("the damaged file was written to")
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_file_is_unavailable_and_not_written(tmp_path: Path, damage: str) -> None:
    assert faults_of_damage(tmp_path / "ledger.sqlite3", DAMAGES[damage]) == []


def kill_server_of(connection: sa.Connection) -> None:
    """Kill the server process of this connection: PostgreSQL then ends every other and recovers, as after a
    power cut."""
    pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    url = connection.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    # Until the server has noticed it takes connections still: another one tells when it has.
    with psycopg.connect(url, autocommit=True) as witness:
        os.kill(int(pid), signal.SIGKILL)
        wait_for_the_end_of(witness)


def wait_for_the_end_of(witness: psycopg.Connection) -> None:
    until = time.monotonic() + RESTART_S_MAX
    while True:
        try:
            witness.execute("SELECT 1")
        except psycopg.OperationalError:
            return
        assert time.monotonic() < until, "PostgreSQL did not notice"
        time.sleep(0.01)  # between two questions


def wait_for_server(url: str) -> None:
    until = time.monotonic() + RESTART_S_MAX
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert time.monotonic() < until, "PostgreSQL did not come back"
            time.sleep(0.05)  # between two attempts to connect
        else:
            return


def test_a_database_that_restarts_in_mid_transaction_loses_nothing(
    tmp_path: Path,
    postgres_url: str,
    parties: Parties,
    mean_procedure: MeanProcedure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tester = Federation(tmp_path, postgres_url, parties)
    tester.enrol_everyone()
    study = tester.create()
    genuine = answers._end_if_answered

    def die(connection: sa.Connection, *rest: object) -> None:
        kill_server_of(connection)
        genuine(connection, *rest)  # type: ignore[arg-type]

    before = names_and_rows(tester.engine)
    with monkeypatch.context() as patch:
        patch.setattr(answers, "_end_if_answered", die)
        refusal = tester.release(study, "north")
    assert (refusal.status_code, problem(refusal)) == (503, "database-unavailable")
    assert int(refusal.headers["retry-after"]) > 0
    wait_for_server(postgres_url)
    assert names_and_rows(tester.engine) == before
    assert tester.release(study, "north").status_code == 201
    tester.engine.dispose()


@pytest.mark.long
def test_a_ledgers_database_that_restarts_in_mid_debit_has_spent_nothing(postgres_url: str) -> None:
    engine = a_ledger(postgres_url, 2)

    def work(connection: sa.Connection) -> None:
        debit(connection, "patients", digest(b"x"), COST, at=2)
        kill_server_of(connection)
        connection.exec_driver_sql("SELECT 1")

    before = studies_debited(engine)
    with pytest.raises(DatabaseUnavailableError):
        run_transaction(engine, work)
    wait_for_server(postgres_url)
    assert studies_debited(engine) == before
    add_debit(engine, 3)
    assert run_transaction(engine, verify, read_only=True) == 4
    engine.dispose()


def conflicting_debits(engine: sa.Engine) -> int:
    """Debit while another transaction debits the same account; returns how often the work ran."""
    runs = 0

    def work(connection: sa.Connection) -> None:
        nonlocal runs
        runs += 1
        before = debits_of(connection, "patients")
        if runs == 1:
            add_debit(engine, 100)
        debit(connection, "patients", digest(b"x"), COST, at=2)
        assert len(debits_of(connection, "patients")) == len(before) + 1

    run_transaction(engine, work)
    return runs


def test_a_serialization_failure_runs_the_debit_again_whole(postgres_url: str) -> None:
    engine = a_ledger(postgres_url, 2)
    assert conflicting_debits(engine) == 2
    assert len(studies_debited(engine)) == 4
    run_transaction(engine, verify, read_only=True)
    engine.dispose()


def test_both_services_write_through_to_the_disk(tester: Federation, agent: Agent, postgres_url: str) -> None:
    for engine in (tester.engine, agent.engine):
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW fsync").scalar() == "on"
    engine.dispose()
