"""P0's statistic for two owners without a trusted entity, with its two null distributions.

s = n_x n_y / (n_x + n_y) d' (Sigma + gamma I)^-1 d (Raj, Law, Sejdinovic and Park). Against
sum_j lambda_j chi2_1, lambda the eigenvalues of n_x n_y / (n_x + n_y) R (Sigma / n_x + Sigma / n_y +
(sigma_x^2 + sigma_y^2) I) R, R = (Sigma + gamma I)^(-1/2); or against chi2_J, which is not calibrated under
privacy noise. Both treat the noisy Sigma as fixed, which is why their level fails.
"""

from typing import Literal

import numpy as np
from scipy.special import chdtrc

from tacit_protocol.nulls.quadratic_law import QuadraticLaw
from tacit_protocol.statistics.multiplicity import PVALUE_MIN
from tacit_protocol.statistics.private_means import PrivateCovariance, PrivateMeans


def published_test(
    means: PrivateMeans,
    covariance: PrivateCovariance,
    regularisation: float,
    null: Literal["weighted", "asymptotic"],
) -> tuple[float, float]:
    """Return P0's statistic and p-value. ``means`` has two owners; ``regularisation`` gamma > 0."""
    statistic, law = published_law(means, covariance, regularisation)
    if null == "asymptotic":
        return statistic, max(PVALUE_MIN, float(chdtrc(means.dimension, statistic)))
    return statistic, law.pvalue(statistic)


def published_law(
    means: PrivateMeans, covariance: PrivateCovariance, regularisation: float
) -> tuple[float, QuadraticLaw]:
    """Return P0's statistic and the weighted one of its null laws."""
    x, y = means.units
    harmonic = float(x * y / (x + y))
    values, vectors = np.linalg.eigh(covariance.positive_part())
    values = np.maximum(values, 0.0)
    difference = (means.means[0] - means.means[1]) @ vectors
    statistic = float(harmonic * np.sum(difference**2 / (values + regularisation)))
    spread = values * (1 / x + 1 / y) + float(np.sum(means.noise**2))
    return statistic, QuadraticLaw(harmonic * spread / (values + regularisation))
