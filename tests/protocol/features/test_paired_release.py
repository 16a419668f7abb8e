"""P0's paired differences: how far one individual moves a pair, what is summed, and in which order."""

import itertools

import numpy as np
import pytest
from two_sample_cases import MemoryTable, NoNoise, domain_of

from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding, SmoothCharacteristic
from tacit_protocol.features.moments import MEAN, read_second_moment
from tacit_protocol.privacy.gaussian_mechanism import halved_guarantee, release_sums
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.curated_two_sample.release import (
    PairedRelease,
    UnequalSamplesError,
    paired_moment_diameter,
)

LOCATIONS = Locations(np.random.default_rng(1).random((5, 2)), np.zeros((5, 0), dtype=np.int32))
RAW_ME = RawMeanEmbedding(ProductKernel("gaussian", 0.2), LOCATIONS)
RAW_SCF = SmoothCharacteristic(np.array([[np.pi, 0.0], [0.0, np.pi]]), raw=True)


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


def test_raw_embeddings_move_by_their_number_of_locations() -> None:
    """Every vertex of the cube for three points in it: the entries of zz' move by at most 1 each."""
    cube = np.array(list(itertools.product((0.0, 0.5, 1.0), repeat=3)))
    triples = np.array(list(itertools.product(cube, repeat=3)))
    moved = frobenius(triples[:, 0] - triples[:, 2], triples[:, 1] - triples[:, 2]).max()
    assert moved <= 3
    assert moved == pytest.approx(3)
    assert paired_moment_diameter(RAW_ME) == 5
    assert paired_moment_diameter(RAW_SCF) == pytest.approx(np.sqrt(1.5) * 8)


def tables(rows: int, other: int | None = None) -> tuple[MemoryTable, MemoryTable]:
    rng = np.random.default_rng(3)
    return tuple(  # type: ignore[return-value]
        MemoryTable(domain_of(2), rng.random((n, 2)), np.zeros((n, 0), dtype=np.int32))
        for n in (rows, other or rows)
    )


@pytest.mark.parametrize("features", [RAW_ME, RAW_SCF])
def test_without_noise_mean_and_moment_are_those_of_the_differences(features: RawMeanEmbedding) -> None:
    release, (first, second) = PairedRelease(features), tables(60)
    sums = release.sum(first, second, np.random.default_rng(4))
    vectors = release_sums(release.parts((60, 60), sums), halved_guarantee(Budget.of(1, "1e-5")), NoNoise())
    order = np.random.default_rng(4)
    halves = [features(next(t.chunks()))[order.permutation(60)] for t in (first, second)]
    z = (halves[0] - halves[1]) / 2
    assert vectors[MEAN].mean(60) == pytest.approx(z.mean(axis=0), abs=1e-5)
    assert read_second_moment(vectors, 60) == pytest.approx(z.T @ z / 60, abs=1e-5)


def test_another_order_makes_other_pairs_and_the_same_mean() -> None:
    release, (first, second) = PairedRelease(RAW_ME), tables(60)
    one, two = (release.sum(first, second, np.random.default_rng(seed)) for seed in (1, 2))
    assert np.array_equal(one.total, two.total)
    assert not np.array_equal(one.second, two.second)


def test_samples_of_two_sizes_are_refused() -> None:
    release = PairedRelease(RAW_ME)
    with pytest.raises(UnequalSamplesError):
        release.sum(*tables(5, 6), np.random.default_rng(1))
    with pytest.raises(UnequalSamplesError):
        release.parts((5, 6))
