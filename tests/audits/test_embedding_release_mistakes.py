"""Wrong constants, planted in the private database's mechanisms, are found by the audits' own search."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from embedding_release_cases import CASES, study
from kernel_two_sample_cases import ONE_NUMBER
from neighbour_search import Space, largest_change
from release_audit import largest_move

from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.kernels import RandomFourier
from tacit_protocol.features.moments import sum_features
from tacit_protocol.privacy import laplace_mechanism
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.procedures.embedding_release import features_of
from tacit_protocol.procedures.embedding_release import release as mechanism
from tacit_protocol.procedures.embedding_release.release import HistogramsThenMean, HistogramSums


def test_laplace_noise_for_the_l2_sensitivity_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace_mechanism, "l1_sensitivity", lambda part: part.sensitivity)
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


def test_histograms_that_forget_how_many_columns_there_are_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ColumnHistograms, "l2_sensitivity", math.sqrt(2))
    moved, allowed = largest_move(CASES["histograms, categories"])
    assert moved.gaussian > 1.1 * allowed.gaussian
    monkeypatch.setattr(ColumnHistograms, "l1_sensitivity", 2.0)
    moved, allowed = largest_move(CASES["histograms, Laplace"])
    assert moved.laplace > 1.2 * allowed.laplace


def test_histograms_and_mean_that_spend_the_whole_budget_each_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = HistogramsThenMean.parts

    def whole(*given: Any, **named: Any) -> tuple[SumPart, ...]:
        return tuple(replace(part, share=1.0) for part in right(*given, **named))

    monkeypatch.setattr(HistogramsThenMean, "parts", whole)
    moved, allowed = largest_move(CASES["histograms, categories"])
    assert moved.gaussian > 1.4 * allowed.gaussian


def test_points_that_are_drawn_from_the_exact_histograms_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean's coordinates then depend on the data in a second way."""
    right = HistogramsThenMean.adapt

    def peeking(self: HistogramsThenMean, sums: HistogramSums, noise: Any) -> HistogramSums:
        found = right(self, sums, noise)
        assert found.noisy is not None
        exact = found.noisy.model_copy(update={"values": tuple(sums.steps.tolist())})
        features = self.drawn(exact, sums.units).features
        return replace(found, mean=sum_features(features, sums.table, products=False, bits=sums.bits))

    monkeypatch.setattr(HistogramsThenMean, "adapt", peeking)
    moved, allowed = largest_move(CASES["histograms, narrow"])
    assert moved.gaussian > 1.15 * allowed.gaussian


def test_half_the_sensitivity_of_a_distance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mechanism.sum_sensitivity
    monkeypatch.setattr(mechanism, "sum_sensitivity", lambda *given: right(*given) / 2)
    moved, allowed = largest_move(CASES["exponential, one against many"])
    assert moved.laplace > 1.8 * allowed.laplace


def test_what_lies_between_the_points_of_a_grid_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends and in the middle this frequency's product is 1; the search finds -1 between them."""
    monkeypatch.setattr("tacit_protocol.features.kernels.GRID_POINTS", 3)
    features = RandomFourier(np.array([[2 * np.pi], [2 * np.pi]]))
    assert features.diameter == 2
    assert largest_change(features, Space(1), seed=5).value > 1.99
