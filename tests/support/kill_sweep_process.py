"""Kills agents, curators and testers with SIGKILL, case after case.

``kill_sweep_process.py KIND FOLDER PARTY_URL TESTER_URL``, where the URLs are those of two databases.

Reads one case a line, ``{"plan": [step, ...], "planted": name or null}``, and writes one outcome a line,
``{"kills": n, "faults": [...]}``. Party and tester are processes of their own, forked from this one so that
imports are paid for once, and they speak HTTP over a loopback port. The plan's next step kills whichever of
the two comes to it; the process that is killed is started again at once, and its clock has passed the lease.

=========  ============================================================================================
agent      an owner's agent, and another owner who is never killed
peer       both agents of peer mode in one process, each with a database of its own, which die together:
           whichever of them comes to the step. ``publish`` plants no mistake: the receiver releases a
           private covariance
two rounds the same of a study whose first round is in the open: both release, and both pay. ``answers``
           plants no mistake: the procedure is distance_correlation by randomised answers
several    three agents, of mutual_independence: two send answers, and the third counts beside both
senders
masked     both agents of a study with masks, in one process as those of peer mode
reuse      nobody: the study only reads earlier releases again, and the tester does everything by itself
curator    a curator with the data of two owners. One of them decides by hand: its yes is given again and
           again until it has been recorded, as a person would who gets no answer
=========  ============================================================================================
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
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import agent_process
import curated_world
import httpx
import psycopg
import sqlalchemy as sa
from curated_world import CURATOR
from made_studies import SeededNoise
from world import (
    BY_ANSWERS,
    COUNTS,
    MASKED,
    NOW,
    PEER,
    POOLED,
    RECEIVER,
    SCREENING,
    SEVERAL,
    TWO_ROUNDS,
    Kind,
    enrol,
    exact_total,
    key_of,
    make_agent,
    make_tester,
    masked_study,
    owner_of,
    peer_study,
    sealed,
    study_of,
)

from tacit.setup.processes import free_ports
from tacit_protocol.messages.encoding import decode, digest, encode, encode_json
from tacit_protocol.messages.study import MaskKeyMessage, ReleaseMessage, SealedPackage, Study
from tacit_protocol.procedures import discovery
from tacit_protocol.signing import (
    MASK_KEY_TYPE,
    RELEASE_TYPE,
    draw_mask_secret,
    issue_token,
    mask_public_hex,
    open_envelope,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.schema import FINDINGS, MASK_SECRETS, OUTBOX, RECEIVED
from tacit_services.agent.schema import METADATA as AGENT_TABLES
from tacit_services.agent.schema import STUDIES as AGENT_STUDIES
from tacit_services.agent.study import mailbox, participant, releases
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.participant import AlreadyDecidedError, Participant
from tacit_services.agent.study.tester_client import TesterClient, TesterError, TesterUnavailableError
from tacit_services.curator import curator
from tacit_services.curator.data_sets import METADATA as CURATOR_TABLES
from tacit_services.ledger.entries import RESERVATIONS
from tacit_services.ledger.verification import export, verify
from tacit_services.shared import failpoints
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.failpoints import AcceptanceStep, TesterRelayStep, TesterStep
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.people import Person
from tacit_services.tester import studies
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import JOBS, RELEASES, REUSES, SEALED, STUDIES, STUDY_OWNERS, VERDICTS
from tacit_services.tester.tables import METADATA as TESTER_TABLES
from tacit_services.tester.verdicts import LEASE_S, Leases

PATIENCE_S = 300.0
"""How long a part of a case may take; it takes a fraction of a second."""

GOES_ON = "one-owner-pays"
"""The planted mistake after which a study is completed all the same."""

ROUNDS = 30
"""How often parties ask a tester that answers, once all kills are done, where any other mistake is planted.

