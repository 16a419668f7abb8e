"""What a tester keeps on record is true: who asked, which bytes, who withdrew or declined, who is revoked."""

import asyncio
import json
from typing import Any

import pytest
import respelled
from ended_studies import cancel, cancelled, completed, incomplete
from served import problem
from study_parties import study_bytes
from tester_federation import Federation

from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import CancellationMessage, DeclineMessage, Party, Transcript
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    payload_of,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.tables import SIGN_IN
from tacit_services.tester.verdicts import Signer


def put(federation: Federation, payload: bytes, key: PrivateKey | None = None) -> Any:
    signer = key or federation.parties.analyst
    return federation.put(
        f"/v1/studies/{digest(payload)}", signer, sign_envelope(payload, STUDY_TYPE, signer)
    )


def test_a_study_gives_its_analyst_the_name_that_the_key_is_enrolled_by(federation: Federation) -> None:
    """Ann's key signs as bob: refused, though bob is enrolled nowhere, somewhere, or as an owner."""
    parties = federation.parties
    bob = PrivateKey.generate()
    for name in ("bob", "north", "analyst2"):
        analyst = Party(name=name, key=parties.analyst.public_hex)
        answer = put(federation, study_bytes(parties.study(analyst=analyst)))
        assert answer.status_code == 422, answer.text
        assert problem(answer) == "study-refused"
        assert "another name" in answer.json()["detail"]
    assert federation.enrol("bob", "analyst", bob).status_code == 201
    forged = study_bytes(parties.study(analyst=Party(name="bob", key=parties.analyst.public_hex)))
    assert put(federation, forged).status_code == 422
    assert put(federation, study_bytes(parties.study())).status_code == 201
    own = study_bytes(parties.study(analyst=Party(name="bob", key=bob.public_hex)))
    assert put(federation, own, bob).status_code == 201


def test_only_a_studys_canonical_bytes_are_taken(federation: Federation) -> None:
    payload = study_bytes(federation.parties.study(title=respelled.TITLE))
    for name, other in respelled.respellings(payload).items():
        answer = put(federation, other)
        assert answer.status_code in {400, 422}, name
        if answer.status_code == 422:
            assert "canonical" in answer.json()["detail"], name
    assert federation.get("/v1/studies").json()["items"] == []
    assert put(federation, payload).status_code == 201


def transcript(federation: Federation, study: str) -> bytes:
    answer = federation.get(f"/v1/studies/{study}/transcript")
    assert answer.status_code == 200, answer.text
    return answer.content


def fails(data: bytes, step: str, **options: Any) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify_transcript(data, **options)
    assert caught.value.step == step, str(caught.value)
    return caught.value


def retold(data: bytes, **changes: Any) -> bytes:
    return encode(decode(Transcript, data, size_bytes_max=2**28).model_copy(update=changes))


def test_a_cancelled_study_verifies_by_its_analysts_signature_alone(federation: Federation) -> None:
    parties, study = federation.parties, cancelled(federation)
    data = transcript(federation, study)
    assert verify_transcript(data).verdict.outcome == "cancelled"
    other = parties.cancellation("ab" * 32).decode()
    by_tester = sign_envelope(
        encode(CancellationMessage(study=study)), CANCELLATION_TYPE, parties.tester
    ).decode()
    bare = retold(data, cancellation=None)
    assert "cancellation signed by its analyst" in fails(bare, "cancellation").reason
    for forged in (other, by_tester, "{}", parties.decline(study, "north").decode()):
        fails(retold(data, cancellation=forged), "cancellation")


def test_a_tester_cannot_call_a_study_cancelled_by_itself(federation: Federation) -> None:
    """The attack of before: the tester signs ``cancelled`` for a study that nobody withdrew."""
    parties = federation.parties
    study, envelope = parties.sealed_study()
    missing = tuple(parties.owners)
    signer = Signer(parties.tester, "tacit test")
    for declines, step in ((None, "verdict"), ({}, "cancellation")):
        verdict = signer.sign(study, "cancelled", {}, missing, declines=declines)
        lie = Transcript(study=envelope.decode(), releases={}, verdict=verdict.decode())
        fails(encode(lie), step)


