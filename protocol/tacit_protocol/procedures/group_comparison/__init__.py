"""Comparison of two to eight groups that exist within every owner, whom nobody needs to trust.

Every owner releases sums of bounded features over the units of each group, in one joint Gaussian release; or,
in pure epsilon, sums of fewer features in Laplace noise. The tester asks of every column whether groups
differ *within* owners, so that what differs between owners neither makes a difference nor hides one; and by
how much, in the column's own units.

Where one owner holds the group and another the outcomes of the same units, the first releases one randomised
answer a unit, the other noisy sums by answer: effects are of groups, with the answers' noise taken out.
Derivations: docs/mathematics/group-comparison.md.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn, Table
from tacit_protocol.features.moments import MEAN, FeatureSums
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.inference import Effects, estimated, holm, laplace_widening
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SensitivityError
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    SumsOfOwners,
    common_fields,
    decided,
    public_seed,
    require_noise,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
)
from tacit_protocol.procedures.counts.unlisted import (
    NO_PART,
    LeftOut,
    left_out_warnings,
    unlisted_words,
)
from tacit_protocol.procedures.group_comparison.release import (
    ANSWERED_SQUARE,
    SQUARES,
    GroupCells,
    GroupComparisonParameters,
    GroupComparisonPlan,
    GroupFeatures,
    fitting_noise,
    masked_plan,
    plan_beside,
    plan_of,
)
from tacit_protocol.procedures.group_comparison.statistic import (
    CELL_DRAWS,
    AnsweredBlock,
    Compared,
    NoisyCells,
    OwnerGroupSums,
    answered_mean_difference,
    answered_risk_effects,
    compare,
    compare_answered,
    compare_cells,
    compare_masked,
    deviation,
    mean_difference,
    risk_effects,
    variance_ratio,
)
from tacit_protocol.procedures.masking import SharedNoise, is_masked
from tacit_protocol.procedures.populations import (
    Columns,
    Difference,
    Held,
    SimulationModel,
    draw_rows,
    with_effect,
    with_standard_effect,
)
from tacit_protocol.procedures.randomised_answers.answered_column import (
    AnswerCounts,
    AnsweredColumnPlan,
    BesideAnswers,
    OwnCodes,
    OwnSums,
)
from tacit_protocol.procedures.within_owners import (
    BY_OWNER_MAX,
    COCHRAN,
    FIELLER,
    STATED_MAX,
    TOLD,
    WITHIN_ALONE,
    PairSums,
    ReadPairs,
    TestedPart,
    WithinOwnersVerdict,
    bounds_warning,
    smallest,
    visible,
)
from tacit_protocol.verdicts.base import BaseVerdict, Effect, ShownTable, compared_shown, effects_of, forest
from tacit_protocol.verdicts.presentation import Citation, Meaning, RowsPanel, decision_sentence, joined


class ComparedColumn(TestedPart):
    """One column, compared between groups within owners: in its means, spreads, shape, or shares of levels.

    Attributes:
        column: its name.
    """

    column: str

    @property
    def named(self) -> str:
        """The column's name."""
        return self.column


NULL_STREAM = 5
"""Spawn key, under the study's seed, of the simulated null distributions of sums by answer."""


class GroupComparisonResult(WithinOwnersVerdict):
    """Whether groups differ within owners, in which columns, by how much. Unpacks into ``statistic, pvalue``.

    Groups are compared with the first one listed. Numbers outside a column's bounds count as the bound, so
    that means and spreads are of the clipped values. Intervals are each of confidence 1 - alpha, and count
    sampling and noise; an estimate and its interval are None where the noisy numbers allow any value.

    Attributes:
        statistic: of the column that differs most surely.
        pvalue: the smallest of the columns' p-values, adjusted for all of them (Holm).
        columns: every column's p-value, in the study's order of numeric and categorical columns.
        effects: what owners have in common: of a numeric column the mean difference and the ratio of standard
            deviations, of a level of a categorical one the risk difference and the odds ratio.
        effects_by_owner: every owner's own mean differences and risk differences.
        heterogeneity_pvalue: that owners have all these differences in common: the smallest of the columns',
            adjusted for their number; None of one owner.
    """

    parted: ClassVar[str] = "columns"
    found: ClassVar[tuple[str, str]] = (
        "the groups DIFFER within owners",
        "no difference within owners shown",
    )
    found_of_part: ClassVar[tuple[str, str]] = ("differ", "no difference shown")
    in_common: ClassVar[str] = "differences"

    columns: Annotated[tuple[ComparedColumn, ...], compared_shown("columns")]

    def __str__(self) -> str:
        decision = "the groups differ within owners" if self.reject else "no difference shown"
        return self._told(
            "; ".join([self._decided(decision), *differences_sentence(self.effects, self.columns)])
        )


