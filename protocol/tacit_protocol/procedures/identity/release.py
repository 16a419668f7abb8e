"""What a study of ``identity`` may choose."""

from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.procedures.counts.release import CellParameters, Rho
from tacit_protocol.procedures.identity.privit import SAMPLES_MAX
from tacit_protocol.procedures.identity.statistic import Null
from tacit_protocol.procedures.masking import MaskedParameters

REPLICATES_DEFAULT, REPLICATES_MAX = 999, 99_999
"""Simulations of the null distribution: p-values down to 1e-3, and to 1e-5."""

DISTANCE_DEFAULT = 0.1
"""P3's alpha, the total variation distance to be seen."""

DISTANCE_MIN = 1e-6
"""Smallest alpha: no number of units tells distributions that are nearer, and squares of it stay numbers."""

Method = Literal["privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"]
Probability = Annotated[float, Field(ge=0, le=1)]


class IdentityParameters(CellParameters, MaskedParameters):
    """What a study of this procedure may choose; every choice is public.

    ``probabilities`` are those of every level, or of every category ("other" and "missing" after the levels;
    left out they have probability 0); a numeric column has intervals between its cuts for levels.
    """

    method: Method = Field(
        "mcgof",
        description="What the owner sends: noisy counts (mcgof, zcdp-gof), one statistic, or one decision.",
    )
    probabilities: Annotated[tuple[Probability, ...], Field(min_length=2)] = Field(
        description="The known distribution: of every combination of levels, the last column's fastest."
    )
    weights: Literal["published", "noise-aware"] | None = Field(
        None, description="Of cells, in mcgof and privit-laplace."
    )
    noise: Literal["laplace", "gaussian"] | None = Field(
        None, description="Of mcgof: laplace, or gaussian, which needs a delta."
    )
    rho: Rho | None = Field(
        None,
        description=(
            "zCDP of Gaussian noise (variance 1/rho on each cell); by default all that the budget allows."
        ),
    )
    null: Null = Field("auto", description="Null distribution of zcdp-gof.")
    clipping: Literal["filter", "tight"] = Field(
        "tight", description="Of privit-laplace: tight, or filter, as published."
    )
    distance: Annotated[float, Field(ge=DISTANCE_MIN, le=1)] = Field(
        DISTANCE_DEFAULT, description="Total variation distance that the Priv'IT methods look for."
    )
    samples: Annotated[float, Field(ge=1, le=SAMPLES_MAX)] | None = Field(
        None, description="The m of privit; by default from the number of units."
    )
    blocks: Annotated[int, Field(ge=1, le=99)] | None = Field(
        None, description="Blocks of privit, whose majority decides; by default from the number of units."
    )
    replicates: Annotated[int, Field(ge=999, le=REPLICATES_MAX)] = Field(
        REPLICATES_DEFAULT, description="Simulations of the null distribution; at least 1/level - 1."
    )
