"""The life of a study at the tester, and releases that a later study reads again."""

from collections.abc import Callable
from typing import Any

import ended_studies
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from ended_studies import cancel, cancelled, incomplete
from served import problem
from study_parties import MeanProcedure, Parties
from tester_federation import Federation

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import decode, digest
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX, Owner, Party, Transcript
from tacit_protocol.procedures import discovery
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, PrivateKey, open_envelope, sign_envelope
from tacit_protocol.verification import verify_transcript
from tacit_services.shared.database import run_transaction
from tacit_services.shared.roster import INVITATION_LIFE_S
from tacit_services.tester import studies as tester_studies
from tacit_services.tester.studies import DEADLINE_MAX_S
from tacit_services.tester.tables import METADATA, RELEASES, STUDIES


def test_the_life_of_a_study(federation: Federation) -> None:
    parties = federation.parties
    study = federation.create()
    inbox = federation.get("/v1/inbox?wait_s=0", parties.owners["north"]).json()
    assert inbox == {"items": [{"digest": study, "deadline": parties.now + 3600}]}
    envelope = federation.get(f"/v1/studies/{study}/envelope", parties.owners["north"]).content
    assert digest(open_envelope(envelope, STUDY_TYPE, parties.analyst.public_hex)) == study

    assert federation.release(study, "north", value=10).status_code == 201
    assert federation.get("/v1/inbox?wait_s=0", parties.owners["north"]).json() == {"items": []}
    pending = federation.get(f"/v1/studies/{study}/verdict")
    assert problem(pending) == "verdict-pending"
    assert pending.headers["retry-after"] == "2"
    summary = federation.get(f"/v1/studies/{study}").json()
    assert summary["owners"] == [
        {"name": "north", "sent": True, "declined": False},
        {"name": "south", "sent": False, "declined": False},
        {"name": "west", "sent": False, "declined": False},
    ]
    assert summary["warnings"] == ["there are few units"]
    assert summary["progress"] == {"fraction": 0.0, "step": "collecting"}
    metrics = federation.call("GET", "/metrics", None).text
    assert 'tacit_tester_studies{state="collecting"} 1' in metrics
    identity = federation.call("GET", "/v1/identity", None).json()
    assert (identity["key"], identity["audience"]) == (parties.tester.public_hex, "https://tester.example")

    federation.release(study, "south", value=20)
    federation.release(study, "west", value=30)
    assert federation.state(study) == "computing"
    assert federation.work()
    assert not federation.work()
    assert federation.state(study) == "completed"
    verdict = federation.verdict(study)
    assert verdict.result == {"mean": 2.0, "units": {"north": 10, "south": 10, "west": 10}, "note": "mean"}
    assert set(verdict.releases) == {"north", "south", "west"}

    data = federation.get(f"/v1/studies/{study}/transcript").content
    transcript = decode(Transcript, data, size_bytes_max=TRANSCRIPT_BYTES_MAX)
    assert transcript.study.encode() == envelope
    for name, text in transcript.releases.items():
        payload = open_envelope(text.encode(), RELEASE_TYPE, parties.owners[name].public_hex)
        assert digest(payload) == verdict.releases[name]


def test_a_deadline_that_passes_names_who_is_missing(federation: Federation) -> None:
    study = federation.create()
    federation.release(study, "south")
    federation.now += 3599
    assert not federation.work()
    federation.now += 1
    assert federation.work()
    verdict = federation.verdict(study)
    assert (verdict.outcome, verdict.missing) == ("incomplete", ("north", "west"))
    assert set(verdict.releases) == {"south"}
    assert verdict.result is None
    assert federation.state(study) == "incomplete"
    assert federation.get(f"/v1/studies/{study}/transcript").status_code == 200


def test_a_decline_ends_the_study_once_everyone_answered(federation: Federation) -> None:
    study = federation.create()
    assert federation.decline(study, "north").status_code == 201
    assert federation.decline(study, "north").status_code == 200
    federation.release(study, "south")
    assert federation.state(study) == "collecting"
    assert problem(federation.release(study, "north")) == "already-decided"
    assert problem(federation.decline(study, "south")) == "already-decided"
    federation.release(study, "west")
    verdict = federation.verdict(study)
    assert (verdict.outcome, verdict.missing) == ("incomplete", ("north",))


