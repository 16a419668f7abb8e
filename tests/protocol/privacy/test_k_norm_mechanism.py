"""K-norm noise: its law by enumeration, its bodies attacked by neighbours, and mistakes planted in both."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats

from tacit_protocol.features.cell_means import CellFeatures
from tacit_protocol.privacy import k_norm_mechanism as mechanism
from tacit_protocol.privacy import noise as noise_module
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, round_to_grid
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SensitivityError, SumPart
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import (
    ProductBody,
    check_k_norm,
    k_norm_guarantee,
    k_norm_scale,
    release_k_norm,
    simulated_k_norm,
)
from tacit_protocol.privacy.noise import NoiseError, OpenDPNoise

FALSE_ALARM = 1e-7
"""Of each statistical test here; seeds are fixed."""

BODIES = {
    "one number": ProductBody((1,)),
    "two numbers": ProductBody((1, 1)),
    "two cells": ProductBody((2,)),
    "three cells": ProductBody((3,)),
    "two cells, a number": ProductBody((2, 1)),
    "four cells": ProductBody((4,)),
}


def held(sizes: Sequence[int], point: Sequence[int], radius: int) -> bool:
    """Say whether a point is in the body of a radius, by its definition."""
    own = iter(point)
    for size in sizes:
        part = [next(own) for _ in range(size)]
        if sum(v for v in part if v > 0) > radius or sum(-v for v in part if v < 0) > radius:
            return False
    return True


def norm(body: ProductBody, point: Sequence[int]) -> int:
    """The least whole radius whose body holds the point."""
    radius = 0
    while not held(body.sizes, point, radius):
        radius += 1
    return radius


def waits_of(scale: float, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from (int(v) - 1 for v in rng.geometric(-math.expm1(-1 / scale), 1024))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", BODIES)
def test_the_sampler_has_the_law_of_the_norm(name: str) -> None:
    """On a coarse grid, where every point's probability is enumerated; chi-squared of the norms' counts."""
    body, scale, rng = BODIES[name], 1.5, np.random.default_rng(3)
    reach = {1: 40, 2: 25, 3: 12, 4: 7}[body.dimension]
    points = itertools.product(range(-reach, reach + 1), repeat=body.dimension)
    mass = np.zeros(5 * reach)
    for point in points:
        mass[norm(body, point)] += math.exp(-norm(body, point) / scale)
    mass = mass[:reach]
    waits = waits_of(scale, rng)
    norms = [norm(body, noise_module._in_body(body, waits)) for _ in range(20_000)]
    counts = np.bincount([found for found in norms if found < reach], minlength=reach)
    expected = counts.sum() * mass / mass.sum()
    kept = expected > 10
    statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    assert statistic < stats.chi2.isf(FALSE_ALARM, np.count_nonzero(kept) - 1)


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (3,)])
def test_points_of_one_norm_are_alike(sizes: tuple[int, ...]) -> None:
    """Of norm 2 and less, all enumerated; chi-squared of their counts within each norm."""
    body, rng = ProductBody(sizes), np.random.default_rng(6)
    waits = waits_of(1.0, rng)
    counts = Counter(tuple(noise_module._in_body(body, waits)) for _ in range(20_000))
    for radius in (1, 2):
        points = [
            point
            for point in itertools.product(range(-radius, radius + 1), repeat=body.dimension)
            if norm(body, point) == radius
        ]
        found = np.array([counts[point] for point in points])
        assert stats.chisquare(found).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("range(dimension + 1))\n        counted", "range(dimension))\n        counted"),
        ("math.comb(m, k) * above[k] * below[m - k]", "above[k] * below[m - k]"),
        ("secrets.randbelow(most) < points * divided", "secrets.randbelow(most) >= 0"),
    ],
)
def test_planted_mistakes_in_the_sampler_are_seen(right: str, wrong: str) -> None:
    """The chance of 0, and of the norm 1, against their exact ones, by eight deviations."""
    planted, body = with_mistake(noise_module, right, wrong), BODIES["two cells"]
    waits, runs = waits_of(1.5, np.random.default_rng(4)), 20_000
    drawn = [norm(body, planted._in_body(body, waits)) for _ in range(runs)]
    points = itertools.product(range(-40, 41), repeat=2)
    mass = np.zeros(81)
    for point in points:
        mass[norm(body, point)] += math.exp(-norm(body, point) / 1.5)
    expected = runs * mass[:40] / mass[:40].sum()
    counts = np.bincount(drawn, minlength=200)[:40]
    one = [abs(c - e) > 8 * math.sqrt(e) for c, e in zip(counts[:3], expected[:3], strict=True)]
    assert any(one)


@pytest.mark.long
@pytest.mark.parametrize("name", BODIES)
def test_noise_of_opendp_has_the_moments_of_the_law(name: str) -> None:
    body, source = BODIES[name], OpenDPNoise()
    scale, zeros = 2.0**20, np.zeros(BODIES[name].dimension, dtype=np.int64)
    drawn = np.array([source.k_norm(zeros, scale, body) for _ in range(400)]) / scale
    simulated = np.array(
        [simulated_k_norm(zeros, scale, body, np.random.default_rng(run)) for run in range(4000)]
    )
    for sample, sure in ((drawn, 0.4), (simulated / scale, 0.12)):
        np.testing.assert_allclose(sample.std(axis=0), body.deviations(np.eye(body.dimension)), rtol=sure)


def rows_of(numeric: np.ndarray, categorical: np.ndarray) -> Any:
    return SimpleNamespace(numeric=numeric, categorical=categorical)


def largest_move(body: Any, features: CellFeatures, bits: int, seed: int) -> float:
    """Search for neighbours, rounded against each other, whose difference has the largest norm; over D."""
    rng, columns = np.random.default_rng(seed), features.cells.columns
    numeric, levels = features.numeric, columns - features.numeric
    u = rng.choice([0.0, 1.0, 0.25, 0.5, 0.75, 0.2, 0.4 - 1e-9], (3000, 2, numeric))
    u[1000:] = rng.uniform(size=(2000, 2, numeric))
    u[2000:, 1] = 1 - u[2000:, 0]
    codes = rng.integers(0, 4, (3000, 2, levels))
    one, other = (features.cells(rows_of(u[:, side], codes[:, side])) for side in (0, 1))
    # Half a step of a row, half a step of its unit, and the feature's own error, each at its worst.
    shift = (1 + FEATURE_ERROR_STEPS) * 2.0**-bits * np.where(one == other, 1, np.sign(one - other))
    steps = np.rint(np.ldexp(one - other + 2 * shift, bits)).astype(np.int64)
    return max(body.norm(point) for point in steps.tolist()) / body.sensitivity(bits)


MAPS = {
    "one number": CellFeatures(1, (), 5, pairs=False),
    "two numbers, squares": CellFeatures(2, (), 8, pairs=False),
    "mixed": CellFeatures(1, (2, 3), 4, pairs=False),
    "pairs, mixed": CellFeatures(2, (2,), 4, pairs=True),
    "pairs, squares": CellFeatures(2, (), 8, pairs=True),
    "categories": CellFeatures(0, (1, 3), 5, pairs=False),
    "thirty": CellFeatures(30, (), 4, pairs=False),
}


@pytest.mark.parametrize("bits", [8, 20])
@pytest.mark.parametrize("name", MAPS)
def test_no_neighbours_are_further_apart_than_the_sensitivity(name: str, bits: int) -> None:
    features = MAPS[name]
    found = largest_move(features.cells.body, features, bits, 11)
    assert 0.98 * (bits == 20) + 0.6 * (bits == 8) < found <= 1


MISTAKES = {
    "no rounding": ("(1 << bits) + math.ceil(ROUNDING_STEPS * max(self.sizes))", "1 << bits", 8),
    "half the movement": ("return (1 << bits) +", "return (1 << (bits - 1)) +", 20),
    "room for a number alone": ("ROUNDING_STEPS * max(self.sizes)", "ROUNDING_STEPS * 0.5", 8),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes_in_bodies_are_found(name: str) -> None:
    right, wrong, bits = MISTAKES[name]
    planted = with_mistake(mechanism, right, wrong)
    found = [
        largest_move(planted.ProductBody(features.cells.body.sizes), features, bits, 11)
        for features in (MAPS["one number"], MAPS["mixed"], MAPS["pairs, mixed"])
    ]
    assert max(found) > 1


def test_the_norm_is_the_least_radius_that_holds_a_point() -> None:
    rng, body = np.random.default_rng(2), ProductBody((3, 1, 2))
    for _ in range(300):
        point = rng.integers(-9, 10, 6).tolist()
        assert body.norm(point) == norm(body, point)


def test_a_point_moved_by_a_neighbour_gains_no_more_than_the_sensitivity() -> None:
    """|z + d| <= |z| + D for d in D K, in whole numbers: the whole of the privacy proof."""
    rng, body = np.random.default_rng(5), ProductBody((3, 1))
    for _ in range(300):
        z = rng.integers(-60, 61, 4).tolist()
        d = rng.integers(-40, 41, 4).tolist()
        assert norm(body, [a + b for a, b in zip(z, d, strict=True)]) <= norm(body, z) + norm(body, d)


def test_the_law_of_one_number_is_laplaces() -> None:
    law = BODIES["one number"].law(np.eye(1))
    assert law.deviations[0] == pytest.approx(math.sqrt(2), rel=1e-9)
    t = np.array([0.3, 1.0, 4.0])
    np.testing.assert_allclose(law.standard_characteristic(0, t * math.sqrt(2)), 1 / (1 + t**2), atol=0.01)
    assert law.widening(0.05) == pytest.approx(
        (math.log(20) / math.sqrt(2) / stats.norm.isf(0.025)) ** 2, rel=0.02
    )
    assert MAPS["thirty"].cells.law.widening(0.05) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("sizes", [(1,), (4,), (3, 5, 1)])
def test_moments_of_the_law_are_those_of_draws(sizes: tuple[int, ...]) -> None:
    """Deviations and products, within six standard errors of 40 000 points."""
    body, draws = ProductBody(sizes), 40_000
    points = body.points(draws, np.random.default_rng(8))
    rows = np.vstack([np.eye(body.dimension), np.ones(body.dimension), np.arange(body.dimension) - 1.0])
    radius = math.sqrt((body.dimension + 1) * (body.dimension + 2))
    squares = (points @ rows.T) ** 2
    errors = squares.std(axis=0) / math.sqrt(draws)
    exact = (body.deviations(rows) / radius) ** 2
    assert np.all(np.abs(squares.mean(axis=0) - exact) <= 6 * errors + 1e-12)
    norms = [held(sizes, np.rint(point * 2**30).astype(int).tolist(), 2**30 + 9) for point in points[:200]]
    assert all(norms)


def test_a_release_is_checked_and_costs_epsilon_alone() -> None:
    body, fixed = BODIES["three cells"], k_norm_guarantee(Budget.of(0.5, 0))
    part = SumPart("column_means", np.arange(3, dtype=np.int64), -20, 0.0, 1.0)
    vectors = release_k_norm(part, body, fixed, OpenDPNoise())
    check_k_norm(vectors, fixed, part, body, fixed)
    assert k_norm_scale(body, 20, 0.5) * 0.5 >= body.sensitivity(20)
    vector = vectors["column_means"]
    for wrong in (
        {"scale": vector.scale * 0.999},
        {"noise": "laplace"},
        {"values": vector.values[1:]},
        {"exponent": -19},
    ):
        changed = {"column_means": vector.model_copy(update=wrong)}
        with pytest.raises(LayoutError):
            check_k_norm(changed, fixed, part, body, fixed)
    with pytest.raises(LayoutError, match="guarantee"):
        check_k_norm(vectors, k_norm_guarantee(Budget.of(0.6, 0)), part, body, fixed)
    silent: Any = SimpleNamespace()
    with pytest.raises(SensitivityError, match="by norms"):
        release_k_norm(part, body, fixed, silent)


def test_noise_that_cannot_be_drawn_safely_is_refused() -> None:
    source, body = OpenDPNoise(), BODIES["three cells"]
    with pytest.raises(NoiseError, match="coordinate for each"):
        source.k_norm(np.zeros(2, dtype=np.int64), 2.0**20, body)
    with pytest.raises(NoiseError, match="62 bits"):
        source.k_norm(np.zeros(3, dtype=np.int64), 2.0**56, body)
    with pytest.raises(NoiseError, match="grid steps"):
        source.k_norm(np.zeros(3, dtype=np.int64), 10.0, body)


def test_features_are_on_their_grid_and_within_their_span() -> None:
    u = np.random.default_rng(1).uniform(size=(500, 1))
    found = MAPS["two numbers, squares"].cells(rows_of(np.tile(u, 2), np.zeros((500, 0), np.int64)))
    assert np.abs(found[:, -4:]).max() <= 0.5
    assert np.all(np.isin(found[:, :-4], [0.0, 1.0]))
    # The last cell of each column is left out.
    assert np.all(found[:, :-4].sum(axis=1) == 2.0 * (u[:, 0] < 7 / 8))
    round_to_grid(found, 20)
