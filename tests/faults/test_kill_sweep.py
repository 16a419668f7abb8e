"""Kill whoever takes part in a study at every step, and at pairs of steps, and start them again.

SIGKILL to real processes, on SQLite and PostgreSQL: support/kill_sweep_process.py says of each kind who they
are. Afterwards: one debit at whoever spends and nothing reserved any more, one release whose bytes alone were
ever sent, what was reused or received as it was stored, no ciphertext at the tester, the verdict reached, and
a transcript that verifies. Of several testers and workers on one PostgreSQL, which is what
support/several_testers_process.py has, one is killed and the others finish: no study is lost, and no verdict
was computed twice unless the worker that had it was killed or stopped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import pytest
from long_runs import LONG, choose
from several_testers_process import DEAF, PAUSE, WAKE
from sweeps import Sweep, on_postgresql, on_sqlite

from tacit_services.shared.failpoints import (
    AcceptanceStep,
    AgentRelayStep,
    AgentStep,
    CuratorStep,
    MaskStep,
    TesterRelayStep,
    TesterStep,
)

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Kind:
    """Where the parties of a kind of study are killed, and the mistakes that this must reveal.

    ``usual`` has the steps of the usual run, by engine; the long run kills at ``every`` step on each. Both of
    a pair of steps that are in one of the orders must kill.
    """

    supervisor: str
    every: Sequence[str]
    usual: Mapping[str, Sequence[str]]
    pairs: Callable[[str], Pairs] = lambda _: ()
    orders: tuple[Sequence[str], ...] = ()
    planted: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    given: str | None = None
    """What the supervisor is told in place of a mistake."""
    again: bool = False
    """Whether the same step is passed by others too."""

    def kills_of(self, first: str, second: str) -> int:
        """Return how often somebody is killed at least."""
        orders = [order for order in self.orders if first in order and second in order]
        return 1 + any(order.index(first) < order.index(second) + self.again for order in orders)


AGENT, TESTER = [step.value for step in AgentStep], [step.value for step in TesterStep]
IN_ORDER = [*TESTER[:7], *AGENT, *TESTER[7:]]
"""In the order of a study, as nearly as two parties have one."""


def pairs_of_agent(engine: str) -> Pairs:
    """Every ordered pair; in the usual run some, on SQLite so that every step of either party is in some."""
    if LONG:
        return list(product(IN_ORDER, IN_ORDER))
    of_agents, of_others = {"sqlite": (2, 7), "postgresql": (7, 19)}[engine]
    pairs = list(combinations_with_replacement(IN_ORDER, 2))
    agents = [pair for pair in pairs if set(pair) <= set(AGENT)]
    others = [pair for pair in pairs if not set(pair) <= set(AGENT)]
    return agents[::of_agents] + others[1::of_others]


# Both owners' accounts are debited with the approval, one after the other, before anything is read.
CURATOR = [
    *AGENT[:2],
    AgentStep.DEBITED.value,
    f"{AgentStep.DEBITED}@2",
    *(step.value for step in CuratorStep),
]
CURATOR += [step for step in AGENT if step not in CURATOR]


def pairs_of_curator(engine: str) -> Pairs:
    if LONG:
        return list(product([*CURATOR, *TESTER], repeat=2))
    pairs = [pair for pair in combinations_with_replacement(CURATOR, 2) if "@" not in pair[1]]
    return pairs[::12] if engine == "sqlite" else []


# The second passage of a step is the receiver's: the sender is always before it.
SENDER_ALONE = {AgentStep.DATA_SUMMARISED, AgentStep.DEBITED, AgentStep.NOISE_DRAWN}
RECEIVER = [*(step.value for step in AgentRelayStep)]
RECEIVER += [f"{step}@2" for step in AgentStep if step not in SENDER_ALONE]
PUBLISHING = [f"{AgentStep.DEBITED}@2", f"{AgentStep.NOISE_DRAWN}@2"]
RELAYING = [*TESTER, *(step.value for step in TesterRelayStep)]
PEER = [*AGENT, *RECEIVER, *RELAYING]


def pairs_of_peer(engine: str) -> Pairs:
    own = [step for step in RECEIVER if "@" not in step] + AGENT
    if LONG:
        return list(combinations([*own, *RELAYING], 2))
    return list(combinations(own, 2))[::10] if engine == "sqlite" else []


# Both owners reserve. What is sent first is the receiver's acceptance, second the sender's release, and third
# the receiver's.
SENDING = (AgentStep.BEFORE_SEND, AgentStep.AFTER_SEND, AgentStep.ACKNOWLEDGED)
ACCEPTANCE = [AcceptanceStep.RESERVED.value, f"{AcceptanceStep.RESERVED}@2", *SENDING]
ACCEPTANCE += [step.value for step in AcceptanceStep if step is not AcceptanceStep.RESERVED]
SECOND = [step.value for step in AgentRelayStep if step is not AgentRelayStep.FINDING_STORED]
SECOND += [f"{step}@2" for step in AgentStep if step is not AgentStep.DATA_SUMMARISED]
SECOND += [f"{step}@3" for step in SENDING]
TWO_ROUNDS = [*AGENT, *ACCEPTANCE, *SECOND, *TESTER, TesterRelayStep.SEALED_SERVED.value]
DRAWN, DRAWN_AGAIN = AgentStep.NOISE_DRAWN.value, f"{AgentStep.NOISE_DRAWN}@2"
THIRD_DRAWN = f"{AgentStep.NOISE_DRAWN}@3"
SEVERAL_SENDERS = [*TWO_ROUNDS]
SEVERAL_SENDERS += [f"{step}@3" for step in AgentStep if step is not AgentStep.DATA_SUMMARISED]

# Both owners pass every step, one after the other; what each sends first is its key.
BOTH = [AcceptanceStep.RESERVED, *(step for step in MaskStep if not step.startswith("tester."))]
MASKING = [*AGENT, *(step.value for step in BOTH), *(f"{step}@2" for step in [*BOTH, *AgentStep])]
MASKING += [f"{step}@{passage}" for step in SENDING for passage in (3, 4)]
AT_TESTER = [step.value for step in MaskStep if step.startswith("tester.")]
MASKED = [*MASKING, *AT_TESTER, *(f"{step}@2" for step in AT_TESTER), *TESTER]

REUSE = [step for step in TESTER if not step.startswith("tester.release.")]
"""Nobody is asked, so no release is taken."""

ELSEWHERE = {
    TesterStep.STUDY_CHECKED,
    TesterStep.STUDY_INSERTED,
    TesterStep.STUDY_STORED,
    TesterStep.RELEASE_CHECKED,
    TesterStep.RELEASE_STORED,
}
"""Steps at which the usual run kills one of several testers only where there is but one."""

OTHERS_SENT = "other releases than the stored one were sent"
NOT_DELIVERED = "the outbox does not hold exactly one delivered release"
NO_VERDICT = "the agent did not get its verdict"
# Steps that kinds share are tried by the first of them, on both engines.
KINDS = {
    "agent": Kind(
        "agent",
        IN_ORDER,
        {"sqlite": IN_ORDER, "postgresql": IN_ORDER},
        pairs_of_agent,
        (AGENT, TESTER),
        {
            "debit-outside": (AgentStep.NOISE_DRAWN, NOT_DELIVERED),
            "send-before-storing": (AgentStep.DEBITED, OTHERS_SENT),
            "job-deleted-when-leased": (TesterStep.JOB_LEASED, NO_VERDICT),
        },
    ),
    "curator": Kind(
        "curator",
        [*CURATOR, *TESTER],
        {"sqlite": [*CURATOR, *TESTER[::3]], "postgresql": CURATOR[::2]},
        pairs_of_curator,
        (CURATOR,),
        {
            "send-before-storing": (AgentStep.RELEASE_SIGNED, OTHERS_SENT),
            "one-owner-pays": (AgentStep.DEBITED, "1 debits"),
        },
    ),
    "peer": Kind(
        "peer",
        PEER,
        {
            "sqlite": [*AGENT[::2], *RECEIVER, *RELAYING[::3]],
            "postgresql": [*RECEIVER[::2], *RELAYING[-2:]],
        },
        pairs_of_peer,
        planted={"finding-outside": (f"{AgentStep.RELEASE_SIGNED}@2", NO_VERDICT)},
    ),
    "peer, publishing": Kind(
        "peer",
        [*PUBLISHING, *PEER],
        {"sqlite": [*PUBLISHING, *RECEIVER[2::3]], "postgresql": PUBLISHING},
        given="publish",
    ),
    "two rounds": Kind(
        "two rounds",
        TWO_ROUNDS,
        {
            "sqlite": [*AGENT[3::2], *ACCEPTANCE, *SECOND, TesterRelayStep.SEALED_SERVED.value],
            "postgresql": [*ACCEPTANCE, *SECOND[::2]],
        },
        planted={
            # A second answer after the crash: the first round's is sent before it is stored, and drawn again.
            "send-before-storing": (AgentStep.RELEASE_SIGNED, OTHERS_SENT),
            "reserve-outside": (AcceptanceStep.RESERVED, NO_VERDICT),
        },
    ),
    # Answers of the real procedure are drawn once, and its table is of those.
    "two rounds, answers": Kind(
        "two rounds",
        TWO_ROUNDS,
        {
            "sqlite": [DRAWN, AgentStep.RELEASE_STORED, AgentRelayStep.COMBINED, DRAWN_AGAIN],
            "postgresql": [DRAWN, DRAWN_AGAIN],
        },
        given="answers",
    ),
    "two rounds, screening": Kind(
        "two rounds",
        TWO_ROUNDS,
        {"sqlite": [DRAWN, DRAWN_AGAIN], "postgresql": [DRAWN_AGAIN]},
        given="screening",
    ),
    # Two senders: the receiver has one's answers when it, the other, or the tester is killed.
    "several senders": Kind(
        "several senders",
        SEVERAL_SENDERS,
        {
            "sqlite": [DRAWN_AGAIN, *SECOND[:3], THIRD_DRAWN],
            "postgresql": [DRAWN_AGAIN, THIRD_DRAWN],
        },
        planted={"send-before-storing": (f"{AgentStep.RELEASE_SIGNED}@2", OTHERS_SENT)},
    ),
    "masked": Kind(
        "masked",
        MASKED,
        {
            "sqlite": [*(step.value for step in MaskStep), *MASKING[len(AGENT) :: 3], *AT_TESTER],
            "postgresql": [*(step.value for step in MaskStep), *MASKING[len(AGENT) + 1 :: 4]],
        },
        planted={
            "secret-in-memory": (MaskStep.KEPT, NO_VERDICT),
            "key-shown-outside": (MaskStep.KEY_DRAWN, NOT_DELIVERED),
        },
    ),
    "reuse": Kind(
        "reuse",
        REUSE,
        {"sqlite": REUSE, "postgresql": REUSE},
        planted={
            "never-queued": ("", "there is no verdict"),
            "not-recorded": ("", "what is reused is recorded wrongly"),
        },
    ),
    "several testers": Kind(
        "several testers",
        TESTER,
        {"postgresql": [step for step in TESTER if step not in ELSEWHERE]},
        lambda _: product(TESTER, TESTER) if LONG else (),
        (TESTER,),
        again=True,
        planted={
            DEAF: (WAKE, "is not told"),
            "take-what-others-have": ("", "computed again although"),
            "delete-what-is-leased": (TesterStep.JOB_LEASED, "a study got no verdict"),
        },
    ),
}


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Sweep]]:
    """Run the processes of a kind on an engine, one kind at a time."""
    running = dict[tuple[str, str], Sweep]()
    with ExitStack() as stack:

        def switch(supervisor: str, engine: str) -> Sweep:
            if (supervisor, engine) not in running:
                stack.close()
                running.clear()
                folder = tmp_path_factory.mktemp("sweep")
                server = request.getfixturevalue("postgres_server") if engine == "postgresql" else ""
                started = (
                    on_postgresql(supervisor, folder, server) if server else on_sqlite(supervisor, folder)
                )
                running[supervisor, engine] = stack.enter_context(started)
            return running[supervisor, engine]

        yield switch


@pytest.fixture
def sweep(run: Callable[[str, str], Sweep], supervisor: str, engine: str) -> Sweep:
    return run(supervisor, engine)


def case(name: str, engine: str, *given: Any) -> Any:
    """Return a case of a test; those of agents are in the default tier."""
    marks = () if name == "agent" else (pytest.mark.long,)
    title = "-".join(map(str, (name, engine, *given)))
    return pytest.param(KINDS[name].supervisor, engine, KINDS[name], *given, marks=marks, id=title)


def of_sweep(*names: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("supervisor", "engine", "kind", *names), list(cases))


@of_sweep(
    "step",
    cases=(
        case(name, engine, step)
        for name, kind in KINDS.items()
        for engine, usual in kind.usual.items()
        for step in (kind.every if LONG else usual)
    ),
)
def test_killed_at_a_step(sweep: Sweep, kind: Kind, step: str) -> None:
    assert sweep.run(step, planted=kind.given) == {"kills": 1, "faults": []}, sweep.log.read_text()


@of_sweep(
    "pairs",
    cases=(
        pytest.param(kind.supervisor, engine, kind, pairs, id=f"{name}-{engine}")
        for name, kind in KINDS.items()
        for engine in kind.usual
        if (pairs := list(kind.pairs(engine)))
    ),
)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_at_pairs_of_steps(sweep: Sweep, kind: Kind, pairs: Pairs) -> None:
    wrong = {}
    for pair in pairs:
        outcome = sweep.run(*pair)
        if outcome["faults"] or outcome["kills"] < kind.kills_of(*pair):
            wrong[pair] = outcome
    assert wrong == {}, sweep.log.read_text()


@pytest.mark.sweep(1)
@of_sweep(
    "mistake",
    cases=(
        case(name, next(iter(kind.usual)), mistake)
        for name, kind in KINDS.items()
        for mistake in kind.planted
    ),
)
def test_a_planted_mistake_is_caught(sweep: Sweep, kind: Kind, mistake: str) -> None:
    step, fault = kind.planted[mistake]
    outcome = sweep.run(*([step] if step else []), planted=mistake)
    assert any(fault in found for found in outcome["faults"]), outcome
    # A mistake that stops everything before its step is one of the test.
    assert outcome["kills"] >= (1 if step and step != WAKE else 0), outcome


SEVERAL = pytest.mark.parametrize(("supervisor", "engine"), [("several testers", "postgresql")])


@SEVERAL
@pytest.mark.long
@pytest.mark.parametrize("step", [*choose([], [TesterStep.JOB_LEASED]), TesterStep.VERDICT_COMPUTED])
def test_a_worker_that_wakes_after_its_lease_stores_nothing(sweep: Sweep, step: TesterStep) -> None:
    assert sweep.run(PAUSE + step.value) == {"kills": 1, "faults": []}, sweep.log.read_text()


@SEVERAL
@pytest.mark.long
def test_an_agent_waiting_at_one_tester_is_told_of_a_study_at_the_other(sweep: Sweep) -> None:
    assert sweep.run(WAKE) == {"kills": 0, "faults": []}, sweep.log.read_text()
