"""A database in a two-sample study: its mean, with no second moment, beside releases that have one."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, SeededNoise, domain_of, numbers, releases_of, study_of

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, check_study, reread
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, plan_of
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample, TwoSampleResult
from tacit_protocol.procedures.means.private_means import PrivateMeans, bounded_moments

TEST, DATABASE = KernelTwoSample(), EmbeddingRelease()
PLANE = domain_of(2)
ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
POINTS: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}
SOURCE = "c" * 64


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def database(**parameters: Any) -> Study:
    study = study_of(PLANE, given(POINTS | parameters), owners=1)
    return study.model_copy(update={"procedure": DATABASE.name})


def sample(seed: int, shift: float = 0.0, units: int = 4000) -> MemoryTable:
    rng = np.random.default_rng(seed)
    return numbers(PLANE, 0.5 + shift + 0.12 * rng.standard_normal((units, 2)))


def made(study: Study, table: MemoryTable, noise: Any) -> Release:
    release = DATABASE.privatise(study, DATABASE.summarise(study, table), noise)
    check_release(DATABASE, study, release)
    return release


def reusing(study: Study, names: tuple[str, ...]) -> Study:
    owners = [o.model_copy(update={"reuses": SOURCE}) if o.name in names else o for o in study.owners]
    return study.model_copy(update={"owners": tuple(owners)})


def verdict_on(shift: float, seed: int, reused: tuple[str, ...]) -> TwoSampleResult:
    """The verdict on two owners, the second shifted, with some releases taken from their databases."""
    study = reusing(study_of(PLANE, ME, level=0.05), reused)
    check_study(TEST, study)
    tables = {"o0": sample(2 * seed), "o1": sample(2 * seed + 1, shift)}
    releases = releases_of(study, list(tables.values()), SeededNoise(seed))
    for index, name in enumerate(reused):
        owner = study.owner_named(name)
        source = database().model_copy(update={"owners": (owner.model_copy(update={"reuses": None}),)})
        release = made(source, tables[name], SeededNoise(1000 + 2 * seed + index))
        releases[name] = reread(TEST, study, owner, source, release, lender=DATABASE)
    return TEST.assemble(study, releases)


@pytest.mark.parametrize("reused", [("o0",), ("o0", "o1")])
def test_a_database_enters_a_two_sample_study(reused: tuple[str, ...]) -> None:
    """A shift of one standard deviation is seen, with one database and with two."""
    verdict = verdict_on(0.12, 1, reused)
    assert verdict.reject
    assert verdict.squared_mmd is not None
    assert verdict.lower is not None
    assert 0 < verdict.lower < verdict.squared_mmd < (verdict.upper or 0)
    assert any("read again" in warning for warning in verdict.warnings)
    assert verdict.locations
    assert all(np.isfinite(place.standard_error) for place in verdict.locations)


@pytest.mark.parametrize("reused", [("o0",), ("o0", "o1")])
def test_the_level_holds_with_means_alone(reused: tuple[str, ...]) -> None:
    """At level .05 more than 9 rejections of 30 have probability below 1e-5; the seeds are fixed."""
    assert sum(verdict_on(0.0, seed, reused).reject for seed in range(30)) <= 9


def test_the_trace_is_bounded_from_means_alone() -> None:
    """Three standard deviations upward: the bound is below the true trace once in a thousand times."""
    plan = plan_of(database())
    truth = plan.features(next(sample(99, units=100_000).chunks()))
    trace = float(np.trace(np.cov(truth.T)))
    below = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        means = np.stack([truth[rng.integers(0, len(truth), 1000)].mean(axis=0) for _ in range(2)])
        noisy = PrivateMeans(
            means + 0.01 * rng.standard_normal(means.shape), np.full(2, 1000.0), np.full(2, 0.01)
        )
        moments = bounded_moments(noisy)
        below += moments.trace < trace
        assert moments.energy == pytest.approx(moments.trace**2)
        assert moments.trace <= 1
    assert below <= 2


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # the database, the test, what is said
    "additive features": ({}, {"features": "auto", "n_features": None, "bandwidth": None}, "features me"),
    "noise-aware": ({}, {"statistic": "noise-aware"}, "has no second moment"),
    "weighted": ({}, {"null": "weighted"}, "has no second moment"),
    "uniform points": ({"placement": "uniform"}, {}, "other points"),
    "another bandwidth": ({"bandwidth": 0.3}, {}, "another bandwidth"),
    "Laplace noise": ({"noise": "laplace"}, {}, "another noise"),
    "random features": (
        {"method": "random-features", "n_points": None, "placement": None},
        {},
        "another method",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_database_that_is_no_mean_of_the_tests_features_is_refused(name: str) -> None:
    of_database, of_test, words = REFUSED[name]
    source, study = database(**of_database), reusing(study_of(PLANE, given(ME | of_test)), ("o0",))
    release = made(source, sample(1), OpenDPNoise())
    with pytest.raises(StudyError, match=words):
        reread(TEST, study, study.owners[0], source, release, lender=DATABASE)


def test_another_budget_is_refused() -> None:
    source = database().model_copy(update={"budget": Budget.of(2.0, 1e-5)})
    study = reusing(study_of(PLANE, ME), ("o0",))
    with pytest.raises(StudyError, match="another budget"):
        reread(TEST, study, study.owners[0], source, made(source, sample(1), SeededNoise(1)), lender=DATABASE)


def test_points_as_a_verdict_wrote_them_are_the_same_points() -> None:
    """In their own units and back they may differ in the last bit."""
    source = database(placement="uniform")
    release = made(source, sample(1), SeededNoise(1))
    rows = [list(row) for row in DATABASE.assemble(source, {"o0": release}).points]
    study = reusing(study_of(PLANE, {"features": "me", "locations": rows, "bandwidth": 0.4}), ("o0",))
    assert reread(TEST, study, study.owners[0], source, release, lender=DATABASE) is release


def test_an_owner_that_is_asked_cannot_send_a_mean_alone() -> None:
    with pytest.raises(ReleaseError):
        check_release(TEST, study_of(PLANE, ME), made(database(), sample(1), SeededNoise(1)))
