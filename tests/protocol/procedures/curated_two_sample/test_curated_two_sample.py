"""The two-sample test at a curator: what leaves, ridge statistic, permuted means, level, power, order."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from made_studies import release_of, uniform
from scipy.optimize import minimize
from two_sample_cases import MemoryTable, SeededNoise, domain_of, numbers
from two_sample_cases import study_of as owners_study

from tacit_protocol.domain import Domain, PooledTable
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.moments import (
    AdditiveFeatures,
    AdditiveRelease,
    AdditiveSums,
    ColumnWise,
    UnitCountError,
    default_choice,
)
from tacit_protocol.messages.study import Party, Study
from tacit_protocol.numerics.quadratic_forms import quantile, survival
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample, permuted_means
from tacit_protocol.procedures.curated_two_sample.parameters import parameters_of
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    PermutationSizeError,
    PermutedFeatures,
    PermutedKernel,
    draw_choices,
)
from tacit_protocol.procedures.curated_two_sample.release import (
    CuratedAdditiveRelease,
    CuratedSums,
    balance,
    contribution_norm,
    evaluation_error,
    mean_bits,
    ridge_pvalue,
    ridge_sensitivity,
    ridge_statistic,
)
from tacit_protocol.procedures.curated_two_sample.statistic import (
    CuratedMeans,
    curated_covariance,
    estimate_moments,
)
from tacit_protocol.procedures.curated_two_sample.verdict import (
    CuratedTwoSampleBlocks,
    CuratedTwoSampleDecision,
    CuratedTwoSampleTable,
)
from tacit_protocol.procedures.means.private_means import mmd_test

PROCEDURE = CuratedTwoSample()
NUMERIC = domain_of(2)


def study_of(domain: Domain, parameters: Mapping[str, Any], **given: Any) -> Study:
    """A study of owners o0, o1, ... and their curator."""
    study = owners_study(domain, {"release": "mean-covariance"} | dict(parameters), **given)
    return study.model_copy(
        update={"procedure": "curated_two_sample", "curator": Party(name="curator", key="c" * 64)}
    )


def pool(domain: Domain, *tables: MemoryTable) -> PooledTable:
    return PooledTable(domain, {f"o{i}": table for i, table in enumerate(tables)})


def test_who_says_nothing_gets_what_sees_most_and_who_names_a_parameter_of_means_gets_them() -> None:
    def taken(**parameters: Any) -> str:
        silent = study_of(NUMERIC, {"release": "auto"} | parameters)
        given = {name: value for name, value in silent.parameters.items() if name != "release"}
        return parameters_of(silent.model_copy(update={"parameters": given})).release

    assert taken() == "permutation"
    assert taken(features="me") == taken(calibration="paper") == taken(pair_share=0.2) == "mean-covariance"
    assert taken(blocks=5) == taken(categories=3) == "auto"


def test_the_statistic_is_never_a_planned_choice_and_is_told_of_before_it_is_run() -> None:
    assert all(choice.get("release") != "statistic" for choice in PROCEDURE.choices)
    units = {"o0": 5000, "o1": 5000}
    (said,) = PROCEDURE.warnings(study_of(NUMERIC, {"release": "statistic"}), units)
    assert "kept for history" in said
    assert PROCEDURE.warnings(study_of(NUMERIC, {}), units) == ()


def test_permutations_and_pairs_are_drawn_afresh_and_not_from_the_study() -> None:
    table = pool(NUMERIC, uniform(NUMERIC, 50, 1), uniform(NUMERIC, 50, 2))
    study = study_of(NUMERIC, {"release": "permutation", "permutations": 99}, level=0.05)
    one, two = (PROCEDURE.summarise(study, table).exact for _ in range(2))
    assert one[0] == two[0]  # type: ignore[index]
    assert not np.array_equal(one, two)  # type: ignore[arg-type]
    paired = study_of(NUMERIC, {"features": "me", "n_features": 3, "calibration": "paper"})
    sums: list[Any] = [PROCEDURE.summarise(paired, table).exact for _ in range(2)]
    assert np.array_equal(sums[0].total, sums[1].total)
    assert not np.array_equal(sums[0].second, sums[1].second)


def test_a_table_that_is_not_the_owners_is_refused() -> None:
    study, table = study_of(NUMERIC, {}), uniform(NUMERIC, 20, 1)
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, table)
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, pool(NUMERIC, table))
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, pool(NUMERIC, table, table, table))


def test_samples_of_two_sizes_are_not_paired() -> None:
    study = study_of(NUMERIC, {"features": "me", "n_features": 3, "calibration": "paper"})
    with pytest.raises(StudyError, match="as many"):
        PROCEDURE.summarise(study, pool(NUMERIC, uniform(NUMERIC, 20, 1), uniform(NUMERIC, 21, 1)))


class ChoosingNoise(SeededNoise):
    """Seeded noise that draws from lists too."""

    def choose(self, scores: np.ndarray, scale: float) -> int:
        rng = np.random.default_rng(int(scores.sum()) % 2**32)
        return int(np.argmax(scores / scale + rng.gumbel(size=len(scores))))


def seen(
    parameters: dict[str, Any], draw: Callable[[np.random.Generator], Sequence[np.ndarray]], runs: int
) -> int:
    """How often samples of one or two numeric columns are told apart."""
    rejected = 0
    for run in range(runs):
        rng = np.random.default_rng([run, 77])
        tables = [numbers(NUMERIC, rows) for rows in draw(rng)]
        study = study_of(NUMERIC, parameters, level=0.05, seed=run + 1)
        table, order = pool(NUMERIC, *tables), np.random.default_rng(run)
        release = release_of(PROCEDURE, study, table, ChoosingNoise(run), order=order)
        rejected += PROCEDURE.assemble(study, {"curator": release}).reject
    return rejected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"features": "me", "n_features": 5},
        {"features": "me", "n_features": 5, "statistic": "noise-aware", "replicates": 99},
        {"release": "statistic", "features": "columns"},
        {"release": "permutation", "permutations": 99},
        {"release": "aggregate"},
        {"release": "table", "permutations": 99},
    ],
)  # fmt: skip
def test_the_level_is_kept(parameters: dict[str, Any], heavy: bool) -> None:
    """150 runs at level .05: 24 or more have probability 2e-6 in each cell of a test that is just at it."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        shape = [(60, 2), (150, 2)]
        if heavy:
            # Ties, and rare values.
            return [np.minimum(rng.poisson(0.3, s), 4) / 4 for s in shape]
        return [0.5 + 0.1 * rng.standard_normal(s) for s in shape]

    assert seen(parameters, draw, 150) <= 23


