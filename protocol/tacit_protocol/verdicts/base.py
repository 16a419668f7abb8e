"""The common verdict: what every procedure concludes, and what the SDK returns.

A verdict's fields are what the tester signs; bound to its source, the study and what is at hand of its
transcript, it says the same things in the terms of the SDK, in the manner of scipy.stats. Estimates are
stated cut to the range of what is estimated, within their own intervals, which reach to them; the unbiased
one, whose averages over studies mean something, under its own name. Effects are stated alike by all of them:
what differs, between which groups, by how much, in which unit.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol, Self

from pydantic import ConfigDict, PrivateAttr

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.presentation import RatiosPanel, Row, RowsPanel, Shown, pvalue_number

Interval = tuple[float, float]


def interval_of(lower: float | None, upper: float | None) -> Interval | None:
    """Return an interval from its ends, None where they are."""
    return None if lower is None or upper is None else (lower, upper)


PVALUE = Shown("p-value", "test", words=pvalue_number, first=True)
"""How people see a p-value."""

QVALUE = Shown("q-value", words=pvalue_number)
HETEROGENEITY = Shown("p-value of one effect at all owners", "test", words=pvalue_number)
REJECTED = Shown("shown at the level")
"""How people see the decision on one of several hypotheses."""
EFFECTS = Shown("effects, each with its interval", "effects")
EFFECTS_BY_OWNER = Shown("effects of each owner's own units", "effects")
SUMMARIES = Shown("each owner's own numbers, with their intervals", "effects")
COVARIANCE_ESTIMATE = Shown(
    "squared distance covariance", "effects", ("covariance_lower", "covariance_upper")
)


def estimate_shown(label: str, lower: str = "lower", upper: str = "upper") -> Shown:
    """Return how people see an estimate with an interval between two fields."""
    return Shown(label, "effects", (lower, upper))


def compared_shown(what: str) -> Shown:
    """Return how people see several hypotheses that were tested together."""
    return Shown(f"{what} compared, p-values adjusted for all of them", "test")


def unbiased_shown(label: str) -> Shown:
    """Return how people see an estimate before it is cut to what is possible, and to its interval."""
    return Shown(f"{label}, unbiased (may be negative)")


class UnboundVerdictError(LookupError):
    """A verdict was asked for what follows from its study, and was never bound to it."""


@dataclass(frozen=True)
class ShownTable:
    """A table for people: headings, and a row of words for each line."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Renderer(Protocol):
    """What draws, tabulates and writes verdicts, with files and libraries that the protocol does without."""

    def panels(self, verdict: "BaseVerdict") -> tuple[Any, ...]:
        """Return what can be drawn, as numbers."""

    def to_svg(self, verdict: "BaseVerdict") -> str:
        """Draw a verdict as SVG text."""

    def plot(self, verdict: "BaseVerdict") -> Any:
        """Draw a verdict with matplotlib."""

    def report_html(self, verdict: "BaseVerdict", question: str | None) -> str:
        """Return a verdict's report as HTML text."""

    def report(self, verdict: "BaseVerdict", path: Any, question: str | None) -> Any:
        """Write a verdict's report; returns where."""

    def notebook_html(self, verdict: "BaseVerdict") -> str:
        """Return what a notebook shows of a verdict."""

    def frame(self, columns: Mapping[str, Any], levels: Mapping[str, Sequence[str]] | None = None) -> Any:
        """Return a pandas frame of these columns; its rows are the combinations of ``levels``, if any."""


@dataclass(frozen=True)
class VerdictSource:
    """What a verdict was made from: the study, and of its transcript what is at hand.

    Attributes:
        study: the study; its title is the question.
        digest: the study's digest, or None of a study in this process.
        releases: by owner as the study reads them; empty where the verdict alone is known, as from a tester.
        renderer: what draws the verdict, tabulates it and writes its report.
    """

    study: Study
    digest: str | None = None
    releases: Mapping[str, Release] = field(default_factory=dict, repr=False)
    renderer: Renderer | None = field(default=None, repr=False, compare=False)

    @property
    def drawn_by(self) -> Renderer:
        """The renderer; raises UnboundVerdictError where there is none."""
        if self.renderer is None:
            raise UnboundVerdictError("nothing draws this verdict: read it by tacit.results.result_of")
        return self.renderer


