"""The life of a study at the tester: enrolment, creation, inbox, endings, transcript."""

from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from ended_studies import cancel
from study_parties import Parties
from tester_federation import Federation, problem

from tacit_protocol.messages.encoding import decode, digest
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX, Owner, Party, Transcript
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, PrivateKey, open_envelope, sign_envelope
from tacit_services.shared.database import run_transaction
from tacit_services.shared.roster import INVITATION_LIFE_S
from tacit_services.tester.studies import DEADLINE_MAX_S
from tacit_services.tester.tables import METADATA


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


def test_strangers_read_nothing(federation: Federation) -> None:
    study = federation.create()
    stranger = PrivateKey.generate()
    for path in (
        "/v1/parties",
        "/v1/studies",
        "/v1/inbox",
        f"/v1/studies/{study}",
        f"/v1/studies/{study}/envelope",
        f"/v1/studies/{study}/verdict",
        f"/v1/studies/{study}/transcript",
    ):
        assert problem(federation.get(path, stranger)) == "unknown-party"
        assert problem(federation.call("GET", path, None)) == "unauthenticated"


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
