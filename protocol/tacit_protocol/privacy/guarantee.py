"""Amounts of privacy as integers: micro-epsilon and pico-delta. Rounding is always toward more spent."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, ClassVar, Self

from pydantic import Field

from tacit_protocol.privacy.events import MechanismEvent
from tacit_protocol.strict import Egress, StrictModel

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
