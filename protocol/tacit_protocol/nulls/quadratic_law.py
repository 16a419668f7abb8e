"""The null law of a statistic that is a quadratic form in normals, kept whole: its tail and its quantiles."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.nulls.weighted_chi_square import quantile, survival, survival_many

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class QuadraticLaw:
    """The law of sum_j weights_j chi2(degrees_j) + N(0, sigma^2), all independent.

    ``weights`` (m,) are finite; ``degrees`` (m,) are 1 or more, all 1 where None; ``sigma`` >= 0.
    """

    weights: Floats
    degrees: npt.NDArray[np.int64] | None = None
    sigma: float = 0.0

    def pvalue(self, statistic: float) -> float:
        """Return the probability of a larger statistic; never 0."""
        return survival(statistic, self.weights, self.sigma, self.degrees)

    def tails(self, statistics: Floats) -> Floats:
        """Return the probability of a statistic larger than each of these, in their shape."""
        return survival_many(statistics, self.weights, self.sigma, self.degrees)

    def quantile(self, probability: float) -> float:
        """Return what a statistic exceeds with that probability, in (0, 1)."""
        return quantile(probability, self.weights, self.sigma, self.degrees)
