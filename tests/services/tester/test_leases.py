"""Leases of jobs: one holder at a time, by the database's clock; free again when the holder is gone."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import own_time
import pytest
import sqlalchemy as sa
import tester_process
from sqlalchemy.engine import Engine
from study_parties import MeanProcedure
from tester_federation import Federation

from tacit_services.shared import database
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester import jobs
from tacit_services.tester.jobs import LEASE_S, LeaseLostError, Leases, time_of
from tacit_services.tester.tables import JOBS, STUDIES

pytestmark = pytest.mark.both_databases

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
    """Let so many jobs wait."""
    studies = [f"{number:064x}" for number in range(count)]
    plain = {"envelope": b"", "title": "", "procedure": "", "analyst_key": "", "state": "computing"}
    rows = [{"digest": study, "created_at": 0, "deadline": 0} | plain for study in studies]
    jobs = [{"study": study, "holder": None, "lease_until": 0.0, "attempts": 0} for study in studies]
    run_transaction(engine, lambda c: (c.execute(STUDIES.insert(), rows), c.execute(JOBS.insert(), jobs)))


def take(engine: Engine, lease: Leases) -> str | None:
    return run_transaction(engine, lease.take, locks_rows=True)


def jobs_of(engine: Engine) -> list[tuple[str | None, int]]:
    query = sa.select(JOBS.c.holder, JOBS.c.attempts)
    rows = run_transaction(engine, lambda c: c.execute(query).all(), read_only=True)
    return [(row.holder, row.attempts) for row in rows]


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


def test_a_host_whose_clock_is_ahead_takes_nobodys_job(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(engine, 1)
    assert take(engine, Leases("a")) is not None
    if engine.dialect.name == "postgresql":  # SQLite's processes have one clock
        monkeypatch.setattr(jobs, "system_clock", lambda: time.time() + 2 * LEASE_S)
    assert take(engine, Leases("b")) is None
    by_its_own_clock = Leases("c", time_of(lambda: time.time() + 2 * LEASE_S))
    assert take(engine, by_its_own_clock) is not None, "which would be wrong: this test sees it"


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


def test_a_worker_that_stands_still_in_a_transaction_is_cut_off(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    upgrade(engine, "tester")
    queue(engine, 1)
    connection = engine.connect()
    transaction = connection.begin()
    assert Leases("still").take(connection) is not None
    limit = "idle_in_transaction_session_timeout"
    assert connection.exec_driver_sql(f"SHOW {limit}").scalar() == f"{jobs.STANDSTILL_S}s"
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


ATTEMPTS_MAX = 3
"""Stops of which the fastest must be in time: machines are shared. Each must give the job back, unless the
time for that ran out."""


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
    for attempt in range(ATTEMPTS_MAX):
        mark = tmp_path / f"computing-{attempt}"
        command = [sys.executable, tester_process.__file__, str(config), "work-for-ever", str(mark)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            until = time.monotonic() + PATIENCE_S
            while not mark.exists():
                assert process.poll() is None
                assert time.monotonic() < until, "the worker takes no job"
                time.sleep(0.02)  # between two looks, not for luck
            assert jobs_of(federation.engine)[0][1] == 1
            asked_s = time.monotonic()
            code, stopped_s = own_time.stop(process)
            passed_s = time.monotonic() - asked_s
        assert code == 0
        if jobs_of(federation.engine) == [(None, 0)]:
            took_s.append(stopped_s)
            if stopped_s <= own_time.STOP_S_MAX:
                break
        else:
            assert passed_s >= jobs.JOIN_S + jobs.GIVE_BACK_S, "it had the time to give its job back"
            free_all(federation.engine)
    assert took_s, "no job was given back"
    assert min(took_s) <= own_time.STOP_S_MAX
    assert federation.work(), "another takes it at once"
    assert federation.state(study) == "completed"
    assert mean_procedure.assembled == 1