def test_declines_are_signed_twice_and_none_can_be_removed_or_put_in(federation: Federation) -> None:
    parties, study = federation.parties, incomplete(federation)
    data = transcript(federation, study)
    verified = verify_transcript(data)
    assert verified.declined == ("north", "west")
    assert len(verified.notes) == 1, "who declined is known"
    held = decode(Transcript, data, size_bytes_max=2**28).declines
    fails(retold(data, declines={}), "decline")
    fails(retold(data, declines={"north": held["north"]}), "decline")
    fails(retold(data, declines={**held, "south": parties.decline(study, "south").decode()}), "decline")
    fails(retold(data, declines={"north": held["west"], "west": held["north"]}), "decline")
    message = encode(DeclineMessage(study=study, party="north"))
    by_tester = sign_envelope(message, DECLINE_TYPE, parties.tester).decode()
    fails(retold(data, declines={**held, "north": by_tester}), "decline")
    respelt = sign_envelope(message + b" ", DECLINE_TYPE, parties.owners["north"]).decode()
    fails(retold(data, declines={**held, "north": respelt}), "decline")


def test_a_public_rule_is_shown_while_the_study_runs_and_verified_once_it_has_ended(
    federation: Federation,
) -> None:
    parties, study = federation.parties, federation.create()
    path, key = f"/v1/studies/{study}/declines/north", parties.owners["north"]
    named = decode(DeclineMessage, payload_of(parties.decline(study, "north", "too-few-units")))
    for other in ("too-little-data", "budget-exceeded"):
        forged = sign_envelope(encode(named).replace(b"too-few-units", other.encode()), DECLINE_TYPE, key)
        refused = federation.put(path, key, forged)
        assert problem(refused) == "malformed-message"
        assert other not in refused.text
    owners = federation.get(f"/v1/studies/{study}").json()["owners"]
    assert owners[0] == {"name": "north", "sent": False, "declined": False}
    assert federation.put(path, key, parties.decline(study, "north", "too-few-units")).status_code == 201
    owners = federation.get(f"/v1/studies/{study}").json()["owners"]
    assert owners[0] == {"name": "north", "sent": False, "declined": True, "rule": "too-few-units"}
    for owner in ("south", "west"):
        assert federation.decline(study, owner).status_code == 201
    data = transcript(federation, study)
    verified = verify_transcript(data)
    assert verified.declined == ("north", "south", "west")
    assert verified.rules == {"north": "too-few-units"}
    held = decode(Transcript, data, size_bytes_max=2**28).declines
    other = parties.decline(study, "north", "too-many-units").decode()
    fails(retold(data, declines={**held, "north": other}), "decline")
    fails(retold(data, declines={**held, "north": parties.decline(study, "north").decode()}), "decline")


def test_a_verdict_lists_who_declined_and_nobody_who_released(federation: Federation) -> None:
    """One that leaves it out, so that a decline passes for silence, is refused, whatever else is there."""
    parties, study = federation.parties, incomplete(federation)
    data = transcript(federation, study)
    digests = federation.verdict(study).releases
    signer = Signer(parties.tester, "tacit test")
    silent = signer.sign(study, "incomplete", digests, ("north", "west")).decode()
    fails(retold(data, verdict=silent), "verdict")
    fails(retold(data, verdict=silent, declines={}), "verdict")
    declines = {"south": digest(encode(DeclineMessage(study=study, party="south")))}
    both = signer.sign(study, "incomplete", digests, ("north", "west"), declines=declines).decode()
    south = {"south": parties.decline(study, "south").decode()}
    fails(retold(data, verdict=both, declines=south), "decline")


def revoke(federation: Federation, name: str, key: PrivateKey | None = None) -> Any:
    return federation.call("PUT", f"/v1/parties/{name}/revocation", key or federation.parties.tester)


