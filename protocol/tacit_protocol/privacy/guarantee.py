"""Amounts of privacy as integers: micro-epsilon and pico-delta. Rounding is always toward more spent."""

import base64
import binascii
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit_protocol.strict import Egress, StrictModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PRICE = Egress(
    "public",
    "tacit_protocol.procedures.base:Procedure.cost",
    "computed from the study alone, before any data",
)

PositiveFloat = Annotated[float, Field(gt=0)]


class GaussianEvent(StrictModel):
    """Gaussian noise of standard deviation sigma on a query of L2 sensitivity Delta."""

    mechanism: Annotated[Literal["gaussian"], PRICE] = "gaussian"
    noise_multiplier: Annotated[PositiveFloat, PRICE]
    """sigma / Delta, 1/mu of Gaussian differential privacy."""


class LaplaceEvent(StrictModel):
    """Laplace noise on a query of L1 sensitivity Delta."""

    mechanism: Annotated[Literal["laplace"], PRICE] = "laplace"
    noise_multiplier: Annotated[PositiveFloat, PRICE]
    """scale / Delta."""


class ApproximateEvent(StrictModel):
    """Any mechanism known only to be (epsilon, delta) differentially private; delta = 0 is pure."""

    mechanism: Annotated[Literal["approximate"], PRICE] = "approximate"
    epsilon: Annotated[float, Field(ge=0), PRICE]
    delta: Annotated[float, Field(ge=0, lt=1), PRICE] = 0.0


MechanismEvent = Annotated[GaussianEvent | LaplaceEvent | ApproximateEvent, Field(discriminator="mechanism")]

EPSILON_UNITS = 10**6
"""Micro-epsilons in an epsilon."""

DELTA_UNITS = 10**12
"""Pico-deltas in a delta of one: fine enough for the delta of 1e-9 that a population of 10^8 asks for."""

EPSILON_MAX = 100
"""Largest epsilon a budget may state; beyond it the word privacy has lost its meaning."""


class Budget(StrictModel):
    """An (epsilon, delta) budget in integer units, so that amounts add up exactly."""

    egress: ClassVar = Egress(
        "public", "tacit_protocol.messages.study:Study", "the study's own budget, repeated"
    )

    epsilon_micro: Annotated[int, Field(gt=0, le=EPSILON_MAX * EPSILON_UNITS)]
    delta_pico: Annotated[int, Field(ge=0, lt=DELTA_UNITS)]

    @classmethod
    def of(cls, epsilon: float | str | Decimal, delta: float | str | Decimal) -> Self:
        """Build a budget from decimal amounts, rounding what may be spent downward.

        Raises ValueError where an amount is not finite, negative, or too small to be held.
        """
        epsilon_amount, delta_amount = Decimal(str(epsilon)), Decimal(str(delta))
        if not (epsilon_amount.is_finite() and delta_amount.is_finite()):
            raise ValueError("epsilon and delta must be finite numbers")
        if not Decimal(1) / EPSILON_UNITS <= epsilon_amount <= EPSILON_MAX:
            raise ValueError(f"epsilon must lie between 0.000001 and {EPSILON_MAX}")
        if not 0 <= delta_amount < 1:
            raise ValueError("delta must be at least 0 and less than 1")
        return cls(
            epsilon_micro=math.floor(Fraction(epsilon_amount) * EPSILON_UNITS),
            delta_pico=math.floor(Fraction(delta_amount) * DELTA_UNITS),
        )

    @property
    def epsilon(self) -> float:
        """Epsilon as a float."""
        return self.epsilon_micro / EPSILON_UNITS

    @property
    def delta(self) -> float:
        """Delta as a float."""
        return self.delta_pico / DELTA_UNITS


class Guarantee(StrictModel):
    """What a release costs: its mechanism events, and a budget they are known to satisfy."""

    budget: Budget
    events: Annotated[tuple[MechanismEvent, ...], Field(min_length=1, max_length=64)]


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
    the Gaussian, scale of the Laplace, scale of the radius of K-norm noise) in the same units, so the mean
    over n units carries ``scale / n``.
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
    noise: Annotated[Literal["gaussian", "laplace", "k-norm"], LAYOUT]
    scale: Annotated[float, Field(gt=0), LAYOUT]

    def mean(self, units: int) -> "npt.NDArray[np.float64]":
        """Return the noisy mean over ``units`` units, (coordinates,) float64."""
        import numpy as np  # noqa: PLC0415 (a client that only lists studies computes nothing)

        sums = np.array(self.values, dtype=np.float64)
        return np.asarray(np.ldexp(sums, self.exponent) / units, dtype=np.float64)


