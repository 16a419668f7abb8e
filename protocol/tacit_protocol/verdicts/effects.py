"""Effects as results state them: what differs, between which groups, by how much, in which unit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import Interval, ShownTable, interval_of
from tacit_protocol.verdicts.presentation import RatiosPanel, Row, RowsPanel

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
        return _between(self.lower, self.upper)

    def larger(self, what: str) -> str | None:
        """Say by how much ``what`` is larger, or smaller, in the first group; None where nobody can."""
        if self.estimate is None or self.interval is None:
            return None
        ends = sorted(self.interval if self.estimate >= 0 else [-end for end in self.interval])
        way = "larger" if self.estimate >= 0 else "smaller"
        return f"{what} {way} by {number(abs(self.estimate))} ({number(ends[0])} to {number(ends[1])})"


def _between(lower: float | None, upper: float | None) -> str:
    low, high = number(lower), number(upper)
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "any value"


class JointEffect(Effect):
    """One effect with a second interval, which holds together with those of all others of its verdict.

    Attributes:
        simultaneous_lower: lower end of the wider interval; all of a verdict's hold with that confidence.
        simultaneous_upper: upper end, likewise.
    """

    simultaneous_lower: float | None
    simultaneous_upper: float | None

    @property
    def simultaneous_interval(self) -> Interval | None:
        """Both ends of the wider interval, or None where one of them is missing."""
        return interval_of(self.simultaneous_lower, self.simultaneous_upper)

    @property
    def between_all(self) -> str:
        """The wider interval in words."""
        return _between(self.simultaneous_lower, self.simultaneous_upper)


class Summary(StrictModel):
    """A number that describes one owner's column, with an interval of confidence 1 - level, for it alone.

    Attributes:
        owner: whose data it is of.
        column: which column it is of.
        kind: "mean", "standard deviation", or "share" of a category's level.
        estimate: in ``unit``.
        lower: lower end of the interval.
        upper: upper end of the interval.
        unit: what it is counted in.
        level: of a category, which one is meant; otherwise None.
    """

    owner: str
    column: str
    kind: str
    estimate: float
    lower: float
    upper: float
    unit: str
    level: str | None = None

    @property
    def interval(self) -> Interval:
        """Both ends."""
        return self.lower, self.upper


def summaries_table(summaries: Sequence[Summary]) -> ShownTable:
    """Return a table of owners' own numbers for people."""
    rows = tuple(
        (
            found.owner,
            found.column if found.level is None else f"{found.column} = {found.level}",
            found.kind,
            number(found.estimate),
            _between(found.lower, found.upper),
        )
        for found in summaries
    )
    return ShownTable(("Of", "What", "", "Estimate", "Interval"), rows)


def effects_of(stated: Sequence[Mapping[str, Any]]) -> list[Effect]:
    """Read effects out of a verdict's plain values; raises ValueError where they are none."""
    return [
        (JointEffect if "simultaneous_lower" in effect else Effect).model_validate(effect, strict=False)
        for effect in stated
    ]


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
            *((effect.between_all,) if isinstance(effect, JointEffect) else ()),
        )
        for effect in effects
    )
    headings = ("Of", "What", "Effect", "Estimate", "Interval")
    joint = any(isinstance(effect, JointEffect) for effect in effects)
    return ShownTable((*headings, "All together") if joint else headings, rows)


FORESTS_MAX = 12
"""Most forest plots of one verdict; tables hold all effects."""


def forest(
    effects: Sequence[Effect],
    alpha: float,
    title: Callable[[Effect], str] = lambda effect: effect.named,
    label: Callable[[Effect], str] = lambda effect: effect.owner or "all owners",
) -> list[RowsPanel]:
    """Return a forest plot of each effect: the owners' estimates and the common one, with their intervals.

    Effects of one ``title``, kind and unit are rows of one panel; at most FORESTS_MAX of these, the last of
    which says how many there are. Ratios are drawn as natural logarithms: those whose interval has two ends
    above 0.
    """
    panels: dict[tuple[str, str, str], list[Row]] = {}
    for effect in effects:
        ends = (effect.estimate, effect.lower, effect.upper)
        absolute = effect.kind.endswith(ABSOLUTE)
        if any(end is None or (not absolute and end <= 0) for end in ends):
            continue
        value, lower, upper = (float(end) if absolute else math.log(end) for end in ends if end is not None)
        row = Row(label(effect), value, lower, upper, not lower <= 0 <= upper)
        unit = f" in {effect.unit}" if effect.unit.startswith("units of") else ""
        panels.setdefault((title(effect), effect.kind, unit), []).append(row)
    found = [
        (RowsPanel if kind.endswith(ABSOLUTE) else RatiosPanel)(
            f"{named}: {kind}", f"{kind}{unit}, {100 * (1 - alpha):g} % intervals", tuple(rows)
        )
        for (named, kind, unit), rows in panels.items()
    ]
    if len(found) > FORESTS_MAX:
        last = found[FORESTS_MAX - 1]
        found[FORESTS_MAX - 1] = replace(last, title=f"{last.title} ({FORESTS_MAX} of {len(found)} drawn)")
    return found[:FORESTS_MAX]


def effects_frame(effects: Sequence[Effect], frame: Any) -> Any:
    """Return effects as a pandas frame, made by ``frame`` of columns."""
    fields = type(effects[0]).model_fields if effects else Effect.model_fields
    return frame({name: [getattr(effect, name) for effect in effects] for name in fields})


TOLD = 4
"""Most columns of pairs of owners that a sentence tells."""

CLIPPED = "Means and spreads are of values clipped to the public bounds; each interval is for one effect."

WORDS = {
    "mean difference": ("mean", "means differ"),
    "standard deviation difference": ("spread", "spreads differ"),
    "risk difference": ("share", "shares differ"),
    "restricted mean difference": ("restricted mean", "restricted means differ"),
}
"""What a difference is of, and how it is told where its interval reaches 0."""


def told_between(effects: Sequence[Effect], ratios: Sequence[str] = ()) -> list[str]:
    """Say in words how pairs of groups differ, column by column: what is sure first, in the column's unit.

    After differences come ratios of the kinds that are named.
    """
    told: dict[tuple[str, str | None, tuple[str, str]], list[tuple[bool, str]]] = {}
    for effect in effects:
        if effect.kind not in WORDS and effect.kind not in ratios:
            continue
        found = told.setdefault((effect.column, effect.level, effect.groups), [])
        if effect.kind in ratios:
            found.append((False, effect.words))
            continue
        what, open_words = WORDS[effect.kind]
        what = what if effect.level is None else f"{what} of {effect.level}"
        said = effect.larger(what)
        if said is None or effect.lower is None or effect.upper is None:
            found.append((False, f"how {open_words} cannot be said"))
        elif effect.lower > 0 or effect.upper < 0:
            found.append((True, f"{said} in {effect.groups[0]} than in {effect.groups[1]}"))
        else:
            of = "" if effect.level is None else f" of {effect.level}"
            noun, verb = open_words.rsplit(" ", 1)
            found.append((False, f"{noun}{of} {verb} by {number(effect.estimate)} ({effect.between})"))
    lines = []
    for (column, _, groups), parts in told.items():
        ordered = [words for sure, words in sorted(parts, key=lambda part: not part[0])]
        named = "" if any(sure for sure, _ in parts) else f", {groups[0]} less {groups[1]}"
        lines.append(f"{column}{named}: {'; '.join(ordered)}")
    return lines[:TOLD]
