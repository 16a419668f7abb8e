"""Private databases: points, noise, means read again, candidates, and bounds on distances."""

import math
from typing import Any

import made_studies
import numpy as np
import pytest
from made_studies import Drawing
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of, releases_of, study_of

from tacit_protocol.domain import Domain, PooledTable
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.study import Party, Release, Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import (
    ReleaseError,
    check_release,
    check_study,
    planned,
    reread,
)
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of
from tacit_protocol.procedures.embedding_release.concentration_bounds import (
    Noise,
    ProvedDistance,
    ReleasedMean,
    Sampling,
    trace_bound,
)
from tacit_protocol.procedures.embedding_release.plan import CANDIDATES_MAX, Candidates, CandidatesError
from tacit_protocol.procedures.embedding_release.release import HISTOGRAMS

PROCEDURE = EmbeddingRelease()
MIXED = domain_of(2, (4,))


def asked(domain: Domain = MIXED, owners: int = 1, reuses: str | None = None, **parameters: Any) -> Study:
    study = study_of(domain, parameters, owners=owners).model_copy(update={"procedure": PROCEDURE.name})
    named = tuple(owner.model_copy(update={"reuses": reuses}) for owner in study.owners)
    return study.model_copy(update={"owners": named})


def table(rows: int = 500, seed: int = 3) -> MemoryTable:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (rows, 1)).astype(np.int32)
    return MemoryTable(MIXED, rng.random((rows, 2)), codes)


CHOSEN: dict[str, Any] = {"method": "exponential", "candidate_rows": 2, "n_points": 6}


FEW: dict[str, Any] = {"n_points": 20, "n_bins": 5}
"""Points that are drawn from histograms."""


def release_of(study: Study, noise: Any, data: Any = None) -> Release:
    return made_studies.release_of(PROCEDURE, study, data or table(), noise)


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


def test_the_likeliest_candidate_is_the_nearest_to_the_data() -> None:
    study = asked(**CHOSEN)
    verdict = PROCEDURE.assemble(study, {"o0": release_of(study, Drawing())})
    plan = PROCEDURE.plan(study)
    (chunk,) = table().chunks()
    mean, points = features_of(study)(chunk).mean(axis=0), plan.at
    apart = np.linalg.norm(plan.choices.weights @ points - mean, axis=1)
    assert verdict.chosen == {"o0": int(np.argmin(apart))}
    assert np.array(verdict.weights["o0"]) @ points == pytest.approx(np.array(verdict.embedding["o0"]))


def test_a_curator_releases_one_database_of_all_its_owners_units() -> None:
    curator = Party(name="curator", key="c" * 64)
    study = asked(owners=2, n_points=9, placement="uniform").model_copy(update={"curator": curator})
    check_study(PROCEDURE, study)
    pool = PooledTable(MIXED, {"o0": table(300), "o1": table(200)})
    release = release_of(study, NoNoise(), pool)
    assert release.units_by_owner == {"o0": 300, "o1": 200}
    verdict = PROCEDURE.assemble(study, {"curator": release})
    stacked = np.concatenate([features_of(study)(next(t.chunks())) for t in pool.parts.values()])
    assert np.array(verdict.embedding["curator"]) == pytest.approx(stacked.mean(axis=0), abs=1e-6)


class Showing(NoNoise):
    """Shows the same histograms whatever the data, and the mean without noise."""

    def __init__(self, shown: tuple[int, ...]) -> None:
        self._shown = list(shown)

    def gaussian(self, values: Any, scale: float) -> Any:
        if self._shown:
            shown, self._shown = np.array(self._shown), []
            return shown
        return values.copy()


def test_without_noise_the_release_is_the_mean_on_points_drawn_from_the_histograms() -> None:
    study = asked(**FEW)
    release = release_of(study, NoNoise())
    verdict = PROCEDURE.assemble(study, {"o0": release})
    (chunk,) = table().chunks()
    exact = features_of(study, release)(chunk).mean(axis=0)
    assert np.array(verdict.embedding["o0"]) == pytest.approx(exact, abs=1e-6)
    assert {row[2] for row in verdict.drawn_points["o0"]} == {"l0", "l1"}, "no other category was seen"


def test_points_depend_on_the_data_through_the_noisy_histograms_alone() -> None:
    """Same noisy histograms, other data: the same points; other noise on the same data: others."""
    study = asked(**FEW)
    shown = release_of(study, SeededNoise(1)).vectors[HISTOGRAMS].values
    one, other = (release_of(study, Showing(shown), table(seed=seed)) for seed in (3, 4))
    first, second = (PROCEDURE.assemble(study, {"o0": release}) for release in (one, other))
    assert first.drawn_points == second.drawn_points
    assert first.embedding != second.embedding
    again = PROCEDURE.assemble(study, {"o0": release_of(study, SeededNoise(2))})
    assert first.drawn_points != again.drawn_points


def test_histograms_noise_is_drawn_once_where_data_are_read_before_the_budget_is_spent() -> None:
    """The agent's way: adapt outside of the ledger's transaction, which may have to be tried again."""
    study = asked(**FEW)
    summary = planned(PROCEDURE, study).adapt(PROCEDURE.summarise(study, table()), OpenDPNoise())
    one, again = (PROCEDURE.privatise(study, summary, OpenDPNoise()) for _ in range(2))
    assert one.vectors[HISTOGRAMS] == again.vectors[HISTOGRAMS]
    assert one.vectors[MEAN] != again.vectors[MEAN]
    check_release(PROCEDURE, study, one)
    assert "noisy" not in repr(summary), "nothing of it gets into a log"


