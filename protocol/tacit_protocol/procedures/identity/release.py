"""What a study of ``identity`` fixes before any data: its parameters, its cells, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.features.cell_counts import CellGrid
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import CellNoise, cell_probabilities
from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, Guarantee, LaplaceEvent
from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic
from tacit_protocol.privacy.noise import laplace_multiplier
from tacit_protocol.procedures.base import (
    PublicRuleError,
    StudyError,
    parse_parameters,
    planned_once,
    public_seed,
)
from tacit_protocol.procedures.counts.release import (
    CellParameters,
    CountPlan,
    Rho,
    count_noise,
    gaussian_count_guarantee,
    grid_of,
    laplace_count_guarantee,
)
from tacit_protocol.procedures.identity.privit import (
    SAMPLES_MAX,
    ClippedIdentity,
    PrivitPlan,
    Repetition,
    plan_privit,
    replicates_needed,
)
from tacit_protocol.procedures.identity.statistic import GoodnessOfFit, Null
from tacit_protocol.procedures.masking import MaskedParameters, SharedNoise, shared_noise_in, total_of

REPLICATES_DEFAULT, REPLICATES_MAX = 999, 99_999
"""Simulations of the null distribution: p-values down to 1e-3, and to 1e-5."""

DISTANCE_DEFAULT = 0.1
"""P3's alpha, the total variation distance to be seen."""

DISTANCE_MIN = 1e-6
"""Smallest alpha: no number of units tells distributions that are nearer, and squares of it stay numbers."""

NULL_STREAM = 3
"""Spawn key under the study's seed of simulated null distributions."""

DECISIONS, COUNTED = ("privit", "repetition"), ("mcgof", "zcdp-gof")

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


@dataclass(frozen=True)
class IdentityPlan:
    """What a study fixes before any data."""

    study: Study
    parameters: IdentityParameters
    grid: CellGrid
    probabilities: npt.NDArray[np.float64]
    guarantee: Guarantee
    shared: SharedNoise | None = None
    """The noise that owners who mask their counts share: ``guarantee`` is then one owner's own."""

    @property
    def method(self) -> Method:
        """The method's name."""
        return self.parameters.method

    def privit(self, units: int) -> PrivitPlan:
        """Return the blocks of Priv'IT. Raises StudyError where none are private and keep the level."""
        chosen = self.parameters
        return plan_privit(
            self.probabilities,
            units,
            self.study.budget.epsilon,
            chosen.distance,
            self.study.level,
            samples=chosen.samples,
            blocks=chosen.blocks,
        )

    @property
    def repetition(self) -> Repetition:
        """The blocks of repetition."""
        return Repetition(self.probabilities, self.study.budget.epsilon, self.study.level)

    def clipped(self, units: int) -> ClippedIdentity:
        """Return the statistic of privit-laplace; its published form has the published weights too."""
        chosen, filtered = self.parameters, self.parameters.clipping == "filter"
        scale = count_noise(self.guarantee)[1] if filtered else None
        published = (chosen.weights or ("published" if filtered else "noise-aware")) == "published"
        multiplier = None if published else self._multiplier
        return ClippedIdentity(self.probabilities, units, chosen.distance, scale, multiplier)

    @property
    def _multiplier(self) -> float:
        """Scale of the noise on privit-laplace's statistic, in units of its sensitivity."""
        event = self.guarantee.events[-1]
        if not isinstance(event, LaplaceEvent):
            raise TypeError("the guarantee is not that of a Laplace statistic")
        return event.noise_multiplier

    def released(self, units: int) -> LaplaceStatistic:
        """Return how privit-laplace's statistic leaves. Raises StudyError where it cannot."""
        clipped = self.clipped(units)
        statistic = LaplaceStatistic(clipped.sensitivity, clipped.largest, self._multiplier)
        statistic.bits  # noqa: B018 (raises where there is no grid)
        return statistic

    @property
    def counted(self) -> CountPlan:
        """The noisy counts that mcgof, zcdp-gof and the filter of privit-laplace release."""
        return CountPlan(self.grid, self.guarantee, self.shared)

    def read(self, releases: Mapping[str, Release]) -> Release:
        """Return what can be read: the one owner's release, or the sum of those that are masked."""
        if self.shared is not None:
            return total_of(self.shared.masking, releases)
        return releases[self.study.owners[0].name]

    def fitted(self, units: int, noise: CellNoise | None = None) -> GoodnessOfFit:
        """Return the statistic of noisy counts, by default with the noise of the study's own release."""
        weights = self.parameters.weights or "noise-aware"
        return GoodnessOfFit(self.probabilities, units, noise or self.counted.noise, weights)

    @property
    def null(self) -> Null:
        """How the null distribution of noisy counts is found: MCGOF's by simulation."""
        return self.parameters.null if self.method == "zcdp-gof" else "monte-carlo"

    def check_units(self, units: int) -> None:
        """Raise PublicRuleError where so many units do not serve the method."""
        try:
            if self.method == "privit":
                self.privit(units)
            elif self.method == "privit-laplace":
                self.released(units)
            elif self.method == "repetition":
                self.repetition.block_units(units)
        except StudyError as error:
            few = self.method == "repetition" and units < self.repetition.blocks
            raise PublicRuleError("too-few-units" if few else "no-plan", str(error)) from None

    def seed(self) -> np.random.SeedSequence:
        """Return the public seed of simulated null distributions."""
        return public_seed(self.study, NULL_STREAM)


