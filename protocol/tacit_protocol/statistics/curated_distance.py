"""Distance covariance and both distance deviations of data in one place: exact, with their sensitivities.

The roots are released, T = dCov, S_x = dVar_x and S_y = dVar_y (V-statistics of distances in [0, 1]): of n
units, replacing one moves each of them by at most 2 (n - 1)/n^2, which is attained for all three at once;
but T, where neither side is a single numeric column, by at most sqrt 6 (n - 1)/n^2. Proofs:
docs/mathematics/curated-distance-correlation.md.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.statistics.distance_covariance import STEPS_MAX, exact_distance_sums
from tacit_protocol.statistics.joint_sensitivity import evaluation_error, observed_sensitivity
from tacit_protocol.statistics.low_rank import GramMatrix

Floats = npt.NDArray[np.float64]

COVARIANCE, FIRST, SECOND = "covariance", "first_deviation", "second_deviation"
"""Names of the three released numbers."""

COVARIANCE_SHARE = 0.7
"""Of mu^2 for the covariance, the rest in halves: of a correlation R, the relative errors are in the ratio
2/R : 1 : 1, so this suits R = .45, and no R loses much."""

COLUMN_BITS, COLUMN_BITS_MIN = 20, 16
"""Columns are rounded to multiples of 2^-20 before anything else; coarser where millions of units ask for it.
A rounded column is a column: sensitivities do not notice, and estimates move by less than 1e-5."""

ROOT_BITS = 25
"""Bits of a released root beyond those of n: its sensitivity is then 2^24 steps at least, and noise wide."""

PAIRED_UNITS_MAX = 2**15
"""Most units whose pairs are all compared: 10^9 pairs take a minute or so."""

COLUMN_UNITS_MAX = STEPS_MAX >> (2 * COLUMN_BITS_MIN)
"""Most units of one column each, 2^28: sums are exact in 62 bits."""

BLOCK_ENTRIES = 2**16
"""Kernel values of one variable held at once: half a MiB, for the processor's cache."""


@dataclass(frozen=True)
class DistanceRoots:
    """T, S_x and S_y in steps of 2^-root_exponent(units), rounded. They never leave the holder."""

    units: int
    steps: tuple[int, int, int] = field(repr=False)


def root_exponent(units: int) -> int:
    """Return e such that roots of so many units are released in steps of 2^-e."""
    return ROOT_BITS + units.bit_length()


def deviation_sensitivity(units: int) -> float:
    """Bound |S - S'|, the root of a distance variance, by 2 (n - 1)/n^2, for ``units`` >= 2; it is reached.

    >>> deviation_sensitivity(100)
    0.0198
    """
    return 2 * (units - 1) / units**2


def covariance_sensitivity(units: int, line: bool) -> float:
    """Bound |T - T'|: as a deviation with a single numeric column (``line``), else by sqrt 6 (n - 1)/n^2.

    >>> round(covariance_sensitivity(100, False) / covariance_sensitivity(100, True), 3)
    1.225
    """
    return deviation_sensitivity(units) if line else observed_sensitivity(units, 2)


def release_parts(
    units: int, line: bool, kernel_error: float, roots: DistanceRoots | None = None
) -> tuple[SumPart, ...]:
    """Lay out the release of three roots; without ``roots`` the values are zeros.

    ``line`` is whether a side is a single numeric column; ``kernel_error`` bounds the error of a kernel value
    wherever pairs of units may have been compared in floating point.
    """
    step = math.ldexp(1.0, -root_exponent(units))
    slack = step
    if units <= PAIRED_UNITS_MAX:
        slack += 2 * evaluation_error(units, 2, kernel_error)
    deviation = deviation_sensitivity(units) + slack
    sensitivities = (covariance_sensitivity(units, line) + slack, deviation, deviation)
    shares = (COVARIANCE_SHARE, (1 - COVARIANCE_SHARE) / 2, (1 - COVARIANCE_SHARE) / 2)
    steps = (0, 0, 0) if roots is None else roots.steps
    return tuple(
        SumPart(name, np.array([value], dtype=np.int64), -root_exponent(units), sensitivity, share)
        for name, value, sensitivity, share in zip(
            (COVARIANCE, FIRST, SECOND), steps, sensitivities, shares, strict=True
        )
    )


def column_roots(x: Floats, y: Floats) -> DistanceRoots:
    """Return the roots for one column each, (n,) in [0, 1], in O(n log n) and without any error but rounding.

    Raises ValueError where there are more than COLUMN_UNITS_MAX units, or fewer than two.
    """
    units = len(x)
    if not 2 <= units <= COLUMN_UNITS_MAX:
        raise ValueError("too few units, or too many")
    bits = min(COLUMN_BITS, (STEPS_MAX.bit_length() - 1 - (units - 1).bit_length()) // 2)
    first, second = (np.rint(np.ldexp(column, bits)).astype(np.int64) for column in (x, y))
    # A square root of integers, in steps: floor(floor(sqrt A) / n^2) = floor(sqrt(A) / n^2).
    shift = 2 * (root_exponent(units) - bits)
    one, two, three = (math.isqrt(total << shift) // units**2 for total in exact_distance_sums(first, second))
    return DistanceRoots(units, (one, two, three))


def paired_roots(first: GramMatrix, second: GramMatrix) -> DistanceRoots:
    """Return the roots from two matrices of induced kernels (distance_kernel.py), a block of rows at a time.

    Raises ValueError where there are more than PAIRED_UNITS_MAX units, or fewer than two.
    """
    units = first.size
    if not 2 <= units <= PAIRED_UNITS_MAX:
        raise ValueError("too few units, or too many")
    products: list[list[float]] = [[], [], []]
    means = np.empty((2, units))
    step = max(1, BLOCK_ENTRIES // units)
    for start in range(0, units, step):
        stop = min(start + step, units)
        # Rows in memory order, for numpy's pairwise summation along them.
        k, m = (np.ascontiguousarray(gram.rows(start, stop)) for gram in (first, second))
        means[:, start:stop] = k.mean(axis=1), m.mean(axis=1)
        for kept, pair in zip(products, ((k, m), (k, k), (m, m)), strict=True):
            kept.extend((pair[0] * pair[1]).sum(axis=1).tolist())
    one, two, three = (
        _root_steps(math.fsum(kept) / units**2, means[a], means[b], units)
        for kept, (a, b) in zip(products, ((0, 1), (0, 0), (1, 1)), strict=True)
    )
    return DistanceRoots(units, (one, two, three))


def _root_steps(products: float, first: Floats, second: Floats, units: int) -> int:
    squared = products - 2 * float(np.mean(first * second)) + float(np.mean(first)) * float(np.mean(second))
    return round(math.ldexp(math.sqrt(max(0.0, squared)), root_exponent(units)))
