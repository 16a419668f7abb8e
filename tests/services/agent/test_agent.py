"""An agent in one process: what it takes in, refuses, spends and sends."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import respelled
from agent_fakes import FAKES, NOW, AttackedAgent, Clock, MakeAgent, World

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.encoding import decode, digest, encode, encode_json
from tacit_protocol.messages.study import DeclineMessage, Owner, Party, ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.two_sample import release as kernel_release
from tacit_protocol.signing import (
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    open_envelope,
    sign_envelope,
)
from tacit_services.agent.agent import AlreadyDecidedError
from tacit_services.agent.data import reader as reader_module
from tacit_services.agent.schema import State
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.study.readings import lock_of
from tacit_services.agent.study.releases import StoppingError
from tacit_services.agent.study.tester_client import TesterClient, TesterUnavailableError
from tacit_services.ledger.accounts import LedgerConflictError
from tacit_services.shared.database import read_from


def test_a_study_is_released_once_and_sent(make: MakeAgent) -> None:
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
    assert setup.opened == ["patients"]


@pytest.mark.parametrize("policy", ["", "epsilon_per_study_max = 0.1"], ids=["allowed", "refused"])
def test_a_study_that_another_process_takes_in_meanwhile_is_left_to_it(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    setup = make(policy=policy)
    asked = setup.world.ask(setup.tester, setup.world.study())
    client, taken_in = setup.agent.client, list[bool]()

    def overtaken(*given: Any) -> bool:
        with monkeypatch.context() as once:
            once.setattr(client, "holds_release", holds_release)
            taken_in.append(Fetcher(setup.agent).poll(0))
        return holds_release(*given)

    holds_release = client.holds_release
    monkeypatch.setattr(client, "holds_release", overtaken)
    taken_in.append(Fetcher(setup.agent).poll(0))
    assert taken_in == [True, False]
    work(setup.agent)
    assert len(setup.tester.received) == 1
    assert setup.row(asked).state is (State.REFUSED if policy else State.SENT)


def test_an_agent_works_a_plan_out_once_from_the_first_look_to_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated, calibrate = [], kernel_release.gaussian_guarantee

    def counted(budget: Budget) -> Guarantee:
        calibrated.append(budget)
        return calibrate(budget)

    monkeypatch.setattr(kernel_release, "gaussian_guarantee", counted)
    setup = AttackedAgent(tmp_path, procedures=PROCEDURES, policy='approval = "by-hand"')
    asked = setup.world.ask(setup.tester, setup.world.study(procedure="kernel_two_sample"))
    setup.turn()
    setup.agent.approve(asked)
    setup.turn()
    setup.agent.engine.dispose()
    assert setup.row(asked).state is State.SENT
    assert len(calibrated) == 1


def test_a_study_for_a_curator_is_not_answered_by_an_owners_agent(make: MakeAgent) -> None:
    setup = make()
    curator = Party(name="clearinghouse", key="6" * 64)
    asked = setup.world.ask(setup.tester, setup.world.study(curator=curator))
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, "forbidden")
    assert setup.opened == []
    assert [kind for _, kind, _ in setup.tester.received] == ["declines"]


def test_a_steward_decides_by_hand(make: MakeAgent) -> None:
    setup = make(policy='approval = "by-hand"')
    first = setup.world.ask(setup.tester, setup.world.study())
    second = setup.world.ask(setup.tester, setup.world.study(title="Again?"))
    setup.turn()
    assert setup.row(first).state is State.WAITING
    assert setup.tester.received == []
    assert setup.opened == []
    setup.agent.approve(first)
    setup.agent.decline(second, "not this year")
    work(setup.agent)
    assert (setup.row(first).state, setup.row(second).state) == (State.SENT, State.DECLINED)
    assert setup.row(second).reason == "not this year"
    body = setup.tester.declines[second]
    assert b"not this year" not in open_envelope(body, DECLINE_TYPE, setup.world.agent.public_hex)
    for decision in (setup.agent.approve, lambda asked: setup.agent.decline(asked, None)):
        with pytest.raises(AlreadyDecidedError):
            decision(first)


HOPELESS = "Hopeless: there are too few units"


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake procedure calls fewer than a hundred units hopeless; the agent's data set has sixty."""

    def warnings(_: Any, units: Mapping[str, int]) -> tuple[str, ...]:
        return (HOPELESS,) if min(units.values(), default=100) < 100 else ()

    monkeypatch.setattr(FAKES["fake_sum"], "warnings", warnings, raising=False)


