"""Long polls: they answer when something arrives, here or at another tester, and no later."""

import asyncio
import threading
import time
from typing import Any

from planted import with_mistake
from tester_federation import Federation

from tacit_services.shared.http_server import Stopping
from tacit_services.tester import inboxes as waiting_module
from tacit_services.tester.inboxes import Bell, poll


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
