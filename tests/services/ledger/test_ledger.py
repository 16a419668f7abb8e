"""The ledger composes, refuses, chains and never overspends, on SQLite and PostgreSQL."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import debit_process
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from debit_process import COST, DEBIT_MICRO, add_up
from forked_python import forked_python

from tacit_protocol.privacy.calibration import gaussian_mu
from tacit_protocol.privacy.events import GaussianEvent
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.signing.envelope import digest
from tacit_services.agent.schema import METADATA
from tacit_services.ledger.accounts import (
    account_of,
    composed,
    debit,
    debits_of,
    left_micro,
    set_caps,
    spent_micro,
)
from tacit_services.ledger.entries import entry_of
from tacit_services.ledger.errors import (
    AlreadyDebitedError,
    BudgetExceededError,
    LedgerDamagedError,
    UnknownAccountError,
)
from tacit_services.ledger.schema import ACCOUNTS, ENTRIES
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade

STUDY = "a" * 64
DELTA_PICO = 10_000_000  # 1e-5


def gaussian(epsilon: str, delta: str = "1e-5") -> Guarantee:
    budget = Budget.of(epsilon, delta)
    event = GaussianEvent(noise_multiplier=1 / gaussian_mu(budget.epsilon, budget.delta))
    return Guarantee(budget=budget, events=(event,))


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    upgrade(engine, "agent")
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    upgrade(engine, "agent")
    yield engine
    engine.dispose()


def open_account(engine: sa.Engine, cap_micro: int = 2_000_000, delta_pico: int = DELTA_PICO) -> None:
    run_transaction(engine, lambda c: set_caps(c, "patients", cap_micro, delta_pico, at=1))


def test_the_migrated_tables_are_those_of_the_code(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": "alembic_agent"}
        )
        assert compare_metadata(context, METADATA) == []


def test_a_debit_is_recorded_and_composed(engine: sa.Engine) -> None:
    open_account(engine)
    cost = gaussian("1")

    def work(connection: sa.Connection) -> tuple[int, int]:
        debit(connection, "patients", STUDY, cost, at=2)
        second = debit(connection, "patients", "b" * 64, gaussian("0.5", "1e-6"), at=3)
        assert second.spent_after_micro == spent_micro(connection, "patients")
        return spent_micro(connection, "patients"), left_micro(connection, "patients")

    spent, left = run_transaction(engine, work)
    assert 1_000_000 < spent < 1_500_000  # composition is better than adding up
    assert spent + left == 2_000_000
    assert run_transaction(engine, verify, read_only=True) == 3
    cap, first, _ = run_transaction(engine, export, read_only=True)
    assert (cap["kind"], cap["epsilon_micro"], cap["study"]) == ("cap", 2_000_000, None)
    assert (first["study"], first["events"]) == (STUDY, [cost.events[0].model_dump()])
    json.dumps([cap, first])


def test_a_study_that_costs_the_whole_cap_fits_it(sqlite: sa.Engine) -> None:
    open_account(sqlite, cap_micro=1_000_000)
    entry = run_transaction(sqlite, lambda c: debit(c, "patients", STUDY, gaussian("1"), at=2))
    assert entry.spent_after_micro == 1_000_000
    with pytest.raises(BudgetExceededError):
        run_transaction(sqlite, lambda c: debit(c, "patients", "b" * 64, gaussian("0.001", "1e-9"), at=3))


def test_a_delta_larger_than_the_accounts_costs_more_epsilon(sqlite: sa.Engine) -> None:
    open_account(sqlite, delta_pico=1_000_000)
    entry = run_transaction(sqlite, lambda c: debit(c, "patients", STUDY, gaussian("1", "1e-5"), at=2))
    assert entry.spent_after_micro > 1_000_000


def test_gaussian_noise_on_an_account_without_delta_is_refused(sqlite: sa.Engine) -> None:
    open_account(sqlite, delta_pico=0)
    with pytest.raises(BudgetExceededError):
        run_transaction(sqlite, lambda c: debit(c, "patients", STUDY, gaussian("0.001", "1e-9"), at=2))


def test_taking_the_delta_away_later_leaves_nothing(sqlite: sa.Engine) -> None:
    open_account(sqlite)
    run_transaction(sqlite, lambda c: debit(c, "patients", STUDY, gaussian("0.1"), at=2))
    open_account(sqlite, delta_pico=0)
    assert run_transaction(sqlite, lambda c: left_micro(c, "patients"), read_only=True) == 0
    run_transaction(sqlite, verify, read_only=True)


def test_a_refused_debit_leaves_nothing(engine: sa.Engine) -> None:
    open_account(engine, cap_micro=900_000)
    before = run_transaction(engine, export, read_only=True)
    with pytest.raises(BudgetExceededError):
        run_transaction(engine, lambda c: debit(c, "patients", STUDY, gaussian("1"), at=2))
    assert run_transaction(engine, export, read_only=True) == before
    assert run_transaction(engine, lambda c: spent_micro(c, "patients"), read_only=True) == 0


def test_a_study_is_debited_once(engine: sa.Engine) -> None:
    open_account(engine)
    run_transaction(engine, lambda c: debit(c, "patients", STUDY, COST, at=2, compose=add_up))
    with pytest.raises(AlreadyDebitedError):
        run_transaction(engine, lambda c: debit(c, "patients", STUDY, COST, at=3, compose=add_up))


def test_an_unknown_account_is_an_error_everywhere(sqlite: sa.Engine) -> None:
    for work in (
        lambda c: debit(c, "staff", STUDY, COST, at=1),
        lambda c: spent_micro(c, "staff"),
        lambda c: account_of(c, "staff"),
        lambda c: left_micro(c, "staff"),
    ):
        with pytest.raises(UnknownAccountError):
            run_transaction(sqlite, work)


def test_changing_a_cap_is_an_entry_and_the_same_cap_again_is_none(sqlite: sa.Engine) -> None:
    open_account(sqlite)
    open_account(sqlite)
    run_transaction(sqlite, lambda c: debit(c, "patients", STUDY, gaussian("1"), at=2))
    open_account(sqlite, cap_micro=500_000)
    assert run_transaction(sqlite, lambda c: left_micro(c, "patients"), read_only=True) == 0
    kinds = [entry["kind"] for entry in run_transaction(sqlite, export, read_only=True)]
    assert kinds == ["cap", "debit", "cap"]
    run_transaction(sqlite, verify, read_only=True)


def fill(engine: sa.Engine) -> None:
    open_account(engine)
    for name in "bcd":
        run_transaction(engine, lambda c, n=name: debit(c, "patients", n * 64, COST, at=2, compose=add_up))


TAMPERINGS = {
    "a smaller amount": ENTRIES.update().where(ENTRIES.c.sequence == 3).values(spent_after_micro=1),
    "a smaller event": ENTRIES.update().where(ENTRIES.c.sequence == 3).values(events="[]"),
    "an entry removed from the middle": ENTRIES.delete().where(ENTRIES.c.sequence == 3),
    "the newest entry removed": ENTRIES.delete().where(ENTRIES.c.sequence == 4),
    "a raised cap": ACCOUNTS.update().values(epsilon_cap_micro=9_000_000),
    "a moved head": ACCOUNTS.update().values(head_hash="0" * 64),
    "another study": ENTRIES.update().where(ENTRIES.c.sequence == 2).values(study="e" * 64),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_is_noticed(sqlite: sa.Engine, tampering: str) -> None:
    fill(sqlite)
    assert run_transaction(sqlite, lambda c: verify(c, add_up), read_only=True) == 4
    run_transaction(sqlite, lambda c: c.execute(TAMPERINGS[tampering]))
    with pytest.raises(LedgerDamagedError):
        run_transaction(sqlite, lambda c: verify(c, add_up), read_only=True)


def test_the_newest_entry_and_its_account_put_back_together_are_not_noticed_but_the_head_differs(
    sqlite: sa.Engine,
) -> None:
    """The limit that verify documents: an older copy is consistent; only its head is another."""
    fill(sqlite)
    head = run_transaction(sqlite, lambda c: account_of(c, "patients"), read_only=True).head_hash

    def put_back(connection: sa.Connection) -> None:
        connection.execute(ENTRIES.delete().where(ENTRIES.c.sequence == 4))
        row = connection.execute(ENTRIES.select().where(ENTRIES.c.sequence == 3)).one()
        connection.execute(ACCOUNTS.update().values(version=3, head_hash=entry_of(row).entry_hash))

    run_transaction(sqlite, put_back)
    assert run_transaction(sqlite, lambda c: verify(c, add_up), read_only=True) == 3
    assert run_transaction(sqlite, lambda c: account_of(c, "patients"), read_only=True).head_hash != head


def overspent_micro(engine: sa.Engine) -> int:
    """Return by how much the debits pass the cap, from the entries alone."""

    def read(connection: sa.Connection) -> int:
        spent = composed(debits_of(connection, "patients"), 0, add_up)
        return spent - account_of(connection, "patients").epsilon_cap_micro

    return max(0, run_transaction(engine, read, read_only=True))


@pytest.mark.slow
def test_eight_processes_never_overspend_one_account(database_url: str, tmp_path: Path) -> None:
    engine = create_engine(database_url)
    upgrade(engine, "agent")
    granted_max = 90
    run_transaction(engine, lambda c: set_caps(c, "patients", granted_max * DEBIT_MICRO, 0, at=1))
    said = [(tmp_path / f"p{i}").open("w+") for i in range(8)]
    started = [
        forked_python().start([debit_process.__file__, database_url, f"p{i}", "50"], stdout=out, stderr=out)
        for i, out in enumerate(said)
    ]
    codes = [process.wait(240) for process in started]
    printed = [Path(out.name).read_text() for out in said]
    for out in said:
        out.close()
    assert codes == [0] * 8, printed
    assert sum(int(count) for count in printed) == granted_max
    assert overspent_micro(engine) == 0
    assert run_transaction(engine, lambda c: verify(c, add_up), read_only=True) == granted_max + 1
    engine.dispose()


def test_reading_the_sum_and_then_inserting_would_overspend(sqlite: sa.Engine) -> None:
    """The planted ledger: it shows that the check above can fail."""
    run_transaction(sqlite, lambda c: set_caps(c, "patients", DEBIT_MICRO, 0, at=1))
    both_have_read = threading.Barrier(2)

    def naive_debit(study: str) -> None:
        spent = run_transaction(sqlite, lambda c: spent_micro(c, "patients"), read_only=True)
        both_have_read.wait(timeout=120)
        if spent + DEBIT_MICRO <= DEBIT_MICRO:
            run_transaction(sqlite, lambda c: insert_unchecked(c, study))

    threads = [threading.Thread(target=naive_debit, args=(name * 64,)) for name in "bc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overspent_micro(sqlite) == DEBIT_MICRO


def insert_unchecked(connection: sa.Connection, study: str) -> None:
    account = account_of(connection, "patients")
    row = {
        "data_set": "patients",
        "sequence": account.version + 1,
        "kind": "debit",
        "study": study,
        "events": json.dumps([event.model_dump() for event in COST.events]),
        "epsilon_micro": DEBIT_MICRO,
        "delta_pico": 0,
        "at": 1,
        "spent_after_micro": DEBIT_MICRO,
        "previous_hash": account.head_hash,
        "entry_hash": digest(study.encode()),
    }
    connection.execute(ENTRIES.insert().values(**row))
    connection.execute(ACCOUNTS.update().values(version=account.version + 1))