def study_of(setup: AttackedAgent, units: int | None) -> str:
    """Ask a study that says so many units of the agent's data set."""
    owners = (
        Owner(name="north", key=setup.world.agent.public_hex, data_set="patients", units=units),
        Owner(name="south", key="5" * 64, data_set="patients", units=1000),
    )
    return setup.world.ask(setup.tester, setup.world.study(owners=owners, title=f"{units}"))


@pytest.mark.parametrize(
    ("units", "settings", "opened"),
    [(10, "", 0), (10**6, "units = 50", 0), (10**6, "", 1), (None, "", 1)],
    ids=["as the study says", "as the settings say", "as counted", "as counted, of which nothing is said"],
)
@pytest.mark.usefixtures("picky")
def test_automatic_approval_leaves_a_hopeless_study_to_a_steward(
    make: MakeAgent, units: int | None, settings: str, opened: int
) -> None:
    setup = make(data_set=settings)
    study = study_of(setup, units)
    setup.turn()
    setup.turn()
    row = setup.row(study)
    assert (row.state, row.problem) == (State.WAITING, None)
    assert row.reason is not None
    assert row.reason.startswith("left to a steward")
    assert "there are too few units" in row.reason
    assert (len(setup.opened), setup.debits(), setup.tester.received) == (opened, [], [])
    assert read_from(setup.agent.engine, lock_of, "patients") is None
    setup.agent.approve(study)
    setup.turn()
    assert setup.row(study).state is State.SENT
    assert len(setup.debits()) == 1


@pytest.mark.usefixtures("picky")
def test_a_hopeless_study_is_approved_where_the_policy_says_so(make: MakeAgent) -> None:
    setup = make(policy="approve_hopeless = true")
    studies = [study_of(setup, units) for units in (10, None)]
    setup.turn()
    assert [setup.row(study).state for study in studies] == [State.SENT] * 2


@pytest.mark.usefixtures("picky")
def test_what_a_computation_counted_changes_no_decision_on_what_comes_in(make: MakeAgent) -> None:
    """Else whether a study waits at once would tell that another had been computed by then."""
    setup = make()
    for known in ({}, {"patients": 60}):
        setup.agent.units = dict(known)
        study = study_of(setup, 10**6 + len(known))
        Fetcher(setup.agent).poll(0)
        assert setup.row(study).state is State.APPROVED


def test_a_study_nobody_decided_expires_and_cannot_be_approved(make: MakeAgent) -> None:
    setup = make(policy='approval = "by-hand"')
    asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 60))
    setup.turn()
    setup.clock.now = NOW + 61
    with pytest.raises(AlreadyDecidedError):
        setup.agent.approve(asked)
    work(setup.agent)
    assert setup.row(asked).state is State.EXPIRED
    assert setup.debits() == []


def domain_of(*names: str, upper: float = 10.0) -> Domain:
    return Domain(columns=tuple(NumericColumn(name=name, lower=0.0, upper=upper) for name in names))


Asked = Callable[[World], tuple[bytes, str]]


def sealed(payload_of: Callable[[World], bytes]) -> Asked:
    def ask(world: World) -> tuple[bytes, str]:
        payload = payload_of(world)
        return sign_envelope(payload, STUDY_TYPE, world.analyst), digest(payload)

    return ask


