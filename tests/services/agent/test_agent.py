"""An agent in one process: what it takes in, refuses, spends and sends."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import respelled
import sqlalchemy as sa
from agent_fakes import FAKES, FakeTester, World

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.encoding import decode, encode, encode_json
from tacit_protocol.messages.release import DeclineMessage, ReleaseMessage
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.messages.transcript import VerdictMessage
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.signing.envelope import (
    DECLINE_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    digest,
    open_envelope,
    seal,
)
from tacit_protocol.workers import WorkersUnavailableError
from tacit_services.agent.agent import Agent, AlreadyDecidedError
from tacit_services.agent.data import reader as reader_module
from tacit_services.agent.policy import Policy
from tacit_services.agent.releases import Dependencies, StoppingError
from tacit_services.agent.schema import State
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.studies import StudyRow, study_row
from tacit_services.agent.tester_client import TesterClient, TesterUnavailableError
from tacit_services.ledger.accounts import LedgerConflictError, standing_of
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade

NOW = 10_000

CANARY = "Xc4nary7"
"""No digest of a study can hold it, as it can a few digits."""


@dataclass
class Clock:
    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Setup:
    """One agent, its tester, and the figures that tests look at."""

    world: World
    tester: FakeTester
    agent: Agent
    clock: Clock
    opened: list[str]
    """Names of the data sets that were touched, in order."""

    def turn(self) -> None:
        self.agent.poll(0)
        self.agent.work()

    def row(self, study_digest: str) -> StudyRow:
        row = run_transaction(self.agent.engine, lambda c: study_row(c, study_digest), read_only=True)
        assert row is not None
        return row

    def debits(self) -> list[dict[str, Any]]:
        run_transaction(self.agent.engine, verify, read_only=True)
        entries = run_transaction(self.agent.engine, export, read_only=True)
        return [entry for entry in entries if entry["kind"] == "debit"]


Make = Callable[..., Setup]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    engines: list[sa.Engine] = []

    def build(world: World | None = None, **written: str) -> Setup:
        world = world or World(tmp_path)
        settings = AgentSettings.load(world.write("http://tester", **written))
        tester, clock, opened = FakeTester(), Clock(), list[str]()
        original = DataSetSettings.open

        def recorded(self: DataSetSettings) -> Any:
            opened.append(self.name)
            return original(self)

        monkeypatch.setattr(DataSetSettings, "open", recorded)
        engine = create_engine(settings.database_url)
        engines.append(engine)
        upgrade(engine, "agent")
        client = TesterClient(
            "http://tester", "http://tester", world.agent, clock, lambda _: None, transport=tester.transport()
        )
        agent = Agent(
            settings,
            Policy.load(settings.policy_file),
            world.agent,
            FAKES,
            Dependencies(engine, client, OpenDPNoise(), clock),
        )
        agent.open_accounts()
        return Setup(world, tester, agent, clock, opened)

    yield build
    for engine in engines:
        engine.dispose()


def test_a_study_is_released_once_and_sent(make: Make) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    setup.turn()
    assert setup.row(asked).state is State.SENT
    ((where, kind, body),) = setup.tester.received
    assert (where, kind) == (asked, "releases")
    message = decode(ReleaseMessage, open_envelope(body, RELEASE_TYPE, setup.world.agent.public_hex))
    assert (message.study, message.party, message.release.units) == (asked, "north", 60)
    (entry,) = setup.debits()
    assert (entry["study"], entry["epsilon_micro"], entry["data_set"]) == (asked, 500_000, "patients")
    assert setup.agent.units == {"patients": 60}


def test_a_study_for_a_curator_is_not_answered_by_an_owners_agent(make: Make) -> None:
    setup = make()
    curator = Party(name="clearinghouse", key="6" * 64)
    asked = setup.world.ask(setup.tester, setup.world.study(curator=curator))
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, "forbidden")
    assert setup.opened == []
    assert [kind for _, kind, _ in setup.tester.received] == ["declines"]


def test_the_tester_asking_again_gets_the_same_bytes(make: Make) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    del setup.tester.releases[asked]  # the tester was put back to an older copy of its database
    setup.turn()
    bodies = {body for _, _, body in setup.tester.received}
    assert len(setup.tester.received) == 2
    assert len(bodies) == 1
    assert len(setup.debits()) == 1
    assert setup.row(asked).state is State.SENT


def test_an_unreachable_tester_gets_the_stored_release_later(make: Make) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    original = setup.tester._upload

    def lose_the_answer(study_digest: str, kind: str, body: bytes) -> tuple[int, bytes]:
        original(study_digest, kind, body)
        return 503, b"{}"

    setup.tester._upload = lose_the_answer  # type: ignore[method-assign]
    with pytest.raises(TesterUnavailableError):
        setup.agent.work()
    assert setup.row(asked).state is State.RELEASED
    setup.tester._upload = original  # type: ignore[method-assign]
    setup.agent.work()
    assert setup.row(asked).state is State.SENT
    assert len({body for _, _, body in setup.tester.received}) == 1
    assert len(setup.debits()) == 1


def test_a_steward_decides_by_hand(make: Make) -> None:
    setup = make(policy='approval = "by-hand"')
    first = setup.world.ask(setup.tester, setup.world.study())
    second = setup.world.ask(setup.tester, setup.world.study(title="Again?"))
    setup.turn()
    assert setup.row(first).state is State.WAITING
    assert setup.tester.received == []
    assert setup.opened == []
    setup.agent.approve(first)
    setup.agent.decline(second, "not this year")
    setup.agent.work()
    assert (setup.row(first).state, setup.row(second).state) == (State.SENT, State.DECLINED)
    assert setup.row(second).reason == "not this year"
    body = setup.tester.declines[second]
    assert b"not this year" not in open_envelope(body, DECLINE_TYPE, setup.world.agent.public_hex)
    for decision in (setup.agent.approve, lambda asked: setup.agent.decline(asked, None)):
        with pytest.raises(AlreadyDecidedError):
            decision(first)


def test_a_study_nobody_decided_expires_and_cannot_be_approved(make: Make) -> None:
    setup = make(policy='approval = "by-hand"')
    asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 60))
    setup.turn()
    setup.clock.now = NOW + 61
    with pytest.raises(AlreadyDecidedError):
        setup.agent.approve(asked)
    setup.agent.work()
    assert setup.row(asked).state is State.EXPIRED
    assert setup.debits() == []


def test_the_account_is_never_overdrawn(make: Make) -> None:
    setup = make(data_set="epsilon = 1.2")
    asked = [setup.world.ask(setup.tester, setup.world.study(title=f"number {i}")) for i in range(4)]
    setup.turn()
    states = sorted(setup.row(d).state.value for d in asked)
    assert states == ["refused", "refused", "sent", "sent"]
    assert [setup.row(d).problem for d in asked].count("budget-exceeded") == 2
    assert len(setup.debits()) == 2
    found = run_transaction(setup.agent.engine, lambda c: standing_of(c, "patients"), read_only=True)
    assert found.pure_spent_micro <= 1_200_000


def study_with_infinite_bounds(world: World) -> bytes:
    """Return a study's bytes whose bounds no strict model would write."""
    payload = encode(world.study())
    assert b'"upper":10.0' in payload
    return payload.replace(b'"upper":10.0', b'"upper":1e999')


