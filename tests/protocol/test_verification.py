"""Verification of transcripts: nothing can be changed afterwards, with releases read again too."""

import json
from typing import Any

import pytest
import respelled
from study_parties import MeanProcedure, Parties, study_bytes
from tampering import tampered

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import (
    Owner,
    Party,
    Release,
    ReleaseMessage,
    Study,
    Transcript,
    VerdictMessage,
)
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import (
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    open_envelope,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript


class Case:
    """A completed study's payloads, to be tampered with and sealed again."""

    def __init__(self, parties: Parties) -> None:
        self.parties = parties
        self.study, self.study_envelope = parties.sealed_study()
        self.releases = {
            name: parties.release(self.study, name, value=10 * (index + 1))
            for index, name in enumerate(parties.owners)
        }
        messages = {name: ReleaseMessage.model_validate_json(self.payload(name)) for name in self.releases}
        procedure = procedure_named("mean")
        result = procedure.assemble(parties.study(), {name: m.release for name, m in messages.items()})
        self.verdict = VerdictMessage(
            study=self.study,
            outcome="completed",
            releases={name: digest(self.payload(name)) for name in self.releases},
            result=json.loads(encode(result)),
            software="tacit test",
        )

    def payload(self, owner: str) -> bytes:
        return open_envelope(self.releases[owner], RELEASE_TYPE, self.parties.owners[owner].public_hex)

    def sealed_verdict(self, payload: bytes | None = None) -> bytes:
        return sign_envelope(payload or encode(self.verdict), VERDICT_TYPE, self.parties.tester)

    def transcript(self, **changes: Any) -> bytes:
        """Write the transcript, with some of its envelopes replaced."""
        return encode(
            Transcript(
                study=changes.get("study", self.study_envelope).decode(),
                releases={n: e.decode() for n, e in changes.get("releases", self.releases).items()},
                verdict=changes.get("verdict", self.sealed_verdict()).decode(),
            )
        )


@pytest.fixture
def case(parties: Parties, mean_procedure: MeanProcedure) -> Case:
    return Case(parties)


def fails(data: bytes, step: str, tester_key: str | None = None) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify_transcript(data, tester_key)
    assert caught.value.step == step, str(caught.value)
    return caught.value


def test_a_transcript_as_it_was_made_holds(case: Case) -> None:
    verified = verify_transcript(case.transcript(), case.parties.tester.public_hex)
    assert verified.study_digest == case.study
    assert verified.verdict == case.verdict
    assert verified.release_digests == case.verdict.releases
    assert verified.result.model_dump()["mean"] == 2.0


def test_a_lying_tester_cannot_change_any_field_of_its_verdict(case: Case) -> None:
    """Only the name of the software is the tester's own word."""
    believed = []
    for path, payload in tampered(encode(case.verdict)):
        try:
            verify_transcript(case.transcript(verdict=case.sealed_verdict(payload)))
        except VerificationError:
            continue
        believed.append(path)
    assert believed == ["software"]


def test_nobody_can_change_a_release_or_the_study_afterwards(case: Case) -> None:
    """Every changed field is caught, though its own signer signs it anew: the verdict binds the first one."""
    study = open_envelope(case.study_envelope, STUDY_TYPE, case.parties.analyst.public_hex)
    changed: list[dict[str, Any]] = [
        {
            "releases": case.releases
            | {"north": sign_envelope(payload, RELEASE_TYPE, case.parties.owners["north"])}
        }
        for _, payload in tampered(case.payload("north"))
    ]
    changed += [
        {"study": sign_envelope(payload, STUDY_TYPE, case.parties.analyst)} for _, payload in tampered(study)
    ]
    for changes in changed:
        with pytest.raises(VerificationError):
            verify_transcript(case.transcript(**changes))
    assert len(changed) >= 37


def test_a_verdict_computed_from_another_release_is_caught(case: Case) -> None:
    """The tester lists the swapped release's digest, but keeps the old result."""
    other = case.parties.release(case.study, "north", value=11)
    releases = case.releases | {"north": other}
    payload = open_envelope(other, RELEASE_TYPE, case.parties.owners["north"].public_hex)
    verdict = case.verdict.model_copy(update={"releases": case.verdict.releases | {"north": digest(payload)}})
    error = fails(case.transcript(releases=releases, verdict=case.sealed_verdict(encode(verdict))), "result")
    assert "$.mean" in error.reason


def test_a_result_beyond_rounding_or_of_other_fields_is_caught_and_rounding_is_not(case: Case) -> None:
    result = case.verdict.result
    assert result is not None

    def stating(other: dict[str, Any]) -> bytes:
        verdict = case.verdict.model_copy(update={"result": other})
        return case.transcript(verdict=case.sealed_verdict(encode(verdict)))

    verify_transcript(stating(result | {"mean": 2.0 * (1 + 1e-8)}))
    without = {name: value for name, value in result.items() if name != "note"}
    for other in (result | {"mean": 2.0 * (1 + 1e-5)}, result | {"more": 1}, without, {}):
        fails(stating(other), "result")


def test_signers_must_be_those_of_the_study(case: Case) -> None:
    mallory = PrivateKey.generate()
    study = open_envelope(case.study_envelope, STUDY_TYPE, case.parties.analyst.public_hex)
    fails(case.transcript(study=sign_envelope(study, STUDY_TYPE, mallory)), "study")
    fails(case.transcript(verdict=sign_envelope(encode(case.verdict), VERDICT_TYPE, mallory)), "verdict")
    forged = sign_envelope(case.payload("north"), RELEASE_TYPE, mallory)
    error = fails(case.transcript(releases=case.releases | {"north": forged}), "release")
    assert error.party == "north"


def test_another_tester_than_expected_is_caught(case: Case) -> None:
    fails(case.transcript(), "study", PrivateKey.generate().public_hex)


def test_a_dropped_release_is_caught(case: Case) -> None:
    releases = {name: envelope for name, envelope in case.releases.items() if name != "west"}
    fails(case.transcript(releases=releases), "roster")
    digests = {name: value for name, value in case.verdict.releases.items() if name != "west"}
    for missing in ((), ("west",)):
        verdict = case.verdict.model_copy(update={"releases": digests, "missing": missing})
        fails(case.transcript(releases=releases, verdict=case.sealed_verdict(encode(verdict))), "roster")


def test_releases_of_strangers_exchanged_of_another_study_or_shape_are_caught(case: Case) -> None:
    north, south = case.releases["north"], case.releases["south"]
    misfit = case.payload("north").replace(b'"mean"', b'"mode"')
    for wrong in (
        {"east": north},
        {"north": south, "south": north},
        {"north": case.parties.release("0" * 64, "north", value=10)},
        {"north": sign_envelope(misfit, RELEASE_TYPE, case.parties.owners["north"])},
    ):
        fails(case.transcript(releases=case.releases | wrong), "release")


def _ended(case: Case, outcome: str, absent: tuple[str, ...], **changes: Any) -> bytes:
    releases = {name: envelope for name, envelope in case.releases.items() if name not in absent}
    plain: dict[str, Any] = {
        "outcome": outcome,
        "missing": absent,
        "releases": {name: case.verdict.releases[name] for name in releases},
        "declines": None if outcome == "completed" else {},
        "result": None,
    }
    verdict = case.verdict.model_copy(update=plain | changes)
    return case.transcript(releases=releases, verdict=case.sealed_verdict(encode(verdict)))


def test_an_incomplete_study_holds_and_its_lies_are_caught(case: Case) -> None:
    verified = verify_transcript(_ended(case, "incomplete", ("south",)))
    assert verified.result is None
    assert verified.verdict.missing == ("south",)
    fails(_ended(case, "cancelled", ("south",)), "cancellation")
    fails(_ended(case, "incomplete", ()), "roster")
    fails(_ended(case, "incomplete", ("south",), missing=("north",)), "roster")
    fails(_ended(case, "incomplete", ("south",), missing=("south", "west")), "roster")
    fails(_ended(case, "incomplete", ("south",), result=case.verdict.result), "verdict")
    fails(_ended(case, "completed", ()), "verdict")
    fails(_ended(case, "incomplete", ("south",), declines=None), "verdict")
    completed = case.verdict.model_copy(update={"declines": {}})
    fails(case.transcript(verdict=case.sealed_verdict(encode(completed))), "verdict")


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b"\xff", b'{"format":"tacit/transcript/2"}'])
def test_what_is_no_transcript_is_refused(data: bytes) -> None:
    fails(data, "transcript")