A study that goes on has its verdict after a few.
"""


class Shared:
    """What supervisor, agent and tester share: the clock, whether to kill, how often that was done, and how
    often parties have asked since."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 32)
        self._started_s = time.monotonic()
        self.set(0.0, 0, 0)

    def set(self, offset_s: float, armed: int, kills: int) -> None:
        self._memory[:32] = struct.pack("dqqq", offset_s, armed, kills, 0)

    def get(self) -> tuple[float, int, int, int]:
        return struct.unpack("dqqq", self._memory[:32])

    def clock(self) -> float:
        return NOW + time.monotonic() - self._started_s + self.get()[0]

    # Each changes its own number alone: supervisor and children do so at once.

    def pass_lease(self) -> None:
        struct.pack_into("d", self._memory, 0, self.get()[0] + LEASE_S + 1)

    def arm(self) -> None:
        struct.pack_into("q", self._memory, 8, 1)

    def count_kill(self) -> None:
        struct.pack_into("qq", self._memory, 16, self.get()[2] + 1, 0)

    def count_round(self) -> None:
        struct.pack_into("q", self._memory, 24, self.get()[3] + 1)


WAIT_S_MAX = 60.0
"""How long a thread waits for the other; one that failed never comes."""

UPLOADED = {TesterStep.STUDY_INSERTED, TesterStep.RELEASE_INSERTED, TesterRelayStep.SEALED_INSERTED}


class StepOrder:
    """Stands in for ``failpoint`` in a tester: holds whoever overtakes, then calls it.

    A job is there for its worker before the upload's request comes to ``ANSWERING``, and a verdict can be
    read before its worker comes to ``VERDICT_STORED``. On a busy machine one thread then overtakes the other,
    and a plan of kills waits for a step that has been passed.
    """

    def __init__(self, failpoint: Callable[[str], None]) -> None:
        self._failpoint = failpoint
        self._answered, self._stored = threading.Event(), threading.Event()
        self._answered.set()
        self._stored.set()

    def __call__(self, step: str) -> None:
        if step in UPLOADED:
            self._answered.clear()
        elif step == TesterStep.VERDICT_INSERTED:
            self._stored.clear()
        elif step == TesterStep.JOB_LEASED:
            self._answered.wait(WAIT_S_MAX)
        elif step == TesterStep.VERDICT_SERVED:
            self._stored.wait(WAIT_S_MAX)
        self._failpoint(step)
        if step == TesterStep.ANSWERING:
            self._answered.set()
        elif step == TesterStep.VERDICT_STORED:
            self._stored.set()


