"""Transactions are serializable, whoever waits together commits together, and a copy is whole."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from planted import with_mistake
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent
from tacit_services.agent.__main__ import main as agent_main
from tacit_services.ledger.accounts import AlreadyDebitedError, debit, set_caps, standing_of
from tacit_services.ledger.verification import inspect
from tacit_services.shared import database as group_commit_module
from tacit_services.shared.database import (
    CopyError,
    DatabaseUnavailableError,
    GroupCommit,
    StorageFullError,
    check_database,
    copy_database,
    create_engine,
    run_transaction,
    try_to_forget,
    upgrade,
)
from tacit_services.tester.tables import STUDIES

METADATA = sa.MetaData()
ACCOUNTS = sa.Table(
    "accounts",
    METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("amount", sa.Integer, nullable=False),
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    run_transaction(engine, METADATA.create_all)
    yield engine
    engine.dispose()


def _amounts(connection: Connection) -> list[int]:
    return list(connection.execute(sa.select(ACCOUNTS.c.amount)).scalars())


@pytest.mark.both_databases
def test_read_then_write_never_loses_an_update(engine: Engine) -> None:
    """Sum-then-insert, the pattern that overspends below serializable isolation."""
    barrier = threading.Barrier(8, timeout=120)

    def spend(connection: Connection, name: str) -> None:
        if sum(_amounts(connection)) < 3:
            connection.execute(ACCOUNTS.insert().values(name=name, amount=1))

    def worker(index: int) -> None:
        barrier.wait()
        run_transaction(engine, lambda connection: spend(connection, f"n{index}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(8)))
    assert sum(run_transaction(engine, _amounts, read_only=True)) == 3


@pytest.mark.both_databases
def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/missing/a.sqlite3", "postgresql://127.0.0.1:1/none"):
        engine = create_engine(url)
        with pytest.raises(DatabaseUnavailableError):
            check_database(engine)
        with pytest.raises(DatabaseUnavailableError):
            upgrade(engine, "tester")
        engine.dispose()


@pytest.mark.both_databases
def test_a_full_database_says_so_and_keeps_what_it_had(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/a.sqlite3")
    run_transaction(engine, METADATA.create_all)

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=10")
        connection.execute(ACCOUNTS.insert().values(name="x" * 100_000, amount=1))

    with pytest.raises(StorageFullError):
        run_transaction(engine, fill)
    assert run_transaction(engine, _amounts, read_only=True) == []
    engine.dispose()


@pytest.mark.both_databases
def test_other_databases_are_refused() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        create_engine("mysql://localhost/x")


@pytest.mark.both_databases
def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses at once, whatever busy_timeout says, to turn the log on beside a writer."""
    path = tmp_path / "new.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("CREATE TABLE other (x INTEGER)")
        writer.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path, timeout=10)) as hasty, pytest.raises(sqlite3.OperationalError):
            hasty.execute("PRAGMA journal_mode=WAL")
        finishing = threading.Timer(0.3, writer.execute, ["COMMIT"])
        finishing.start()
        engine = create_engine(f"sqlite:///{path}")
        mode = run_transaction(
            engine, lambda connection: connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        )
        engine.dispose()
        finishing.join()
    assert mode == "wal"


@pytest.mark.both_databases
def test_processes_that_start_at_once_migrate_once(database_url: str) -> None:
    barrier = threading.Barrier(4, timeout=120)

    def start(_: int) -> None:
        engine = create_engine(database_url)
        barrier.wait()
        upgrade(engine, "tester")
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    engine = create_engine(database_url)
    names = run_transaction(engine, lambda connection: sa.inspect(connection).get_table_names())
    engine.dispose()
    assert {"alembic_tester", "studies", "releases"} <= set(names)


WAIT_S_MAX = 120.0
CALLERS = 8

NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


@pytest.fixture
def numbers_engine(database_url: str) -> Iterator[Engine]:
    numbers_engine = create_engine(database_url)
    NUMBERS.metadata.create_all(numbers_engine)
    yield numbers_engine
    numbers_engine.dispose()


def numbers_in(numbers_engine: Engine) -> list[int]:
    query = sa.select(NUMBERS.c.number).order_by(NUMBERS.c.number)
    return run_transaction(numbers_engine, lambda c: list(c.execute(query).scalars()), read_only=True)


