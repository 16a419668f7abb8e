"""The ledger charges shares, refuses, chains and never overspends, on SQLite and PostgreSQL."""

import json
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from debit_process import COST

from tacit_protocol.messages.answers import BudgetBalance
from tacit_protocol.privacy.accounting import (
    EVERYTHING_MAY_RUN,
    FAMILIES,
    Division,
    Family,
    charge,
    gaussian_mu,
)
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, GaussianEvent, Guarantee
from tacit_protocol.procedures.counts.release import laplace_count_guarantee
from tacit_services.agent.schema import METADATA
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import (
    Account,
    AlreadyDebitedError,
    BudgetExceededError,
    DivisionRefusedError,
    LedgerDamagedError,
    account_of,
    debit,
    debits_of,
    give_back,
    paid_words,
    part_of_cap,
    payment_words,
    reserve,
    set_caps,
    standing_of,
)
from tacit_services.ledger.entries import ACCOUNTS, ENTRIES, LedgerEntry
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade

pytestmark = pytest.mark.both_databases

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


def reserved(epsilon: str) -> Guarantee:
    """What Gaussian releases cost: with the part of delta that is set aside for the grid."""
    return gaussian_guarantee(Budget.of(epsilon, "1e-5"))


def laplace(epsilon: str) -> Guarantee:
    return laplace_count_guarantee(Budget.of(epsilon, "0"))


GAUSSIAN = Division.of(("gaussian",))


def open_account(
    engine: sa.Engine,
    cap_micro: int = 2_000_000,
    delta_pico: int = DELTA_PICO,
    division: Division = EVERYTHING_MAY_RUN,
) -> None:
    run_transaction(engine, lambda c: set_caps(c, "patients", cap_micro, delta_pico, at=1, division=division))


def test_the_migrated_tables_are_those_of_the_code(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": "alembic_agent"}
        )
        assert compare_metadata(context, METADATA) == []


def standing_in(engine: sa.Engine) -> BudgetBalance:
    return run_transaction(engine, lambda c: standing_of(c, "patients"), read_only=True)


def spend(engine: sa.Engine, name: str, cost: Guarantee) -> LedgerEntry:
    return run_transaction(engine, lambda c: debit(c, "patients", name * 64, cost, at=2))


def reserve_for(engine: sa.Engine, study: str, cost: Guarantee) -> None:
    run_transaction(engine, lambda c: reserve(c, "patients", study, cost, at=2))


def test_a_debit_is_recorded_and_charged_to_its_share(engine: sa.Engine) -> None:
    open_account(engine)
    cost = gaussian("0.5", "1e-6")
    before = standing_in(engine)
    assert (before.pure_share_micro, before.gaussian_share_micro) == (1_000_000, 1_000_000)
    pure = laplace("0.25")
    entries = [spend(engine, "a", cost), spend(engine, "b", pure)]
    assert [entry.amounts for entry in entries] == [charge(cost.events), charge(pure.events)]
    after = standing_in(engine)
    assert (after.pure_spent_micro, after.pure_left_micro) == (250_000, 750_000)
    assert 400_000 < after.gaussian_spent_micro < 500_000  # the account's delta is larger than the study's
    assert 800_000 < after.gaussian_left_micro < 1_000_000  # mu squared adds up, not epsilon
    assert after.promised_micro == 2_000_000
    assert run_transaction(engine, verify, read_only=True) == 3
    cap, first, _ = run_transaction(engine, export, read_only=True)
    assert (cap["kind"], cap["epsilon_micro"], cap["study"]) == ("cap", 2_000_000, None)
    assert (first["study"], first["events"]) == (STUDY, [cost.events[0].model_dump()])
    json.dumps([cap, first])


def test_what_is_left_of_the_gaussian_share_fits_and_a_micro_epsilon_more_does_not(sqlite: sa.Engine) -> None:
    open_account(sqlite, division=GAUSSIAN)
    spend(sqlite, "a", gaussian("0.7", "1e-6"))
    found = standing_in(sqlite)
    delta = found.gaussian_delta_pico
    more = Budget(epsilon_micro=found.gaussian_left_micro + 1, delta_pico=delta)
    with pytest.raises(BudgetExceededError):
        spend(sqlite, "b", gaussian(str(more.epsilon), str(more.delta)))
    spend(sqlite, "b", gaussian(str(found.gaussian_left_micro / 1e6), str(more.delta)))
    assert standing_in(sqlite).gaussian_left_micro <= 1000  # what calibration gives away


