"""The verdict on a comparison of groups, and how it is told."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from tacit_protocol.procedures.within_owners.verdict import TOLD, TestedPart, WithinOwnersVerdict
from tacit_protocol.verdicts.base import Effect, ShownTable, compared_shown


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

    columns: Annotated[tuple[ComparedColumn, ...], compared_shown("columns")]

    def differences(self) -> list[str]:
        return differences_sentence(self.effects, self.columns)


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
