"""What a tester keeps on record is true: who asked, which bytes, who withdrew, who declined."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import respelled
from ended_studies import cancelled, incomplete
from study_parties import study_bytes
from tester_federation import Federation, problem

from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import CancellationMessage, DeclineMessage, Party, Transcript
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    STUDY_TYPE,
    PrivateKey,
    payload_of,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, VerifiedTranscript, verify_transcript
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester.archive import INDEX, Entry, open_archive, open_folder
from tacit_services.tester.archiving import ENDED, Archiver
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.study_completion import Signer

BEFORE = Path(__file__).parent / "before_signed_endings"
"""An archive and the tester's database that it was made from, by the version before this one."""


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
    own, other = parties.cancellation(study).decode(), parties.cancellation("ab" * 32).decode()
    by_tester = sign_envelope(
        encode(CancellationMessage(study=study)), CANCELLATION_TYPE, parties.tester
    ).decode()
    bare = retold(data, cancellation=None)
    assert "cancellation signed by its analyst" in fails(bare, "cancellation").reason
    assert verify_transcript(bare, cancellation=own).verdict.outcome == "cancelled"
    for forged in (other, by_tester, "{}", parties.decline(study, "north").decode()):
        fails(retold(data, cancellation=forged), "cancellation")
        fails(bare, "cancellation", cancellation=forged)


def test_a_tester_cannot_call_a_study_cancelled_by_itself(federation: Federation) -> None:
    """The attack of before: the tester signs ``cancelled`` for a study that nobody withdrew."""
    parties = federation.parties
    study, envelope = parties.sealed_study()
    missing = tuple(parties.owners)
    signer = Signer(parties.tester, "tacit test")
    for declines in (None, {}):
        verdict = signer.sign(study, "cancelled", {}, missing, declines=declines)
        lie = Transcript(study=envelope.decode(), releases={}, verdict=verdict.decode())
        fails(encode(lie), "cancellation")


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


def test_an_old_verdict_cannot_be_given_declines(federation: Federation) -> None:
    """A decline that the verdict does not list is no part of the transcript, and a release is no decline."""
    parties, study = federation.parties, incomplete(federation)
    data = transcript(federation, study)
    digests = federation.verdict(study).releases
    signer = Signer(parties.tester, "tacit test")
    old = signer.sign(study, "incomplete", digests, ("north", "west")).decode()
    fails(retold(data, verdict=old), "decline")
    verified = verify_transcript(retold(data, verdict=old, declines={}))
    assert any("earlier version" in note for note in verified.notes)
    declines = {"south": digest(encode(DeclineMessage(study=study, party="south")))}
    both = signer.sign(study, "incomplete", digests, ("north", "west"), declines=declines).decode()
    south = {"south": parties.decline(study, "south").decode()}
    fails(retold(data, verdict=both, declines=south), "decline")


# What earlier versions left behind.


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """The archive of the version before, and an engine on its tester's database, upgraded."""
    folder = shutil.copytree(BEFORE / "archive", tmp_path / "archive")
    file = tmp_path / "tester.sqlite3"
    with sqlite3.connect(file) as database:
        database.executescript((BEFORE / "tester.sql").read_text("utf-8"))
    database.close()
    engine = create_engine(f"sqlite:///{file}")
    upgrade(engine, "tester")
    yield folder, engine
    engine.dispose()


def entries(folder: Path) -> list[Entry]:
    return [decode(Entry, line) for line in (folder / INDEX).read_bytes().splitlines()]


def verified_in(folder: Path) -> dict[str, VerifiedTranscript]:
    return {
        entry.title: verify_transcript((folder / entry.file).read_bytes(), cancellation=entry.cancellation)
        for entry in entries(folder)
    }


def test_transcripts_of_the_version_before_verify(earlier: tuple[Path, Any]) -> None:
    """Completed and incomplete ones as they are; a cancelled one with the cancellation of its index line."""
    folder, _ = earlier
    verified = verified_in(folder)
    assert {v.verdict.outcome for v in verified.values()} == {"completed", "incomplete", "cancelled"}
    spaced = verified["Analyst of another name, and white space"]
    assert not spaced.canonical
    assert spaced.study.analyst.name == "bob"
    assert any("not the canonical ones" in note for note in spaced.notes)
    assert not verified["Completed by version 1"].canonical, "its client left defaults out"
    withdrawn = next(entry for entry in entries(folder) if entry.state == "cancelled")
    fails((folder / withdrawn.file).read_bytes(), "cancellation")
    with open_archive(folder) as check:
        assert list(check.faults()) == []
    assert check.declines_unknown == 2


def test_a_tester_of_the_version_before_serves_whole_transcripts_after_an_upgrade(
    earlier: tuple[Path, Any],
) -> None:
    folder, engine = earlier
    for entry in entries(folder):
        data = run_transaction(engine, lambda c, study=entry.study: transcript_of(c, study), read_only=True)
        assert data is not None
        verify_transcript(data)
        is_same = data == (folder / entry.file).read_bytes()
        assert is_same == (entry.state != "cancelled"), "only what lacked a signature has other bytes"


def test_an_archive_of_the_version_before_is_gone_on_with(earlier: tuple[Path, Any]) -> None:
    """Rows are deleted on the strength of the files that are there, and no file is written anew."""
    folder, engine = earlier
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    now = max(entry.ended_at for entry in entries(folder)) + 1
    with open_folder(folder) as opened:
        done = Archiver(engine, opened, lambda: now, delete=True).run(dict.fromkeys(ENDED, now))
    assert len(done.deleted) == 5
    assert done.refused == {}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_a_verdict_without_declines_cannot_tell_is_counted_and_an_early_end_is_not_believed(
    earlier: tuple[Path, Any],
) -> None:
    folder, _ = earlier
    changed = []
    for entry in entries(folder):
        is_stripped = entry.title == "Two declines"
        changed.append(entry.model_copy(update={"declines": {}}) if is_stripped else entry)
    (folder / INDEX).write_bytes(b"".join(encode(entry) + b"\n" for entry in changed))
    with open_archive(folder) as check:
        ((_, fault),) = check.faults()
    assert "lacks a decline" in fault
