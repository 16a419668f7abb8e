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
import json
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.dependencies import models as fastapi_models
from made_studies import SeededNoise
from world import (
    COUNTS,
    MASKED,
    NOW,
    PEER,
    POOLED,
    RECEIVER,
    SENDER,
    TWO_ROUNDS,
    URL,
    Kind,
    check_account,
    enrol,
    key_of,
    make_agent,
    make_tester,
    masked_study,
    peer_study,
    release_in,
    sealed,
    study_of,
)

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import CancellationMessage, Study
from tacit_protocol.privacy.guarantee import Budget, LaplaceEvent
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import CANCELLATION_TYPE, issue_token, sign_envelope
from tacit_protocol.verification import VerificationError, VerifiedTranscript, verify_transcript
from tacit_services.agent.agent import AlreadyDecidedError
from tacit_services.agent.schema import OUTBOX, State
from tacit_services.agent.schema import STUDIES as AGENT_STUDIES
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.tester_client import TesterClient, TesterError
from tacit_services.ledger.accounts import BudgetExceededError, debits_of
from tacit_services.ledger.entries import RESERVATIONS
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


def forget_apps() -> None:
    """Let go of closed apps: FastAPI remembers every dependency of any app, and with it a whole history."""
    for remembered in vars(fastapi_models).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()


