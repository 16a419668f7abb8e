"""What a tester knows of each owner: a noisy mean, perhaps a noisy second moment, and the noise in both."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]

RARE_UNITS = 2.0
"""Units of an owner by whose weight its variances are rounded up: a Poisson count of about one has heavier
tails than a normal law of its variance. Two more in each owner's own variance kept the level in
simulations (docs/mathematics/kernel-two-sample.md); two shared by all owners did not, where a small owner
met a large one."""


@dataclass(frozen=True)
class PrivateMeans:
    """Noisy means of k owners.

    ``means`` is (k, J); ``units`` (k,) the numbers of units n_g; ``noise`` (k,) the standard deviation of
    the noise on each coordinate of an owner's mean.
    """

    means: FloatMatrix
    units: FloatVector
    noise: FloatVector

    @property
    def owners(self) -> int:
        """Number of owners k."""
        return int(self.means.shape[0])

    @property
    def dimension(self) -> int:
        """Number of coordinates J."""
        return int(self.means.shape[1])

    def pooled(self) -> FloatVector:
        """Mean over all units, (J,)."""
        return np.asarray(self.units @ self.means / self.units.sum())

    def pooled_noise(self) -> float:
        """Return the standard deviation of the noise on a coordinate of the pooled mean."""
        return float(np.linalg.norm(self.units * self.noise) / self.units.sum())

    def select(self, owners: tuple[int, ...]) -> "PrivateMeans":
        """Keep some of the owners."""
        index = list(owners)
        return PrivateMeans(self.means[index], self.units[index], self.noise[index])


@dataclass(frozen=True)
class PrivateCovariance:
    """A pooled noisy covariance.

    ``matrix`` is (J, J) symmetric; ``noise`` the standard deviation of the noise on a diagonal entry (an
    off-diagonal one carries 1 / sqrt 2 of it); ``units`` the number of units pooled in it.
    """

    matrix: FloatMatrix
    noise: float
    units: float

    def positive_part(self) -> FloatMatrix:
        """Projection on the cone of positive semidefinite matrices."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def pool_covariance(
    means: PrivateMeans,
    second_moments: npt.NDArray[np.float64],
    noise: FloatVector,
    weights: FloatVector | None = None,
) -> PrivateCovariance:
    """Pool the owners' covariances, weighted by ``weights`` (k,), by default their units.

    ``second_moments`` is (k, J, J); ``noise`` (k,) the standard deviation on their diagonal entries. The
    covariance of an owner is its second moment less the outer product of its mean; the outer product's own
    noise is corrected in expectation; what it adds to the matrix has less energy than the noise of the second
    moment, by a factor of the order of the dimension.
    """
    weights = means.units if weights is None else weights
    shares = weights / weights.sum()
    outer = np.einsum("gi,gj->gij", means.means, means.means)
    outer -= (means.noise**2)[:, None, None] * np.eye(means.dimension)
    matrix = np.einsum("g,gij->ij", shares, second_moments - outer)
    return PrivateCovariance(
        np.asarray((matrix + matrix.T) / 2), float(np.linalg.norm(shares * noise)), float(means.units.sum())
    )


def rare_guard(means: PrivateMeans, largest: float, trace: float, trace_max: float) -> FloatVector:
    """Return what is added to the features' largest variance at each owner, (k,), for units that are rare.

    The weight of RARE_UNITS units; or, where that is more, what gives the squared length of an owner's sum
    the variance that units of squared length 0 or ``trace_max`` give it, n T (trace_max - T) beyond the
    normal law's. ``largest`` and ``trace`` are of the covariance of one unit's features.
    """
    own = means.units * largest + (means.units * means.noise) ** 2
    excess = means.units * trace * max(0.0, trace_max - trace)
    return np.asarray(np.maximum(RARE_UNITS * trace_max, np.sqrt(own**2 + excess / 2) - own) / means.units)
