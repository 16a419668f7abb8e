"""The ridge statistic of two samples (TCS), how far one unit can move it, and its null distribution.

    s = (n_x n_y / N) d' (Lambda + gamma I)^-1 d,   d = m_x - m_y,   Lambda = (1/N) sum z z' over all N units.

With labels t = sqrt(n_y / n_x) for x and -sqrt(n_x / n_y) for y, s = N - min_v sum (t_i - v'z_i)^2 + N gamma
|v|^2: N times the part of the labels that a ridge regression explains. Replacing z by z' changes one summand.
With v_0 the optimum without it and A = N gamma I + sum of the others' z z', the minimum is that of the others
plus (t - v_0'z)^2 / (1 + z'A^-1 z), so that

    |s - s'| <= (max |t| + B / (2 sqrt gamma))^2    for |z| <= B,

because |v_0| <= 1 / (2 sqrt gamma). It is attained in the limit (docs/mathematics/trusted-curator.md, which
derives everything here; P0's bound for its statistic is false, and no pairing of units is needed).
"""

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tacit_protocol.nulls.quadratic_law import QuadraticLaw
from tacit_protocol.privacy.dyadic import rounding_sensitivity
from tacit_protocol.statistics.private_means import FloatMatrix, FloatVector

UNIT_ROUNDOFF = 2.0**-53

COUNTS_TRIED = 24
"""Numbers of equal eigenvalues tried for the heaviest null, spread geometrically from 1 to J: between two
neighbours the p-value hardly changes."""


def contribution_norm(norm: float, dimension: int, bits: int) -> float:
    """Bound the norm of a unit's contribution on the grid of 2**-bits, for features of that norm."""
    return norm + rounding_sensitivity(dimension, bits) / 2


def ridge_sensitivity(bound: float, regularisation: float, units: tuple[int, int]) -> float:
    """Bound |s - s'| over all pairs of data sets that differ in one unit.

    ``bound`` is that on the norm of a unit's contribution; ``regularisation`` is gamma > 0.
    """
    label = math.sqrt(max(units) / min(units))
    return min(float(sum(units)), (label + bound / (2 * math.sqrt(regularisation))) ** 2)


def evaluation_error(bound: float, regularisation: float, units: int, dimension: int) -> float:
    """Bound the error of ``ridge_statistic`` in float64: of its inputs, two products and a solution."""
    condition = (bound**2 + regularisation) / regularisation
    products = (dimension + 10) * (bound / math.sqrt(regularisation) + condition)
    solution = condition / 4 * (16 * dimension**2 * condition) ** 2 * UNIT_ROUNDOFF
    return units * UNIT_ROUNDOFF * (products + solution)


def ridge_statistic(
    means: tuple[FloatVector, FloatVector],
    second_moment: FloatMatrix,
    units: tuple[int, int],
    regularisation: float,
) -> float:
    """Return s from both samples' means, (J,), and all units' second moment, (J, J).

    Evaluated as the regression's gain at a computed optimum, whose error then enters squared.
    """
    total = sum(units)
    signal = math.sqrt(units[0] * units[1]) / total * (means[0] - means[1])
    matrix = second_moment + regularisation * np.eye(len(signal))
    optimum = cho_solve(cho_factor(matrix, lower=True), signal)
    return total * float(2 * signal @ optimum - optimum @ (matrix @ optimum))


def ridge_pvalue(
    statistic: float, units: int, dimension: int, regularisation: float, *, norm: float, noise: float
) -> float:
    """Return P(s + N(0, noise^2) >= statistic) under the null hypothesis, for the worst covariance."""
    laws = ridge_laws(units, dimension, regularisation, norm=norm, noise=noise)
    return max(law.pvalue(statistic) for law in laws)


def ridge_laws(
    units: int, dimension: int, regularisation: float, *, norm: float, noise: float
) -> tuple[QuadraticLaw, ...]:
    """Return the null laws of which the one with the largest tail counts.

    Given the pooled units, Lambda does not depend on who owns them, and s is nearly sum w_j chi2_1 with w_j =
    N / (N - 1) lambda_j / (lambda_j + gamma), sum lambda_j <= norm^2. Of all such spectra those of k equal
    ones are taken, for the worst k.
    """
    counts = sorted({round(k) for k in np.geomspace(1, dimension, COUNTS_TRIED)})
    laws = []
    for count in counts:
        eigenvalue = norm**2 / count
        weight = units / (units - 1) * eigenvalue / (eigenvalue + regularisation)
        laws.append(QuadraticLaw(np.array([weight]), np.array([count]), noise))
    return tuple(laws)
