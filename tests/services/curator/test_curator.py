"""A curator and a tester: what is taken in, refused, decided, spent and sent, also over HTTP."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import respelled
import sqlalchemy as sa
from curated_world import (
    CURATOR,
    OPERATOR,
    PROCEDURES,
    CuratedSimulation,
    CuratedSum,
    CuratorFederation,
    curated_study_of,
    curator_federation,
    policy_of,
    register_owners,
    registration_of,
)
from made_studies import SeededNoise
from served import problem
from study_parties import study_bytes
from world import NOW, key_of, sealed, study_of

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Party, Release, ReleaseMessage, Study
from tacit_protocol.procedures import discovery
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, sign_envelope
from tacit_protocol.verification import VerificationError, VerifiedTranscript, verify_transcript
from tacit_services.agent.schema import OUTBOX, State
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.participant import AlreadyDecidedError
from tacit_services.agent.study.studies import StudyRow, study_row
from tacit_services.curator.curator import Curator, Decision, decisions_on
from tacit_services.curator.data_sets import DATA_SETS, ROSTER, view
from tacit_services.ledger.accounts import set_caps
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction
from tacit_services.shared.people import Person
from tacit_services.tester.tables import PARTIES

OWNERS = ("east", "north", "west")
HOLDER = Person("e" * 64)


class Setup(CuratedSimulation):
    """One curator, on a database of either kind, and one tester; ``by_hand`` are owners who decide so."""

    def __init__(self, folder: Path, url: str, by_hand: tuple[str, ...] = ()) -> None:
        self.url = url
        super().__init__(folder)
        self.curator = self.agents[CURATOR]
        self.write(lambda c: register_owners(c, self.data_sets, OWNERS, by_hand))

    @staticmethod
    def fill_party(connection: sa.Connection) -> None:
        """Nothing: who decides by hand is said later."""

    def _engine(self, name: str) -> sa.Engine:
        return create_engine(self.url) if name == CURATOR else super()._engine(name)

    def make_agent(self, owner: str, **uses: Any) -> Curator:
        self.noise = uses["noise"]
        made: Curator = super().make_agent(owner, **uses)
        return made

    def turn(self) -> None:
        Fetcher(self.curator).poll(0)
        work(self.curator)

    def write(self, work: Callable[[sa.Connection], Any]) -> Any:
        return run_transaction(self.curator.engine, work)

    def row(self, study: str) -> StudyRow:
        row: StudyRow | None = self.read(CURATOR, lambda c: study_row(c, study))
        assert row is not None
        return row

    def debits(self) -> list[tuple[str, str]]:
        """Return account and study of every debit, of a ledger that verifies."""
        self.read(CURATOR, verify)
        return [(e["data_set"], e["study"]) for e in self.read(CURATOR, export) if e["kind"] == "debit"]

    def end(self, study: str) -> VerifiedTranscript:
        """Let the tester compute; returns the verified transcript."""
        self.work_at_tester()
        Fetcher(self.curator).fetch_verdicts()
        return verify_transcript(self.transcript(study), key_of("tester").public_hex)


Make = Callable[..., Setup]


@pytest.fixture
def make(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Setup] = []
    for name, procedure in PROCEDURES.items():
        monkeypatch.setitem(discovery.PROCEDURES, name, procedure)

    def build(by_hand: tuple[str, ...] = (), folder: Path | None = None) -> Setup:
        url = database_url if folder is None else f"sqlite:///{folder / 'curator.sqlite3'}"
        made.append(Setup(folder or tmp_path, url, by_hand))
        return made[-1]

    yield build
    for setup in made:
        setup.close()


def test_one_release_is_sent_for_all_owners_and_each_account_pays(make: Make) -> None:
    setup = make()
    study = setup.ask(curated_study_of(OWNERS))
    setup.turn()
    setup.turn()
    assert setup.row(study).state is State.SENT
    assert setup.debits() == [(f"{owner}/patients", study) for owner in OWNERS]
    assert setup.noise.draws == 1
    verified = setup.end(study)
    assert verified.verdict.outcome == "completed"
    assert list(verified.releases) == [CURATOR]
    release = verified.releases[CURATOR]
    assert release.units == 180
    assert release.units_by_owner == dict.fromkeys(OWNERS, 60)
    assert setup.row(study).verdict is not None


def test_an_owners_policy_leaves_a_hopeless_study_to_the_owner(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units were counted when rows came; the policy of one owner approves hopeless studies too."""
    hopeless = lambda _, study, units: ("Hopeless: few units",) if sum(units.values()) < 200 else ()  # noqa: E731
    monkeypatch.setattr(CuratedSum, "warnings", hopeless)
    setup = make()

    def allow(connection: sa.Connection) -> None:
        held = setup.data_sets.held_data_set(connection, "east", "patients")
        assert held is not None
        policy = held.policy.model_copy(update={"approve_hopeless": True})
        where = DATA_SETS.c.owner == "east"
        connection.execute(DATA_SETS.update().where(where).values(policy=policy.model_dump_json()))

    run_transaction(setup.curator.engine, allow)
    study = setup.ask(curated_study_of(OWNERS))
    setup.turn()
    assert setup.row(study).state is State.WAITING
    assert "few units" in str(setup.row(study).reason)
    assert setup.debits() == []
    decided = setup.read(CURATOR, lambda c: decisions_on(c, [study]))[study]
    assert {one.owner: one.decision.value for one in decided} == {
        owner: "approved" if owner == "east" else "waiting" for owner in OWNERS
    }
    for owner in OWNERS[1:]:
        setup.curator.approve(study, owner, HOLDER)
    setup.turn()
    assert setup.row(study).state is State.SENT