def test_a_revoked_key_is_refused_at_every_process_and_for_good(federation: Federation) -> None:
    """Also where another tester on the same database knows its role by heart, once that has looked."""
    parties, north = federation.parties, federation.parties.owners["north"]
    for key in (parties.analyst, north):
        assert problem(revoke(federation, "south", key)) == "forbidden"
    assert problem(revoke(federation, "nobody")) == "unknown-party"
    other = federation.start_tester()

    def ask_other(path: str) -> Any:
        return asyncio.run(federation.send("GET", path, north, app=other))

    other.state.watch.check()
    assert federation.get("/v1/inbox?wait_s=0", north).status_code == 200
    assert ask_other("/v1/inbox?wait_s=0").status_code == 200
    answer = revoke(federation, "north")
    assert (answer.status_code, answer.json()["revoked_at"]) == (201, int(federation.now))
    federation.now += 5
    again = revoke(federation, "north")
    assert (again.status_code, again.json()) == (200, answer.json()), "the first time counts"
    other.state.watch.check()
    for path in ("/v1/studies", "/v1/inbox?wait_s=0", "/v1/parties"):
        for refused in (federation.get(path, north), ask_other(path)):
            assert (refused.status_code, problem(refused)) == (403, "key-revoked"), path
    listed = {party["name"]: party for party in federation.get("/v1/parties").json()["items"]}
    assert (
        listed["north"]
        == answer.json()
        == {
            "name": "north",
            "key": north.public_hex,
            "role": "owner",
            "revoked_at": int(federation.now) - 5,
        }
    )
    assert {name: party["revoked_at"] for name, party in listed.items() if name != "north"} == dict.fromkeys(
        ("analyst", "south", "west")
    )
    assert parties.analyst.public_hex == listed["analyst"]["key"]


def test_neither_its_name_nor_its_key_becomes_anothers(federation: Federation) -> None:
    parties = federation.parties
    assert revoke(federation, "north").status_code == 201
    invited = federation.call(
        "POST", "/v1/invitations", parties.tester, json={"role": "owner", "name": "north"}
    )
    assert problem(invited) == "party-exists"
    assert problem(federation.enrol("north-2", "owner", parties.owners["north"])) == "party-exists"
    assert federation.enrol("north-2", "owner", PrivateKey.generate()).status_code == 201


def test_no_study_is_taken_from_or_for_a_revoked_key(federation: Federation) -> None:
    parties = federation.parties
    assert revoke(federation, "west").status_code == 201
    study, envelope = parties.sealed_study()
    answer = federation.put(f"/v1/studies/{study}", parties.analyst, envelope)
    assert problem(answer) == "unknown-party"
    owners = tuple(parties.owner(name) for name in ("north", "south"))
    study = federation.create(owners=owners)
    assert revoke(federation, "analyst").status_code == 201
    other, envelope = parties.sealed_study(owners=owners, title="One more?")
    assert problem(federation.put(f"/v1/studies/{other}", parties.analyst, envelope)) == "key-revoked"
    assert problem(cancel(federation, study)) == "key-revoked"


def test_a_creation_that_was_let_in_before_the_revocation_stores_nothing_after_it(
    federation: Federation,
) -> None:
    """The role is looked up before the body is read; what counts is the transaction that stores."""
    parties = federation.parties
    app = federation.start_tester()
    app.state.watch.check()
    study, envelope = parties.sealed_study()
    assert federation.get("/v1/studies", parties.analyst).status_code == 200
    warm = asyncio.run(federation.send("GET", "/v1/studies", parties.analyst, app=app))
    assert warm.status_code == 200
    assert revoke(federation, "analyst").status_code == 201
    late = asyncio.run(
        federation.send("PUT", f"/v1/studies/{study}", parties.analyst, app=app, content=envelope)
    )
    assert problem(late) == "key-revoked"
    assert federation.get("/v1/studies").json()["items"] == []


def test_studies_that_need_the_key_end_and_others_go_on(federation: Federation) -> None:
    parties = federation.parties
    waits = federation.create(title="Waits for north?")
    assert federation.release(waits, "south").status_code == 201
    assert federation.decline(waits, "west").status_code == 201
    has_sent = federation.create(title="North has sent")
    assert federation.release(has_sent, "north").status_code == 201
    without = federation.create(
        title="Without north", owners=tuple(parties.owner(n) for n in ("south", "west"))
    )
    assert revoke(federation, "north").status_code == 201
    assert [federation.state(study) for study in (waits, has_sent, without)] == [
        "incomplete",
        "collecting",
        "collecting",
    ]
    verdict = federation.verdict(waits)
    assert (verdict.missing, verdict.revoked) == (("north", "west"), ("north",))
    verified = verify_transcript(transcript(federation, waits))
    assert verified.declined == ("west",)
    assert any("a key was revoked (north)" in note for note in verified.notes)
    late = federation.release(waits, "north")
    assert problem(late) == "key-revoked"
    for owner in ("south", "west"):
        assert federation.release(has_sent, owner).status_code == 201
    while federation.work():
        pass
    assert federation.state(has_sent) == "completed"
    assert verify_transcript(transcript(federation, has_sent)).verdict.outcome == "completed"


