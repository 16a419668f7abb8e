"""Smooth characteristic features (SCF): g(x) [sin(x'w_j), cos(x'w_j)]_j, numeric columns alone.

With |g| <= 1 and J/2 frequencies, each pair [sin, cos] has norm 1. Scaled by sqrt(2 / J) the vector has norm
|g(x)| <= 1 and diameter 2 (two rows half a turn apart at every frequency). P0 states sqrt J for the unscaled
map, whose diameter is sqrt(2 J): too small by sqrt 2 (docs/mathematics/features.md).
"""

import numpy as np

from tacit_protocol.features.base import FloatMatrix, Rows, row_products
from tacit_protocol.features.waves import wave


class SmoothCharacteristic:
    """SCF with window g(x) = exp(-|x - 1/2|^2 / (2 window^2)); ``window`` is None for g = 1.

    ``frequencies`` is (J/2, numeric columns), in radians per unit of the scaled columns. ``raw`` leaves out
    the scaling by sqrt(2 / J), as P0 does, with the bounds that are right for it.
    """

    def __init__(self, frequencies: FloatMatrix, window: float | None = None, *, raw: bool = False) -> None:
        self._frequencies = frequencies
        self._turns = frequencies / (2 * np.pi)
        self._window = window
        self._scale = 1.0 if raw else float(1 / np.sqrt(len(frequencies)))

    @property
    def dimension(self) -> int:
        """J, twice the number of frequencies."""
        return 2 * len(self._frequencies)

    @property
    def norm(self) -> float:
        """1, or sqrt(J / 2) where raw."""
        return self._scale * float(np.sqrt(len(self._frequencies)))

    @property
    def diameter(self) -> float:
        """Twice the norm."""
        return 2 * self.norm

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2, times the squared norm."""
        return float(np.sqrt(2)) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, J): all sines, then all cosines."""
        waves = wave(row_products(rows.numeric, self._turns.T))
        features = np.empty((len(rows.numeric), self.dimension))
        count = len(self._frequencies)
        np.multiply(waves.sines, self._scale, out=features[:, :count])
        np.multiply(waves.cosines, self._scale, out=features[:, count:])
        if self._window is not None:
            centred = np.ascontiguousarray(rows.numeric) - 0.5
            squared = np.einsum("ij,ij->i", centred, centred)
            features *= np.exp(-squared / (2 * self._window**2))[:, None]
        return features
