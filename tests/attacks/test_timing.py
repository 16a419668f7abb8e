"""What the tester sees of an agent's time, sizes and counts, when only the data differ."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from agent_fakes import NOW, FakeSum, FakeTester, MakeAgent, World
from hypothesis import given
from hypothesis import strategies as st

from tacit_protocol.domain import Table
from tacit_protocol.messages.study import RESPOND_AFTER_S, RESPOND_AFTER_S_MAX, Study
from tacit_protocol.procedures.base import PublicRuleError
from tacit_services.agent.data.source import DataError
from tacit_services.agent.participant import Loops
from tacit_services.agent.releases import DOUBLINGS, MARGIN_S, send_time

PATIENCE_S = 300.0

TICK_S = 0.5
"""How finely the observer's clock moves between two looks of the agent."""


class SlowSum(FakeSum):
    """Takes as long as a test says, by the test's clock, and may find the data unreadable."""

    def __init__(self) -> None:
        self.compute: Callable[[], None] = lambda: None

    def summarise(self, study: Study, table: Table) -> tuple[int, int]:
        self.compute()
        return super().summarise(study, table)


@dataclass
class Seen:
    """All that a tester sees of one agent: time, method, path (without digest) and size of each request."""

    tester: FakeTester
    clock: Callable[[], float] = lambda: 0.0
    requests: list[tuple[float, str, str, int]] = field(default_factory=list)

    def transport(self) -> httpx.MockTransport:
        def respond(request: httpx.Request) -> httpx.Response:
            parts = [part for part in request.url.path.split("/") if len(part) != 64]
            if parts[-1] != "inbox":
                seen = (self.clock() - NOW, request.method, "/".join(parts), len(request.content))
                self.requests.append(seen)
            status, content = self.tester.handle(request.method, str(request.url), request.content)
            return httpx.Response(status, stream=httpx.ByteStream(content))

        return httpx.MockTransport(respond)


Observe = Callable[..., list[tuple[float, str, str, int]]]


@pytest.fixture
def observe(make_agent: MakeAgent) -> Observe:
    """Run one study at an agent to its end and return what the tester saw."""

    def run(
        world: World,
        *,
        compute_s: float = 0.0,
        fails: bool = False,
        study: dict[str, Any] | None = None,
        **written: str,
    ) -> list[tuple[float, str, str, int]]:
        procedure = SlowSum()
        seen = Seen(FakeTester())
        written.setdefault("policy", "respond_after_s_min = 3")
        attacked = make_agent(
            world=world, procedures={SlowSum.name: procedure}, transport=seen.transport(), **written
        )
        attacked.tester = seen.tester
        seen.clock = attacked.clock

        def compute() -> None:
            attacked.clock.now += compute_s
            if fails:
                raise DataError("the rows cannot be read")

        procedure.compute = compute
        attacked.world.ask(seen.tester, attacked.world.study(**{"respond_after_s": 3, **(study or {})}))
        attacked.agent.poll(0)
        answered = seen.tester.received
        while not answered and attacked.clock.now < NOW + 10_000:
            attacked.agent.work()
            attacked.clock.now += TICK_S
        assert len(answered) == 1
        return seen.requests

    return run


def times(requests: list[tuple[float, str, str, int]]) -> list[float]:
    return [at for at, *_ in requests]


def test_a_release_arrives_at_the_same_time_however_long_it_took_to_compute(
    observe: Observe, tmp_path: Any
) -> None:
    world = World(tmp_path)
    quick, slow = observe(world, compute_s=0.0), observe(world, compute_s=2.0)
    assert [request[:3] for request in quick] == [request[:3] for request in slow]
    assert times(quick) == [0.0, 0.0, 3.0]


def test_a_release_that_is_late_arrives_at_one_of_few_moments(observe: Observe, tmp_path: Any) -> None:
    world = World(tmp_path)
    assert times(observe(world, compute_s=3.5))[-1] == times(observe(world, compute_s=5.5))[-1] == 6.0


