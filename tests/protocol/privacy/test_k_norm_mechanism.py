"""K-norm noise: its law by enumeration, its bodies attacked by neighbours, and mistakes planted in both."""

import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats

from tacit_protocol.features.additive import FewFeatures
from tacit_protocol.privacy import k_norm_mechanism as mechanism
from tacit_protocol.privacy import noise as noise_module
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, round_to_grid
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SensitivityError, SumPart
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import (
    Arc,
    DoubleArc,
    Interval,
    KNormLaw,
    ProductBody,
    Simplex,
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
    "one number": ProductBody((Simplex((0,)),)),
    "two intervals": ProductBody((Interval((0,)), Interval((1,)))),
    "two levels": ProductBody((Simplex((0, 1)),)),
    "arc": ProductBody((Arc((0, 1, 2)),)),
    "arc and interval": ProductBody((Arc((0, 2, 3)), Interval((1,)))),
    "double arc": ProductBody((DoubleArc((0, 1, 2, 3)),)),
}


def norm(body: Any, point: Sequence[int]) -> int:
    """The least whole radius whose body holds the point."""
    radius = max(map(abs, point))
    while not all(part.holds([point[p] for p in part.places], radius) for part in body.parts):
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
    mass = np.zeros(4 * reach)
    for point in points:
        mass[norm(body, point)] += math.exp(-norm(body, point) / scale)
    mass = mass[:reach]
    waits, drawn = waits_of(scale, rng), []
    while len(drawn) < 20_000:
        found = noise_module._in_body(body, waits)
        if found is not None and norm(body, found) < reach:
            drawn.append(norm(body, found))
    counts, expected = np.bincount(drawn, minlength=reach), 20_000 * mass / mass.sum()
    kept = expected > 10
    statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    assert statistic < stats.chi2.isf(FALSE_ALARM, np.count_nonzero(kept) - 1)


def test_a_radius_that_forgets_the_cubes_size_is_seen() -> None:
    planted = with_mistake(noise_module, "range(dimension + 1))\n    most", "range(dimension))\n    most")
    waits, body = waits_of(1.5, np.random.default_rng(4)), BODIES["two intervals"]
    drawn = [found for _ in range(40_000) if (found := planted._in_body(body, waits)) is not None]
    zeros = sum(found == [0, 0] for found in drawn)
    mass = sum((8 * r if r else 1) * math.exp(-r / 1.5) for r in range(60))
    assert abs(zeros - len(drawn) / mass) > 8 * math.sqrt(len(drawn) / mass)


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
        np.testing.assert_allclose(sample.std(axis=0), body.law.deviations, rtol=sure)


def rows_of(numeric: np.ndarray, categorical: np.ndarray) -> Any:
    return SimpleNamespace(numeric=numeric, categorical=categorical)


def largest_move(body: Any, features: FewFeatures, bits: int, seed: int) -> float:
    """Search for neighbours, rounded against each other, whose difference has the largest norm; over D."""
    rng, columns = np.random.default_rng(seed), features.few.columns
    numeric, levels = features.numeric, columns - features.numeric
    worst = 0.0
    u = rng.choice([0.0, 1.0, 0.25, 0.5, 0.75], (3000, 2, numeric))
    u[1000:] = rng.uniform(size=(2000, 2, numeric))
    u[2000:, 1] = 1 - u[2000:, 0]
    codes = rng.integers(0, 4, (3000, 2, levels))
    one, other = (features.few(rows_of(u[:, side], codes[:, side])) for side in (0, 1))
    # Half a step of a row, half a step of its unit, and the feature's own error, each at its worst.
    shift = (1 + FEATURE_ERROR_STEPS) * 2.0**-bits * np.sign(one - other)
    steps = np.rint(np.ldexp(one - other + 2 * shift, bits)).astype(np.int64)
    limit = body.sensitivity(bits)
    for point in steps.tolist():
        low, high = 0, 4 * limit
        while high - low > 1:
            middle = (low + high) // 2
            held = max(map(abs, point)) <= middle and all(
                part.holds([point[p] for p in part.places], middle) for part in body.parts
            )
            low, high = (low, middle) if held else (middle, high)
        worst = max(worst, high / limit)
    return worst


