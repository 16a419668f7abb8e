"""Random histories of one account in real SQL, against an accountant that knows only what was released.

Studies are reserved, debited, abandoned in the middle, given back, given back again, debited with another
cost and at times that go backwards; caps and divisions change; transactions begin before others and end after
them. Costs are of every kind: Gaussian, Laplace, pure, approximate and mixed, small ones and those that
fill what is left. After every step the accountant of tests/support/simple_accountant.py recomputes what was
released. Mistakes that are planted in the ledger are found by the same search.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from long_runs import LONG, choose
from simple_accountant import Shares, SimpleAccountant, joined

from tacit_protocol.privacy import accounting
from tacit_protocol.privacy.accounting import (
    APPROXIMATE_UNITS,
    EVERYTHING_MAY_RUN,
    FAMILIES,
    GAUSSIAN_UNITS,
    PURE_UNITS,
    Amounts,
    Division,
)
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import (
    DELTA_UNITS,
    EPSILON_UNITS,
    ApproximateEvent,
    Budget,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    MechanismEvent,
)
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import (
    Account,
    AlreadyDebitedError,
    BudgetExceededError,
    DivisionRefusedError,
    LedgerConflictError,
    account_of,
    debits_of,
)
from tacit_services.ledger.entries import ENTRIES, RESERVATIONS
from tacit_services.ledger.verification import _inspect_account
from tacit_services.shared.database import create_engine, run_transaction, upgrade

pytestmark = pytest.mark.both_databases

HISTORIES, STEPS = choose(30, 3000), choose(25, 60)

ANY = Budget.of("1", "1e-5")
"""The budget that costs state: the ledger charges events alone."""


def costing(*events: MechanismEvent) -> Guarantee:
    return Guarantee(budget=ANY, events=events)


COSTS: dict[str, Guarantee] = {
    "small Gaussian": gaussian_guarantee(Budget.of("0.2", "1e-6")),
    "large Gaussian": gaussian_guarantee(Budget.of("1", "1e-5")),
    "small pure": costing(LaplaceEvent(noise_multiplier=10.0)),
    "large pure": costing(ApproximateEvent(epsilon=1.0)),
    "two rounds": costing(LaplaceEvent(noise_multiplier=4.0), LaplaceEvent(noise_multiplier=8.0)),
    "randomised choice": costing(ApproximateEvent(epsilon=0.1, delta=2e-6)),
    "of all kinds": costing(
        GaussianEvent(noise_multiplier=8.0),
        LaplaceEvent(noise_multiplier=20.0),
        ApproximateEvent(epsilon=0.05, delta=1e-6),
    ),
    "delta alone": costing(ApproximateEvent(epsilon=0.0, delta=4e-6)),
}
FILLS = ("all that is left of pure", "all that is left of Gaussian", "all that is left of delta")

CAPS = {
    "as it was": (2.0, 1e-5),
    "raised": (5.0, 1e-5),
    "lowered": (0.5, 1e-5),
    "more delta": (2.0, 1e-4),
    "no delta": (2.0, 0.0),
}
DIVISIONS = {
    "what may run": EVERYTHING_MAY_RUN,
    "Gaussian alone": Division.of(("gaussian",)),
    "mostly pure": Division.of(FAMILIES, 0.8, 0.1),
    "stated, even": Division.of(FAMILIES, 0.5, 0.5),
}

HISTORY = itertools.count()
"""Names accounts and studies, so that all histories may share a database."""


def shares_of(account: Account) -> Shares:
    """An account's shares as the accountant counts them."""
    return (
        Fraction(account.share.pure_pico, PURE_UNITS),
        Fraction(account.share.gaussian_femto, GAUSSIAN_UNITS),
        Fraction(account.share.approximate_atto, APPROXIMATE_UNITS),
    )


Work = Callable[[sa.Connection], None]