class MaskedVector(StrictModel):
    """A noisy vector and its masks, modulo 2**64: alone it says nothing, all owners' together are their sum.

    ``packed`` holds ``size`` unsigned integers of 64 bits, the lowest byte first, in base64. Grid and noise
    are as a :class:`NoisyVector`'s, ``scale`` the standard deviation of this owner's share of the noise.
    """

    size: Annotated[int, Field(ge=1, le=COORDINATES_MAX), LAYOUT]
    exponent: Annotated[int, Field(ge=-62, le=0), LAYOUT]
    scale: Annotated[float, Field(gt=0), LAYOUT]
    packed: Annotated[
        str,
        Field(max_length=4 * -(-8 * COORDINATES_MAX // 3)),
        Egress(
            "noised",
            "tacit_protocol.privacy.noise:OpenDPNoise",
            "exact integer sums plus the noise that the events state, and masks, which hide it from all but "
            "all other owners together",
        ),
    ]

    @model_validator(mode="after")
    def _is_packed(self) -> Self:
        try:
            held = base64.b64decode(self.packed, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the masked numbers are not base64") from None
        if base64.b64encode(held).decode("ascii") != self.packed or len(held) != 8 * self.size:
            raise ValueError("the masked numbers are not packed as their number says")
        return self

    @classmethod
    def of(cls, steps: "npt.NDArray[np.uint64]", exponent: int, scale: float) -> Self:
        """Pack steps (size,) modulo 2**64."""
        packed = base64.b64encode(steps.astype("<u8").tobytes()).decode("ascii")
        return cls(size=len(steps), exponent=exponent, scale=scale, packed=packed)

    def steps(self) -> "npt.NDArray[np.uint64]":
        """Return the masked steps, (size,), modulo 2**64."""
        import numpy as np  # noqa: PLC0415

        return np.frombuffer(base64.b64decode(self.packed), dtype="<u8").astype(np.uint64)


CODES_MAX = 64
"""Most answers that a randomised column may have: of more, hardly anything of a contrast is left."""

ANSWER_BYTES_MAX = 540_000
"""Most bytes of one release's answers: 720 kB in base64, which fit the 1 MiB of a signed envelope."""


class RandomisedAnswers(StrictModel):
    """One randomised answer a unit, in the units' order, to which of ``codes`` cells it is in.

    An answer is the unit's own cell with probability ``retention``, a multiple of 2**-53, and else uniform
    over all cells. ``packed`` holds answers of ``bits`` bits each, the first in the highest bits, in base64.
    """

    codes: Annotated[int, Field(ge=2, le=CODES_MAX), LAYOUT]
    units: Annotated[int, Field(ge=1), LAYOUT]
    retention: Annotated[float, Field(gt=0, lt=1), LAYOUT]
    packed: Annotated[
        str,
        Field(max_length=4 * -(-ANSWER_BYTES_MAX // 3)),
        Egress(
            "noised",
            "tacit_protocol.privacy.randomised_response:randomise",
            "of every unit a randomised answer, whose odds it changes by e^epsilon at most",
        ),
    ]

    @model_validator(mode="after")
    def _is_packed(self) -> Self:
        try:
            held = base64.b64decode(self.packed, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the answers are not base64") from None
        spare = 8 * len(held) - self.units * self.bits
        if base64.b64encode(held).decode("ascii") != self.packed or not 0 <= spare < 8:
            raise ValueError("the answers are not packed as their number says")
        if spare and held[-1] & ((1 << spare) - 1):
            raise ValueError("the answers are not packed as their number says")
        return self

    @property
    def bits(self) -> int:
        """Bits of one answer."""
        return answer_bits(self.codes)

    @classmethod
    def of(cls, answers: "npt.NDArray[np.int64]", codes: int, retention: float) -> Self:
        """Pack answers, (n,) in 0..codes - 1."""
        import numpy as np  # noqa: PLC0415

        shifts = np.arange(answer_bits(codes) - 1, -1, -1)
        held = np.packbits(((answers[:, None] >> shifts) & 1).astype(np.uint8).ravel()).tobytes()
        packed = base64.b64encode(held).decode("ascii")
        return cls(codes=codes, units=len(answers), retention=retention, packed=packed)

    def values(self) -> "npt.NDArray[np.int64]":
        """Return the answers, (n,) int64; a receiver first checks that all are below ``codes``."""
        import numpy as np  # noqa: PLC0415

        held = np.frombuffer(base64.b64decode(self.packed), dtype=np.uint8)
        bits = np.unpackbits(held, count=self.units * self.bits).reshape(self.units, self.bits)
        return np.asarray(bits.astype(np.int64) @ (1 << np.arange(self.bits - 1, -1, -1)), dtype=np.int64)


def answer_bits(codes: int) -> int:
    """Return how many bits hold one of ``codes`` answers."""
    return (codes - 1).bit_length()
