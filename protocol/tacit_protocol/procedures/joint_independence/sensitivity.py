"""How far one unit can move the joint independence statistic. docs/mathematics/joint-independence.md.

T is the distance between the mean of the units' joint features and the product of the variables' mean
features, sqrt of the V-statistic dHSIC. Every variable's features have norm at most 1 and inner products of
at least 0. Replacing a unit replaces one row of the data as they are, and one value of each variable, usually
in different rows, of permuted data: the two have different bounds.
"""

import math

FACTOR_ERROR = 8e-14
"""Bound on what a low-rank factor leaves out of a kernel value; ``factorise`` checks every entry."""

SUMMATION_ROUNDINGS = 60, 130
"""Roundings, of 2^-53 each, of T^2 as it is put together from kernel values: so many, and so many for every
variable. Values are summed pairwise, in 40 roundings, and such sums exactly."""

ROUNDING = 1e-12
"""Relative slack for the few roundings of these formulas."""


def observed_sensitivity(units: int, variables: int) -> float:
    """Bound |T - T'| on the data as they are, for ``units`` >= 2 and ``variables`` >= 2.

    sqrt(6) (n - 1)/n^2 for two variables; never more than the bound for permuted data.

    >>> [round(1e4 * observed_sensitivity(10_000, d), 3) for d in (2, 3, 4)]
    [2.449, 2.828, 3.742]
    """
    _require(units, variables)
    p, d = 1 / units, variables
    x, y = 1 - math.pow(p, d - 1), math.pow(1 - p, d - 1)
    spread = max(2 + 2 * d, d * d - d + 2)
    several = math.fsum(math.comb(d, m) * math.pow(p, m) * math.pow(1 - p, d - m) for m in range(2, d))
    bound = p * math.sqrt(2 * x * x + y * y * (spread - 2)) + math.sqrt(2) * several
    return min(bound * (1 + ROUNDING), permuted_sensitivity(units, variables))


def permuted_sensitivity(units: int, variables: int) -> float:
    """Bound |T - T'| under permutations that are the same on both sides: (2d/n)(1 - n^(1-d)).

    It holds for any permutations of the variables' values, and for two variables it is reached.

    >>> round(1e4 * permuted_sensitivity(10_000, 2), 3)
    4.0
    """
    _require(units, variables)
    return 2 * variables / units * (1 - math.pow(units, 1 - variables)) * (1 + ROUNDING)


def evaluation_error(units: int, variables: int, kernel_error: float) -> float:
    """Bound |computed T - T| for any data, where kernel values are within ``kernel_error`` of exact ones.

    The square root of the error of T^2, at most 4 ((1 + E)^d - 1) and the summation's, E an entry's: a T of 0
    may be computed as that. The rounding of an explicit tensor adds less than 4 (n + 16 d) units of 2^-53.
    """
    _require(units, variables)
    entry = kernel_error + FACTOR_ERROR
    fixed, each = SUMMATION_ROUNDINGS
    summation = (fixed + each * variables) * 2.0**-53
    squared = 4 * math.expm1(variables * math.log1p(entry)) + summation
    return math.sqrt(squared) + 4 * (units + 16 * variables) * 2.0**-53


def statistic_max(variables: int) -> float:
    """Bound T itself: (d - 1)/2, by a telescoping sum of covariances of norm at most 1/2; and sqrt 2."""
    return min((variables - 1) / 2, math.sqrt(2))


def _require(units: int, variables: int) -> None:
    if units < 2 or variables < 2:
        raise ValueError("a joint independence test needs at least two units and two variables")
