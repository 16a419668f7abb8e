"""Kills the agents of peer mode, and the tester, as kill_sweep_process.py does an agent and a tester.

Both agents live in one process, each with its own database, and die together: whichever of them comes to the
plan's step. The planted value ``publish`` is no mistake: the receiver then releases a private covariance.
"""

import gc
import importlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from fault_world import enrol, key_of, sealed
from kill_sweep_process import IMPORTED_LATE, Sweep
from peer_world import RECEIVER, SENDER, GaussianNoise, make_peer_agent, peer_study, write_source

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.release import SealedPackage
from tacit_protocol.messages.study import Study
from tacit_protocol.signing.envelope import digest
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent import releases
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import FINDINGS, OUTBOX, RECEIVED, STUDIES
from tacit_services.agent.schema import METADATA as AGENT_TABLES
from tacit_services.agent.tester_client import TesterClient, TesterError
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.logging import configure_logging
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import JOBS, RELEASES, SEALED, VERDICTS


class PeerSweep(Sweep):
    """A supervisor of two agents in one process, and of a tester."""

    party = RECEIVER

    def __init__(self, folder: Path, agent_url: str, tester_url: str) -> None:
        self.publish = False
        self.sender_url = another_database(agent_url)
        engine = create_engine(self.sender_url)
        upgrade(engine, "agent")
        engine.dispose()
        super().__init__(folder, agent_url, tester_url)
        self.sender_engine = create_engine(self.sender_url)
        self.studies = {publish: sealed(peer_study(publish)) for publish in (False, True)}
        for name in (SENDER, RECEIVER):
            write_source(folder, name)

    def make_study(self) -> Study:
        return peer_study(self.publish)

    def make_releases(self) -> dict[str, bytes]:
        return {}

    def run(self, plan: list[str], planted: str | None) -> dict[str, Any]:
        self.publish = planted == "publish"
        self.study, self.envelope = self.studies[self.publish]
        return super().run(plan, None if self.publish else planted)

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, [SENDER, RECEIVER])

    def _reset(self) -> None:
        super()._reset()
        engine = create_engine(self.sender_url)

        def clear(connection: sa.Connection) -> None:
            for table in reversed(AGENT_TABLES.sorted_tables):
                connection.execute(table.delete())

        run_transaction(engine, clear)
        engine.dispose()

    def _be_agent(self) -> None:
        if self.planted == "finding-outside":
            store_findings_outside(self.agent_engine)
        agents = [self._make(SENDER, self.sender_engine), self._make(RECEIVER, self.agent_engine)]
        got = sa.select(STUDIES.c.verdict).where(STUDIES.c.verdict.is_not(None))
        # A sender whose confirmation was lost sends again, also where the receiver has the verdict by then.
        delivered = sa.select(OUTBOX.c.outcome).where(OUTBOX.c.outcome.is_not(None))
        wanted = [(self.agent_engine, got), (self.sender_engine, delivered)]
        while not all(
            run_transaction(e, lambda c, q=q: c.execute(q).first(), read_only=True) for e, q in wanted
        ):
            for agent in agents:
                for step in (lambda agent=agent: agent.poll(0), agent.work, agent.fetch_verdicts):
                    with suppress(TesterError):
                        step()
            self.pause()

    def _make(self, name: str, engine: sa.Engine) -> Agent:
        pause = lambda pause_s: time.sleep(pause_s / 100)  # noqa: E731 (as the base's)
        client = TesterClient(self.url, self.url, key_of(name), self.shared.clock, pause)
        send = client.put_release

        def noted(study: str, party: str, envelope: bytes) -> None:
            with self.wire.open("a") as wire:
                wire.write(digest(envelope) + "\n")
            send(study, party, envelope)

        client.put_release = noted  # type: ignore[method-assign]
        noise = GaussianNoise(int.from_bytes(os.urandom(4)))  # another after every start
        return make_peer_agent(
            self.folder, name, engine=engine, client=client, noise=noise, clock=self.shared.clock
        )

    def _faults(self) -> list[str]:
        urls = (self.sender_url, *self.urls)
        sender, receiver, tester = engines = [create_engine(url) for url in urls]
        try:
            sent, found = read_agent(sender), read_agent(receiver)
            faults = self._faults_of(SENDER, sent, "release", debits=1, findings=0)
            kind = "release" if self.publish else "receipt"
            faults += self._faults_of(RECEIVER, found, kind, debits=int(self.publish), findings=1)
            if found["received"] != sent["envelopes"]:
                faults.append("the receiver keeps something else than the sender stored")
            if set(self.wire.read_text().split()) != {
                digest(envelope) for envelope in sent["envelopes"] + found["envelopes"]
            }:
                faults.append("other answers than the stored ones were sent")
            return faults + run_transaction(tester, lambda c: self._at_tester(c, sent, found), read_only=True)
        finally:
            for engine in engines:
                engine.dispose()

    def _faults_of(
        self, name: str, agent: dict[str, Any], kind: str, *, debits: int, findings: int
    ) -> list[str]:
        wanted = {
            "debits": [("people", self.study)] * debits,
            "outbox": [(kind, "delivered")],
            "states": ["sent"],
            "findings": findings,
        }
        return [f"{name} has other {key}: {agent[key]}" for key, want in wanted.items() if agent[key] != want]

    def _at_tester(self, connection: sa.Connection, sent: dict[str, Any], found: dict[str, Any]) -> list[str]:
        faults = []
        held = {row.owner: bytes(row.envelope) for row in connection.execute(RELEASES.select())}
        statements = [decode(SealedPackage, package).statement.encode() for package in sent["envelopes"]]
        if [held.get(SENDER)] != statements or [held.get(RECEIVER)] != found["envelopes"]:
            faults.append("the tester holds other answers than were stored")
        if connection.execute(SEALED.select()).first() is not None:
            faults.append("a ciphertext is left at the tester")
        if connection.execute(JOBS.select()).first() is not None:
            faults.append("a job is left")
        verdicts = [bytes(row) for row in connection.execute(sa.select(VERDICTS.c.envelope)).scalars()]
        if verdicts != found["verdicts"]:
            faults.append("the tester's verdict is not the one that the receiver got")
        try:
            transcript = (transcript_of(connection, self.study) if verdicts else None) or b""
            outcome = verify_transcript(transcript, key_of("tester").public_hex).verdict.outcome
        except VerificationError as error:
            return [*faults, f"the transcript does not hold: {error}"]
        return faults if outcome == "completed" else [*faults, f"the study is {outcome}"]