def test_a_study_runs_once_every_owner_has_approved(make: Make) -> None:
    setup = make(by_hand=("east", "west"))
    study = setup.ask(curated_study_of(OWNERS))
    setup.turn()
    assert setup.row(study).state is State.WAITING
    setup.curator.approve(study, "west", HOLDER)
    setup.turn()
    assert setup.row(study).state is State.WAITING
    assert setup.debits() == []
    with pytest.raises(AlreadyDecidedError):
        setup.curator.approve(study, "west", HOLDER)
    with pytest.raises(AlreadyDecidedError):
        setup.curator.approve(study, "south", HOLDER)  # has no part in it
    setup.curator.approve(study, "east", HOLDER)
    setup.turn()
    assert setup.row(study).state is State.SENT
    decided = {item.owner: (item.decision, item.decided_by) for item in decisions_of(setup, study)}
    assert decided == {
        "east": (Decision.APPROVED, "owner"),
        "north": (Decision.APPROVED, "policy"),
        "west": (Decision.APPROVED, "owner"),
    }


def decisions_of(setup: Setup, study: str) -> list[Any]:
    return list(setup.read(CURATOR, lambda c: decisions_on(c, [study]))[study])


def refused_for(setup: Setup, study: Study, problem: str, *, paid: bool = False) -> None:
    name = setup.ask(study)
    setup.turn()
    row = setup.row(name)
    assert (row.state, row.problem) == (State.REFUSED, problem), row.reason
    assert len(setup.debits()) == (len(study.owners) if paid else 0)
    assert [row.kind for row in setup.rows(CURATOR, OUTBOX)] == ["decline"]


def test_a_key_revoked_while_its_study_is_run_releases_nothing(make: Make) -> None:
    """The revocation is looked at in the transaction that signs."""
    setup = make()
    name = setup.ask(curated_study_of(OWNERS))
    Fetcher(setup.curator).poll(0)
    job = setup.curator.job_of(setup.row(name))
    setup.write(lambda c: setup.curator.intake.require_current(c, job))
    setup.write(lambda c: ROSTER.revoke(c, "west", NOW))
    with pytest.raises(IntakeRefusedError, match="not enrolled"):
        setup.write(lambda c: setup.curator.intake.require_current(c, job))


