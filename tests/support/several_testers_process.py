"""Kills one of several testers and job workers that share a database, case after case.

``several_testers_process.py KIND FOLDER UNUSED DATABASE_URL``, driven as kill_sweep_process.py.

Two testers that only serve, two job workers and a load balancer are processes of their own. Parties send
several studies through the balancer, each request over a new connection and so to the other tester. Whichever
process comes to the plan's next step is killed there or, where the step begins with ``pause:``, stopped until
everything is done. With one kill nobody is started again: the others have to finish. The leases of who is
killed or stopped are ended at once, as time would, and nobody else's. The plan ``["wake"]`` is another case:
an agent waits at one tester, and a study comes to the other.
"""

import asyncio
import fcntl
import http.client
import importlib
import itertools
import json
import mmap
import os
import re
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import sqlalchemy as sa
from kill_sweep_process import IMPORTED_LATE, answer_cases
from long_runs import choose
from made_studies import SeededNoise
from pydantic import BaseModel
from world import POOLED, PooledSum, enrol, key_of, sealed, study_of

from tacit.setup.processes import free_ports
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Release, ReleaseMessage, Study
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.base import Progress
from tacit_protocol.signing import RELEASE_TYPE, issue_token, sign_envelope
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.study.tester_client import TesterClient, TesterUnavailableError
from tacit_services.shared import failpoints
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging
from tacit_services.tester import inboxes, verdicts
from tacit_services.tester.__main__ import create_tester, open_key
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.tables import JOBS, METADATA, RELEASES, STUDIES, VERDICTS
from tacit_services.tester.verdicts import LEASE_S, Leases

STUDIES_SENT = choose(2, 4)
OWNERS = ("north", "south")
TESTERS = ("tester-0", "tester-1")

WAKE = "wake"
DEAF = "deaf-to-others"
"""Plant: a tester does not look for what comes to the other."""

STOPPING = {DEAF, "delete-what-is-leased"}
"""Planted mistakes after which nothing goes on."""

WAIT_S = 60.0
"""How long the agent waits at most."""

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


