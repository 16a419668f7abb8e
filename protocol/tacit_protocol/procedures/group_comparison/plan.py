"""The plans of a comparison of groups: separate sums in either noise, masked ones, or beside answers."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, ColumnName, Domain, NumericColumn, Table
from tacit_protocol.features.moments import MEAN, FeatureSums, MomentRelease, MomentShares
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.inference import Effects, estimated, holm, laplace_widening
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS
from tacit_protocol.privacy.gaussian_mechanism import SumPart, gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee, sums_scale
from tacit_protocol.privacy.noise import laplace_multiplier
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    require_work,
    reuse_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.counts.unlisted import NO_PART, LeftOut, left_out_warnings, unlisted_words
from tacit_protocol.procedures.group_comparison.release import (
    ANSWERED_SQUARE,
    CELLS_MOVEMENT,
    FEW_CELLS,
    SOFT_CELLS,
    SQUARES,
    GroupAnsweredSums,
    GroupCells,
    GroupFeatures,
    GroupPairs,
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
from tacit_protocol.procedures.group_comparison.verdict import (
    AnsweredGroupsResult,
    ComparedColumn,
    GroupComparisonResult,
    differences_sentence,
)
from tacit_protocol.procedures.masking import MaskedParameters, SharedNoise, masking_in
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.randomised_answers.answered_column import (
    AnswerCounts,
    AnsweredColumnPlan,
    beside,
)
from tacit_protocol.procedures.within_owners.covariances import ReadPairs
from tacit_protocol.procedures.within_owners.plan import ADVICE, MaskedCovariances, SeparateSums
from tacit_protocol.procedures.within_owners.verdict import (
    BY_OWNER_MAX,
    STATED_MAX,
    bounds_warning,
    smallest,
    visible,
)
from tacit_protocol.verdicts.base import BaseVerdict, Effect, effects_of, forest
from tacit_protocol.verdicts.presentation import Meaning, RowsPanel, decision_sentence, joined

Floats = npt.NDArray[np.float64]

NULL_STREAM = 5
"""Spawn key, under the study's seed, of the simulated null distributions of sums by answer."""

GROUPS_MAX = 8
OUTCOMES_MAX = 100

CONTRASTS_MAX = 100
"""Most contrasts of groups and levels, (groups - 1)(levels - 1): matrices of that size are inverted."""

ANSWERED_OUTCOMES_MAX = 20
"""Most columns that are compared by answer: each has its part of epsilon."""

OR_MISSING = ", or none"

SAMPLING = 0.25
"""Standard deviation of t in a typical column, whose bounds are eight standard deviations apart."""

GAUSSIAN_FROM = 0.5
"""Gaussian noise is taken from where it is so many times sampling's standard deviation in a group of average
size: its release tells of standard deviations, and of other differences of shape, too."""

LAPLACE_TO = 1.35
"""Laplace noise is taken up to so many times Gaussian noise, on sums of t: the sign less t tells a shift in
the middle of the bounds with less noise. In simulations both are level at five columns, at delta = 1e-5."""

HIDES_ALL = f"{HOPELESS}groups could differ by all that bounds allow and noise would hide it; {ADVICE}"


class GroupComparisonParameters(MaskedParameters):
    """Who is compared; every other column of the study is what they may differ in."""

    group: ColumnName | None = Field(
        None, description="The categorical column of the groups; by default the first categorical one."
    )
    noise: Literal["gaussian", "laplace"] = Field(
        "gaussian",
        description=(
            "gaussian, of four sums a number, needs a delta; laplace, of soft cells, costs epsilon alone."
        ),
    )


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