def another_database(url: str) -> str:
    """Return the URL of a second database beside the one given; makes it where it is PostgreSQL's."""
    if url.startswith("sqlite"):
        return url.replace("party.sqlite3", "sender.sqlite3")
    name = sa.make_url(url).database or ""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_sender".encode())
    return url.replace(f"/{name}", f"/{name}_sender")


def read_agent(engine: sa.Engine) -> dict[str, Any]:
    """Return what an agent's database holds, and check its ledger."""

    def read(connection: sa.Connection) -> dict[str, Any]:
        verify(connection)
        rows = connection.execute(OUTBOX.select()).all()
        entries = [entry for entry in export(connection) if entry["kind"] == "debit"]
        packages = connection.execute(sa.select(RECEIVED.c.package)).scalars()
        verdicts = connection.execute(sa.select(STUDIES.c.verdict)).scalars()
        return {
            "debits": [(entry["data_set"], entry["study"]) for entry in entries],
            "outbox": [(row.kind, row.outcome) for row in rows],
            "envelopes": [bytes(row.envelope) for row in rows],
            "states": list(connection.execute(sa.select(STUDIES.c.state)).scalars()),
            "findings": len(connection.execute(FINDINGS.select()).all()),
            "received": [bytes(package) for package in packages],
            "verdicts": [bytes(verdict) for verdict in verdicts if verdict is not None],
        }

    return run_transaction(engine, read, read_only=True)


def store_findings_outside(engine: sa.Engine) -> None:
    """Plant: what was found is stored before the transaction that stores the answer."""
    genuine, patched = releases.Releaser._summarise, vars(releases)["Releaser"]
    put: Any = releases.put_finding

    def summarise(self: Any, job: Any, received: Any) -> Any:
        units, summary = genuine(self, job, received)
        if received is not None:
            try:
                run_transaction(engine, lambda connection: put(connection, job.digest, summary.finding, 0))
            except sa.exc.IntegrityError:
                raise TesterError("stored before") from None  # what the loop goes on after
        return units, summary

    patched._summarise = summarise
    vars(releases)["put_finding"] = lambda *_: None


def main(folder: str, agent_url: str, tester_url: str) -> None:
    configure_logging("ERROR")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    sweep = PeerSweep(Path(folder), agent_url, tester_url)
    gc.freeze()
    for line in sys.stdin:
        case = json.loads(line)
        sys.stdout.write(json.dumps(sweep.run(case["plan"], case["planted"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
