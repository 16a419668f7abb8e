"""Verdict jobs: who computes them, leases, failures, and what a killed or stopping tester leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import own_time
import pytest
import sqlalchemy as sa
import tester_process
from fastapi import FastAPI
from forked_python import process_of
from own_time import wait_until
from served import problem
from sqlalchemy.engine import Engine
from study_parties import MeanProcedure
from tester_federation import URL, Federation

from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.two_sample import release as kernel_release
from tacit_protocol.signing import RELEASE_TYPE, sign_envelope
from tacit_services.shared import database
from tacit_services.shared.database import DatabaseUnavailableError, create_engine, run_transaction, upgrade
from tacit_services.tester import verdicts
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import queue_verdict
from tacit_services.tester.tables import JOBS, STUDIES
from tacit_services.tester.verdicts import (
    ATTEMPTS_MAX,
    LEASE_S,
    RETRY_PAUSE_S,
    LeaseLostError,
    Leases,
    time_of,
)


class KilledError(BaseException):
    """Stands for SIGKILL: no handler of the worker runs."""


def _kill() -> None:
    raise KilledError


@pytest.mark.both_databases
def test_a_killed_testers_job_is_taken_again_after_its_lease(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker
    mean_procedure.during_assembly = _kill
    with pytest.raises(KilledError):
        federation.work()
    mean_procedure.during_assembly = lambda: None
    federation.now += LEASE_S - 1
    assert not other.run_once()
    federation.now += 1
    assert other.run_once()
    assert federation.state(study) == "completed"
    assert mean_procedure.assembled == 2


@pytest.mark.both_databases
def test_a_worker_that_lost_its_lease_stores_nothing(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker

    def slow() -> None:
        mean_procedure.during_assembly = lambda: None
        federation.now += LEASE_S
        assert other.run_once()

    mean_procedure.during_assembly = slow
    assert federation.work()
    assert federation.state(study) == "completed"
    assert federation.verdict(study).outcome == "completed"


@pytest.mark.both_databases
def test_a_procedure_that_fails_is_tried_again_and_then_given_up(
    federation: Federation, mean_procedure: MeanProcedure, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.create()
    federation.release_all(study)

    def fails() -> None:
        raise ValueError("canary-7391")

    mean_procedure.during_assembly = fails
    for attempt in range(1, ATTEMPTS_MAX + 1):
        assert federation.state(study) == "computing"
        assert federation.work()
        assert not federation.work()
        federation.now += RETRY_PAUSE_S * attempt
    assert federation.state(study) == "failed"
    assert not federation.work()
    response = federation.get(f"/v1/studies/{study}/verdict")
    assert problem(response) == "verdict-failed"
    assert "canary" not in response.text + "".join(capsys.readouterr())


@pytest.mark.both_databases
def test_a_verdict_that_is_not_finite_is_not_published(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = federation.create()
    federation.release_all(study)
    genuine = mean_procedure.assemble

    def infinite(*arguments: Any) -> Any:
        return genuine(*arguments).model_copy(update={"mean": float("nan")})

    monkeypatch.setattr(mean_procedure, "assemble", infinite)
    assert federation.work()
    assert federation.state(study) == "computing"


PATIENCE_S = 300.0
AT_ONCE = 12
"""Workers that take jobs at once: no more than an engine has connections."""

JOBS_WAITING = 4 * AT_ONCE


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    upgrade(engine, "tester")
    yield engine
    engine.dispose()


def queue(engine: Engine, count: int) -> None:
    """Let so many jobs of one analyst wait."""
    for number in range(count):
        complete(engine, "", f"{number:064x}")


def complete(engine: Engine, analyst: str, study: str) -> None:
    """Let an analyst's study be there with all its releases."""
    plain = {"envelope": b"", "title": "", "procedure": "", "created_at": 0, "deadline": 0, "state": ""}
    row = {"digest": study, "analyst_key": analyst} | plain
    run_transaction(engine, lambda c: (c.execute(STUDIES.insert(), row), queue_verdict(c, study)))


def take(engine: Engine, lease: Leases) -> str | None:
    return run_transaction(engine, lease.take, locks_rows=True)


def jobs_of(engine: Engine) -> list[tuple[str | None, int]]:
    query = sa.select(JOBS.c.holder, JOBS.c.attempts)
    rows = run_transaction(engine, lambda c: c.execute(query).all(), read_only=True)
    return [(row.holder, row.attempts) for row in rows]


