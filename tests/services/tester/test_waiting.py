"""Who waits: long polls, thousands of inboxes, and checks of new studies that take turns."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import httpx
import pytest
from planted import with_mistake
from served import problem
from study_parties import MeanProcedure
from tester_federation import Federation

from tacit_services.shared.database import DatabaseUnavailableError
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester import inboxes as waiting_module
from tacit_services.tester.inboxes import KEYS_AT_ONCE, Bell, Inboxes, InboxQuery, Item, poll
from tacit_services.tester.studies import WARNED_AT_ONCE_MAX, WARNED_MAX
from tacit_services.tester.web.routes import AT_ONCE_MAX, WAITING_BYTES_MAX, WAITING_MAX, CheckQueue


def test_an_inbox_wakes_when_a_study_arrives(federation: Federation) -> None:
    parties = federation.parties
    study, envelope = parties.sealed_study()

    async def run() -> Any:
        waiting = asyncio.create_task(federation.send("GET", "/v1/inbox?wait_s=60", parties.owners["north"]))
        while not federation.app.state.inboxes.waiting:
            await asyncio.sleep(0)
        created = await federation.send("PUT", f"/v1/studies/{study}", parties.analyst, content=envelope)
        assert created.status_code == 201
        return (await asyncio.wait_for(waiting, 40)).json()

    assert asyncio.run(run())["items"] == [{"digest": study, "deadline": parties.now + 3600}]


def test_an_inbox_sees_what_another_tester_took(federation: Federation) -> None:
    parties = federation.parties
    other = federation.start_tester()
    study, envelope = parties.sealed_study()

    async def run() -> Any:
        async with other.router.lifespan_context(other):
            waiting = asyncio.create_task(
                federation.send("GET", "/v1/inbox?wait_s=60", parties.owners["north"], other)
            )
            while not other.state.inboxes.waiting:
                await asyncio.sleep(0)
            await federation.send("PUT", f"/v1/studies/{study}", parties.analyst, content=envelope)
            return (await asyncio.wait_for(waiting, 40)).json()

    assert [item["digest"] for item in asyncio.run(run())["items"]] == [study]


def test_a_verdict_wakes_whoever_waits_for_it(federation: Federation) -> None:
    study = federation.create()
    federation.release_all(study)

    async def run() -> Any:
        waiting = asyncio.create_task(
            federation.send("GET", f"/v1/studies/{study}/verdict?wait_s=60", federation.parties.analyst)
        )
        while not federation.app.state.bell.waiting:
            await asyncio.sleep(0)
        await asyncio.to_thread(federation.work)
        federation.app.state.bell.ring()
        return await asyncio.wait_for(waiting, 40)

    assert asyncio.run(run()).status_code == 200


def test_a_ring_between_the_look_and_the_wait_is_not_missed() -> None:
    bell = Bell()
    looks = 0

    def look() -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            bell.ring()
            return None
        return looks

    async def run() -> int | None:
        return await asyncio.wait_for(poll(look, 3600, bell, Stopping()), 120)

    assert asyncio.run(run()) == 2


def looks_of(waiting: Any) -> tuple[int, int]:
    """How often seven calls look, six of them made while the first one looks; and how often it rang."""
    inside, go_on, looks = threading.Event(), threading.Event(), list[int]()

    def look() -> int:
        looks.append(len(looks))
        inside.set()
        assert go_on.wait(120)
        return len(looks)

    bell = Bell()
    watch = waiting.Watch(look, bell)
    threads = [threading.Thread(target=watch.check) for _ in range(7)]
    threads[0].start()
    assert inside.wait(120)
    for thread in threads[1:]:
        thread.start()
    until = time.monotonic() + 120
    while watch._asked < 7 and time.monotonic() < until:
        time.sleep(0.001)  # until all have asked, not for luck
    go_on.set()
    for thread in threads:
        thread.join(120)
    return len(looks), bell.rings


def test_uploads_that_come_together_share_one_look_which_began_after_them() -> None:
    assert looks_of(waiting_module) == (2, 2), "one look under way saw none of the six; the next saw all"


def test_sharing_the_look_that_was_under_way_would_be_noticed() -> None:
    """The mistake: what was stored after a look began is not in it, and nobody would be woken."""
    hasty = with_mistake(waiting_module, "self._served = serves", "self._served = self._asked")
    assert looks_of(hasty) == (1, 1)


POLLS = 2 * KEYS_AT_ONCE + 200
ITEM: Item = {"digest": "0" * 64, "deadline": 1}
PATIENCE_S = 120


def stays(_: Callable[[], None] | None) -> None:
    """Somebody who never goes away."""


class Looks:
    """Inboxes in memory, which count who looks into them."""

    def __init__(self) -> None:
        self.items: dict[str, Sequence[Item]] = {}
        self.sizes: list[int] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, keys: Collection[str]) -> Mapping[str, Sequence[Item]]:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        self.sizes.append(len(keys))
        found = {key: self.items.get(key, ()) for key in keys}
        with self._lock:
            self._now -= 1
        return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_ring_costs_one_look_for_hundreds_and_wakes_the_named_alone() -> None:
    looks, bell = Looks(), Bell()
    inboxes = Inboxes(looks, bell, Stopping())

    async def run() -> None:
        polls = [asyncio.create_task(inboxes.poll(f"{i}", 3600, stays)) for i in range(POLLS)]
        await until(lambda: inboxes.waiting == POLLS)
        assert sum(looks.sizes) == POLLS
        assert max(looks.sizes) <= KEYS_AT_ONCE
        assert bell.waiting == 1, "one task waits for all of them"
        for number in range(3):
            before = len(looks.sizes)
            looks.items[f"{number}"] = [ITEM]
            bell.ring()
            assert await asyncio.wait_for(polls[number], PATIENCE_S) == [ITEM]
            await until(lambda before=before, number=number: sum(looks.sizes[before:]) == POLLS - number)
            assert len(looks.sizes) - before == 3, "twelve hundred inboxes, five hundred a look"
        assert looks.most_at_once == 1
        assert inboxes.waiting == POLLS - 3
        assert not any(poll.done() for poll in polls[3:])
        for waiting in polls:
            waiting.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        await until(lambda: bell.waiting == 0)  # the task ends with the last of them
        assert inboxes.waiting == 0

    asyncio.run(run())


def test_who_has_gone_away_is_forgotten_at_once() -> None:
    inboxes, bell = Inboxes(Looks(), Bell(), Stopping()), Bell()
    leave: list[Callable[[], None] | None] = []

    async def run() -> None:
        poll = asyncio.create_task(inboxes.poll("a", 3600, leave.append))
        await until(lambda: inboxes.waiting == 1)
        leave[0]()
        assert not await asyncio.wait_for(poll, PATIENCE_S)
        assert leave[1:] == [None], "a connection that is kept keeps nothing of the answer"
        assert inboxes.waiting == 0

    asyncio.run(run())
    assert bell.waiting == 0


def test_a_stopping_service_lets_everyone_go_without_a_look() -> None:
    looks, bell, stopping = Looks(), Bell(), Stopping()
    inboxes = Inboxes(looks, bell, stopping)

    async def run() -> None:
        polls = [asyncio.create_task(inboxes.poll(f"{i}", 3600, stays)) for i in range(10)]
        await until(lambda: inboxes.waiting == 10)
        before = len(looks.sizes)
        stopping.requested = True
        bell.ring()
        assert not any(await asyncio.wait_for(asyncio.gather(*polls), PATIENCE_S))
        assert len(looks.sizes) == before

    asyncio.run(run())


def test_a_look_that_fails_fails_everyone_who_waits_and_the_next_look_is_tried() -> None:
    cause = OSError("planted")
    fails = True

    def look(keys: Collection[str]) -> Mapping[str, Sequence[Item]]:
        if fails:
            raise DatabaseUnavailableError("the database is unavailable") from cause
        return {key: [ITEM] for key in keys}

    inboxes = Inboxes(look, Bell(), Stopping())

    async def run() -> None:
        nonlocal fails
        polls = [inboxes.poll(f"{i}", 3600, stays) for i in range(3)]
        errors = await asyncio.wait_for(asyncio.gather(*polls, return_exceptions=True), PATIENCE_S)
        assert [type(error) for error in errors] == [DatabaseUnavailableError] * 3
        assert len({id(error) for error in errors}) == 3, "an error that many raise grows without end"
        assert all(isinstance(error, Exception) and error.__cause__ is cause for error in errors)
        fails = False
        assert await asyncio.wait_for(inboxes.poll("a", 3600, stays), PATIENCE_S) == [ITEM]

    asyncio.run(run())


@pytest.mark.parametrize("rows_max", [3, 5, 100])
def test_a_query_that_is_cut_short_says_whom_to_ask_for_again(federation: Federation, rows_max: int) -> None:
    studies = [federation.create(title=f"{number}") for number in range(3)]
    keys = {name: key.public_hex for name, key in federation.parties.owners.items()}
    federation.release(studies[1], "north")
    query = InboxQuery(federation.engine, lambda: federation.now, rows_max)
    left, found, asked = set(keys.values()) | {"f" * 64}, dict[str, Any](), 0
    while left and asked < 10:
        part = query(left)
        assert part, "at least one is told"
        assert set(part) <= left
        found |= part
        left -= set(part)
        asked += 1
    assert not left
    assert [item["digest"] for item in found[keys["north"]]] == [studies[0], studies[2]]
    assert [item["digest"] for item in found[keys["south"]]] == studies
    assert found["f" * 64] == []
    assert asked == 1 or rows_max < 9


def test_who_waits_may_be_counted_in_any_thread_while_they_come_and_go() -> None:
    inboxes = Inboxes(Looks(), Bell(), Stopping())
    counting, faults = threading.Event(), list[BaseException]()

    def count() -> None:
        try:
            while not counting.is_set():
                assert 0 <= inboxes.waiting <= POLLS
        except BaseException as fault:
            faults.append(fault)

    async def run() -> None:
        for _ in range(20):
            await asyncio.gather(*(inboxes.poll(f"{i}", 0, stays) for i in range(100)))

    thread = threading.Thread(target=count)
    thread.start()
    asyncio.run(run())
    counting.set()
    thread.join(PATIENCE_S)
    assert not faults


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


def with_checks(scenario: Callable[[Gate, CheckQueue, Ask], Awaitable[None]]) -> None:
    async def run() -> None:
        gate, checks = Gate(), CheckQueue(Stopping())

        def ask(analyst: str, name: str) -> "asyncio.Task[str]":
            return asyncio.ensure_future(checks.run(analyst, 1000, gate.check(name), no_caller_goes))

        try:
            await scenario(gate, checks, ask)
        finally:
            gate.let_go()

    asyncio.run(run())


def test_few_checks_run_at_once_and_one_of_each_analyst() -> None:
    async def scenario(gate: Gate, _: CheckQueue, ask: Ask) -> None:
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
    async def scenario(gate: Gate, checks: CheckQueue, ask: Ask) -> None:
        first = ask("greedy", "first")
        await gate.begins(1)
        waiting = [
            asyncio.ensure_future(checks.run("greedy", size_bytes, gate.check("more"), no_caller_goes))
            for _ in range(count)
        ]
        await asyncio.sleep(0)
        with pytest.raises(RegisteredProblemError) as refused:
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
    async def scenario(gate: Gate, checks: CheckQueue, ask: Ask) -> None:
        gone: list[Callable[[], None] | None] = []
        first = ask("analyst", "first")
        await gate.begins(1)
        unwanted = asyncio.ensure_future(checks.run("analyst", 1, gate.check("unwanted"), gone.append))
        await asyncio.sleep(0)
        last = ask("analyst", "last")
        gone[0]()
        with pytest.raises(RegisteredProblemError):
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
        checks = CheckQueue(stopping)
        asked = [
            asyncio.ensure_future(checks.run("analyst", 1, gate.check(name), no_caller_goes)) for name in "ab"
        ]
        await gate.begins(1)
        stopping.requested = True
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [error.problem.slug for error in found if isinstance(error, RegisteredProblemError)] == [
            "not-ready"
        ] * 2
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
