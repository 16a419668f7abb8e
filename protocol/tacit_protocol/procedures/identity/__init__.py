"""Do categories follow a known distribution? Priv'IT, its rivals, and their baseline.

P3 is Cai, Daskalakis and Kamath, *Priv'IT* (2017). Cells are the categories of the study's columns, or of
their cross product; the distribution is a parameter. ``privit`` (Algorithm 1) and ``repetition`` send one
decision; ``privit-laplace`` sends a noisy statistic; ``mcgof`` and ``zcdp-gof`` send noisy counts, and read
those of an earlier study again. All are of one owner; where several mask their Gaussian counts, these are of
all their units together. What each costs and why: docs/mathematics/identity.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.decimals import read_number
from tacit_protocol.domain import Column, Table
from tacit_protocol.features.cell_counts import COUNT_BITS, CellCounts, sum_cells
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.noisy_tables import SUM_TOLERANCE
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import SCALE_TOLERANCE
from tacit_protocol.privacy.guarantee import Guarantee, NoisyVector
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    RequiredParameter,
    StudyError,
    SumsOfOwners,
    common_fields,
    decided,
    parse_parameters,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.counts.base import CountsShift, residual_panel, simulations
from tacit_protocol.procedures.counts.release import COUNTS, laplace_counts
from tacit_protocol.procedures.identity.release import (
    COUNTED,
    DECISIONS,
    IdentityParameters,
    IdentityPlan,
    plan_of,
)
from tacit_protocol.procedures.identity.simulate import PlannedIdentity
from tacit_protocol.procedures.identity.statistic import DRAW_WORK
from tacit_protocol.procedures.masking import SharedNoise, is_masked
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

STATISTIC = "statistic"
"""Name of the noisy statistic in a release of privit-laplace."""


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


@dataclass(frozen=True)
class IdentitySummary:
    """Exact counts, and what decisions draw from them. They never leave the owner.

    ``drawn`` holds privit's blocks (None where too many units were drawn), or how many blocks reject.
    """

    counts: CellCounts = field(repr=False)
    drawn: npt.NDArray[np.int64] | int | None = field(repr=False, default=None)


class KnownCells(CountsShift):
    """Counts whose cells are larger and smaller in turn than the known distribution says, at every owner."""

    @property
    def laws(self) -> Sequence[Floats]:
        """The probabilities of each owner's cells, (k,) each."""
        return [super().laws[-1]] * len(self.study.owners)

    @cached_property
    def null(self) -> Floats:
        """The known distribution, (k,)."""
        return self.probabilities(self.study.parameters["probabilities"])


