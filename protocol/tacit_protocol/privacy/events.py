"""Mechanism events: what a release did, in the terms that an accountant composes."""

from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.strict import StrictModel

PositiveFloat = Annotated[float, Field(gt=0)]


class GaussianEvent(StrictModel):
    """Gaussian noise of standard deviation sigma on a query of L2 sensitivity Delta."""

    mechanism: Literal["gaussian"] = "gaussian"
    noise_multiplier: PositiveFloat
    """sigma / Delta, 1/mu of Gaussian differential privacy."""


class LaplaceEvent(StrictModel):
    """Laplace noise on a query of L1 sensitivity Delta."""

    mechanism: Literal["laplace"] = "laplace"
    noise_multiplier: PositiveFloat
    """scale / Delta."""


class ApproximateEvent(StrictModel):
    """Any mechanism known only to be (epsilon, delta) differentially private; delta = 0 is pure."""

    mechanism: Literal["approximate"] = "approximate"
    epsilon: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0


MechanismEvent = Annotated[GaussianEvent | LaplaceEvent | ApproximateEvent, Field(discriminator="mechanism")]