@planned_once
def plan_of(study: Study) -> IdentityPlan:
    """Read a study. Raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(IdentityParameters, study)
    exact = parameters.method == "zcdp-gof" and parameters.null == "chi-square"
    simulated = parameters.method not in DECISIONS and not exact
    if simulated and study.level * (parameters.replicates + 1) < 1:
        raise StudyError("the level is below 1 / (replicates + 1): ask for more replicates")
    if parameters.method == "repetition":
        _require_rejections(study.level, parameters.replicates)
    if parameters.blocks is not None and parameters.blocks % 2 == 0:
        raise StudyError("parameter blocks: a majority needs an odd number")
    grid = grid_of(study, parameters)
    probabilities = cell_probabilities(grid, parameters.probabilities)
    claim = _guarantee(study, parameters)
    if parameters.aggregation == "masked" and parameters.method not in COUNTED:
        raise StudyError('masked sums are of counts: use zcdp-gof, or mcgof with noise "gaussian"')
    noise = "gaussian" if isinstance(claim.events[0], GaussianEvent) else "laplace"
    shared = shared_noise_in(study, parameters, noise, lambda: claim)
    plan = IdentityPlan(
        study, parameters, grid, probabilities, claim if shared is None else shared.own, shared
    )
    if parameters.method not in DECISIONS:
        plan.counted.require_drawable()
    return plan


def _require_rejections(level: float, replicates: int) -> None:
    """Raise StudyError where no block's simulated p-value could be as small as its level."""
    needed = replicates_needed(level)
    if replicates >= needed:
        return
    if needed <= REPLICATES_MAX:
        raise StudyError(
            f"no block could ever reject at this level: ask for {needed} replicates, or a larger level"
        )
    raise StudyError(
        "no block could ever reject at this level: ask for a larger level, or use another method"
    )


def _guarantee(study: Study, parameters: IdentityParameters) -> Guarantee:
    budget, gaussian = study.budget, parameters.method == "zcdp-gof"
    if gaussian and parameters.weights == "published":
        raise StudyError("zcdp-gof has weights of its own: leave weights out, or use mcgof")
    if parameters.method in COUNTED:
        if (parameters.noise or ("gaussian" if gaussian else "laplace")) == "gaussian":
            return gaussian_count_guarantee(budget, parameters.rho)
        if gaussian:
            raise StudyError("zcdp-gof has Gaussian noise: use mcgof with Laplace noise")
        if parameters.rho is not None:
            raise StudyError("rho is of Gaussian counts alone: use zcdp-gof, or Gaussian noise")
        return laplace_count_guarantee(budget)
    if parameters.noise is not None or parameters.rho is not None:
        raise StudyError("noise and rho are for mcgof and zcdp-gof alone")
    if parameters.method in DECISIONS:
        return Guarantee(budget=budget, events=(ApproximateEvent(epsilon=budget.epsilon),))
    filtered = parameters.clipping == "filter"
    event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon / (2 if filtered else 1)))
    return Guarantee(budget=budget, events=(event, event) if filtered else (event,))
