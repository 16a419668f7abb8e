"""The parts of several_testers_process.py: a procedure that counts, a plan of kills, and planted mistakes."""

import fcntl
import mmap
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from fault_world import PooledSum
from pydantic import BaseModel

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Progress
from tacit_services.tester.jobs import LEASE_S, Leases
from tacit_services.tester.tables import JOBS

PATIENCE_S = 300.0
"""How long a part of a case may take."""

STOPPED_S = 4.0
"""How long it is watched that nothing goes on."""

LOOK_S = 0.05
"""How often testers and workers look for news: a second, in earnest."""

COMPUTING_S = 0.06
"""How long a verdict takes, so that both workers have one at once."""

WORKERS = ("worker-0", "worker-1")

PAUSE = "pause:"
"""Begins a step at which a process is stopped, not killed."""


class CountedSum(PooledSum):
    """Writes down every computation of a verdict: the study's title, and which process began it."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.process = log, ""
        self.compute: Callable[[], None] = lambda: time.sleep(COMPUTING_S)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        if self.process:  # and not the supervisor, which verifies
            with self.log.open("a") as log:
                log.write(f"{study.title} {self.process}\n")
            self.compute()
        return super().assemble(study, releases, progress)


class Kills:
    """How many of the plan's steps have been reached: shared by all processes, counted by one at a time."""

    def __init__(self, lock: Path) -> None:
        self._lock, self._memory = lock, mmap.mmap(-1, 8)

    def count(self) -> int:
        return int(struct.unpack("q", self._memory[:8])[0])

    def set(self, count: int) -> None:
        self._memory[:8] = struct.pack("q", count)

    def claim(self, plan: list[str], step: str) -> str | None:
        """Return the plan's next entry if that is this step; nobody else gets the same one."""
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.count()
            if done >= len(plan) or plan[done].removeprefix(PAUSE) != step:
                return None
            self.set(done + 1)
            return plan[done]


def take_what_others_have(procedure: CountedSum, database_url: str, name: str) -> None:
    """Plant: a lease does not keep the second worker from what the first one computes.

    Only one takes from the other: two would take a job from each other for ever.
    """
    first = JOBS.c.holder.startswith(WORKERS[0])

    def take(self: Leases, connection: sa.Connection) -> str | None:
        query = sa.select(JOBS.c.study).where(first)
        study: str | None = connection.execute(query).scalars().first()
        if study is not None:
            until = self._present(connection) + LEASE_S
            connection.execute(
                JOBS.update().where(JOBS.c.study == study).values(holder=self.holder, lease_until=until)
            )
        return study

    def until_another_takes_it() -> None:
        with psycopg.connect(database_url, autocommit=True) as database:
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                if database.execute("SELECT 1 FROM jobs WHERE holder = %s", [name]).fetchone() is None:
                    return
                time.sleep(LOOK_S)

    if name.startswith(WORKERS[0]):
        procedure.compute = until_another_takes_it
    else:
        Leases.take = take  # type: ignore[method-assign]


def delete_what_is_leased(procedure: CountedSum, database_url: str, name: str) -> None:
    """Plant: a job is deleted when it is taken, and not when it is done."""
    genuine: Any = Leases.take

    def take(self: Leases, connection: sa.Connection) -> str | None:
        study: str | None = genuine(self, connection)
        connection.execute(JOBS.delete().where(JOBS.c.holder == self.holder))
        return study

    Leases.take = take  # type: ignore[method-assign]
    Leases.require = Leases.finish = lambda *_: None  # type: ignore[method-assign]


PLANTED = {"take-what-others-have": take_what_others_have, "delete-what-is-leased": delete_what_is_leased}