class Sweep:
    """One supervisor: its databases, its parties' messages and the processes of the case under way.

    ``parties`` are those whose process is killed beside the tester's, each with its database.
    """

    parties: tuple[str, ...] = ("north",)
    component, data_set = "agent", "patients"
    kind = POOLED
    never = "the agent did not get its verdict"

    def __init__(self, folder: Path, party_url: str, tester_url: str) -> None:
        self.folder, self.shared = folder, Shared()
        self.urls = dict.fromkeys(self.parties[-1:], party_url) | {"tester": tester_url}
        self.urls |= {name: another_database(party_url, name) for name in self.parties[:-1]}
        self.plan: list[str] = []
        self.planted: str | None = None
        self.wire = folder / "wire"
        for name, url in self.urls.items():
            engine = create_engine(url)
            upgrade(engine, "tester" if name == "tester" else self.component)
            engine.dispose()
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        # No engine is connected before the fork: each child opens its own connections.
        self.engines = {name: create_engine(url) for name, url in self.urls.items()}
        self.tester = make_tester(folder, self.url, self.engines["tester"], self.shared.clock)
        self.clients = {name: self._client(name) for name in self.parties}
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=60)
        self.study, self.envelope = sealed(self.make_study())
        self.releases = self.make_releases()
        self.children: dict[str, int] = {}

    def _client(self, name: str) -> TesterClient:
        """Return a party's client, which writes down what it sends."""
        pause = lambda pause_s: time.sleep(pause_s / 100)  # noqa: E731
        client = TesterClient(self.url, self.url, key_of(name), self.shared.clock, pause)
        send = client.put_release

        def noted(study: str, party: str, envelope: bytes) -> None:
            with self.wire.open("a") as wire:
                wire.write(digest(envelope) + "\n")
            send(study, party, envelope)

        client.put_release = noted  # type: ignore[method-assign]
        return client

    # What the kinds of sweep differ in.

    def make_study(self) -> Study:
        return study_of(["north", "south"])

    def make_releases(self) -> dict[str, bytes]:
        """Return the releases that the tester holds and of nobody who is killed."""
        return {"south": release_of(self.study, "south", 2, 300)}

    def make_parties(self, noise: SeededNoise) -> dict[str, Any]:
        """Put the parties together, in a child."""
        return {
            name: make_agent(self.folder, name, self.kind, noise=noise, **self.uses(name))
            for name in self.parties
        }

    def uses(self, name: str) -> dict[str, Any]:
        return {"engine": self.engines[name], "client": self.clients[name], "clock": self.shared.clock}

    def steps_of(self, party: Any) -> list[Callable[[], Any]]:
        """Return what a party does, over and over."""
        fetcher = Fetcher(party)
        return [lambda: fetcher.poll(0), lambda: work(party), fetcher.fetch_verdicts]

    def reset_party(self, connection: sa.Connection) -> None:
        """Write what a party's database holds at the beginning, once its tables are empty."""

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, ["north", "south"])

    def wanted(self, name: str) -> dict[str, Any]:
        """Return what a party's database must hold in the end."""
        return {
            "debits": [(self.data_set, self.study)],
            "outbox": [("release", "delivered")],
            "states": ["sent"],
            "findings": 0,
        }

    def received(self, found: Mapping[str, Any]) -> list[bytes]:
        """Return what the last of the parties keeps of what the others sent."""
        return [envelope for name in self.parties[:-1] for envelope in found[name]["envelopes"]]

    # One case.

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
        if not self.parties or (self.plan and self.plan[0].startswith("tester.study.")):
            self.shared.arm()
        self._fork("tester")
        study = f"/v1/studies/{self.study}"
        others = [(f"{study}/releases/{name}", name, self.releases[name]) for name in self.uploaded()]
        for path, key, content in [(study, "ada", self.envelope), *others]:
            while not self._ask("PUT", path, key, content):
                if time.monotonic() > until:
                    return ["the tester took nothing"]
                self._restart_the_dead()
                self.pause()
        self.shared.arm()
        if self.parties:
            self._fork("agent")
        is_over = self.patience()
        while "agent" in self.children or not (self.parties or self._ask("GET", f"{study}/verdict", "ada")):
            if is_over():
                return [self.never]
            if not self.parties:
                self.shared.count_round()
            self._restart_the_dead()
            self.pause()
        return []

    def uploaded(self) -> list[str]:
        """Return whose releases are uploaded before the parties are started."""
        return list(self.releases)

    def patience(self) -> Callable[[], bool]:
        """Return what says whether a verdict, for which the wait begins now, is waited for no longer."""
        ends_s = time.monotonic() + PATIENCE_S

        def is_over() -> bool:
            _, _, kills, rounds = self.shared.get()
            stopped = self.planted not in {None, GOES_ON} and kills >= len(self.plan) and rounds >= ROUNDS
            return stopped or time.monotonic() > ends_s

        return is_over

    def pause(self) -> None:
        """Wait between two looks: longer where a mistake may have stopped everything."""
        time.sleep(0.1 if self.planted else 0.003)

    def _ask(self, method: str, path: str, party: str, content: bytes = b"") -> bool:
        """Say whether the tester took what is put, or has what is asked for."""
        token = issue_token(key_of(party), self.url, int(self.shared.clock()))
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        try:
            response = self.http.request(method, path, content=content, headers=headers)
        except httpx.TransportError:
            return False
        if method == "PUT" and response.status_code >= 300:
            raise RuntimeError(f"the tester refused: {response.text}")
        return response.status_code < 300

    def _fork(self, role: str) -> None:
        pid = os.fork()
        if pid != 0:
            self.children[role] = pid
            return
        code = 1
        try:
            self._become(role)
            code = 0
        except BaseException:
            traceback.print_exc()
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
        if self.planted in PLANTED:
            PLANTED[self.planted](self)
        if role == "tester":
            vars(failpoints)["failpoint"] = StepOrder(failpoints.failpoint)
            self.tester.state.worker.leases.holder = secrets.token_hex(16)
            serve(self.tester, "127.0.0.1", self.port, self.tester.state.stopping)
        else:
            self._be_parties()

    def get(self, _: str) -> str | None:
        """Stand in for the environment: which step kills now."""
        _, armed, kills, _ = self.shared.get()
        return self.plan[kills] if armed and kills < len(self.plan) else None

    def _kill(self, pid: int, sig: int) -> None:
        self.shared.count_kill()  # before dying, so that the next step of the plan counts from now on
        os.kill(pid, sig)

    def _be_parties(self) -> None:
        noise = SeededNoise(int.from_bytes(os.urandom(4)))  # another one after every start
        parties = self.make_parties(noise)
        # Whose confirmation was lost sends again, also where the last of them has the verdict by then.
        delivered = sa.select(OUTBOX.c.outcome).where(OUTBOX.c.outcome.is_not(None))
        got = sa.select(AGENT_STUDIES.c.verdict).where(AGENT_STUDIES.c.verdict.is_not(None))
        wanted = dict.fromkeys(self.parties, delivered) | {self.parties[-1]: got}
        while not all(
            run_transaction(self.engines[name], lambda c, q=query: c.execute(q).first(), read_only=True)
            for name, query in wanted.items()
        ):
            answers = True
            for party in parties.values():
                for step in self.steps_of(party):
                    try:
                        step()
                    except TesterUnavailableError:
                        answers = False
                    except TesterError:
                        continue
            if answers:
                self.shared.count_round()
            self.pause()

    def _reset(self) -> None:
        self.wire.write_text("")
        for name, url in self.urls.items():
            tables = [TESTER_TABLES] if name == "tester" else [CURATOR_TABLES, AGENT_TABLES]

            def clear(connection: sa.Connection, name: str = name, tables: Any = tables) -> None:
                existing = sa.inspect(connection).get_table_names()
                for table in (table for metadata in tables for table in reversed(metadata.sorted_tables)):
                    if table.name in existing:
                        connection.execute(table.delete())
                (self.enrol if name == "tester" else self.reset_party)(connection)

            at_once(url, clear)

    # What must hold in the end.

    def _faults(self) -> list[str]:
        """Say what is wrong once everything has come to rest."""
        found = {name: at_once(self.urls[name], read_party) for name in self.parties}
        faults = []
        for name, held in found.items():
            wanted = self.wanted(name)
            if held["debits"] != wanted["debits"]:
                faults.append(f"{len(held['debits'])} debits")
            if held["reserved"]:
                faults.append("a reservation is left")
            if held["outbox"] != wanted["outbox"]:
                faults.append("the outbox does not hold exactly one delivered release")
            faults += [
                f"{name} has other {key}: {held[key]}"
                for key in ("states", "findings")
                if held[key] != wanted[key]
            ]
        stored = {digest(envelope) for held in found.values() for envelope in held["envelopes"]}
        if set(self.wire.read_text().split()) != stored:
            faults.append("other releases than the stored one were sent")
        if self.parties and found[self.parties[-1]]["received"] != self.received(found):
            faults.append("the receiver keeps something else than the sender stored")
        return faults + at_once(self.urls["tester"], lambda c: self._faults_of_tester(c, found))

    def _faults_of_tester(self, connection: sa.Connection, found: Mapping[str, Any]) -> list[str]:
        faults = []
        rows = [(row.owner, bytes(row.envelope)) for row in connection.execute(RELEASES.select())]
        sent = {name: map(statement_of, held["envelopes"]) for name, held in found.items()}
        wanted = [*self.releases.items(), *((name, one) for name, all_ in sent.items() for one in all_)]
        if sorted(rows) != sorted(wanted):
            faults.append("the tester holds other releases than were stored")
        if connection.execute(JOBS.select()).first() is not None:
            faults.append("a job is left")
        if connection.execute(SEALED.select()).first() is not None:
            faults.append("a ciphertext is left at the tester")
        verdicts = [bytes(row) for row in connection.execute(sa.select(VERDICTS.c.envelope)).scalars()]
        if len(verdicts) != 1 or (self.parties and found[self.parties[-1]]["verdicts"] != verdicts):
            faults.append("the tester's verdict is not the one that was got")
        transcript = transcript_of(connection, self.study) if verdicts else None
        try:
            outcome = verify_transcript(transcript or b"", key_of("tester").public_hex).verdict.outcome
        except VerificationError as error:
            return [*faults, f"the transcript does not hold: {error}"]
        return faults if outcome == "completed" else [*faults, f"the study is {outcome}"]


