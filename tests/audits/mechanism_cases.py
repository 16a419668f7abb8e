"""What every mechanism must hand in to be audited: how its noise is asked for, and what it claims.

Mechanisms are the methods of ``NoiseSource``; events that no sampler draws are listed with the reason.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from release_audit import Call, Runs

from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.noise import Body, KNormSource, NoiseSource, laplace_multiplier

SCALE = 2.0**20
"""Standard deviation or Laplace scale in grid steps: as in releases."""

NO_SAMPLER = {"approximate": "prices what another mechanism costs beside its own event; draws nothing"}


@dataclass(frozen=True)
class MechanismCase:
    """One number released by a mechanism at a claimed (epsilon, delta), and mu where it is Gaussian."""

    mechanism: Literal["gaussian", "laplace"]
    epsilon: float
    delta: float
    mu: float | None
    multiplier: float

    def runs(self, noise: NoiseSource) -> Runs:
        """The release of 0 and of a neighbour one sensitivity away; rounding the sensitivity down is safe."""
        moved = int(SCALE / self.multiplier)
        one, other = (Call(self.mechanism, np.array([value], dtype=np.int64), SCALE) for value in (0, moved))
        return Runs([one], [other], noise)


def gaussian(epsilon: float, delta: float = 1e-5) -> MechanismCase:
    mu = gaussian_mu(epsilon, delta)
    return MechanismCase("gaussian", epsilon, delta, mu, 1 / mu)


def laplace(epsilon: float) -> MechanismCase:
    return MechanismCase("laplace", epsilon, 0.0, None, laplace_multiplier(epsilon))


MECHANISMS = {
    "gaussian": {
        "gaussian, epsilon 1": gaussian(1.0),
        "gaussian, epsilon 4": gaussian(4.0),
        "gaussian, epsilon 10": gaussian(10.0),
    },
    "laplace": {"laplace, epsilon 1": laplace(1.0), "laplace, epsilon 2": laplace(2.0)},
}
"""Cases of each mechanism, by the method of ``NoiseSource`` that draws it."""

CASES = {name: case for cases in MECHANISMS.values() for name, case in cases.items()}


class TooNarrow:
    """The planted mistake: noise that is narrower, or wider, than it states by a factor."""

    def __init__(self, noise: NoiseSource, factor: float) -> None:
        self._noise, self._factor = noise, factor

    def gaussian(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        return self._noise.gaussian(values, scale * self._factor)

    def laplace(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        return self._noise.laplace(values, scale * self._factor)

    def k_norm(
        self, values: np.typing.NDArray[np.int64], scale: float, body: Body
    ) -> np.typing.NDArray[np.int64]:
        assert isinstance(self._noise, KNormSource)
        return self._noise.k_norm(values, scale * self._factor, body)
