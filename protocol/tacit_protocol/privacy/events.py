"""Mechanism events: what a release did, in the terms that an accountant composes."""

from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.strict import Egress, StrictModel

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