class OwnersSweep(Sweep):
    """A supervisor of the agents of all owners of a study, in one process, and of a tester."""

    asked: ClassVar[Mapping[str | None, tuple[Kind, Study]]]
    """What is asked, by what is said in place of a planted mistake."""

    def __init__(self, folder: Path, party_url: str, tester_url: str) -> None:
        self.kind, study = self.asked[None]
        self.parties = tuple(owner.name for owner in study.owners)
        self.data_set = self.kind.data_set
        super().__init__(folder, party_url, tester_url)

    def make_study(self) -> Study:
        return self.asked[None][1]

    def make_releases(self) -> dict[str, bytes]:
        return {}

    def run(self, plan: list[str], planted: str | None) -> dict[str, Any]:
        self.said = planted if planted in self.asked else None
        self.kind, study = self.asked[self.said]
        self.study, self.envelope = sealed(study)
        return super().run(plan, None if self.said else planted)

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, self.parties)


class PeerSweep(OwnersSweep):
    """One owner's release is sealed to the other, who spends nothing unless it publishes."""

    asked: ClassVar = {None: (PEER, peer_study()), "publish": (PEER, peer_study(publish=True))}

    def wanted(self, name: str) -> dict[str, Any]:
        wanted = super().wanted(name)
        if name == RECEIVER:
            wanted["findings"] = 1
            if not self.said:
                wanted |= {"debits": [], "outbox": [("receipt", "delivered")]}
        return wanted