def other_owner(world: World, **changes: str) -> Any:
    fields = {"name": "north", "key": world.agent.public_hex, "data_set": "patients", **changes}
    return (Owner(**fields),)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Asked, str]] = {
    "a bad parameter": (sealed(lambda w: encode(w.study(parameters={"power": "high"}))), "study-refused"),
    "an unknown field": (
        sealed(lambda w: encode(w.study()).replace(b'"title":', b'"hint":1,"title":')),
        "malformed-message",
    ),
    "a column the policy does not list": (
        sealed(lambda w: encode(w.study(domain=domain_of("y")))),
        "policy-refused",
    ),
    "an infinite bound": (
        sealed(lambda w: encode(w.study()).replace(b'"upper":10.0', b'"upper":1e999')),
        "malformed-message",
    ),
    "more epsilon than a study may spend": (
        sealed(lambda w: encode(w.study(budget=Budget.of("1.000001", "1e-6")))),
        "policy-refused",
    ),
    "more delta than a study may spend": (
        sealed(lambda w: encode(w.study(budget=Budget.of("0.5", "1e-4")))),
        "policy-refused",
    ),
    "a deadline that is now": (sealed(lambda w: encode(w.study(deadline=NOW))), "study-expired"),
    "not even an envelope": (lambda w: (b"hello", "a" * 64), "invalid-signature"),
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
def test_a_bad_study_is_refused_before_data_is_touched(make: MakeAgent, fault: str) -> None:
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


def test_an_automatic_agent_pays_once_however_a_study_is_spelled(make: MakeAgent) -> None:
    """The canonical bytes are paid for; other bytes, which say the same, are other studies, and are not."""
    setup = make()
    payload = encode(setup.world.study(title=respelled.TITLE))
    asked = {"the canonical bytes": payload} | respelled.respellings(payload)
    for other in asked.values():
        setup.tester.add(sign_envelope(other, STUDY_TYPE, setup.world.analyst), digest(other), NOW + 1000)
        setup.turn()
    states = {name: setup.row(digest(other)).state for name, other in asked.items()}
    assert states.pop("the canonical bytes") is State.SENT
    assert set(states.values()) == {State.REFUSED}, states
    assert len(setup.debits()) == 1
    assert set(setup.tester.releases) == {digest(payload)}


def test_a_studys_bytes_are_looked_at_again_before_it_is_paid_for(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    payload = encode(setup.world.study()) + b" "
    setup.tester.add(sign_envelope(payload, STUDY_TYPE, setup.world.analyst), digest(payload), NOW + 1000)
    with monkeypatch.context() as careless:
        careless.setattr(setup.agent.intake, "require_canonical", lambda *_: None)
        Fetcher(setup.agent).poll(0)
    assert setup.row(digest(payload)).state is State.APPROVED
    work(setup.agent)
    assert setup.row(digest(payload)).state is State.REFUSED
    assert setup.debits() == []


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({}, "policy-refused"),
        ({"purpose": "to plan beds"}, "policy-refused"),
        ({"purpose": "to plan beds", "data_use": "DUO:0000042"}, "policy-refused"),
        ({"data_use": "DUO:0000006"}, "policy-refused"),
        ({"purpose": "to plan beds", "data_use": "DUO:0000006"}, None),
    ],
)
def test_a_policy_may_require_a_purpose_and_a_data_use(
    make: MakeAgent, said: dict[str, str], problem: str | None
) -> None:
    setup = make(policy='required_fields = ["purpose"]\ndata_uses = ["DUO:0000006"]')
    digest = setup.world.ask(setup.tester, setup.world.study(**said))
    Fetcher(setup.agent).poll(0)
    assert setup.row(digest).problem == problem


def test_a_policy_that_names_an_analyst_takes_its_key_by_no_other_name(
    make: MakeAgent, tmp_path: Path
) -> None:
    setup = make()
    path, key = tmp_path / "policy.toml", setup.world.analyst.public_hex
    written = path.read_text()
    outcomes = []
    for entries in ([f"ada:{key}"], [f"bob:{key}"], ["*", f"bob:{key}"], ["*"], ["9" * 64]):
        listed = ", ".join(f'"{entry}"' for entry in entries)
        path.write_text(written.replace('analysts = ["*"]', f"analysts = [{listed}]"))
        setup.agent.intake._policy = Policy.load(path)
        asked = setup.world.ask(setup.tester, setup.world.study(title=str(entries)[:90]))
        Fetcher(setup.agent).poll(0)
        outcomes.append(setup.row(asked).problem)
    assert outcomes == [None, "policy-refused", "policy-refused", None, "policy-refused"]


@pytest.mark.parametrize(
    ("study", "problem"),
    [({"domain": domain_of("absent")}, "data-unreadable"), ({}, "policy-refused")],
    ids=["absent column", "too few units"],
)
def test_unsuitable_data_are_declined_without_a_debit(
    make: MakeAgent, study: dict[str, Any], problem: str
) -> None:
    setup = make(policy="units_min = 61" if problem == "policy-refused" else "")
    asked = setup.world.ask(setup.tester, setup.world.study(**study))
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, problem)
    assert setup.debits() == []
    assert set(setup.tester.declines) == {asked}


def test_every_decline_reads_the_same(make: MakeAgent) -> None:
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


