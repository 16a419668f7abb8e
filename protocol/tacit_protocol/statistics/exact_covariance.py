"""Distance covariance of integers, exactly, and how far one unit can move it when the other side is fixed.

For a release, what is computed must be what the sensitivity was proved for: so nothing here rounds but the
sensitivity, and that upward. Both take O(n^2) time and O(n) memory, n at most a few ten thousand.
Derivation: docs/mathematics/distance-correlation.md.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.distance_covariance import UNITS_MIN

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SPAN_BITS = 16
"""Distances of the fixed side have so many bits: with 2**21 steps of the other side and 2**25 units, a sum
over one unit's pairs stays below 2**62."""

CHUNK = 2**20
"""Pairs looked at together: 8 MB."""

ROUNDING = 2.0**-40
"""Relative slack for sums of at most 2**25 floats, each within a few 2**-53 of its exact value."""


def coarse(values: Integers) -> tuple[Integers, int]:
    """Shift values so that they span at most 2**SPAN_BITS steps; returns them, from 0 on, and the shift."""
    offsets = values - values.min()
    shift = max(0, int(offsets.max()).bit_length() - SPAN_BITS)
    half = (1 << shift) >> 1
    return (offsets + half) >> shift, shift


def exact_covariance(fixed: Integers, own: Integers) -> Fraction:
    """Return the unbiased squared distance covariance of two integer columns, (n,), n >= 4, exactly.

    Raises ValueError where the columns differ in length, are too short, or span too much for 64 bits.
    """
    n = len(fixed)
    if n != len(own) or n < UNITS_MIN:
        raise ValueError("the columns must have the same number of units, 4 or more")
    if n * int(np.ptp(fixed)) * int(np.ptp(own)) >= 2**62:
        raise ValueError("the columns span too much")
    products = crossed = 0
    totals = [0, 0]
    for start in range(0, n, max(1, CHUNK // n)):
        part = slice(start, start + max(1, CHUNK // n))
        a = np.abs(fixed[part, None] - fixed)
        b = np.abs(own[part, None] - own)
        rows, others = (sides.sum(axis=1).tolist() for sides in (a, b))
        products += sum(np.einsum("ij,ij->i", a, b).tolist())
        crossed += sum(x * y for x, y in zip(rows, others, strict=True))
        totals = [totals[0] + sum(rows), totals[1] + sum(others)]
    inner = Fraction(products) - Fraction(2 * crossed, n - 2)
    inner += Fraction(totals[0] * totals[1], (n - 1) * (n - 2))
    return inner / (n * (n - 3))


def influences(fixed: Integers) -> Floats:
    """Bound, for every unit, how far a unit's move by one step on the other side moves the covariance, (n,).

    2/(n (n - 3)) times the sum of the absolute values of the unit's row of U-centred distances, rounded
    upward.
    """
    n = len(fixed)
    if n < UNITS_MIN:
        raise ValueError("the column must have 4 units or more")
    column = fixed.astype(np.float64)
    size = max(1, CHUNK // n)
    starts = range(0, n, size)
    sums = np.concatenate([np.abs(column[s : s + size, None] - column).sum(axis=1) for s in starts])
    total = float(sums.sum()) / ((n - 1) * (n - 2))
    rows = np.empty(n)
    for start in starts:
        part = slice(start, start + size)
        centred = np.abs(column[part, None] - column)
        centred -= sums[part, None] / (n - 2)
        centred -= sums / (n - 2)
        centred += total
        own = np.arange(start, min(start + size, n))
        centred[own - start, own] = 0.0
        rows[part] = np.abs(centred).sum(axis=1)
    slack = n * ROUNDING * float(np.ptp(column))
    return (rows + slack) * (1 + ROUNDING) * 2 / (n * (n - 3))