def test_a_cancelled_study_takes_nothing_more(federation: Federation) -> None:
    parties = federation.parties
    study = federation.create()
    federation.release(study, "north")
    path = f"/v1/studies/{study}/cancellation"
    cancellation = parties.cancellation(study)
    assert problem(federation.put(path, parties.owners["north"], cancellation)) == "forbidden"
    assert federation.put(path, parties.analyst, cancellation).status_code == 201
    assert federation.put(path, parties.analyst, cancellation).status_code == 200
    verdict = federation.verdict(study)
    assert (verdict.outcome, verdict.missing) == ("cancelled", ("south", "west"))
    assert problem(federation.release(study, "south")) == "study-closed"
    assert federation.release(study, "north").status_code == 200, "what was taken is still answered"


def test_a_study_being_computed_cannot_be_cancelled(federation: Federation) -> None:
    study = federation.create()
    federation.release_all(study)
    assert problem(cancel(federation, study)) == "study-closed"


def test_the_same_study_again_changes_nothing(federation: Federation) -> None:
    parties = federation.parties
    study, envelope = parties.sealed_study()
    assert federation.put(f"/v1/studies/{study}", parties.analyst, envelope).status_code == 201
    federation.now += 7200
    assert federation.put(f"/v1/studies/{study}", parties.analyst, envelope).status_code == 200
    other = sign_envelope(
        open_envelope(envelope, STUDY_TYPE, parties.analyst.public_hex), STUDY_TYPE, parties.owners["north"]
    )
    assert problem(federation.put(f"/v1/studies/{study}", parties.analyst, other)) == "invalid-signature"
    assert problem(federation.put(f"/v1/studies/{'0' * 64}", parties.analyst, envelope)) == "digest-mismatch"
    for key in (parties.owners["north"], parties.tester):
        assert problem(federation.put(f"/v1/studies/{study}", key, envelope)) == "forbidden"


def _refusals(parties: Parties) -> list[tuple[dict[str, Any], str]]:
    stranger = PrivateKey.generate().public_hex
    swapped = tuple(
        Owner(name=name, key=stranger if name == "north" else key.public_hex, data_set="patients")
        for name, key in parties.owners.items()
    )
    return [
        ({"procedure": "unheard_of"}, "study-refused"),
        ({"parameters": {"a": 1}}, "study-refused"),
        ({"tester": Party(name="tester", key=stranger)}, "study-refused"),
        ({"tester": Party(name="other", key=parties.tester.public_hex)}, "study-refused"),
        ({"analyst": Party(name="analyst", key=stranger)}, "study-refused"),
        ({"created_at": parties.now - 10, "deadline": parties.now}, "study-expired"),
        ({"deadline": parties.now + DEADLINE_MAX_S + 1}, "study-refused"),
        ({"owners": swapped}, "unknown-party"),
    ]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("index", range(8))
def test_a_study_that_cannot_be_run_is_refused(federation: Federation, index: int) -> None:
    changes, slug = _refusals(federation.parties)[index]
    study, envelope = federation.parties.sealed_study(**changes)
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == slug
    assert problem(federation.get(f"/v1/studies/{study}")) == "unknown-study"


def test_an_invitation_works_once_for_one_name_and_role(federation: Federation) -> None:
    tester, key = federation.parties.tester, PrivateKey.generate()
    invite = {"role": "owner", "name": "east"}
    invitation = federation.call("POST", "/v1/invitations", tester, json=invite).json()["invitation"]
    body = {"invitation": invitation, "name": "east", "key": key.public_hex, "role": "owner"}

    def enrol(signer: PrivateKey = key, **changes: str) -> Any:
        return federation.call("POST", "/v1/enrolments", signer, json=body | changes)

    other = PrivateKey.generate()
    assert problem(enrol(role="analyst")) == "invitation-invalid"
    assert problem(enrol(name="northeast")) == "invitation-invalid"
    assert problem(enrol(invitation="x" * 43)) == "invitation-invalid"
    assert problem(enrol(key=other.public_hex)) == "forbidden", "the key must sign for itself"
    assert enrol().status_code == 201
    assert enrol().status_code == 200, "the answer may have been lost"
    assert problem(enrol(other, key=other.public_hex)) == "invitation-invalid"