MAPS = {
    "one number": FewFeatures(1, (), 0),
    "two numbers, finer": FewFeatures(2, (), 2),
    "mixed": FewFeatures(1, (2, 3), 1),
    "doubled": FewFeatures(2, (), 0, doubled=True),
    "doubled, finer": FewFeatures(1, (2,), 2, doubled=True),
    "categories": FewFeatures(0, (1, 3), 0),
    "a cube": FewFeatures(30, (), 0),
}


@pytest.mark.parametrize("bits", [8, 20])
@pytest.mark.parametrize("name", MAPS)
def test_no_neighbours_are_further_apart_than_the_sensitivity(name: str, bits: int) -> None:
    features = MAPS[name]
    found = largest_move(features.few.body, features, bits, 11)
    assert 0.98 < found <= 1


MISTAKES = {
    "no rounding": ("(2 << bits) + math.ceil(ROUNDING_STEPS * rounding)", "2 << bits", 8),
    "half the movement": ("(2 << bits)", "(1 << bits)", 20),
    "tangents below": ("+ 2\n\n\nTANGENTS", "- 40000\n\n\nTANGENTS", 20),
    "levels share": ("above <= radius and", "2 * above <= radius and", 20),
    "a reach without its start": ("(3 * math.sqrt(1 - (2", "(2.9 * math.sqrt(1 - (2", 20),
    "the sine's sign": ("abs(3 * y + 2 * s)", "abs(3 * y - 2 * s)", 20),
    "a parabola too low": ("4 * u * (radius - u)", "3 * u * (radius - u)", 20),
    "no room for three": ("rounding: int = 3", "rounding: int = 1", 8),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes_in_bodies_are_found(name: str) -> None:
    right, wrong, bits = MISTAKES[name]
    planted = with_mistake(mechanism, right, wrong)
    found = []
    for features in (MAPS["one number"], MAPS["mixed"], MAPS["doubled"]):
        kinds = {
            "Interval": planted.Interval,
            "Arc": planted.Arc,
            "DoubleArc": planted.DoubleArc,
            "Simplex": planted.Simplex,
        }
        parts = tuple(kinds[type(part).__name__](part.places) for part in features.few.body.parts)
        found.append(largest_move(planted.ProductBody(parts), features, bits, 11))
    assert max(found) > 1


def test_a_point_moved_by_a_neighbour_gains_no_more_than_the_sensitivity() -> None:
    """|z + d| <= |z| + D for d in D K, in whole numbers: the whole of the privacy proof."""
    rng, body = np.random.default_rng(5), BODIES["arc and interval"]
    for _ in range(300):
        z = rng.integers(-60, 61, 4).tolist()
        d = rng.integers(-40, 41, 4).tolist()
        assert norm(body, [a + b for a, b in zip(z, d, strict=True)]) <= norm(body, z) + norm(body, d)


def test_the_law_of_one_number_is_laplaces() -> None:
    law = BODIES["one number"].law
    assert law.deviations[0] == pytest.approx(math.sqrt(2), rel=1e-4)
    t = np.array([0.3, 1.0, 4.0])
    np.testing.assert_allclose(law.characteristic(0, t), 1 / (1 + t**2), atol=1e-4)
    assert law.widening(0.05) == pytest.approx(
        (math.log(20) / math.sqrt(2) / stats.norm.isf(0.025)) ** 2, rel=0.01
    )
    assert KNormLaw.of(MAPS["a cube"].few.body).widening(0.05) == pytest.approx(1, abs=0.1)


def test_a_release_is_checked_and_costs_epsilon_alone() -> None:
    body, fixed = BODIES["arc"], k_norm_guarantee(Budget.of(0.5, 0))
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
    source, body = OpenDPNoise(), BODIES["arc"]
    with pytest.raises(NoiseError, match="coordinate for each"):
        source.k_norm(np.zeros(2, dtype=np.int64), 2.0**20, body)
    with pytest.raises(NoiseError, match="62 bits"):
        source.k_norm(np.zeros(3, dtype=np.int64), 2.0**56, body)
    with pytest.raises(NoiseError, match="grid steps"):
        source.k_norm(np.zeros(3, dtype=np.int64), 10.0, body)


def test_features_are_on_their_grid_and_within_their_span() -> None:
    u = np.random.default_rng(1).uniform(size=(500, 1))
    found = MAPS["mixed"].few(rows_of(u, np.random.default_rng(2).integers(0, 5, (500, 2))))
    assert np.abs(found).max() <= 1
    round_to_grid(found, 20)
