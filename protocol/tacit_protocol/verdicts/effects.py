"""Effects as results state them: what differs, between which groups, by how much, in which unit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import Interval, ShownTable, interval_of
from tacit_protocol.verdicts.panels import Row, RowsPanel

ABSOLUTE = ("difference", "correlation")
"""What the name of an effect ends with whose value without any effect is 0; of all others it is 1."""


class Effect(StrictModel):
    """One effect, with an interval of confidence 1 - level, for this effect alone.

    Attributes:
        column: which column it is of.
        kind: "risk difference", "odds ratio", "mean difference", "rank correlation" and the like.
        groups: whom it compares: the first group with the second; of a correlation both columns.
        estimate: in ``unit``; None where the noisy numbers allow any value.
        lower: lower end of the interval; None where it has none.
        upper: upper end, likewise.
        unit: what it is counted in; "" of a ratio.
        level: of a category, which one is meant; otherwise None.
        owner: whose data it is of; None of what all have in common.
    """

    column: str
    kind: str
    groups: tuple[str, str]
    estimate: float | None
    lower: float | None
    upper: float | None
    unit: str
    level: str | None = None
    owner: str | None = None

    @property
    def interval(self) -> Interval | None:
        """Both ends, or None where one of them is missing."""
        return interval_of(self.lower, self.upper)

    @property
    def named(self) -> str:
        """What it is of, and whom it compares."""
        if self.kind.endswith("correlation"):
            return " and ".join(self.groups)
        column = self.column if self.level is None else f"{self.column} = {self.level}"
        return f"{column}, {self.groups[0]} against {self.groups[1]}"

    @property
    def words(self) -> str:
        """The effect with its interval."""
        return f"{self.kind} {number(self.estimate, 'not known')} ({self.between})"

    @property
    def between(self) -> str:
        """The interval in words."""
        lower, upper = number(self.lower), number(self.upper)
        if lower and upper:
            return f"{lower} to {upper}"
        return f"at least {lower}" if lower else f"at most {upper}" if upper else "any value"


def effects_of(stated: Sequence[Mapping[str, Any]]) -> list[Effect]:
    """Read effects out of a verdict's plain values; raises ValueError where they are none."""
    return [Effect.model_validate(effect, strict=False) for effect in stated]


def number(value: float | None, missing: str = "") -> str:
    """Write a number with three digits; ``missing`` where there is none."""
    return missing if value is None else f"{value:.3g}"


def effects_table(effects: Sequence[Effect]) -> ShownTable:
    """Return a table of effects for people."""
    rows = tuple(
        (
            effect.owner or "all",
            effect.named,
            effect.kind,
            number(effect.estimate, "not known"),
            effect.between,
        )
        for effect in effects
    )
    return ShownTable(("Of", "What", "Effect", "Estimate", "Interval"), rows)


def forest(effects: Sequence[Effect], alpha: float) -> list[RowsPanel]:
    """Return a forest plot of each effect: the owners' estimates and the common one, with their intervals.

    Ratios are drawn as natural logarithms. Of ratios, only those whose interval has two ends above 0.
    """
    panels: dict[tuple[str, str], list[Row]] = {}
    for effect in effects:
        ends = (effect.estimate, effect.lower, effect.upper)
        absolute = effect.kind.endswith(ABSOLUTE)
        if any(end is None or (not absolute and end <= 0) for end in ends):
            continue
        value, lower, upper = (float(end) if absolute else math.log(end) for end in ends if end is not None)
        row = Row(effect.owner or "all owners", value, lower, upper, not lower <= 0 <= upper)
        panels.setdefault((effect.named, effect.kind), []).append(row)
    percent = f"{100 * (1 - alpha):g} % intervals"
    return [
        RowsPanel(
            f"{named}: {kind}",
            (kind if kind.endswith(ABSOLUTE) else f"logarithm of the {kind}") + f", {percent}",
            tuple(rows),
        )
        for (named, kind), rows in panels.items()
    ]


def effects_frame(effects: Sequence[Effect], frame: Any) -> Any:
    """Return effects as a pandas frame, made by ``frame`` of columns."""
    return frame({name: [getattr(effect, name) for effect in effects] for name in Effect.model_fields})