class GroupsPlan(Plan):
    """What is asked of every column that is compared, and told, whatever leaves.

    Attributes:
        group: the column of the groups.
        outcomes: the columns that are compared: numeric ones, then categorical ones.
    """

    where: ClassVar[str] = ", within owners"
    """Where groups are compared, in words."""
    by_owner: ClassVar[bool] = False
    """Whether effects of single owners are known."""

    group: CategoricalColumn
    outcomes: tuple[Column, ...]

    @property
    def test_of_ranks(self) -> str | None:
        """The test of ``aggregated_test`` that asks the same of ranks: of two groups, or of more."""
        return ranks_test(self.group)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a verdict says of how releases were made."""
        return ()

    def describe_request(self) -> tuple[str, ...]:
        """Say who is compared in what."""
        outcomes = joined([column.name for column in self.outcomes], 6)
        return f"compares {outcomes} between {self.group.name}, within owners", *super().describe_request()

    def meaning(self, verdict: Fields) -> Meaning:
        """Say in which columns groups differ, and by how much."""
        columns = [ComparedColumn.model_validate(own, strict=False) for own in verdict.get("columns", ())]
        found = joined([own.column for own in columns if own.reject] or ["some column"], 6)
        said = decision_sentence(
            self.study,
            verdict,
            f"The groups differ in {found}{self.where}",
            f"No difference between the groups{self.where}{self.where and ','} was shown: they may be alike",
        )
        words = "; ".join(differences_sentence(effects_of(verdict.get("effects", ())), columns))
        return Meaning(
            f"{said.sentence} {words[0].upper()}{words[1:]}." if words else said.sentence, said.care
        )

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots: the owners' effects, and those that they have in common."""
        stated = effects_of([*verdict["effects_by_owner"], *verdict["effects"]])
        return forest([effect for effect in stated if effect.kind.endswith("difference")], self.study.level)

    def stated(
        self,
        releases: Releases,
        tests: Sequence[Compared],
        comparisons_of: Callable[[int], Iterable[ComparedGroup]],
        deviation_of: Callable[[int], tuple[float, bool]],
        left_out: Iterable[LeftOut] = (),
    ) -> dict[str, Any]:
        """Return a verdict's fields: of the columns' tests, and of each one's comparisons and spread."""
        study, units = self.study, {o.name: releases[o.name].units for o in self.study.owners}
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
            if isinstance(column := self.outcomes[place], NumericColumn) and adjusted[place] > study.level:
                spread = deviation_of(int(place))
                drowned += _drowned(study.level, column, own, spread, self.test_of_ranks)
        best = int(order[0])
        alone = comparisons[: BY_OWNER_MAX // len(units)] if self.by_owner else []
        return {
            **decided(study, tests[best].statistic, float(adjusted[best])),
            **common_fields(study, units, None if self.shared is None else self.guarantee),
            "warnings": (
                *left_out_warnings(list(left_out), study.level),
                *drowned,
                *self.warnings(units),
                *self.caveats,
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
                for place, (column, test, pvalue) in enumerate(
                    zip(self.outcomes, tests, adjusted, strict=True)
                )
            ),
            "effects": tuple(c.stated(kind, study.level) for c in comparisons for kind in c.effects),
            "effects_by_owner": tuple(
                c.stated(c.difference, study.level, name, place)
                for c in alone
                for place, name in enumerate(units)
            ),
            "heterogeneity_pvalue": smallest(list(common.values())),
        }


@dataclass(frozen=True)
class GroupColumns:
    """The column of the groups, the other columns, numeric ones first, and the places that features take."""

    group: CategoricalColumn
    outcomes: tuple[Column, ...]
    places: tuple[int, int, int, tuple[tuple[int, int], ...]]


class SeparateGroups(GroupsPlan, SeparateSums):
    """Sums of features over the units of each group, of every owner."""

    by_owner: ClassVar[bool] = True
    counted: ClassVar[str] = "noise counted"
    """What is made of the noise, in the words of a verdict's method."""

    features: GroupFeatures | GroupCells

    def __init__(
        self,
        study: Study,
        parameters: GroupComparisonParameters,
        columns: GroupColumns,
        features: GroupFeatures | GroupCells,
        guarantee: Guarantee,
    ) -> None:
        self.study, self.parameters, self.guarantee, self.features = study, parameters, guarantee, features
        self.group, self.outcomes = columns.group, columns.outcomes
        self.moments = MomentRelease(features, MomentShares(1.0, 0.0))

    # What leaves.

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros."""
        return self.moments.parts(units, sums)

    def noise(self, units: int) -> float:
        """Return the standard deviation of the noise on the largest of sums of t, or of levels' counts."""
        raise NotImplementedError

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> FeatureSums:  # noqa: ARG002
        return self.moments.sum(table)

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        """Return a release as it is, where it was made for the same columns, groups, budget and noise."""
        release = super().reread(owner, source, release)
        made = separate_plan(source)
        if made.group != self.group:
            raise StudyError("the reused release was made for other groups; name the same column")
        if type(made) is not type(self):
            raise StudyError("the reused release was made with another noise; use the same")
        if made.features.width != self.features.width:
            raise StudyError("the reused release was made for other numbers of units; declare the same")
        return release

    def masked(self, shared: SharedNoise) -> "MaskedGroups":
        return MaskedGroups(self, shared)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns groups at these numbers of units."""
        if not units:
            return ()
        groups, noise = self.features.groups, self.noise(max(units.values()))
        # Groups of one size that differ by as much as they can, against the noise of what tells it.
        most = sum(units.values()) / groups**2
        if most < -2 * float(ndtri(self.study.level / 2)) * noise * (len(units) / groups) ** 0.5:
            return (HIDES_ALL,)
        drowned = [name for name, count in units.items() if count < 2 * groups * noise]
        if not drowned:
            return ()
        return (f"noise hides the size of an average group at {', '.join(drowned)}; {ADVICE}",)

    # What a tester makes of it.

    def read(self, releases: Sequence[Release]) -> list[tuple[int, float, Floats]]:
        """Return every owner's units, the scale of its noise, and its noisy sums, (groups, width)."""
        return [
            (own.units, own.vectors[MEAN].scale, own.vectors[MEAN].mean(1).reshape(self.features.groups, -1))
            for own in releases
        ]

    def blocks(self, releases: Sequence[Release]) -> Iterator[Sequence[Any]]:
        """Yield every column's noisy numbers, owner by owner."""
        raise NotImplementedError

    def compared(self, blocks: Sequence[Any], place: int) -> Compared:
        """Test the column of that place."""
        raise NotImplementedError

    def of_intervals(self, blocks: Sequence[Any]) -> Sequence[OwnerGroupSums]:
        """Return a column's blocks as intervals count their noise."""
        return blocks

    def of_means(self, blocks: Sequence[OwnerGroupSums], first: int) -> dict[str, Effects]:
        """Return the effects of a number, of that group against the first one."""
        return {"mean difference": mean_difference(blocks, first, 0)}

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> GroupComparisonResult:
        """Test every column, and estimate what groups differ by in it."""
        names = [owner.name for owner in self.study.owners]
        read, tests = list(self.blocks([releases[name] for name in names])), list[Compared]()
        report = step(progress, "testing columns", 0.0, 0.5)
        for place, own in enumerate(read):
            report(place / len(read))
            tests.append(self.compared(own, place))
        blocks = [self.of_intervals(own) for own in read]
        if progress is not None:
            progress(0.5, "estimating effects")
        return GroupComparisonResult(
            method=_method(self, self.counted),
            **self.stated(
                releases,
                tests,
                lambda place: self.comparisons(self.outcomes[place], blocks[place]),
                lambda place: deviation(blocks[place]),
                self.left_out(names, read),
            ),
        )

    def comparisons(self, column: Column, blocks: Sequence[OwnerGroupSums]) -> Iterator[ComparedGroup]:
        """Yield a column's comparisons of every group with the first; of two levels the last is the event."""
        names = self.group.levels
        for first in range(1, len(names)):
            groups = (names[first], names[0])
            if isinstance(column, CategoricalColumn):
                for level in _events(column):
                    difference, odds = risk_effects(blocks, first, 0, level)
                    effects = {"risk difference": difference, "odds ratio": odds}
                    yield ComparedGroup(column, groups, column.levels[level], effects)
            else:
                yield ComparedGroup(column, groups, None, self.of_means(blocks, first))

    def left_out(
        self, names: Sequence[str], columns: Sequence[Sequence[OwnerGroupSums | NoisyCells]]
    ) -> Iterator[LeftOut]:
        """Yield every owner's units in no listed group, and those in one whose outcome is not listed.

        A number's sizes count the units of listed groups; a category's those that have a listed level
        besides.
        """
        numeric = next((own for own in columns if own[0].numeric), None)
        for column, own in zip(self.outcomes, columns, strict=True):
            for place, (owner, block) in enumerate(zip(names, own, strict=True)):
                units = float(block.units)
                noises: tuple[CellNoise, ...] = (block.size_noise,)
                if isinstance(column, NumericColumn):
                    what = unlisted_words(self.group, OR_MISSING)
                    if own is not numeric:
                        continue
                else:
                    what = unlisted_words(column, OR_MISSING)
                    if numeric is None:
                        what = f"{unlisted_words(self.group)} or {what}"
                    else:
                        units = float(numeric[place].sizes.sum())
                        noises += (numeric[place].size_noise,)
                yield LeftOut(owner, what, NO_PART, units - float(block.sizes.sum()), block.units, noises)


class GaussianGroups(SeparateGroups):
    """Chebyshev's polynomials and indicators in Gaussian noise."""

    features: GroupFeatures

    def noise(self, units: int) -> float:
        scale = noise_scales(self.parts(units), self.guarantee)[MEAN]
        return scale / min(self.features.indicator, float(self.features.scales[0]))

    def gives_way(self, pure: SeparateGroups, units: int) -> bool:
        """Whether Laplace noise is not much more, and this is not small beside sampling's."""
        gaussian, sampling = self.noise(units), SAMPLING * float(np.sqrt(units / self.features.groups))
        return pure.noise(units) < LAPLACE_TO * gaussian and gaussian > GAUSSIAN_FROM * sampling

    def compared(self, blocks: Sequence[OwnerGroupSums], place: int) -> Compared:  # noqa: ARG002
        """Test a column by its noisy numbers themselves."""
        return compare(blocks)

    def of_means(self, blocks: Sequence[OwnerGroupSums], first: int) -> dict[str, Effects]:
        """Return those of means and, from fourth moments, of spreads."""
        ratio = variance_ratio(blocks, first, 0)
        return super().of_means(blocks, first) | {"standard deviation ratio": ratio}

    def blocks(self, releases: Sequence[Release]) -> Iterator[Sequence[OwnerGroupSums]]:
        features, width, read = self.features, len(SQUARES), self.read(releases)
        start = int(features.count_scale > 0)
        for column in self.outcomes:
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


class LaplaceGroups(SeparateGroups):
    """Soft cells and indicators in Laplace noise of pure epsilon."""

    kind: ClassVar[str] = "laplace"
    counted: ClassVar[str] = "Laplace noise in its simulated null"

    features: GroupCells

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out, with its movement in L1."""
        bits = self.moments.bits(units)
        # Each of two neighbours lies a row's and its unit's half step, and a float's error, from its ideal.
        rounding = 2 * (1 + FEATURE_ERROR_STEPS) * self.features.dimension * 2.0**-bits
        moved = float(np.nextafter(self.features.movement + rounding, np.inf))
        return (replace(super().parts(units, sums)[0], l1=moved),)

    def noise(self, units: int) -> float:
        squares = 1.0
        if isinstance(self.outcomes[0], NumericColumn):
            squares = 2.0 if self.features.cells == FEW_CELLS else 2.5
        return float(np.sqrt(2 * squares)) * sums_scale(self.parts(units)[0], self.guarantee)

    def check_work(self) -> None:
        """Raise StudyError where the null would take too long to simulate."""
        # Of each group and cell the noise, and the sampling of what the cells' contrasts are.
        require_work(2 * len(self.study.owners) * self.release_size, CELL_DRAWS)

    def describe_request(self) -> tuple[str, ...]:
        """Say who is compared in what, and why in this noise."""
        asked = super().describe_request()
        return *asked, f"releases soft cells in Laplace noise of pure epsilon: {self.reason()}"

    @property
    def released(self) -> str | None:
        """What an owner computes and releases."""
        return "sums of soft cells over its units of each group"

    def compared(self, blocks: Sequence[NoisyCells], place: int) -> Compared:
        """Test a column by a simulated null."""
        return compare_cells(blocks, public_seed(self.study, NULL_STREAM, place))

    def of_intervals(self, blocks: Sequence[NoisyCells]) -> Sequence[OwnerGroupSums]:
        """Return sums of cells with noise variances widened for Laplace's tails."""
        return [own.block(laplace_widening(self.study.level)) for own in blocks]

    def blocks(self, releases: Sequence[Release]) -> Iterator[Sequence[NoisyCells]]:
        """Yield every column's noisy cells, owner by owner."""
        start, read = 0, self.read(releases)
        for column in self.outcomes:
            numeric = isinstance(column, NumericColumn)
            each = len(column.levels) if isinstance(column, CategoricalColumn) else self.features.cells
            stop = start + each
            yield [NoisyCells(units, cells[:, start:stop], scale, numeric) for units, scale, cells in read]
            start = stop


class MaskedGroups(MaskedCovariances, GroupsPlan):
    """Covariances of two groups with features, within owners, of which the sum of all is read."""

    def __init__(self, separate: SeparateGroups, shared: SharedNoise) -> None:
        """Take the sums that are not masked; raises StudyError where it is not two groups, or too much."""
        study, features = separate.study, separate.features
        if not isinstance(features, GroupFeatures) or features.groups != 2:
            raise StudyError("masked sums compare two groups: list two levels of the group's column")
        pairs = GroupPairs(*features.places)
        if pairs.numbers > COORDINATES_MAX // len(study.owners):
            raise StudyError("the study asks for too many numbers; use fewer columns or levels")
        super().__init__(study, shared, pairs)
        self.group, self.outcomes = separate.group, separate.outcomes

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise hides groups of one size that differ by as much as they can."""
        return (HIDES_ALL,) if self.is_hidden(sum(units.values()) / 4, units) else ()

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,  # noqa: ARG002
    ) -> GroupComparisonResult:
        """Test every column by the sum of all owners' covariances."""
        found, places, start = self.read(releases), list[range](), 0
        for column in self.outcomes:
            # Of two levels the last one alone is a pair.
            count = len(SQUARES) if isinstance(column, NumericColumn) else len(_events(column))
            places.append(range(start, start + count))
            start += count
        tests = [
            compare_masked(found, own, numeric=isinstance(column, NumericColumn))
            for column, own in zip(self.outcomes, places, strict=True)
        ]
        return GroupComparisonResult(
            method=f"masked {_method(self, SeparateGroups.counted)}",
            **self.stated(
                releases,
                tests,
                lambda place: self.comparisons(self.outcomes[place], found, places[place]),
                lambda place: found.deviation(places[place][0]),
            ),
        )

    def comparisons(self, column: Column, found: ReadPairs, places: range) -> Iterator[ComparedGroup]:
        """Yield a column's comparisons of the second group with the first, of all owners together."""
        groups = (self.group.levels[1], self.group.levels[0])
        if isinstance(column, NumericColumn):
            effects = {"mean difference": Effects.single(*found.slope(places[0]))}
            yield ComparedGroup(column, groups, None, effects)
            return
        for place, level in zip(places, _events(column), strict=True):
            difference = Effects.single(*found.slope(place))
            yield ComparedGroup(column, groups, column.levels[level], {"risk difference": difference})


class AnsweredGroups(AnsweredColumnPlan, GroupsPlan):
    """Randomised answers of the owner who knows the group, and sums by answer of another's columns."""

    where: ClassVar[str] = ""

    def __init__(
        self, study: Study, between: tuple[Owner, Owner, CategoricalColumn, Domain], sums: GroupAnsweredSums
    ) -> None:
        super().__init__(study, between, sums)
        self.group, self.outcomes = self.column, (*self.own.numeric, *self.own.categorical)

    @property
    def test_of_ranks(self) -> str | None:
        """None: ranks in blocks are of owners who hold all columns."""
        return None

    @property
    def verdict_type(self) -> type[BaseVerdict] | None:
        """The result of two rounds."""
        return AnsweredGroupsResult

    @property
    def released(self) -> str | None:
        """What both owners compute and release."""
        return (
            f"at {self.sender.name} one randomised answer of every unit to which group it is in, at "
            f"{self.receiver.name} sums of bounded features over the units of each answer"
        )

    def describe_request(self) -> tuple[str, ...]:
        """Say who is compared in what, and who answers."""
        outcomes = joined([column.name for column in self.own.columns], 6)
        return (
            f"compares {outcomes} of {self.receiver.name} between {self.group.name}, of which "
            f"{self.sender.name} releases randomised answers",
        )

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> AnsweredGroupsResult:
        """Test every column by the answers and the sums beside them."""
        study, known = self.study, self.known(releases)
        blocks = list(self.blocks(known))
        tests = [
            compare_answered(own, public_seed(study, NULL_STREAM, place)) for place, own in enumerate(blocks)
        ]
        if progress is not None:
            progress(0.5, "estimating effects")
        return AnsweredGroupsResult(
            method=(
                f"score test beside randomised answers of {self.sender.name} to "
                f"{self.codes} groups, noise counted, {_in_columns(self.outcomes)}"
                + ("" if study.alignment is None else ", aligned units")
            ),
            **self.stated(
                releases,
                tests,
                lambda place: self.comparisons(self.outcomes[place], blocks[place]),
                lambda place: blocks[place].deviation(),
                self.left_out(known, blocks),
            ),
            retention=known.kept,
            aligned=study.alignment is not None,
        )

    def blocks(self, known: AnswerCounts) -> Iterator[AnsweredBlock]:
        """Yield every column's noisy sums by answer, in features' own units."""
        start, sums = 0, known.sums.reshape(self.codes, -1)
        for column in self.outcomes:
            numeric = isinstance(column, NumericColumn)
            weights = np.array([1.0, ANSWERED_SQUARE])
            if isinstance(column, CategoricalColumn):
                weights = np.ones(len(column.levels))
            own = sums[:, start : start + len(weights)] / weights
            yield AnsweredBlock(known.answers, own, known.noise / weights, known.kept, numeric)
            start += len(weights)

    def comparisons(self, column: Column, block: AnsweredBlock) -> Iterator[ComparedGroup]:
        """Yield a column's comparisons of every group with the first."""
        names = self.group.levels
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

    def left_out(self, known: AnswerCounts, blocks: Sequence[AnsweredBlock]) -> Iterator[LeftOut]:
        """Yield the units of the owner that sums by answers whose outcome is not listed."""
        owner, units = self.receiver.name, known.units
        for column, block in zip(self.outcomes, blocks, strict=True):
            if isinstance(column, CategoricalColumn):
                noise = CellNoise("laplace", known.noise).of_sums(block.sums.size)
                what = unlisted_words(column, OR_MISSING)
                yield LeftOut(owner, what, NO_PART, units - float(block.sums.sum()), units, (noise,))


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


def _events(column: CategoricalColumn) -> range:
    """Return the places of the levels whose shares are compared: of two, the last one."""
    return range(1, 2) if len(column.levels) == 2 else range(len(column.levels))


def _in_columns(columns: Sequence[Column]) -> str:
    return f"in {len(columns)} column{'' if len(columns) == 1 else 's'}, Holm's correction"


def _method(plan: GroupsPlan, counted: str) -> str:
    owners = len(plan.study.owners)
    return (
        f"score test of {len(plan.group.levels)} groups within {owners} owner{'' if owners == 1 else 's'}, "
        f"{counted}, {_in_columns(plan.outcomes)}"
    )


FEW_CELLS_FROM = 0.5
"""A number has few cells from where the noise's variance on a group's sum of the sign of t, in as many, is so
many times its number of units: the variance that sampling makes at most."""


def fitting_cells(study: Study, groups: int, columns: int) -> int:
    """Return the cells of a number that suit the units that owners declare; six where one declares none."""
    declared = units_declared(study)
    if len(declared) < len(study.owners):
        return SOFT_CELLS
    scale = CELLS_MOVEMENT * columns * laplace_multiplier(study.budget.epsilon)
    noisy = FEW_CELLS * 2 * scale**2 > FEW_CELLS_FROM * min(declared.values()) / groups
    return FEW_CELLS if noisy else SOFT_CELLS


def group_columns(study: Study) -> GroupColumns:
    """Return which columns are compared between which groups, where owners hold all columns.

    Raises:
        StudyError: parameters or columns do not suit it.
    """
    parameters, domain = parse_parameters(GroupComparisonParameters, study), study.domain
    named = [c for c in domain.categorical if parameters.group in (None, c.name)]
    if not named:
        raise StudyError("parameter group must name a categorical column of the study")
    group = named[0]
    if not 2 <= len(group.levels) <= GROUPS_MAX:
        raise StudyError(f"the column of the groups needs two to {GROUPS_MAX} levels")
    others = tuple((place, c) for place, c in enumerate(domain.categorical) if c != group)
    numeric: tuple[NumericColumn, ...] = domain.numeric
    if not 1 <= len(numeric) + len(others) <= OUTCOMES_MAX:
        raise StudyError(f"groups are compared in one to {OUTCOMES_MAX} columns besides their own")
    if any(len(c.levels) < 2 for _, c in others):
        raise StudyError("a categorical column that is compared needs two levels or more")
    if any((len(group.levels) - 1) * (len(c.levels) - 1) > CONTRASTS_MAX for _, c in others):
        raise StudyError(f"at most {CONTRASTS_MAX} contrasts of groups and levels: use fewer levels")
    places = (
        domain.categorical.index(group),
        len(group.levels),
        len(numeric),
        tuple((place, len(c.levels)) for place, c in others),
    )
    return GroupColumns(group, (*numeric, *(c for _, c in others)), places)


def separate_plan(study: Study) -> SeparateGroups:
    """Return the plan of releases that are read by themselves.

    Raises:
        StudyError: parameters, columns or budget do not suit it.
    """
    columns, budget = group_columns(study), study.budget
    parameters = parse_parameters(GroupComparisonParameters, study)
    if parameters.noise == "laplace":
        guarantee = laplace_sum_guarantee(budget)
        cells = fitting_cells(study, len(columns.group.levels), len(columns.outcomes))
        soft = GroupCells(*columns.places, cells=cells)
        plan: SeparateGroups = LaplaceGroups(study, parameters, columns, soft, guarantee)
    else:
        features = GroupFeatures(*columns.places)
        plan = GaussianGroups(study, parameters, columns, features, gaussian_guarantee(budget))
    if plan.features.dimension > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or groups")
    return plan


def answered_plan(study: Study) -> AnsweredGroups:
    """Return the plan of a study whose group another owner holds.

    Raises:
        StudyError: the study cannot be run as written.
    """
    parameters = parse_parameters(GroupComparisonParameters, study)
    if parameters.noise != "gaussian":
        raise StudyError("noise has no effect beside another owner's answers, which are pure: leave it out")
    between = beside(study, parameters.group)
    _, _, group, own = between
    levels = tuple(len(column.levels) for column in own.categorical)
    if not 2 <= len(group.levels) <= GROUPS_MAX:
        raise StudyError(f"the column of the groups needs two to {GROUPS_MAX} levels")
    if len(own.columns) > ANSWERED_OUTCOMES_MAX:
        raise StudyError(f"groups of another owner are compared in at most {ANSWERED_OUTCOMES_MAX} columns")
    if min(levels, default=2) < 2:
        raise StudyError("a categorical column that is compared needs two levels or more")
    if (len(group.levels) - 1) * (max(levels, default=2) - 1) > CONTRASTS_MAX:
        raise StudyError(f"at most {CONTRASTS_MAX} contrasts of groups and levels: use fewer levels")
    masking_in(study, parameters)  # which refuses columns apart
    sums = GroupAnsweredSums(len(group.levels), len(own.numeric), levels)
    return AnsweredGroups(study, between, sums)


def ranks_test(group: CategoricalColumn) -> str:
    """Name the test of ranks between the groups of a column."""
    return "mann_whitney" if len(group.levels) == 2 else "kruskal_wallis"