def test_a_table_says_of_every_column_how_it_depends_on_the_sample() -> None:
    """In pure epsilon; the second sample's first column is larger, by a standard deviation."""
    rng = np.random.default_rng(0)
    values = [0.4 + 0.1 * rng.standard_normal((600, 2)), 0.4 + 0.1 * rng.standard_normal((900, 2))]
    values[1][:, 0] += 0.1
    study = study_of(NUMERIC, {"release": "table", "permutations": 199}, delta=0.0)
    PROCEDURE.check(study)
    table = pool(NUMERIC, *(numbers(NUMERIC, rows) for rows in values))
    release = release_of(PROCEDURE, study, table, ChoosingNoise(3), order=rng)
    verdict = PROCEDURE.assemble(study, {"curator": release})
    assert isinstance(verdict, CuratedTwoSampleTable)
    assert verdict.reject
    found = {pair.second: pair for pair in verdict.pairs}
    assert set(found) == {"n0", "n1"}
    first, second = found["n0"].correlation_interval, found["n1"].correlation_interval
    assert first[0] > 0.2
    assert second[0] < 0.1
    assert PROCEDURE.panels(study, verdict.model_dump(mode="json"), {})


def test_auto_is_a_decision_and_of_one_column_of_many_units_a_p_value() -> None:
    one = study_of(domain_of(1), {"release": "auto"}, delta=0.0)
    assert PROCEDURE.verdict_type(one) is CuratedTwoSampleTable
    for units, verdict in ((25_000, CuratedTwoSampleDecision), (25_001, CuratedTwoSampleTable)):
        owners = tuple(owner.model_copy(update={"units": units}) for owner in one.owners)
        assert PROCEDURE.verdict_type(one.model_copy(update={"owners": owners})) is verdict
    several = study_of(NUMERIC, {"release": "auto"}, delta=0.0)
    PROCEDURE.check(several)
    assert PROCEDURE.verdict_type(several) is CuratedTwoSampleDecision
    table = pool(NUMERIC, uniform(NUMERIC, 20, 1), uniform(NUMERIC, 21, 2))
    release = release_of(PROCEDURE, several, table, SeededNoise(1))
    assert isinstance(PROCEDURE.assemble(several, {"curator": release}), CuratedTwoSampleDecision)


