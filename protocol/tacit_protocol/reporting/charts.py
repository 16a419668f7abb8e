"""What can be drawn of a verdict, and its charts in data coordinates, worked out once for every back end."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.verdicts.base import Summary
from tacit_protocol.verdicts.presentation import (
    BarsPanel,
    CurvesPanel,
    DrawnCurve,
    HeatPanel,
    Null,
    RatiosPanel,
    Row,
    RowsPanel,
    power_of_ten,
    pvalue_number,
    pvalue_words,
)

ROWS_MAX = 20
"""Most rows of one panel; its title says how many there are."""

SHARES_MAX = 6
"""Most columns whose shares are drawn; tables hold all."""

ESTIMATES = {
    "squared_mmd": ("squared MMD", "lower", "upper"),
    "distance_correlation": ("distance correlation", "lower", "upper"),
    "distance_covariance_sqr": ("squared distance covariance", "covariance_lower", "covariance_upper"),
    "cramers_v": ("Cramér's V", "lower", "upper"),
}
"""Estimates that verdicts and their pairs state, in words, and the fields of their intervals."""


Found = TypeVar("Found")


@dataclass(frozen=True)
class NullPanel:
    """The statistic on its null distribution."""

    null: Null
    statistic: float


@dataclass(frozen=True)
class PvaluePanel:
    """The p-value against the level."""

    pvalue: float
    level: float


Panel = NullPanel | PvaluePanel | RowsPanel | BarsPanel | CurvesPanel | HeatPanel


def panels_of(study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]) -> tuple[Panel, ...]:
    """Return what can be drawn of a completed study's verdict, effects first; nothing for a decision alone.

    Args:
        study: the study.
        verdict: what its procedure reports, as plain values.
        releases: by owner as the study reads them; empty where they are not at hand.
    """
    procedure = PROCEDURES.get(study.procedure)
    own = () if procedure is None else _or_none(lambda: procedure.panels(study, verdict, releases)) or ()
    estimates = _effects(verdict)
    found: list[Panel] = [*own, *estimates] if verdict.get("effects") else [*estimates, *own]
    found += _or_none(lambda: _shares(verdict, study.level)) or ()
    if verdict.get("pvalue") is not None:
        null = None if procedure is None else _or_none(lambda: procedure.null(study, verdict, releases))
        if null is not None and math.isfinite(float(verdict["statistic"])):
            found.append(NullPanel(null, float(verdict["statistic"])))
        found.append(PvaluePanel(float(verdict["pvalue"]), study.level))
    return tuple(found)


def _or_none(work_out: Callable[[], Found]) -> Found | None:
    """Return what can be worked out; None where study, releases and verdict do not fit each other."""
    try:
        return work_out()
    except (StudyError, ReleaseError, LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _effects(verdict: Mapping[str, Any]) -> list[Panel]:
    found: list[Panel] = []
    pairs = [pair for pair in verdict.get("pairs") or () if isinstance(pair, Mapping)]
    for name, (words, lower, upper) in ESTIMATES.items():
        rows = [_row("all", verdict, name, lower, upper)]
        rows += [_row(_label(pair), pair, name, lower, upper) for pair in pairs[:ROWS_MAX]]
        shown = [row for row in rows if row is not None]
        if len(shown) == 2 and shown[0].label == "all" and shown[0].value == shown[1].value:
            shown = shown[:1]  # the only pair is all there is
        if shown:
            more = len(pairs) - ROWS_MAX
            title = words if more <= 0 else f"{words}, {ROWS_MAX} of {len(pairs)} pairs"
            found.append(RowsPanel(title, words, tuple(shown)))
    return found


def _shares(verdict: Mapping[str, Any], level: float) -> list[RowsPanel]:
    """Return the owners' own shares of levels, a panel a column."""
    rows: dict[str, list[Row]] = {}
    for stated in verdict.get("summaries") or ():
        found = Summary.model_validate(stated, strict=False)
        if found.kind == "share":
            row = Row(f"{found.level}: {found.owner}", found.estimate, found.lower, found.upper, False)
            rows.setdefault(found.column, []).append(row)
    unit = f"share of an owner's units, {100 * (1 - level):g} % intervals"
    return [
        RowsPanel(f"{column}: shares", unit, tuple(own[:ROWS_MAX]))
        for column, own in list(rows.items())[:SHARES_MAX]
    ]


