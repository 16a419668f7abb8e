"""P0's trusted-curator test to the letter, on a private mean and second moment of paired differences.

s = n w'(Sigma + gamma I)^-1 w, with w the mean and Sigma the covariance of z_i = f(x_i) - f(y_i), against
sum_j lambda_j chi2_1 with lambda_j = (tau_j + n sigma^2) / (tau_j + gamma), tau the eigenvalues of Sigma
(Raj, Law, Sejdinovic and Park). It treats the noisy Sigma as exact, so that its level is not kept.
"""

import numpy as np

from tacit_protocol.nulls.quadratic_law import QuadraticLaw
from tacit_protocol.statistics.private_means import FloatMatrix, FloatVector


def paired_law(
    mean: FloatVector, second_moment: FloatMatrix, pairs: int, noise: float, regularisation: float
) -> tuple[float, QuadraticLaw]:
    """Return s and its null law. ``noise`` is the standard deviation on a coordinate of ``mean``, (J,)."""
    values, vectors = np.linalg.eigh(second_moment - np.outer(mean, mean))
    values = np.maximum(values, 0.0)
    rotated = mean @ vectors
    statistic = float(pairs * np.sum(rotated**2 / (values + regularisation)))
    weights = (values + pairs * noise**2) / (values + regularisation)
    return statistic, QuadraticLaw(weights)
