"""Distance covariance of Szekely, Rizzo and Bakirov: unbiased and biased, of columns and of vectors.

Of one column each it takes O(n log n): all that is needed of the n^2 products of distances is a sum over
pairs that stand in the same order in both columns, and one pass down a binary tree over positions finds it,
every level by cumulative sums. Vectors are projected on random directions first (P4, Vepakomma, Pushpita,
Raskar, after Huang and Huo).
"""

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

UNITS_MIN = 4
"""Fewest units of the unbiased estimate: it divides by n (n - 3)."""

Numbers = npt.NDArray[Any]
"""float64, or int64, of which every sum below is exact."""

STEPS_MAX = 2**60
"""Largest product of the number of units and the squared range, of integers: their sums then fit 62 bits."""

LOW_BITS = 30
"""Exact sums of products are taken of their low bits and of the rest apart."""

LOW_MASK = (1 << LOW_BITS) - 1

Estimate = Literal["unbiased", "biased"]


def distance_covariance_sqr(x: npt.ArrayLike, y: npt.ArrayLike, estimate: Estimate = "unbiased") -> float:
    """Return the squared distance covariance of two columns, (n,) real each, finite.

    ``unbiased`` is Omega_n of P4's equation (1), for n >= 4, and may be negative; ``biased`` is the
    V-statistic, for n >= 1, and may not. Raises ValueError where n is too small, the columns differ in length
    or a value is not finite.

    >>> round(distance_covariance_sqr([0, 1, 2, 3, 4], [0, 1, 4, 9, 16], "biased"), 6)
    4.864
    """
    first, second = _column(x), _column(y)
    if len(first) != len(second):
        raise ValueError("the columns must have as many units as each other")
    _require_units(len(first), estimate)
    return _combine(_product_sum(first, second), _row_sums(first), _row_sums(second), estimate)


def distance_variance_sqr(x: npt.ArrayLike, estimate: Estimate = "unbiased") -> float:
    """Return the squared distance variance of a column, (n,): its distance covariance with itself.

    Squared distances need no sorting: their sum is 2 n sum x^2 - 2 (sum x)^2.
    """
    column = _column(x)
    _require_units(len(column), estimate)
    rows = _row_sums(column)
    return _combine(_square_sum(column), rows, rows, estimate)


def distance_correlation_sqr(x: npt.ArrayLike, y: npt.ArrayLike, estimate: Estimate = "biased") -> float:
    """Return the squared distance correlation of two columns, (n,); 0 where either is constant."""
    scale = distance_variance_sqr(x, estimate) * distance_variance_sqr(y, estimate)
    return distance_covariance_sqr(x, y, estimate) / math.sqrt(scale) if scale > 0 else 0.0


def exact_distance_sums(x: Integers, y: Integers) -> tuple[int, int, int]:
    """Return n^4 dCov^2(x, y), n^4 dVar^2(x) and n^4 dVar^2(y), V-statistics of integer columns, (n,) each.

    Exact: nothing is rounded, however much cancels. Raises ValueError where the columns differ in length, or
    n times the square of a range passes STEPS_MAX.
    """
    n = len(x)
    if n != len(y) or n * max(int(np.ptp(values)) for values in (x, y)) ** 2 > STEPS_MAX:
        raise ValueError("the columns must have as many units as each other, of a range that sums can hold")
    x, y = x - x.min(), y - y.min()
    rows, others = _row_sums(x), _row_sums(y)
    products = (_product_sum(x, y), _square_sum(x), _square_sum(y))
    crossed = (_dot(rows, others), _dot(rows, rows), _dot(others, others))
    totals = (int(rows.sum()), int(others.sum()))
    pairs = (totals[0] * totals[1], totals[0] ** 2, totals[1] ** 2)
    first, second, third = (
        n * n * int(product) - 2 * n * cross + total
        for product, cross, total in zip(products, crossed, pairs, strict=True)
    )
    return first, second, third


def projection_constant(dimension: int) -> float:
    """Return C_p = sqrt(pi) Gamma((p + 1)/2) / Gamma(p/2): |x| = C_p E|u'x|, u uniform on the sphere.

    >>> projection_constant(1), round(projection_constant(2), 6)
    (1.0, 1.570796)
    """
    if dimension == 1:
        return 1.0
    return math.sqrt(math.pi) * math.exp(gammaln((dimension + 1) / 2) - gammaln(dimension / 2))


