"""Wrong constants, planted in the private database's mechanisms, are found by the audits' own search."""

import math

import numpy as np
import pytest
from embedding_release_cases import CASES, study
from kernel_two_sample_cases import ONE_NUMBER
from neighbour_search import Space, largest_change
from release_audit import largest_move

from tacit_protocol.features.random_fourier import RandomFourier
from tacit_protocol.privacy import laplace_sums
from tacit_protocol.procedures import embedding_release_mechanism as mechanism
from tacit_protocol.procedures.embedding_release import features_of


def test_laplace_noise_for_the_l2_sensitivity_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace_sums, "l1_sensitivity", lambda part: part.sensitivity)
    moved, allowed = largest_move(CASES["subspace, 2 narrow points, Laplace"])
    assert moved.laplace > 1.4 * allowed.laplace


def test_random_features_with_the_diameter_of_a_kernel_that_is_never_negative_are_caught() -> None:
    """The estimate of a Gaussian kernel by one frequency is a cosine: at half a turn it is -1."""
    features = features_of(
        study(ONE_NUMBER, {"method": "random-features", "n_frequencies": 1, "bandwidth": 0.02}, 1.0)
    )
    found = largest_change(features, Space(1), seed=5)
    assert found.value > 1.4 * math.sqrt(2)
    assert found.value <= features.diameter + 1e-9


def test_half_the_sensitivity_of_a_distance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanism.sum_sensitivity
    monkeypatch.setattr(mechanism, "sum_sensitivity", lambda *given: right(*given) / 2)
    moved, allowed = largest_move(CASES["exponential, one against many"])
    assert moved.laplace > 1.8 * allowed.laplace


def test_what_lies_between_the_points_of_a_grid_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends and in the middle this frequency's product is 1; the search finds -1 between them."""
    monkeypatch.setattr("tacit_protocol.features.random_fourier.GRID_POINTS", 3)
    features = RandomFourier(np.array([[2 * np.pi], [2 * np.pi]]))
    assert features.diameter == 2
    assert largest_change(features, Space(1), seed=5).value > 1.99