def test_auto_takes_blocks_where_no_table_can_be() -> None:
    domain = domain_of(0, (100,))
    study = study_of(domain, {"release": "auto"}, epsilon=3.0, delta=0.0)
    assert PROCEDURE.verdict_type(study) is CuratedTwoSampleBlocks
    table = pool(domain, uniform(domain, 200, 1), uniform(domain, 210, 2))
    release = release_of(PROCEDURE, study, table, SeededNoise(1))
    PROCEDURE.check_release(study, release)
    assert isinstance(PROCEDURE.assemble(study, {"curator": release}), CuratedTwoSampleBlocks)


# The curator's difference and centre, and P0's paired differences: exact sums, hidden samples.


SIZES = [(1, 1), (2, 3), (50, 50), (50, 51), (300, 9000), (10_000_019, 10_000_079), (2, 2**33)]


def additive(share: float = 0.05, pairs: bool = True) -> CuratedAdditiveRelease:
    features = AdditiveFeatures(2, (3,), default_choice(2, (3,), 0.3 if pairs else 0.0))
    return CuratedAdditiveRelease(AdditiveRelease(features), share)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("units", SIZES)
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5])
def test_both_samples_cost_the_same_and_a_difference_never_more_than_two_owners(
    units: tuple[int, int], share: float
) -> None:
    found = balance(units, share)
    for n, weight in zip(units, found.weights, strict=True):
        cost = (1 / n / found.difference) ** 2 + (weight / n / found.centre) ** 2
        assert cost == pytest.approx(1, rel=1e-6)
    two_owners = sum(1 / n**2 for n in units)
    assert found.difference**2 <= two_owners * (1 + 1e-12)
    assert found.difference >= (1 - 1e-12) / min(units)
    assert sum(found.weights) == pytest.approx(1)


@pytest.mark.parametrize("units", SIZES)
def test_fixed_point_means_are_exact_to_half_a_step(units: tuple[int, int]) -> None:
    """Whatever the sizes: no common multiple has to fit an integer."""
    release = additive(pairs=False)
    bits = release._release.bits(sum(units))
    rng = np.random.default_rng(2)
    total = [rng.integers(-n * 2**bits, n * 2**bits, 15, endpoint=True) for n in units]
    empty = np.zeros(0, dtype=np.int64)
    sums = CuratedSums(*(AdditiveSums(n, bits, t, empty) for n, t in zip(units, total, strict=True)))
    difference, centre = release.parts(units, sums)
    weights = balance(units, 0.05).weights
    for j in range(15):
        first, second = (Fraction(int(t[j]), n * 2**bits) for t, n in zip(total, units, strict=True))
        step = Fraction(1, 2 ** mean_bits(min(units)))
        assert abs(int(difference.sums[j]) * step - (first - second)) <= step
        step = Fraction(1, 2 ** mean_bits(max(units)))
        exact = Fraction(weights[0]) * first + Fraction(weights[1]) * second
        assert abs(int(centre.sums[j]) * step - exact) <= step / 2 + Fraction(2, 2**30)