def test_names_and_keys_are_taken_once(federation: Federation) -> None:
    tester = federation.parties.tester
    again = {"role": "owner", "name": "north"}
    assert problem(federation.call("POST", "/v1/invitations", tester, json=again)) == "party-exists"
    assert (
        problem(federation.call("POST", "/v1/invitations", federation.parties.analyst, json=again))
        == "forbidden"
    )
    assert problem(federation.enrol("east", "owner", federation.parties.owners["north"])) == "party-exists"
    assert problem(federation.enrol("east2", "owner", tester)) == "party-exists"


def test_an_invitation_expires_and_is_not_stored(federation: Federation) -> None:
    key = PrivateKey.generate()
    invite = {"role": "owner", "name": "east"}
    answer = federation.call("POST", "/v1/invitations", federation.parties.tester, json=invite).json()

    def rows(connection: sa.Connection) -> str:
        return str(connection.execute(sa.text("SELECT * FROM invitations")).all())

    assert answer["invitation"] not in run_transaction(federation.engine, rows, read_only=True)
    federation.now += INVITATION_LIFE_S
    assert answer["expires_at"] == federation.now
    body = {"invitation": answer["invitation"], "name": "east", "key": key.public_hex, "role": "owner"}
    assert problem(federation.call("POST", "/v1/enrolments", key, json=body)) == "invitation-invalid"
    items = federation.call("GET", "/v1/invitations", federation.parties.tester).json()["items"]
    assert [item["state"] for item in items if item["name"] == "east"] == ["expired"]