class BaseVerdict(StrictModel):
    """What every verdict states. A test's unpacks into ``statistic, pvalue``; a decision's cannot.

    Attributes:
        reject: whether the null hypothesis is rejected at level ``alpha``; always False where nothing is
            tested.
        method: what was computed, in words.
        level: the level, in (0, 0.5).
        units: privacy units of each owner, by name.
        epsilon: what every owner that released something spent.
        delta: what every owner that released something spent.
        warnings: what limits the result, in words.
    """

    listed: ClassVar[tuple[str, ...]] = ()
    """What the command lists of it beside the common fields; where there is none, all that was signed."""

    private_decision: ClassVar[bool] = False
    """Whether ``reject`` was decided privately, so that no p-value tells how close it was."""

    tabulated: ClassVar[tuple[str, ...]] = ()
    """Fields that hold parts, a row each: :meth:`to_pandas` shows the first of them that is not empty."""

    method: Annotated[str, Shown("method", "test")]
    reject: Annotated[bool, Shown("")]
    level: Annotated[float, Shown("level", "test")]
    units: Annotated[dict[str, int], Shown("privacy units")]
    epsilon: Annotated[float, Shown("spent by every sender, ε")]
    delta: Annotated[float, Shown("spent by every sender, δ")]
    warnings: Annotated[tuple[str, ...], Shown("")]

    _source: VerdictSource | None = PrivateAttr(default=None)

    def bound(self, source: VerdictSource) -> Self:
        """Return the verdict with what it was made from."""
        found = self.model_copy()
        found._source = source
        return found

    @property
    def source(self) -> VerdictSource:
        """The study, its digest, and its releases where they are at hand.

        Raises:
            UnboundVerdictError: the verdict was made and not yet bound to its study.
        """
        if self._source is None:
            raise UnboundVerdictError("this verdict is bound to no study: read it by tacit.results.result_of")
        return self._source

    @property
    def alpha(self) -> float:
        """The level, in (0, 0.5)."""
        return self.level

    @property
    def n(self) -> Mapping[str, int]:
        """Privacy units of each owner, by name."""
        return self.units

    @property
    def verdict(self) -> Mapping[str, Any]:
        """All that was signed, as plain values."""
        return self.model_dump(mode="json")

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        raise TypeError(
            f"{type(self).__name__} cannot be unpacked: it has not both a statistic and a p-value"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        own = self.listed if self._source is not None else ()
        first = ("warnings",) if self.warnings else ()
        for name in (*first, "reject", "alpha", "method", "n", "epsilon", "delta", *own):
            yield name, getattr(self, name)
        if self.heading:
            yield "heading", self.heading

    def __str__(self) -> str:
        return self._told("rejected" if self.reject else "not rejected")

    def _told(self, finding: str) -> str:
        """Return the verdict in a line: what was found, what it cost, and how; before it a line a warning."""
        line = f"{finding}, epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"
        return "\n".join([*(f"Warning: {warning}" for warning in self.warnings), line])

    @property
    def heading(self) -> str:
        """Which parts stand out, in a short line above the picture; empty where there are no such parts."""
        return ""

    def to_pandas(self) -> Any:
        """Return a pandas frame: a row for each part (effect, pair, column), or all in one row where none is.

        An interval is its two ends, ``lower`` and ``upper``; one row has the units of all owners together.

        Raises:
            InputError: pandas is not installed.
        """
        frame = self.source.drawn_by.frame
        for name in self.tabulated:
            if parts := getattr(self, name):
                return parts_frame(parts, frame)
        row: dict[str, Any] = {"reject": self.reject, "alpha": self.alpha}
        figures = {name: getattr(self, name) for name in self.listed} or self.verdict
        for name, value in figures.items():
            if name.endswith("interval"):
                stem = name.removesuffix("interval")
                row[f"{stem}lower"], row[f"{stem}upper"] = value or (None, None)
            elif value is None or isinstance(value, str | float | int):
                row[name] = value
        row |= {"units": sum(self.units.values()), "epsilon": self.epsilon, "delta": self.delta}
        return frame({name: [value] for name, value in (row | {"method": self.method}).items()})

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-values of all that was tested, by what tells them apart; none where nothing was.

        A private decision counts as a p-value of its level where it rejects, and of 1 where it does not.
        """
        return {"": self.alpha if self.reject else 1.0} if self.private_decision else {}

    def fields(self) -> dict[str, Any]:
        """Return what the command lists of it beside the common fields, as plain values."""
        return {name: getattr(self, name) for name in self.listed} or {"verdict": self.verdict}

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: the finding, and what it rests on."""
        decision = "rejected" if self.reject else "not rejected"
        return (
            f"Verdict of {self.source.study.procedure}: the hypothesis is {decision} (level {self.alpha:g})",
            f"  {self.method}",
        )

    def details(self) -> Sequence[str | ShownTable]:
        """Return what the command shows after the cost."""
        return ()

    def shown(self) -> Sequence[str | ShownTable]:
        """Return all that the command shows, but for the warnings."""
        spent = f"  every owner spent epsilon {self.epsilon:g}, delta {self.delta:g}"
        return (*self.summary(), spent, *self.details())

    def panels(self) -> tuple[Any, ...]:
        """Return what can be drawn, as numbers."""
        return self.source.drawn_by.panels(self)

    def to_svg(self) -> str:
        """Return the result's picture as SVG text; needs no library.

        Where the null distribution can be worked out (from a transcript, or in one process) the statistic is
        marked on it, with the critical value; then the p-value and the level, effects with their intervals,
        and cells with their residuals. Noisy counts and databases are bars, with the noise's intervals.

        Raises:
            InputError: there is nothing to draw.
        """
        return self.source.drawn_by.to_svg(self)

    def plot(self) -> Any:
        """Draw the same with matplotlib; returns its figure.

        Raises:
            InputError: there is nothing to draw.
            PlottingError: matplotlib is not installed.
        """
        return self.source.drawn_by.plot(self)

    def report(self, path: Any, *, question: str | None = None) -> Any:
        """Write a one-page report, HTML that stands alone and can be printed; returns its path.

        It says the question, the verdict in plain words, what every owner spent, and how to verify it, with
        a methods text and citations for a paper. Whoever has the result may have the report: it holds
        nothing else.

        Args:
            path: the file to write; an existing one is replaced.
            question: the report's heading; by default the study's title.

        Raises:
            InputError: the file cannot be written.
        """
        return self.source.drawn_by.report(self, path, question)

    def report_html(self, *, question: str | None = None) -> str:
        """Return the report of :meth:`report` as HTML text."""
        return self.source.drawn_by.report_html(self, question)

    def picture(self) -> str | None:
        """Return the SVG document that the report shows in the place of charts, or None."""
        return None

    def _repr_html_(self) -> str:
        return self.source.drawn_by.notebook_html(self)


class PvalueVerdict(BaseVerdict):
    """A verdict with a test. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under the null hypothesis of a statistic at least as large.
    """

    statistic: Annotated[float, Shown("statistic", "test")]
    pvalue: Annotated[float, PVALUE]

    def __iter__(self) -> Iterator[float]:  # type: ignore[override]
        yield self.statistic
        yield self.pvalue

    def hypotheses(self) -> Mapping[str, float]:
        return {"": self.pvalue}

    def _decided(self, decision: str) -> str:
        """Return the verdict in a line, with its p-value."""
        return f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}"

    def _finding(self, finding: str) -> str:
        """Return the command's first line."""
        return f"Verdict: {finding} (p = {self.pvalue:.3g}, level {self.alpha:g})"