class IdentityTest(SumsOfOwners, Procedure):
    """See the module. Registered as ``identity``."""

    name: ClassVar[str] = "identity"
    title: ClassVar[str] = "Do categories follow a known distribution?"
    masked_numbers: ClassVar[str] = "tables"
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

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        plan = plan_of(study)
        if study.curator is not None or (len(study.owners) != 1 and plan.shared is None):
            raise StudyError(
                "one owner's categories are tested, by its own agent: name one owner, or ask for the sum of "
                'several with aggregation "masked"'
            )
        if study.averages_rows and plan.method in DECISIONS:
            raise StudyError(
                f"{plan.method} draws rows: use another method, or unit_rows one, if units have several rows"
            )
        if plan.method not in DECISIONS and plan.parameters.null != "chi-square":
            require_work(len(plan.probabilities) + DRAW_WORK, plan.parameters.replicates)
        self.check_units(study, units_declared(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the method has no private form, or no blocks, for so many units."""
        if study.owners[0].name in units:
            plan_of(study).check_units(units[study.owners[0].name])
        self.require_room(study, units)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is: a test, or a decision alone."""
        method = parse_parameters(IdentityParameters, study).method
        return IdentityDecision if method in DECISIONS else IdentityResult

    def cost(self, study: Study) -> Guarantee:
        """Return what an owner spends: pure epsilon, or Gaussian noise for zcdp-gof."""
        return plan_of(study).guarantee

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked tables; None of one owner's."""
        return plan_of(study).shared

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say of masked tables what is gained and hidden, and what it costs."""
        return self.asked_of_masks(study)

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers the owner sends; 1 for a decision."""
        plan = plan_of(study)
        if plan.method in COUNTED:
            return plan.grid.size
        filtered = plan.method == "privit-laplace" and plan.parameters.clipping == "filter"
        return 1 + (plan.grid.size if filtered else 0)

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where even a distribution that has nothing in common with the known one could be missed."""
        plan = plan_of(study)
        if any(owner.name not in units for owner in study.owners):
            return ()
        count = sum(units[owner.name] for owner in study.owners)
        try:
            plan.check_units(count)
        except StudyError as error:
            return (f"{HOPELESS}{error}",)
        return _hopes(plan, count) + _caveats(plan, count)

    def summarise(
        self, study: Study, table: Table, order: np.random.Generator | None = None
    ) -> IdentitySummary:
        """Count the owner's units by cell, exactly, and draw the blocks of a decision.

        Blocks are drawn afresh, so that it does not matter in which order units are stored; ``order`` fixes
        them, for audits and simulations alone. Raises StudyError where there are too few units, or the data
        changed.
        """
        plan = plan_of(study)
        plan.check_units(table.units)
        counts = sum_cells(table, plan.grid)
        whole, rng = counts.steps >> COUNT_BITS, order or np.random.default_rng()
        if plan.method == "privit":
            return IdentitySummary(counts, plan.privit(table.units).draw(whole, rng))
        if plan.method == "repetition":
            blocks = plan.repetition.draw(whole, rng)
            rejections = plan.repetition.rejections(blocks, plan.parameters.replicates, plan.seed())
            return IdentitySummary(counts, rejections)
        return IdentitySummary(counts)

    def privatise(self, study: Study, summary: IdentitySummary, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states, or decide with it."""
        plan, counts = plan_of(study), summary.counts
        fields: dict[str, Any] = {"units": counts.units, "guarantee": plan.guarantee}
        try:
            if plan.method == "privit":
                blocks = None if summary.drawn is None else np.asarray(summary.drawn)
                return Release(decision=plan.privit(counts.units).decide(blocks, noise), **fields)
            if plan.method == "repetition":
                rejections = int(np.asarray(summary.drawn))
                return Release(decision=plan.repetition.decide(rejections, noise), **fields)
            return Release(vectors=_vectors(plan, counts, noise), **fields)
        except NoiseError as error:
            raise StudyError(str(error)) from None

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        plan = plan_of(study)
        _check_units(plan, release)
        if plan.method in COUNTED:
            plan.counted.check(release)
            return
        _check_shape(plan, release)
        if release.guarantee != plan.guarantee:
            raise ReleaseError("the release states another guarantee than the study")
        if plan.method == "privit-laplace":
            _check_statistic(plan, release)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, has not this study's cells and units."""
        plan = plan_of(study)
        _check_units(plan, release)
        plan.counted.read(release)

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return the noisy counts of an earlier study: of the same cells, or of finer ones, added up.

        Raises:
            StudyError: they are not, the earlier study released no counts, or counts with another noise.
        """
        plan = plan_of(study)
        if plan.method not in COUNTED:
            raise StudyError(f"{plan.method} reads no noisy counts: use mcgof or zcdp-gof")
        found = plan.counted.reread(source, release)
        if plan.method == "zcdp-gof" and plan.counted.read(found).noises[0].kind != "gaussian":
            raise StudyError("zcdp-gof reads Gaussian counts: use mcgof for these")
        return found

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        names = names_of(study) + (" together" if is_masked(study) else "")
        return decision_sentence(
            study,
            verdict,
            f"The categories of {names} do not follow the stated distribution",
            f"No departure from the stated distribution was shown: the categories of {names} may follow it",
        )

    def works(self, study: Study) -> tuple[Citation, ...]:
        """Return the works that the study's method comes from."""
        match study.parameters.get("method"):
            case "privit" | "privit-laplace" | "repetition":
                return (PRIVIT,)
            case "zcdp-gof":
                return (NEW_CLASS,)
            case _:
                return (CHI_SQUARED,)

    def rejections(
        self,
        study: Study,
        laws: Sequence[Floats],
        units: Sequence[int],
        lots: Sequence[int],
        rng: np.random.Generator,
    ) -> Floats | None:
        """Simulate studies by their statistics, or decisions; see ``SimulatedAtOnce``."""
        plan = plan_of(study)
        chosen, n, law = plan.parameters, units[0], laws[0]
        if plan.shared is not None or (chosen.samples, chosen.blocks) != (None, None):
            return None
        test = PlannedIdentity(
            plan.method,
            plan.probabilities,
            n,
            study.budget.epsilon,
            study.level,
            distance=chosen.distance,
            weights=chosen.weights,
            clipping=chosen.clipping,
        )
        if plan.method in DECISIONS:
            return np.concatenate([test.decisions(law, size, rng) for size in lots]).astype(np.float64)
        scores, draws = test.scores(), null_draws(study.level, chosen.replicates)
        if plan.method in COUNTED:
            fit = plan.fitted(n)
            scores = fit.scores
            if fit.by_chi_square(plan.null):
                found = scores(law, sum(lots), rng)
                return np.array([float(fit.chi_square_pvalue(one) <= study.level) for one in found])
        return shared_rejections(
            lambda size: scores(law, size, rng),
            lambda: scores(plan.probabilities, draws, rng),
            lots,
            study.level,
        )

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the verdict's, or the first of them."""
        if any(owner.name not in releases for owner in study.owners):
            return None
        plan, statistic = plan_of(study), float(verdict["statistic"])
        release = plan.read(releases)
        drawn = _draws(plan, release)
        if isinstance(drawn, int):
            return chi_square(drawn, statistic, study.level)
        return (
            None
            if drawn is None
            else from_draws(simulations(len(drawn), "data that follow it"), drawn, study.level)
        )

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return the cells with the largest residuals; none where no counts were released."""
        if any(owner.name not in releases for owner in study.owners):
            return []
        plan = plan_of(study)
        release = plan.read(releases)
        if not release.vectors or (COUNTS not in release.vectors and len(release.vectors) > 1):
            return []
        if plan.method == "privit-laplace":
            return []
        table = plan.counted.read(release)
        expected = table.units * plan.probabilities
        spread = np.sqrt(np.maximum(expected * (1 - plan.probabilities) + table.noise_variance, 1.0))
        residuals = {"": (table.counts - expected) / spread}
        return residual_panel("Cells against the distribution", plan.grid, residuals, {})

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan = plan_of(study)
        shared, units = plan.shared, {owner.name: releases[owner.name].units for owner in study.owners}
        caveats = () if shared is None else shared.caveats(self.masked_numbers)
        found = _found(plan, plan.read(releases), step(progress, "simulating the null distribution"))
        kind = IdentityDecision if plan.method in DECISIONS else IdentityResult
        return kind(
            **common_fields(study, units, None if shared is None else shared.own),
            cells=plan.grid.size,
            warnings=self.warnings(study, units) + caveats + reuse_warnings(study),
            **found,
        )


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


def _vectors(plan: IdentityPlan, counts: CellCounts, noise: NoiseSource) -> dict[str, NoisyVector]:
    if plan.method in COUNTED:
        return dict(plan.counted.privatise(counts, noise).vectors)
    clipped = plan.clipped(counts.units)
    value = float(clipped.statistic(counts.counts))
    vectors = {STATISTIC: plan.released(counts.units).release(value, noise)}
    if plan.parameters.clipping == "filter":
        vectors[COUNTS] = laplace_counts(counts.steps, COUNT_BITS, plan.guarantee, noise)
    return vectors


def _check_units(plan: IdentityPlan, release: Release) -> None:
    try:
        plan.check_units(release.units)
    except StudyError as error:
        raise ReleaseError(str(error)) from None


def _check_shape(plan: IdentityPlan, release: Release) -> None:
    decides = plan.method in DECISIONS
    expected = set() if decides else {STATISTIC}
    if plan.method == "privit-laplace" and plan.parameters.clipping == "filter":
        expected.add(COUNTS)
    if set(release.vectors) != expected or (release.decision is not None) != decides:
        raise ReleaseError("the release has not the numbers, or the decision, that the study asks for")


def _check_statistic(plan: IdentityPlan, release: Release) -> None:
    fixed, vector = plan.released(release.units), release.vectors[STATISTIC]
    same = vector.noise == "laplace" and abs(vector.scale / fixed.scale - 1) <= SCALE_TOLERANCE
    if not same or vector.exponent != -fixed.bits or len(vector.values) != 1:
        raise ReleaseError("the statistic has not the grid and the noise that the study fixes")
    if COUNTS in release.vectors:
        counts = release.model_copy(update={"vectors": {COUNTS: release.vectors[COUNTS]}})
        plan.counted.check(counts)


def _found(plan: IdentityPlan, release: Release, report: Callable[[float], None]) -> dict[str, Any]:
    """Return what the release tells, by field of the verdict."""
    if release.decision is not None:
        report(1.0)
        return {"method": _decision_method(plan, release.units), "reject": release.decision}
    draws = plan.parameters.replicates
    if plan.method == "privit-laplace":
        clipped, noisy = plan.clipped(release.units), release.vectors[STATISTIC]
        counted = release.vectors[COUNTS].mean(1) if COUNTS in release.vectors else None
        statistic = float(noisy.mean(1)[0])
        score = float(clipped.scores(statistic, counted))
        pvalue = clipped.pvalue(score, noisy.scale, draws, plan.seed(), report)
        words = f"Priv'IT, noisy statistic, {plan.parameters.clipping} clipping, {draws} simulations"
        return {"method": words} | decided(plan.study, statistic, pvalue)
    table = plan.counted.read(release)
    fit = plan.fitted(release.units, table.noises[0])
    fitted = fit.test(table.counts, plan.null, draws, plan.seed(), report)
    name = "zCDP-GOF" if plan.method == "zcdp-gof" else f"MCGOF, {fit.weights} weights"
    # What an owner spent: where they mask, by its own share of the noise.
    own = table.noises[0] if plan.shared is None else plan.counted.noise
    rho = own.scale**-2 if fit.noise.kind == "gaussian" else None
    found = {"method": f"{name}, {fit.noise.kind} counts, {fitted.null}", "rho": rho}
    return found | decided(plan.study, fitted.statistic, fitted.pvalue)


def _decision_method(plan: IdentityPlan, units: int) -> str:
    if plan.method == "repetition":
        return f"chi-square test repeated on {plan.repetition.blocks} blocks, private decision"
    found = plan.privit(units)
    return (
        f"Priv'IT, {found.blocks} blocks of {found.instance.samples:.6g} units on average, private decision"
    )


def _hopes(plan: IdentityPlan, units: int) -> tuple[str, ...]:
    """Compare the largest signal there can be, all units in one cell, with what noise alone does."""
    hopeless = (
        f"{HOPELESS}even a wholly different distribution would be missed; ask for more units or epsilon"
    )
    if plan.method in COUNTED:
        spread = math.sqrt(2 * plan.grid.size) * plan.fitted(units).noise.variance
        return (hopeless,) if units**2 < 2 * spread else ()
    if plan.method == "privit-laplace":
        clipped = plan.clipped(units)
        noise = plan.released(units).scale * math.log(1 / (2 * plan.study.level))
        return (hopeless,) if clipped.largest < noise else ()
    return ()


def _caveats(plan: IdentityPlan, units: int) -> tuple[str, ...]:
    if plan.method == "repetition":
        return ("repetition is a baseline: every other method sees more",)
    if plan.null == "chi-square" and not plan.fitted(units).chi_square_holds:
        return ("cells are too rare for the chi-square distribution: the level may be broken",)
    return ()


def _draws(plan: IdentityPlan, release: Release) -> npt.NDArray[np.float64] | int | None:
    """Return simulated statistics, or the degrees of freedom where the null is chi-squared."""
    replicates = affordable(plan.parameters.replicates, plan.grid.size)
    seeds = plan.seed().spawn(replicates or 0)
    if plan.method not in COUNTED:
        clipped, scale = plan.clipped(release.units), release.vectors[STATISTIC].scale
        draws = [clipped.simulate(np.random.default_rng(seed), scale, 1)[0] for seed in seeds]
        return np.array(draws) if draws else None
    fit = plan.fitted(release.units, plan.counted.read(release).noises[0])
    exact = plan.null == "auto" and fit.weights == "noise-aware" and fit.chi_square_holds
    if plan.null == "chi-square" or exact:
        return len(plan.probabilities) - 1
    if not seeds:
        return None
    return np.array([float(fit.statistic(fit.simulate(np.random.default_rng(seed)))) for seed in seeds])