class Simulation:
    """One history: parties, their clocks, and what is known of what they did.

    ``parties`` are those who answer studies; their databases begin as copies of the one for ``component``.
    """

    parties: tuple[str, ...] = OWNERS
    component = "agent"
    kind: Kind = POOLED
    by_hand: Collection[str] = (BY_HAND,)
    """The owners whose stewards decide."""
    epsilon_max: float | None = None
    """What a study may spend at most, where it is not what its kind says."""

    def __init__(self, folder: Path, templates: Path | None = None, seed: int = 0) -> None:
        self.folder, self.seed, self.starts = folder, seed, 0
        self.now, self.skews = float(NOW), dict.fromkeys([*self.parties, "tester", "ada"], 0.0)
        self.network, self.agents = Network(), dict[str, Any]()
        self.studies: dict[str, Study] = {}
        self.touched: set[str] = set(self.parties)
        self.verdicts: dict[str, bytes] = {}
        """Every study's verdict when it was first seen: it must never change."""
        self.engines = {name: self._engine(name) for name in (*self.parties, "tester")}
        for name, engine in self.engines.items():
            component = "tester" if name == "tester" else self.component
            if templates is None:
                self._begin(engine, component)
            else:
                shutil.copy(templates / component, folder / f"{name}.sqlite3")
        self.restart_tester()
        for party in self.parties:
            self.restart_agent(party)

    @classmethod
    def make_templates(cls, folder: Path) -> None:
        """Write the databases that every history begins with."""
        for component in (cls.component, "tester"):
            engine = create_engine(f"sqlite:///{folder / component}")
            cls._begin(engine, component)
            engine.dispose()

    @classmethod
    def _begin(cls, engine: sa.Engine, component: str) -> None:
        upgrade(engine, component)
        run_transaction(engine, cls.fill_tester if component == "tester" else cls.fill_party)

    @staticmethod
    def fill_party(connection: sa.Connection) -> None:
        """Write what a party's database holds at the beginning."""

    @classmethod
    def fill_tester(cls, connection: sa.Connection) -> None:
        enrol(connection, cls.kind.columns)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.dispose()
        for agent in self.agents.values():
            agent.client.close()
        self.network.close()
        forget_apps()

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
        return make_agent(
            self.folder,
            owner,
            self.kind,
            by_hand=owner in self.by_hand,
            epsilon_max=self.epsilon_max,
            **uses,
        )

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

    def call(self, method: str, path: str, party: str | None, content: bytes | None = None) -> httpx.Response:
        """Send the tester a request that nothing befalls."""
        headers = {"content-type": "application/json"}
        if party is not None:
            headers["authorization"] = f"Bearer {issue_token(key_of(party), URL, int(self.now))}"
        response = self.network.deliver(httpx.Request(method, URL + path, headers=headers, content=content))
        response.read()
        return response

    def new_study(self) -> Study:
        """Return what is asked where nothing else is said."""
        return self.kind.study()

    def ask(self, study: Study | None = None, status: int = 201) -> str:
        """Put a study, which the tester answers like this; returns its digest."""
        name, envelope = sealed(study or self.new_study())
        response = self.call("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert response.status_code == status, response.text
        return name

    def transcript(self, study: str) -> bytes:
        return self.call("GET", f"/v1/studies/{study}/transcript", "ada").content

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
        (owner,) = self.by_hand
        agent = self.agents[owner]
        with suppress(AlreadyDecidedError, BudgetExceededError):
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

    def rows(self, party: str, table: sa.Table) -> list[Any]:
        return self.read(party, lambda c: list(c.execute(table.select())))

    def spent(self, party: str = "north") -> list[int]:
        """Return what an owner was debited, each time, in micro-epsilon."""
        return [one.epsilon_micro for one in self.read(party, lambda c: debits_of(c, self.kind.data_set))]

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
        self._check_debits(connection, [str(entry.study) for entry in debits], releases)
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"

    @staticmethod
    def _check_debits(connection: sa.Connection, debited: list[str], released: Collection[str]) -> None:
        """Each release is paid for once, and each study whose rows were read and which has no answer."""
        is_closed = AGENT_STUDIES.c.state == State.CLOSED.value
        closed = connection.execute(sa.select(AGENT_STUDIES.c.digest).where(is_closed)).scalars()
        assert sorted(debited) == sorted({*released, *closed}), (
            "debits differ from releases and closed studies"
        )

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
            self._check_result(verified)

    def _check_result(self, verified: VerifiedTranscript) -> None:
        """Check that the result is the same for every order of the releases."""
        if verified.result is not None:
            backwards = dict(reversed(list(verified.releases.items())))
            procedure = procedure_named(verified.study.procedure)
            assert procedure.assemble(verified.study, backwards) == verified.result


# One owner is handed the other's release.


class RelaySimulation(Simulation):
    """A tester and two agents in memory, and every byte that went between them."""

    kind = PEER
    parties = (SENDER, RECEIVER)
    by_hand = ()

    def __init__(self, folder: Path, templates: Path | None = None, seed: int = 0) -> None:
        self.bodies: list[bytes] = []
        self.change: Callable[[bytes], bytes] = lambda content: content
        """What the tester does to the sender's answer before it hands it out."""
        super().__init__(folder, templates, seed)

    @classmethod
    def fill_tester(cls, connection: sa.Connection) -> None:
        enrol(connection, (SENDER, RECEIVER, "west"))

    def new_study(self) -> Study:
        return peer_study() if self.kind is PEER else super().new_study()

    def carry(self, request: httpx.Request) -> httpx.Response:
        response = self.network.carry(request)
        content = response.read()
        self.bodies += [request.content, content]
        if "/sealed/" in request.url.path and response.status_code == 200:
            content = self.change(content)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return httpx.Response(response.status_code, headers=headers, stream=httpx.ByteStream(content))

    def accept(self) -> None:
        """Let the receiver take the study in, and say that it accepts."""
        Fetcher(self.agents[RECEIVER]).poll(0)
        Delivery(self.agents[RECEIVER]).deliver()

    def send(self) -> None:
        """Let the receiver accept, and the sender answer."""
        self.accept()
        Fetcher(self.agents[SENDER]).poll(0)
        work(self.agents[SENDER])

    def receive(self) -> None:
        Fetcher(self.agents[RECEIVER]).poll(0)
        work(self.agents[RECEIVER])

    def finish(self) -> None:
        self.send()
        self.receive()
        self.work_at_tester()
        Fetcher(self.agents[RECEIVER]).fetch_verdicts()

    def state(self, study: str) -> str:
        return {row.digest: row.state for row in self.rows(RECEIVER, AGENT_STUDIES)}[study]

    def package(self) -> bytes:
        """Return what the sender stored to be sent."""
        return bytes(self.rows(SENDER, OUTBOX)[-1].envelope)


EPSILONS = ("3", "8", "15")
"""The first study of a history costs the last of them, beside which the cap of 20 has room for the first."""


class TwoRoundSimulation(RelaySimulation):
    """A history of two owners who reserve what a study of two rounds costs; the second decides by hand.

    A study may read north's answers to an earlier study again: north is not asked, and spends nothing.
    """

    kind = TWO_ROUNDS
    by_hand = (RECEIVER,)

    def create(self, owners: Sequence[str], epsilon: str, deadline_in_s: int) -> str:
        """Ask both owners."""
        return self.ask_again(None, epsilon, deadline_in_s)

    def ask_again(self, earlier: str | None, epsilon: str, deadline_in_s: int) -> str:
        """Ask both owners, or the receiver alone about what the sender has answered before."""
        study = self.kind.study(
            reuses=earlier,
            title=f"study {len(self.studies)}",
            budget=Budget.of(epsilon, "0"),
            deadline=int(self.now) + deadline_in_s,
        )
        name, envelope = sealed(study)
        self.studies[name] = study
        self.put_as_analyst(f"/v1/studies/{name}", envelope)
        return name

    def _check_owner(self, connection: sa.Connection, owner: str) -> None:
        debits = check_account(connection, "people")
        verify(connection)
        rows = connection.execute(OUTBOX.select()).all()
        releases = {row.study: bytes(row.envelope) for row in rows if row.kind == "release"}
        states = {row.digest: row.state for row in connection.execute(AGENT_STUDIES.select())}
        self._check_debits(connection, [str(entry.study) for entry in debits], releases)
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"
            is_asked = owner == RECEIVER or self.studies[study].owners[0].reuses is None
            assert is_asked or study not in releases, "a release was made again of who reads one again"
        approved = {study for study, state in states.items() if state == State.APPROVED}
        reserved = {row.study for row in connection.execute(RESERVATIONS.select())}
        assert reserved == approved, "what is reserved is not what is approved"
        spent = sum((self._cost_of(owner, envelope) for envelope in releases.values()), Fraction(0))
        assert spent <= Fraction(self.kind.cap.epsilon_micro, 10**6), "what was released passes the cap"

    @staticmethod
    def _cost_of(owner: str, envelope: bytes) -> Fraction:
        """The epsilon of a release by what it says itself: the noise of its numbers."""
        events = release_in(envelope, owner).release.guarantee.events
        assert all(isinstance(event, LaplaceEvent) for event in events)
        return sum(
            (1 / Fraction(e.noise_multiplier) for e in events if isinstance(e, LaplaceEvent)), Fraction(0)
        )

    def _check_result(self, verified: VerifiedTranscript) -> None:
        """Nothing: the second release was made of the first."""

    def _check_ends(self) -> None:
        super()._check_ends()
        for owner in self.parties:
            rows = self.rows(owner, RESERVATIONS)
            known = {row.digest: row.state for row in self.rows(owner, AGENT_STUDIES)}
            late = [row.study for row in rows if known[row.study] != State.APPROVED]
            assert not late, "a reservation has outlived its study"


class MaskedWorld(Simulation):
    """A tester and owners who mask, in memory. ``shown`` changes the keys that an owner is shown."""

    kind = COUNTS
    parties = MASKED

    def __init__(
        self, folder: Path, templates: Path, *, by_hand: str = "", noise: Any = None, cap: float = 2.0
    ) -> None:
        self.shown: Callable[[str, dict[str, str]], dict[str, str]] = lambda _, keys: keys
        self.by_hand, self.noise, self.epsilon_max = (by_hand,), noise, cap
        super().__init__(folder, templates)

    def new_study(self) -> Study:
        return masked_study()

    def make_agent(self, owner: str, **uses: Any) -> Any:
        agent = super().make_agent(owner, **uses | {"noise": self.noise})
        fetch = agent.client.mask_keys

        def hostile(study: str) -> bytes | None:
            found = fetch(study)
            return found if found is None else json.dumps(self.shown(owner, json.loads(found))).encode()

        agent.client.mask_keys = hostile
        return agent

    def show_keys(self, *names: str) -> None:
        """Let owners take studies in, and show their keys."""
        for name in names or self.parties:
            self.act(name, "poll")
            Delivery(self.agents[name]).deliver()

    def answer(self, *names: str) -> None:
        """Let owners fetch the keys, and release."""
        for name in names or self.parties:
            self.act(name, "poll")
            self.act(name, "work")

    def finish(self) -> None:
        self.show_keys()
        self.answer()
        self.work_at_tester()

    def state(self, study: str, name: str = "north") -> Any:
        return {row.digest: row for row in self.rows(name, AGENT_STUDIES)}[study]