class LedgerHistories(RuleBasedStateMachine):
    """One account, and what the accountant knows of it."""

    engine: ClassVar[sa.Engine]

    @initialize(cap=st.sampled_from(sorted(CAPS)), division=st.sampled_from(sorted(DIVISIONS)))
    def open(self, cap: str, division: str) -> None:
        self.data_set, self.studies = f"patients-{next(HISTORY)}", itertools.count()
        self.known = SimpleAccountant()
        self.is_kept = True
        """Whether what is reserved is sure: an owner that lowers its cap takes it back."""
        self.change_caps(cap, division, at=1)

    def commit(self, work: Work, then: Callable[[], None]) -> bool:
        """Run a transaction; what it does is known to the accountant once it has been committed."""
        try:
            run_transaction(self.engine, work)
        except (BudgetExceededError, DivisionRefusedError, AlreadyDebitedError, LedgerConflictError):
            return False
        then()
        return True

    def account(self) -> Account:
        return run_transaction(self.engine, lambda c: account_of(c, self.data_set), read_only=True)

    def cost(self, name: str) -> Guarantee:
        """A cost of the menu; one that fills a share fills it to the last unit that floats can tell."""
        if name in COSTS:
            return COSTS[name]
        account = self.account()
        pure, gaussian, delta = (
            max(0, share - taken) for share, taken in zip(account.share.all, account.taken.all, strict=True)
        )
        if name == FILLS[0] and pure:
            return costing(ApproximateEvent(epsilon=pure / PURE_UNITS * (1 - 1e-9)))
        if name == FILLS[1] and gaussian:
            return costing(GaussianEvent(noise_multiplier=(GAUSSIAN_UNITS / gaussian) ** 0.5 * (1 + 1e-9)))
        if name == FILLS[2] and delta:
            return costing(ApproximateEvent(epsilon=0.01, delta=delta / APPROXIMATE_UNITS * (1 - 1e-9)))
        return COSTS["small pure"]

    def new_study(self) -> str:
        return f"{self.data_set} {next(self.studies)}".ljust(64, "-")

    def reserved_study(self, index: int) -> str:
        names = sorted(self.known.reserved)
        return names[index % len(names)]

    def reserving(self, study: str, cost: Guarantee, at: int) -> tuple[Work, Callable[[], None]]:
        def done() -> None:
            self.known.reserved[study] = cost

        return lambda c: accounts.reserve(c, self.data_set, study, cost, at=at), done

    def debiting(self, study: str, cost: Guarantee, at: int) -> tuple[Work, Callable[[], None]]:
        before: list[Shares] = []

        def work(connection: sa.Connection) -> None:
            accounts.debit(connection, self.data_set, study, cost, at=at)
            before[:] = [shares_of(account_of(connection, self.data_set))]

        def done() -> None:
            if not self.known.released:
                self.known.promised = before[0]
            self.known.released[study] = cost
            self.known.reserved.pop(study, None)

        return work, done

    def giving_back(self, study: str) -> tuple[Work, Callable[[], None]]:
        def done() -> None:
            self.known.reserved.pop(study, None)

        return lambda c: accounts.give_back(c, [study]), done

    COST = st.sampled_from([*COSTS, *FILLS])
    AT = st.integers(0, 2**40)
    """Times that go backwards as often as forwards."""

    @rule(cap=st.sampled_from(sorted(CAPS)), division=st.sampled_from(sorted(DIVISIONS)), at=AT)
    def change_caps(self, cap: str, division: str, at: int) -> None:
        epsilon, delta = CAPS[cap]
        micro, pico = round(epsilon * EPSILON_UNITS), round(delta * DELTA_UNITS)
        before = self.account() if self.known.caps else None

        def done() -> None:
            self.known.caps.append((Fraction(micro, EPSILON_UNITS), Fraction(pico, DELTA_UNITS)))
            after = self.account()
            if self.known.released:
                self.known.promised = joined(self.known.promised, shares_of(after))
            self.is_kept &= before is None or after.taken.within(after.share)

        change = {"at": at, "division": DIVISIONS[division]}
        self.commit(lambda c: accounts.set_caps(c, self.data_set, micro, pico, **change) and None, done)  # type: ignore[arg-type]

    @rule(cost=COST, at=AT)
    def reserve(self, cost: str, at: int) -> None:
        self.commit(*self.reserving(self.new_study(), self.cost(cost), at))

    @rule(index=st.integers(0, 20), cost=COST, at=AT)
    @precondition(lambda self: self.known.reserved)
    def reserve_again(self, index: int, cost: str, at: int) -> None:
        """Once only: what was reserved first stands, whatever is asked then."""
        study = self.reserved_study(index)
        before = self.account().reserved
        again = self.cost(cost)
        self.commit(lambda c: accounts.reserve(c, self.data_set, study, again, at=at), lambda: None)
        assert self.account().reserved == before, "something else is reserved"

    @rule(cost=COST, at=AT)
    def debit(self, cost: str, at: int) -> None:
        self.commit(*self.debiting(self.new_study(), self.cost(cost), at))

    @rule(index=st.integers(0, 20), at=AT)
    @precondition(lambda self: self.known.reserved)
    def debit_what_is_reserved(self, index: int, at: int) -> None:
        study = self.reserved_study(index)
        is_done = self.commit(*self.debiting(study, self.known.reserved[study], at))
        assert is_done or not self.is_kept, "what was reserved was taken by another study"

    @rule(index=st.integers(0, 20), cost=COST, at=AT)
    @precondition(lambda self: self.known.reserved)
    def debit_more_than_is_reserved(self, index: int, cost: str, at: int) -> None:
        self.commit(*self.debiting(self.reserved_study(index), self.cost(cost), at))

    @rule(index=st.integers(0, 20))
    @precondition(lambda self: self.known.reserved)
    def cancel(self, index: int) -> None:
        """Twice: a study that has expired may be cancelled, too."""
        study = self.reserved_study(index)
        self.commit(*self.giving_back(study))
        self.commit(*self.giving_back(study))

    @rule(index=st.integers(0, 20), at=AT)
    @precondition(lambda self: self.known.released)
    def end_after_the_debit(self, index: int, at: int) -> None:
        """What was released is given back by nobody, and debited once."""
        study = sorted(self.known.released)[index % len(self.known.released)]
        self.commit(*self.giving_back(study))
        assert not self.commit(*self.debiting(study, COSTS["small pure"], at)), "debited twice"

    @rule(cost=COST, index=st.integers(0, 20), at=AT)
    def abandon(self, cost: str, index: int, at: int) -> None:
        """The process dies after it has written everything, and before it commits."""
        study = self.reserved_study(index) if self.known.reserved else self.new_study()
        works = [
            self.debiting(study, self.cost(cost), at)[0],
            self.reserving(self.new_study(), self.cost(cost), at)[0],
        ]

        def work(connection: sa.Connection) -> None:
            for one in works:
                one(connection)
            raise LedgerConflictError

        self.commit(work, lambda: pytest.fail("it was never committed"))

    @rule(costs=st.tuples(COST, COST), acts=st.tuples(*[st.sampled_from(["reserve", "debit", "own"])] * 2))
    def one_begins_before_the_other_and_ends_after_it(
        self, costs: tuple[str, str], acts: tuple[str, str]
    ) -> None:
        """The first has read the account when the second commits; it commits afterwards, or does not."""
        first, second = (self.act(act, cost) for act, cost in zip(acts, costs, strict=True))
        read_first = {"tacit_read_only": True} if self.engine.dialect.name == "sqlite" else {}
        try:
            with self.engine.connect().execution_options(**read_first) as connection, connection.begin():
                account_of(connection, self.data_set)
                self.commit(*second)
                first[0](connection)
        except (BudgetExceededError, AlreadyDebitedError, LedgerConflictError, sa.exc.DBAPIError):
            return
        first[1]()

    def act(self, name: str, cost: str) -> tuple[Work, Callable[[], None]]:
        if name == "own" and self.known.reserved:
            study = self.reserved_study(0)
            return self.debiting(study, self.known.reserved[study], 1)
        make = self.reserving if name == "reserve" else self.debiting
        return make(self.new_study(), self.cost(cost), 1)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "known"):
            return

        def read(connection: sa.Connection) -> tuple[Account, dict[str, bool], set[str]]:
            account, debits = account_of(connection, self.data_set), debits_of(connection, self.data_set)
            assert {e.study: e.events for e in debits} == {
                study: cost.events for study, cost in self.known.released.items()
            }, "the debits are not what was released"
            paid = {str(e.study): not e.amounts.pure_pico for e in debits if e.amounts is not None}
            own = RESERVATIONS.select().where(RESERVATIONS.c.data_set == self.data_set)
            return account, paid, {row.study for row in connection.execute(own)}

        account, paid, reserved = run_transaction(self.engine, read, read_only=True)
        faults = self.known.faults(paid, shares_of(account))
        assert not faults, "; ".join(faults)
        assert reserved == self.known.reserved.keys(), "the reservations are not those that stand"
        assert not self.is_kept or account.taken.within(account.share), "more is taken than there is"

    def teardown(self) -> None:
        """The account's entries chain and add up, also where the times of their debits go backwards."""
        if not hasattr(self, "known"):
            return
        account = self.account()
        looked_at = run_transaction(self.engine, lambda c: _inspect_account(c, account), read_only=True)
        assert looked_at.fault is None, looked_at.fault


