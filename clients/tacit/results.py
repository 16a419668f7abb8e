"""Typed results in the manner of scipy.stats: frozen, unpackable, and the same from every surface.

``statistic, pvalue = result`` works whether the result came from :mod:`tacit.local`, from a tester or from a
transcript: all are built from the procedure's verdict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.errors import PlottingError, VerificationFailedError
from tacit_protocol.messages.study import Study
from tacit_protocol.messages.verdict import VerdictMessage

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


@dataclass(frozen=True)
class TwoSampleResult:
    """Outcome of a kernel two-sample (or k-sample) test. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under the null hypothesis (one population) of a statistic at least as large.
        reject: whether ``pvalue`` is at most ``alpha``.
        alpha: the level, in (0, 0.5).
        method: what was computed, in words.
        n: privacy units of each owner, by name.
        epsilon: what every owner spent.
        delta: what every owner spent.
        warnings: what limits the test, in words.
        estimate: squared maximum mean discrepancy, averaged over pairs of owners, or None.
        interval: covers what ``estimate`` estimates with probability 1 - alpha at least, or None.
        pairs: which owners differ (Holm).
        columns: which columns, and which pairs of columns, differ (Holm), where the features tell.
        verdict: everything that the procedure reports.
    """

    statistic: float
    pvalue: float
    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    estimate: float | None
    interval: tuple[float, float] | None
    pairs: tuple[Comparison, ...]
    columns: tuple[Comparison, ...]
    verdict: Mapping[str, Any]

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "differ" if self.reject else "no difference shown"
        return (
            f"{decision}: statistic {self.statistic:.4g}, p = {self.pvalue:.3g} at level {self.alpha:g}, "
            f"epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"
        )

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the p-values of the whole test, of the pairs and of the columns against the level.

        ``axes`` is where to draw; new ones are made by default. Returns the axes.

        Raises:
            PlottingError: matplotlib is not installed.
        """
        try:
            from matplotlib import pyplot  # noqa: PLC0415 (an optional dependency)
        except ImportError as error:
            raise PlottingError("plot() needs matplotlib: pip install matplotlib") from error
        target: Axes = pyplot.subplots(layout="constrained")[1] if axes is None else axes
        rows = [("all", self.pvalue, self.reject)]
        rows += [(" and ".join(c.names), c.pvalue, c.reject) for c in (*self.pairs, *self.columns)]
        labels, pvalues, rejected = zip(*reversed(rows), strict=True)
        target.barh(labels, pvalues, color=["tab:red" if reject else "tab:gray" for reject in rejected])
        target.axvline(self.alpha, color="black", linestyle="--", label=f"level {self.alpha:g}")
        target.set_xscale("log")
        target.set_xlabel("p-value (adjusted after Holm)")
        target.legend()
        return target


@dataclass(frozen=True)
class StudyVerdict:
    """How a study ended: ``outcome`` is completed, incomplete or cancelled.

    ``missing`` names the owners that sent nothing; ``result`` is there where the study was completed.
    """

    digest: str
    study: Study
    message: VerdictMessage
    result: TwoSampleResult | None

    @property
    def outcome(self) -> str:
        """How the study ended."""
        return self.message.outcome

    @property
    def missing(self) -> tuple[str, ...]:
        """The owners that sent nothing."""
        return self.message.missing


def study_verdict(study: Study, message: VerdictMessage) -> StudyVerdict:
    """Build the typed outcome from a study and its verdict, whose signature the caller has checked.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    if message.result is None:
        return StudyVerdict(message.study, study, message, None)
    try:
        return StudyVerdict(message.study, study, message, two_sample_result(study, message.result))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailedError("the verdict is not what the study's procedure reports") from error


def two_sample_result(study: Study, verdict: Mapping[str, Any]) -> TwoSampleResult:
    """Build the typed result from a study and the verdict of ``kernel_two_sample``, as plain values."""
    estimate = verdict["squared_mmd"]
    return TwoSampleResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        reject=bool(verdict["reject"]),
        alpha=study.level,
        method=str(verdict["method"]),
        n={str(name): int(units) for name, units in verdict["units"].items()},
        epsilon=study.budget.epsilon,
        delta=study.budget.delta,
        warnings=tuple(str(warning) for warning in verdict["warnings"]),
        estimate=None if estimate is None else float(estimate),
        interval=None if estimate is None else (float(verdict["lower"]), float(verdict["upper"])),
        pairs=tuple(_pair(pair) for pair in verdict["pairs"]),
        columns=tuple(
            Comparison(tuple(map(str, group["columns"])), float(group["pvalue"]), bool(group["reject"]))
            for group in verdict["columns"]
        ),
        verdict=verdict,
    )


def _pair(pair: Mapping[str, Any]) -> Comparison:
    return Comparison(
        names=(str(pair["first"]), str(pair["second"])),
        pvalue=float(pair["pvalue"]),
        reject=bool(pair["reject"]),
        estimate=float(pair["squared_mmd"]),
        interval=(float(pair["lower"]), float(pair["upper"])),
    )
