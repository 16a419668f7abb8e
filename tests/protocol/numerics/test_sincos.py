"""Waves against 50-digit arithmetic, and their bits against where a value stands."""

from unittest.mock import patch

import mpmath
import numpy as np
import pytest
from definitions import Matrix
from mpmath import mpf

from tacit_protocol.numerics import sincos
from tacit_protocol.numerics.sincos import FACTORS_MAX, WAVE_ERROR, Harmonics, Wave, wave

RANDOM = np.random.default_rng(0)
EIGHTHS = np.arange(-24, 25) / 8
TURNS = np.concatenate([
    8 * RANDOM.random(1500) - 4,
    EIGHTHS,
    np.nextafter(EIGHTHS, np.inf),
    np.nextafter(EIGHTHS, -np.inf),
    0.5 + 1e-9 * RANDOM.standard_normal(20),
    0.25 + 1e-15 * RANDOM.standard_normal(20),
    2.0 ** -RANDOM.integers(1, 1074, 40),
    1000 * RANDOM.random(50),
])  # fmt: skip
"""Turns at random, at and beside all eighths, where something cancels or changes, tiny and large ones."""


def largest_error(found: Wave, turns: Matrix) -> float:
    return max(
        wave_error(mpf(float(t)), c, s)
        for t, c, s in zip(turns.ravel(), found.cosines.ravel(), found.sines.ravel(), strict=True)
    )


def wave_error(turns: mpmath.mpf, cosine: float, sine: float) -> float:
    errors = mpmath.cospi(2 * turns) - mpf(float(cosine)), mpmath.sinpi(2 * turns) - mpf(float(sine))
    return float(max(abs(error) for error in errors))


def test_waves_are_within_their_stated_error() -> None:
    assert largest_error(wave(TURNS), TURNS) <= WAVE_ERROR / 10


def test_the_same_search_finds_an_approximant_of_lower_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sincos, "_DEGREE", 6)
    monkeypatch.setattr(sincos, "_EVEN", sincos._scaled(0))
    monkeypatch.setattr(sincos, "_ODD", sincos._scaled(1))
    assert largest_error(wave(TURNS), TURNS) > WAVE_ERROR


@pytest.mark.parametrize("values", [1, 2, sincos.BLOCK_VALUES - 1, sincos.BLOCK_VALUES + 1])
def test_where_a_value_stands_changes_no_bit(values: int) -> None:
    turns = np.resize(TURNS, values)
    reference = wave(TURNS)
    for found in (wave(turns), wave(np.repeat(turns, 3)[1::3]), wave(turns[::-1].copy()[::-1])):
        np.testing.assert_array_equal(found.cosines, np.resize(reference.cosines, values))
        np.testing.assert_array_equal(found.sines, np.resize(reference.sines, values))


def test_layout_and_shape_are_kept_and_change_no_bit() -> None:
    table = TURNS[:1200].reshape(300, 4)
    for given in (table, np.asfortranarray(table), np.repeat(table, 2, axis=0)[::2]):
        found = wave(given)
        np.testing.assert_array_equal(found.cosines.ravel(), wave(TURNS[:1200]).cosines)
        assert found.sines.shape == table.shape
    assert wave(np.asfortranarray(table)).cosines.flags.f_contiguous
    assert wave(np.zeros((0, 3))).cosines.shape == (0, 3)


@pytest.mark.parametrize(
    ("cycles", "evaluated"),
    [
        ((0.8125, 1.625, 3.25), 1),
        (tuple(0.8125 * m for m in range(1, 7)), 1),
        ((3.25, 0.8125, 1.625), 1),
        ((0.25, 0.5, 0.75, 1.25, 1.75), 1),
        ((0.7, 1.1, 2.3), 3),
        ((0.25, 0.75, 1.25), 3),
        (tuple(range(1, 200)), 4),
    ],
)
def test_harmonics_are_the_waves_of_their_frequencies(cycles: tuple[float, ...], evaluated: int) -> None:
    places = np.concatenate([np.random.default_rng(1).random(17), [0.0, 0.5, 1.0]])
    with patch.object(sincos, "wave", wraps=wave) as counted:
        waves = dict(Harmonics(cycles).at(places))
    assert sorted(waves) == list(range(len(cycles)))
    assert counted.call_count == evaluated
    for index, found in waves.items():
        exact = [mpf(float(place)) * mpf(cycles[index]) for place in places]
        errors = [wave_error(t, c, s) for t, c, s in zip(exact, found.cosines, found.sines, strict=True)]
        # Besides, the turns are rounded to 53 bits.
        assert max(errors) <= FACTORS_MAX * WAVE_ERROR + 7 * cycles[index] * 2.0**-53
