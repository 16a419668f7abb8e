"""A transcript holds only as it was made: tampering with any single field is caught, whoever re-signs it."""

import json
from typing import Any

import pytest
import respelled
from study_parties import MeanProcedure, Parties, study_bytes
from tampering import tampered

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import ReleaseMessage, Transcript, VerdictMessage
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
