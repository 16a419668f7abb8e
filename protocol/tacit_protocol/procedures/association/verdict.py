"""The verdict on an association within owners, and how it is told."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.procedures.within_owners.verdict import TOLD, TestedPart, WithinOwnersVerdict
from tacit_protocol.verdicts.base import Effect, compared_shown, number

PEARSON, RANKS = "Pearson correlation", "rank correlation"


class AssociatedPair(TestedPart):
    """A pair of columns within owners.

    Attributes:
        first: one column's name.
        second: the other's.
        direction: in words, which level of a category goes with larger numbers, or with which level of the
            other; empty of two numbers, and where no correlation was told from 0.
    """

    first: str
    second: str
    direction: str

    @property
    def named(self) -> str:
        """Both names."""
        return f"{self.first} and {self.second}"


class AssociationResult(WithinOwnersVerdict):
    """Whether columns go together within owners, which, how strongly. Unpacks into ``statistic, pvalue``.

    Numbers outside a column's bounds count as the bound, levels as whole numbers in the order listed.
    Intervals are each of confidence 1 - alpha, and count sampling and noise; an estimate and its interval
    are None where the noisy numbers allow any value.

    Attributes:
        statistic: of the pair that goes together most surely.
        pvalue: the smallest of the pairs' p-values, adjusted for all of them (Holm).
        pairs: every pair's p-value.
        effects: Pearson's and the rank correlation within owners, of every pair; in pure epsilon the latter.
            Ranks are mid-ranks of values by public cells (``cells``): values of one cell are ties.
        effects_by_owner: the same of every owner.
        heterogeneity_pvalue: that owners have all these correlations in common: the smallest of the pairs',
            adjusted for their number; None of one owner.
    """

    parted: ClassVar[str] = "pairs"
    found: ClassVar[tuple[str, str]] = (
        "columns GO TOGETHER within owners",
        "no association within owners shown",
    )
    found_of_part: ClassVar[tuple[str, str]] = ("go together", "no association shown")
    in_common: ClassVar[str] = "correlations"

    pairs: Annotated[tuple[AssociatedPair, ...], compared_shown("pairs")]

    def differences(self) -> list[str]:
        return differences_sentence(self.effects, self.pairs)


def differences_sentence(effects: Sequence[Effect], pairs: Sequence[AssociatedPair]) -> list[str]:
    """Say in words how columns go together: those that do, or all."""
    found = [pair for pair in pairs if pair.reject] or list(pairs)
    directions = {(pair.first, pair.second): pair.direction for pair in found}
    said = []
    for effect in effects:
        if effect.kind != RANKS or effect.groups not in directions:
            continue
        if effect.estimate is None or effect.interval is None:
            said.append(f"{effect.named}: how they go together cannot be said")
            continue
        lower, upper = effect.interval
        words = f"{effect.named}: {RANKS} {number(effect.estimate)} ({number(lower)} to {number(upper)})"
        direction = directions[effect.groups]
        said.append(f"{words}, {direction}" if direction else words)
    return said[:TOLD]


def direction(columns: tuple[Column, Column], correlation: float) -> str:
    """Say which level goes with larger numbers, or with which level of the other; nothing of two numbers."""
    first, second = columns
    if isinstance(second, NumericColumn):
        first, second = second, first
    if isinstance(second, NumericColumn) or not correlation:
        return ""
    whose = f"larger {first.name}" if isinstance(first, NumericColumn) else _at_level(first, -1)
    return f"{whose} more often with {_at_level(second, -1 if correlation > 0 else 0)}"


def _at_level(column: CategoricalColumn, place: int) -> str:
    level = column.levels[place]
    return f"{column.name} = {level}" if len(column.levels) == 2 else f"levels of {column.name} near {level}"