def test_a_curator_refuses_other_bytes_of_the_same_study(make: Make) -> None:
    setup, now = make(), NOW
    study = curated_study_of(OWNERS, title=respelled.TITLE)
    payload, intake = study_bytes(study), setup.curator.intake
    intake.accept(digest(payload), study, now)
    for other in respelled.respellings(payload).values():
        envelope = sign_envelope(other, STUDY_TYPE, key_of("ada"))
        with pytest.raises(IntakeRefusedError):
            intake.accept(digest(other), intake.authenticate(digest(other), envelope), now)


@pytest.mark.parametrize("change", ["key", "data set", "owner"])
def test_an_owner_that_is_not_held_here_is_refused(make: Make, change: str) -> None:
    setup = make()
    owner = Owner(name="west", key=key_of("west").public_hex, data_set="patients")
    changed = {"key": {"key": "7" * 64}, "data set": {"data_set": "staff"}, "owner": {"name": "south"}}
    study = curated_study_of(("east", "west"))
    wrong = owner.model_copy(update=changed[change])
    refused_for(setup, study.model_copy(update={"owners": (study.owners[0], wrong)}), "policy-refused")


def test_a_study_of_another_curator_reaches_only_that_one(make: Make) -> None:
    setup = make()
    other = Party(name="other", key=key_of("other").public_hex)
    setup.ask(curated_study_of(OWNERS, curator=other), status=403)  # not enrolled as a curator
    setup.ask(study_of(OWNERS, procedure=CuratedSum.name), status=403)  # its owners have no agents here
    assert not Fetcher(setup.curator).poll(0)


def test_the_curator_refuses_what_does_not_name_it(make: Make) -> None:
    setup = make()
    for study in (
        curated_study_of(OWNERS, curator=Party(name="other", key=key_of("other").public_hex)),
        curated_study_of(OWNERS, curator=Party(name="other", key=key_of(CURATOR).public_hex)),
        study_of(OWNERS, procedure=CuratedSum.name),
        curated_study_of(OWNERS, tester=Party(name="tester", key="4" * 64)),
    ):
        name, envelope = sealed(study)
        with pytest.raises(Exception, match="name"):
            setup.curator.intake.accept(name, setup.curator.intake.authenticate(name, envelope), NOW)


def test_a_data_set_deleted_while_its_study_waits_declines_it(make: Make) -> None:
    setup = make(by_hand=("east",))
    study = setup.ask(curated_study_of(OWNERS))
    setup.turn()
    setup.write(lambda c: setup.data_sets.delete(c, "west", "patients", NOW))
    setup.turn()
    assert setup.row(study).state is State.REFUSED
    assert setup.debits() == []
    assert setup.end(study).verdict.missing == (CURATOR,)
    with pytest.raises(AlreadyDecidedError):
        setup.curator.approve(study, "east", HOLDER)