# Candidate databases: what is counted, how far each lies from a mean, and how many are too many.


def places(count: int, seed: int = 1) -> Locations:
    rng = np.random.default_rng(seed)
    return Locations(rng.random((count, 2)), np.zeros((count, 0), dtype=np.int32))


def test_multisets_are_all_there_once() -> None:
    found = Candidates.multisets(4, 3)
    assert len(found) == math.comb(6, 3) == len(np.unique(found.weights, axis=0))
    assert found.weights.sum(axis=1) == pytest.approx(1)
    assert set(np.unique(found.weights * 3).round(9)) == {0, 1, 2, 3}


def test_distances_are_those_of_the_kernels_space() -> None:
    """For data on the points themselves, in the span: the distance is the whole MMD."""
    points, kernel = places(6), ProductKernel("gaussian", 0.3)
    features = WhitenedMeanEmbedding(kernel, points)(points)
    found = Candidates.multisets(6, 2)
    data = np.array([0.5, 0.5, 0, 0, 0, 0])
    gram = kernel.gram(points, points)
    apart = found.weights - data
    exact = np.sqrt(np.maximum(0, np.einsum("cj,jk,ck->c", apart, gram, apart)))
    assert found.distances(features, data @ features) == pytest.approx(exact, abs=1e-4)
    assert found.distances(features, data @ features).min() < 1e-12, "no digits are lost near 0"


@pytest.mark.parametrize(("points", "rows"), [(1000, 1000), (100, 3), (300, 2)])
def test_more_than_can_be_drawn_exactly_are_refused_at_once(points: int, rows: int) -> None:
    assert math.comb(points + rows - 1, rows) > CANDIDATES_MAX
    with pytest.raises(CandidatesError, match="use fewer points or rows"):
        Candidates.multisets(points, rows)


# Bounds on the distance of two noisy means dominate what is simulated, in the worst populations too.


ROOT_2 = float(np.sqrt(2))
DIMENSION = 6


def pair_of(
    statistic: float, units: float, noise: Noise, *, sampling: Sampling = "any", length: float = 0.0
) -> ProvedDistance:
    """Two means at that squared distance, each of squared length ``length`` besides."""
    first, second = np.zeros(DIMENSION), np.zeros(DIMENSION)
    first[0], second[0] = np.sqrt(statistic) / 2, -np.sqrt(statistic) / 2
    first[1] = second[1] = np.sqrt(length)
    one, other = ReleasedMean(first, units, noise), ReleasedMean(second, units, noise)
    return ProvedDistance(one, other, ROOT_2, sampling)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sampling", ["any", "normal"])
@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.05])
@pytest.mark.parametrize("rare", [0.5, 0.01])
def test_pvalues_of_two_point_populations_are_above_their_frequency(
    sampling: Sampling, scale: float, rare: float
) -> None:
    """Units at one of two orthogonal features: all the spread in one direction, far from normal where rare.

    Of 40 000 simulated distances under one population, the part above each quantile is below the p-value;
    a frequency of .05 is known to .001.
    """
    units, rng = 50, np.random.default_rng(5)
    counts = rng.binomial(units, rare, (2, 40_000)) / units
    noise = rng.normal(0, scale * ROOT_2, (40_000, DIMENSION))
    difference = counts[0] - counts[1]
    noise[:, 0] += difference
    noise[:, 1] -= difference
    distances = np.sum(noise**2, axis=1)
    for part in (0.5, 0.1, 0.05, 0.01):
        statistic = float(np.quantile(distances, 1 - part))
        found = pair_of(statistic, units, Noise(scale), sampling=sampling, length=0.25).pvalue()
        assert found >= np.mean(distances > statistic) - 0.005


@pytest.mark.sweep(10)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("units", [1.0, 3.0, 1e3, 1e9])
@pytest.mark.parametrize("statistic", [0.0, 1e-12, 0.01, 1.9, 300.0])
def test_nothing_is_nan_and_intervals_are_ordered(law: str, units: float, statistic: float) -> None:
    for sampling in ("any", "normal"):
        found = pair_of(statistic, units, Noise(0.03, law), sampling=sampling)  # type: ignore[arg-type]
        low, high = found.interval(0.95)
        assert 0 <= low <= high <= 2 + 1e-9
        assert 0 < found.pvalue() <= 1


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_traces_are_bounded(law: str) -> None:
    """Where all units are alike the trace is 0, and bounds come near to it as units and noise allow."""
    mean = np.zeros(DIMENSION)
    mean[0] = 1.0
    bounds = [
        trace_bound(ReleasedMean(mean, units, Noise(scale, law)), ROOT_2, 1e-3)  # type: ignore[arg-type]
        for units, scale in ((10, 0.1), (1e4, 1e-3), (1e8, 1e-6))
    ]
    assert 1 >= bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] < 0.01
    assert trace_bound(ReleasedMean(np.zeros(DIMENSION), 1e8, Noise(0.0)), ROOT_2, 1e-3) == 1
    assert trace_bound(ReleasedMean(np.zeros(DIMENSION), 1e8, Noise(0.0)), 0.5, 1e-3) == 0.125