class RoundRobin:
    """A load balancer: hands each connection to the next of this machine's ports that takes it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports, self._turns = tuple(ports), itertools.count()

    def run(self, port: int) -> None:
        """Serve on that port for ever."""
        asyncio.run(self._serve(port))

    async def _serve(self, port: int) -> None:
        server = await asyncio.start_server(self._balance, "127.0.0.1", port)
        await server.serve_forever()

    async def _balance(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(self._turns)
        for place in range(len(self._ports)):
            port = self._ports[(first + place) % len(self._ports)]
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue  # that server is down
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


class Cluster:
    """The supervisor: the database, the parties' messages and the processes of the case under way."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder, self.database_url = folder, database_url
        self.kills, self.log = Kills(folder / "lock"), folder / "computed"
        self.procedure = CountedSum(self.log)
        discovery.PROCEDURES[POOLED.procedure.name] = self.procedure
        self.balancer, *ports = free_ports(1 + len(TESTERS))
        self.ports = dict(zip(TESTERS, ports, strict=True))
        self.url = f"http://127.0.0.1:{self.balancer}"
        (folder / "tester.pem").write_bytes(key_of("tester").to_pem())
        self.settings = TesterSettings(
            name="tester", url=self.url, key_file=folder / "tester.pem", serve_only=True
        )
        engine = create_engine(database_url)
        upgrade(engine, "tester")
        engine.dispose()
        # Not connected before the fork: each child opens its own connections.
        self.app = create_tester(self.settings, create_engine(database_url))
        self.database = psycopg.connect(database_url, autocommit=True)
        self.studies = dict(self._make_study(number) for number in range(STUDIES_SENT))
        self.children: dict[int, str] = {}
        self.started: Counter[str] = Counter()
        self.plan: list[str] = []
        self.planted: str | None = None
        self.paused: set[int] = set()
        self.excused: set[str] = set()
        """Whose job another may take: processes that were killed or stopped."""

    def _make_study(self, number: int) -> tuple[str, tuple[bytes, dict[str, bytes]]]:
        """Return a study's digest, its envelope and its releases."""
        now = int(time.time())
        study = study_of(OWNERS, title=f"study-{number}", created_at=now, deadline=now + 24 * 3600)
        name, envelope = sealed(study)
        releases = {}
        for place, owner in enumerate(OWNERS):
            sums = POOLED.procedure.privatise(
                study, (60, (300 + place) << 20), SeededNoise(10 * number + place)
            )
            message = ReleaseMessage(study=name, party=owner, release=sums)
            releases[owner] = sign_envelope(encode(message), RELEASE_TYPE, key_of(owner))
        return name, (envelope, releases)

    def run(self, plan: list[str], planted: str | None) -> dict[str, Any]:
        """Run one case; returns how often somebody was killed or stopped, and what is wrong."""
        self.plan, self.planted = plan, planted
        self._reset()
        if plan == [WAKE]:
            return {"kills": 0, "faults": self._wake()}
        for role in (*TESTERS, *WORKERS):
            self._fork(role)
        transcripts: dict[str, bytes] = {}
        try:
            self._wait_for_workers()
            faults = self._live(transcripts)
            faults += self._stop_workers()
        finally:
            self._kill_all()
        engine = create_engine(self.database_url)
        try:
            faults += run_transaction(engine, lambda c: self._faults(c, transcripts), read_only=True)
        finally:
            engine.dispose()
        return {"kills": self.kills.count(), "faults": faults + self._faults_of_computing()}

    def _wait_for_workers(self) -> None:
        """Wait until every worker has looked for jobs, so that none has them all to itself."""
        names = [name for name in self.children.values() if name.startswith(WORKERS)]
        seen = "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name = ANY(%s)"
        until = time.monotonic() + PATIENCE_S
        while len(self.database.execute(seen, [names]).fetchall()) < len(names):
            if time.monotonic() > until:
                raise RuntimeError("a worker does not look for jobs")
            time.sleep(LOOK_S)

    def _wake(self) -> list[str]:
        """Let an agent wait at the first tester, and send a study to the second."""
        for role in TESTERS:
            self._fork(role)
        try:
            agent = os.fork()
            if agent == 0:
                os._exit(self._be_waiting_agent())
            self.children[agent] = "agent"
            while not self._waits():
                time.sleep(LOOK_S)
            name, (envelope, _) = next(iter(self.studies.items()))
            while self._ask("PUT", f"/v1/studies/{name}", "ada", envelope, self.ports[TESTERS[1]]) is None:
                time.sleep(LOOK_S)
            until = time.monotonic() + (STOPPED_S if self.planted in STOPPING else WAIT_S / 2)
            while (ended := os.waitpid(agent, os.WNOHANG))[0] == 0:
                if time.monotonic() > until:
                    return ["an agent that waits at one tester is not told of a study at the other"]
                time.sleep(LOOK_S)
            del self.children[agent]
            return [] if ended[1] == 0 else ["the agent was told of nothing"]
        finally:
            self._kill_all()

    def _be_waiting_agent(self) -> int:
        """Wait for a study at the first tester, as agents do; returns 0 where it came."""
        url, code = f"http://127.0.0.1:{self.ports[TESTERS[0]]}", 1
        with TesterClient(url, self.url, key_of(OWNERS[0]), time.time, time.sleep) as client:
            while code != 0:
                try:
                    code = 0 if client.inbox(WAIT_S) else 1
                except TesterUnavailableError:
                    continue  # it is starting
        return code

    def _waits(self) -> bool:
        """Whether the agent's request waits at the first tester, which has looked and found nothing.

        One is counted for the request then, and one for who looks for it when the tester's bell rings.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[TESTERS[0]], timeout=60)
        try:
            connection.request("GET", "/metrics")
            return re.search(rb"polls_waiting 2\b", connection.getresponse().read()) is not None
        except OSError:
            return False
        finally:
            connection.close()

    def _live(self, transcripts: dict[str, bytes]) -> list[str]:
        until = time.monotonic() + PATIENCE_S
        sent = [(f"/v1/studies/{name}", "ada", study[0]) for name, study in self.studies.items()]
        sent += [
            (f"/v1/studies/{name}/releases/{owner}", owner, releases[owner])
            for owner in OWNERS
            for name, (_, releases) in self.studies.items()
        ]
        for path, party, content in sent:
            while self._ask("PUT", path, party, content) is None:
                if time.monotonic() > until:
                    return ["the testers took nothing"]
                self._tend()
        until = time.monotonic() + (STOPPED_S if self.planted in STOPPING else PATIENCE_S)
        while len(transcripts) < len(self.studies):
            for name in self.studies:
                if (answer := self._ask("GET", f"/v1/studies/{name}/transcript", "ada")) is not None:
                    transcripts[name] = answer
            if time.monotonic() > until:
                return ["a study got no verdict"]
            self._tend()
        return []

    def _ask(
        self, method: str, path: str, party: str, content: bytes | None = None, port: int = 0
    ) -> bytes | None:
        """Ask over a new connection, by the balancer unless a tester's port is given.

        Returns the answer, or None where it is worth asking again.
        """
        token = issue_token(key_of(party), self.url, int(time.time()))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", port or self.balancer, timeout=60)
        try:
            connection.request(method, path, content, headers | {"connection": "close"})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if response.status in {200, 201}:
            return answer
        if response.status >= 500 or b"verdict-pending" in answer:
            return None
        raise RuntimeError(f"the tester refused: {answer.decode()}")

    def _tend(self) -> None:
        """Look after the processes: end the leases of who was killed or stopped; replace in longer plans."""
        for pid, name in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended == 0:
                continue
            self.excused.add(name)
            if os.WIFSTOPPED(status):
                self.paused.add(pid)
            else:
                del self.children[pid]
                self._require_killed(name, status)
                if len(self.plan) > 1:
                    self._fork(name.partition(".")[0])
            self.database.execute("UPDATE jobs SET lease_until = 0 WHERE holder = %s", [name])
        time.sleep(0.02)

    def _require_killed(self, name: str, status: int) -> None:
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"{name} ended by itself; see its log")

    def _stop_workers(self) -> list[str]:
        """Let who is stopped go on, and ask the workers to end; they finish what they are doing."""
        for pid in self.paused & set(self.children):
            os.kill(pid, signal.SIGCONT)
        found = []
        for pid, name in list(self.children.items()):
            if not name.startswith("worker"):
                continue
            os.kill(pid, signal.SIGTERM)
            _, status = os.waitpid(pid, 0)
            del self.children[pid]
            if os.WIFSIGNALED(status):
                self._require_killed(name, status)
                self.excused.add(name)
            elif os.WEXITSTATUS(status) != 0:
                found.append(f"{name} ended with {os.WEXITSTATUS(status)}")
        return found

    def _kill_all(self) -> None:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.children.clear()

    def _fork(self, role: str) -> None:
        self.started[role] += 1
        name = f"{role}.{self.started[role]}"
        pid = os.fork()
        if pid != 0:
            self.children[pid] = name
            return
        code = 1
        try:
            self._become(role, name)
            code = 0
        finally:
            os._exit(code)

    def _become(self, role: str, name: str) -> None:
        vars(failpoints)["failpoint"] = self._reached
        vars(inboxes)["RECHECK_S"] = vars(verdicts)["RECHECK_S"] = LOOK_S
        if role in TESTERS:
            if self.planted == DEAF:
                self.app.state.watch.run = lambda _: None
            serve(self.app, "127.0.0.1", self.ports[role], self.app.state.stopping)
            return
        vars(verdicts)["secrets"] = SimpleNamespace(token_hex=lambda _: name)
        self.procedure.process = name
        if self.planted is not None:
            PLANTED[self.planted](self.procedure, self.database_url, name)
        engine = create_engine(f"{self.database_url}&application_name={name}")
        verdicts.work(engine, *open_key(self.settings))
        engine.dispose()

    def _reached(self, step: str) -> None:
        entry = self.kills.claim(self.plan, step)
        if entry is not None:
            os.kill(os.getpid(), signal.SIGSTOP if entry.startswith(PAUSE) else signal.SIGKILL)

    def _reset(self) -> None:
        self.kills.set(0)
        self.paused, self.excused = set(), set()
        self.log.write_text("")
        tables = ", ".join(table.name for table in METADATA.sorted_tables)
        self.database.execute(f"TRUNCATE {tables}".encode())
        engine = create_engine(self.database_url)
        run_transaction(engine, lambda connection: enrol(connection, OWNERS))
        engine.dispose()

    def _faults(self, connection: sa.Connection, transcripts: dict[str, bytes]) -> list[str]:
        """Say what is wrong with the database once everything has come to rest."""
        found = []
        states = {row.digest: row.state for row in connection.execute(STUDIES.select())}
        if states != dict.fromkeys(self.studies, "completed"):
            found.append(f"the studies are {sorted(states.values())}")
        releases = {
            (row.study, row.owner): bytes(row.envelope) for row in connection.execute(RELEASES.select())
        }
        sent = {(name, owner): r for name, (_, made) in self.studies.items() for owner, r in made.items()}
        if releases != sent:
            found.append("the testers hold other releases than were sent")
        if connection.execute(JOBS.select()).first() is not None:
            found.append("a job is left")
        for row in connection.execute(VERDICTS.select()):
            if row.study not in transcripts:
                continue
            try:
                verified = verify_transcript(transcripts[row.study], key_of("tester").public_hex)
            except VerificationError as error:
                found.append(f"a transcript does not hold: {error}")
                continue
            if verified.verdict.outcome != "completed" or bytes(row.envelope) != _verdict_in(
                transcripts[row.study]
            ):
                found.append("a verdict is not the one that was handed out")
        return found

    def _faults_of_computing(self) -> list[str]:
        """Say which verdict was computed again although the worker that computed it lived."""
        computed: dict[str, list[str]] = {}
        for line in self.log.read_text().splitlines():
            title, process = line.split(" ")
            computed.setdefault(title, []).append(process)
        return [
            f"{title} was computed again although {before} lived"
            for title, processes in sorted(computed.items())
            for before in processes[:-1]
            if before not in self.excused
        ]


def _verdict_in(transcript: bytes) -> bytes:
    return str(json.loads(transcript)["verdict"]).encode()


def main(_: str, folder: str, __: str, database_url: str) -> None:
    configure_logging("WARNING")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    cluster = Cluster(Path(folder), database_url)
    balancer = os.fork()
    if balancer == 0:
        RoundRobin(list(cluster.ports.values())).run(cluster.balancer)
    try:
        answer_cases(cluster.run)
    finally:
        os.kill(balancer, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
