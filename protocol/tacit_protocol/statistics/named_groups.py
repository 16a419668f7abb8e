"""Columns, and pairs of columns, by name: what the max form's coordinates answer questions about."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.statistics.max_form import Family, GroupResult
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.null import Critical, Null, chi_square_quantile, largest_of

PAIRS_NAMED_MAX = 50
"""Most pairs of columns that a verdict names, those that differ most; all columns are named."""


class Comparison(StrictModel):
    """One of several hypotheses tested together: which, its adjusted p-value, and the decision.

    ``names`` holds the two owners, or the columns: one, or two whose dependence is compared. ``pvalue`` is
    adjusted after Holm, so that it may be compared with the level as it is. For owners ``estimate`` is their
    squared MMD, 0 where ``estimate_unbiased`` is negative, and ``interval`` contains it.
    """

    pvalue: float
    reject: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Two owners, or columns."""
        raise NotImplementedError

    @property
    def estimate(self) -> float | None:
        """Of two owners, their squared MMD."""
        return None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of two owners, that of their squared MMD."""
        return None

    @property
    def estimate_unbiased(self) -> float | None:
        """Of two owners, their squared MMD before it is cut at 0."""
        return None

    def __str__(self) -> str:
        verb = "differ" if self.reject else "no difference shown"
        return f"{' and '.join(self.names)}: {verb} (p = {self.pvalue:.3g})"


class GroupComparison(Comparison):
    """A column or a pair of columns: p-value adjusted for all of them (Holm)."""

    kind: Literal["column", "pair"]
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns


def additive_families(features: AdditiveFeatures) -> tuple[Family, ...]:
    """Return the family of columns and, where there are pairs, that of pairs; groups carry indices."""
    groups = tuple((str(i), start, stop) for i, (start, stop) in enumerate(features.column_groups))
    share = features.choice.pair_share
    columns = Family("column", groups, 1.0 - share)
    if not features.pair_groups:
        return (columns,)
    pairs = tuple((f"{a}:{b}", start, stop) for a, b, start, stop in features.pair_groups)
    return columns, Family("pair", pairs, share)


def named_groups(domain: Domain, groups: Sequence[GroupResult], level: float) -> tuple[GroupComparison, ...]:
    """Name every column's result, and the PAIRS_NAMED_MAX strongest of the pairs'."""
    names = [column.name for column in domain.numeric]
    names += [column.name for column in domain.categorical]
    named = [
        GroupComparison(
            kind="column" if group.family == "column" else "pair",
            columns=tuple(names[int(index)] for index in group.name.split(":")),
            pvalue=group.pvalue,
            reject=group.pvalue <= level,
        )
        for group in groups
    ]
    columns = [group for group in named if group.kind == "column"]
    pairs = sorted((group for group in named if group.kind == "pair"), key=lambda group: group.pvalue)
    return tuple(columns + pairs[:PAIRS_NAMED_MAX])


def max_null(features: AdditiveFeatures, owners: int, statistic: float, level: float) -> Null:
    """Return the null of the max form; each family of coordinates has its own part of the level."""
    families, criticals = additive_families(features), []
    for family in families:
        count = family.groups[-1][2] - family.groups[0][1]
        each = -np.expm1(np.log1p(-level * family.share) / count)
        of = f"{family.name}s" if len(families) > 1 else ""
        criticals.append(Critical(chi_square_quantile(owners - 1, each), of))
    return largest_of(features.dimension, owners - 1, statistic, tuple(criticals))
