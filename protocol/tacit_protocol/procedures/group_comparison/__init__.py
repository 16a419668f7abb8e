"""Comparison of two to eight groups that exist within every owner, whom nobody needs to trust.

Every owner releases sums of bounded features over the units of each group, in one joint Gaussian release.
The tester asks of every column whether groups differ *within* owners, so that what differs between owners
neither makes a difference nor hides one; and by how much, in the column's own units.
Derivations: docs/mathematics/group-comparison.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn, Table
from tacit_protocol.features.moments import MEAN, FeatureSums
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.inference import Effects, estimated, holm
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SensitivityError,
    check_layout,
    noise_scales,
    release_sums,
)
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    Question,
    ReleaseError,
    Releases,
    StudyError,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.group_comparison.release import (
    SQUARES,
    GroupComparisonParameters,
    Plan,
    plan_of,
)
from tacit_protocol.procedures.group_comparison.statistic import (
    Block,
    compare,
    mean_difference,
    risk_effects,
    variance_ratio,
)
from tacit_protocol.procedures.populations import (
    Columns,
    Difference,
    Held,
    Population,
    draw_rows,
    with_effect,
    with_standard_effect,
)
from tacit_protocol.procedures.within_owners import (
    BY_OWNER_MAX,
    COCHRAN,
    FIELLER,
    STATED_MAX,
    TOLD,
    TestedPart,
    WithinOwnersVerdict,
    smallest,
)
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.effects import Effect, effects_of, forest
from tacit_protocol.verdicts.presentation import Meaning, RowsPanel, Work, either, joined


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

    columns: tuple[ComparedColumn, ...]

    def __str__(self) -> str:
        decision = "the groups differ within owners" if self.reject else "no difference shown"
        return self._told("; ".join([self._decided(decision), *told(self.effects, self.columns)]))


def told(effects: Sequence[Effect], columns: Sequence[ComparedColumn]) -> list[str]:
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
class Comparison:
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


class GroupComparison(Procedure):
    """See the module. Registered as ``group_comparison``."""

    name: ClassVar[str] = "group_comparison"
    title: ClassVar[str] = "Do groups differ in numbers and categories, within every owner?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = GroupComparisonParameters
    Verdict: ClassVar[type[BaseVerdict]] = GroupComparisonResult
    released: ClassVar[str] = "sums of bounded features over its units of each group"
    question: ClassVar[Question | None] = Question(
        "Do groups (men and women, cases and controls) differ in numbers, within every owner?",
        r"groups|men and women|women and men|cases and controls|mean difference|average",
        "one or more",
        rank=6,
    )
    population: ClassVar[type[Population] | None] = GroupShift

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        plan_of(study)

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one joint Gaussian release."""
        return plan_of(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends."""
        return plan_of(study).release.numbers

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns groups at these numbers of units."""
        if not units:
            return ()
        plan = plan_of(study)
        advice = "ask for more units, a larger epsilon, or fewer columns"
        scale = noise_scales(plan.release.parts(max(units.values())), plan.guarantee)[MEAN]
        noise = scale / min(plan.features.indicator, float(plan.features.scales[0]))
        groups = plan.features.groups
        # Groups of one size that differ by as much as they can, against the noise of what tells it.
        most = sum(units.values()) / groups**2
        if most < -2 * float(ndtri(study.level / 2)) * noise * (len(units) / groups) ** 0.5:
            return (
                f"{HOPELESS}groups could differ by all that bounds allow and noise would hide it; {advice}",
            )
        drowned = [name for name, count in units.items() if count < 2 * groups * noise]
        if not drowned:
            return ()
        return (f"noise hides the size of an average group at {', '.join(drowned)}; {advice}",)

    def summarise(self, study: Study, table: Table) -> FeatureSums:
        """Sum the units' features, exactly. The sums never leave the owner."""
        return plan_of(study).release.sum(table)

    def privatise(self, study: Study, summary: FeatureSums, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums."""
        plan = plan_of(study)
        try:
            vectors = release_sums(plan.release.parts(summary.units, summary), plan.guarantee, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None
        return Release(units=summary.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        plan = plan_of(study)
        try:
            check_layout(
                release.vectors, release.guarantee, plan.release.parts(release.units), plan.guarantee
            )
        except LayoutError as error:
            raise ReleaseError(str(error)) from None
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return a release as it is, where it was made for the same columns, groups and budget.

        Raises:
            StudyError: it was not; says which of them to make the same.
        """
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
        return release

    def asks(self, study: Study) -> tuple[str, ...]:
        """Say who is compared in what."""
        plan = plan_of(study)
        outcomes = joined([column.name for column in plan.outcomes], 6)
        return (f"compares {outcomes} between {plan.group.name}, within owners",)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        columns = [ComparedColumn.model_validate(own, strict=False) for own in verdict.get("columns", ())]
        found = joined([own.column for own in columns if own.reject] or ["some column"], 6)
        said = either(
            study,
            verdict,
            f"The groups differ in {found}, within owners",
            "No difference between the groups, within owners, was shown: they may be alike",
        )
        words = "; ".join(told(effects_of(verdict.get("effects", ())), columns))
        return Meaning(
            f"{said.sentence} {words[0].upper()}{words[1:]}." if words else said.sentence, said.care
        )

    def works(self, study: Study) -> tuple[Work, ...]:  # noqa: ARG002
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
        plan, names = plan_of(study), [owner.name for owner in study.owners]
        blocks = list(_blocks(plan, [releases[name] for name in names]))
        tests = [compare(own) for own in blocks]
        if progress is not None:
            progress(0.5, "estimating effects")
        pvalues = np.array([test.pvalue for test in tests])
        adjusted = holm(pvalues)
        order = np.argsort(pvalues, kind="stable")
        comparisons: list[Comparison] = []
        common: dict[int, float | None] = {}
        for place in order:
            own = list(_comparisons(plan, plan.outcomes[place], blocks[place]))
            common[int(place)] = smallest([c.effects[c.difference].heterogeneity() for c in own])
            comparisons += own[: STATED_MAX - len(comparisons)]
        best = int(order[0])
        alone = comparisons[: BY_OWNER_MAX // len(names)]
        return GroupComparisonResult(
            method=_method(plan, len(names)),
            statistic=tests[best].statistic,
            pvalue=float(adjusted[best]),
            reject=bool(adjusted[best] <= study.level),
            level=study.level,
            units={name: releases[name].units for name in names},
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            warnings=(
                *self.warnings(study, {name: releases[name].units for name in names}),
                *reuse_warnings(study),
            ),
            columns=tuple(
                ComparedColumn(
                    column=column.name,
                    statistic=test.statistic,
                    pvalue=float(pvalue),
                    reject=bool(pvalue <= study.level),
                    heterogeneity_pvalue=common[place],
                )
                for place, (column, test, pvalue) in enumerate(
                    zip(plan.outcomes, tests, adjusted, strict=True)
                )
            ),
            effects=tuple(c.stated(kind, study.level) for c in comparisons for kind in c.effects),
            effects_by_owner=tuple(
                c.stated(c.difference, study.level, name, place)
                for c in alone
                for place, name in enumerate(names)
            ),
            heterogeneity_pvalue=smallest(list(common.values())),
        )


def _blocks(plan: Plan, releases: Sequence[Release]) -> Iterator[list[Block]]:
    """Yield every column's noisy numbers, owner by owner."""
    features, width = plan.features, len(SQUARES)
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
                found.append(Block(units, sizes, own, noise, (scale / features.scales) ** 2, numeric=True))
            start += width
        else:
            levels = len(column.levels)
            for units, scale, sums in read:
                own = sums[:, start : start + levels] / features.indicator
                each = np.full(levels, (scale / features.indicator) ** 2)
                found.append(Block(units, own.sum(axis=1), own, float(each.sum()), each, numeric=False))
            start += levels
        yield found


def _comparisons(plan: Plan, column: Column, blocks: Sequence[Block]) -> Iterator[Comparison]:
    """Yield a column's comparisons of every group with the first; of two levels the last one is the event."""
    names = plan.group.levels
    for first in range(1, len(names)):
        groups = (names[first], names[0])
        if isinstance(column, CategoricalColumn):
            levels = range(1, 2) if len(column.levels) == 2 else range(len(column.levels))
            for level in levels:
                difference, odds = risk_effects(blocks, first, 0, level)
                effects = {"risk difference": difference, "odds ratio": odds}
                yield Comparison(column, groups, column.levels[level], effects)
        else:
            effects = {
                "mean difference": mean_difference(blocks, first, 0),
                "standard deviation ratio": variance_ratio(blocks, first, 0),
            }
            yield Comparison(column, groups, None, effects)


def _method(plan: Plan, owners: int) -> str:
    columns = len(plan.outcomes)
    return (
        f"score test of {plan.features.groups} groups within {owners} owner{'' if owners == 1 else 's'}, "
        f"noise counted, in {columns} column{'' if columns == 1 else 's'}, Holm's correction"
    )
