"""Candidate databases: what is counted, how far each lies from a mean, and how many are too many."""

import math

import numpy as np
import pytest

from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.procedures.embedding_release.plan import CANDIDATES_MAX, Candidates, CandidatesError


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
