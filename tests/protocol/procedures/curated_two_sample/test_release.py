"""The curator's difference and centre, and P0's paired differences: exact sums, hidden samples."""

from fractions import Fraction

import numpy as np
import pytest

from tacit_protocol.features.moments import AdditiveFeatures, AdditiveRelease, AdditiveSums, default_choice
from tacit_protocol.procedures.curated_two_sample.release import (
    CuratedAdditiveRelease,
    CuratedSums,
    balance,
    mean_bits,
)

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
