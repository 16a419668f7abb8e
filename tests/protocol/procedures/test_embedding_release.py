"""A private database: its noise, its checks, and means that two-sample studies made."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of, releases_of, study_of

from tacit_protocol.domain.columns import Domain
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, reread
from tacit_protocol.procedures.embedding_release import CELLS_MAX, EmbeddingRelease, plan_of

PROCEDURE = EmbeddingRelease()
MIXED = domain_of(2, (4,))


def asked(domain: Domain = MIXED, owners: int = 1, reuses: str | None = None, **parameters: Any) -> Study:
    study = study_of(domain, parameters, owners=owners).model_copy(update={"procedure": PROCEDURE.name})
    named = tuple(owner.model_copy(update={"reuses": reuses}) for owner in study.owners)
    return study.model_copy(update={"owners": named})


def table(rows: int = 500, domain: Domain = MIXED) -> MemoryTable:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (rows, len(domain.categorical))).astype(np.int32)
    return MemoryTable(domain, rng.random((rows, len(domain.numeric))), codes)


def release_of(study: Study, noise: Any) -> Release:
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, table(domain=study.domain)), noise)


def test_without_noise_the_release_is_the_mean_embedding_on_the_points() -> None:
    study = asked(n_points=20)
    PROCEDURE.check(study)
    verdict = PROCEDURE.assemble(study, {"o0": release_of(study, NoNoise())})
    plan = plan_of(study)
    (chunk,) = table().chunks()
    exact = plan.features(chunk).mean(axis=0)
    assert np.array(verdict.embedding["o0"]) == pytest.approx(exact, abs=1e-6)
    assert len(verdict.points) == 20
    assert verdict.noise_error["o0"] == pytest.approx(np.sqrt(20) * verdict.noise["o0"])


def test_the_noise_is_that_of_a_diameter_of_at_most_sqrt_2_whatever_the_number_of_points_is() -> None:
    """P2 adds noise for 2/n."""
    for points in (5, 200):
        study = asked(n_points=points)
        verdict = PROCEDURE.assemble(study, {"o0": release_of(study, SeededNoise(1))})
        multiplier = next(
            e for e in PROCEDURE.cost(study).events if e.mechanism == "gaussian"
        ).noise_multiplier
        bound = np.sqrt(2) * multiplier / 500
        assert 0.9 * bound < verdict.noise["o0"] <= bound * (1 + 1e-3)
        assert PROCEDURE.numbers_released(study) == points


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"points": [[0.1, 0.2, "l0"]], "n_points": 5}, "neither counted nor placed"),
        ({"points": [[0.1, 0.2]]}, "one value per column"),
        ({"n_points": 5000}, "n_points"),
        ({"method": "magic"}, "method"),
    ],
)
def test_studies_that_cannot_be_run_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        PROCEDURE.check(asked(**parameters))


def test_too_many_values_and_no_delta_are_refused() -> None:
    wide = domain_of(CELLS_MAX // 1000 + 1)
    with pytest.raises(StudyError, match="use fewer points"):
        PROCEDURE.check(asked(wide, n_points=1000))
    with pytest.raises(StudyError, match="delta above 0"):
        PROCEDURE.check(asked().model_copy(update={"budget": Budget.of(1.0, 0.0)}))


def test_releases_of_other_shape_or_noise_are_refused() -> None:
    study = asked(n_points=10)
    release = release_of(study, SeededNoise(2))
    check_release(PROCEDURE, study, release)
    vector = release.vectors["mean"]
    for change in ({"scale": vector.scale / 2}, {"values": vector.values[:-1]}, {"noise": "laplace"}):
        other = release.model_copy(update={"vectors": {"mean": vector.model_copy(update=change)}})
        with pytest.raises(ReleaseError):
            check_release(PROCEDURE, study, other)


def test_too_much_noise_is_said() -> None:
    assert "noise exceeds" in PROCEDURE.warnings(asked(n_points=100), {"o0": 20})[0]
    assert PROCEDURE.warnings(asked(n_points=100), {"o0": 100_000}) == ()


ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
SAME: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}


def test_the_mean_of_a_two_sample_release_is_a_database() -> None:
    """One primitive: the points are the test's locations, and the noise is the mean's own."""
    source = study_of(MIXED, ME, owners=2)
    made = releases_of(source, [table(), table()], SeededNoise(7))["o0"]
    study = asked(reuses="a" * 64, **SAME)
    found = reread(PROCEDURE, study, study.owners[0], source, made)
    verdict = PROCEDURE.assemble(study, {"o0": found})
    assert np.array(verdict.embedding["o0"]) == pytest.approx(made.vectors["mean"].mean(500))
    assert verdict.noise["o0"] == made.vectors["mean"].scale / 500
    assert any("read again" in warning for warning in verdict.warnings)
    with pytest.raises(ReleaseError):  # what an owner sends has the study's own noise
        check_release(PROCEDURE, study, found)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({}, SAME, "features me"),
        (ME, SAME | {"placement": "uniform"}, "other points"),
        (ME, SAME | {"n_points": 13}, "other points"),
        (ME, SAME | {"bandwidth": 0.5}, "another bandwidth"),
        (ME | {"category_similarity": 0.1}, SAME, "another category_similarity"),
    ],
)
def test_the_mean_of_other_features_is_no_such_database(
    theirs: dict[str, Any], ours: dict[str, Any], words: str
) -> None:
    source = study_of(MIXED, theirs, owners=2)
    made = releases_of(source, [table(), table()], SeededNoise(7))["o0"]
    study = asked(reuses="a" * 64, **ours)
    with pytest.raises(StudyError, match=words):
        reread(PROCEDURE, study, study.owners[0], source, made)