def study_with_nan_bounds(world: World) -> bytes:
    return encode(world.study()).replace(b'"lower":0.0', b'"lower":NaN')


def domain_of(*names: str, upper: float = 10.0) -> Domain:
    return Domain(columns=tuple(NumericColumn(name=name, lower=0.0, upper=upper) for name in names))


Asked = Callable[[World], tuple[bytes, str]]


def sealed(payload_of: Callable[[World], bytes]) -> Asked:
    def ask(world: World) -> tuple[bytes, str]:
        payload = payload_of(world)
        return seal(payload, STUDY_TYPE, world.analyst), digest(payload)

    return ask


def changed_byte(world: World) -> tuple[bytes, str]:
    envelope, study_digest = world.sealed(world.study())
    place = envelope.index(b'"payload":"') + 40
    other = b"A" if envelope[place : place + 1] != b"A" else b"B"
    return envelope[:place] + other + envelope[place + 1 :], study_digest


def another_study(world: World) -> tuple[bytes, str]:
    envelope, _ = world.sealed(world.study(title="a harmless question"))
    return envelope, world.sealed(world.study())[1]


def signed_by_another(world: World) -> tuple[bytes, str]:
    payload = encode(world.study())
    return seal(payload, STUDY_TYPE, world.tester), digest(payload)


