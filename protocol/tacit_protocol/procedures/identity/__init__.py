"""Do categories follow a known distribution? Priv'IT, its rivals, and their baseline.

P3 is Cai, Daskalakis and Kamath, *Priv'IT* (2017). Cells are the categories of the study's columns, or of
their cross product; the distribution is a parameter. ``privit`` (Algorithm 1) and ``repetition`` send one
decision; ``privit-laplace`` sends a noisy statistic; ``mcgof`` and ``zcdp-gof`` send noisy counts, and read
those of an earlier study again. All are of one owner; where several mask their Gaussian counts, these are of
all their units together. What each costs and why: docs/mathematics/identity.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.decimals import read_number
from tacit_protocol.domain import Column, Table
from tacit_protocol.features.cell_counts import COUNT_BITS, CellCounts, Integers, sum_cells
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.noisy_tables import SUM_TOLERANCE, CellNoise, cell_probabilities
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import SCALE_TOLERANCE
from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, Guarantee, LaplaceEvent
from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic
from tacit_protocol.privacy.noise import NoiseError, NoiseSource, laplace_multiplier
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    PublicRuleError,
    QuestionTemplate,
    ReleaseError,
    Releases,
    RequiredParameter,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.counts.base import CountsShift, residual_panel, simulations
from tacit_protocol.procedures.counts.release import (
    COUNTS,
    CellParameters,
    CountPlan,
    Rho,
    check_counts,
    count_noise,
    gaussian_count_guarantee,
    grid_of,
    laplace_count_guarantee,
    laplace_counts,
    require_drawable_counts,
)
from tacit_protocol.procedures.identity.privit import (
    SAMPLES_MAX,
    ClippedIdentity,
    PrivitPlan,
    Repetition,
    plan_privit,
    replicates_needed,
)
from tacit_protocol.procedures.identity.simulate import PlannedIdentity, Scores
from tacit_protocol.procedures.identity.statistic import DRAW_WORK, GoodnessOfFit
from tacit_protocol.procedures.identity.statistic import Null as NullKind
from tacit_protocol.procedures.masking import MaskedParameters, masking_in, shared_noise_in, total_of
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Floats, SimulationModel, null_draws, shared_rejections
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, PvalueVerdict, ShownTable
from tacit_protocol.verdicts.presentation import (
    CHI_SQUARED,
    NEW_CLASS,
    PRIVIT,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    Shown,
    affordable,
    chi_square,
    decision_sentence,
    from_draws,
    names_of,
)

NULL_STREAM = 3
"""Spawn key under the study's seed of simulated null distributions."""

STATISTIC = "statistic"
"""Name of the noisy statistic in a release of privit-laplace."""


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
    noise: Literal["gaussian", "laplace"] | None = Field(
        None, description="Of mcgof: laplace, or gaussian, which needs a delta."
    )
    rho: Rho | None = Field(
        None,
        description=(
            "zCDP of Gaussian noise (variance 1/rho on each cell); by default all that the budget allows."
        ),
    )
    null: NullKind = Field("auto", description="Null distribution of zcdp-gof.")
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


class IdentityDecision(DecisionResult):
    """Whether the categories follow the distribution, and nothing finer."""

    if_rejected: ClassVar[str] = "the categories follow another distribution"
    if_not_rejected: ClassVar[str] = "no other distribution shown"

    cells: Annotated[int, Shown("cells of the distribution")]