def _row(label: str, source: Mapping[str, Any], name: str, lower: str, upper: str) -> Row | None:
    value = source.get(name)
    low, high = interval_fields(source, name, lower, upper)
    if value is None or low is None or high is None:
        return None
    return Row(label, float(value), float(low), float(high), bool(source.get("reject")))


def interval_fields(source: Mapping[str, Any], name: str, lower: str, upper: str) -> tuple[Any, Any]:
    """Return an estimate's interval: in fields of its own where a verdict states several estimates."""
    own = (f"{name}_lower", f"{name}_upper")
    first, last = own if own[0] in source else (lower, upper)
    return source.get(first), source.get(last)


def _label(pair: Mapping[str, Any]) -> str:
    if "outcome" in pair:
        return f"{pair['column']} – {pair['outcome']}"
    return f"{pair.get('first', '')} – {pair.get('second', '')}"


TICKS = 4
"""About how many ticks an axis has."""

LABEL_LENGTH_MAX = 25

PVALUE_DECADES_MIN = 6
"""Powers of ten that the axis of a p-value has at least; what is smaller still is drawn at its end."""

PLAIN_DECADES = 3
"""Powers of ten down to which that axis is written without exponents."""

Point = tuple[float, float]
Range = tuple[float, float]
Kind = Literal["null", "pvalue", "rows", "bars", "histogram", "curves", "heat"]
Look = Literal["bar", "dot", "fill"]


