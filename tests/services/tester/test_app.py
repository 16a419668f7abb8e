"""The tester's app as a server runs it: its worker works, survives faults, and stops."""

import asyncio

import pytest
from study_parties import MeanProcedure
from tester_federation import Federation

from tacit_services.shared.database import DatabaseUnavailableError

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_the_worker_computes_while_the_app_lives(federation: Federation) -> None:
    study = federation.create()

    async def run() -> int:
        async with federation.app.router.lifespan_context(federation.app):
            for name, key in federation.parties.owners.items():
                path = f"/v1/studies/{study}/releases/{name}"
                await federation.send("PUT", path, key, content=federation.parties.release(study, name))
            path = f"/v1/studies/{study}/verdict?wait_s=30"
            return int((await federation.send("GET", path, federation.parties.analyst)).status_code)

    assert asyncio.run(run()) == 200


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
            path = f"/v1/studies/{study}/verdict?wait_s=30"
            return int((await federation.send("GET", path, federation.parties.analyst)).status_code)

    assert asyncio.run(run()) == 200
    assert faults == []
    assert "canary" not in "".join(capsys.readouterr())


def test_a_stopping_tester_gives_its_job_back(federation: Federation, mean_procedure: MeanProcedure) -> None:
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker

    async def run() -> None:
        started, release = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def block() -> None:
            mean_procedure.during_assembly = lambda: None
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)

        mean_procedure.during_assembly = block
        async with federation.app.router.lifespan_context(federation.app):
            await asyncio.wait_for(started.wait(), 30)
        try:
            assert await asyncio.to_thread(other.run_once)
        finally:
            release.set()
            await asyncio.sleep(0)

    asyncio.run(run())
    assert federation.state(study) == "completed"