def other_owner(world: World, **changes: str) -> Any:
    fields = {"name": "north", "key": world.agent.public_hex, "data_set": "patients", **changes}
    return (Owner(**fields),)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Asked, str]] = {
    "a bad parameter": (sealed(lambda w: encode(w.study(parameters={"power": "high"}))), "study-refused"),
    "an unknown procedure": (sealed(lambda w: encode(w.study(procedure="guess"))), "study-refused"),
    "an unknown field": (
        sealed(lambda w: encode(w.study()).replace(b'"title":', b'"hint":1,"title":')),
        "malformed-message",
    ),
    "a column the policy does not list": (
        sealed(lambda w: encode(w.study(domain=domain_of("y")))),
        "policy-refused",
    ),
    "an infinite bound": (sealed(study_with_infinite_bounds), "malformed-message"),
    "a NaN bound": (sealed(study_with_nan_bounds), "malformed-message"),
    "bounds outside the declared domain": (
        sealed(lambda w: encode(w.study(domain=domain_of("x", upper=11.0)))),
        "policy-refused",
    ),
    "more epsilon than a study may spend": (
        sealed(lambda w: encode(w.study(budget=Budget.of("1.000001", "1e-6")))),
        "policy-refused",
    ),
    "more delta than a study may spend": (
        sealed(lambda w: encode(w.study(budget=Budget.of("0.5", "1e-4")))),
        "policy-refused",
    ),
    "an expired deadline": (sealed(lambda w: encode(w.study(deadline=NOW))), "study-expired"),
    "a changed byte": (changed_byte, "invalid-signature"),
    "another study under this digest": (another_study, "digest-mismatch"),
    "another signer than the analyst": (signed_by_another, "invalid-signature"),
    "not even an envelope": (lambda w: (b"hello", "a" * 64), "invalid-signature"),
    "another tester": (
        sealed(lambda w: encode(w.study(tester=Party(name="tester", key="7" * 64)))),
        "forbidden",
    ),
    "a roster without this owner": (
        sealed(lambda w: encode(w.study(owners=other_owner(w, name="elsewhere")))),
        "forbidden",
    ),
    "a roster with another key for this owner": (
        sealed(lambda w: encode(w.study(owners=other_owner(w, key="8" * 64)))),
        "forbidden",
    ),
    "a data set that is not here": (
        sealed(lambda w: encode(w.study(owners=other_owner(w, data_set="staff")))),
        "policy-refused",
    ),
    "a weaker privacy unit": (sealed(lambda w: encode(w.study(unit_column="id"))), "policy-refused"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_bad_study_is_refused_before_data_is_touched(make: Make, fault: str) -> None:
    ask, problem = REFUSED[fault]
    setup = make(data_set='columns = [{kind = "numeric", name = "x", lower = 0, upper = 10}]')
    envelope, study_digest = ask(setup.world)
    setup.tester.add(envelope, study_digest, NOW + 1000)
    setup.turn()
    row = setup.row(study_digest)
    assert (row.state, row.problem) == (State.REFUSED, problem)
    assert row.reason
    assert setup.opened == []
    assert setup.debits() == []
    decline = open_envelope(setup.tester.declines[study_digest], DECLINE_TYPE, setup.world.agent.public_hex)
    assert decode(DeclineMessage, decline) == DeclineMessage(study=study_digest, party="north")
    assert setup.tester.releases == {}


def test_the_same_study_without_a_fault_does_touch_the_data(make: Make) -> None:
    setup = make(data_set='columns = [{kind = "numeric", name = "x", lower = 0, upper = 10}]')
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    assert setup.opened == ["patients"]
    assert setup.row(asked).state is State.SENT


def test_an_analyst_that_the_policy_does_not_list_is_refused(make: Make, tmp_path: Path) -> None:
    world = World(tmp_path)
    setup = make(world)
    path = tmp_path / "policy.toml"
    path.write_text(path.read_text().replace('analysts = ["*"]', f'analysts = ["{"9" * 64}"]'))
    setup.agent.intake._policy = Policy.load(path)
    asked = world.ask(setup.tester, world.study())
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, "policy-refused")
    assert setup.opened == []


def test_an_automatic_agent_pays_once_however_a_study_is_spelled(make: Make) -> None:
    """The canonical bytes are paid for; other bytes, which say the same, are other studies, and are not."""
    setup = make()
    payload = encode(setup.world.study(title=respelled.TITLE))
    asked = {"the canonical bytes": payload} | respelled.respellings(payload)
    for other in asked.values():
        setup.tester.add(seal(other, STUDY_TYPE, setup.world.analyst), digest(other), NOW + 1000)
        setup.turn()
    states = {name: setup.row(digest(other)).state for name, other in asked.items()}
    assert states.pop("the canonical bytes") is State.SENT
    assert set(states.values()) == {State.REFUSED}, states
    assert len(setup.debits()) == 1
    assert set(setup.tester.releases) == {digest(payload)}


def test_a_study_that_was_approved_before_its_bytes_were_looked_at_is_not_paid_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of an earlier version took it in; this one looks again before it spends."""
    setup = make()
    payload = encode(setup.world.study()) + b" "
    setup.tester.add(seal(payload, STUDY_TYPE, setup.world.analyst), digest(payload), NOW + 1000)
    with monkeypatch.context() as earlier:
        earlier.setattr(setup.agent.intake, "require_canonical", lambda *_: None)
        setup.agent.poll(0)
    assert setup.row(digest(payload)).state is State.APPROVED
    setup.agent.work()
    assert setup.row(digest(payload)).state is State.REFUSED
    assert setup.debits() == []


def test_a_policy_that_names_an_analyst_takes_its_key_by_no_other_name(make: Make, tmp_path: Path) -> None:
    world = World(tmp_path)
    setup = make(world)
    path, key = tmp_path / "policy.toml", world.analyst.public_hex
    written = path.read_text()
    outcomes = []
    for entries in ([f"ada:{key}"], [f"bob:{key}"], ["*", f"bob:{key}"], ["*"], [key, f"bob:{'9' * 64}"]):
        listed = ", ".join(f'"{entry}"' for entry in entries)
        path.write_text(written.replace('analysts = ["*"]', f"analysts = [{listed}]"))
        setup.agent.intake._policy = Policy.load(path)
        asked = world.ask(setup.tester, world.study(title=str(entries)[:90]))
        setup.agent.poll(0)
        outcomes.append(setup.row(asked).problem)
    assert outcomes == [None, "policy-refused", "policy-refused", None, None]


@pytest.mark.parametrize(
    ("study", "problem"),
    [({"domain": domain_of("absent")}, "data-unreadable"), ({}, "policy-refused")],
    ids=["absent column", "too few units"],
)
def test_unsuitable_data_are_declined_without_a_debit(
    make: Make, study: dict[str, Any], problem: str
) -> None:
    setup = make(policy="units_min = 61" if problem == "policy-refused" else "")
    asked = setup.world.ask(setup.tester, setup.world.study(**study))
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, problem)
    assert setup.debits() == []
    assert set(setup.tester.declines) == {asked}


def test_every_decline_reads_the_same(make: Make) -> None:
    setup = make()
    unreadable = setup.world.ask(setup.tester, setup.world.study(domain=domain_of("absent")))
    refused = setup.world.ask(setup.tester, setup.world.study(budget=Budget.of("1.5", "1e-6")))
    setup.turn()
    payloads = [
        open_envelope(setup.tester.declines[d], DECLINE_TYPE, setup.world.agent.public_hex).replace(
            d.encode(), b""
        )
        for d in (unreadable, refused)
    ]
    assert payloads[0] == payloads[1]


def test_a_summary_that_fails_is_declined_and_its_message_is_not_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = make()

    def fail(*_: Any) -> Any:
        raise ValueError(f"patient {CANARY} has x = 3")

    monkeypatch.setattr(reader_module, "encode", fail)
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    row = setup.row(asked)
    assert (row.state, row.problem) == (State.REFUSED, "data-unreadable")
    output = capsys.readouterr()
    assert CANARY not in f"{row.reason}{output.out}{output.err}"


def test_a_read_that_fails_because_the_agent_stops_declines_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    releaser = setup.agent._releaser
    monkeypatch.setattr(releaser, "uses", replace(releaser.uses, stopping=lambda: True))
    with monkeypatch.context() as failing:
        failing.setattr(reader_module, "encode", lambda *_: 1 / 0)
        with pytest.raises(StoppingError):
            setup.agent.work()
    assert setup.row(asked).state is State.APPROVED
    setup.agent.work()
    assert setup.row(asked).state is State.SENT


def test_a_collision_in_the_ledger_declines_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)

    def collide(*_: Any) -> Any:
        raise LedgerConflictError("another transaction wrote this account")

    with monkeypatch.context() as failing:
        failing.setattr(setup.agent._releaser, "_debit", collide)
        with pytest.raises(LedgerConflictError):
            setup.agent.work()
    assert setup.row(asked).state is State.APPROVED
    setup.agent.work()
    assert len(setup.debits()) == 1


def test_a_procedure_that_fails_at_the_noise_spends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    monkeypatch.setattr(FAKES["fake_sum"], "privatise", lambda *_: 1 / 0, raising=False)
    setup.agent.work()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, "internal-error")
    assert setup.debits() == []
    assert set(setup.tester.declines) == {asked}


def test_a_deadline_that_passes_while_data_are_read_spends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 5))
    setup.agent.poll(0)
    original = FAKES["fake_sum"].summarise

    def slow(*given: Any) -> Any:
        setup.clock.now = NOW + 6
        return original(*given)

    monkeypatch.setattr(FAKES["fake_sum"], "summarise", slow, raising=False)
    setup.agent.work()
    assert setup.row(asked).state is State.EXPIRED
    assert setup.debits() == []
    assert setup.tester.received == []


def test_a_ledger_put_back_to_an_older_copy_is_noticed_before_spending(make: Make) -> None:
    setup = make(policy='approval = "by-hand"')
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    setup.tester.releases[asked] = b"what this owner sent before its ledger was put back"
    setup.agent.approve(asked)
    setup.agent.work()
    row = setup.row(asked)
    assert (row.state, row.problem) == (State.REFUSED, "conflicting-upload")
    assert "older copy" in str(row.reason)
    assert setup.debits() == []
    assert setup.opened == []


def test_a_release_the_tester_refuses_is_closed_and_stays_spent(make: Make) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    problem = encode_json({"type": "urn:tacit:problem:study-expired"})
    setup.tester._upload = lambda *_: (409, problem)  # type: ignore[method-assign]
    setup.agent.work()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.EXPIRED, "study-expired")
    assert len(setup.debits()) == 1


@pytest.mark.parametrize("signer", ["tester", "analyst"])
def test_only_the_pinned_testers_verdict_is_kept(make: Make, signer: str) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    setup.agent.fetch_verdicts()
    assert setup.row(asked).verdict is None
    verdict = VerdictMessage(study=asked, outcome="cancelled", releases={}, software="tacit")
    key = setup.world.tester if signer == "tester" else setup.world.analyst
    setup.tester.verdicts[asked] = seal(encode(verdict), VERDICT_TYPE, key)
    setup.agent.fetch_verdicts()
    assert (setup.row(asked).verdict is not None) == (signer == "tester")


def client_of(handler: Callable[[httpx.Request], httpx.Response], waits: list[float]) -> TesterClient:
    world = World(Path())
    return TesterClient(
        "http://tester",
        "http://tester",
        world.agent,
        Clock(),
        waits.append,
        transport=httpx.MockTransport(handler),
    )


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"x")),
        httpx.Response(200, stream=httpx.ByteStream(b"x" * (2**20 + 1))),
        httpx.Response(302, headers={"location": "http://elsewhere"}, stream=httpx.ByteStream(b"")),
        httpx.Response(200, stream=httpx.ByteStream(b'{"items": [{"digest": "short", "deadline": 1}]}')),
    ],
    ids=["encoded", "too large", "redirect", "malformed"],
)
def test_an_answer_that_cannot_be_trusted_is_refused(response: httpx.Response) -> None:
    waits: list[float] = []
    with client_of(lambda _: response, waits) as client, pytest.raises(TesterUnavailableError):
        client.inbox(0)


def test_the_client_waits_longer_and_longer_before_it_gives_up() -> None:
    waits: list[float] = []

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with client_of(fail, waits) as client, pytest.raises(TesterUnavailableError):
        client.study_envelope("0" * 64)
    assert len(waits) == 3
    assert all(0 <= wait <= 8 for wait in waits)


def test_the_noise_of_two_studies_differs(make: Make) -> None:
    setup = make()
    asked = [setup.world.ask(setup.tester, setup.world.study(title=title)) for title in ("one", "two")]
    setup.turn()
    values = [
        decode(
            ReleaseMessage,
            open_envelope(setup.tester.releases[d], RELEASE_TYPE, setup.world.agent.public_hex),
        )
        .release.vectors["sum"]
        .values[0]
        for d in asked
    ]
    exact = np.rint(np.array([i % 10 / 10 for i in range(60)]) * 2.0**20).sum()
    assert len({*values, int(exact)}) == 3  # of a law with a million values to a standard deviation


def test_two_agents_of_one_database_make_one_release(make: Make) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    threads = [threading.Thread(target=setup.agent.work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(setup.debits()) == 1
    assert len({body for _, kind, body in setup.tester.received if kind == "releases"}) == 1
    assert setup.row(asked).state is State.SENT
    assert json.loads(setup.tester.handle("GET", f"/v1/studies/{asked}", b"")[1])["owners"][0]["sent"]


def test_workers_that_cannot_be_reached_decline_nothing_and_hold_nobody_up(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first study needs workers that are away; the second does not; later they are back."""
    setup = make()
    away = setup.world.ask(setup.tester, setup.world.study(title="Needs the cluster"))
    other = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    genuine = FAKES["fake_sum"].summarise

    def summarise(study: Study, table: Table) -> Any:
        if study.title == "Needs the cluster":
            raise WorkersUnavailableError("the scheduler cannot be reached")
        return genuine(study, table)

    with monkeypatch.context() as failing:
        failing.setattr(FAKES["fake_sum"], "summarise", summarise)
        setup.agent.work()
        setup.agent.work()
    assert (setup.row(away).state, setup.row(other).state) == (State.APPROVED, State.SENT)
    assert [entry["study"] for entry in setup.debits()] == [other]
    setup.agent.work()
    assert setup.row(away).state is State.SENT
    assert [entry["study"] for entry in setup.debits()] == [other, away]
