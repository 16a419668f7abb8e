"""Peer mode: what the receiver finds, what may be published of it, and what a transcript of it shows."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from made_studies import SeededNoise
from two_sample_cases import MemoryTable
from world import PEER, RECEIVER, SENDER, key_of, peer_study, sealed

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import (
    Receipt,
    Release,
    ReleaseMessage,
    SealedPackage,
    SealedRelease,
    Study,
    Transcript,
    VerdictMessage,
    ciphertext_digest,
)
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.procedures.base import ReleaseError, StudyError, planned
from tacit_protocol.procedures.distance_correlation import DistanceCorrelationResult
from tacit_protocol.procedures.distance_correlation.peer import exact_covariance, influences
from tacit_protocol.procedures.plan import Combined
from tacit_protocol.procedures.relay import conclude
from tacit_protocol.signing import (
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    VERDICT_TYPE,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript

Floats = np.typing.NDArray[np.float64]

PROCEDURE, UNITS = PEER.procedure, 60


def table(study: Study, side: int, values: Floats) -> MemoryTable:
    domain = study.domain_of(study.owners[side])
    return MemoryTable(domain, values.reshape(len(values), -1), np.zeros((len(values), 0), np.int32), None)


def sent(study: Study, x: Floats, seed: int) -> Release:
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, table(study, 0, x)), SeededNoise(seed))


def combined(study: Study, x: Floats, y: Floats, seed: int = 1) -> tuple[Release, Combined]:
    release = sent(study, x, seed)
    planned(PROCEDURE, study).check_received(SENDER, release)
    return release, planned(PROCEDURE, study).combine({"sender": release}, table(study, 1, y))


def finding(made: Combined) -> DistanceCorrelationResult:
    assert isinstance(made.finding, DistanceCorrelationResult)
    return made.finding


def test_the_finding_is_of_noisy_projections_and_raw_ones() -> None:
    study = peer_study()
    x, y = np.random.default_rng(5).random((2, 500))
    release, made = combined(study, x, y)
    noisy = np.array(release.vectors["projections"].values) * 2.0**-21
    expected = distance_covariance_sqr(noisy, y)
    assert finding(made).distance_covariance_sqr_unbiased == pytest.approx(expected, rel=1e-5)
    assert finding(made).distance_covariance_sqr == max(0.0, finding(made).distance_covariance_sqr_unbiased)
    assert finding(made).attenuation is not None
    assert made.summary is None


@pytest.mark.long
def test_the_level_of_the_receivers_test_is_exact() -> None:
    """400 studies of independent columns, level .1: more than 75 rejections have probability 2e-7."""
    study = peer_study()
    rng = np.random.default_rng(7)
    rejected = sum(
        finding(combined(study, rng.random(40), rng.random(40) ** 3, seed)[1]).pvalue <= 0.1
        for seed in range(400)
    )
    assert 10 < rejected <= 75


def test_other_or_too_few_units_are_refused() -> None:
    study = peer_study()
    release = sent(study, np.linspace(0, 1, UNITS), 1)
    with pytest.raises(StudyError, match="different numbers of units"):
        planned(PROCEDURE, study).combine({"sender": release}, table(study, 1, np.linspace(0, 1, UNITS - 1)))
    with pytest.raises(StudyError, match="4 units or more"):
        sent(study, np.linspace(0, 1, 3), 1)  # the sender refuses, before it spends


@pytest.mark.long
def test_what_is_published_covers_the_exact_value() -> None:
    study = peer_study(publish=True)
    x = np.random.default_rng(9).random(UNITS)
    _, made = combined(study, x, x)
    inside = 0
    for seed in range(200):
        release = PROCEDURE.privatise(study, made.summary, SeededNoise(100 + seed))
        PROCEDURE.check_release(study, release)
        verdict = conclude(PROCEDURE, study, {RECEIVER: release}, {SENDER: UNITS, RECEIVER: UNITS})
        low, high = (verdict.model_dump()[name] for name in ("covariance_lower", "covariance_upper"))
        inside += low <= float(made.summary.value) <= high
    # Level .05 of 200: fewer than 170 have probability below 1e-7.
    assert 170 <= inside < 200


def test_the_tester_takes_no_other_release_in_peer_mode() -> None:
    study = peer_study(publish=True)
    x = np.linspace(0, 1, UNITS)
    release, made = combined(study, x, x)
    with pytest.raises(ReleaseError, match="one covariance"):
        PROCEDURE.check_release(study, release)
    published = PROCEDURE.privatise(study, made.summary, SeededNoise(1))
    with pytest.raises(ReleaseError):
        planned(PROCEDURE, study).check_received(SENDER, published)
    cheaper = published.guarantee.model_copy(update={"events": published.guarantee.events[:1]})
    with pytest.raises(ReleaseError, match="another guarantee"):
        PROCEDURE.check_release(study, published.model_copy(update={"guarantee": cheaper}))


def test_exact_covariance_is_the_estimate_and_refuses_what_overflows() -> None:
    rng = np.random.default_rng(10)
    p, y = rng.integers(-(2**20), 2**20, (2, 50))
    assert float(exact_covariance(p, y)) == pytest.approx(distance_covariance_sqr(p, y), rel=1e-9)
    assert exact_covariance(p, y) == exact_covariance(p + 7, -y)
    assert exact_covariance(2 * p, y) == 2 * exact_covariance(p, y)
    assert exact_covariance(p, np.zeros(50, dtype=np.int64)) == Fraction(0)
    for wrong in ((p, y[:-1]), (p[:3], y[:3]), (p << 25, y << 20)):
        with pytest.raises(ValueError, match=r"units|span"):
            exact_covariance(*wrong)
    with pytest.raises(ValueError, match="4 units"):
        influences(p[:3])


def parts(publish: bool) -> dict[str, Any]:
    """Return the parts of a transcript: the study's envelope, both answers and the verdict's fields."""
    study = peer_study(publish)
    name, envelope = sealed(study)
    x = np.linspace(0, 1, UNITS)
    _, made = combined(study, x, x)
    hidden: dict[str, Any] = {"ciphertext_digest": ciphertext_digest(bytes(100)), "ciphertext_bytes": 100}
    statement = encode(SealedRelease(study=name, party=SENDER, receiver=RECEIVER, units=UNITS, **hidden))
    if publish:
        release = PROCEDURE.privatise(study, made.summary, SeededNoise(1))
        kind, releases = RELEASE_TYPE, {RECEIVER: release}
        answer = encode(ReleaseMessage(study=name, party=RECEIVER, release=release))
    else:
        kind, releases = RECEIPT_TYPE, {}
        answer = encode(Receipt(study=name, party=RECEIVER, units=UNITS, received=digest(statement)))
    result = conclude(PROCEDURE, study, releases, {SENDER: UNITS, RECEIVER: UNITS})
    return {
        "name": name,
        "study": envelope,
        "statement": statement,
        "answer": answer,
        "kind": kind,
        "result": json.loads(encode(result)),
    }


def transcript(given: dict[str, Any], **changes: Any) -> bytes:
    found = {**given, **changes}
    verdict = VerdictMessage(
        study=found["name"],
        outcome="completed",
        releases={SENDER: digest(found["statement"]), RECEIVER: digest(found["answer"])},
        result=found["result"],
        software="tests",
    )
    envelopes = {
        SENDER: sign_envelope(found["statement"], SEALED_RELEASE_TYPE, key_of(SENDER)),
        RECEIVER: sign_envelope(found["answer"], found["kind"], key_of(RECEIVER)),
    }
    return encode(
        Transcript(
            study=found["study"].decode(),
            releases={name: envelope.decode() for name, envelope in envelopes.items()},
            verdict=sign_envelope(encode(verdict), VERDICT_TYPE, key_of("tester")).decode(),
        )
    )


@pytest.mark.parametrize("publish", [False, True])
def test_a_transcript_verifies_without_the_ciphertext(publish: bool) -> None:
    verified = verify_transcript(transcript(parts(publish)), key_of("tester").public_hex)
    assert verified.verdict.outcome == "completed"
    assert set(verified.releases) == ({RECEIVER} if publish else set())


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"received": "0" * 64}, "release"),
        ({"study": "0" * 64}, "release"),
        ({"units": UNITS + 1}, "result"),
    ],
)
def test_a_receipt_for_something_else_does_not_verify(change: dict[str, Any], step: str) -> None:
    given = parts(publish=False)
    answer = json.dumps(json.loads(given["answer"]) | change, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(VerificationError) as failed:
        verify_transcript(transcript(given, answer=answer))
    assert failed.value.step == step


def test_a_changed_result_or_a_statement_to_somebody_else_does_not_verify() -> None:
    given = parts(publish=True)
    wrong = given["result"] | {"distance_covariance_sqr": 0.5}
    with pytest.raises(VerificationError, match="another value"):
        verify_transcript(transcript(given, result=wrong))
    elsewhere = json.loads(given["statement"]) | {"receiver": "west"}
    statement = json.dumps(elsewhere, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(VerificationError, match="another owner"):
        verify_transcript(transcript(given, statement=statement))


def test_a_package_has_one_spelling() -> None:
    package = SealedPackage.of(b"{}", b"ab")
    assert package.sealed == b"ab"
    with pytest.raises(ValueError, match="base64"):
        _ = package.model_copy(update={"ciphertext": "YWJ="}).sealed
