"""A federation in memory whose network, clocks and processes misbehave as a test tells them to.

Real agents, each on an SQLite database of its own, speak to a real tester over ASGI; nothing listens and
nothing sleeps. What the network does to each request is said beforehand:

=============  ========================================================================================
ok             it arrives and its answer returns
request lost   it never arrives
answer lost    it arrives, its answer does not return
twice          it arrives twice, and the second answer returns
late           its sender gives up; it arrives when the test says so, perhaps after others
=============  ========================================================================================
"""

import asyncio
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import sqlalchemy as sa
from fastapi import FastAPI
from fault_world import (
    NOW,
    URL,
    check_account,
    enrol,
    key_of,
    make_agent,
    make_tester,
    sealed,
    study_of,
)
from made_studies import SeededNoise

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import CancellationMessage, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import CANCELLATION_TYPE, issue_token, sign_envelope
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.agent import AlreadyDecidedError
from tacit_services.agent.schema import OUTBOX, State
from tacit_services.agent.schema import STUDIES as AGENT_STUDIES
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.tester_client import TesterClient, TesterError
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import STUDIES as TESTER_STUDIES
from tacit_services.tester.tables import VERDICTS

Fault = Literal["ok", "request lost", "answer lost", "twice", "late"]
Result = TypeVar("Result")

OWNERS = ("east", "north", "south", "west")
BY_HAND = "west"
"""The owner whose steward decides."""

ROUNDS_MAX = 4
"""Rounds of polling and working after which a healed federation has come to rest."""


class SimulatedKillError(BaseException):
    """The process dies here: nothing of it goes on, nothing is committed."""