@pytest.mark.parametrize("families", [("pure",), ("gaussian",), ("pure", "gaussian")])
def test_what_studies_take_and_what_is_left_add_up_to_the_cap(
    sqlite: sa.Engine, families: tuple[Family, ...]
) -> None:
    """Epsilons do not: three Gaussian studies of .2 leave more than 1.4 of 2."""
    open_account(sqlite, division=Division.of(families))
    costs = [laplace("0.2") if family == "pure" else gaussian("0.2") for family in families for _ in range(3)]
    part = own = Fraction(0)
    for name, cost in zip("abcdef", costs, strict=False):
        account = run_transaction(sqlite, lambda c: account_of(c, "patients"), read_only=True)
        words = payment_words(account, cost)
        own = part_of_cap(account, spend(sqlite, name, cost).amounts)
        part += own
        assert words.startswith(f"takes {math.ceil(1000 * own) / 10:g} % of the cap")
        assert standing_in(sqlite).left_percent == math.floor(1000 * (1 - part)) / 10
        entry = run_transaction(sqlite, lambda c: debits_of(c, "patients"), read_only=True)[-1]
        assert paid_words(account, entry) == f"spent epsilon 0.2, {math.ceil(1000 * own) / 10:g} % of the cap"
    if len(families) == 1:
        assert part == 3 * own, "of the same account the same study takes the same, whenever it comes"
    reserve_for(sqlite, "9" * 64, costs[0])
    assert standing_in(sqlite).left_percent < 100 * (1 - part), "what is reserved is not left"


def test_nothing_is_left_of_a_cap_that_was_lowered_below_what_is_spent(sqlite: sa.Engine) -> None:
    open_account(sqlite, division=GAUSSIAN)
    assert standing_in(sqlite).left_percent == 100
    spend(sqlite, "a", gaussian("1"))
    open_account(sqlite, cap_micro=500_000, division=GAUSSIAN)
    assert standing_in(sqlite).left_percent == 0