class Stores:
    """Stores numbers, and keeps the first group waiting until all the others have been handed in."""

    def __init__(self, numbers_engine: Engine, kind: type[GroupCommit[int, int]] = GroupCommit) -> None:
        self.commits = kind(numbers_engine, self._store)
        self.groups: list[list[int]] = []
        self.others_wait = threading.Event()
        self.futures: list[Future[int]] = []
        self.fault: Callable[[int], None] = lambda _: None

    def _store(self, connection: Connection, numbers: Sequence[int]) -> list[int]:
        self.groups.append(list(numbers))
        if len(self.groups) == 1:
            assert self.others_wait.wait(WAIT_S_MAX)
        for number in numbers:
            connection.execute(NUMBERS.insert(), {"number": number})
            self.fault(number)
        return [10 * number for number in numbers]

    def run(self, callers: int = CALLERS) -> list[int | BaseException]:
        """Hand in 0 first, and the rest while it is being stored; returns what each caller got."""
        with ThreadPoolExecutor(callers) as pool:
            self.futures = futures = [pool.submit(self.commits.run, 0)]
            while not self.groups:
                threading.Event().wait(0.001)  # until the first is being stored
            futures += [pool.submit(self.commits.run, number) for number in range(1, callers)]
            while len(self.commits._waiting) < callers - 1:
                threading.Event().wait(0.001)
            self.others_wait.set()
            errors = [future.exception(WAIT_S_MAX) for future in futures]
        return [error or future.result() for error, future in zip(errors, futures, strict=True)]


@pytest.mark.both_databases
def test_those_who_wait_together_are_stored_in_one_transaction(numbers_engine: Engine) -> None:
    stores = Stores(numbers_engine)
    assert stores.run() == [10 * number for number in range(CALLERS)]
    assert [sorted(group) for group in stores.groups] == [[0], list(range(1, CALLERS))]
    assert numbers_in(numbers_engine) == list(range(CALLERS))


@pytest.mark.both_databases
def test_one_that_fails_takes_nobody_with_it(numbers_engine: Engine) -> None:
    stores = Stores(numbers_engine)

    def fault(number: int) -> None:
        if number == 3:
            raise ValueError

    stores.fault = fault
    outcomes = stores.run()
    assert isinstance(outcomes.pop(3), ValueError)
    assert outcomes == [10 * number for number in range(CALLERS) if number != 3]
    assert numbers_in(numbers_engine) == [number for number in range(CALLERS) if number != 3]


@pytest.mark.both_databases
def test_a_database_that_fails_is_asked_once_for_all(numbers_engine: Engine) -> None:
    stores = Stores(numbers_engine)

    def fault(number: int) -> None:
        if number > 0:
            raise StorageFullError

    stores.fault = fault
    outcomes = stores.run()
    assert outcomes[0] == 0
    assert [type(outcome) for outcome in outcomes[1:]] == [StorageFullError] * (CALLERS - 1)
    assert len(stores.groups) == 2
    assert numbers_in(numbers_engine) == [0]
    stores.fault = lambda _: None
    assert stores.commits.run(1) == 10, "the next one is led again"


@pytest.mark.both_databases
def test_nobody_is_answered_before_the_commit(numbers_engine: Engine) -> None:
    stores, answered = Stores(numbers_engine), []

    @sa.event.listens_for(numbers_engine, "commit")  # before the database is told
    def note(_: Connection) -> None:
        answered.append([future.done() for future in stores.futures])

    stores.run()
    assert answered[0] == [False] * CALLERS
    assert answered[1][1:] == [False] * (CALLERS - 1)


@pytest.mark.both_databases
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_groups_whose_faults_are_shared_would_be_caught(numbers_engine: Engine) -> None:
    mistaken = with_mistake(group_commit_module, "len(group) > 1 and", "False and")
    stores = Stores(numbers_engine, mistaken.GroupCommit)

    def fault(number: int) -> None:
        if number == 3:
            raise ValueError

    stores.fault = fault
    assert [type(outcome) for outcome in stores.run()].count(ValueError) > 1


COST = Guarantee(budget=Budget.of("0.5", "0"), events=(LaplaceEvent(noise_multiplier=2.0),))
LEFT_MICRO = 1_000_000
"""Of a cap of 2, after both debits."""


@pytest.fixture
def source_url(tmp_path: Path) -> Iterator[str]:
    """An agent's database on SQLite with two debits of one data set."""
    url = f"sqlite:///{tmp_path / 'agent.sqlite3'}"
    engine = create_engine(url)
    upgrade(engine, "agent")
    run_transaction(engine, lambda c: set_caps(c, "patients", 2_000_000, 0, at=1))
    for study in ("a" * 64, "b" * 64):
        run_transaction(engine, lambda c, study=study: debit(c, "patients", study, COST, at=2))
    engine.dispose()
    return url


def heads(url: str) -> tuple[list[tuple[str, int, str]], tuple[str, ...]]:
    engine = create_engine(url)
    found = run_transaction(engine, inspect, read_only=True)
    engine.dispose()
    return [(a.data_set, a.entries, a.head_hash) for a in found.accounts], found.faults


def test_a_ledger_arrives_whole_and_forgets_no_debit(source_url: str, database_url: str) -> None:
    counts = copy_database(source_url, database_url, "agent")
    assert (counts["ledger_accounts"], counts["ledger_entries"]) == (1, 3)
    assert heads(database_url) == heads(source_url)
    assert heads(database_url)[1] == ()
    engine = create_engine(database_url)
    standing = run_transaction(engine, lambda c: standing_of(c, "patients"), read_only=True)
    assert standing.pure_left_micro == LEFT_MICRO
    with pytest.raises(AlreadyDebitedError):
        run_transaction(engine, lambda c: debit(c, "patients", "a" * 64, COST, at=3))
    run_transaction(engine, lambda c: debit(c, "patients", "c" * 64, COST, at=3))
    engine.dispose()