def _column(values: npt.ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise ValueError("a column is a vector of finite numbers")
    # Centred at a point of its range: the sums below then lose no digits to a large offset.
    return column - (column.min() / 2 + column.max() / 2) if len(column) else column


def _require_units(units: int, estimate: Estimate) -> None:
    if units < (UNITS_MIN if estimate == "unbiased" else 1):
        raise ValueError("too few units: the unbiased estimate needs 4, the biased one 1")


def _combine(products: float, rows: Floats, others: Floats, estimate: Estimate) -> float:
    """Put together sum a_ij b_ij, the row sums a_i. and b_i., and the totals a.. and b.."""
    n = len(rows)
    crossed, totals = float(rows @ others), float(rows.sum()) * float(others.sum())
    if estimate == "biased":
        return max(0.0, products / n**2 - 2 * crossed / n**3 + totals / n**4)
    return (products - 2 * crossed / (n - 2) + totals / ((n - 1) * (n - 2))) / (n * (n - 3))


def _row_sums(x: Numbers) -> Numbers:
    """Return sum_j |x_i - x_j| of every unit, (n,)."""
    order = np.argsort(x, kind="stable")
    ordered = x[order]
    before = _running(ordered)[:-1]
    rank = np.arange(len(x))
    sums = np.empty_like(ordered)
    sums[order] = ordered * (2 * rank - len(x)) + ordered.sum() - 2 * before
    return sums


def _square_sum(x: Numbers) -> Any:
    """Return sum over i, j of |x_i - x_j|^2."""
    return 2 * len(x) * _dot(x, x) - 2 * x.sum().item() ** 2


def _dot(x: Numbers, y: Numbers) -> Any:
    """Return the inner product: a float, or of integers of at most 60 bits a Python integer, exact.

    Of integers in halves: Python's own take longer the larger they are, which would tell of the data.
    """
    if x.dtype != np.int64:
        return float(x @ y)
    (high, low), (other_high, other_low) = ((each >> LOW_BITS, each & LOW_MASK) for each in (x, y))
    crossed = _total(high * other_low) + _total(low * other_high)
    return (_total(high * other_high) << (2 * LOW_BITS)) + (crossed << LOW_BITS) + _total(low * other_low)


def _product_sum(x: Numbers, y: Numbers) -> Any:
    """Return sum over i, j of |x_i - x_j| |y_i - y_j|: a float, or of integers a Python integer, exact.

    Over pairs i before j in the order of x it is sum (x_j - x_i)(y_j - y_i) (2 [y_i before y_j] - 1), twice.
    """
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    signed = len(x) * _dot(x, y) - x.sum().item() * y.sum().item()
    return 2 * (2 * _concordant_sum(x, y) - signed)


def _concordant_sum(x: Numbers, y: Numbers) -> Any:
    """Sum (x_j - x_i)(y_j - y_i) over positions i < j with y_i ranked before y_j.

    At each level positions are in blocks of 2^(k + 1), in each block ordered by y: an element of a block's
    right half meets exactly the elements of its left half that come earlier. Every pair i < j meets once, at
    the level where their positions part.
    """
    position = np.argsort(y, kind="stable").astype(np.int64)
    total: Any = 0
    for level in range(max(0, (len(x) - 1).bit_length() - 1), -1, -1):
        half = 1 << level
        is_right = position & half != 0
        met, meeting = np.flatnonzero(~is_right), np.flatnonzero(is_right)
        left, right = position[met], position[meeting]
        # Blocks are full but for the last, so that a block's left elements follow those of all blocks before.
        earlier, block = meeting - np.arange(len(meeting)), right >> (level + 1) << level
        count = earlier - block
        xl, yl, xr, yr = x[left], y[left], x[right], y[right]
        sum_x, sum_y, sum_xy = (_between(values, block, earlier) for values in (xl, yl, xl * yl))
        total += _total(xr * yr * count - yr * sum_x - xr * sum_y + sum_xy)
        # Every block's left half comes first, each half in the order it had.
        parted = np.empty_like(position)
        parted[np.arange(len(met)) + (left >> (level + 1) << level)] = left
        parted[np.arange(len(meeting)) + block + half] = right
        position = parted
    return total


def _between(values: Numbers, start: Integers, stop: Integers) -> Numbers:
    """Return the sums of values from ``start`` up to and without ``stop``."""
    sums = _running(values)
    return np.asarray(sums[stop] - sums[start])


def _total(values: Numbers) -> Any:
    """Return the sum: a float, or of integers a Python integer, exact where the sum would not fit int64."""
    if values.dtype != np.int64:
        return float(values.sum())
    return (int((values >> LOW_BITS).sum()) << LOW_BITS) + int((values & LOW_MASK).sum())


def _running(values: Numbers) -> Numbers:
    """Return 0 and the cumulative sums, (n + 1,)."""
    return np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