def test_an_analysts_collecting_studies_end_with_its_key(federation: Federation) -> None:
    collecting, done = federation.create(title="Collecting?"), completed(federation, title="Done?")
    before = transcript(federation, done)
    assert revoke(federation, "analyst").status_code == 201
    assert federation.state(collecting) == "incomplete"
    assert federation.verdict(collecting).revoked == ("analyst",)
    assert transcript(federation, done) == before
    assert verify_transcript(before).verdict.outcome == "completed", "older signatures hold"
    inbox = federation.get("/v1/inbox?wait_s=0", federation.parties.owners["north"]).json()
    assert inbox == {"items": []}


def test_a_verdict_cannot_blame_a_key_that_its_study_did_not_need(federation: Federation) -> None:
    parties, study = federation.parties, federation.create()
    assert federation.release(study, "south").status_code == 201
    assert revoke(federation, "north").status_code == 201
    data = decode(Transcript, transcript(federation, study), size_bytes_max=2**28)
    verdict = federation.verdict(study)
    for names in (("south",), ("stranger",)):
        lie = sign_envelope(
            encode(verdict.model_copy(update={"revoked": names})), VERDICT_TYPE, parties.tester
        )
        with pytest.raises(VerificationError, match="revoked key"):
            verify_transcript(encode(data.model_copy(update={"verdict": lie.decode()})))


def test_browsers_that_a_revoked_key_signed_in_are_signed_out(federation: Federation) -> None:
    parties = federation.parties
    sessions = Sessions(federation.engine, SIGN_IN, lambda: federation.now)
    key, other = parties.owners["north"].public_hex, parties.owners["south"].public_hex
    unused, _ = sessions.make_link(key)
    cookies = {name: sessions.use_link(sessions.make_link(name)[0]) for name in (key, other)}
    assert revoke(federation, "north").status_code == 201
    assert sessions.find(cookies[key]) is None
    assert sessions.find(cookies[other]) is not None
    with pytest.raises(RegisteredProblemError):
        sessions.use_link(unused)


def test_an_invitation_is_revoked_and_every_one_is_on_record(federation: Federation) -> None:
    parties = federation.parties

    def invite(name: str) -> str:
        request = {"role": "owner", "name": name}
        answer = federation.call("POST", "/v1/invitations", parties.tester, json=request)
        return str(answer.json()["invitation"])

    first, second, kept = invite("east"), invite("east"), invite("far")
    key = PrivateKey.generate()
    for caller in (parties.analyst, key):
        refused = federation.call("DELETE", "/v1/invitations/east", caller)
        assert problem(refused) in {"forbidden", "unknown-party"}
        assert federation.call("GET", "/v1/invitations", caller).status_code == 403
    answers = [federation.call("DELETE", "/v1/invitations/east", parties.tester) for _ in range(2)]
    assert [answer.json()["revoked"] for answer in answers] == [2, 0]
    for invitation, name, expected in ((first, "east", 403), (second, "east", 403), (kept, "far", 201)):
        body = {"invitation": invitation, "name": name, "key": key.public_hex, "role": "owner"}
        assert federation.call("POST", "/v1/enrolments", key, json=body).status_code == expected
    third = invite("east")
    other = PrivateKey.generate()
    body = {"invitation": third, "name": "east", "key": other.public_hex, "role": "owner"}
    assert federation.call("POST", "/v1/enrolments", other, json=body).status_code == 201
    answer = federation.call("GET", "/v1/invitations", parties.tester)
    listed = [(item["name"], item["state"]) for item in answer.json()["items"]]
    assert sorted(pair for pair in listed if pair[0] in {"east", "far"}) == [
        ("east", "revoked"),
        ("east", "revoked"),
        ("east", "used"),
        ("far", "used"),
    ]
    for invitation in (first, second, kept, third):
        assert invitation not in json.dumps(answer.json())
    assert revoke(federation, "east").status_code == 201
    assert problem(federation.call("POST", "/v1/enrolments", other, json=body)) == "key-revoked"