@dataclass(frozen=True)
class Rule:
    """A line across the chart at a value: what was found (``mark``), or what it is held against."""

    at: float
    words: str = ""
    mark: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Item:
    """A value with its interval where it has one: a bar from 0, or a dot. ``words`` say it.

    Of a ``ratio``, value and interval are its logarithms.
    """

    label: str
    value: float
    lower: float | None
    upper: float | None
    look: Look
    stands_out: bool = False
    ratio: bool = False

    @property
    def interval(self) -> Range | None:
        """Both ends; None where one of them is missing."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    @property
    def words(self) -> str:
        """Label, value and interval."""
        values = (self.value, *(self.interval or ()))
        value, *ends = (number(math.exp(each) if self.ratio else each) for each in values)
        return f"{self.label} {value}" + (f", interval {' to '.join(ends)}" if ends else "")


@dataclass(frozen=True)
class Chart:
    """One chart, in the units of what it shows.

    Attributes:
        kind: which chart; of bars and histograms nothing but the title says what they are of.
        title: the line above it.
        words: all of it in words, for whoever does not see it.
        unit: what the values are counted in.
        x: what the lower axis spans; powers of ten of a p-value.
        y: what the upright axis spans, of null distributions, histograms and curves.
        rules: lines at values of the lower axis.
        curve: points of a line, in order.
        tail: corners of what is shaded.
        items: one a line, or one a bin between ``edges``, and after those one beside the axis each.
        edges: of a histogram's bins.
        curves: with their intervals, each named.
        heat: a table of cells, one item each, row by row.
        data: the numbers it is of, by name.
        ratios: whether the lower axis is logarithmic, and says ratios.
    """

    kind: Kind
    title: str
    words: str
    unit: str
    x: Range
    y: Range = (0.0, 1.0)
    rules: tuple[Rule, ...] = ()
    curve: tuple[Point, ...] = ()
    tail: tuple[Point, ...] = ()
    items: tuple[Item, ...] = ()
    edges: tuple[float, ...] = ()
    curves: tuple[DrawnCurve, ...] = ()
    heat: HeatPanel | None = None
    data: Mapping[str, float] = field(default_factory=dict)
    ratios: bool = False

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values along the lower axis, and how they are written."""
        if self.ratios:
            return ratio_ticks(*self.x)
        if self.kind != "pvalue":
            return ticks_of(*self.x)
        decades = round(-self.x[0])
        step = max(1, decades // PVALUE_DECADES_MIN)
        powers = range(0, decades + 1, step)
        return [(-i, f"{10.0**-i:g}" if i <= PLAIN_DECADES else power_of_ten(-i)) for i in powers]


def chart_of(panel: Panel) -> Chart:
    """Return a panel's chart."""
    match panel:
        case NullPanel():
            return _null(panel)
        case PvaluePanel():
            return _pvalue(panel)
        case RowsPanel():
            return _rows(panel)
        case BarsPanel():
            return _bars(panel)
        case CurvesPanel():
            return _curves(panel)
        case HeatPanel():
            return _heat(panel)


def _null(panel: NullPanel) -> Chart:
    null, statistic = panel.null, panel.statistic
    marked = [statistic, *(critical.value for critical in null.criticals)]
    low, high = min(0.0, float(null.t[0]), *marked), max(float(null.t[-1]), *marked)
    margin = 0.02 * (high - low)
    curve = tuple((float(t), float(density)) for t, density in zip(null.t, null.density, strict=True))
    height = float(np.interp(statistic, null.t, null.density, right=0.0))
    beyond = (point for point in curve if point[0] > statistic)
    end = (max(statistic, curve[-1][0]), 0.0)
    return Chart(
        "null",
        f"Null distribution: {null.words}",
        f"Null distribution: {null.words}. The statistic is {number(statistic)}."
        + "".join(f" Critical value{_of(c.of)} {number(c.value)}." for c in null.criticals),
        "statistic, if the null hypothesis holds",
        (low if low == 0 else low - margin, high + margin),
        (0.0, 1.08 * float(null.density.max())),
        rules=(
            *(Rule(c.value, f"critical{_of(c.of)} {number(c.value)}", dashed=True) for c in null.criticals),
            Rule(statistic, f"statistic {number(statistic)}", mark=True),
        ),
        curve=curve,
        tail=((statistic, 0.0), (statistic, height), *beyond, end),
        data={"statistic": statistic},
    )


def _pvalue(panel: PvaluePanel) -> Chart:
    pvalue, level = panel.pvalue, panel.level
    decades = max(PVALUE_DECADES_MIN, math.ceil(-math.log10(level)) + 1)
    beyond = " (further left than this axis)" if pvalue < 10.0**-decades else ""
    return Chart(
        "pvalue",
        "",
        f"The p-value is {pvalue_number(pvalue)}; the level is {number(level)}.",
        "p-value, from 1 down; left of the level the null hypothesis is rejected",
        (-decades, 0.0),
        rules=(
            Rule(math.log10(level), f"level {number(level)}", dashed=True),
            Rule(math.log10(max(pvalue, 10.0**-decades)), pvalue_words(pvalue) + beyond, mark=True),
        ),
        data={"pvalue": pvalue, "level": level},
    )


def _rows(panel: RowsPanel) -> Chart:
    items = tuple(
        Item(
            row.label,
            row.value,
            row.lower,
            row.upper,
            "bar" if row.lower is None else "dot",
            row.stands_out,
            ratio=isinstance(panel, RatiosPanel),
        )
        for row in panel.rows
    )
    low, high = _ends(items, *panel.guides)
    margin = 0.05 * (high - low or 1.0)
    rules = (Rule(0.0), *(Rule(guide, dashed=bool(guide)) for guide in panel.guides))
    words = f"{panel.title}: " + "; ".join(item.words for item in items)
    x = (low - margin, high + margin)
    ratios = isinstance(panel, RatiosPanel)
    return Chart("rows", panel.title, words, panel.unit, x, rules=rules, items=items, ratios=ratios)


def _bars(panel: BarsPanel) -> Chart:
    items = tuple(Item(bar.label, bar.value, bar.lower, bar.upper, "fill") for bar in panel.bars)
    low, high = _ends(items)
    margin = 0.04 * (high - low)
    ends = (low - margin if low < 0 else 0.0, high + margin)
    words = f"{panel.unit}: " + "; ".join(item.words for item in items)
    if not panel.edges:
        return Chart("bars", panel.title, words, panel.unit, ends, items=items)
    x = (panel.edges[0], panel.edges[-1])
    return Chart("histogram", panel.title, words, panel.unit, x, ends, items=items, edges=panel.edges)


def _curves(panel: CurvesPanel) -> Chart:
    words = f"{panel.title}. " + " ".join(curve_words(curve) for curve in panel.curves)
    x = (panel.curves[0].x[0], panel.curves[0].x[-1])
    return Chart("curves", panel.title, words, panel.unit, x, curves=panel.curves)


def _heat(panel: HeatPanel) -> Chart:
    """Return a chart whose lower axis is the colours': from the most below 0 to as much above it."""
    items = tuple(
        Item(f"{row} · {column}: {percent(shown)} %, beyond independence", value, None, None, "fill")
        for row, values, own in zip(panel.rows, panel.values, panel.shown, strict=True)
        for column, value, shown in zip(panel.columns, values, own, strict=True)
    )
    largest = max(abs(item.value) for item in items) or 1.0
    words = f"{panel.title}. {panel.unit}. " + "; ".join(item.words for item in items)
    return Chart("heat", panel.title, words, panel.unit, (-largest, largest), items=items, heat=panel)


def percent(share: float) -> str:
    """Write a share as a percentage with a digit after the point; nothing is written as minus nothing."""
    return f"{round(100 * share, 1) + 0.0:.1f}"


def curve_words(curve: DrawnCurve) -> str:
    """Say where a curve is in the middle and at its end."""
    said = []
    for place in sorted({len(curve.x) // 2, len(curve.x) - 1}):
        interval = f"{number(curve.lower[place])} to {number(curve.upper[place])}"
        said.append(f"{number(curve.y[place])} at {number(curve.x[place])}, interval {interval}")
    return f"{curve.label}: {'; '.join(said)}."


def _ends(items: tuple[Item, ...], *others: float) -> Range:
    """Return what holds 0, every value and every interval."""
    ends = [end for item in items for end in (item.value, item.lower, item.upper) if end is not None]
    return min(0.0, *others, *ends), max(0.0, *others, *ends)


def _of(words: str) -> str:
    return f" of {words}" if words else ""


def ticks_of(low: float, high: float) -> list[tuple[float, str]]:
    """Return round values from ``low`` to ``high``, and how they are written."""
    step = round_step((high - low) / TICKS)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, f"{i * step:.6g}") for i in range(first, last + 1)]


RATIOS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Leading digits of the ratios that an axis says, from few to many."""


def ratio_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return logarithms of round ratios from exp(``low``) to exp(``high``), and how they are written."""
    decades = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
    for digits in RATIOS:
        ratios = [digit * 10.0**decade for decade in decades for digit in digits]
        found = [ratio for ratio in ratios if low <= math.log(ratio) <= high]
        if len(found) > TICKS // 2:
            break
    else:
        found = [ratio for ratio, _ in ticks_of(math.exp(low), math.exp(high))]
    return [(math.log(ratio), f"{ratio:.6g}") for ratio in found]


def round_step(step: float) -> float:
    """Return the next larger of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= step * (1 - 1e-9))


def number(value: float) -> str:
    """Write a number with four digits."""
    return f"{value:.4g}"


def short(label: str) -> str:
    """Cut a label to what fits beside a row."""
    return label if len(label) <= LABEL_LENGTH_MAX else label[: LABEL_LENGTH_MAX - 1] + "…"