class AnsweredGroupsResult(GroupComparisonResult):
    """Whether groups that one owner knows differ in what another owner knows of the same units, by how much.

    Groups are compared with the first one listed; a unit of no listed group counts as one of each in equal
    parts. Effects are of the groups themselves: the randomness of the answers is taken out, and intervals
    count it with sampling and noise.

    Attributes:
        retention: the probability that an answer is the unit's own group and not drawn blindly.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    found: ClassVar[tuple[str, str]] = ("the groups DIFFER", "no difference between the groups shown")

    retention: float
    aligned: bool

    def __str__(self) -> str:
        decision = "the groups differ" if self.reject else "no difference shown"
        return self._told(
            "; ".join([self._decided(decision), *differences_sentence(self.effects, self.columns)])
        )

    def details(self) -> Sequence[str | ShownTable]:
        """Return nothing more: no owner has effects of its own."""
        return ()


def differences_sentence(effects: Sequence[Effect], columns: Sequence[ComparedColumn]) -> list[str]:
    """Say in words how groups differ, and by how much: in the columns that differ, or in all."""
    found = {own.column for own in columns if own.reject} or {own.column for own in columns}
    said = []
    for effect in effects:
        if effect.column not in found or not effect.kind.endswith("difference"):
            continue
        what = "mean" if effect.level is None else f"share of {effect.level}"
        first, second = effect.groups
        larger = effect.larger(what)
        if larger is None:
            said.append(
                f"{effect.column}: how the {what} differs between {first} and {second} cannot be said"
            )
            continue
        said.append(f"{effect.column}: {larger} in {first} than in {second}")
    return said[:TOLD]


@dataclass(frozen=True)
class ComparedGroup:
    """A group against the first one, in a column or a level of it: its effects by kind, of all owners."""

    column: Column
    groups: tuple[str, str]
    level: str | None
    effects: Mapping[str, Effects]

    @property
    def difference(self) -> str:
        """The kind that is a difference."""
        return next(kind for kind in self.effects if kind.endswith("difference"))

    def stated(self, kind: str, alpha: float, owner: str | None = None, place: int = 0) -> Effect:
        """Return an effect as a verdict states it: of all owners, or of one, the ``place``-th."""
        found, column = self.effects[kind], self.column
        scale, unit = 1.0, "share of units" if kind == "risk difference" else ""
        if isinstance(column, NumericColumn) and kind == "mean difference":
            scale, unit = column.upper - column.lower, f"units of {column.name}"
        told_as = estimated(found if owner is None else found.owner(place), alpha, kind, scale)
        return Effect(
            column=column.name,
            kind=kind,
            groups=self.groups,
            estimate=told_as.value,
            lower=told_as.lower,
            upper=told_as.upper,
            unit=unit,
            level=self.level,
            owner=owner,
        )


class GroupShift(Difference):
    """Rows of owners in all of whose groups but the first the first outcome is larger, or those named are."""

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw every owner's rows: groups, and apart from them what is compared."""
        return [self._rows(size, rng) for size in sizes]

    def words(self) -> str:
        """Say by how much which columns differ."""
        plan = plan_of(self.study)
        where = f"in other groups than {plan.group.levels[0]}"
        if self._moves:
            return f"{super().words()} {where}"
        return f"{plan.outcomes[0].name} larger by {self.size:.3g} standard deviations {where}"

    def _rows(self, size: int, rng: np.random.Generator) -> Columns:
        plan, domain = plan_of(self.study), self.study.domain
        outcomes = domain.model_copy(update={"columns": plan.outcomes})
        rows = dict(draw_rows(self.public, domain, size, rng))
        group = draw_rows(self.public, domain, size, rng)[plan.group.name]
        if self._moves:
            moved = with_effect(rows, self.public, outcomes, self._shift, self._scale)
        else:
            moved = with_standard_effect(rows, self.public, outcomes, self.size, rng)
        other = np.array([str(value) != plan.group.levels[0] for value in group])
        found = {
            column.name: np.where(other, moved[column.name], rows[column.name]) for column in plan.outcomes
        }
        return rows | found | {plan.group.name: group}


