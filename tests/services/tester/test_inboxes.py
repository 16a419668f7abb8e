"""Thousands wait for their inboxes: one look at a time serves them all, and only the named are woken."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from tester_federation import Federation

from tacit_services.shared.database import DatabaseUnavailableError
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.inboxes import KEYS_AT_ONCE, Bell, Inboxes, InboxQuery, Item

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
        for poll in polls:
            poll.cancel()
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
        assert leave[0] is not None
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
