"""Locations and frequencies optimised on public rows: the criterion, its gradient, and what comes of them."""

import math
from typing import Any

import numpy as np
import pytest

from tacit.planning.locations import Choices, Form, FrequencyChoices, LocationChoices, PlannedTest, PublicRows
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
)
from tacit_protocol.procedures.means.private_means import FloatMatrix, FloatVector

Forms = pytest.mark.parametrize("form", ["mmd", "noise-aware"])


def some_rows(seed: int, count: int, columns: int, categories: int = 0, signed: bool = False) -> PublicRows:
    rng = np.random.default_rng(seed)
    weights = rng.random(count) - (0.2 if signed else 0.0)
    codes = rng.integers(0, 3, (count, categories), dtype=np.int32)
    return PublicRows.of(0.8 * rng.random((count, columns)) + 0.2 * rng.random(), codes, weights)


def planned(form: Form, whitened: bool = True) -> PlannedTest:
    return PlannedTest(form, (200, 300), 0.02, 0.1, whitened)


def gradient_error(choices: Choices, vector: FloatVector, test: PlannedTest, categories: int = 0) -> float:
    """Largest difference from central finite differences, relative to the largest slope."""
    rows = (
        some_rows(1, 60, choices.columns, categories, signed=True),
        some_rows(2, 50, choices.columns, categories),
    )
    value, gradient = choices.criterion(vector, rows, test)
    assert value > 0
    step = 1e-6
    ends = [
        [choices.criterion(vector + sign * step * e, rows, test)[0] for sign in (1, -1)]
        for e in np.eye(len(vector))
    ]
    measured = [(above - below) / (2 * step) for above, below in ends]
    return float(np.max(np.abs(gradient - measured)) / np.max(np.abs(gradient)))


def location_choices(columns: int, categories: int, count: int = 4) -> tuple[LocationChoices, FloatVector]:
    rng = np.random.default_rng(7)
    choices = LocationChoices(columns, rng.integers(0, 3, (count, categories), dtype=np.int32), 0.5)
    return choices, np.append(rng.random(count * columns), math.log(0.4))


def frequency_choices(columns: int, count: int = 3) -> tuple[FrequencyChoices, FloatVector]:
    return FrequencyChoices(columns, count), np.random.default_rng(8).normal(0, 1.5, count * columns)


@pytest.mark.sweep(4)
@Forms
@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize(("columns", "categories"), [(1, 0), (2, 0), (3, 2)])
def test_the_gradient_of_locations_is_that_of_finite_differences(
    form: Form, whitened: bool, columns: int, categories: int
) -> None:
    choices, vector = location_choices(columns, categories)
    assert gradient_error(choices, vector, planned(form, whitened), categories) < 1e-7


@Forms
@pytest.mark.parametrize("columns", [1, 3])
def test_the_gradient_of_frequencies_is_that_of_finite_differences(form: Form, columns: int) -> None:
    choices, vector = frequency_choices(columns)
    assert gradient_error(choices, vector, planned(form)) < 1e-7


def literal_criterion(x: FloatMatrix, y: FloatMatrix, test: PlannedTest, noise: tuple[float, float]) -> float:
    """The criterion from features of equal rows, as in the module's text; noise: (b, inflation)."""
    difference = x.mean(axis=0) - y.mean(axis=0)
    sampling = np.cov(x.T, bias=True) / test.units[0] + np.cov(y.T, bias=True) / test.units[1]
    seen = sampling + (noise[0] if test.form == "mmd" else sum(noise)) * np.eye(len(difference))
    if test.form == "noise-aware":
        return float(difference @ np.linalg.solve(seen, difference))
    return float(difference @ difference / np.sqrt(2 * np.sum(seen**2)))


@Forms
@pytest.mark.parametrize("kind", ["whitened", "raw", "frequencies"])
def test_the_criterion_is_that_of_the_features_of_the_test(form: Form, kind: str) -> None:
    test = planned(form, whitened=kind != "raw")
    rng = np.random.default_rng(3)
    x, y = (PublicRows.of(rng.random((40, 2)) * s, np.zeros((40, 0), np.int32)) for s in (0.8, 1.0))
    choices: Choices
    features: Any
    if kind == "frequencies":
        choices, vector = frequency_choices(2)
        features = SmoothCharacteristic(2 * np.pi * choices.split(vector))
        # All sines come before all cosines in both.
    else:
        choices, vector = location_choices(2, 0)
        locations, bandwidth = choices.split(vector)
        build = WhitenedMeanEmbedding if kind == "whitened" else RawMeanEmbedding
        features = build(ProductKernel("gaussian", bandwidth), locations)
    noise = (test.mean_noise * features.diameter) ** 2
    spectral = test.moment_noise * features.second_moment_diameter * math.sqrt(2 * features.dimension)
    expected = literal_criterion(features(x), features(y), test, (noise, spectral * (1 / 200 + 1 / 300)))
    assert choices.criterion(vector, (x, y), test)[0] == pytest.approx(expected, rel=1e-6)
