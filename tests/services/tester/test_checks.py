"""Checks of new studies: how many run at once, whose turn it is, and what ends them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import httpx
import pytest
from study_parties import MeanProcedure
from tester_federation import Federation, problem

from tacit_services.shared.http_server import Stopping
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.routes import AT_ONCE_MAX, WAITING_BYTES_MAX, WAITING_MAX, Checks
from tacit_services.tester.studies import WARNED_AT_ONCE_MAX, WARNED_MAX

PATIENCE_S = 120


class Gate:
    """Checks that stand still until they are let go, and what was seen of them."""

    def __init__(self) -> None:
        self._open, self._lock = threading.Event(), threading.Lock()
        self.begun: list[str] = []
        self.at_once = self.at_once_most = 0
        self.daemons: set[bool] = set()

    def check(self, name: str) -> Callable[[], str]:
        def work() -> str:
            with self._lock:
                self.begun.append(name)
                self.daemons.add(threading.current_thread().daemon)
                self.at_once += 1
                self.at_once_most = max(self.at_once, self.at_once_most)
            self._open.wait(PATIENCE_S)
            with self._lock:
                self.at_once -= 1
            return name

        return work

    async def begins(self, count: int) -> None:
        """Wait until so many have begun."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.begun) < count:
                await asyncio.sleep(0.001)

    def let_go(self) -> None:
        self._open.set()


def no_caller_goes(_: Callable[[], None] | None) -> None:
    return None


Ask = Callable[[str, str], "asyncio.Task[str]"]


def with_checks(scenario: Callable[[Gate, Checks, Ask], Awaitable[None]]) -> None:
    async def run() -> None:
        gate, checks = Gate(), Checks(Stopping())

        def ask(analyst: str, name: str) -> "asyncio.Task[str]":
            return asyncio.ensure_future(checks.run(analyst, 1000, gate.check(name), no_caller_goes))

        try:
            await scenario(gate, checks, ask)
        finally:
            gate.let_go()

    asyncio.run(run())


def test_few_checks_run_at_once_and_one_of_each_analyst() -> None:
    async def scenario(gate: Gate, _: Checks, ask: Ask) -> None:
        asked = [ask("greedy", f"greedy {number}") for number in range(44)]
        await gate.begins(1)
        asked += [ask("modest", "modest"), *(ask(f"other {number}", "other") for number in range(10))]
        await gate.begins(2)
        assert gate.begun == ["greedy 0", "modest"], "the second place is another analyst's"
        gate.let_go()
        await asyncio.gather(*asked)
        assert gate.at_once_most == AT_ONCE_MAX
        assert len(gate.begun) == 55
        greedy = [name for name in gate.begun if name.startswith("greedy")]
        assert greedy == [f"greedy {number}" for number in range(44)], "each analyst's in their order"
        assert gate.begun.index("greedy 10") > gate.begun.index("other"), "the analysts take turns"
        assert gate.daemons == {True}, "no thread keeps the process from ending"

    with_checks(scenario)


@pytest.mark.parametrize(("count", "size_bytes"), [(WAITING_MAX, 10), (4, WAITING_BYTES_MAX // 4)])
def test_an_analyst_with_too_much_that_waits_is_told_to_come_later(count: int, size_bytes: int) -> None:
    async def scenario(gate: Gate, checks: Checks, ask: Ask) -> None:
        first = ask("greedy", "first")
        await gate.begins(1)
        waiting = [
            asyncio.ensure_future(checks.run("greedy", size_bytes, gate.check("more"), no_caller_goes))
            for _ in range(count)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError) as refused:
            await checks.run("greedy", size_bytes, gate.check("too many"), no_caller_goes)
        assert refused.value.problem.slug == "rate-limited"
        assert refused.value.retry_after_s is not None
        modest = ask("modest", "modest")
        gate.let_go()
        assert await modest == "modest", "others are not touched"
        await asyncio.gather(first, *waiting)
        assert await checks.run("greedy", size_bytes, gate.check("again"), no_caller_goes) == "again"

    with_checks(scenario)


def test_a_check_whose_caller_has_gone_does_not_begin() -> None:
    async def scenario(gate: Gate, checks: Checks, ask: Ask) -> None:
        gone: list[Callable[[], None] | None] = []
        first = ask("analyst", "first")
        await gate.begins(1)
        unwanted = asyncio.ensure_future(checks.run("analyst", 1, gate.check("unwanted"), gone.append))
        await asyncio.sleep(0)
        last = ask("analyst", "last")
        assert gone[0] is not None
        gone[0]()
        with pytest.raises(ProblemError):
            await unwanted
        gate.let_go()
        assert [await first, await last] == ["first", "last"]
        assert gate.begun == ["first", "last"]
        assert gone[1:] == [None], "it is not told of anything later"

    with_checks(scenario)


def test_nobody_waits_for_a_check_once_the_service_stops() -> None:
    """Neither for one that has not begun, nor for one that will not end."""

    async def run() -> None:
        gate, stopping = Gate(), Stopping()
        checks = Checks(stopping)
        asked = [
            asyncio.ensure_future(checks.run("analyst", 1, gate.check(name), no_caller_goes)) for name in "ab"
        ]
        await gate.begins(1)
        stopping.requested = True
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [error.problem.slug for error in found if isinstance(error, ProblemError)] == ["not-ready"] * 2
        assert gate.begun == ["a"]
        gate.let_go()

    asyncio.run(run())


def test_forty_summaries_leave_the_threads_of_requests_to_others(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is of a study whose warnings are dear, and were never asked for."""
    gate, studies = Gate(), [federation.create(title=f"study {number}") for number in range(40)]
    warn = gate.check("warning")
    monkeypatch.setattr(mean_procedure, "warnings", lambda *_: (warn(),))

    async def ask() -> list[httpx.Response]:
        asked = [
            asyncio.ensure_future(federation.send("GET", f"/v1/studies/{study}", federation.parties.analyst))
            for study in studies
        ]
        async with asyncio.timeout(PATIENCE_S):
            while sum(task.done() for task in asked) < 40 - WARNED_MAX:
                await asyncio.sleep(0.001)
        listed = await federation.send("GET", "/v1/studies", federation.parties.analyst)
        assert listed.status_code == 200, "others are answered meanwhile"
        gate.let_go()
        return await asyncio.gather(*asked)

    answers = asyncio.run(ask())
    assert gate.at_once_most <= WARNED_AT_ONCE_MAX
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {problem(answer) for answer in refused} == {"rate-limited"}
    assert len(answers) - len(refused) == WARNED_MAX
    again = federation.call("GET", f"/v1/studies/{studies[-1]}", federation.parties.analyst)
    assert again.json()["warnings"] == ["warning"]


def test_studies_wait_for_their_check_while_lists_are_answered(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty-four at once, of one analyst, as many as there are threads for requests and more."""
    gate = Gate()
    check = gate.check("study")
    monkeypatch.setattr(mean_procedure, "check", lambda _: check())
    sealed = [federation.parties.sealed_study(title=f"study {number}") for number in range(44)]

    async def ask() -> list[httpx.Response]:
        analyst = federation.parties.analyst
        asked = [
            asyncio.ensure_future(federation.send("PUT", f"/v1/studies/{study}", analyst, content=envelope))
            for study, envelope in sealed
        ]
        await gate.begins(1)
        listed = await federation.send("GET", "/v1/studies", analyst)
        assert listed.json()["items"] == []
        gate.let_go()
        return await asyncio.gather(*asked)

    assert {answer.status_code for answer in asyncio.run(ask())} == {201}
    assert gate.at_once_most == 1