class TwoRoundSweep(OwnersSweep):
    """The same of a study whose first round is in the open."""

    asked: ClassVar = {
        None: (TWO_ROUNDS, TWO_ROUNDS.study()),
        "answers": (BY_ANSWERS, BY_ANSWERS.study()),
        "screening": (SCREENING, SCREENING.study()),
    }


class SeveralSendersSweep(OwnersSweep):
    """Two of three owners send to the third."""

    asked: ClassVar = {None: (SEVERAL, SEVERAL.study())}

    def received(self, found: Mapping[str, Any]) -> list[bytes]:
        sent = {name: found[name]["envelopes"] for name in self.parties[:-1]}
        if any(len(own) != 1 for own in sent.values()):
            return []
        return [encode_json({name: one.decode() for name, (one,) in sent.items()})]


class MaskedSweep(OwnersSweep):
    """Two owners mask.

    Whatever dies and whenever, keys are drawn once and the masks cancel: the sum is near the exact one, which
    that of masks which do not cancel is with a probability of one in a million million.
    """

    asked: ClassVar = {None: (COUNTS, masked_study(MASKED[:2]))}

    def received(self, found: Mapping[str, Any]) -> list[bytes]:
        """Return the keys that the first party keeps: both keep the same."""
        kept: list[bytes] = found[self.parties[0]]["received"]
        return kept

    def _faults_of_tester(self, connection: sa.Connection, found: Mapping[str, Any]) -> list[str]:
        faults = super()._faults_of_tester(connection, found)
        if any(held["secrets"] for held in found.values()):
            faults.append("a secret is left")
        if not faults:
            transcript = transcript_of(connection, self.study) or b""
            (counts,) = verify_transcript(transcript).result.counts.values()  # type: ignore[union-attr]
            exact = exact_total(self.parties)
            if max(abs(count - own) for count, own in zip(counts, exact, strict=False)) > 1000:
                faults.append("the masks do not cancel")
        return faults


