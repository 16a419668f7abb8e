"""Feature maps as docs/mathematics/features.md defines them, in 50-digit arithmetic: slow and literal."""

from collections.abc import Sequence

import mpmath
import numpy as np
import numpy.typing as npt
from made_studies import Rows
from mpmath import mpf

from tacit_protocol.features.kernels import ProductKernel

mpmath.mp.dps = 50

Matrix = npt.NDArray[np.float64]
Digits = list[mpmath.mpf]
"""A vector of 50-digit numbers."""


def random_rows(rng: np.random.Generator, count: int, numeric: int, categories: Sequence[int] = ()) -> Rows:
    """Random rows, with both bounds among the numeric values."""
    values = rng.random((count, numeric))
    values[rng.random((count, numeric)) < 0.1] = 0.0
    values[rng.random((count, numeric)) < 0.1] = 1.0
    codes = [rng.integers(0, c, count, dtype=np.int32) for c in categories]
    return Rows(values, np.stack(codes, axis=1) if codes else np.zeros((count, 0), dtype=np.int32))


def kernel_value(kernel: ProductKernel, x: Rows, i: int, t: Rows, j: int) -> mpmath.mpf:
    differences = [mpf(float(a)) - mpf(float(b)) for a, b in zip(x.numeric[i], t.numeric[j], strict=True)]
    bandwidth, similarity = mpf(kernel.bandwidth), mpf(kernel.similarity)
    if kernel.shape == "gaussian":
        value = mpmath.exp(-sum(d * d for d in differences) / (2 * bandwidth**2))
    else:
        value = mpmath.exp(-sum(abs(d) for d in differences) / bandwidth)
    disagreements = int(np.sum(x.categorical[i] != t.categorical[j]))
    return value * similarity**disagreements if disagreements else value


def gram(kernel: ProductKernel, x: Rows, t: Rows) -> mpmath.matrix:
    values = mpmath.matrix(len(x), len(t))
    for i in range(len(x)):
        for j in range(len(t)):
            values[i, j] = kernel_value(kernel, x, i, t, j)
    return values


def shares_of(weights: Sequence[float]) -> Digits:
    total = sum(mpf(w) for w in weights)
    return [mpf(w) / total for w in weights]


def column_part(value: float, cycles: Sequence[float], weights: Sequence[float]) -> Digits:
    part = []
    for cycle, share in zip(cycles, shares_of(weights), strict=True):
        angle = 2 * mpmath.pi * mpf(cycle) * mpf(float(value))
        part += [mpmath.sqrt(share) * mpmath.cos(angle), mpmath.sqrt(share) * mpmath.sin(angle)]
    return part


def category_part(code: int, categories: int) -> Digits:
    return [mpf(int(code == category)) for category in range(categories)]


def column_parts(
    rows: Rows, i: int, categories: Sequence[int], cycles: Sequence[float], weights: Sequence[float]
) -> list[Digits]:
    parts = [column_part(value, cycles, weights) for value in rows.numeric[i]]
    return parts + [
        category_part(int(code), c) for code, c in zip(rows.categorical[i], categories, strict=True)
    ]


def distance(computed: Matrix, exact: Sequence[mpmath.mpf]) -> float:
    """L2 distance of a float64 vector from a 50-digit one."""
    assert len(computed) == len(exact)
    squares = ((mpf(float(a)) - b) ** 2 for a, b in zip(computed, exact, strict=True))
    return float(mpmath.sqrt(sum(squares)))