def frobenius(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    outer = np.einsum("ni,nj->nij", first, first) - np.einsum("ni,nj->nij", second, second)
    return np.linalg.norm(outer, axis=(1, 2))


def test_outer_products_of_pairs_in_a_ball_move_by_the_root_of_three_halves() -> None:
    """200 000 triples of points of diameter at most 1; the equilateral triangle reaches the bound."""
    rng = np.random.default_rng(2)
    points = rng.random((200_000, 3, 3)) * 0.5 ** rng.integers(0, 2, (200_000, 1, 1))
    gaps = [np.linalg.norm(points[:, a] - points[:, b], axis=1) for a, b in ((0, 1), (0, 2), (1, 2))]
    x, other, y = (points[:, i] / np.max(gaps, axis=0)[:, None] for i in range(3))
    moved = frobenius(x - y, other - y).max()
    assert 1.15 < moved <= np.sqrt(1.5)
    corners = np.eye(3) / np.sqrt(2)
    reached = frobenius(corners[:1] - corners[2:], corners[1:2] - corners[2:])[0]
    assert reached == pytest.approx(np.sqrt(1.5))


# Distances of permuted means: against their definition, whatever the chunks; how far one unit moves them.


DOMAIN = domain_of(2, (3,))
FEATURES = PermutedFeatures(ColumnWise(2, (3,), (0.8125, 1.625), (1.0, 1.0)))
KERNEL = PermutedKernel(ProductKernel("gaussian", 0.3, 0.2), (2, 1))
SEED = np.random.SeedSequence(7)


def sample(rows: int, seed: int, owner: str = "x", **parts: object) -> PooledTable:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (rows, 1)).astype(np.int32)
    return PooledTable(DOMAIN, {owner: MemoryTable(DOMAIN, rng.random((rows, 2)), codes, **parts)})  # type: ignore[arg-type]


def rows_of(samples: tuple[PooledTable, PooledTable]) -> np.ndarray:
    return np.concatenate([FEATURES.features(chunk) for s in samples for chunk in s.chunks()])


def chosen_of(choices: np.ndarray, units: int) -> np.ndarray:
    return np.unpackbits(choices, axis=1)[:, :units].astype(bool)


def test_the_first_choice_is_the_sample_and_the_others_are_random_and_as_large() -> None:
    choices = chosen_of(draw_choices((30, 70), 2000, SEED), 100)
    assert np.array_equal(choices[0], np.arange(100) < 30)
    assert np.all(choices.sum(axis=1) == 30)
    # Each unit is chosen 600 times of 2000, give or take 20.5: six deviations fail with probability 1e-7.
    assert np.all(np.abs(choices[1:].sum(axis=0) - 600) < 6 * 20.5)
    assert len(np.unique(choices, axis=0)) == 2001


def test_distances_of_features_are_those_of_the_definition() -> None:
    samples = sample(30, 1), sample(70, 2, "y")
    choices = draw_choices((30, 70), 40, SEED)
    rows = rows_of(samples)
    expected = [
        np.linalg.norm(rows[chosen].mean(axis=0) - rows[~chosen].mean(axis=0))
        for chosen in chosen_of(choices, 100)
    ]
    assert FEATURES.distances(samples, choices) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("sizes", [(30, 70), (700, 600)])
def test_distances_of_the_kernel_are_those_of_the_definition(sizes: tuple[int, int]) -> None:
    """Above and below the size of a block."""
    samples = sample(sizes[0], 1), sample(sizes[1], 2, "y")
    choices = draw_choices(sizes, 12, SEED)
    chunks = [chunk for s in samples for chunk in s.chunks()]
    gram = np.block([[KERNEL.kernel.gram(a, b) for b in chunks] for a in chunks])
    for chosen, found in zip(chosen_of(choices, sum(sizes)), KERNEL.distances(samples, choices), strict=True):
        weights = np.where(chosen, 1 / sizes[0], -1 / sizes[1])
        assert found == pytest.approx(np.sqrt(weights @ gram @ weights), rel=1e-6)


def test_the_error_of_the_kernels_distances_is_within_what_the_sensitivity_sets_aside() -> None:
    """Equal rows have distance 0: what is computed is error alone."""
    rows = np.full((1500, 2), 0.3)
    table = PooledTable(DOMAIN, {"x": MemoryTable(DOMAIN, rows, np.zeros((1500, 1), dtype=np.int32))})
    units = (1500, 1500)
    found = KERNEL.distances((table, table), draw_choices(units, 30, SEED))
    allowed = KERNEL.sensitivity(units) - KERNEL.kernel.distance_max(2, 1) / 1500
    assert found.max() <= allowed / 2
    assert allowed < 0.01 * KERNEL.sensitivity(units)