class IdentityResult(PvalueVerdict):
    """Outcome of ``identity`` where a number was released. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from the private release alone.
        pvalue: probability, where the categories follow the distribution, of a statistic at least as large.
        cells: number of cells k.
        rho: zero-concentrated differential privacy of an owner's Gaussian counts, or None.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "cells", "rho")

    cells: Annotated[int, Shown("cells of the distribution")]
    rho: Annotated[float | None, Shown("ρ")] = None

    def __str__(self) -> str:
        return self._told(
            self._decided("another distribution" if self.reject else "no other distribution shown")
        )

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "categories follow another distribution" if self.reject else "no difference shown"
        return self._finding(finding), f"  {self.method}, {self.cells} cells"


class IdentityPlan(Plan):
    """Categories held against a known distribution. What leaves, and is concluded, is each method's own.

    Attributes:
        grid: the cells.
        probabilities: the known distribution of the cells, (k,).
    """

    rereads: ClassVar[bool] = True
    masked_numbers: ClassVar[str] = "tables"

    def __init__(self, study: Study, parameters: IdentityParameters) -> None:
        self.study, self.parameters = study, parameters
        self.require_draws()
        if parameters.blocks is not None and parameters.blocks % 2 == 0:
            raise StudyError("parameter blocks: a majority needs an odd number")
        self.grid = grid_of(study, parameters)
        self.probabilities = cell_probabilities(self.grid, parameters.probabilities)
        self.settle()
        if study.curator is not None or (len(study.owners) != 1 and self.shared is None):
            raise StudyError(
                "one owner's categories are tested, by its own agent: name one owner, or ask for the sum of "
                'several with aggregation "masked"'
            )
        self.require_work()
        self.check_units(units_declared(study))

    def require_draws(self) -> None:
        """Raise StudyError where no simulated p-value could be as small as the level."""
        if self.study.level * (self.parameters.replicates + 1) < 1:
            raise StudyError("the level is below 1 / (replicates + 1): ask for more replicates")

    def settle(self) -> None:
        """Set what the owner spends, of whom nobody masks here. Raises StudyError where that cannot be."""
        chosen = self.parameters
        if chosen.noise is not None or chosen.rho is not None:
            raise StudyError("noise and rho are for mcgof and zcdp-gof alone")
        if chosen.aggregation == "masked":
            raise StudyError('masked sums are of counts: use zcdp-gof, or mcgof with noise "gaussian"')
        masking_in(self.study, chosen)
        self.release_size = 1

    def require_work(self) -> None:
        """Raise StudyError where the null distribution takes too long."""
        if self.parameters.null != "chi-square":
            require_work(len(self.probabilities) + DRAW_WORK, self.parameters.replicates)

    def seed(self) -> np.random.SeedSequence:
        """Return the public seed of simulated null distributions."""
        return public_seed(self.study, NULL_STREAM)

    # Numbers of units.

    def fixed_by(self, units: int) -> object:
        """Return what so many units fix. Raises StudyError where they do not serve the method."""
        return units

    def require_served(self, units: int) -> None:
        """Raise PublicRuleError where so many units do not serve the method."""
        try:
            self.fixed_by(units)
        except StudyError as error:
            raise PublicRuleError("no-plan", str(error)) from None

    def check_units(self, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the method has no private form, or no blocks, for so many units."""
        if self.study.owners[0].name in units:
            self.require_served(units[self.study.owners[0].name])
        super().check_units(units)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where even a distribution that has nothing in common with the known one could be missed."""
        if any(owner.name not in units for owner in self.study.owners):
            return ()
        count = sum(units[owner.name] for owner in self.study.owners)
        try:
            self.require_served(count)
        except StudyError as error:
            return (f"{HOPELESS}{error}",)
        hopeless = (
            f"{HOPELESS}even a wholly different distribution would be missed; ask for more units or epsilon",
        )
        return (hopeless if self.hides(count) else ()) + self.caveats(count)

    def hides(self, units: int) -> bool:  # noqa: ARG002
        """Whether noise alone does what the largest signal there can be, all units in one cell, does."""
        return False

    def caveats(self, units: int) -> tuple[str, ...]:  # noqa: ARG002
        """Say what else is to be known of the method at so many units."""
        return ()

    # What is checked, and read.

    def check_shape(self, release: Release, vectors: Set[str], *, decides: bool) -> None:
        """Raise ReleaseError where a release has not these vectors, or the decision, of units that serve."""
        try:
            self.require_served(release.units)
        except StudyError as error:
            raise ReleaseError(str(error)) from None
        if set(release.vectors) != vectors or (release.decision is not None) != decides:
            raise ReleaseError("the release has not the numbers, or the decision, that the study asks for")
        if release.guarantee != self.guarantee:
            raise ReleaseError("the release states another guarantee than the study")

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Raise StudyError: noisy counts alone are read again."""
        raise StudyError(f"{self.parameters.method} reads no noisy counts: use mcgof or zcdp-gof")

    def readable(self, releases: Releases) -> Release:
        """Return what can be read: the one owner's release."""
        return releases[self.study.owners[0].name]

    def found(self, release: Release, report: Callable[[float], None]) -> dict[str, Any]:
        """Return what the release tells, by field of the verdict."""
        raise NotImplementedError

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> IdentityDecision | IdentityResult:
        study, shared = self.study, self.shared
        counted = {owner.name: releases[owner.name].units for owner in study.owners}
        found = self.found(self.readable(releases), step(progress, "simulating the null distribution"))
        masked = () if shared is None else shared.caveats(self.masked_numbers)
        kind: Any = self.verdict_type or IdentityResult
        verdict: IdentityDecision | IdentityResult = kind(
            **common_fields(study, counted, self.guarantee),
            cells=self.grid.size,
            warnings=self.warnings(counted) + masked + reuse_warnings(study),
            **found,
        )
        return verdict

    def meaning(self, verdict: Fields) -> Meaning:
        names = names_of(self.study) + ("" if self.shared is None else " together")
        return decision_sentence(
            self.study,
            verdict,
            f"The categories of {names} do not follow the stated distribution",
            f"No departure from the stated distribution was shown: the categories of {names} may follow it",
        )

    def rejections(
        self, laws: Sequence[Floats], units: Sequence[int], lots: Sequence[int], rng: np.random.Generator
    ) -> Floats | None:
        """Return 1 or 0 of each study, whether it rejects; see ``SimulatedAtOnce``."""
        chosen = self.parameters
        if self.shared is not None or (chosen.samples, chosen.blocks) != (None, None):
            return None
        test = PlannedIdentity(
            chosen.method,
            self.probabilities,
            units[0],
            self.study.budget.epsilon,
            self.study.level,
            distance=chosen.distance,
            weights=chosen.weights,
            clipping=chosen.clipping,
        )
        return self.simulated_rejections(test, laws[0], lots, rng)

    def scores(self, test: PlannedIdentity) -> Scores:
        """Return what draws the scores of simulated studies."""
        return test.scores()

    def simulated_rejections(
        self, test: PlannedIdentity, law: Floats, lots: Sequence[int], rng: np.random.Generator
    ) -> Floats:
        """Return 1 or 0 of each study, whether its score is beyond those of a simulated null."""
        scores, draws = self.scores(test), null_draws(self.study.level, self.parameters.replicates)
        return shared_rejections(
            lambda size: scores(law, size, rng),
            lambda: scores(self.probabilities, draws, rng),
            lots,
            self.study.level,
        )


