"""Releases that a later study reads again: what is admitted, what is refused, what each study rests on."""

from collections.abc import Callable
from typing import Any

import ended_studies
import pytest
import sqlalchemy as sa
from ended_studies import cancelled, incomplete
from study_parties import MeanProcedure, Parties
from tester_federation import Federation, problem

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Owner
from tacit_protocol.procedures import discovery
from tacit_protocol.signing import PrivateKey
from tacit_protocol.verification import verify_transcript
from tacit_services.shared.database import run_transaction
from tacit_services.tester import studies as tester_studies
from tacit_services.tester.tables import RELEASES, STUDIES

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
    assert verdict.result is not None
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