def test_more_than_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permuted_means, "CHOICE_BYTES_MAX", 1000)
    with pytest.raises(PermutationSizeError, match="fewer"):
        draw_choices((50, 50), 99, SEED)
    monkeypatch.setattr(permuted_means, "KERNEL_UNITS_MAX", 9)
    with pytest.raises(PermutationSizeError, match="full kernel"):
        KERNEL.distances((sample(5, 1), sample(5, 2)), draw_choices((5, 5), 9, SEED))


@pytest.mark.parametrize("statistic", [FEATURES, KERNEL])
def test_data_that_change_while_they_are_read_are_noticed(
    statistic: PermutedFeatures | PermutedKernel,
) -> None:
    changed = sample(5, 1, declared=6)
    with pytest.raises(UnitCountError):
        statistic.distances((changed, sample(5, 2)), draw_choices((6, 5), 9, SEED))


# The private statistic: P0's bound is false, ours holds and is attained; its value, its error, its null.


Floats = npt.NDArray[np.float64]

P0_BOUND = {1: 4.0, 2: 16.1}
"""P0's Theorem 1 at J = 1, n = 1000, gamma = 1e-3, by kappa."""


def p0_statistic(z: Floats, gamma: float) -> float:
    """w'(Sigma + gamma I)^-1 w with the covariance of z, (n,): P0's statistic without its factor n."""
    return float(z.mean() ** 2 / (z.var() + gamma))


def test_p0s_theorem_1_is_false() -> None:
    """One z of a thousand ones changes to 0; both lie within kappa = 1."""
    ones, changed = np.ones(1000), np.ones(1000)
    changed[0] = 0.0
    moved = abs(p0_statistic(ones, 1e-3) - p0_statistic(changed, 1e-3))
    assert moved == pytest.approx(500.7, abs=0.1)
    assert 1000 * moved == pytest.approx(5.0e5, rel=2e-2)
    assert all(moved > 30 * bound for bound in P0_BOUND.values())


def signed_statistic(z: Floats, gamma: float) -> Floats:
    """n w'(Lambda + gamma I)^-1 w of signed features z = t f, (batch, n, J); t = 1 or -1."""
    n, dimension = z.shape[1:]
    mean = z.mean(axis=1)
    second = np.einsum("bni,bnj->bij", z, z) / n + gamma * np.eye(dimension)
    solved = np.linalg.solve(second, mean[:, :, None])[:, :, 0]
    return np.asarray(n * np.einsum("bi,bi->b", mean, solved))


def in_ball(rng: np.random.Generator, shape: tuple[int, ...], gamma: float) -> Floats:
    """Points of the unit ball: on few lines, with the lengths of the proof's worst case, or anywhere."""
    points = rng.standard_normal(shape)
    lines = rng.integers(0, 3)
    if lines < 2:
        points = np.eye(shape[-1])[rng.integers(0, lines + 1, shape[:-1]) % shape[-1]]
        points *= rng.choice([-1.0, 1.0], (*shape[:-1], 1), p=[0.2, 0.8])
    lengths = np.linalg.norm(points, axis=-1, keepdims=True)
    special = np.minimum(1.0, np.array([0.0, 0.5, 1.0, 2.0]) * np.sqrt(gamma))
    radii = np.where(
        rng.random(lengths.shape) < 0.7, rng.choice(special, lengths.shape), rng.random(lengths.shape) ** 0.3
    )
    return np.asarray(points / np.maximum(lengths, 1e-12) * radii)


def neighbours(count: int) -> Iterator[tuple[Floats, Floats, float]]:
    """Batches of pairs of data sets that differ in one signed feature, and their gamma."""
    rng = np.random.default_rng(4)
    grid = itertools.cycle(itertools.product((2, 4, 10, 40), (1, 2, 3), (1e-3, 0.03, 0.1, 0.5, 1.0)))
    done = 0
    while done < count:
        n, dimension, gamma = next(grid)
        batch = 1000
        z = in_ball(rng, (batch, n, dimension), gamma)
        if rng.random() < 0.5:
            # The worst case: everybody else at one point.
            z[:, 1:] = z[:, 1:2]
        other = z.copy()
        other[:, 0] = in_ball(rng, (batch, dimension), gamma)
        yield z, other, gamma
        done += batch


