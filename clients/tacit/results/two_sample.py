"""The outcome of a test whether samples come from one population, unpackable like those of scipy.stats."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.errors import PlottingError
from tacit.results.common import common_fields
from tacit.results.comparison import (
    Comparison,
    LocationComparison,
    compared_columns,
    compared_location,
    compared_owners,
)
from tacit_protocol.messages.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        locations: the test locations where owners differ most (Holm), with mean embeddings.
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
    locations: tuple[LocationComparison, ...]
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


def two_sample_result(study: Study, verdict: Mapping[str, Any]) -> TwoSampleResult:
    """Build the typed result from a study and the verdict of a two-sample procedure, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is no such procedure's.
    """
    estimate = verdict.get("squared_mmd")
    return TwoSampleResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        estimate=None if estimate is None else float(estimate),
        interval=None if estimate is None else (float(verdict["lower"]), float(verdict["upper"])),
        pairs=tuple(compared_owners(pair) for pair in verdict.get("pairs", ())),
        columns=tuple(compared_columns(group) for group in verdict.get("columns", ())),
        locations=tuple(compared_location(location) for location in verdict.get("locations", ())),
        **common_fields(study, verdict),
    )