class ReuseSweep(Sweep):
    """A supervisor of a tester that holds a completed study, and is sent one that reuses its releases."""

    parties, never = (), "there is no verdict"
    owners = ("north", "south")

    def make_study(self) -> Study:
        self.source, self.source_envelope = sealed(study_of(self.owners, title="Earlier"))
        owners = tuple(owner_of(name, None, "patients", reuses=self.source) for name in self.owners)
        return study_of(self.owners, owners=owners)

    def make_releases(self) -> dict[str, bytes]:
        """Return the releases of the earlier study."""
        return {
            name: release_of(self.source, name, place, 300 + place) for place, name in enumerate(self.owners)
        }

    def uploaded(self) -> list[str]:
        return []

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, self.owners)
        connection.execute(
            STUDIES.insert().values(
                digest=self.source,
                envelope=self.source_envelope,
                title="Earlier",
                procedure=POOLED.procedure.name,
                analyst_key=key_of("ada").public_hex,
                state="completed",
                created_at=NOW,
                deadline=NOW + 1,
            )
        )
        for place, (name, envelope) in enumerate(self.releases.items()):
            row, key = {"study": self.source, "owner": name}, key_of(name).public_hex
            payload = open_envelope(envelope, RELEASE_TYPE, key)
            connection.execute(STUDY_OWNERS.insert().values(**row, position=place, key=key))
            connection.execute(
                RELEASES.insert().values(
                    **row, envelope=envelope, digest=digest(payload), units=60, received_at=NOW
                )
            )

    def _faults_of_tester(self, connection: sa.Connection, found: Mapping[str, Any]) -> list[str]:
        faults = super()._faults_of_tester(connection, found)
        rows = connection.execute(sa.select(REUSES.c.owner, REUSES.c.source).order_by(REUSES.c.owner)).all()
        if [tuple(row) for row in rows] != [(name, self.source) for name in self.owners]:
            faults.append("what is reused is recorded wrongly")
        return faults


class CuratorSweep(Sweep):
    """A supervisor whose party is a curator."""

    parties, component = (CURATOR,), "curator"
    owners, by_hand = ("north", "west"), "west"

    def make_study(self) -> Study:
        return curated_world.curated_study_of(self.owners)

    def make_releases(self) -> dict[str, bytes]:
        self.data_sets = curated_world.make_data_sets(self.folder, self.owners)
        return {}

    def make_parties(self, noise: SeededNoise) -> dict[str, Any]:
        return {CURATOR: curated_world.make_curator(self.data_sets, noise=noise, **self.uses(CURATOR))}

    def steps_of(self, party: Any) -> list[Callable[[], Any]]:
        def decide() -> None:
            with suppress(AlreadyDecidedError):
                party.approve(self.study, self.by_hand, Person(""))

        poll, *rest = super().steps_of(party)
        return [poll, decide, *rest]

    def reset_party(self, connection: sa.Connection) -> None:
        curated_world.register_owners(connection, self.data_sets, self.owners, [self.by_hand])

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, self.parties, "curator")

    def wanted(self, name: str) -> dict[str, Any]:
        debits = [(f"{owner}/patients", self.study) for owner in self.owners]
        return super().wanted(name) | {"debits": debits}


def release_of(study: str, owner: str, seed: int, total: int) -> bytes:
    """Return the envelope of an owner's release of a sum."""
    release = POOLED.procedure.privatise(study_of([owner]), (60, total << 20), SeededNoise(seed))
    message = ReleaseMessage(study=study, party=owner, release=release)
    return sign_envelope(encode(message), RELEASE_TYPE, key_of(owner))


def at_once(url: str, work: Callable[[sa.Connection], Any]) -> Any:
    """Do something in one transaction of a connection of its own."""
    engine = create_engine(url)
    try:
        return run_transaction(engine, work)
    finally:
        engine.dispose()