def test_lists_come_in_pages(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit_services.tester.studies.PAGE_SIZE", 2)
    monkeypatch.setattr("tacit_services.shared.roster.PAGE_SIZE", 2)
    created = [federation.create(title=f"Study {index}") for index in range(5)]
    assert cancel(federation, created[0]).status_code == 201

    def pages(path: str, key: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = federation.get(path + cursor).json()
            found += [item[key] for item in page["items"]]
            if page["next"] is None:
                return found
            cursor = ("&" if "?" in path else "?") + f"cursor={page['next']}"

    assert pages("/v1/studies", "digest") == created[::-1]
    assert pages("/v1/studies?state=collecting", "digest") == created[:0:-1]
    assert pages("/v1/studies?state=cancelled", "digest") == created[:1]
    assert pages("/v1/parties", "name") == ["analyst", "north", "south", "west"]


def test_an_analyst_cannot_open_studies_without_end(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.tester.studies.STUDIES_OPEN_MAX", 1)
    federation.create()
    study, envelope = federation.parties.sealed_study(title="one more")
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == "rate-limited"
    assert "retry-after" in response.headers


def test_the_migrations_make_the_tables_that_the_code_uses(federation: Federation) -> None:
    with federation.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "alembic_tester"})
        assert compare_metadata(context, METADATA) == []


VALUES = {"north": 10, "south": 20, "west": 60}


def completed(federation: Federation, **changes: Any) -> str:
    """A study of the three owners, run to its end."""
    return ended_studies.completed(federation, VALUES, **changes)


def collecting(federation: Federation) -> str:
    study = federation.create()
    assert federation.release(study, "north").status_code == 201
    return study


def computing(federation: Federation) -> str:
    study = federation.create()
    federation.release_all(study)
    return study


def owners_of(parties: Parties, **reuses: str | None) -> tuple[Owner, ...]:
    return tuple(parties.owner(name, reuses=source) for name, source in reuses.items())


def refusal(federation: Federation, **changes: Any) -> str:
    """Return why the tester refuses a study."""
    study, envelope = federation.parties.sealed_study(**changes)
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == "reuse-refused", response.text
    assert response.status_code == 422
    assert problem(federation.get(f"/v1/studies/{study}")) == "unknown-study"
    return str(response.json()["detail"])


def verified(federation: Federation, study: str) -> Any:
    transcript = federation.get(f"/v1/studies/{study}/transcript").content
    return verify_transcript(transcript, federation.parties.tester.public_hex)


def test_a_study_whose_owners_all_reuse_asks_nobody_and_is_computed_at_once(federation: Federation) -> None:
    first = completed(federation)
    second = federation.create(owners=owners_of(federation.parties, west=first, north=first))
    assert federation.state(second) == "computing"
    for key in federation.parties.owners.values():
        assert federation.get("/v1/inbox?wait_s=0", key).json() == {"items": []}
    assert federation.work()
    verdict = federation.verdict(second)
    assert verdict.outcome == "completed"
    assert verdict.result["mean"] == pytest.approx(3.5)  # of 60/10 and 10/10: each sum over its ten units
    assert verified(federation, second).verdict == verdict


def test_an_owner_that_is_asked_and_one_that_is_not_share_a_study(federation: Federation) -> None:
    first = completed(federation, owners=owners_of(federation.parties, north=None, south=None, west=None))
    second = federation.create(
        title="Another question?", owners=owners_of(federation.parties, north=first, south=None)
    )
    assert federation.state(second) == "collecting"
    keys = federation.parties.owners
    assert federation.get("/v1/inbox?wait_s=0", keys["north"]).json() == {"items": []}
    assert len(federation.get("/v1/inbox?wait_s=0", keys["south"]).json()["items"]) == 1
    assert problem(federation.release(second, "north")) == "forbidden"
    assert problem(federation.decline(second, "north")) == "forbidden"
    assert federation.release(second, "south", value=30).status_code == 201
    assert federation.work()
    assert federation.verdict(second).result == {
        "mean": 2.0,
        "units": {"north": 10, "south": 10},
        "note": "mean",
    }
    found = verified(federation, second)
    assert found.release_digests["north"] == federation.verdict(first).releases["north"]
    assert found.release_digests == federation.verdict(second).releases


def test_both_studies_say_that_a_release_is_shared(federation: Federation) -> None:
    first = completed(federation)
    plain = federation.get(f"/v1/studies/{first}").json()
    assert (plain["reuses"], plain["reused_by"]) == ([], [])
    second = federation.create(owners=owners_of(federation.parties, north=first, west=first))
    assert federation.get(f"/v1/studies/{first}").json()["reused_by"] == [
        {"owner": "north", "study": second},
        {"owner": "west", "study": second},
    ]
    view = federation.get(f"/v1/studies/{second}").json()
    assert view["reuses"] == [{"owner": "north", "study": first}, {"owner": "west", "study": first}]
    assert view["owners"] == []
    assert view["warnings"] == ["there are few units"]


def test_a_study_that_ends_without_a_verdict_keeps_what_it_would_have_reused(federation: Federation) -> None:
    first = completed(federation)
    owners = owners_of(federation.parties, north=first, south=None)
    declined = federation.create(owners=owners)
    assert federation.decline(declined, "south").status_code == 201
    withdrawn = cancelled(federation, owners=owners)
    for study, outcome in ((declined, "incomplete"), (withdrawn, "cancelled")):
        found = verified(federation, study)
        assert found.verdict.outcome == outcome
        assert found.verdict.missing == ("south",)
        assert set(found.releases) == {"north"}


def test_reuse_of_a_study_that_is_not_known_here_is_refused(federation: Federation) -> None:
    """Missing, of another tester, or a forged digest: to this tester all the same."""
    owners = owners_of(federation.parties, north="0" * 64, south=None)
    assert "not known here" in refusal(federation, owners=owners)
    first = completed(federation)
    forged = first[:-1] + ("0" if first[-1] != "0" else "1")
    owners = owners_of(federation.parties, north=first, south=forged)
    assert "not known here" in refusal(federation, owners=owners)


@pytest.mark.parametrize("unfinished", [collecting, computing, incomplete, cancelled])
def test_reuse_of_a_study_that_is_not_completed_is_refused(
    federation: Federation, unfinished: Callable[[Federation], str]
) -> None:
    study = unfinished(federation)
    owners = owners_of(federation.parties, north=study)
    assert "not completed" in refusal(federation, owners=owners)


def test_reuse_of_another_owners_release_is_refused(federation: Federation) -> None:
    first = completed(federation, owners=owners_of(federation.parties, north=None, south=None, west=None))
    study = federation.create(title="Two", owners=owners_of(federation.parties, north=None, south=None))
    federation.release(study, "north")
    federation.release(study, "south")
    assert federation.work()
    owners = owners_of(federation.parties, west=study, north=first)
    assert "made no release of its own" in refusal(federation, owners=owners)


def test_reuse_of_another_data_sets_or_another_keys_release_is_refused(federation: Federation) -> None:
    """Enrolled keys never change here, and whose key is another's is not the owner that released."""
    first = completed(federation)
    for changes in ({"data_set": "staff"}, {"key": PrivateKey.generate().public_hex}):
        owner = federation.parties.owner("north", reuses=first, **changes)
        assert "same key and data set" in refusal(federation, owners=(owner,))


def test_a_reusing_owner_must_be_enrolled_with_that_key(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the first check to fail, the roster's would still hold."""
    first = completed(federation)
    monkeypatch.setattr(tester_studies, "require_reusable", lambda *_: None)
    owner = federation.parties.owner("north", reuses=first, key=PrivateKey.generate().public_hex)
    study, envelope = federation.parties.sealed_study(owners=(owner,))
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == "unknown-party"


def test_a_chain_of_reuse_is_refused_and_the_first_study_serves(federation: Federation) -> None:
    first = completed(federation)
    second = federation.create(owners=owners_of(federation.parties, north=first, south=first))
    assert federation.work()
    chained = owners_of(federation.parties, north=second, west=first)
    assert "name the study that its release was made for" in refusal(federation, owners=chained)
    federation.create(owners=owners_of(federation.parties, north=first, west=first))


def test_what_the_procedure_cannot_read_again_is_refused_with_its_words(federation: Federation) -> None:
    first = completed(federation)
    owners = owners_of(federation.parties, north=first)
    domain = Domain(columns=(NumericColumn(name="age", lower=0.0, upper=121.0),))
    assert "other columns" in refusal(federation, owners=owners, domain=domain)
    assert "privacy unit" in refusal(federation, owners=owners, unit_column="patient")


def test_a_procedure_that_rereads_nothing_is_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(MeanProcedure):
        reread = None  # type: ignore[assignment]

    first = completed(federation)
    monkeypatch.setitem(discovery.PROCEDURES, "mean", Forgetful())
    study, envelope = federation.parties.sealed_study(owners=owners_of(federation.parties, north=first))
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == "study-refused"
    assert "no release of an earlier study" in response.json()["detail"]


def test_an_answer_of_another_kind_than_a_release_is_refused(federation: Federation) -> None:
    """As one that was sealed to another owner, or that only confirms such a one."""
    first = completed(federation)
    other = federation.parties.decline(first, "north")
    change = RELEASES.update().where(RELEASES.c.owner == "north").values(envelope=other)
    run_transaction(federation.engine, lambda connection: connection.execute(change))
    owners = owners_of(federation.parties, north=first)
    assert "sealed" in refusal(federation, owners=owners)


@pytest.mark.parametrize("table", [RELEASES, STUDIES])
def test_what_a_study_rests_on_cannot_be_deleted(federation: Federation, table: sa.Table) -> None:
    first = completed(federation)
    federation.create(owners=owners_of(federation.parties, north=first))
    column = RELEASES.c.study if table is RELEASES else STUDIES.c.digest
    with pytest.raises(sa.exc.IntegrityError):
        run_transaction(federation.engine, lambda c: c.execute(table.delete().where(column == first)))


def test_studies_that_ask_nobody_are_bounded_too(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tester_studies, "STUDIES_OPEN_MAX", 2)
    first = completed(federation)
    owners = owners_of(federation.parties, north=first)
    for i in range(2):
        federation.create(owners=owners, title=f"Question {i}")
    study, envelope = federation.parties.sealed_study(owners=owners, title="One more")
    response = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert problem(response) == "rate-limited"
    assert federation.work()
    assert federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope).status_code == 201