@pytest.mark.parametrize("epsilon", ["0.004", "0.1", "1", "3", "20"])
def test_a_study_that_is_calibrated_to_a_whole_share_fits_it(sqlite: sa.Engine, epsilon: str) -> None:
    """Also as a later study, where nothing makes room for it: the shares are those of the cap to the unit."""
    double = 2 * round(float(epsilon) * 1e6)
    open_account(sqlite, cap_micro=double, division=Division.of(FAMILIES, 0.5, 0.5))
    delta = str(DELTA_PICO / 2 / 1e12)
    spend(sqlite, "a", laplace(epsilon))
    spend(sqlite, "b", gaussian(epsilon, delta))
    found = standing_in(sqlite)
    assert (found.pure_left_micro, found.pure_spent_micro) == (0, double // 2)
    assert found.gaussian_spent_micro == double // 2


def test_the_first_study_may_take_the_whole_cap_and_leaves_nothing(engine: sa.Engine) -> None:
    open_account(engine, cap_micro=1_000_000)
    spend(engine, "a", reserved("1"))
    found = standing_in(engine)
    assert (found.pure_share_micro, found.gaussian_share_micro) == (0, 1_000_000)
    assert found.promised_micro == 1_000_000
    for cost in (gaussian("0.001", "1e-9"), laplace("0.001")):
        with pytest.raises(BudgetExceededError):
            spend(engine, "b", cost)
    kinds = [entry["kind"] for entry in run_transaction(engine, export, read_only=True)]
    assert kinds == ["cap", "cap", "debit"], "the division that gave way is an entry"
    assert run_transaction(engine, verify, read_only=True) == 3


def test_the_first_study_moves_no_more_than_it_needs(sqlite: sa.Engine) -> None:
    open_account(sqlite)
    spend(sqlite, "a", laplace("1.2"))
    found = standing_in(sqlite)
    assert (found.pure_share_micro, found.gaussian_share_micro) == (1_200_000, 800_000)
    open_account(sqlite)  # the agent starts again with the same configuration
    assert standing_in(sqlite) == found


def test_a_division_that_the_owner_states_makes_no_room(sqlite: sa.Engine) -> None:
    open_account(sqlite, division=Division.of(FAMILIES, 0.5))
    with pytest.raises(BudgetExceededError):
        spend(sqlite, "a", laplace("1.2"))
    spend(sqlite, "a", reserved("1"))  # what was not stated, the part of delta, gives way
    assert standing_in(sqlite).pure_left_micro == 1_000_000


def test_no_later_study_moves_a_share(sqlite: sa.Engine) -> None:
    open_account(sqlite)
    spend(sqlite, "a", laplace("0.001"))
    with pytest.raises(BudgetExceededError):
        spend(sqlite, "b", gaussian("1.2"))
    with pytest.raises(BudgetExceededError):
        spend(sqlite, "b", laplace("1.2"))


def test_a_pure_study_is_paid_by_the_gaussian_share_once_the_pure_one_is_spent(engine: sa.Engine) -> None:
    open_account(engine)
    spend(engine, "a", laplace("1"))
    cost = laplace("0.1")
    entry = spend(engine, "b", cost)
    assert entry.amounts == charge(cost.events, pure_as_gaussian=True)
    assert entry.amounts.pure_pico == 0 < entry.amounts.gaussian_femto
    with pytest.raises(BudgetExceededError):
        spend(engine, "c", laplace("0.3"))
    assert run_transaction(engine, verify, read_only=True) == 3


@pytest.mark.long
def test_an_account_without_a_pure_share_answers_many_small_pure_studies(sqlite: sa.Engine) -> None:
    """With mu squared adding up, more of them than their epsilons would allow."""
    open_account(sqlite, division=GAUSSIAN)

    def work(connection: sa.Connection) -> int:
        for number in range(10_000):
            try:
                debit(connection, "patients", f"{number:064x}", COST, at=2)
            except BudgetExceededError:
                return number
        return 10_000

    assert 1000 < run_transaction(sqlite, work) < 2000  # 2 / 0.01 = 200 by their sum


def test_a_study_of_both_kinds_is_paid_by_both_shares(sqlite: sa.Engine) -> None:
    open_account(sqlite)
    events = (*gaussian("0.5", "1e-6").events, ApproximateEvent(epsilon=0.25, delta=1e-6))
    both = Guarantee(budget=Budget.of("0.75", "2e-6"), events=events)
    entry = spend(sqlite, "a", both)
    assert entry.amounts == charge(events)
    assert standing_in(sqlite).approximate_left_pico == DELTA_PICO // 2 - 10**6


def test_shares_move_after_a_debit_only_under_a_cap_that_covers_both(engine: sa.Engine) -> None:
    open_account(engine)
    spend(engine, "a", laplace("0.1"))
    more_pure = Division.of(FAMILIES, 0.8)
    with pytest.raises(DivisionRefusedError, match="write epsilon = 5 or more with this delta"):
        open_account(engine, division=more_pure)
    open_account(engine, cap_micro=5_000_000, division=more_pure)
    found = standing_in(engine)
    assert (found.pure_share_micro, found.epsilon_cap_micro) == (4_000_000, 5_000_000)
    assert found.promised_micro == 5_000_000
    run_transaction(engine, verify, read_only=True)


def test_a_lowered_cap_keeps_its_promise_and_may_be_raised_back(engine: sa.Engine) -> None:
    open_account(engine)
    spend(engine, "a", laplace("0.4"))
    before = standing_in(engine)
    open_account(engine, cap_micro=500_000)
    lowered = standing_in(engine)
    assert (lowered.pure_left_micro, lowered.gaussian_left_micro) == (0, 100_000)
    assert lowered.promised_micro == 2_000_000, "what was promised before the debit stays what is stated"
    open_account(engine)
    assert standing_in(engine) == before
    run_transaction(engine, verify, read_only=True)


def test_a_raised_cap_is_a_new_promise(engine: sa.Engine) -> None:
    open_account(engine, cap_micro=1_000_000)
    spend(engine, "a", reserved("1"))
    open_account(engine)
    found = standing_in(engine)
    assert (found.pure_left_micro, found.promised_micro) == (1_000_000, 2_000_000)
    run_transaction(engine, verify, read_only=True)


def test_another_policy_moves_no_share_after_a_debit(sqlite: sa.Engine) -> None:
    open_account(sqlite, division=GAUSSIAN)
    spend(sqlite, "a", gaussian("0.1"))
    before = standing_in(sqlite)
    open_account(sqlite)
    assert standing_in(sqlite) == before


def test_a_refused_debit_leaves_nothing(engine: sa.Engine) -> None:
    open_account(engine, cap_micro=900_000)
    before = run_transaction(engine, export, read_only=True)
    with pytest.raises(BudgetExceededError):
        run_transaction(engine, lambda c: debit(c, "patients", STUDY, gaussian("1"), at=2))
    assert run_transaction(engine, export, read_only=True) == before
    assert standing_in(engine).gaussian_spent_micro == 0


def test_a_study_is_debited_once(engine: sa.Engine) -> None:
    open_account(engine)
    run_transaction(engine, lambda c: debit(c, "patients", STUDY, COST, at=2))
    with pytest.raises(AlreadyDebitedError):
        run_transaction(engine, lambda c: debit(c, "patients", STUDY, COST, at=3))


TAMPERINGS = {
    "fewer debits": ACCOUNTS.update().values(debits=0),
    "people who did not approve": ENTRIES.update()
    .where(ENTRIES.c.sequence == 2)
    .values(approved_by='["bob"]'),
    "an empty list of people": ENTRIES.update().where(ENTRIES.c.sequence == 2).values(approved_by="[]"),
}
"""What tests/audits/test_ledger_tampering.py does not try."""


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_is_noticed(sqlite: sa.Engine, tampering: str) -> None:
    open_account(sqlite)
    spend(sqlite, "a", COST)
    run_transaction(sqlite, lambda c: c.execute(TAMPERINGS[tampering]))
    with pytest.raises(LedgerDamagedError):
        run_transaction(sqlite, verify, read_only=True)


class Reads:
    """Counts the statements that a connection executes, and the rows that its cursors give."""

    def __init__(self) -> None:
        self.statements, self.rows = 0, 0

    def of_a_debit(self, engine: sa.Engine) -> tuple[int, int]:
        genuine = sa.Connection.execute

        def counted(connection: sa.Connection, *arguments: Any, **options: Any) -> Any:
            self.statements += 1
            result = genuine(connection, *arguments, **options)
            if not result.returns_rows:
                return result
            frozen = result.freeze()
            self.rows += len(frozen().all())
            return frozen()

        with mock.patch.object(sa.Connection, "execute", counted):
            run_transaction(engine, lambda c: debit(c, "patients", "f" * 64, COST, at=3))
        return self.statements, self.rows


def test_what_is_reserved_is_neither_spent_nor_left(engine: sa.Engine) -> None:
    open_account(engine, cap_micro=5_000_000)
    before = standing_in(engine)
    reserve_for(engine, "b" * 64, laplace("2"))
    after = standing_in(engine)
    assert after.pure_left_micro == before.pure_left_micro - 2_000_000
    assert (after.pure_spent_micro, after.promised_micro) == (0, before.promised_micro)
    run_transaction(engine, lambda c: give_back(c, ["b" * 64]))
    assert standing_in(engine) == before


RESERVING = pytest.mark.parametrize("seed", range(40))


def play(engine: sa.Engine, seed: int) -> int:
    """Reserve, debit and give back at random; returns how many reserved studies could not be debited."""
    rng = random.Random(seed)  # noqa: S311 (a history, not a secret)
    open_account(engine, cap_micro=6_000_000)
    costs: dict[str, Guarantee] = {}
    broken = 0
    for number in range(40):
        study = f"{number:064x}"
        epsilon = f"{rng.randint(1, 12) / 4:g}"
        cost = gaussian(epsilon) if rng.random() < 0.5 else laplace(epsilon)
        action = rng.choice(["reserve", "reserve", "debit", "debit reserved", "give back", "restart"])
        try:
            if action == "reserve":
                reserve_for(engine, study, cost)
                costs[study] = cost
            elif action == "debit":
                run_transaction(engine, lambda c, s=study, g=cost: debit(c, "patients", s, g, at=1))
            elif action == "restart":
                open_account(engine, cap_micro=6_000_000)
            elif costs:
                reserved = rng.choice(sorted(costs))
                own = costs.pop(reserved)
                if action == "give back":
                    run_transaction(engine, lambda c, s=reserved: give_back(c, [s]))
                    continue
                try:
                    run_transaction(engine, lambda c, s=reserved, g=own: debit(c, "patients", s, g, at=1))
                except BudgetExceededError:
                    broken += 1
        except BudgetExceededError:
            pass
        account = run_transaction(engine, lambda c: account_of(c, "patients"))
        assert account.spent.within(account.share)
        assert account.taken.within(account.share) or broken
    run_transaction(engine, verify)
    return broken


@RESERVING
def test_what_was_reserved_can_always_be_debited(sqlite: sa.Engine, seed: int) -> None:
    """Whatever else is asked meanwhile, of either share, and across restarts of the service."""
    assert play(sqlite, seed) == 0


def test_a_debit_that_ignores_reservations_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Account, "taken", property(lambda account: account.spent))
    broken = 0
    for seed in range(5):
        engine = create_engine(f"sqlite:///{tmp_path / f'{seed}.sqlite3'}")
        upgrade(engine, "agent")
        broken += play(engine, seed)
        engine.dispose()
    assert broken > 0


@pytest.mark.parametrize("entries", [0, 300])
def test_a_debit_reads_one_row_however_many_entries_there_are(engine: sa.Engine, entries: int) -> None:
    open_account(engine, cap_micro=100_000_000)

    def fill(connection: sa.Connection) -> None:
        for number in range(entries):
            debit(connection, "patients", f"{number:064x}", COST, at=2)

    run_transaction(engine, fill)
    assert Reads().of_a_debit(engine) == (6, 1)


def test_a_debit_that_reads_all_entries_would_be_caught(
    sqlite: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_account(sqlite)
    for name in "bcd":
        spend(sqlite, name, COST)

    def composing(connection: sa.Connection, data_set: str) -> Account:
        debits_of(connection, data_set)
        return account_of(connection, data_set)

    monkeypatch.setattr(accounts, "account_of", composing)
    assert Reads().of_a_debit(sqlite) == (7, 4)
