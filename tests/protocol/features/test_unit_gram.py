"""Kernel matrices between units: averages over pairs of rows, whatever the order and the block sizes."""

from typing import Literal

import numpy as np
import pytest

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import unit_gram
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.unit_gram import KernelMixture, UnitGram, UnitRows, gather_units

NARROW = ProductKernel("gaussian", 0.1, 0.3)
KERNELS = {
    "gaussian": NARROW,
    "laplacian": ProductKernel("laplacian", 0.2, 0.0),
    "mixture": KernelMixture((NARROW, ProductKernel("gaussian", 0.7, 0.3)), (0.25, 0.75)),
}


def chunk_of(rng: np.random.Generator, rows: int, units: int | None) -> EncodedChunk:
    unit = None
    if units is not None:
        unit = rng.permutation(np.concatenate([np.arange(units), rng.integers(0, units, rows - units)]))
    codes = rng.integers(0, 3, (rows, 1)).astype(np.int32)
    return EncodedChunk(rng.random((rows, 2)), codes, unit, rows if units is None else units)


def mixed_chunks(seed: int = 0) -> list[EncodedChunk]:
    rng = np.random.default_rng(seed)
    return [chunk_of(rng, 30, 7), chunk_of(rng, 5, None), chunk_of(rng, 40, 2)]


def rows_of_unit(rows: UnitRows, unit: int) -> UnitRows:
    start, stop = rows.starts[unit : unit + 2]
    return UnitRows(rows.numeric[start:stop], rows.categorical[start:stop], np.arange(stop - start + 1))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("block", [1, 100, 2**22])
def test_entries_are_means_over_pairs_of_rows(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_gram, "BLOCK_ENTRIES", block)
    rows = gather_units(mixed_chunks())
    gram = UnitGram(KERNELS[name], rows, several_rows=True)
    assert gram.size == rows.units == 14
    units = [rows_of_unit(rows, unit) for unit in range(14)]
    expected = [[KERNELS[name].gram(u, v).mean() for v in units] for u in units]
    assert np.allclose(gram.rows(0, 14), expected, atol=1e-15, rtol=0)
    assert np.allclose(gram.rows(3, 9), np.array(expected)[3:9], atol=1e-15, rtol=0)


def test_a_unit_of_very_many_rows_keeps_its_accuracy() -> None:
    """Its value would be off by 1e-12 if rows were added up one after the other."""
    rng = np.random.default_rng(2)
    numeric = np.full((100_001, 1), 0.3)
    numeric[-1] = rng.random()
    rows = UnitRows(numeric, np.zeros((100_001, 0), np.int32), np.array([0, 100_000, 100_001]))
    kernel = ProductKernel("laplacian", 0.37)
    value = UnitGram(kernel, rows, several_rows=True).rows(1, 2)[0, 0]
    assert value == pytest.approx(float(np.exp(-abs(numeric[-1, 0] - 0.3) / 0.37)), rel=4e-16)


@pytest.mark.parametrize("columns", [1, 7, 200])
@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
def test_kernel_values_are_as_accurate_as_stated(
    shape: Literal["gaussian", "laplacian"], columns: int
) -> None:
    """Of rows far apart and near, at bandwidths on both sides of the one where kernels are expanded."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (60, columns)).astype(np.float64)
    x[30:] = np.clip(x[:30] + 0.01 * rng.standard_normal((30, columns)), 0, 1)
    rows = UnitRows(x, np.zeros((60, 0), np.int32), np.arange(61))
    exact = x.astype(np.longdouble)
    apart = np.abs(exact[:, None, :] - exact[None, :, :])
    for bandwidth in (0.02, 0.999 * np.sqrt(columns / 64), 1.001 * np.sqrt(columns / 64), 1000.0):
        mixture = KernelMixture((ProductKernel(shape, float(bandwidth)),), (1.0,))
        values = mixture.gram(rows, rows)
        width = np.longdouble(float(bandwidth))
        exponent = (apart**2).sum(2) / (2 * width**2) if shape == "gaussian" else apart.sum(2) / width
        assert float(np.abs(values - np.exp(-exponent)).max()) < mixture.error(columns)


def test_a_unit_without_rows_is_refused() -> None:
    chunk = EncodedChunk(np.zeros((2, 1)), np.zeros((2, 0), np.int32), np.array([0, 2]), 3)
    with pytest.raises(ValueError, match="at least one row"):
        gather_units([chunk])
