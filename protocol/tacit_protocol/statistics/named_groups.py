"""Columns, and pairs of columns, by name: what the max form's coordinates answer questions about."""

from collections.abc import Sequence
from typing import Literal

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.statistics.max_form import Family, GroupResult
from tacit_protocol.strict import StrictModel

PAIRS_NAMED_MAX = 50
"""Most pairs of columns that a verdict names, those that differ most; all columns are named."""


class GroupComparison(StrictModel):
    """A column or a pair of columns: p-value adjusted for all of them (Holm)."""

    kind: Literal["column", "pair"]
    columns: tuple[str, ...]
    pvalue: float
    reject: bool


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