def another_database(url: str, party: str) -> str:
    """Return the URL of another party's database beside the one given; makes it where it is PostgreSQL's."""
    if url.startswith("sqlite"):
        return url.replace("party.sqlite3", f"{party}.sqlite3")
    name = sa.make_url(url).database or ""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_{party}".encode())
    return url.replace(f"/{name}", f"/{name}_{party}")


def read_party(connection: sa.Connection) -> dict[str, Any]:
    """Return what a party's database holds, and check its ledger."""
    verify(connection)
    rows = connection.execute(OUTBOX.select()).all()
    entries = [entry for entry in export(connection) if entry["kind"] == "debit"]
    verdicts = connection.execute(sa.select(AGENT_STUDIES.c.verdict)).scalars()
    found: dict[str, Any] = {"findings": 0, "received": []}
    if sa.inspect(connection).has_table(FINDINGS.name):  # an agent's, not a curator's
        found["findings"] = len(connection.execute(FINDINGS.select()).all())
        received = connection.execute(sa.select(RECEIVED.c.package)).scalars()
        found["received"] = [bytes(package) for package in received]
        found["secrets"] = len(connection.execute(MASK_SECRETS.select()).all())
    return found | {
        "debits": [(entry["data_set"], entry["study"]) for entry in entries],
        "reserved": len(connection.execute(RESERVATIONS.select()).all()),
        "outbox": [(row.kind, row.outcome) for row in rows],
        "envelopes": [bytes(row.envelope) for row in rows],
        "states": list(connection.execute(sa.select(AGENT_STUDIES.c.state)).scalars()),
        "verdicts": [bytes(verdict) for verdict in verdicts if verdict is not None],
    }


def statement_of(envelope: bytes) -> bytes:
    """Return what the tester keeps of an answer: of a sealed release, its statement alone."""
    if "statement" in json.loads(envelope):
        return decode(SealedPackage, envelope).statement.encode()
    return envelope


# Planted mistakes.


def delete_job_when_leased(_: Sweep) -> None:
    take: Any = Leases.take

    def lose(leases: Leases, connection: sa.Connection) -> str | None:
        study: str | None = take(leases, connection)
        connection.execute(JOBS.delete())
        return study

    Leases.take = lose  # type: ignore[method-assign]
    Leases.require = Leases.finish = lambda *_: None  # type: ignore[method-assign]


def plant_in_agent(sweep: Sweep) -> None:
    agent_process.plant(str(sweep.planted))
    agent_process.CLIENTS.extend(sweep.clients.values())


def store_findings_outside(sweep: Sweep) -> None:
    """What was found is stored before the transaction that stores the answer."""
    genuine, patched = releases.Releaser._summarise, vars(releases)["Releaser"]
    put: Any = releases.put_finding

    def summarise(self: Any, job: Any, received: Any, table: Any) -> Any:
        units, summary = genuine(self, job, received, table)
        if received is not None:
            try:
                run_transaction(
                    sweep.engines[RECEIVER],
                    lambda connection: put(connection, job.digest, summary.finding, 0),
                )
            except sa.exc.IntegrityError:
                raise TesterError("stored before") from None  # what the loop goes on after
        return units, summary

    patched._summarise = summarise
    vars(releases)["put_finding"] = lambda *_: None


def reserve_outside(_: Sweep) -> None:
    """What a study costs is reserved in a transaction of its own, before the one that approves.

    What is reserved already is taken for another's.
    """
    genuine, reserve = Participant.take_in, participant.reserve
    patched: Any = Participant

    def reserve_new(connection: sa.Connection, account: str, job: Any, now: int) -> bool:
        own = (RESERVATIONS.c.data_set == account, RESERVATIONS.c.study == job.digest)
        if connection.execute(RESERVATIONS.select().where(*own)).first() is not None:
            return False
        reserve(connection, account, job.digest, job.cost, at=now)
        return True

    def decide(self: Any, item: Any, envelope: bytes) -> None:
        job = self.intake.accept(item.digest, self.intake.authenticate(item.digest, envelope), self.now())
        for part in job.parts:
            if not run_transaction(self.engine, lambda c, a=part.account: reserve_new(c, a, job, self.now())):
                raise TesterError("reserved before")  # what the loop goes on after
        failpoints.reached(AcceptanceStep.RESERVED)
        genuine(self, item, envelope)

    patched.take_in = decide
    vars(participant)["reserve"] = lambda *_, **__: None


