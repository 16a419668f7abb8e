"""A transcript whose study reads earlier releases again holds with exactly those; anything else is caught."""

from typing import Any

import pytest
from study_parties import MeanProcedure, Parties
from tampering import tampered

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Party, Release, Study, Transcript, VerdictMessage
from tacit_protocol.procedures import discovery
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
def case(parties: Parties, mean_procedure: MeanProcedure) -> Case:
    return Case(parties)


def fails(data: bytes, step: str, words: str | None = None) -> VerificationError:
    with pytest.raises(VerificationError, match=words) as caught:
        verify_transcript(data)
    assert caught.value.step == step, str(caught.value)
    return caught.value


def test_a_transcript_with_a_reused_release_holds(case: Case) -> None:
    verified = verify_transcript(case.transcript(), case.parties.tester.public_hex)
    assert verified.verdict == case.verdict()
    assert set(verified.releases) == {"north", "south"}
    assert verified.release_digests == case.verdict().releases


def test_what_is_missing_or_too_much_is_caught(case: Case) -> None:
    north = case.reused["north"].decode()
    fails(case.transcript(reused={}), "reuse", "other earlier releases")
    fails(case.transcript(reused={"north": north, "west": north}), "reuse", "other earlier releases")
    fails(case.transcript(sources={}), "reuse", "other earlier studies")
    study = case.study_envelope.decode()
    sources = {case.source: case.source_envelope.decode(), case.study: study}
    fails(case.transcript(sources=sources), "reuse", "other earlier studies")
    fails(case.transcript(sources={case.source: study}), "reuse", "its digest names")


def test_a_release_that_its_owner_was_not_asked_for_is_caught(case: Case) -> None:
    """The owner reuses a release: one that it sends besides belongs to nobody's roster."""
    extra = case.parties.release(case.study, "north", value=99)
    releases = {"north": extra.decode(), "south": case.releases["south"].decode()}
    fails(case.transcript(releases=releases), "release")
    fails(case.transcript(releases=releases, reused={}), "release")
    assert fails(case.transcript(reused={"north": extra.decode()}), "reuse", "another study").party == "north"


def test_another_release_of_the_same_study_and_owner_is_caught(case: Case) -> None:
    """The verdict binds one, and its result shows a tester that swaps it and signs so."""
    other = case.parties.release(case.source, "north", value=11)
    fails(case.transcript(reused={"north": other.decode()}), "roster")
    case.reused = {"north": other}
    fails(case.transcript(), "result")


def test_releases_of_others_and_of_other_studies_are_caught(case: Case) -> None:
    south = case.parties.release(case.source, "south", value=10)
    fails(case.transcript(reused={"north": south.decode()}), "reuse", "another key")
    elsewhere = case.parties.release("0" * 64, "north", value=10)
    fails(case.transcript(reused={"north": elsewhere.decode()}), "reuse", "another study")
    mallory = sign_envelope(case.payload("north"), RELEASE_TYPE, PrivateKey.generate())
    fails(case.transcript(reused={"north": mallory.decode()}), "reuse", "another key")


def test_a_source_of_another_signer_and_a_release_that_never_fitted_it_are_caught(case: Case) -> None:
    payload = open_envelope(case.source_envelope, STUDY_TYPE, case.parties.analyst.public_hex)
    forged = sign_envelope(payload, STUDY_TYPE, PrivateKey.generate())
    fails(case.transcript(sources={case.source: forged.decode()}), "reuse", "analyst")
    misfit = case.payload("north").replace(b'"mean"', b'"mode"')
    envelope = sign_envelope(misfit, RELEASE_TYPE, case.parties.owners["north"])
    fails(case.transcript(reused={"north": envelope.decode()}), "reuse", "one number")


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
        fails(Case(parties, **changes).transcript(), "reuse", words)


def test_what_is_read_again_must_fit_the_later_study(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A procedure that rereads nothing is caught, and one that returned anything is held to its own check."""

    class Forgetful(MeanProcedure):
        reread = None  # type: ignore[assignment]

    class Careless(MeanProcedure):
        def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
            return release.model_copy(update={"vectors": {"mode": release.vectors["mean"]}})

    data = case.transcript()
    monkeypatch.setitem(discovery.PROCEDURES, "mean", Forgetful())
    fails(data, "study", "no release of an earlier study")
    monkeypatch.setitem(discovery.PROCEDURES, "mean", Careless())
    fails(data, "reuse", "does not fit this study")


def test_no_field_of_a_reused_release_or_its_study_can_be_changed(case: Case) -> None:
    """Though its own signer signs it anew."""
    count = 0
    for _, payload in tampered(case.payload("north")):
        envelope = sign_envelope(payload, RELEASE_TYPE, case.parties.owners["north"])
        with pytest.raises(VerificationError):
            verify_transcript(case.transcript(reused={"north": envelope.decode()}))
        count += 1
    source = open_envelope(case.source_envelope, STUDY_TYPE, case.parties.analyst.public_hex)
    for _, payload in tampered(source):
        envelope = sign_envelope(payload, STUDY_TYPE, case.parties.analyst)
        fails(case.transcript(sources={case.source: envelope.decode()}), "reuse")
        with pytest.raises(VerificationError):
            verify_transcript(case.transcript(sources={digest(payload): envelope.decode()}))
        count += 1
    assert count >= 30


def test_an_ended_study_lists_what_it_would_have_reused(case: Case) -> None:
    digests = {"north": digest(case.payload("north"))}
    ended: dict[str, Any] = {
        "outcome": "incomplete",
        "releases": digests,
        "missing": ("south",),
        "declines": {},
        "result": None,
    }
    verify_transcript(case.transcript(case.verdict(**ended), releases={}))
    fails(case.transcript(case.verdict(**(ended | {"releases": {}})), releases={}), "roster")
    wrong = ended | {"missing": ("north", "south")}
    fails(case.transcript(case.verdict(**wrong), releases={}), "roster")