def largest_part(count: int, bound: Callable[[float], float]) -> float:
    """The largest movement found, of the bound for that gamma."""
    parts = []
    for z, other, gamma in neighbours(count):
        moved = np.abs(signed_statistic(z, gamma) - signed_statistic(other, gamma)).max()
        parts.append(float(moved) / bound(gamma))
    return max(parts)


def stated(gamma: float) -> float:
    """The bound for so many units that its minimum with N does not matter."""
    return ridge_sensitivity(1.0, gamma, (10**9, 10**9))


def test_no_neighbour_of_120000_moves_the_statistic_by_more_than_the_bound() -> None:
    part = largest_part(120_000, stated)
    assert 0.85 < part <= 1


@pytest.mark.parametrize("wrong", [lambda g: (0.8 + 1 / (2 * g**0.5)) ** 2, lambda g: 1 / (4 * g)])
def test_a_bound_that_is_too_small_is_caught(wrong: Callable[[float], float]) -> None:
    assert largest_part(60_000, wrong) > 1


@pytest.mark.parametrize("gamma", [0.01, 0.1, 0.25])
def test_optimised_neighbours_come_to_the_bound_and_no_farther(gamma: float) -> None:
    """n - 1 equal points: the optimum over their place and over the two replaced ones."""
    n = 100_000

    def moved(place: Floats) -> float:
        common, first, second = np.tanh(place)

        def statistic(own: float) -> float:
            mean = ((n - 1) * common + own) / n
            return float(n * mean**2 / (((n - 1) * common**2 + own**2) / n + gamma))

        return -abs(statistic(first) - statistic(second))

    starts = itertools.product((0.1, 0.3, 0.6), (-2.0, 0.5), (0.0, 0.5, 2.0))
    best = max(-minimize(moved, np.array(start), method="Nelder-Mead").fun for start in starts)
    bound = ridge_sensitivity(1.0, gamma, (n, n))
    assert 0.995 * bound < best <= bound


def test_unequal_samples_move_by_their_own_bound() -> None:
    """20 000 neighbours with the replaced unit in the smaller sample."""
    rng = np.random.default_rng(5)
    parts = []
    for (x, y), gamma in itertools.product(((1, 3), (2, 10), (3, 60)), (0.03, 0.3)):
        labels = np.concatenate([np.full(x, np.sqrt(y / x)), np.full(y, -np.sqrt(x / y))])
        features = in_ball(rng, (3000, x + y, 2), gamma)
        features[:, x:] = features[:, x : x + 1]
        other = features.copy()
        other[:, 0] = in_ball(rng, (3000, 2), gamma)
        values = []
        for f in (features, other):
            signal = np.einsum("n,bni->bi", labels, f) / (x + y)
            second = np.einsum("bni,bnj->bij", f, f) / (x + y) + gamma * np.eye(2)
            solved = np.linalg.solve(second, signal[:, :, None])[:, :, 0]
            values.append((x + y) * np.einsum("bi,bi->b", signal, solved))
        parts.append(np.abs(values[0] - values[1]).max() / ridge_sensitivity(1.0, gamma, (x, y)))
    assert 0.3 < max(parts) <= 1


def test_the_statistic_is_the_labels_explained_by_a_ridge_regression() -> None:
    """Against the regression itself, by least squares on stacked rows."""
    rng = np.random.default_rng(6)
    x, y, gamma, dimension = 30, 50, 0.2, 4
    features = rng.random((x + y, dimension)) / 2
    labels = np.concatenate([np.full(x, np.sqrt(y / x)), np.full(y, -np.sqrt(x / y))])
    stacked = np.vstack([features, np.sqrt((x + y) * gamma) * np.eye(dimension)])
    targets = np.concatenate([labels, np.zeros(dimension)])
    _, residual, _, _ = np.linalg.lstsq(stacked, targets)
    means = features[:x].mean(axis=0), features[x:].mean(axis=0)
    found = ridge_statistic(means, features.T @ features / (x + y), (x, y), gamma)
    assert found == pytest.approx(x + y - float(residual[0]), rel=1e-10)


