"""Residuals of cells are near standard normal under the null hypothesis, with the noise; and grow."""

import numpy as np
import numpy.typing as npt
import pytest

from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.procedures.counts.homogeneity import between_owners
from tacit_protocol.procedures.counts.independence_table import from_independence

NOISE = (CellNoise("laplace", 4.0),)
RUNS = 3000


def noisy(rng: np.random.Generator, units: int, p: npt.NDArray[np.float64]) -> NoisyTable:
    table = NoisyTable(rng.multinomial(units, p).astype(np.float64), units, NOISE)
    return NoisyTable(table.counts + table.draw_noise(rng, 1)[0], units, NOISE)


def test_owners_residuals_have_unit_variance_where_they_are_alike() -> None:
    """3000 runs: a mean square's standard error is .026 to .045 with Laplace tails; .25 is far beyond."""
    rng, p = np.random.default_rng(4), np.array([0.5, 0.3, 0.15, 0.05])
    units = (400, 900, 1500)
    found = np.stack([between_owners([noisy(rng, n, p) for n in units]) for _ in range(RUNS)])
    assert found.shape == (RUNS, 3, 4)
    assert np.mean(found, axis=0) == pytest.approx(0.0, abs=0.12)
    assert np.mean(found**2, axis=0) == pytest.approx(1.0, abs=0.25)


def test_tables_residuals_have_unit_variance_where_columns_are_independent() -> None:
    rng, p = np.random.default_rng(5), np.outer([0.6, 0.4], [0.5, 0.3, 0.2]).ravel()
    found = np.stack([from_independence(noisy(rng, 2000, p), (2, 3)) for _ in range(RUNS)])
    assert np.mean(found, axis=0) == pytest.approx(0.0, abs=0.12)
    assert np.mean(found**2, axis=0) == pytest.approx(1.0, abs=0.25)


def test_a_cell_that_departs_stands_out_with_its_sign() -> None:
    rng = np.random.default_rng(6)
    alike, apart = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.5, 0.2])
    first, second = between_owners([noisy(rng, 2000, alike), noisy(rng, 2000, apart)])
    assert first[0] > 8
    assert second[0] == pytest.approx(-first[0])
    assert abs(first[2]) < 6  # of a cell that is alike: 1e-8 with Laplace noise