def test_a_release_that_breaks_the_recomputation_is_caught(
    case: Case, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise ZeroDivisionError

    data = case.transcript()
    monkeypatch.setattr(mean_procedure, "during_assembly", breaks)
    fails(data, "result")


def test_a_study_in_another_spelling_is_refused(parties: Parties, mean_procedure: MeanProcedure) -> None:
    """A tester could have it answered twice, under two digests: no honest party answers it at all."""
    payload = study_bytes(parties.study(title=respelled.TITLE))
    for name, other in respelled.respellings(payload).items():
        study = digest(other)
        verdict = VerdictMessage(
            study=study,
            outcome="incomplete",
            releases={},
            missing=tuple(parties.owners),
            declines={},
            software="x",
        )
        lie = Transcript(
            study=sign_envelope(other, STUDY_TYPE, parties.analyst).decode(),
            releases={},
            verdict=sign_envelope(encode(verdict), VERDICT_TYPE, parties.tester).decode(),
        )
        reason = fails(encode(lie), "study").reason
        assert "canonical" in reason or "number" in reason, (name, reason)


# A transcript whose study reads earlier releases again holds with exactly those; anything else is caught.


class ReuseCase:
    """A study in which north's release for an earlier study is read again, and south sends one."""

    def __init__(self, parties: Parties, **source_changes: Any) -> None:
        self.parties = parties
        self.source, self.source_envelope = parties.sealed_study(title="Earlier", **source_changes)
        self.reused = {"north": parties.release(self.source, "north", value=10)}
        self.study, self.study_envelope = parties.sealed_study(
            owners=(parties.owner("north", reuses=self.source), parties.owner("south"))
        )
        self.releases = {"south": parties.release(self.study, "south", value=30)}

    def verdict(self, **changes: Any) -> VerdictMessage:
        """What an honest tester would sign on these envelopes."""
        plain = {
            "study": self.study,
            "outcome": "completed",
            "releases": {name: digest(self.payload(name)) for name in ("north", "south")},
            "result": {"mean": 2.0, "units": {"north": 10, "south": 10}, "note": "mean"},
            "software": "tacit test",
        }
        return VerdictMessage.model_validate(plain | changes)

    def payload(self, owner: str) -> bytes:
        envelope = (self.reused | self.releases)[owner]
        return open_envelope(envelope, RELEASE_TYPE, self.parties.owners[owner].public_hex)

    def transcript(self, verdict: VerdictMessage | None = None, **changes: Any) -> bytes:
        plain = {
            "study": self.study_envelope.decode(),
            "releases": {name: envelope.decode() for name, envelope in self.releases.items()},
            "reused": {name: envelope.decode() for name, envelope in self.reused.items()},
            "sources": {self.source: self.source_envelope.decode()},
            "verdict": sign_envelope(
                encode(verdict or self.verdict()), VERDICT_TYPE, self.parties.tester
            ).decode(),
        }
        return encode(Transcript(**(plain | changes)))


@pytest.fixture
def reuse_case(parties: Parties, mean_procedure: MeanProcedure) -> ReuseCase:
    return ReuseCase(parties)


def reuse_fails(data: bytes, step: str, words: str | None = None) -> VerificationError:
    with pytest.raises(VerificationError, match=words) as caught:
        verify_transcript(data)
    assert caught.value.step == step, str(caught.value)
    return caught.value


def test_a_transcript_with_a_reused_release_holds(reuse_case: ReuseCase) -> None:
    verified = verify_transcript(reuse_case.transcript(), reuse_case.parties.tester.public_hex)
    assert verified.verdict == reuse_case.verdict()
    assert set(verified.releases) == {"north", "south"}
    assert verified.release_digests == reuse_case.verdict().releases


def test_what_is_missing_or_too_much_is_caught(reuse_case: ReuseCase) -> None:
    north = reuse_case.reused["north"].decode()
    reuse_fails(reuse_case.transcript(reused={}), "reuse", "other earlier releases")
    reuse_fails(
        reuse_case.transcript(reused={"north": north, "west": north}), "reuse", "other earlier releases"
    )
    reuse_fails(reuse_case.transcript(sources={}), "reuse", "other earlier studies")
    study = reuse_case.study_envelope.decode()
    sources = {reuse_case.source: reuse_case.source_envelope.decode(), reuse_case.study: study}
    reuse_fails(reuse_case.transcript(sources=sources), "reuse", "other earlier studies")
    reuse_fails(reuse_case.transcript(sources={reuse_case.source: study}), "reuse", "its digest names")


def test_a_release_that_its_owner_was_not_asked_for_is_caught(reuse_case: ReuseCase) -> None:
    """The owner reuses a release: one that it sends besides belongs to nobody's roster."""
    extra = reuse_case.parties.release(reuse_case.study, "north", value=99)
    releases = {"north": extra.decode(), "south": reuse_case.releases["south"].decode()}
    reuse_fails(reuse_case.transcript(releases=releases), "release")
    reuse_fails(reuse_case.transcript(releases=releases, reused={}), "release")
    assert (
        reuse_fails(reuse_case.transcript(reused={"north": extra.decode()}), "reuse", "another study").party
        == "north"
    )


def test_another_release_of_the_same_study_and_owner_is_caught(reuse_case: ReuseCase) -> None:
    """The verdict binds one, and its result shows a tester that swaps it and signs so."""
    other = reuse_case.parties.release(reuse_case.source, "north", value=11)
    reuse_fails(reuse_case.transcript(reused={"north": other.decode()}), "roster")
    reuse_case.reused = {"north": other}
    reuse_fails(reuse_case.transcript(), "result")


def test_releases_of_others_and_of_other_studies_are_caught(reuse_case: ReuseCase) -> None:
    south = reuse_case.parties.release(reuse_case.source, "south", value=10)
    reuse_fails(reuse_case.transcript(reused={"north": south.decode()}), "reuse", "another key")
    elsewhere = reuse_case.parties.release("0" * 64, "north", value=10)
    reuse_fails(reuse_case.transcript(reused={"north": elsewhere.decode()}), "reuse", "another study")
    mallory = sign_envelope(reuse_case.payload("north"), RELEASE_TYPE, PrivateKey.generate())
    reuse_fails(reuse_case.transcript(reused={"north": mallory.decode()}), "reuse", "another key")


def test_a_source_of_another_signer_and_a_release_that_never_fitted_it_are_caught(
    reuse_case: ReuseCase,
) -> None:
    payload = open_envelope(reuse_case.source_envelope, STUDY_TYPE, reuse_case.parties.analyst.public_hex)
    forged = sign_envelope(payload, STUDY_TYPE, PrivateKey.generate())
    reuse_fails(reuse_case.transcript(sources={reuse_case.source: forged.decode()}), "reuse", "analyst")
    misfit = reuse_case.payload("north").replace(b'"mean"', b'"mode"')
    envelope = sign_envelope(misfit, RELEASE_TYPE, reuse_case.parties.owners["north"])
    reuse_fails(reuse_case.transcript(reused={"north": envelope.decode()}), "reuse", "one number")


def test_sources_that_the_tester_should_have_refused_are_caught(
    parties: Parties, mean_procedure: MeanProcedure
) -> None:
    """Of other columns, unit, tester, key or data set, without the owner, curated, or of a chain."""
    another, south = PrivateKey.generate().public_hex, parties.owner("south")
    age = Domain(columns=(NumericColumn(name="age", lower=0.0, upper=99.0),))
    sources: list[tuple[dict[str, Any], str | None]] = [
        ({"domain": age}, "other columns"),
        ({"unit_column": "patient"}, "privacy unit"),
        ({"tester": Party(name="tester", key=another)}, "another tester"),
        ({"owners": (parties.owner("north", data_set="staff"), south)}, "same key and data set"),
        ({"owners": (parties.owner("north", key=another), south)}, "same key and data set"),
        ({"owners": (south,)}, "same key and data set"),
        ({"owners": (parties.owner("north", reuses="0" * 64), south)}, "name the one it was made for"),
        ({"curator": Party(name="curator", key=another)}, None),
    ]
    for changes, words in sources:
        reuse_fails(ReuseCase(parties, **changes).transcript(), "reuse", words)


def test_what_is_read_again_must_fit_the_later_study(
    reuse_case: ReuseCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A procedure that rereads nothing is caught, and one that returned anything is held to its own check."""

    class Forgetful(MeanProcedure):
        reread = None  # type: ignore[assignment]

    class Careless(MeanProcedure):
        def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
            return release.model_copy(update={"vectors": {"mode": release.vectors["mean"]}})

    data = reuse_case.transcript()
    monkeypatch.setitem(discovery.PROCEDURES, "mean", Forgetful())
    reuse_fails(data, "study", "no release of an earlier study")
    monkeypatch.setitem(discovery.PROCEDURES, "mean", Careless())
    reuse_fails(data, "reuse", "does not fit this study")


def test_no_field_of_a_reused_release_or_its_study_can_be_changed(reuse_case: ReuseCase) -> None:
    """Though its own signer signs it anew."""
    count = 0
    for _, payload in tampered(reuse_case.payload("north")):
        envelope = sign_envelope(payload, RELEASE_TYPE, reuse_case.parties.owners["north"])
        with pytest.raises(VerificationError):
            verify_transcript(reuse_case.transcript(reused={"north": envelope.decode()}))
        count += 1
    source = open_envelope(reuse_case.source_envelope, STUDY_TYPE, reuse_case.parties.analyst.public_hex)
    for _, payload in tampered(source):
        envelope = sign_envelope(payload, STUDY_TYPE, reuse_case.parties.analyst)
        reuse_fails(reuse_case.transcript(sources={reuse_case.source: envelope.decode()}), "reuse")
        with pytest.raises(VerificationError):
            verify_transcript(reuse_case.transcript(sources={digest(payload): envelope.decode()}))
        count += 1
    assert count >= 30


def test_an_ended_study_lists_what_it_would_have_reused(reuse_case: ReuseCase) -> None:
    digests = {"north": digest(reuse_case.payload("north"))}
    ended: dict[str, Any] = {
        "outcome": "incomplete",
        "releases": digests,
        "missing": ("south",),
        "declines": {},
        "result": None,
    }
    verify_transcript(reuse_case.transcript(reuse_case.verdict(**ended), releases={}))
    reuse_fails(
        reuse_case.transcript(reuse_case.verdict(**(ended | {"releases": {}})), releases={}), "roster"
    )
    wrong = ended | {"missing": ("north", "south")}
    reuse_fails(reuse_case.transcript(reuse_case.verdict(**wrong), releases={}), "roster")
