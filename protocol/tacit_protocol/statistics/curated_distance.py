"""Distance covariance and both distance deviations of data in one place: exact, with their sensitivities.

The roots are released, T = dCov, S_x = dVar_x and S_y = dVar_y (V-statistics of distances in [0, 1]): of n
units, replacing one moves each of them by at most 2 (n - 1)/n^2, which is attained for all three at once;
but T, where neither side is a single numeric column, by at most sqrt 6 (n - 1)/n^2. Proofs:
docs/mathematics/curated-distance-correlation.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.statistics.distance_covariance import STEPS_MAX, exact_distance_sums
from tacit_protocol.statistics.joint_pairs import PermutableGram
from tacit_protocol.statistics.joint_sensitivity import evaluation_error, observed_sensitivity
from tacit_protocol.workers import ONE_WORKER, Workers

Floats = npt.NDArray[np.float64]
Progress = Callable[[float], None]

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

STRIP_ENTRIES = 2**23
"""Kernel values of one variable in an item of work: a tenth of a second."""


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


def paired_roots(
    first: PermutableGram,
    second: PermutableGram,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> DistanceRoots:
    """Return the roots from two matrices of induced kernels (distance_kernel.py), a block of rows at a time.

    The same bits for any ``workers``. Raises ValueError where there are more than PAIRED_UNITS_MAX units, or
    fewer than two.
    """
    units = first.size
    if not 2 <= units <= PAIRED_UNITS_MAX:
        raise ValueError("too few units, or too many")
    step = max(1, STRIP_ENTRIES // units)
    strips = [(start, min(start + step, units)) for start in range(0, units, step)]
    products, means = [], np.empty((2, units))
    for (start, stop), found in zip(strips, workers.map(_strip_sums, (first, second), strips), strict=True):
        products.append(found.products)
        means[:, start:stop] = found.means
        if progress is not None:
            progress(stop / units)
    sums = [math.fsum(row) / units**2 for row in np.concatenate(products, axis=1).tolist()]
    one, two, three = (
        _root_steps(mean, means[a], means[b], units)
        for mean, (a, b) in zip(sums, ((0, 1), (0, 0), (1, 1)), strict=True)
    )
    return DistanceRoots(units, (one, two, three))


class _StripSums(NamedTuple):
    """Of a strip of rows the sums of products, (3, rows), and the means of both kernels, (2, rows)."""

    products: Floats
    means: Floats


def _strip_sums(grams: tuple[PermutableGram, PermutableGram], strip: tuple[int, int]) -> _StripSums:
    """Return a strip's sums; rows are in memory order, for numpy's pairwise summation along them."""
    units = grams[0].size
    step = max(1, BLOCK_ENTRIES // units)
    found = []
    for start in range(*strip, step):
        k, m = (gram.tile(start, min(start + step, strip[1]), 0, units) for gram in grams)
        products = [(one * other).sum(axis=1) for one, other in ((k, m), (k, k), (m, m))]
        found.append(np.array([*products, k.mean(axis=1), m.mean(axis=1)]))
    whole = np.concatenate(found, axis=1)
    return _StripSums(whole[:3], whole[3:])


def _root_steps(products: float, first: Floats, second: Floats, units: int) -> int:
    crossed, *means = (math.fsum(values.tolist()) / units for values in (first * second, first, second))
    squared = products - 2 * crossed + math.prod(means)
    return round(math.ldexp(math.sqrt(max(0.0, squared)), root_exponent(units)))