@pytest.mark.both_databases
def test_workers_that_take_at_once_take_different_jobs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(engine, JOBS_WAITING)
    genuine, runs, lock = database._run_once, [0], threading.Lock()

    def counted(*arguments: object) -> object:
        with lock:
            runs[0] += 1
        return genuine(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "_run_once", counted)

    def take_all(number: int) -> list[str]:
        lease, taken = Leases(f"worker-{number}"), []
        while (study := take(engine, lease)) is not None:
            taken.append(study)
        return taken

    with ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [study for studies in pool.map(take_all, range(AT_ONCE)) for study in studies]
    assert len(taken) == len(set(taken)) == JOBS_WAITING
    if engine.dialect.name == "postgresql":
        assert runs[0] == JOBS_WAITING + AT_ONCE, "nobody had to try again"


FLOOD = 30

WORKERS = 3


@pytest.mark.both_databases
@pytest.mark.parametrize("finishes", [True, False], ids=["finished", "under way"])
def test_analysts_take_turns_and_one_who_floods_delays_nobody(engine: Engine, finishes: bool) -> None:
    flood = [f"{FLOOD - number:064x}" for number in range(FLOOD)]  # the first to come has the last digest
    for study in flood[:-1]:
        complete(engine, "flooding", study)
    workers = [Leases(f"worker-{number}") for number in range(WORKERS)]

    def take_next(turn: int) -> str:
        worker = workers[turn % WORKERS]
        study = take(engine, worker)
        assert study is not None
        if finishes:
            run_transaction(engine, lambda c: worker.finish(c, study))
        return study

    taken = [take_next(turn) for turn in range(2)]
    complete(engine, "asks one", "f" * 64)
    complete(engine, "asks two", "e" * 64)
    complete(engine, "asks two", "d" * 64)
    complete(engine, "flooding", flood[-1])
    taken += [take_next(turn) for turn in range(FLOOD + 1)]
    assert taken == [*flood[:2], "f" * 64, "e" * 64, flood[2], "d" * 64, *flood[3:]]
    assert taken != sorted(taken)


@pytest.mark.both_databases
def test_a_job_that_fails_costs_its_analyst_a_turn(engine: Engine) -> None:
    now = [1000.0]
    worker = Leases("worker", lambda _: sa.literal(now[0]))
    for study in ("a1", "a2"):
        complete(engine, "a", study)
    complete(engine, "b", "b1")
    assert take(engine, worker) == "a1"
    run_transaction(engine, lambda c: worker.retry(c, "a1"))
    now[0] += RETRY_PAUSE_S
    assert [take(engine, worker) for _ in range(4)] == ["b1", "a1", "a2", None]


