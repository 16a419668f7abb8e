"""The one noise module: OpenDP's discrete samplers on integers. No other module draws private noise."""

from typing import Protocol

import numpy as np
import numpy.typing as npt


class NoiseSource(Protocol):
    """Adds discrete noise to integer vectors."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""
