"""The tester's app as a server runs it: its worker works, survives faults, and stops."""

import asyncio
import threading
import time

import pytest
from study_parties import MeanProcedure
from tester_federation import Federation, problem

from tacit_services.shared.database import DatabaseUnavailableError
from tacit_services.tester import jobs

PATIENCE_S = 300

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


async def status_of_verdict(federation: Federation, study: str) -> int:
    """Ask for the verdict until there is one; returns the answer's status."""
    path, until = f"/v1/studies/{study}/verdict?wait_s=30", time.monotonic() + PATIENCE_S
    while True:
        answer = await federation.send("GET", path, federation.parties.analyst)
        if answer.is_success or problem(answer) != "verdict-pending" or time.monotonic() > until:
            return answer.status_code


def join_workers() -> None:
    """Wait for workers that outlive their app: what they do at the end must not be in the next test."""
    for thread in threading.enumerate():
        if thread.name == "worker":
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("fault", [DatabaseUnavailableError("away"), RuntimeError("canary-7391")])
def test_a_fault_does_not_end_the_worker(
    federation: Federation,
    fault: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = federation.create()
    federation.release_all(study)
    worker = federation.app.state.worker
    genuine, faults = worker.run_once, [fault]

    def run_once() -> bool:
        if faults:
            raise faults.pop()
        return bool(genuine())

    monkeypatch.setattr(worker, "run_once", run_once)

    async def run() -> int:
        async with federation.app.router.lifespan_context(federation.app):
            return await status_of_verdict(federation, study)

    assert asyncio.run(run()) == 200
    assert faults == []
    assert "canary" not in "".join(capsys.readouterr())


def test_a_stopping_tester_gives_its_job_back(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "GIVE_BACK_S", PATIENCE_S)  # it is given back, however busy the machine is
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker

    async def run() -> None:
        started, release = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def block() -> None:
            mean_procedure.during_assembly = lambda: None
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(PATIENCE_S)

        mean_procedure.during_assembly = block
        async with federation.app.router.lifespan_context(federation.app):
            await asyncio.wait_for(started.wait(), PATIENCE_S)
        try:
            assert await asyncio.to_thread(other.run_once)
        finally:
            release.set()
            await asyncio.sleep(0)

    asyncio.run(run())
    join_workers()
    assert federation.state(study) == "completed"