@pytest.fixture
def histories(database_url: str) -> Iterator[type[LedgerHistories]]:
    engine = create_engine(database_url)
    upgrade(engine, "agent")
    yield type("LedgerHistories", (LedgerHistories,), {"engine": engine})
    engine.dispose()


def run_histories(machine: type[LedgerHistories], histories: int, steps: int, **options: Any) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not LONG,
            database=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_no_history_passes_what_was_promised(histories: type[LedgerHistories]) -> None:
    run_histories(histories, HISTORIES, STEPS)


# Planted mistakes.


def give_back_what_was_reserved_twice(patch: pytest.MonkeyPatch) -> None:
    """With the debit, which takes it up, and once more when a study ends that was debited long ago."""
    genuine, reserved = accounts.give_back, accounts._reserved
    credit: dict[str, int] = {}

    def twice(connection: sa.Connection, studies: list[str]) -> None:
        genuine(connection, studies)
        for row in connection.execute(ENTRIES.select().where(ENTRIES.c.study.in_(studies))).all():
            credit[row.data_set] = credit.get(row.data_set, 0) + row.pure_pico

    def less(connection: sa.Connection, *where: Any) -> dict[str, Amounts]:
        found = dict(reserved(connection, *where))
        for data_set, pico in credit.items():
            left = found.get(data_set, Amounts())
            found[data_set] = replace(left, pure_pico=left.pure_pico - pico)
        return found

    patch.setattr(accounts, "give_back", twice)
    patch.setattr(accounts, "_reserved", less)