class Network:
    """Carries requests to whichever tester runs now, and does to them what it was told to."""

    def __init__(self) -> None:
        self.app: FastAPI | None = None
        self.loop = asyncio.new_event_loop()
        self.faults: deque[Fault] = deque()
        self.late: list[httpx.Request] = []
        self.bodies: dict[tuple[str, str], set[bytes]] = defaultdict(set)
        """Every body that was ever sent to a study's releases, by path and kind."""

    def deliver(self, request: httpx.Request) -> httpx.Response:
        """Let a request arrive."""
        assert self.app is not None
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)

        async def exchange() -> httpx.Response:
            copy = httpx.Request(
                request.method, request.url, headers=request.headers, content=request.content
            )
            response = await transport.handle_async_request(copy)
            content = await response.aread()
            return httpx.Response(
                response.status_code, headers=response.headers, stream=httpx.ByteStream(content)
            )

        return self.loop.run_until_complete(exchange())

    def carry(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if request.method == "PUT":
            self.bodies[request.url.path, "PUT"].add(request.content)
        fault = self.faults.popleft() if self.faults else "ok"
        if fault == "request lost":
            raise httpx.ConnectTimeout("lost")
        if fault == "late":
            self.late.append(request)
            raise httpx.ReadTimeout("late")
        response = self.deliver(request)
        if fault == "twice":
            response = self.deliver(request)
        if fault == "answer lost":
            raise httpx.ReadTimeout("lost")
        return response

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Simulation:
    """One history: parties, their clocks, and what is known of what they did.

    ``parties`` are those who answer studies; their databases begin as copies of the one for ``component``.
    """

    parties: tuple[str, ...] = OWNERS
    component = "agent"

    def __init__(self, folder: Path, templates: Path, seed: int = 0) -> None:
        self.folder, self.seed, self.starts = folder, seed, 0
        self.now, self.skews = float(NOW), dict.fromkeys([*self.parties, "tester", "ada"], 0.0)
        self.network, self.agents = Network(), dict[str, Any]()
        self.studies: dict[str, Study] = {}
        self.touched: set[str] = set(self.parties)
        self.verdicts: dict[str, bytes] = {}
        """Every study's verdict when it was first seen: it must never change."""
        for name in (*self.parties, "tester"):
            source = templates / ("tester" if name == "tester" else self.component)
            shutil.copy(source, folder / f"{name}.sqlite3")
        self.engines = {name: self._engine(name) for name in (*self.parties, "tester")}
        self.restart_tester()
        for party in self.parties:
            self.restart_agent(party)

    @classmethod
    def make_templates(cls, folder: Path) -> None:
        """Write the databases that every history begins with."""
        for component, fill in ((cls.component, cls.fill_party), ("tester", cls.fill_tester)):
            engine = create_engine(f"sqlite:///{folder / component}")
            upgrade(engine, component)
            run_transaction(engine, fill)
            engine.dispose()

    @staticmethod
    def fill_party(connection: sa.Connection) -> None:
        """Write what a party's database holds at the beginning."""

    @staticmethod
    def fill_tester(connection: sa.Connection) -> None:
        enrol(connection, OWNERS)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.dispose()
        for agent in self.agents.values():
            agent.client.close()
        self.network.close()

    def _engine(self, name: str) -> sa.Engine:
        return create_engine(f"sqlite:///{self.folder / name}.sqlite3")

    def clock_of(self, party: str) -> Callable[[], float]:
        return lambda: self.now + self.skews[party]

    # What happens in a history.

    def restart_tester(self) -> None:
        self.engines["tester"].dispose()
        self.network.app = make_tester(self.folder, URL, self.engines["tester"], self.clock_of("tester"))

    def restart_agent(self, owner: str) -> None:
        self.engines[owner].dispose()
        if owner in self.agents:
            self.agents[owner].client.close()
        self.starts += 1
        clock = self.clock_of(owner)
        transport = httpx.MockTransport(self.carry)
        self.agents[owner] = self.make_agent(
            owner,
            engine=self.engines[owner],
            client=TesterClient(URL, URL, key_of(owner), clock, lambda _: None, transport=transport),
            noise=SeededNoise(1000 * self.seed + self.starts),
            clock=clock,
        )

    def carry(self, request: httpx.Request) -> httpx.Response:
        """Carry a party's request to the tester."""
        return self.network.carry(request)

    def make_agent(self, owner: str, **uses: Any) -> Any:
        """Put a party together."""
        return make_agent(self.folder, owner, by_hand=owner == BY_HAND, **uses)

    def create(self, owners: Sequence[str], epsilon: str, deadline_in_s: int) -> str:
        study = self.study_of(
            owners,
            title=f"study {len(self.studies)}",
            budget=Budget.of(epsilon, "1e-6"),
            deadline=int(self.now) + deadline_in_s,
        )
        name, envelope = sealed(study)
        self.studies[name] = study
        self.put_as_analyst(f"/v1/studies/{name}", envelope)
        return name

    def study_of(self, owners: Sequence[str], **fields: Any) -> Study:
        return study_of(owners, **fields)

    def create_again(self, name: str) -> None:
        self.put_as_analyst(f"/v1/studies/{name}", sealed(self.studies[name])[1])

    def cancel(self, name: str) -> None:
        envelope = sign_envelope(encode(CancellationMessage(study=name)), CANCELLATION_TYPE, key_of("ada"))
        self.put_as_analyst(f"/v1/studies/{name}/cancellation", envelope)

    def put_as_analyst(self, path: str, content: bytes) -> None:
        token = issue_token(key_of("ada"), URL, int(self.clock_of("ada")()))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        with suppress(httpx.TransportError):
            self.network.carry(httpx.Request("PUT", URL + path, headers=headers, content=content))

    def act(self, owner: str, action: str) -> None:
        """Let an agent poll, work, or ask for verdicts, through the network as it is."""
        agent = self.agents[owner]
        self.touched.add(owner)
        steps: dict[str, Callable[[], Any]] = {
            "poll": lambda: Fetcher(agent).poll(0),
            "work": lambda: work(agent),
            "fetch": Fetcher(agent).fetch_verdicts,
        }
        with suppress(TesterError):
            steps[action]()

    def decide(self, name: str, approve: bool) -> None:
        agent = self.agents[BY_HAND]
        with suppress(AlreadyDecidedError):
            if approve:
                agent.approve(name)
            else:
                agent.decline(name, None)

    def work_at_tester(self) -> None:
        self.network.app.state.worker.run_once()

    def deliver_late(self, index: int) -> None:
        if self.network.late:
            self.network.deliver(self.network.late.pop(index % len(self.network.late)))

    # What must hold.

    def read(self, party: str, work: Callable[[sa.Connection], Result]) -> Result:
        return run_transaction(self.engines[party], work, read_only=True)

    def check(self) -> None:
        """Check what must hold at every moment of every history, of those who did something since."""
        touched, self.touched = sorted(self.touched), set()
        for owner in touched:
            self.read(owner, lambda connection, owner=owner: self._check_owner(connection, owner))  # type: ignore[misc]
        for row in self.read("tester", lambda c: c.execute(VERDICTS.select()).all()):
            first = self.verdicts.setdefault(row.study, bytes(row.envelope))
            assert bytes(row.envelope) == first, "a verdict changed"

    def _check_owner(self, connection: sa.Connection, owner: str) -> None:
        debits = check_account(connection, "patients")
        verify(connection)
        rows = connection.execute(OUTBOX.select()).all()
        releases = {row.study: bytes(row.envelope) for row in rows if row.kind == "release"}
        studies = [entry.study for entry in debits]
        assert len(set(studies)) == len(studies), "a study was debited twice"
        assert set(studies) == set(releases), "debits and releases differ"
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"

    def heal(self) -> None:
        """End every fault, let everybody finish, and check that everything has come to its end."""
        self.network.faults.clear()
        self.skews = dict.fromkeys(self.skews, 0.0)
        while self.network.late:
            self.deliver_late(0)
        for name in list(self.studies):
            self.create_again(name)
        for _ in range(ROUNDS_MAX):
            if not self._is_unsettled():
                break
            self._round()
        if self._is_unsettled():
            self.now += 2 * 24 * 3600  # past every deadline and every lease
            self._round()
            self._round()
        self.touched = set(self.parties)
        self.check()
        self._check_ends()

    def _is_unsettled(self) -> bool:
        return bool({"collecting", "computing"} & set(self._states().values()))

    def _round(self) -> None:
        waiting = sa.select(AGENT_STUDIES.c.digest).where(AGENT_STUDIES.c.state == State.WAITING.value)
        for party in self.parties:
            self.act(party, "poll")
            for name in self.read(party, lambda c: list(c.execute(waiting).scalars())):
                self.decide(name, approve=True)
            self.act(party, "work")
        self.work_at_tester()
        self.now += 31  # past a lease that a killed tester held, and past a retry's pause

    def _states(self) -> dict[str, str]:
        query = sa.select(TESTER_STUDIES.c.digest, TESTER_STUDIES.c.state)
        return {row.digest: row.state for row in self.read("tester", lambda c: c.execute(query).all())}

    def _check_ends(self) -> None:
        for name, state in self._states().items():
            assert state in {"completed", "incomplete", "cancelled"}, f"a study is left {state}"
            transcript = self.read("tester", lambda c, n=name: transcript_of(c, n))  # type: ignore[misc]
            assert transcript is not None
            try:
                verified = verify_transcript(transcript, key_of("tester").public_hex)
            except VerificationError as error:
                raise AssertionError(f"the transcript does not hold: {error}") from None
            assert verified.verdict.outcome == state
            if verified.result is not None:  # the same for every order of the releases
                backwards = dict(reversed(list(verified.releases.items())))
                procedure = procedure_named(verified.study.procedure)
                assert procedure.assemble(verified.study, backwards) == verified.result