@pytest.mark.parametrize(("dimension", "gamma"), [(3, 1e-4), (12, 0.03), (12, 10.0)])
def test_the_evaluation_error_is_bounded(dimension: int, gamma: float) -> None:
    """Against 50 digits, for features that nearly agree in all but one direction."""
    rng = np.random.default_rng(7)
    x, y = 400, 600
    rows = rng.standard_normal((x + y, dimension)) * 1e-6
    rows[:, 0] += 0.6
    rows[:x, 1] += 0.3
    means = rows[:x].mean(axis=0), rows[x:].mean(axis=0)
    second = rows.T @ rows / (x + y)
    with mpmath.workdps(50):
        signal = mpmath.matrix((means[0] - means[1]).tolist()) * mpmath.sqrt(mpmath.mpf(x * y)) / (x + y)
        matrix = mpmath.matrix(second.tolist()) + mpmath.mpf(gamma) * mpmath.eye(dimension)
        exact = (x + y) * (signal.T * mpmath.lu_solve(matrix, signal))[0]
        error = abs(float(exact - ridge_statistic(means, second, (x, y), gamma)))
    assert error <= evaluation_error(1.0, gamma, x + y, dimension)
    assert evaluation_error(1.0, gamma, x + y, dimension) < 1e-3 * ridge_sensitivity(1.0, gamma, (x, y))