def place_by_stale_shares(patch: pytest.MonkeyPatch) -> None:
    """The filter looks at the shares of the cap, and not at those that the first study has moved."""
    genuine = accounts._place

    def stale(account: Account, guarantee: Guarantee) -> tuple[Amounts, Amounts] | None:
        first = EVERYTHING_MAY_RUN.shares_of(account.cap)
        return (
            genuine(replace(account, share=first), guarantee)
            if account.debits
            else genuine(account, guarantee)
        )

    patch.setattr(accounts, "_place", stale)


def make_room_for_every_study(patch: pytest.MonkeyPatch) -> None:
    genuine = accounts._place
    patch.setattr(accounts, "_place", lambda account, cost: genuine(replace(account, debits=0), cost))


def overlook_reservations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accounts, "_reserved", lambda *_: {})


def keep_the_reservation_of_what_is_debited(patch: pytest.MonkeyPatch) -> None:
    genuine = sa.Connection.execute

    def kept(connection: sa.Connection, statement: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(statement, sa.Delete) and "data_set" in str(statement.whereclause):
            statement = sa.select(1)
        return genuine(connection, statement, *arguments, **options)

    patch.setattr(sa.Connection, "execute", kept)


def pay_less_for_pure_events(patch: pytest.MonkeyPatch) -> None:
    """Pure events as Gaussian ones of mu = epsilon: the wrong constant of many texts."""
    patch.setattr(accounting, "pure_mu", lambda epsilon: epsilon)


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    give_back_what_was_reserved_twice: "passes a share that was fixed before",
    place_by_stale_shares: "passes a share|share has grown",
    make_room_for_every_study: "passes a share|share has grown|more is taken",
    overlook_reservations: "what was reserved was taken|more is taken",
    keep_the_reservation_of_what_is_debited: "the reservations are not those that stand|what was reserved",
    pay_less_for_pure_events: "passes a share that was fixed before",
}
"""What the search says of each."""


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.sweep(2)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_caught(
    histories: type[LedgerHistories],
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=PLANTED[plant]):
        run_histories(histories, 200, STEPS, phases=[Phase.generate], report_multiple_bugs=False)
