"""Kills agents and testers with SIGKILL, case after case.

``kill_sweep_process.py FOLDER AGENT_URL TESTER_URL``, where the URLs are those of two databases.

Reads one case a line, ``{"plan": [step, ...], "planted": name or null}``, and writes one outcome a line,
``{"kills": n, "faults": [...]}``. Agent and tester are processes of their own, forked from this one so that
imports are paid for once, and they speak HTTP over a loopback port. The plan's next step kills whichever of
the two comes to it; the process that is killed is started again at once, and its clock has passed the lease.
"""

import gc
import importlib
import json
import mmap
import os
import secrets
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agent_process
import httpx
import sqlalchemy as sa
from fault_world import (
    NOW,
    PROCEDURE,
    SeededNoise,
    enrol,
    key_of,
    make_agent,
    make_tester,
    sealed,
    study_of,
)
from step_order import StepOrder

from tacit.setup.processes import free_ports
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures import discovery
from tacit_protocol.signing.envelope import RELEASE_TYPE, digest, seal
from tacit_protocol.signing.tokens import issue_token
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.schema import METADATA as AGENT_TABLES
from tacit_services.agent.schema import OUTBOX, STUDIES
from tacit_services.agent.tester_client import TesterClient, TesterError
from tacit_services.ledger.verification import export, verify
from tacit_services.shared import failpoints
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging
from tacit_services.tester.jobs import LEASE_S, Leases
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import JOBS, RELEASES, VERDICTS
from tacit_services.tester.tables import METADATA as TESTER_TABLES

PATIENCE_S = 300.0
"""How long a part of a case may take; it takes a fraction of a second."""

GOES_ON = "one-owner-pays"
"""The planted mistake after which a study is completed all the same."""

STOPPED_S = 12.0
"""How long a study with any other is watched, once whoever was to be killed has been."""

HEADERS = {"content-type": "application/json"}