def test_studies_are_numbered_on_and_envelopes_are_the_same_bytes(tmp_path: Path, database_url: str) -> None:
    source_url = f"sqlite:///{tmp_path / 'tester.sqlite3'}"
    source = create_engine(source_url)
    upgrade(source, "tester")

    def study(number: int) -> dict[str, object]:
        fields = {"title": "t", "procedure": "p", "analyst_key": "k", "state": "completed"}
        times = {"created_at": 1, "deadline": 2}
        return {"digest": f"{number:064x}", "envelope": bytes(range(number, 256)), **fields, **times}

    many = [study(number) for number in range(1, 4)]
    run_transaction(source, lambda c: c.execute(STUDIES.insert(), many))
    source.dispose()
    assert copy_database(source_url, database_url, "tester")["studies"] == 3
    target = create_engine(database_url)
    run_transaction(target, lambda c: c.execute(STUDIES.insert().values(study(9))))
    query = sa.select(STUDIES.c.sequence, STUDIES.c.envelope).order_by(STUDIES.c.sequence)
    found = run_transaction(target, lambda c: c.execute(query).all(), read_only=True)
    target.dispose()
    assert [(row.sequence, bytes(row.envelope)[0]) for row in found] == [(1, 1), (2, 2), (3, 3), (4, 9)]


def test_nothing_and_an_older_release_are_not_copied(source_url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'copy.sqlite3'}"
    missing = tmp_path / "missing.sqlite3"
    with pytest.raises(CopyError, match="no database"):
        copy_database(f"sqlite:///{missing}", target, "agent")
    assert not missing.exists()
    with pytest.raises(CopyError, match="no database"):
        copy_database(source_url, target, "tester")
    engine = create_engine(source_url)
    run_transaction(engine, lambda c: c.execute(sa.text("UPDATE alembic_agent SET version_num = 'a0000'")))
    engine.dispose()
    with pytest.raises(CopyError, match="older release"):
        copy_database(source_url, target, "agent")


def test_the_command_copies_and_says_what_is_wrong(
    source_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_AGENT_DATABASE_URL", source_url)
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "agent.toml").write_text(
        'name = "north"\nkey_file = "agent.pem"\ntester_url = "http://tester"\npolicy_file = "policy.toml"\n'
        f'tester_key = "{"0" * 64}"\n[[data_sets]]\nname = "patients"\nsource = "p.csv"\n'
        "epsilon = 2.0\ndelta = 0.0\n"
    )
    command = ["copy", "--config", str(tmp_path / "agent.toml"), "--to"]
    target = f"sqlite:///{tmp_path / 'backup.sqlite3'}"
    assert agent_main([*command, target]) == 0
    assert "ledger_entries: 3 rows" in capsys.readouterr().out
    assert (tmp_path / "backup.sqlite3").stat().st_mode & 0o777 == 0o600
    assert agent_main([*command, f"sqlite:///{tmp_path / 'nowhere' / 'backup.sqlite3'}"]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert agent_main([*command, target]) == 1
    assert "not empty" in capsys.readouterr().err
    assert agent_main([*command, "mysql://somewhere"]) == 1
    assert "--to must be" in capsys.readouterr().err


@pytest.mark.both_databases
def test_the_database_forgets_what_was_emptied_unless_a_reader_is_in_the_way(database_url: str) -> None:
    engine, reader = create_engine(database_url), create_engine(database_url)
    table = sa.Table("kept", sa.MetaData(), sa.Column("secret", sa.LargeBinary))
    secret = bytes(range(1, 33))
    run_transaction(engine, table.create)
    run_transaction(engine, lambda c: c.execute(table.insert().values(secret=secret)))
    assert secret in _pages(engine)
    with reader.connect().execution_options(tacit_read_only=True) as reading:
        assert reading.execute(table.select()).one().secret == secret
        run_transaction(engine, lambda c: c.execute(table.update().values(secret=b"")))
        assert not try_to_forget(engine, table)
        assert secret in _pages(engine)
    assert try_to_forget(engine, table)
    assert secret not in _pages(engine)
    engine.dispose()
    reader.dispose()


def _pages(engine: sa.Engine) -> bytes:
    """Return the bytes of all files of an SQLite database, and of a table's on PostgreSQL."""
    if engine.dialect.name == "sqlite":
        file = Path(str(engine.url.database))
        return b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CHECKPOINT")
        query = "SELECT pg_read_binary_file(pg_relation_filepath('kept'))"
        return bytes(connection.exec_driver_sql(query).scalar_one())
