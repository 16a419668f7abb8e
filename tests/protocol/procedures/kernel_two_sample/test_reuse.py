"""Releases and databases in other two-sample studies: when they are the very release that is asked for."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, SeededNoise, domain_of, numbers, releases_of, study_of

from tacit_protocol.domain import Domain, Encoder, Projection, VectorColumn
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, check_study, reread
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.means.private_means import PrivateMeans, bounded_moments
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult

PROCEDURE = KernelTwoSample()
NUMERIC = domain_of(2)
SOURCE = "c" * 64
ENCODER = Encoder(
    inputs=(VectorColumn(name="v", length=9, norm=1.0),),
    projection=Projection(seed="0" * 32),
    outputs=tuple(column.name for column in NUMERIC.columns),
)


def table(domain: Domain, rows: int, seed: int) -> MemoryTable:
    return numbers(domain, np.random.default_rng(seed).random((rows, len(domain.numeric))))


def reusing(study: Study, *names: str) -> Study:
    """Return the study with those owners' releases taken from an earlier one."""
    owners = [
        owner.model_copy(update={"reuses": SOURCE}) if owner.name in names else owner
        for owner in study.owners
    ]
    return study.model_copy(update={"owners": tuple(owners)})


def read_again(study: Study, source: Study, release: Release) -> Release:
    return reread(PROCEDURE, study, study.owners[0], source, release)


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    # what both have, what the earlier study has, how it differs besides, what is said
    "bounds": ({}, {}, {"domain": domain_of(3)}, "columns, bounds or levels"),
    "budget": ({}, {}, {"budget": Budget.of(2.0, 1e-5)}, "same epsilon and delta"),
    "delta": ({}, {}, {"budget": Budget.of(1.0, 1e-6)}, "same epsilon and delta"),
    "features": ({}, {"features": "columns"}, {}, "another features"),
    "pair_share": ({}, {"pair_share": 0.2}, {}, "another pair_share"),
    "cycles": ({}, {"cycles": [1, 2]}, {}, "another cycles"),
    "bandwidth": ({"features": "me"}, {"bandwidth": 0.3}, {}, "another bandwidth"),
    "mean_share": ({"features": "me"}, {"mean_share": 0.5}, {}, "another mean_share"),
    "drawn locations": ({"features": "me"}, {}, {"seed": "9" * 32}, "same seed"),
    "drawn frequencies": ({"features": "scf"}, {}, {"seed": "9" * 32}, "same seed"),
    "encoders": ({}, {}, {"encoders": (ENCODER,)}, "made by other encoders"),
    "procedure": ({}, {}, {"procedure": "another"}, "of kernel_two_sample and embedding_release, no others"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_release_of_other_numbers_is_refused_and_says_which(name: str) -> None:
    both, earlier, changes, words = OTHER[name]
    later = reusing(study_of(NUMERIC, both), "o0")
    source = study_of(NUMERIC, both | earlier)
    release = releases_of(source, [table(NUMERIC, 100, 1), table(NUMERIC, 100, 2)], SeededNoise(1))["o0"]
    with pytest.raises(StudyError, match=words):
        read_again(later, source.model_copy(update=changes), release)


@pytest.mark.parametrize(
    ("both", "earlier", "changes"),
    [
        ({}, {}, {"seed": "9" * 32, "level": 0.2, "title": "Else", "created_at": 5, "deadline": 9}),
        ({"features": "me", "locations": [[0.1, 0.2]]}, {}, {"seed": "9" * 32}),
        ({"features": "me"}, {"statistic": "noise-aware", "replicates": 99}, {}),
    ],
)
def test_what_does_not_touch_a_release_may_differ(
    both: dict[str, Any], earlier: dict[str, Any], changes: dict[str, Any]
) -> None:
    later = reusing(study_of(NUMERIC, both), "o0")
    source = study_of(NUMERIC, both | earlier).model_copy(update=changes)
    release = releases_of(source, [table(NUMERIC, 100, 1), table(NUMERIC, 100, 2)], SeededNoise(1))["o0"]
    assert read_again(later, source, release) is release


TEST, DATABASE = KernelTwoSample(), EmbeddingRelease()
PLANE = domain_of(2)
ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
POINTS: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}


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


def verdict_on(shift: float, seed: int, reused: tuple[str, ...]) -> TwoSampleResult:
    """The verdict on two owners, the second shifted, with some releases taken from their databases."""
    study = reusing(study_of(PLANE, ME, level=0.05), *reused)
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
def test_the_level_holds_with_means_alone(reused: tuple[str, ...]) -> None:
    """At level .05 more than 9 rejections of 30 have probability below 1e-5; the seeds are fixed."""
    assert sum(verdict_on(0.0, seed, reused).reject for seed in range(30)) <= 9


def test_the_trace_is_bounded_from_means_alone() -> None:
    """Three standard deviations upward: the bound is below the true trace once in a thousand times."""
    truth = features_of(database())(next(sample(99, units=100_000).chunks()))
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
    "points from histograms": ({"placement": "histograms"}, {}, "state points"),
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
    source, study = database(**of_database), reusing(study_of(PLANE, given(ME | of_test)), "o0")
    release = made(source, sample(1), OpenDPNoise())
    with pytest.raises(StudyError, match=words):
        reread(TEST, study, study.owners[0], source, release, lender=DATABASE)


def test_points_as_a_verdict_wrote_them_are_the_same_points() -> None:
    """In their own units and back they may differ in the last bit."""
    source = database(placement="uniform")
    release = made(source, sample(1), SeededNoise(1))
    rows = [list(row) for row in DATABASE.assemble(source, {"o0": release}).points]
    written = reusing(database(points=rows, n_points=None, placement=None), "o0")
    assert reread(DATABASE, written, written.owners[0], source, release) == release
    study = reusing(study_of(PLANE, {"features": "me", "locations": rows, "bandwidth": 0.4}), "o0")
    with pytest.raises(StudyError, match="placement middle alone"):
        reread(TEST, study, study.owners[0], source, release, lender=DATABASE)


def test_an_owner_that_is_asked_cannot_send_a_mean_alone() -> None:
    with pytest.raises(ReleaseError):
        check_release(TEST, study_of(PLANE, ME), made(database(), sample(1), SeededNoise(1)))