class GroupComparison(SumsOfOwners, BesideAnswers):
    """See the module. Registered as ``group_comparison``."""

    name: ClassVar[str] = "group_comparison"
    title: ClassVar[str] = "Do groups differ in numbers and categories, within every owner?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = GroupComparisonParameters
    Verdict: ClassVar[type[BaseVerdict]] = GroupComparisonResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = AnsweredGroupsResult
    released: ClassVar[str] = "sums of bounded features over its units of each group"
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do groups (men and women, cases and controls) differ in numbers, within every owner?",
        r"groups|men and women|women and men|cases and controls|mean difference|average",
        "one or more",
        rank=6,
    )
    population: ClassVar[type[SimulationModel] | None] = GroupShift
    masked_numbers: ClassVar[str] = "covariances within owners"

    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"noise": "laplace"})

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise that suits numbers of units; without them, Laplace's where there is no delta."""
        if "noise" in study.parameters or study.columns_apart or is_masked(study):
            return {}
        if units is not None and (fitting := fitting_noise(study, min(units.values()))):
            return fitting
        return {} if study.budget.delta_pico else {"noise": "laplace"}

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        if self.beside(study) is not None:
            return
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        plan, masked = plan_of(study), masked_plan(study)
        if plan.pure and masked is None:
            # Of each group and cell the noise, and the sampling of what the cells' contrasts are.
            require_work(2 * len(study.owners) * self.release_size(study), CELL_DRAWS)
        if masked is None:
            require_noise(lambda: plan.require_drawable(1))
        else:
            masked.require_drawable()

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked covariances; None where every owner's sums are read by themselves."""
        masked = masked_plan(study)
        return None if masked is None else masked.shared

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where these numbers of units, by owner, do not suit the study."""
        super().check_units(study, units)
        self.require_room(study, units)
        if self.beside(study) is None and masked_plan(study) is None:
            for count in units.values():
                require_noise(partial(plan_of(study).require_drawable, count))

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the whole budget in one joint release, or epsilon alone."""
        if (plan := self.beside(study)) is not None:
            return plan.costs[plan.sender.name]
        if (shared := self.shared_noise(study)) is not None:
            return shared.own
        return plan_of(study).guarantee

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends; of answers, at most."""
        if (plan := self.beside(study)) is not None:
            return plan.release_size
        if (masked := masked_plan(study)) is not None:
            return masked.pairs.numbers
        return plan_of(study).release.numbers

    def test_of_ranks(self, study: Study) -> str | None:
        """Name that of two groups, or of more."""
        if self.beside(study) is not None:
            return None
        return "mann_whitney" if len(plan_of(study).group.levels) == 2 else "kruskal_wallis"

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns groups at these numbers of units."""
        if (beside := self.beside(study)) is not None:
            return beside.warnings(units)
        if not units:
            return ()
        plan = plan_of(study)
        advice = "ask for more units, a larger epsilon, or fewer columns"
        groups = plan.features.groups
        # Groups of one size that differ by as much as they can, against the noise of what tells it.
        most = sum(units.values()) / groups**2
        if (masked := masked_plan(study)) is not None:
            hidden = most < -float(ndtri(study.level / 2)) * masked.least_noise()
            words = (
                f"{HOPELESS}groups could differ by all that bounds allow and noise would hide it; {advice}"
            )
            return (words,) if hidden and len(units) == len(study.owners) else ()
        noise = plan.noise(max(units.values()))
        if most < -2 * float(ndtri(study.level / 2)) * noise * (len(units) / groups) ** 0.5:
            return (
                f"{HOPELESS}groups could differ by all that bounds allow and noise would hide it; {advice}",
            )
        drowned = [name for name, count in units.items() if count < 2 * groups * noise]
        if not drowned:
            return ()
        return (f"noise hides the size of an average group at {', '.join(drowned)}; {advice}",)

    def summarise(self, study: Study, table: Table) -> FeatureSums | OwnCodes | OwnSums | PairSums:
        """Sum the units' features, or read the sender's groups, exactly. They never leave the owner."""
        if (plan := self.beside(study)) is not None:
            return plan.summarise(table)
        if (masked := masked_plan(study)) is not None:
            return masked.pairs.sum(table)
        return plan_of(study).release.sum(table)

    def privatise(
        self, study: Study, summary: FeatureSums | OwnCodes | OwnSums | PairSums, noise: NoiseSource
    ) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums; or draw answers."""
        if isinstance(summary, OwnCodes | OwnSums):
            return self._plan_beside(study).privatise(summary, noise)
        masked = masked_plan(study)
        if isinstance(summary, PairSums) or masked is not None:
            if masked is None or not isinstance(summary, PairSums):
                raise TypeError("the summary is that of another study")
            return masked.release(summary, noise)
        plan = plan_of(study)
        try:
            vectors = plan.privatise(summary, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None
        return Release(units=summary.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes.

        In two rounds it is the receiver's: the sums by answer.
        """
        if (beside := self.beside(study)) is not None:
            beside.check_release(release)
            return
        if (masked := masked_plan(study)) is not None:
            masked.check(release)
            return
        plan = plan_of(study)
        try:
            plan.check(release)
        except (LayoutError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
        """Return a release as it is, where it was made for the same columns, groups and budget; or answers.

        Raises:
            StudyError: it was not; says which of them to make the same.
        """
        if (plan := self.beside(study)) is not None and owner.name == plan.sender.name:
            return plan.reread(owner, source, release)
        if source.procedure != self.name:
            raise StudyError(f"{self.name} reads releases of {self.name}, no others")
        if source.domain != study.domain:
            raise StudyError("the reused release was made for other columns, bounds or levels")
        if source.budget != study.budget:
            raise StudyError(
                "the reused release was made with another budget; use the same epsilon and delta"
            )
        if plan_of(source).group != plan_of(study).group:
            raise StudyError("the reused release was made for other groups; name the same column")
        if plan_of(source).pure != plan_of(study).pure:
            raise StudyError("the reused release was made with another noise; use the same")
        if plan_of(source).features.width != plan_of(study).features.width:
            raise StudyError("the reused release was made for other numbers of units; declare the same")
        return release

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say who is compared in what."""
        if (beside := self.beside(study)) is not None:
            outcomes = joined([column.name for column in beside.own.columns], 6)
            return (
                f"compares {outcomes} of {beside.receiver.name} between {beside.column.name}, of which "
                f"{beside.sender.name} releases randomised answers",
            )
        plan = plan_of(study)
        outcomes = joined([column.name for column in plan.outcomes], 6)
        asked = f"compares {outcomes} between {plan.group.name}, within owners"
        if not plan.pure:
            return (asked, *self.asked_of_masks(study))
        why = "there is no delta" if study.budget.delta_pico == 0 else "few numbers carry less noise so"
        return (asked, f"releases soft cells in Laplace noise of pure epsilon: {why}")

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        columns = [ComparedColumn.model_validate(own, strict=False) for own in verdict.get("columns", ())]
        found = joined([own.column for own in columns if own.reject] or ["some column"], 6)
        within = "" if self.beside(study) is not None else ", within owners"
        said = decision_sentence(
            study,
            verdict,
            f"The groups differ in {found}{within}",
            f"No difference between the groups{within}{within and ','} was shown: they may be alike",
        )
        words = "; ".join(differences_sentence(effects_of(verdict.get("effects", ())), columns))
        return Meaning(
            f"{said.sentence} {words[0].upper()}{words[1:]}." if words else said.sentence, said.care
        )

    def works(self, study: Study) -> tuple[Citation, ...]:  # noqa: ARG002
        """Return the works that the study's method comes from."""
        return (COCHRAN, FIELLER)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots: the owners' effects, and those that they have in common."""
        stated = effects_of([*verdict["effects_by_owner"], *verdict["effects"]])
        return forest([effect for effect in stated if effect.kind.endswith("difference")], study.level)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> GroupComparisonResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        if (beside := self.beside(study)) is not None:
            return self.conclude_beside(beside, releases, progress)
        plan, names = plan_of(study), [owner.name for owner in study.owners]
        if (masked := masked_plan(study)) is not None:
            places, found = _places(plan), masked.read(releases)
            return GroupComparisonResult(
                method=f"masked {_method(plan, len(names))}",
                **self._stated(
                    study,
                    releases,
                    (plan.outcomes, _masked_tests(plan, found, places)),
                    lambda place: _masked_comparisons(plan, plan.outcomes[place], found, places[place]),
                    lambda place: found.deviation(places[place][0]),
                ),
            )
        read = [releases[name] for name in names]
        if plan.pure:
            cells, tests = list(_cells(plan, read)), []
            report = step(progress, "testing columns", 0.0, 0.5)
            for place, own in enumerate(cells):
                report(place / len(cells))
                tests.append(compare_cells(own, public_seed(study, NULL_STREAM, place)))
            widening = laplace_widening(study.level)
            blocks = [[owner.block(widening) for owner in own] for own in cells]
        else:
            blocks = list(_blocks(plan, read))
            tests = [compare(own) for own in blocks]
        sizes = cells if plan.pure else blocks
        if progress is not None:
            progress(0.5, "estimating effects")
        return GroupComparisonResult(
            method=_method(plan, len(names)),
            **self._stated(
                study,
                releases,
                (plan.outcomes, tests),
                lambda place: _comparisons(plan, plan.outcomes[place], blocks[place]),
                lambda place: deviation(blocks[place]),
                left_out=list(_left_out(plan, names, sizes)),
            ),
        )

    # A group that another owner holds.

    def beside(self, study: Study) -> AnsweredColumnPlan | None:
        """Return what a study fixes whose group another owner holds; None where all hold all columns."""
        return plan_beside(study)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return the type of a study's verdict."""
        return self.Verdict if self.beside(study) is None else self.RelayedVerdict

    def what_is_released(self, study: Study) -> str:
        """Say what a study's senders compute and release, in the words of a paper's methods."""
        if (plan := self.beside(study)) is None:
            pure = plan_of(study).pure
            return "sums of soft cells over its units of each group" if pure else self.released
        return (
            f"at {plan.sender.name} one randomised answer of every unit to which group it is in, at "
            f"{plan.receiver.name} sums of bounded features over the units of each answer"
        )

    def conclude_beside(
        self, plan: AnsweredColumnPlan, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> AnsweredGroupsResult:
        """Compute the verdict from the answers and the sums beside them."""
        study, known = plan.study, plan.known(releases)
        outcomes: tuple[Column, ...] = (*plan.own.numeric, *plan.own.categorical)
        blocks = list(_answered_blocks(plan, known))
        tests = [
            compare_answered(own, public_seed(study, NULL_STREAM, place)) for place, own in enumerate(blocks)
        ]
        if progress is not None:
            progress(0.5, "estimating effects")
        return AnsweredGroupsResult(
            method=(
                f"score test beside randomised answers of {plan.sender.name} to {plan.codes} groups, noise "
                f"counted, in {len(outcomes)} column{'' if len(outcomes) == 1 else 's'}, Holm's correction"
                + ("" if study.alignment is None else ", aligned units")
            ),
            **self._stated(
                study,
                releases,
                (outcomes, tests),
                lambda place: _answered_comparisons(plan, outcomes[place], blocks[place]),
                lambda place: blocks[place].deviation(),
                left_out=list(_left_out_beside(plan, known, outcomes, blocks)),
            ),
            retention=known.kept,
            aligned=study.alignment is not None,
        )

    def _stated(
        self,
        study: Study,
        releases: Mapping[str, Release],
        tested: tuple[Sequence[Column], Sequence[Compared]],
        comparisons_of: Callable[[int], Iterable[ComparedGroup]],
        deviation_of: Callable[[int], tuple[float, bool]],
        *,
        left_out: Sequence[LeftOut] = (),
    ) -> dict[str, Any]:
        """Return a verdict's fields: of the columns and their tests, of each one's comparisons and spread."""
        (outcomes, tests), units = tested, {o.name: releases[o.name].units for o in study.owners}
        beside, shared = self.beside(study), self.shared_noise(study)
        caveats = () if beside is None else beside.caveats
        if shared is not None:
            caveats = shared.caveats(self.masked_numbers, WITHIN_ALONE)
        pvalues = np.array([test.pvalue for test in tests])
        adjusted = holm(pvalues)
        order = np.argsort(pvalues, kind="stable")
        comparisons: list[ComparedGroup] = []
        common: dict[int, float | None] = {}
        drowned: list[str] = []
        for place in order:
            own = list(comparisons_of(int(place)))
            common[int(place)] = smallest([c.effects[c.difference].heterogeneity() for c in own])
            comparisons += own[: STATED_MAX - len(comparisons)]
            if isinstance(column := outcomes[place], NumericColumn) and adjusted[place] > study.level:
                test = self.test_of_ranks(study)
                drowned += _drowned(study.level, column, own, deviation_of(int(place)), test)
        best = int(order[0])
        # Of one effect at two owners none is an owner's.
        alone = [] if beside or shared else comparisons[: BY_OWNER_MAX // len(units)]
        return {
            **decided(study, tests[best].statistic, float(adjusted[best])),
            **common_fields(study, units, None if shared is None else shared.own),
            "warnings": (
                *left_out_warnings(left_out, study.level),
                *drowned,
                *self.warnings(study, units),
                *caveats,
                *reuse_warnings(study),
            ),
            "columns": tuple(
                ComparedColumn(
                    column=column.name,
                    statistic=test.statistic,
                    pvalue=float(pvalue),
                    reject=bool(pvalue <= study.level),
                    heterogeneity_pvalue=common[place],
                )
                for place, (column, test, pvalue) in enumerate(zip(outcomes, tests, adjusted, strict=True))
            ),
            "effects": tuple(c.stated(kind, study.level) for c in comparisons for kind in c.effects),
            "effects_by_owner": tuple(
                c.stated(c.difference, study.level, name, place)
                for c in alone
                for place, name in enumerate(units)
            ),
            "heterogeneity_pvalue": smallest(list(common.values())),
        }


def _drowned(
    level: float,
    column: NumericColumn,
    comparisons: Sequence[ComparedGroup],
    spread: tuple[float, bool],
    test: str | None,
) -> list[str]:
    """Say which differences of a column's means could not be seen, of a standard deviation or more.

    ``spread`` is the standard deviation of T1, or the most it may be, and whether it is known; ``test`` that
    of ranks.
    """
    width = column.upper - column.lower
    stated = [own.stated(own.difference, level) for own in comparisons]
    halves = [(e.upper - e.lower) / 2 for e in stated if e.upper is not None and e.lower is not None]
    size = visible(min(halves, default=math.inf), level)
    unseen = "a difference of its mean " + ("of any size" if size >= width else f"below about {size:.2g}")
    found = bounds_warning(column, spread, unseen, test, large=size >= spread[0] * width / 2)
    return [] if found is None else [found]


OR_MISSING = ", or none"


def _left_out(
    plan: GroupComparisonPlan, names: Sequence[str], columns: Sequence[Sequence[OwnerGroupSums | NoisyCells]]
) -> Iterator[LeftOut]:
    """Yield every owner's units in no listed group, and those in one whose outcome is not listed.

    A number's sizes count the units of listed groups; a category's those that have a listed level besides.
    """
    numeric = next((own for own in columns if own[0].numeric), None)
    for column, own in zip(plan.outcomes, columns, strict=True):
        for place, (owner, block) in enumerate(zip(names, own, strict=True)):
            units = float(block.units)
            noises: tuple[CellNoise, ...] = (block.size_noise,)
            if isinstance(column, NumericColumn):
                what = unlisted_words(plan.group, OR_MISSING)
                if own is not numeric:
                    continue
            else:
                what = unlisted_words(column, OR_MISSING)
                if numeric is None:
                    what = f"{unlisted_words(plan.group)} or {what}"
                else:
                    units = float(numeric[place].sizes.sum())
                    noises += (numeric[place].size_noise,)
            yield LeftOut(owner, what, NO_PART, units - float(block.sizes.sum()), block.units, noises)


def _left_out_beside(
    plan: AnsweredColumnPlan, known: AnswerCounts, outcomes: Sequence[Column], blocks: Sequence[AnsweredBlock]
) -> Iterator[LeftOut]:
    """Yield the units of the owner that sums by answers whose outcome is not listed."""
    units = known.units
    for column, block in zip(outcomes, blocks, strict=True):
        if isinstance(column, CategoricalColumn):
            noise = CellNoise("laplace", known.noise).of_sums(block.sums.size)
            what = unlisted_words(column, OR_MISSING)
            yield LeftOut(plan.receiver.name, what, NO_PART, units - float(block.sums.sum()), units, (noise,))


def _answered_blocks(plan: AnsweredColumnPlan, known: AnswerCounts) -> Iterator[AnsweredBlock]:
    """Yield every column's noisy sums by answer, in features' own units."""
    start, sums = 0, known.sums.reshape(plan.codes, -1)
    columns: tuple[Column, ...] = (*plan.own.numeric, *plan.own.categorical)
    for column in columns:
        numeric = isinstance(column, NumericColumn)
        weights = np.array([1.0, ANSWERED_SQUARE])
        if isinstance(column, CategoricalColumn):
            weights = np.ones(len(column.levels))
        own = sums[:, start : start + len(weights)] / weights
        yield AnsweredBlock(known.answers, own, known.noise / weights, known.kept, numeric)
        start += len(weights)


def _answered_comparisons(
    plan: AnsweredColumnPlan, column: Column, block: AnsweredBlock
) -> Iterator[ComparedGroup]:
    """Yield a column's comparisons of every group with the first."""
    names = plan.column.levels
    for first in range(1, len(names)):
        groups = (names[first], names[0])
        if isinstance(column, NumericColumn):
            difference = answered_mean_difference(block, first, 0)
            yield ComparedGroup(column, groups, None, {"mean difference": difference})
            continue
        for level in _events(column):
            difference, odds = answered_risk_effects(block, first, 0, level)
            effects = {"risk difference": difference, "odds ratio": odds}
            yield ComparedGroup(column, groups, column.levels[level], effects)


def _places(plan: GroupComparisonPlan) -> list[range]:
    """Return the places of every column's pairs: of two levels the last one alone is a pair."""
    found, start = [], 0
    for column in plan.outcomes:
        count = len(SQUARES) if isinstance(column, NumericColumn) else len(_events(column))
        found.append(range(start, start + count))
        start += count
    return found


def _masked_tests(plan: GroupComparisonPlan, found: ReadPairs, places: Sequence[range]) -> list[Compared]:
    pairs = zip(plan.outcomes, places, strict=True)
    return [compare_masked(found, own, numeric=isinstance(column, NumericColumn)) for column, own in pairs]


def _masked_comparisons(
    plan: GroupComparisonPlan, column: Column, found: ReadPairs, places: range
) -> Iterator[ComparedGroup]:
    """Yield a column's comparisons of the second group with the first, of all owners together."""
    groups = (plan.group.levels[1], plan.group.levels[0])
    if isinstance(column, NumericColumn):
        yield ComparedGroup(
            column, groups, None, {"mean difference": Effects.single(*found.slope(places[0]))}
        )
        return
    for place, level in zip(places, _events(column), strict=True):
        difference = Effects.single(*found.slope(place))
        yield ComparedGroup(column, groups, column.levels[level], {"risk difference": difference})


def _cells(plan: GroupComparisonPlan, releases: Sequence[Release]) -> Iterator[list[NoisyCells]]:
    """Yield every column's noisy cells, owner by owner."""
    read = [
        (own.units, own.vectors[MEAN].mean(1).reshape(plan.features.groups, -1), own.vectors[MEAN].scale)
        for own in releases
    ]
    start, each = 0, plan.features.cells if isinstance(plan.features, GroupCells) else 0
    for column in plan.outcomes:
        numeric = isinstance(column, NumericColumn)
        stop = start + (len(column.levels) if isinstance(column, CategoricalColumn) else each)
        yield [NoisyCells(units, cells[:, start:stop], scale, numeric) for units, cells, scale in read]
        start = stop


def _blocks(plan: GroupComparisonPlan, releases: Sequence[Release]) -> Iterator[list[OwnerGroupSums]]:
    """Yield every column's noisy numbers, owner by owner."""
    features, width = plan.features, len(SQUARES)
    if not isinstance(features, GroupFeatures):
        raise TypeError("soft cells are read by _cells")
    read = [
        (
            release.units,
            release.vectors[MEAN].scale,
            release.vectors[MEAN].mean(1).reshape(features.groups, -1),
        )
        for release in releases
    ]
    start = int(features.count_scale > 0)
    for column in plan.outcomes:
        found = []
        if isinstance(column, NumericColumn):
            for units, scale, sums in read:
                own = sums[:, start : start + width] / features.scales
                sizes, noise = sums[:, 0] / features.count_scale, (scale / features.count_scale) ** 2
                found.append(
                    OwnerGroupSums(units, sizes, own, noise, (scale / features.scales) ** 2, numeric=True)
                )
            start += width
        else:
            levels = len(column.levels)
            for units, scale, sums in read:
                own = sums[:, start : start + levels] / features.indicator
                each = np.full(levels, (scale / features.indicator) ** 2)
                found.append(
                    OwnerGroupSums(units, own.sum(axis=1), own, float(each.sum()), each, numeric=False)
                )
            start += levels
        yield found


def _comparisons(
    plan: GroupComparisonPlan, column: Column, blocks: Sequence[OwnerGroupSums]
) -> Iterator[ComparedGroup]:
    """Yield a column's comparisons of every group with the first; of two levels the last one is the event."""
    names = plan.group.levels
    for first in range(1, len(names)):
        groups = (names[first], names[0])
        if isinstance(column, CategoricalColumn):
            for level in _events(column):
                difference, odds = risk_effects(blocks, first, 0, level)
                effects = {"risk difference": difference, "odds ratio": odds}
                yield ComparedGroup(column, groups, column.levels[level], effects)
        else:
            effects = {"mean difference": mean_difference(blocks, first, 0)}
            if not plan.pure:  # the ratio's interval needs fourth moments, which soft cells do not tell
                effects["standard deviation ratio"] = variance_ratio(blocks, first, 0)
            yield ComparedGroup(column, groups, None, effects)


def _events(column: CategoricalColumn) -> range:
    """Return the places of the levels whose shares are compared: of two, the last one."""
    return range(1, 2) if len(column.levels) == 2 else range(len(column.levels))


def _method(plan: GroupComparisonPlan, owners: int) -> str:
    columns = len(plan.outcomes)
    counted = "Laplace noise in its simulated null" if plan.pure else "noise counted"
    return (
        f"score test of {plan.features.groups} groups within {owners} owner{'' if owners == 1 else 's'}, "
        f"{counted}, in {columns} column{'' if columns == 1 else 's'}, Holm's correction"
    )
