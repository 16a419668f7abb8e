"""Mean-embedding (ME) features at public locations: whitened, and raw as in P0.

Whitened: psi(x) = (K_T + lambda I)^(-1/2) [k(x, T_1) ... k(x, T_J)]'. Writing h = k(x, .) and P for the
orthogonal projection on span{k(T_j, .)}, |psi(x)|^2 = k_x'(K_T + lambda I)^-1 k_x <= k_x' K_T^-1 k_x =
|P h|^2 <= |h|^2 = k(x, x) = 1, and in the same way |psi(x) - psi(x')|^2 <= |h - h'|^2 = 2 - 2 k(x, x').
Hence norm 1 and diameter sqrt(2 - 2 min k) <= sqrt 2, whatever J is; and |f f' - g g'|_F <=
|h (x) h - h' (x) h'| <= sqrt(2 - 2 (min k)^2) <= sqrt 2, for averages over a unit's rows too
(docs/mathematics/features.md).
"""

from dataclasses import dataclass

import numpy as np

from tacit_protocol.features.base import FloatMatrix, Rows, row_products
from tacit_protocol.features.kernels import ProductKernel

REGULARISATION_PER_LOCATION = 1e-8
"""lambda / J: only for conditioning; it can only shrink the features, never stretch them."""


@dataclass(frozen=True)
class Locations:
    """Public test locations: ``numeric`` (J, numeric columns) in [0, 1], ``categorical`` (J, columns)."""

    numeric: FloatMatrix
    categorical: np.typing.NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.numeric.shape[0])


class WhitenedMeanEmbedding:
    """Orthonormal coordinates of k(x, .) projected on the span of the kernels at the locations."""

    def __init__(self, kernel: ProductKernel, locations: Locations) -> None:
        self._kernel = kernel
        self._locations = locations
        gram = kernel.gram(locations, locations)
        eigenvalues, vectors = np.linalg.eigh((gram + gram.T) / 2)
        floor = REGULARISATION_PER_LOCATION * len(locations)
        roots = np.sqrt(np.maximum(eigenvalues, 0.0) + floor)
        self._whitener = (vectors / roots) @ vectors.T
        self._unwhitener: FloatMatrix = (vectors * roots) @ vectors.T
        columns = locations.numeric.shape[1], locations.categorical.shape[1]
        self._diameter = kernel.distance_max(*columns)
        self._second_moment_diameter = kernel.product_distance_max(*columns)

    @property
    def locations(self) -> Locations:
        """The test locations."""
        return self._locations

    @property
    def unwhitener(self) -> FloatMatrix:
        """(K_T + lambda I)^(1/2), (J, J): what turns a mean of psi back into means of k(x, T_j)."""
        return self._unwhitener

    @property
    def dimension(self) -> int:
        """Number of locations J."""
        return len(self._locations)

    @property
    def norm(self) -> float:
        """1: see the module's derivation."""
        return 1.0

    @property
    def diameter(self) -> float:
        """The square root of 2 - 2 min k, the minimum over the domain."""
        return self._diameter

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2 - 2 (min k)^2, the minimum over the domain."""
        return self._second_moment_diameter

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return psi, (rows, J)."""
        return row_products(self._kernel.gram(rows, self._locations), self._whitener)


class RawMeanEmbedding:
    """P0's features [k(x, T_j)]_j with its own bounds: norm and diameter sqrt J (kappa = 1).

    Both are attained in the limit of a narrow bandwidth, by a row that sits at every location and one far
    from all. The second moment's diameter is J, because each of its J^2 entries lies in [0, 1] and so moves
    by at most 1.
    """

    def __init__(self, kernel: ProductKernel, locations: Locations) -> None:
        self._kernel = kernel
        self._locations = locations

    @property
    def locations(self) -> Locations:
        """The test locations."""
        return self._locations

    @property
    def unwhitener(self) -> FloatMatrix:
        """The identity, (J, J): these features are the values k(x, T_j) themselves."""
        return np.eye(self.dimension)

    @property
    def dimension(self) -> int:
        """Number of locations J."""
        return len(self._locations)

    @property
    def norm(self) -> float:
        """The square root of J."""
        return float(np.sqrt(self.dimension))

    @property
    def diameter(self) -> float:
        """The square root of J."""
        return float(np.sqrt(self.dimension))

    @property
    def second_moment_diameter(self) -> float:
        """J, the number of locations."""
        return float(self.dimension)

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return [k(x, T_j)], (rows, J)."""
        return self._kernel.gram(rows, self._locations)