def test_a_read_that_fails_because_the_agent_stops_declines_nothing(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    releaser = setup.agent._releaser
    monkeypatch.setattr(releaser, "uses", replace(releaser.uses, stopping=lambda: True))
    with monkeypatch.context() as failing:
        failing.setattr(reader_module, "encode", lambda *_: 1 / 0)
        with pytest.raises(StoppingError):
            work(setup.agent)
    assert setup.row(asked).state is State.APPROVED
    work(setup.agent)
    assert setup.row(asked).state is State.SENT


def test_a_collision_in_the_ledger_declines_nothing(make: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)

    def collide(*_: Any) -> Any:
        raise LedgerConflictError("another transaction wrote this account")

    with monkeypatch.context() as failing:
        failing.setattr(setup.agent._releaser, "_debit", collide)
        with pytest.raises(LedgerConflictError):
            work(setup.agent)
    assert setup.row(asked).state is State.APPROVED
    work(setup.agent)
    assert len(setup.debits()) == 1


def test_a_ledger_put_back_to_an_older_copy_is_noticed_before_spending(make: MakeAgent) -> None:
    setup = make(policy='approval = "by-hand"')
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    setup.tester.releases[asked] = b"what this owner sent before its ledger was put back"
    setup.agent.approve(asked)
    work(setup.agent)
    row = setup.row(asked)
    assert (row.state, row.problem) == (State.REFUSED, "conflicting-upload")
    assert "older copy" in str(row.reason)
    assert setup.debits() == []
    assert setup.opened == []


def test_a_release_the_tester_refuses_is_closed_and_stays_spent(make: MakeAgent) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    problem = encode_json({"type": "urn:tacit:problem:study-expired"})
    setup.tester._upload = lambda *_: (409, problem)  # type: ignore[method-assign]
    work(setup.agent)
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.EXPIRED, "study-expired")
    assert len(setup.debits()) == 1


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


def test_two_agents_of_one_database_make_one_release(make: MakeAgent) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    threads = [threading.Thread(target=work, args=(setup.agent,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(setup.debits()) == 1
    assert len({body for _, kind, body in setup.tester.received if kind == "releases"}) == 1
    assert setup.row(asked).state is State.SENT
    assert json.loads(setup.tester.handle("GET", f"/v1/studies/{asked}", b"")[1])["owners"][0]["sent"]


def test_nothing_is_published_unless_the_policy_says_so(make: MakeAgent) -> None:
    setup = make()
    assert setup.agent.catalogue() == CatalogueMessage(
        owner="north", tester=setup.world.tester.public_hex, version=int(setup.agent.clock())
    )


def test_a_policy_that_no_catalogue_can_hold_stops_nothing(make: MakeAgent) -> None:
    setup = make(policy="catalogue = true")
    setup.agent.policy = setup.agent.policy.model_copy(update={"procedures": ("x",) * 1001})
    assert setup.agent.publish() is True


def test_what_is_published_is_settings_and_policy_and_no_row(make: MakeAgent) -> None:
    declared = (
        'about = "Wards"\nunits = 50\nmeasures = { x = "mmol/l", y = "years" }\n'
        '[[data_sets.columns]]\nkind = "numeric"\nname = "x"\nlower = 0\nupper = 10\n'
        '[[data_sets.columns]]\nkind = "numeric"\nname = "y"\nlower = 0\nupper = 99\n'
    )
    setup = make(policy='catalogue = true\nrequired_fields = ["purpose"]', data_set=declared)
    entry = setup.agent.catalogue()
    assert setup.agent.publish() is False  # this tester knows no catalogue: it is offered again later
    (published,) = entry.data_sets
    assert published.units == 50  # what was written; there are 60
    assert [column.name for column in published.columns] == ["x"]  # the policy does not allow y
    assert published.other_columns == ("absent",)
    assert published.measures == {"x": "mmol/l"}
    assert entry.required_fields == ("purpose",)
    assert entry.per_study_max == setup.agent.policy.maximum
    for said, refused in (({}, 1), ({"purpose": "to plan"}, 0)):
        study = setup.world.study(**said)
        assert len(entry.refusals(study, study.owners[0])) == refused


def test_of_two_catalogues_within_a_second_the_second_is_the_later(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, sent = make(policy="catalogue = true"), list[bytes]()
    monkeypatch.setattr(setup.agent.client, "put_catalogue", lambda _, envelope: sent.append(envelope))
    assert setup.agent.publish()
    assert setup.agent.publish()
    first, second = (
        decode(CatalogueMessage, open_envelope(envelope, CATALOGUE_TYPE, setup.agent.key.public_hex))
        for envelope in sent
    )
    assert second.version == first.version + 1