def let_one_owner_pay(_: Sweep) -> None:
    """The account of one owner alone is debited."""
    genuine = curator.debit_parts
    vars(curator)["debit_parts"] = lambda connection, job, at: genuine(
        connection, replace(job, parts=job.parts[:1]), at=at
    )


def keep_secrets_in_memory(_: Sweep) -> None:
    """The secret of a study's masks is not in the database, and dies with the process."""
    kept: dict[tuple[str, str], bytes] = {}

    def put(connection: sa.Connection, study: str, secret: bytes, at: int) -> None:
        kept[str(connection.engine.url), study] = secret

    vars(participant)["put_mask_secret"] = put
    for module in (mailbox, releases):
        vars(module)["mask_secret_of"] = lambda c, study: kept.get((str(c.engine.url), study))


def draw_secrets_outside(_: Sweep) -> None:
    """The key is shown before the transaction that keeps its secret, which a crash has drawn again."""
    keep: Any = Participant._keep_cost
    patched: Any = Participant

    def keep_cost(self: Any, connection: sa.Connection, job: Any) -> None:
        if job.masking is not None:
            secret = draw_mask_secret()
            shown = MaskKeyMessage(study=job.digest, party=job.sender, key=mask_public_hex(secret))
            with suppress(TesterError):
                envelope = sign_envelope(encode(shown), MASK_KEY_TYPE, self.key)
                self.client.put_mask_key(job.digest, self.name, envelope)
            vars(participant)["draw_mask_secret"] = lambda: secret
        keep(self, connection, job)

    patched._keep_cost = keep_cost


def never_queue(_: Sweep) -> None:
    vars(studies)["queue_verdict"] = lambda *_: None


def never_record(_: Sweep) -> None:
    vars(studies)["record_reuses"] = lambda *_: None


PLANTED: dict[str | None, Callable[[Sweep], None]] = {
    "job-deleted-when-leased": delete_job_when_leased,
    "debit-outside": plant_in_agent,
    "send-before-storing": plant_in_agent,
    "finding-outside": store_findings_outside,
    "reserve-outside": reserve_outside,
    "secret-in-memory": keep_secrets_in_memory,
    "key-shown-outside": draw_secrets_outside,
    GOES_ON: let_one_owner_pay,
    "never-queued": never_queue,
    "not-recorded": never_record,
}

SWEEPS: dict[str, type[Sweep]] = {
    "agent": Sweep,
    "peer": PeerSweep,
    "two rounds": TwoRoundSweep,
    "several senders": SeveralSendersSweep,
    "masked": MaskedSweep,
    "reuse": ReuseSweep,
    "curator": CuratorSweep,
}

IMPORTED_LATE = ("pandas", "anyio._backends._asyncio", "uvicorn.lifespan.on", "uvicorn.loops.asyncio")
"""What the services' libraries import at first use: here before the forks, so that it is paid for once."""


def answer_cases(run: Callable[[list[str], str | None], dict[str, Any]]) -> None:
    """Read cases, run them, and write what came of them."""
    gc.freeze()  # so that a child's collector does not copy every page
    for line in sys.stdin:
        case = json.loads(line)
        sys.stdout.write(json.dumps(run(case["plan"], case["planted"])) + "\n")
        sys.stdout.flush()


def main(kind: str, folder: str, party_url: str, tester_url: str) -> None:
    configure_logging("ERROR")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    for procedure in (POOLED.procedure, curated_world.CuratedSum(), TWO_ROUNDS.procedure):
        discovery.PROCEDURES[procedure.name] = procedure
    answer_cases(SWEEPS[kind](Path(folder), party_url, tester_url).run)


if __name__ == "__main__":
    main(*sys.argv[1:])