@pytest.mark.parametrize("change", ["deleted", "another policy", "the same again"])
def test_a_data_set_that_changes_while_it_is_read_is_not_released(
    make: Make, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    setup = make()
    study = setup.ask(curated_study_of(OWNERS))
    genuine = CuratedSum.summarise
    registration = registration_of(False, **({"units_min": 7} if change == "another policy" else {}))

    def interrupted(self: CuratedSum, *arguments: Any) -> Any:
        summary = genuine(self, *arguments)
        if change == "deleted":
            setup.write(lambda c: setup.data_sets.delete(c, "west", "patients", NOW))
        else:
            setup.write(lambda c: setup.data_sets.register(c, "west", "patients", registration, NOW))
        return summary

    with monkeypatch.context() as changing:
        changing.setattr(CuratedSum, "summarise", interrupted)
        setup.turn()
    is_same = change == "the same again"
    assert setup.noise.draws == is_same
    assert setup.row(study).state is (State.SENT if is_same else State.REFUSED)
    assert len(setup.debits()) == 3  # paid for with its approval, before a row was read


# What one owner refuses, and what the tester sees of it.


def refuse_by_analyst(setup: Setup, folder: Path) -> None:
    registration = registration_of(False).model_copy(
        update={"policy": policy_of(False, analysts=("9" * 64,))}
    )
    setup.write(lambda c: setup.data_sets.register(c, "west", "patients", registration, NOW))


def refuse_by_deletion(setup: Setup, folder: Path) -> None:
    setup.write(lambda c: setup.data_sets.delete(c, "west", "patients", NOW))


def refuse_by_budget(setup: Setup, folder: Path) -> None:
    setup.write(lambda c: set_caps(c, "west/patients", 1, 1, at=NOW))


def refuse_by_units(setup: Setup, folder: Path) -> None:
    (folder / "west.csv").write_text("x\n1\n2\n")


def refuse_by_data(setup: Setup, folder: Path) -> None:
    (folder / "west.csv").write_text("y\n1\n2\n")


def refuse_by_revocation(setup: Setup, folder: Path) -> None:
    setup.write(lambda c: ROSTER.revoke(c, "west", NOW))


REFUSALS = {
    refuse_by_analyst: "policy-refused",
    refuse_by_deletion: "policy-refused",
    refuse_by_budget: "budget-exceeded",
    refuse_by_units: "policy-refused",
    refuse_by_data: "data-unreadable",
    refuse_by_revocation: "policy-refused",
}


@pytest.mark.parametrize("refuse", REFUSALS)
def test_what_one_owner_refuses_is_refused_for_all(
    make: Make, tmp_path: Path, refuse: Callable[[Setup, Path], None]
) -> None:
    """Nobody pays, but for what only reading a file of the operator's shows."""
    setup = make()
    refuse(setup, tmp_path)
    paid = refuse in {refuse_by_units, refuse_by_data}
    refused_for(setup, curated_study_of(OWNERS), REFUSALS[refuse], paid=paid)


Requests = list[tuple[int, str, str, int]]
"""Of each: seconds since the study came, method, path, and length of the body."""


def watched(setup: Setup, folder: Path, refuse: Callable[[Setup, Path], None]) -> Requests:
    """Return when which requests of what length reach the tester, second by second."""
    seen: Requests = []
    genuine = setup.network.carry

    def noted(request: httpx.Request) -> httpx.Response:
        body = request.read()
        seen.append((int(setup.now) - NOW, request.method, request.url.path, len(body)))
        return genuine(request)

    setup.curator.client._http._transport = httpx.MockTransport(noted)
    refuse(setup, folder)
    setup.ask(curated_study_of(OWNERS, respond_after_s=3))
    for _ in range(6):
        setup.turn()
        setup.now += 1
    return seen


def test_refusals_look_alike_to_the_tester(make: Make, tmp_path: Path) -> None:
    seen = {}
    for refuse in REFUSALS:
        folder = tmp_path / refuse.__name__
        folder.mkdir()
        seen[refuse.__name__] = watched(make(folder=folder), folder, refuse)
    first, *others = seen.values()
    assert [item[:2] for item in first if item[1] == "PUT"] == [(3, "PUT")]
    assert all(other == first for other in others), seen


# What the tester and every verifier check.


def forged_release(setup: Setup, study: str, **changes: Any) -> bytes:
    job = setup.curator.intake.accept(study, curated_study_of(OWNERS), NOW)
    exact = job.procedure.summarise(job.study, job.table())
    release: Release = job.procedure.privatise(job.study, exact, SeededNoise(2))
    message = ReleaseMessage(study=study, party=CURATOR, release=release.model_copy(update=changes))
    return sign_envelope(encode(message), RELEASE_TYPE, key_of(CURATOR))


@pytest.mark.parametrize(
    "units_by_owner",
    [{}, {"east": 180}, {"east": 60, "north": 60, "west": 30, "south": 30}],
    ids=["none", "one", "a stranger's"],
)
def test_a_release_that_counts_other_owners_is_refused_by_tester_and_verifier(
    make: Make, units_by_owner: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    study = setup.ask(curated_study_of(OWNERS))
    forged = forged_release(setup, study, units_by_owner=units_by_owner)
    path = f"/v1/studies/{study}/releases/{CURATOR}"
    assert setup.call("PUT", path, CURATOR, forged).status_code == 422
    with monkeypatch.context() as lenient:
        lenient.setattr("tacit_services.tester.answers.check_answer", lambda *_: None)
        assert setup.call("PUT", path, CURATOR, forged).status_code == 201
    with pytest.raises(VerificationError, match="counts each owner's units"):
        setup.end(study)


def test_an_owner_of_a_curated_study_cannot_answer_for_itself(make: Make) -> None:
    setup = make()
    study = setup.ask(curated_study_of(OWNERS))
    run_transaction(setup.engines["tester"], lambda c: enrol_owner(c, "west"))
    forged = forged_release(setup, study)
    for name in ("west", CURATOR):
        response = setup.call("PUT", f"/v1/studies/{study}/releases/{name}", "west", forged)
        assert response.status_code == 403


def enrol_owner(connection: sa.Connection, name: str) -> None:
    row = {"name": name, "key": key_of(name).public_hex, "role": "owner", "enrolled_at": 0}
    connection.execute(PARTIES.insert().values(**row))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CuratorFederation]:
    """Two owners who decide by hand, and one, east, who lets its policy decide."""
    with curator_federation(tmp_path) as federation:
        for owner, approval in (("east", "automatic"), ("north", "by-hand"), ("west", "by-hand")):
            federation.add_owner(owner, approval)
        yield federation


def test_a_study_from_upload_to_verdict(world: CuratorFederation) -> None:
    study = world.ask("east", "north", "west")
    path = f"/v1/studies/{study}"
    shown = world.call("GET", path, "west").json()
    assert shown["state"] == "waiting-for-approval"
    assert [(item["owner"], item["decision"], item["decided_by"]) for item in shown["owners"]] == [
        ("east", "approved", "policy"),
        ("north", "waiting", None),
        ("west", "waiting", None),
    ]
    assert [item["account"] for item in shown["accounts"]] == ["west/patients"]
    assert "of west/patients" in shown["plain_words"]
    assert f"The curator {CURATOR} computes it" in shown["plain_words"]
    assert shown["warnings"] == ["there are 180 units"]
    assert world.call("POST", path + "/approval", "west", json={}).json()["state"] == "waiting-for-approval"
    assert world.call("POST", path + "/approval", "north", json={}).json()["state"] == "approved"
    world.turn()
    verified = verify_transcript(world.end(study), key_of("tester").public_hex)
    assert world.call("GET", path, "west").json()["verdict"]["outcome"] == "completed"
    assert verified.releases[CURATOR].units_by_owner == {"east": 60, "north": 60, "west": 60}


def test_an_owner_sees_its_own_studies_and_ledger_alone(world: CuratorFederation) -> None:
    study, other = world.ask("east", "north"), world.ask("east")
    seen = {
        party: {item["digest"] for item in world.call("GET", "/v1/studies", party).json()["items"]}
        for party in ("east", "north", "west", OPERATOR)
    }
    assert seen == {"east": {study, other}, "north": {study}, "west": set(), OPERATOR: {study, other}}
    assert problem(world.call("GET", f"/v1/studies/{study}", "west")) == "unknown-study"
    assert problem(world.call("POST", f"/v1/studies/{study}/approval", "west", json={})) == "unknown-study"
    ledgers = {
        party: {entry["data_set"] for entry in world.call("GET", "/v1/ledger", party).json()["entries"]}
        for party in ("north", OPERATOR)
    }
    assert ledgers == {
        "north": {"north/patients"},
        OPERATOR: {"east/patients", "north/patients", "west/patients"},
    }
    assert problem(world.call("GET", "/v1/ledger?data_set=east/patients", "north")) == "forbidden"
    assert problem(world.call("GET", "/v1/ledger?data_set=staff", "north")) == "unknown-data-set"
    assert world.call("GET", "/v1/ledger?data_set=patients", "north").json()["entries"]


def test_each_owner_verifies_its_own_accounts(world: CuratorFederation) -> None:
    world.ask("east")
    found = world.call("GET", "/v1/ledger/verification", "east").json()
    assert [(item["data_set"], item["entries"]) for item in found["accounts"]] == [("east/patients", 2)]
    kept = found["accounts"][0]["head_hash"]
    assert world.call("GET", f"/v1/ledger/verification?kept={kept}", "east").json()["ok"]
    assert not world.call("GET", f"/v1/ledger/verification?kept={'0' * 64}", "east").json()["ok"]
    assert len(world.call("GET", "/v1/ledger/verification", OPERATOR).json()["accounts"]) == 3


def test_the_operator_decides_for_nobody(world: CuratorFederation) -> None:
    study = world.ask("east", "north")
    for decision in ("approval", "decline"):
        assert (
            problem(world.call("POST", f"/v1/studies/{study}/{decision}", OPERATOR, json={})) == "forbidden"
        )
    assert problem(world.call("POST", f"/v1/studies/{study}/approval", "east", json={})) == "already-decided"


def test_a_decline_and_its_note(world: CuratorFederation) -> None:
    study = world.ask("east", "north", "west")
    path = f"/v1/studies/{study}"
    shown = world.call("POST", path + "/decline", "west", json={"reason": "not this year"}).json()
    assert (shown["state"], shown["reason"]) == ("declined", "not this year")
    assert world.call("GET", path, OPERATOR).json()["reason"] == "not this year"
    assert world.call("GET", path, "north").json()["reason"] is None
    assert problem(world.call("POST", path + "/approval", "north", json={})) == "already-decided"


def test_why_a_study_was_refused_is_not_told_to_other_owners(world: CuratorFederation) -> None:
    study = world.ask("east", "north")
    world.call("DELETE", "/v1/data-sets/east/patients", "east")
    world.turn()
    shown = world.call("GET", f"/v1/studies/{study}", "north").json()
    assert (shown["state"], shown["problem"], shown["reason"]) == ("refused", None, None)
    assert world.call("GET", f"/v1/studies/{study}", OPERATOR).json()["problem"] == "policy-refused"


def test_health_says_when_a_loop_has_stopped(world: CuratorFederation) -> None:
    assert world.call("GET", "/healthz", "north").status_code == 200
    assert problem(world.call("GET", "/readyz", "north")) == "not-ready"  # the loops were not started
    assert 'tacit_curator_studies{state="sent"} 0' in world.call("GET", "/metrics", "north").text


# What fails after rows were read.


def test_a_study_that_fails_after_rows_were_read_locks_every_data_set_of_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paid for with the approval, no answer, and each data set is unlocked by its owner or the operator."""
    setup = make()
    study = setup.ask(curated_study_of(OWNERS, respond_after_s=60))

    def fail(*_: Any) -> Any:
        setup.now += 5
        raise ZeroDivisionError("private")

    with monkeypatch.context() as failing:
        failing.setattr(CuratedSum, "summarise", fail)
        setup.turn()
    assert setup.row(study).state is State.CLOSED
    assert len(setup.debits()) == 3
    assert setup.rows(CURATOR, OUTBOX) == []
    shown = setup.read(CURATOR, lambda c: study_row(c, study, setup.curator.shown()))
    assert (shown.state, shown.changed_at, shown.reason) == (State.APPROVED, NOW, None)

    def locked(owner: str, *, to_owner: bool) -> Any:
        held = setup.read(CURATOR, lambda c: setup.data_sets.held_data_set(c, owner, "patients"))
        now = int(setup.now)
        return setup.read(CURATOR, lambda c: view(c, held, to_owner=to_owner, now=now))["locked"]

    assert locked("west", to_owner=False)["fault"] == "ZeroDivisionError"
    assert locked("west", to_owner=True) is None, "sooner, it would tell when the computation ended"
    setup.curator.unlock("west/patients", HOLDER, hides=True)
    assert locked("west", to_owner=False) is not None
    setup.now = NOW + 61
    assert locked("west", to_owner=True) == {"study": study}
    later = setup.ask(curated_study_of(OWNERS, title="Another", respond_after_s=0))
    for owner in OWNERS:
        setup.turn()
        assert setup.row(later).state is State.APPROVED
        setup.curator.unlock(f"{owner}/patients", HOLDER, hides=owner != "east")
    setup.turn()
    assert setup.row(later).state is State.SENT
