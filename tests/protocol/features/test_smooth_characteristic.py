"""Smooth characteristic features against their definition and their own, corrected constants."""

import math

import mpmath
import numpy as np
import pytest
from definitions import Rows, distance, random_rows
from mpmath import mpf

from tacit_protocol.features.base import EVALUATION_ERROR
from tacit_protocol.features.mean_embedding import SmoothCharacteristic

FREQUENCIES = 5 * np.random.default_rng(0).standard_normal((4, 3))


def definition(rows: Rows, i: int, window: float | None, scale: mpmath.mpf) -> list[mpmath.mpf]:
    x = [mpf(float(value)) for value in rows.numeric[i]]
    angles = [sum(a * mpf(float(w)) for a, w in zip(x, frequency, strict=True)) for frequency in FREQUENCIES]
    height = mpf(1)
    if window is not None:
        height = mpmath.exp(-sum((a - mpf("0.5")) ** 2 for a in x) / (2 * mpf(window) ** 2))
    return [scale * height * f(a) for f in (mpmath.sin, mpmath.cos) for a in angles]


@pytest.mark.parametrize("window", [None, 0.3, 2.0])
@pytest.mark.parametrize("raw", [False, True])
def test_features_are_those_of_the_definition_sines_then_cosines(window: float | None, raw: bool) -> None:
    rows = random_rows(np.random.default_rng(1), 10, 3)
    features = SmoothCharacteristic(FREQUENCIES, window, raw=raw)
    values = features(rows)
    assert values.shape == (10, 8) == (10, features.dimension)
    scale = mpf(1) if raw else 1 / mpmath.sqrt(4)
    for i in range(10):
        assert distance(values[i], definition(rows, i, window, scale)) <= EVALUATION_ERROR / 10


def test_the_constants_are_twice_the_norm_and_root_two_times_its_square() -> None:
    scaled, raw = SmoothCharacteristic(FREQUENCIES), SmoothCharacteristic(FREQUENCIES, raw=True)
    assert (scaled.norm, scaled.diameter, scaled.second_moment_diameter) == (1.0, 2.0, math.sqrt(2))
    assert raw.norm == pytest.approx(math.sqrt(8 / 2))
    assert raw.diameter == pytest.approx(math.sqrt(2 * 8))
    assert raw.second_moment_diameter == pytest.approx(math.sqrt(2) * 8 / 2)
