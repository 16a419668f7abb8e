"""Group commit: who waits together is stored together, and nobody decides on another's answer."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from planted import with_mistake
from sqlalchemy.engine import Connection, Engine

from tacit_services.shared import database as group_commit_module
from tacit_services.shared.database import GroupCommit, StorageFullError, create_engine, run_transaction

pytestmark = pytest.mark.both_databases

WAIT_S_MAX = 120.0
CALLERS = 8

NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    NUMBERS.metadata.create_all(engine)
    yield engine
    engine.dispose()


def numbers_in(engine: Engine) -> list[int]:
    query = sa.select(NUMBERS.c.number).order_by(NUMBERS.c.number)
    return run_transaction(engine, lambda c: list(c.execute(query).scalars()), read_only=True)


class Stores:
    """Stores numbers, and keeps the first group waiting until all the others have been handed in."""

    def __init__(self, engine: Engine, kind: type[GroupCommit[int, int]] = GroupCommit) -> None:
        self.commits = kind(engine, self._store)
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


def test_those_who_wait_together_are_stored_in_one_transaction(engine: Engine) -> None:
    stores = Stores(engine)
    assert stores.run() == [10 * number for number in range(CALLERS)]
    assert [sorted(group) for group in stores.groups] == [[0], list(range(1, CALLERS))]
    assert numbers_in(engine) == list(range(CALLERS))


def test_one_that_fails_takes_nobody_with_it(engine: Engine) -> None:
    stores = Stores(engine)

    def fault(number: int) -> None:
        if number == 3:
            raise ValueError

    stores.fault = fault
    outcomes = stores.run()
    assert isinstance(outcomes.pop(3), ValueError)
    assert outcomes == [10 * number for number in range(CALLERS) if number != 3]
    assert numbers_in(engine) == [number for number in range(CALLERS) if number != 3]


def test_a_database_that_fails_is_asked_once_for_all(engine: Engine) -> None:
    stores = Stores(engine)

    def fault(number: int) -> None:
        if number > 0:
            raise StorageFullError

    stores.fault = fault
    outcomes = stores.run()
    assert outcomes[0] == 0
    assert [type(outcome) for outcome in outcomes[1:]] == [StorageFullError] * (CALLERS - 1)
    assert len(stores.groups) == 2
    assert numbers_in(engine) == [0]
    stores.fault = lambda _: None
    assert stores.commits.run(1) == 10, "the next one is led again"


def test_nobody_is_answered_before_the_commit(engine: Engine) -> None:
    stores, answered = Stores(engine), []

    @sa.event.listens_for(engine, "commit")  # before the database is told
    def note(_: Connection) -> None:
        answered.append([future.done() for future in stores.futures])

    stores.run()
    assert answered[0] == [False] * CALLERS
    assert answered[1][1:] == [False] * (CALLERS - 1)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_groups_whose_faults_are_shared_would_be_caught(engine: Engine) -> None:
    mistaken = with_mistake(group_commit_module, "len(group) > 1 and", "False and")
    stores = Stores(engine, mistaken.GroupCommit)

    def fault(number: int) -> None:
        if number == 3:
            raise ValueError

    stores.fault = fault
    assert [type(outcome) for outcome in stores.run()].count(ValueError) > 1
