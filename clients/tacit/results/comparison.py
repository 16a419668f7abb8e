"""One of several hypotheses that were tested together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One of several hypotheses tested together: which, its adjusted p-value, and the decision.

    ``names`` holds the two owners, or the columns: one, or two whose dependence is compared. ``pvalue`` is
    adjusted after Holm, so that it may be compared with the level as it is. For owners ``estimate`` is their
    squared MMD and ``interval`` covers it.
    """

    names: tuple[str, ...]
    pvalue: float
    reject: bool
    estimate: float | None = None
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        verb = "differ" if self.reject else "no difference shown"
        return f"{' and '.join(self.names)}: {verb} (p = {self.pvalue:.3g})"


def compared_owners(pair: Mapping[str, Any]) -> Comparison:
    """Read two owners' comparison from a verdict."""
    return Comparison(
        names=(str(pair["first"]), str(pair["second"])),
        pvalue=float(pair["pvalue"]),
        reject=bool(pair["reject"]),
        estimate=float(pair["squared_mmd"]),
        interval=(float(pair["lower"]), float(pair["upper"])),
    )


def compared_columns(group: Mapping[str, Any]) -> Comparison:
    """Read the comparison of a column, or of a pair of columns, from a verdict."""
    return Comparison(tuple(map(str, group["columns"])), float(group["pvalue"]), bool(group["reject"]))