# One decision.


@dataclass(frozen=True)
class DrawnBlocks:
    """Units, and what a decision draws from them. They never leave the owner.

    ``drawn`` holds privit's blocks (None where too many units were drawn), or how many blocks reject.
    """

    units: int
    drawn: npt.NDArray[np.int64] | int | None = field(repr=False, default=None)


class DecisionPlan(IdentityPlan):
    """The owner draws blocks of its units, and sends one private decision."""

    cited: tuple[Citation, ...] = (PRIVIT,)
    verdict_type: type[BaseVerdict] | None = IdentityDecision

    def settle(self) -> None:
        """Set what the owner spends: the whole of epsilon."""
        budget = self.study.budget
        super().settle()
        self.guarantee = Guarantee(budget=budget, events=(ApproximateEvent(epsilon=budget.epsilon),))

    def require_work(self) -> None:
        """Raise StudyError where units are averages of rows."""
        if self.study.averages_rows:
            raise StudyError(
                f"{self.parameters.method} draws rows: use another method, or unit_rows one, if units have "
                "several rows"
            )

    def draw(
        self, counts: Integers, units: int, rng: np.random.Generator
    ) -> npt.NDArray[np.int64] | int | None:
        """Draw from whole counts (k,) what decides."""
        raise NotImplementedError

    def decide(self, summary: DrawnBlocks, noise: NoiseSource) -> bool:
        """Decide, by private noise."""
        raise NotImplementedError

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> DrawnBlocks:
        """Count the owner's units by cell, exactly, and draw blocks.

        Blocks are drawn afresh, so that it does not matter in which order units are stored; ``order`` fixes
        them, for audits and simulations alone. Raises StudyError where there are too few units, or the data
        changed.
        """
        self.require_served(table.units)
        counts = sum_cells(table, self.grid)
        rng = order or np.random.default_rng()
        return DrawnBlocks(counts.units, self.draw(counts.steps >> COUNT_BITS, table.units, rng))

    def privatise(self, summary: DrawnBlocks, noise: NoiseSource) -> Release:
        """Decide with the noise that the guarantee states."""
        try:
            decision = self.decide(summary, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        return Release(decision=decision, units=summary.units, guarantee=self.guarantee)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where the release is not one decision, with the study's guarantee."""
        self.check_shape(release, set(), decides=True)

    def method_words(self, units: int) -> str:
        """Name the method, for a verdict on so many units."""
        raise NotImplementedError

    def found(self, release: Release, report: Callable[[float], None]) -> dict[str, Any]:
        """Return the decision."""
        report(1.0)
        return {"method": self.method_words(release.units), "reject": release.decision}

    def simulated_rejections(
        self, test: PlannedIdentity, law: Floats, lots: Sequence[int], rng: np.random.Generator
    ) -> Floats:
        """Return 1 or 0 of each study, whether its decision rejects."""
        return np.concatenate([test.decisions(law, size, rng) for size in lots]).astype(np.float64)


class PrivitDecision(DecisionPlan):
    """Priv'IT, Algorithm 1: the majority of private decisions on Poisson samples."""

    def require_draws(self) -> None:
        """Nothing is simulated."""

    def fixed_by(self, units: int) -> PrivitPlan:
        """Return the blocks. Raises StudyError where none are private and keep the level."""
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

    def draw(self, counts: Integers, units: int, rng: np.random.Generator) -> npt.NDArray[np.int64] | None:
        """Draw the blocks; None where too many units were drawn."""
        return self.fixed_by(units).draw(counts, rng)

    def decide(self, summary: DrawnBlocks, noise: NoiseSource) -> bool:
        """Return what most blocks decide."""
        blocks = None if summary.drawn is None else np.asarray(summary.drawn)
        return self.fixed_by(summary.units).decide(blocks, noise)

    def method_words(self, units: int) -> str:
        """Name the method and its blocks."""
        found = self.fixed_by(units)
        return (
            f"Priv'IT, {found.blocks} blocks of {found.instance.samples:.6g} units on average, "
            "private decision"
        )


class RepeatedDecision(DecisionPlan):
    """The baseline: a chi-square test repeated on blocks, of which a private coin tells."""

    def require_draws(self) -> None:
        """Raise StudyError where no block's simulated p-value could be as small as its level."""
        needed = replicates_needed(self.study.level)
        if self.parameters.replicates >= needed:
            return
        if needed <= REPLICATES_MAX:
            raise StudyError(
                f"no block could ever reject at this level: ask for {needed} replicates, or a larger level"
            )
        raise StudyError(
            "no block could ever reject at this level: ask for a larger level, or use another method"
        )

    @property
    def repetition(self) -> Repetition:
        """The blocks."""
        return Repetition(self.probabilities, self.study.budget.epsilon, self.study.level)

    def require_served(self, units: int) -> None:
        """Raise PublicRuleError where there are fewer units than blocks, or blocks too small."""
        try:
            self.repetition.block_units(units)
        except StudyError as error:
            few = units < self.repetition.blocks
            raise PublicRuleError("too-few-units" if few else "no-plan", str(error)) from None

    def caveats(self, units: int) -> tuple[str, ...]:  # noqa: ARG002
        """Say that it is a baseline."""
        return ("repetition is a baseline: every other method sees more",)

    def draw(self, counts: Integers, units: int, rng: np.random.Generator) -> int:  # noqa: ARG002
        """Draw the blocks, and return how many of them reject."""
        blocks = self.repetition.draw(counts, rng)
        return self.repetition.rejections(blocks, self.parameters.replicates, self.seed())

    def decide(self, summary: DrawnBlocks, noise: NoiseSource) -> bool:
        """Toss the private coin."""
        return self.repetition.decide(int(np.asarray(summary.drawn)), noise)

    def method_words(self, units: int) -> str:  # noqa: ARG002
        """Name the method and its blocks."""
        return f"chi-square test repeated on {self.repetition.blocks} blocks, private decision"


# One statistic.


class StatisticPlan(IdentityPlan):
    """privit-laplace: the owner sends one noisy statistic; of clipping "filter", as published, counts too."""

    cited: tuple[Citation, ...] = (PRIVIT,)

    def settle(self) -> None:
        """Set what the owner spends: epsilon, of which counts have a half."""
        super().settle()
        self.filters = self.parameters.clipping == "filter"
        budget = self.study.budget
        event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon / (2 if self.filters else 1)))
        self.multiplier = event.noise_multiplier
        self.guarantee = Guarantee(budget=budget, events=(event, event) if self.filters else (event,))
        self.release_size += self.grid.size if self.filters else 0
        require_drawable_counts(self.grid.size, COUNT_BITS, self.guarantee)

    def clipped(self, units: int) -> ClippedIdentity:
        """Return the statistic; its published form has the published weights too."""
        scale = count_noise(self.guarantee)[1] if self.filters else None
        published = (
            self.parameters.weights or ("published" if self.filters else "noise-aware")
        ) == "published"
        multiplier = None if published else self.multiplier
        return ClippedIdentity(self.probabilities, units, self.parameters.distance, scale, multiplier)

    def fixed_by(self, units: int) -> LaplaceStatistic:
        """Return how the statistic leaves. Raises StudyError where it cannot."""
        clipped = self.clipped(units)
        statistic = LaplaceStatistic(clipped.sensitivity, clipped.largest, self.multiplier)
        statistic.bits  # noqa: B018 (raises where there is no grid)
        return statistic

    def hides(self, units: int) -> bool:
        """Whether noise is as large as the statistic can be."""
        noise = self.fixed_by(units).scale * math.log(1 / (2 * self.study.level))
        return self.clipped(units).largest < noise

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> CellCounts:  # noqa: ARG002
        self.require_served(table.units)
        return sum_cells(table, self.grid)

    def privatise(self, summary: CellCounts, noise: NoiseSource) -> Release:
        value = float(self.clipped(summary.units).statistic(summary.counts))
        try:
            vectors = {STATISTIC: self.fixed_by(summary.units).release(value, noise)}
            if self.filters:
                vectors[COUNTS] = laplace_counts(summary.steps, COUNT_BITS, self.guarantee, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        return Release(vectors=vectors, units=summary.units, guarantee=self.guarantee)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where the release has not the statistic and counts that the study fixes."""
        self.check_shape(release, {STATISTIC, COUNTS} if self.filters else {STATISTIC}, decides=False)
        fixed, vector = self.fixed_by(release.units), release.vectors[STATISTIC]
        same = vector.noise == "laplace" and abs(vector.scale / fixed.scale - 1) <= SCALE_TOLERANCE
        if not same or vector.exponent != -fixed.bits or len(vector.values) != 1:
            raise ReleaseError("the statistic has not the grid and the noise that the study fixes")
        if self.filters:
            try:
                counts, cells = release.vectors[COUNTS], self.grid.size
                check_counts(counts, release.guarantee, cells, COUNT_BITS, self.guarantee)
            except ValueError as error:
                raise ReleaseError(str(error)) from None

    def found(self, release: Release, report: Callable[[float], None]) -> dict[str, Any]:
        """Return the statistic and its p-value."""
        draws = self.parameters.replicates
        clipped, noisy = self.clipped(release.units), release.vectors[STATISTIC]
        counted = release.vectors[COUNTS].mean(1) if COUNTS in release.vectors else None
        score = float(clipped.scores(float(noisy.mean(1)[0]), counted))
        pvalue = clipped.pvalue(score, noisy.scale, draws, self.seed(), report)
        words = f"Priv'IT, noisy statistic, {self.parameters.clipping} clipping, {draws} simulations"
        return {"method": words} | decided(self.study, float(noisy.mean(1)[0]), pvalue)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        """Work out the null distribution again; simulations are the first of the verdict's."""
        if any(owner.name not in releases for owner in self.study.owners):
            return None
        release = self.readable(releases)
        clipped, scale = self.clipped(release.units), release.vectors[STATISTIC].scale
        replicates = affordable(self.parameters.replicates, self.grid.size)
        seeds = self.seed().spawn(replicates or 0)
        draws = [clipped.simulate(np.random.default_rng(seed), scale, 1)[0] for seed in seeds]
        return _drawn_null(draws, self.study.level)


# Noisy counts.


class CountedIdentity(IdentityPlan, CountPlan):
    """Noisy counts, of one owner or masked; those of an earlier study are read again."""

    def settle(self) -> None:
        """Set the noise on the counts. Raises StudyError where it cannot be."""
        claim = self.claim()
        noise = "gaussian" if isinstance(claim.events[0], GaussianEvent) else "laplace"
        self.spend(claim, shared_noise_in(self.study, self.parameters, noise, lambda: claim))

    def claim(self) -> Guarantee:
        """Return the guarantee of the counts. Raises StudyError where the study cannot have it."""
        raise NotImplementedError

    def name_of(self, fit: GoodnessOfFit) -> str:
        """Name the method."""
        raise NotImplementedError

    @property
    def null_kind(self) -> NullKind:
        """How the null distribution is found: MCGOF's by simulation."""
        return "monte-carlo"

    def fitted(self, units: int, noise: CellNoise | None = None) -> GoodnessOfFit:
        """Return the statistic, by default with the noise of the study's own release."""
        weights = self.parameters.weights or "noise-aware"
        return GoodnessOfFit(self.probabilities, units, noise or self.noise, weights)

    def hides(self, units: int) -> bool:
        """Whether noise is as large as the statistic of all units in one cell."""
        spread = math.sqrt(2 * self.grid.size) * self.fitted(units).noise.variance
        return units**2 < 2 * spread

    def caveats(self, units: int) -> tuple[str, ...]:
        """Say where the chi-square distribution may not hold."""
        if self.null_kind == "chi-square" and not self.fitted(units).chi_square_holds:
            return ("cells are too rare for the chi-square distribution: the level may be broken",)
        return ()

    def privatise(self, summary: CellCounts, noise: NoiseSource) -> Release:
        try:
            return CountPlan.privatise(self, summary, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        """Return the noisy counts of an earlier study: of the same cells, or of finer ones, added up."""
        return CountPlan.reread(self, owner, source, release)

    def readable(self, releases: Releases) -> Release:
        """Return what can be read: the one owner's release, or the sum of those that are masked."""
        if self.shared is not None:
            return total_of(self.shared.masking, releases)
        return super().readable(releases)

    def found(self, release: Release, report: Callable[[float], None]) -> dict[str, Any]:
        """Return the statistic and its p-value."""
        table = self.read(release)
        fit = self.fitted(release.units, table.noises[0])
        fitted = fit.test(table.counts, self.null_kind, self.parameters.replicates, self.seed(), report)
        # What an owner spent: where they mask, by its own share of the noise.
        own = table.noises[0] if self.shared is None else self.noise
        rho = own.scale**-2 if fit.noise.kind == "gaussian" else None
        found = {"method": f"{self.name_of(fit)}, {fit.noise.kind} counts, {fitted.null}", "rho": rho}
        return found | decided(self.study, fitted.statistic, fitted.pvalue)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the verdict's, or the first of them."""
        if any(owner.name not in releases for owner in self.study.owners):
            return None
        release = self.readable(releases)
        fit = self.fitted(release.units, self.read(release).noises[0])
        if fit.by_chi_square(self.null_kind):
            return chi_square(len(self.probabilities) - 1, float(verdict["statistic"]), self.study.level)
        replicates = affordable(self.parameters.replicates, self.grid.size)
        seeds = self.seed().spawn(replicates or 0)
        draws = [float(fit.statistic(fit.simulate(np.random.default_rng(seed)))) for seed in seeds]
        return _drawn_null(draws, self.study.level)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return the cells with the largest residuals; none where the counts are not at hand."""
        if any(owner.name not in releases for owner in self.study.owners):
            return []
        table = self.read(self.readable(releases))
        expected = table.units * self.probabilities
        spread = np.sqrt(np.maximum(expected * (1 - self.probabilities) + table.noise_variance, 1.0))
        residuals = {"": (table.counts - expected) / spread}
        return residual_panel("Cells against the distribution", self.grid, residuals, {})

    def scores(self, test: PlannedIdentity) -> Scores:
        """Return what draws the scores of simulated studies, with the study's own noise."""
        return self.fitted(test.units).scores

    def simulated_rejections(
        self, test: PlannedIdentity, law: Floats, lots: Sequence[int], rng: np.random.Generator
    ) -> Floats:
        """Return 1 or 0 of each study, whether its statistic is beyond the null's."""
        fit = self.fitted(test.units)
        if not fit.by_chi_square(self.null_kind):
            return super().simulated_rejections(test, law, lots, rng)
        found = fit.scores(law, sum(lots), rng)
        return np.array([float(fit.chi_square_pvalue(one) <= self.study.level) for one in found])


class Mcgof(CountedIdentity):
    """MCGOF: counts in Laplace noise, or in Gaussian."""

    cited: tuple[Citation, ...] = (CHI_SQUARED,)

    def claim(self) -> Guarantee:
        """Return the guarantee of the noise that the study asks for."""
        budget, chosen = self.study.budget, self.parameters
        if chosen.noise == "gaussian":
            return gaussian_count_guarantee(budget, chosen.rho)
        if chosen.rho is not None:
            raise StudyError("rho is of Gaussian counts alone: use zcdp-gof, or Gaussian noise")
        return laplace_count_guarantee(budget)

    def name_of(self, fit: GoodnessOfFit) -> str:
        """Name the method and its weights."""
        return f"MCGOF, {fit.weights} weights"


class ZcdpGof(CountedIdentity):
    """zCDP-GOF: counts in Gaussian noise."""

    cited: tuple[Citation, ...] = (NEW_CLASS,)

    def require_draws(self) -> None:
        if self.parameters.null != "chi-square":
            super().require_draws()

    def claim(self) -> Guarantee:
        """Return the guarantee of Gaussian noise."""
        if self.parameters.weights == "published":
            raise StudyError("zcdp-gof has weights of its own: leave weights out, or use mcgof")
        if self.parameters.noise == "laplace":
            raise StudyError("zcdp-gof has Gaussian noise: use mcgof with Laplace noise")
        return gaussian_count_guarantee(self.study.budget, self.parameters.rho)

    def name_of(self, fit: GoodnessOfFit) -> str:  # noqa: ARG002
        return "zCDP-GOF"

    @property
    def null_kind(self) -> NullKind:
        """How the null distribution is found, as the study says."""
        return self.parameters.null

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        """Return the noisy counts of an earlier study, which must be Gaussian."""
        found = super().reread(owner, source, release)
        if self.read(found).noises[0].kind != "gaussian":
            raise StudyError("zcdp-gof reads Gaussian counts: use mcgof for these")
        return found


PLANS: Mapping[Method, type[IdentityPlan]] = {
    "privit": PrivitDecision,
    "privit-laplace": StatisticPlan,
    "mcgof": Mcgof,
    "zcdp-gof": ZcdpGof,
    "repetition": RepeatedDecision,
}


def _drawn_null(draws: Sequence[float], level: float) -> Null | None:
    words = simulations(len(draws), "data that follow it")
    return from_draws(words, np.array(draws), level) if draws else None


class KnownCells(CountsShift):
    """Counts whose cells are larger and smaller in turn than the known distribution says, at every owner."""

    @property
    def laws(self) -> Sequence[Floats]:
        return [super().laws[-1]] * len(self.study.owners)

    @cached_property
    def null(self) -> Floats:
        """The known distribution, (k,)."""
        return self.probabilities(self.study.parameters["probabilities"])


class IdentityTest(Procedure):
    """See the module. Registered as ``identity``."""

    name: ClassVar[str] = "identity"
    title: ClassVar[str] = "Do categories follow a known distribution?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = IdentityParameters
    Verdict: ClassVar[type[BaseVerdict]] = IdentityResult
    released: ClassVar[str] = "the number of units in each public cell, or what one test makes of it"
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do the categories of one owner follow a known distribution?",
        r"known|census|expected|published (distribution|shares)|follow|goodness|fair",
        "one",
        rank=2,
        categories=True,
        pure=True,
    )
    population: ClassVar[type[SimulationModel] | None] = KnownCells
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"method": "mcgof"},
        {"method": "privit-laplace"},
        {"method": "zcdp-gof"},
    )

    def needs(self, columns: Sequence[Column]) -> tuple[RequiredParameter, ...]:
        """Return how the known distribution is asked for."""
        cells = math.prod(len(getattr(column, "levels", ())) or 1 for column in columns)
        return (
            RequiredParameter(
                "probabilities",
                "which distribution is known",
                f"The known probabilities of the {cells} cells, with commas",
                partial(probabilities_of, cells=cells),
                "equal",
            ),
        )

    def plan(self, study: Study) -> IdentityPlan:
        require_shared_columns(study)
        parameters = parse_parameters(IdentityParameters, study)
        return PLANS[parameters.method](study, parameters)


def probabilities_of(text: str, cells: int) -> list[float]:
    """Read one probability for each cell, with commas; ``equal`` stands for equal ones.

    Raises:
        ValueError: there are others than that many, or they do not add up to 1.
    """
    if text == "equal":
        return [1 / cells] * cells
    try:
        found = [read_number(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != cells or not all(0 <= value <= 1 for value in found):
        raise ValueError(f"write {cells} probabilities with commas between them, or equal")
    if abs(math.fsum(found) - 1) > SUM_TOLERANCE:
        raise ValueError(f"they add up to {math.fsum(found):g}, and must add up to 1")
    return found