def test_an_agent_that_sends_when_it_is_ready_would_be_caught(
    observe: Observe, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.agent.releases.send_time", lambda *_: 0)
    world = World(tmp_path)
    quick, slow = observe(world, compute_s=0.0), observe(world, compute_s=2.0)
    assert times(quick)[-1] != times(slow)[-1]


FAILURES: dict[str, dict[str, Any]] = {
    "unreadable rows": {"fails": True},
    "unreadable rows, late": {"fails": True, "compute_s": 2.5},
    "too few units": {"policy": "respond_after_s_min = 3\nunits_min = 61"},
    "no budget": {"data_set": "epsilon = 0.1"},
    "a column not allowed": {"study": {"unit_column": "y"}},
    "an unlisted analyst": {"policy": f'respond_after_s_min = 3\nanalysts = ["{"a" * 64}"]'},
    "no such procedure": {"study": {"procedure": "another_sum"}},
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("failure", FAILURES)
def test_every_failure_looks_like_every_other(observe: Observe, tmp_path: Any, failure: str) -> None:
    world = World(tmp_path)
    expected = observe(world, fails=True)
    assert [(method, path) for _, method, path, _ in expected] == [
        ("GET", "/v1/studies/envelope"),
        ("GET", "/v1/studies"),
        ("PUT", "/v1/studies/declines/north"),
    ]
    assert times(expected) == [0.0, 0.0, 3.0]
    assert observe(world, **FAILURES[failure]) == expected


def test_a_public_rule_is_told_at_the_moment_of_every_decline(
    observe: Observe, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are more: they follow from the study and the number of units, and so may be."""

    def refuse(self: SlowSum, study: Study, units: Mapping[str, int]) -> None:
        raise PublicRuleError("too-few-units", "too few of them")

    world = World(tmp_path)
    expected = observe(world, fails=True)
    monkeypatch.setattr(SlowSum, "check_units", refuse, raising=False)
    assert [request[:3] for request in observe(world)] == [request[:3] for request in expected]


def test_releases_and_declines_leave_at_the_same_moment(observe: Observe, tmp_path: Any) -> None:
    world = World(tmp_path)
    assert times(observe(world, compute_s=0.4)) == times(observe(world, fails=True, compute_s=0.4))


def test_a_study_that_wants_its_answer_at_once_is_declined_on_the_same_schedule(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent(policy=f"respond_after_s_min = {RESPOND_AFTER_S}")
    asked = attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=0))
    attacked.turn()
    assert attacked.row(asked).problem == "policy-refused"
    assert attacked.opened == []


def test_a_release_that_no_moment_before_the_deadline_is_left_for_spends_nothing(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=60, deadline=NOW + 30))
    attacked.turn()
    assert attacked.row(asked).problem == "study-expired"
    assert attacked.debits() == []


# The law of the schedule.

DECIDED_AT = 1_800_000_000


@given(st.integers(1, RESPOND_AFTER_S_MAX), st.floats(0, 1e7))
def test_moments_are_soon_enough_and_few(respond_after_s: int, took_s: float) -> None:
    sent_s = send_time(DECIDED_AT, respond_after_s, DECIDED_AT + took_s) - DECIDED_AT
    longest_s = respond_after_s << DOUBLINGS
    assert sent_s >= took_s + MARGIN_S - 1e-6
    assert sent_s <= max(respond_after_s, min(2 * (took_s + MARGIN_S), took_s + MARGIN_S + longest_s) + 1e-6)
    moments = {respond_after_s << i for i in range(DOUBLINGS + 1)}
    assert sent_s in moments or sent_s % longest_s == 0


@given(st.integers(1, 100), st.floats(0, 0.7), st.floats(0, 0.7))
def test_what_is_ready_in_time_is_sent_at_one_moment(
    respond_after_s: int, one_s: float, other_s: float
) -> None:
    first, second = (
        send_time(DECIDED_AT, respond_after_s, DECIDED_AT + took_s) for took_s in (one_s, other_s)
    )
    assert first == second == DECIDED_AT + respond_after_s


# A running agent: what the tester sees never waits for a computation.


def test_a_second_study_is_noticed_and_declined_while_the_first_is_computed(make_agent: MakeAgent) -> None:
    procedure, computing, go_on = SlowSum(), threading.Event(), threading.Event()
    attacked = make_agent(procedures={SlowSum.name: procedure})

    def compute() -> None:
        computing.set()
        assert go_on.wait(PATIENCE_S)

    procedure.compute = compute
    first = attacked.world.ask(attacked.tester, attacked.world.study())
    stop = threading.Event()
    loops = Loops(attacked.agent, stop, poll_wait_s=0)
    loops.start()
    try:
        assert computing.wait(PATIENCE_S)
        second = attacked.world.ask(attacked.tester, attacked.world.study(procedure="another_sum"))
        wait_for(lambda: second in attacked.tester.declines, stop)
        assert first not in attacked.tester.releases
        go_on.set()
        wait_for(lambda: first in attacked.tester.releases, stop)
        assert loops.alive()
    finally:
        go_on.set()
        loops.end()


def wait_for(condition: Callable[[], bool], stop: threading.Event, deadline_s: float = PATIENCE_S) -> None:
    """Wait for a condition, and fail after a generous while."""
    tries = int(deadline_s / 0.02)
    assert any(condition() or stop.wait(0.02) for _ in range(tries)), "it did not happen in time"
