"""The common verdict: what every procedure concludes, and what the SDK returns.

A verdict's fields are what the tester signs; bound to its source, the study and what is at hand of its
transcript, it says the same things in the terms of the SDK, in the manner of scipy.stats. Estimates are
stated cut to the range of what is estimated, within their own intervals, which reach to them; the unbiased
one, whose averages over studies mean something, under its own name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from pydantic import ConfigDict, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.strict import StrictModel

Interval = tuple[float, float]


def interval_of(lower: float | None, upper: float | None) -> Interval | None:
    """Return an interval from its ends, None where they are."""
    return None if lower is None or upper is None else (lower, upper)


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
class Source:
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

    absent_fields: ClassVar[bool] = False
    """Whether a field without a value is left out of what is signed, and not stated as null."""

    listed: ClassVar[tuple[str, ...]] = ()
    """What the command lists of it beside the common fields; where there is none, all that was signed."""

    private_decision: ClassVar[bool] = False
    """Whether ``reject`` was decided privately, so that no p-value tells how close it was."""

    method: str
    reject: bool
    level: float
    units: dict[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]

    _source: Source | None = PrivateAttr(default=None)

    @model_serializer(mode="wrap")
    def _signed(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        for name in self.added_fields:
            if getattr(self, name) == type(self).model_fields[name].default:
                fields.pop(name, None)
        if not self.absent_fields:
            return fields
        return {n: value for n, value in fields.items() if value is not None and n in self.model_fields_set}

    def bound(self, source: Source) -> Self:
        """Return the verdict with what it was made from."""
        found = self.model_copy()
        found._source = source
        return found

    @property
    def source(self) -> Source:
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
        for name in ("reject", "alpha", "method", "n", "epsilon", "delta", "warnings", *own):
            yield name, getattr(self, name)

    def __str__(self) -> str:
        return self._told("rejected" if self.reject else "not rejected")

    def _told(self, finding: str) -> str:
        """Return the verdict in a line: what was found, what it cost, and how."""
        return f"{finding}, epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"

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

    statistic: float
    pvalue: float

    def __iter__(self) -> Iterator[float]:  # type: ignore[override]
        yield self.statistic
        yield self.pvalue

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-value."""
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
        """Return what the command shows first."""
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