class DecisionResult(BaseVerdict):
    """Outcome of a test that releases its decision and nothing finer. It cannot be unpacked.

    Attributes:
        finding: what the decision means, in words.
    """

    listed: ClassVar[tuple[str, ...]] = ("finding",)
    private_decision: ClassVar[bool] = True
    if_rejected: ClassVar[str] = "the null hypothesis is rejected"
    """What a rejection means, in words."""
    if_not_rejected: ClassVar[str] = "the null hypothesis is not rejected"
    """What it means, in words, that the hypothesis was not rejected."""

    @property
    def finding(self) -> str:
        """What the decision means, in words."""
        return self.if_rejected if self.reject else self.if_not_rejected

    def __str__(self) -> str:
        return self._told(f"{self.finding} at level {self.alpha:g}")

    def summary(self) -> Sequence[str | ShownTable]:
        return (
            f"Verdict: {self.finding} (level {self.alpha:g})",
            *self._of(),
            f"  {self.method}",
            "  the decision alone is private: there is no statistic and no p-value to show",
        )

    def _of(self) -> Sequence[str]:
        """Return what was tested, where the decision does not say it."""
        return ()


class ProcedureResult(BaseVerdict):
    """Outcome of some procedure that is not known here; its own figures are in ``verdict``.

    Attributes:
        procedure: the procedure's name.
    """

    model_config = ConfigDict(extra="allow")

    @property
    def procedure(self) -> str:
        """The procedure's name."""
        return self.source.study.procedure

    def __str__(self) -> str:
        decision = "rejected" if self.reject else "not rejected"
        return self._told(f"{self.procedure}: {decision} at level {self.alpha:g}")

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-value, where the verdict states one."""
        pvalue = self.verdict.get("pvalue")
        return {} if pvalue is None else {"": pvalue}


@dataclass(frozen=True)
class Stated:
    """An estimate in [lower, upper] and in the range of what is estimated, and the unbiased one."""

    value: float
    unbiased: float
    lower: float
    upper: float


def stated(unbiased: float, interval: tuple[float, float], largest: float = math.inf) -> Stated:
    """State an unbiased estimate of what lies in [0, ``largest``], with its interval.

    >>> stated(-0.016, (0.0, 0.33))
    Stated(value=0.0, unbiased=-0.016, lower=0.0, upper=0.33)
    """
    value, (lower, upper) = min(largest, max(0.0, unbiased)), interval
    return Stated(value, unbiased, min(lower, value), max(min(upper, largest), value))


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


def parts_frame(parts: Sequence[StrictModel], frame: Any) -> Any:
    """Return effects, or other parts of one type, as a pandas frame, made by ``frame`` of columns."""
    fields = type(parts[0]).model_fields if parts else Effect.model_fields
    return frame({name: [getattr(part, name) for part in parts] for name in fields})


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