@pytest.mark.both_databases
def test_a_host_whose_clock_is_ahead_takes_nobodys_job(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(engine, 1)
    assert take(engine, Leases("a")) is not None
    if engine.dialect.name == "postgresql":  # SQLite's processes have one clock
        monkeypatch.setattr(verdicts, "system_clock", lambda: time.time() + 2 * LEASE_S)
    assert take(engine, Leases("b")) is None
    by_its_own_clock = Leases("c", time_of(lambda: time.time() + 2 * LEASE_S))
    assert take(engine, by_its_own_clock) is not None, "which would be wrong: this test sees it"


@pytest.mark.both_databases
def test_who_has_lost_a_lease_changes_nothing(engine: Engine) -> None:
    queue(engine, 1)
    late = Leases("late", time_of(lambda: time.time() - 2 * LEASE_S))
    study = take(engine, late)
    assert study is not None
    assert take(engine, Leases("next")) == study
    for change in (late.renew, late.require, late.finish, late.retry):
        with pytest.raises(LeaseLostError):
            run_transaction(engine, lambda c, change=change: change(c, study))
    run_transaction(engine, late.give_back)
    assert jobs_of(engine) == [("next", 2)]


@pytest.mark.both_databases
def test_a_worker_that_stands_still_in_a_transaction_is_cut_off(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    upgrade(engine, "tester")
    queue(engine, 1)
    connection = engine.connect()
    transaction = connection.begin()
    assert Leases("still").take(connection) is not None
    limit = "idle_in_transaction_session_timeout"
    assert connection.exec_driver_sql(f"SHOW {limit}").scalar() == f"{verdicts.STANDSTILL_S}s"
    connection.exec_driver_sql(f"SET LOCAL {limit} = 1")  # a millisecond, and nothing is said after it
    until, taken = time.monotonic() + PATIENCE_S, None
    while taken is None:
        assert time.monotonic() < until, "the row stays locked"
        taken = take(engine, Leases("other"))
        time.sleep(0.05)  # between two looks, not for luck
    with pytest.raises(sa.exc.DBAPIError):
        transaction.commit()
    connection.invalidate()
    connection.close()
    assert jobs_of(engine) == [("other", 1)]
    engine.dispose()


@pytest.mark.both_databases
def test_a_job_that_is_taken_while_its_worker_leaves_goes_back(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = federation.create()
    federation.release_all(study)
    worker = federation.app.state.worker
    genuine = worker.leases.take

    def take_and_be_told(connection: sa.Connection) -> str | None:
        taken: str | None = genuine(connection)
        worker._leaves = True
        return taken

    monkeypatch.setattr(worker.leases, "take", take_and_be_told)
    worker.run_once()
    assert mean_procedure.assembled == 0
    assert jobs_of(federation.engine) == [(None, 0)]


def free_all(engine: Engine) -> None:
    """End every lease, as time would."""
    free = JOBS.update().values(holder=None, lease_until=0.0, attempts=0)
    run_transaction(engine, lambda c: c.execute(free))


STOPS_MAX = 3
"""Stops of which the fastest must be in time: machines are shared. Each must give the job back, unless the
time for that ran out."""


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_process_stops_within_five_seconds_and_gives_its_job_back(
    federation: Federation, mean_procedure: MeanProcedure, database_url: str, tmp_path: Path
) -> None:
    study = federation.create()
    federation.release_all(study)
    config = tmp_path / "tester.toml"
    config.write_text(
        f'name = "tester"\nurl = "https://tester.example"\nkey_file = "tester.pem"\n'
        f'database_url = "{database_url}"\nserve_only = true\n'
    )
    took_s = []
    for attempt in range(STOPS_MAX):
        mark = tmp_path / f"computing-{attempt}"
        command = (tester_process.__file__, str(config), "work-for-ever", str(mark))
        with process_of(tmp_path / "log", *command) as process:
            wait_until(mark.exists)
            assert jobs_of(federation.engine)[0][1] == 1
            computing = int(mark.read_text("ascii"))
            asked_s = time.monotonic()
            code, stopped_s = own_time.stop(process)
            passed_s = time.monotonic() - asked_s
        assert code == 0
        wait_until(partial(has_ended, computing))
        if jobs_of(federation.engine) == [(None, 0)]:
            took_s.append(stopped_s)
            if stopped_s <= own_time.STOP_S_MAX:
                break
        else:
            assert passed_s >= verdicts.JOIN_S + verdicts.GIVE_BACK_S, "it had the time to give its job back"
            free_all(federation.engine)
    assert took_s, "no job was given back"
    assert min(took_s) <= own_time.STOP_S_MAX
    assert federation.work(), "another takes it at once"
    assert federation.state(study) == "completed"
    assert mean_procedure.assembled == 1


ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def has_ended(process: int) -> bool:
    """Return whether a process is not there, or has ended and waits for its parent to notice."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def working(federation: Federation, database_url: str, folder: Path, *planted: str) -> Iterator[int]:
    """Run a job worker with a mistake planted; yields its process's number."""
    config = folder / "tester.toml"
    config.write_text(
        f'name = "tester"\nurl = "{URL}"\nkey_file = "tester.pem"\ndatabase_url = "{database_url}"\n'
    )
    with process_of(folder / "log", tester_process.__file__, str(config), *planted) as process:
        yield process.pid


@pytest.mark.both_databases
def test_a_computation_that_never_ends_is_ended_once_and_others_go_on(
    federation: Federation, database_url: str, tmp_path: Path
) -> None:
    stuck, other = federation.create(title=tester_process.STUCK), federation.create()
    for study in (stuck, other):
        federation.release_all(study)
    with working(federation, database_url, tmp_path, "work-briefly"):
        wait_until(lambda: federation.state(stuck) != "computing")
        wait_until(lambda: federation.state(other) != "computing")
    assert federation.state(other) == "completed"
    summary = federation.get(f"/v1/studies/{stuck}").json()
    assert (summary["state"], summary["progress"]["step"]) == ("failed", verdicts.TOO_LONG)
    response = federation.get(f"/v1/studies/{stuck}/verdict")
    assert (problem(response), response.json()["detail"]) == ("verdict-failed", verdicts.TOO_LONG)
    assert jobs_of(federation.engine) == []


@ONE_DATABASE
def test_a_killed_worker_leaves_no_computation_behind_and_its_study_to_others(
    federation: Federation, database_url: str, tmp_path: Path
) -> None:
    study = federation.create()
    federation.release_all(study)
    mark = tmp_path / "computing"
    with working(federation, database_url, tmp_path, "work-for-ever", str(mark)) as worker:
        wait_until(mark.exists)
        computing = int(mark.read_text("ascii"))
        assert not has_ended(computing)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: has_ended(computing))
    assert federation.state(study) == "computing"
    free_all(federation.engine)
    assert federation.work()
    assert federation.state(study) == "completed"


@ONE_DATABASE
def test_a_computation_that_is_killed_is_tried_again(
    federation: Federation, database_url: str, tmp_path: Path
) -> None:
    study = federation.create()
    federation.release_all(study)
    mark = tmp_path / "computing"
    with working(federation, database_url, tmp_path, "work-for-ever", str(mark)):
        wait_until(mark.exists)
        computing = int(mark.read_text("ascii"))
        mark.unlink()
        os.kill(computing, signal.SIGKILL)
        wait_until(mark.exists)
        assert int(mark.read_text("ascii")) != computing
        assert jobs_of(federation.engine)[0][1] == 2


def threads_while_serving(app: FastAPI) -> set[str]:
    """Return the names of the threads that it starts: an earlier test's may still be ending."""
    before = set(threading.enumerate())

    async def run() -> set[str]:
        async with app.router.lifespan_context(app):
            return {thread.name for thread in set(threading.enumerate()) - before}

    return asyncio.run(run())


@ONE_DATABASE
def test_a_tester_that_only_serves_computes_nothing(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    settings = TesterSettings(name="tester", url=URL, key_file=federation._key_file, serve_only=True)
    app = create_tester(settings, federation.engine, lambda: federation.now)
    assert "worker" not in threads_while_serving(app)
    assert federation.state(study) == "computing"
    assert "worker" in threads_while_serving(federation.start_tester())


@ONE_DATABASE
def test_a_tester_works_a_plan_out_once_from_the_study_to_the_verdict(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated, calibrate = [], kernel_release.gaussian_guarantee

    def counted(budget: Budget) -> Guarantee:
        calibrated.append(budget)
        return calibrate(budget)

    asked: dict[str, Any] = {"procedure": "kernel_two_sample", "respond_after_s": 0}
    parties, procedure = federation.parties, procedure_named("kernel_two_sample")
    study = parties.study(**asked)
    rows = ArrayTable.of(Sample({"age": np.linspace(1, 119, 40)}), study.domain, None)
    release = procedure.privatise(study, procedure.summarise(study, rows), OpenDPNoise())
    monkeypatch.setattr(kernel_release, "gaussian_guarantee", counted)
    name = federation.create(**asked)
    federation.get(f"/v1/studies/{name}")
    for owner, key in parties.owners.items():
        message = ReleaseMessage(study=name, party=owner, release=release)
        envelope = sign_envelope(encode(message), RELEASE_TYPE, key)
        assert federation.release(name, owner, envelope=envelope).status_code == 201
    federation.work()
    assert federation.verdict(name).outcome == "completed"
    assert len(calibrated) == 1


def test_a_link_of_one_tester_signs_in_at_another_once_and_the_session_holds_at_both(
    federation: Federation,
) -> None:
    one, other = federation.app, federation.start_tester()
    analyst = federation.parties.analyst
    made = asyncio.run(federation.send("POST", "/v1/sign-in-links", analyst, one, json={}))
    form = {"content-type": "application/x-www-form-urlencoded", "origin": URL}
    used = [
        asyncio.run(federation.send("POST", made.json()["path"], None, app, headers=form))
        for app in (other, one)
    ]
    assert [response.status_code for response in used] == [303, 403]
    cookie = used[0].headers["set-cookie"].partition(";")[0]
    for app in (one, other):
        page = asyncio.run(federation.send("GET", "/", None, app, headers={"cookie": cookie}))
        assert page.status_code == 200
        assert "Sign out" in page.text


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


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
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


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_stopping_tester_gives_its_job_back(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "GIVE_BACK_S", PATIENCE_S)  # it is given back, however busy the machine is
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


CONFIG = """
name = "tester"
url = "http://127.0.0.1:1"
port = 1
key_file = "tester.pem"
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("prot = 1", "tester: setting prot"),
        ('database_url = "postgresql://127.0.0.1:1/none"', "tester: the database is unavailable\n"),
    ],
)
def test_what_keeps_a_tester_from_starting_is_said_on_one_line(
    tmp_path: Path, written: str, said: str
) -> None:
    config = tmp_path / "tester.toml"
    config.write_text(CONFIG + written)
    command = [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