def test_the_sensitivity_counts_the_grid_and_never_passes_the_number_of_units() -> None:
    assert contribution_norm(1.0, 100, 20) > 1.0
    assert ridge_sensitivity(1.0, 1e-4, (5, 5)) == 10
    assert ridge_sensitivity(1.0, 0.25, (100, 100)) == pytest.approx(4.0)
    assert ridge_sensitivity(1.0, 0.25, (100, 400)) == pytest.approx(9.0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("noise", [0.5, 10.0, 100.0])
@pytest.mark.parametrize("dimension", [1, 5, 40])
def test_the_null_is_the_heaviest_of_the_spectra_tried(dimension: int, noise: float) -> None:
    """Random, geometric and two-level spectra with the largest trace, at p-values of .3 to 1e-4."""
    rng = np.random.default_rng(8)
    gamma, total = 0.03, 10_000
    for p in (0.3, 0.05, 0.01, 1e-4):
        start = 1 / dimension / (1 / dimension + gamma)
        t = quantile(p, [start], noise, [dimension])
        stated = ridge_pvalue(t, total, dimension, gamma, norm=1.0, noise=noise)
        spectra = [rng.dirichlet(np.full(dimension, a)) for a in (0.1, 0.5, 2.0)]
        spectra.append(0.5 ** np.arange(dimension) / np.sum(0.5 ** np.arange(dimension)))
        for spectrum in spectra:
            kept = spectrum[spectrum > 1e-9]
            weights = total / (total - 1) * kept / (kept + gamma)
            assert survival(t, weights, noise) <= stated * (1 + 1e-6)


def test_a_null_of_one_spectrum_alone_would_be_too_light() -> None:
    """Forty equal eigenvalues under wide noise shift the mean; one large eigenvalue does not."""
    gamma, noise, dimension = 0.03, 10.0, 40
    weight = 1 / dimension / (1 / dimension + gamma)
    t = quantile(0.01, [weight], noise, [dimension])
    assert survival(t, [1 / (1 + gamma)], noise) < 0.005
    assert ridge_pvalue(t, 10_000, dimension, gamma, norm=1.0, noise=noise) >= 0.01


# Two samples rebuilt from a difference and a centre: what the forms see, covariances, estimates.


UNITS = (400, 900)
DIMENSION = 5
SPECTRUM = np.array([0.3, 0.1, 0.05, 0.02, 0.01])
THETA = np.array([0.4, 0.2, 0.0, 0.1, 0.0])


def draw(
    rng: np.random.Generator, mu: float, shift: float = 0.0, tau: float = 0.0
) -> tuple[CuratedMeans, np.ndarray]:
    """Normal features of one covariance, with the noise that a curator adds; their noisy second moment."""
    balanced = balance(UNITS, 0.1)
    noise = balanced.difference / mu, balanced.centre / mu
    rows = [rng.standard_normal((n, DIMENSION)) * np.sqrt(SPECTRUM) + THETA for n in UNITS]
    rows[0][:, 0] += shift
    means = [r.mean(axis=0) for r in rows]
    difference = means[0] - means[1] + noise[0] * rng.standard_normal(DIMENSION)
    centre = balanced.weights[0] * means[0] + balanced.weights[1] * means[1]
    centre = centre + noise[1] * rng.standard_normal(DIMENSION)
    stacked = np.concatenate(rows)
    symmetric = rng.standard_normal((DIMENSION, DIMENSION)) * tau / np.sqrt(2)
    symmetric = (
        np.triu(symmetric, 1) + np.triu(symmetric, 1).T + np.diag(rng.standard_normal(DIMENSION) * tau)
    )
    moment = stacked.T @ stacked / len(stacked) + symmetric
    return CuratedMeans.of(difference, centre, UNITS, noise, balanced.weights), moment


def test_the_covariance_within_samples_is_unbiased_also_where_they_differ() -> None:
    """2000 draws: each entry's average within six standard errors of the truth."""
    rng = np.random.default_rng(2)
    draws = []
    for _ in range(2000):
        means, moment = draw(rng, 0.02, shift=0.5, tau=0.01)
        draws.append(curated_covariance(means, moment, 0.01).matrix)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    truth = np.diag(SPECTRUM) * (1 - 2 / sum(UNITS))
    assert np.all(np.abs(np.mean(draws, axis=0) - truth) < 6 * error)
    forgotten = np.mean(draws, axis=0) - float(np.mean(means.mean_variances)) * np.eye(DIMENSION)
    assert np.any(np.abs(forgotten - truth) > 6 * error), "a forgotten correction would be seen"


def test_the_stated_noise_covers_that_of_the_centre() -> None:
    """The trace's deviation beyond sampling, over 3000 draws, against root J times the stated noise."""
    rng = np.random.default_rng(3)
    mu = 0.02
    with_noise, stated = [], []
    for _ in range(3000):
        means, moment = draw(rng, mu, tau=0.02)
        covariance = curated_covariance(means, moment, 0.02)
        with_noise.append(float(np.trace(covariance.matrix)))
        stated.append(covariance.noise)
    sampling = 2 * float(np.sum(SPECTRUM**2)) / sum(UNITS)
    spread = np.sqrt(np.var(with_noise) - sampling)
    assert spread == pytest.approx(np.sqrt(DIMENSION) * np.mean(stated), rel=0.1)
    assert np.mean(stated) > 1.2 * 0.02


@pytest.mark.long
def test_noise_taken_for_half_would_break_the_level() -> None:
    rng = np.random.default_rng(5)
    rejected = 0
    for _ in range(600):
        means, moment = draw(rng, 0.01, tau=0.005)
        half = (np.sqrt(means.difference_variance / 2), means.centre_noise)
        wrong = CuratedMeans.of(means.means[0] - means.means[1], means.centre, UNITS, half, means.weights)
        rejected += mmd_test(wrong, curated_covariance(wrong, moment, 0.005))[1] <= 0.05
    assert rejected > 100


@pytest.mark.long
def test_the_estimate_is_unbiased_and_its_interval_covers() -> None:
    """Coverage .9 at 800 draws: fewer than 660 would have probability below 1e-9."""
    rng = np.random.default_rng(6)
    shift, found = 0.15, []
    for _ in range(800):
        means, moment = draw(rng, 0.2, shift=shift, tau=0.005)
        found.append(estimate_moments(means, curated_covariance(means, moment, 0.005), 1.0, 0.9))
    estimates = np.array([estimate.squared_mmd for estimate in found])
    assert abs(estimates.mean() - shift**2) < 5 * estimates.std() / np.sqrt(800)
    assert sum(estimate.lower <= shift**2 <= estimate.upper for estimate in found) >= 660
