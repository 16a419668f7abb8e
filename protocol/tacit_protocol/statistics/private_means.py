"""What a tester knows of each owner: a noisy mean, perhaps a noisy second moment, and the noise in both."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]


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
