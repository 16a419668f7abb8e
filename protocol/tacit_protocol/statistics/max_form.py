"""The max form: every coordinate tested against its own variance; names the columns that differ.

Null hypothesis: all owners' units come from one distribution. Coordinate j of owner g's noisy mean is then
N(theta_j, V_gj), V_gj = v_gj / n_g + sigma_g^2, with v_gj a bound on the variance of one unit's coordinate.
Q_j = sum_g (m_gj - c_j)^2 / V_gj, c_j the inverse-variance weighted centre, is chi-squared with k - 1 degrees
where the variances are exact. The smallest p-value of a family of coordinates is corrected by Sidak's
formula, which Gaussian correlation of any kind makes conservative only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from tacit_protocol.statistics.multiplicity import PVALUE_MIN, holm, sidak
from tacit_protocol.statistics.private_means import FloatMatrix, FloatVector, PrivateMeans


@dataclass(frozen=True)
class Family:
    """Coordinates that answer one kind of question, in groups that carry names.

    ``groups`` holds (name, first coordinate, one past the last); ``share`` is the part of the level that
    the family may use (shares of all families add to 1).
    """

    name: str
    groups: tuple[tuple[str, int, int], ...]
    share: float


@dataclass(frozen=True)
class GroupResult:
    """One group's p-value, adjusted for every other group of its family (Holm) and for the other families."""

    family: str
    name: str
    pvalue: float


def coordinate_pvalues(
    means: PrivateMeans, variances: FloatVector | FloatMatrix
) -> tuple[FloatVector, FloatVector]:
    """Return Q_j and its p-values, (J,) each.

    ``variances`` are those of one unit's coordinates: (J,), or (k, J) where they are bounded for each owner.
    """
    spread = variances / means.units[:, None] + (means.noise**2)[:, None]
    weights = 1.0 / spread
    centre = np.sum(weights * means.means, axis=0) / weights.sum(axis=0)
    statistic = np.sum(weights * (means.means - centre) ** 2, axis=0)
    pvalues = chdtrc(means.owners - 1, statistic)
    return statistic, np.asarray(np.maximum(pvalues, PVALUE_MIN))


def max_test(
    means: PrivateMeans, variances: FloatVector | FloatMatrix, families: Sequence[Family]
) -> tuple[float, float, tuple[GroupResult, ...]]:
    """Return the largest Q_j, the overall p-value, and every group's adjusted p-value.

    The overall p-value is the smallest of the families' Sidak p-values, each divided by its share.
    """
    statistic, pvalues = coordinate_pvalues(means, variances)
    overall, results = 1.0, []
    for family in families:
        start, stop = family.groups[0][1], family.groups[-1][2]
        smallest = float(pvalues[start:stop].min())
        overall = min(overall, sidak(smallest, stop - start) / family.share)
        groups = np.array([sidak(float(pvalues[a:b].min()), b - a) for _, a, b in family.groups])
        adjusted = np.minimum(1.0, holm(groups) / family.share)
        results += [
            GroupResult(family.name, name, float(p))
            for (name, _, _), p in zip(family.groups, adjusted, strict=True)
        ]
    return float(statistic.max()), overall, tuple(results)