class Shared:
    """What supervisor, agent and tester share: the clock, whether to kill, and how often that was done."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 24)
        self._started_s = time.monotonic()
        self.set(0.0, 0, 0)

    def set(self, offset_s: float, armed: int, kills: int) -> None:
        self._memory[:24] = struct.pack("dqq", offset_s, armed, kills)

    def get(self) -> tuple[float, int, int]:
        return struct.unpack("dqq", self._memory[:24])

    def clock(self) -> float:
        return NOW + time.monotonic() - self._started_s + self.get()[0]

    # Each changes its own number alone: supervisor and children do so at once.

    def pass_lease(self) -> None:
        struct.pack_into("d", self._memory, 0, self.get()[0] + LEASE_S + 1)

    def arm(self) -> None:
        struct.pack_into("q", self._memory, 8, 1)

    def count_kill(self) -> None:
        struct.pack_into("q", self._memory, 16, self.get()[2] + 1)


class Sweep:
    """One supervisor: its databases, its parties' messages and the processes of the case under way.

    ``party`` is whose process is killed beside the tester's, ``component`` names its database's migrations.
    """

    party, component = "north", "agent"

    def __init__(self, folder: Path, agent_url: str, tester_url: str) -> None:
        self.folder, self.urls, self.shared = folder, (agent_url, tester_url), Shared()
        self.plan: list[str] = []
        self.planted: str | None = None
        self.wire = folder / "wire"
        for url, component in zip(self.urls, (self.component, "tester"), strict=True):
            engine = create_engine(url)
            upgrade(engine, component)
            engine.dispose()
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        # Neither engine is connected before the fork: each child opens its own connections.
        self.agent_engine = create_engine(agent_url)
        self.tester = make_tester(folder, self.url, create_engine(tester_url), self.shared.clock)
        self.client = TesterClient(
            self.url,
            self.url,
            key_of(self.party),
            self.shared.clock,
            lambda pause_s: time.sleep(pause_s / 100),
        )
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=60)
        self.study, self.envelope = sealed(self.make_study())
        self.releases = self.make_releases()
        self.children: dict[str, int] = {}

    def make_study(self) -> Study:
        return study_of(["north", "south"])

    def make_releases(self) -> dict[str, bytes]:
        """Return the releases of those who are never killed."""
        study = self.make_study()
        release = PROCEDURE.privatise(study, (60, 300 << 20), SeededNoise(2))
        message = ReleaseMessage(study=self.study, party="south", release=release)
        return {"south": seal(encode(message), RELEASE_TYPE, key_of("south"))}

    def run(self, plan: list[str], planted: str | None) -> dict[str, Any]:
        """Run one case; returns how often somebody was killed, and what is wrong."""
        self.plan, self.planted = plan, planted
        self.shared.set(0.0, 0, 0)
        self._reset()
        try:
            faults = self._live()
        finally:
            for pid in self.children.values():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self.children.clear()
        return {"kills": self.shared.get()[2], "faults": faults + self._faults()}

    def _live(self) -> list[str]:
        until = time.monotonic() + PATIENCE_S
        if self.plan and self.plan[0].startswith("tester.study."):
            self.shared.arm()
        self._fork("tester")
        study = f"/v1/studies/{self.study}"
        others = [(f"{study}/releases/{name}", name, content) for name, content in self.releases.items()]
        for path, key, content in [(study, "ada", self.envelope), *others]:
            while not self._put(path, key, content):
                if time.monotonic() > until:
                    return ["the tester took nothing"]
                self._restart_the_dead()
                self.pause()
        self.shared.arm()
        self._fork("agent")
        is_over = self.patience()
        while "agent" in self.children:
            if is_over():
                return ["the agent did not get its verdict"]
            self._restart_the_dead()
            self.pause()
        return []

    def patience(self) -> Callable[[], bool]:
        """Return what says whether a verdict, for which the wait begins now, is waited for no longer."""
        ends_s = time.monotonic() + PATIENCE_S

        def is_over() -> bool:
            nonlocal ends_s
            if self.planted not in {None, GOES_ON} and self.shared.get()[2] >= len(self.plan):
                ends_s = min(ends_s, time.monotonic() + STOPPED_S)
            return time.monotonic() > ends_s

        return is_over

    def pause(self) -> None:
        """Wait between two looks: longer where a mistake may have stopped everything."""
        time.sleep(0.1 if self.planted else 0.003)

    def _put(self, path: str, party: str, content: bytes) -> bool:
        token = issue_token(key_of(party), self.url, int(self.shared.clock()))
        headers = HEADERS | {"authorization": f"Bearer {token}"}
        try:
            response = self.http.put(path, content=content, headers=headers)
        except httpx.TransportError:
            return False
        if response.status_code >= 300:
            raise RuntimeError(f"the tester refused: {response.text}")
        return True

    def _fork(self, role: str) -> None:
        pid = os.fork()
        if pid != 0:
            self.children[role] = pid
            return
        code = 1
        try:
            self._become(role)
            code = 0
        finally:
            os._exit(code)

    def _restart_the_dead(self) -> None:
        for role, pid in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            del self.children[role]
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 and role == "agent":
                continue  # it has its verdict
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                raise RuntimeError(f"the {role} ended by itself; see its log")
            if role == "tester":
                self.shared.pass_lease()
            self._fork(role)

    def _become(self, role: str) -> None:
        """Run in a child: set the kill, plant the mistake, and do the role's work."""
        fake: Any = SimpleNamespace(environ=self, getpid=os.getpid, kill=self._kill)
        vars(failpoints)["os"] = fake
        if role == "tester":
            vars(failpoints)["failpoint"] = StepOrder(failpoints.failpoint)
            self._be_tester()
        else:
            self._be_agent()

    def get(self, _: str) -> str | None:
        """Stand in for the environment: which step kills now."""
        _, armed, kills = self.shared.get()
        return self.plan[kills] if armed and kills < len(self.plan) else None

    def _kill(self, pid: int, sig: int) -> None:
        self.shared.count_kill()  # before dying, so that the next step of the plan counts from now on
        os.kill(pid, sig)

    def _be_tester(self) -> None:
        self.tester.state.worker.leases.holder = secrets.token_hex(16)
        if self.planted == "job-deleted-when-leased":
            take: Any = Leases.take

            def lose(leases: Leases, connection: sa.Connection) -> str | None:
                study: str | None = take(leases, connection)
                connection.execute(JOBS.delete())
                return study

            Leases.take = lose  # type: ignore[method-assign]
            Leases.require = Leases.finish = lambda *_: None  # type: ignore[method-assign]
        serve(self.tester, "127.0.0.1", self.port, self.tester.state.stopping)

    def _be_agent(self) -> None:
        if self.planted in {"debit-outside", "send-before-storing"}:
            agent_process.plant(self.planted)
            agent_process.CLIENTS.append(self.client)
        send = self.client.put_release

        def noted(study: str, party: str, envelope: bytes) -> None:
            with self.wire.open("a") as wire:
                wire.write(digest(envelope) + "\n")
            send(study, party, envelope)

        self.client.put_release = noted  # type: ignore[method-assign]
        # Another noise after every start.
        turns = self.make_steps(SeededNoise(int.from_bytes(os.urandom(4))))
        query = sa.select(STUDIES.c.verdict).where(STUDIES.c.verdict.is_not(None))
        while run_transaction(self.agent_engine, lambda c: c.execute(query).first(), read_only=True) is None:
            for turn in turns:
                with suppress(TesterError):
                    turn()
            self.pause()

    def make_steps(self, noise: SeededNoise) -> list[Callable[[], Any]]:
        """Put the party together; returns what it does, over and over."""
        agent = make_agent(
            self.folder,
            self.party,
            engine=self.agent_engine,
            client=self.client,
            noise=noise,
            clock=self.shared.clock,
        )
        return [lambda: agent.poll(0), agent.work, agent.fetch_verdicts]

    def reset_party(self, connection: sa.Connection) -> None:
        """Write what the party's database holds at the beginning, once its tables are empty."""

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, ["north", "south"])

    def _reset(self) -> None:
        self.wire.write_text("")
        for url, metadata in zip(self.urls, (self.tables(), [TESTER_TABLES]), strict=True):
            engine = create_engine(url)

            def clear(connection: sa.Connection, metadata: list[sa.MetaData] = metadata) -> None:
                # A curator's database has not all of the tables that an agent's has.
                existing = sa.inspect(connection).get_table_names()
                for table in (table for tables in metadata for table in reversed(tables.sorted_tables)):
                    if table.name in existing:
                        connection.execute(table.delete())
                (self.enrol if TESTER_TABLES in metadata else self.reset_party)(connection)

            run_transaction(engine, clear)
            engine.dispose()

    def tables(self) -> list[sa.MetaData]:
        """Return the tables of the party's database, in an order in which they can be emptied."""
        return [AGENT_TABLES]

    def debits(self) -> list[tuple[str, str]]:
        """Return account and study of the debits that there must be, by account."""
        return [("patients", self.study)]

    def _faults(self) -> list[str]:
        """Say what is wrong once everything has come to rest."""
        agent_engine, tester_engine = (create_engine(url) for url in self.urls)
        try:
            found = run_transaction(agent_engine, self._faults_of_agent, read_only=True)
            found += run_transaction(
                tester_engine,
                lambda c: self._faults_of_tester(c, found_at_agent(agent_engine)),
                read_only=True,
            )
        finally:
            agent_engine.dispose()
            tester_engine.dispose()
        return found

    def _faults_of_agent(self, connection: sa.Connection) -> list[str]:
        found = []
        verify(connection)
        entries = [entry for entry in export(connection) if entry["kind"] == "debit"]
        debits = [(entry["data_set"], entry["study"]) for entry in entries]
        if debits != self.debits():
            found.append(f"{len(debits)} debits")
        rows = connection.execute(OUTBOX.select()).all()
        if [(row.kind, row.outcome) for row in rows] != [("release", "delivered")]:
            found.append("the outbox does not hold exactly one delivered release")
        stored = {digest(bytes(row.envelope)) for row in rows}
        if set(self.wire.read_text().split()) != stored:
            found.append("other releases than the stored one were sent")
        if list(connection.execute(sa.select(STUDIES.c.state)).scalars()) != ["sent"]:
            found.append("the study is not recorded as sent")
        return found

    def _faults_of_tester(self, connection: sa.Connection, agents: dict[str, bytes]) -> list[str]:
        found = []
        releases = connection.execute(RELEASES.select()).all()
        wanted = {**self.releases, self.party: agents.get("release")}
        if {row.owner: bytes(row.envelope) for row in releases} != wanted:
            found.append("the tester holds other releases than were stored")
        if connection.execute(JOBS.select()).first() is not None:
            found.append("a job is left")
        verdicts = connection.execute(sa.select(VERDICTS.c.envelope)).scalars().all()
        if [bytes(verdict) for verdict in verdicts] != [agents.get("verdict")]:
            found.append("the tester's verdict is not the one that the agent got")
        transcript = transcript_of(connection, self.study) if verdicts else None
        try:
            outcome = verify_transcript(transcript or b"", key_of("tester").public_hex).verdict.outcome
        except VerificationError as error:
            return [*found, f"the transcript does not hold: {error}"]
        return found if outcome == "completed" else [*found, f"the study is {outcome}"]


def found_at_agent(engine: sa.Engine) -> dict[str, bytes]:
    """Return the release that the agent stored, and the verdict that it got."""

    def read(connection: sa.Connection) -> dict[str, bytes]:
        release = connection.execute(sa.select(OUTBOX.c.envelope)).scalar()
        verdict = connection.execute(sa.select(STUDIES.c.verdict)).scalar()
        both = {"release": release, "verdict": verdict}
        return {name: bytes(value) for name, value in both.items() if value is not None}

    return run_transaction(engine, read, read_only=True)


IMPORTED_LATE = ("pandas", "anyio._backends._asyncio", "uvicorn.lifespan.on", "uvicorn.loops.asyncio")
"""What the services' libraries import at first use: here before the forks, so that it is paid for once."""


def main(folder: str, agent_url: str, tester_url: str) -> None:
    configure_logging("ERROR")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    discovery.PROCEDURES[PROCEDURE.name] = PROCEDURE
    sweep = Sweep(Path(folder), agent_url, tester_url)
    gc.freeze()  # so that a child's collector does not copy every page
    for line in sys.stdin:
        case = json.loads(line)
        outcome = sweep.run(case["plan"], case["planted"])
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
