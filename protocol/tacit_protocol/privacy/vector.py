"""Noisy vectors: integers on a public dyadic grid, with the scale of the noise they carry."""

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.strict import Egress, StrictModel

COORDINATES_MAX = 36_000
"""Most numbers of one release: at 20 bytes a number they fit the 1 MiB of a signed envelope, in base64."""


LAYOUT = Egress(
    "public",
    "tacit_protocol.procedures.base:Procedure.check_release",
    "fixed by the study and n; receivers refuse any other",
)


class NoisyVector(StrictModel):
    """The sum over units of a bounded vector, on a dyadic grid, plus discrete noise.

    Coordinate i is ``values[i] * 2**exponent``; ``scale`` is the noise's parameter (standard deviation of
    the Gaussian, scale of the Laplace) in the same units, so the mean over n units carries ``scale / n``.
    """

    values: Annotated[
        tuple[Annotated[int, Field(ge=-(2**63), le=2**63 - 1)], ...],
        Field(min_length=1, max_length=COORDINATES_MAX),
        Egress(
            "noised",
            "tacit_protocol.privacy.noise:OpenDPNoise",
            "exact integer sums plus the noise that the events state",
        ),
    ]
    exponent: Annotated[int, Field(ge=-62, le=0), LAYOUT]
    noise: Annotated[Literal["gaussian", "laplace"], LAYOUT]
    scale: Annotated[float, Field(gt=0), LAYOUT]

    def mean(self, units: int) -> npt.NDArray[np.float64]:
        """Return the noisy mean over ``units`` units, (coordinates,) float64."""
        sums = np.array(self.values, dtype=np.float64)
        return np.asarray(np.ldexp(sums, self.exponent) / units, dtype=np.float64)
