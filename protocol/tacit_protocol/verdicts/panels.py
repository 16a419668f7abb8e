"""What procedures draw of their verdicts, as numbers: rows with intervals, bars, and null distributions."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtr, chdtri, gammaln, xlogy

from tacit_protocol.numerics.quadratic_forms import QuadraticLaw

ROW_HEIGHT = 18
LABELS_WIDTH = 170
"""Where the axis of a panel of rows begins: labels are left of it."""


@dataclass(frozen=True)
class Row:
    """One line of a panel: a label, a value, an interval where there is one, and whether it stands out."""

    label: str
    value: float
    lower: float | None
    upper: float | None
    stands_out: bool


@dataclass(frozen=True)
class RowsPanel:
    """Effects with intervals, or cells with residuals, around 0. ``unit`` says what the axis is."""

    title: str
    unit: str
    rows: tuple[Row, ...]
    guides: tuple[float, ...] = ()
    """Values at which a line is drawn, besides 0."""


class RatiosPanel(RowsPanel):
    """Natural logarithms of ratios with intervals, around 0; the axis and all words say the ratios."""


Floats = npt.NDArray[np.float64]

BARS_MAX = 20
"""Most bars beside each other with labels of their own: of more the largest are drawn."""

COLUMN_BINS_MAX = 40
"""Most bars of a numeric column: more bins are added up to fewer."""


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, its height, and the interval of the noise where that is known."""

    label: str
    value: float
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class BarsPanel:
    """Bars from 0. ``unit`` says what their length is, ``note`` how they are read.

    ``edges`` are a numeric column's: the first bars are then the intervals between them, and the others
    stand for values where rows gather.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""
    edges: tuple[float, ...] = ()


@dataclass(frozen=True)
class DrawnCurve:
    """A line with its intervals: (m,) places and values each."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True)
class CurvesPanel:
    """Curves of shares, between 0 and 1, over the same axis; ``unit`` says what that is."""

    title: str
    unit: str
    curves: tuple[DrawnCurve, ...]


def largest(values: Floats) -> list[int]:
    """Return which of (k,) values are drawn: all in their order, or the largest of too many, by size."""
    if len(values) <= BARS_MAX:
        return list(range(len(values)))
    return [int(place) for place in np.argsort(-values, kind="stable")[:BARS_MAX]]


def bar(label: str, value: float, half: float | None) -> Bar:
    """Return a bar with the interval around it, where there is one."""
    return Bar(label, value) if half is None else Bar(label, value, value - half, value + half)


POINTS = 200
"""Points of a drawn curve."""

TAIL_MIN = 1e-3
"""A curve is drawn at least as far as its upper quantile of this probability."""

BINS_MIN, BINS_MAX = 12, 40
"""Bars of simulated statistics."""


DRAWN_MAX = 1999
"""Most simulated statistics that a chart shows."""

DRAWN_MIN = 199
"""Fewest simulated statistics that are worth drawing."""

WORK_MAX = 2 * 10**7
"""Most simulated numbers of one chart: about a second of one processor."""

WEIGHTED = "a weighted sum of chi-squared values, which counts sampling and privacy noise"
SIMULATED = "simulated statistics, which count sampling and privacy noise"


@dataclass(frozen=True)
class Critical:
    """A value above which a statistic is rejected; ``of`` says which statistics, where there are several."""

    value: float
    of: str = ""


@dataclass(frozen=True)
class Null:
    """The law of a statistic under the null hypothesis.

    ``t`` and ``density`` (m,) are the points of its curve, in order; ``words`` say what it is. ``criticals``
    is empty where nothing can be rejected at the level, or where that does not depend on the statistic alone.
    """

    words: str
    t: Floats
    density: Floats
    criticals: tuple[Critical, ...]


def from_density(
    words: str,
    density: Callable[[Floats], Floats],
    high: float,
    statistic: float,
    criticals: tuple[Critical, ...],
) -> Null:
    """Draw a density of values above 0 as far as ``high``, or the statistic or a critical value beyond it."""
    # Near 0 some densities have no bound: the curve begins a step away from it.
    bulk = np.linspace(high / POINTS, high, POINTS)
    end = 1.05 * max(high, statistic, *(critical.value for critical in criticals))
    t = np.concatenate([bulk, np.linspace(high, end, POINTS // 10)[1:]])
    return Null(words, t, density(t), criticals)


def chi_square(degrees: int, statistic: float, level: float) -> Null:
    """Return the chi-squared law with so many degrees of freedom."""
    words, high = f"chi-squared with {_degrees(degrees)}", chi_square_quantile(degrees, TAIL_MIN)
    critical = Critical(chi_square_quantile(degrees, level))
    return from_density(words, lambda t: _chi_square_density(degrees, t), high, statistic, (critical,))


def chi_square_quantile(degrees: int, tail: float) -> float:
    """Return the value that a chi-squared variable exceeds with probability ``tail``."""
    # scipy.stats says the same, and costs every command a second to import.
    return float(chdtri(degrees, tail))


def _chi_square_density(degrees: int, t: Floats) -> Floats:
    half = degrees / 2
    return np.asarray(np.exp(xlogy(half - 1, t) - t / 2 - gammaln(half) - half * math.log(2)))


def largest_of(count: int, degrees: int, statistic: float, criticals: tuple[Critical, ...]) -> Null:
    """Return the law of the largest of ``count`` independent chi-squares with ``degrees`` degrees each."""

    def density(t: Floats) -> Floats:
        return np.asarray(count * _chi_square_density(degrees, t) * chdtr(degrees, t) ** (count - 1))

    high = chi_square_quantile(degrees, -math.expm1(math.log1p(-TAIL_MIN) / count))
    words = f"the largest of {count} chi-squared values with {_degrees(degrees)} each"
    return from_density(words, density, high, statistic, criticals)


def quadratic(words: str, laws: tuple[QuadraticLaw, ...], statistic: float, level: float) -> Null:
    """Return the law of a quadratic form in normals; of several the one with the largest p-value."""
    law = max(laws, key=lambda each: each.pvalue(statistic)) if len(laws) > 1 else laws[0]
    high, critical = law.quantile(TAIL_MIN), max(each.quantile(level) for each in laws)
    start, end = min(law.quantile(1 - TAIL_MIN), 0.0), max(high, critical, statistic)
    bulk = np.linspace(start, max(high, critical), POINTS + 1)
    edges = np.concatenate([bulk, np.linspace(bulk[-1], end + 0.05 * (end - start), POINTS // 10)[1:]])
    # A density may rise without bound at 0: what is drawn are shares of narrow strips, which cannot.
    shares = -np.diff(law.tails(edges)) / np.diff(edges)
    return Null(words, (edges[1:] + edges[:-1]) / 2, np.maximum(shares, 0.0), (Critical(critical),))


def from_draws(words: str, draws: Floats, level: float) -> Null | None:
    """Return the law of simulated statistics, (draws,), as bars; None where no two of them differ.

    The p-value is (1 + draws at least as large) / (draws + 1): rejected is above the draw of the last rank
    that keeps that at the level.
    """
    rank = math.floor(level * (len(draws) + 1) + 1e-9) - 1
    ordered = np.sort(draws)[::-1]
    criticals = (Critical(float(ordered[rank])),) if rank >= 0 and np.isfinite(ordered[rank]) else ()
    kept = draws[np.isfinite(draws)]
    if len(kept) < 2 or np.ptp(kept) == 0:
        return None
    bins = int(np.clip(len(np.histogram_bin_edges(kept, "fd")) - 1, BINS_MIN, BINS_MAX))
    heights, edges = np.histogram(kept, bins=bins, density=True)
    t, density = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(heights, 2), [0.0]])
    return Null(words, t, density, criticals)


def _degrees(degrees: int) -> str:
    return f"{degrees} degree{'' if degrees == 1 else 's'} of freedom"


def affordable(replicates: int, numbers: int) -> int | None:
    """Return how many replicates, of ``numbers`` numbers each, a chart simulates; None for none."""
    count = min(replicates, DRAWN_MAX, WORK_MAX // numbers)
    return count if count >= min(DRAWN_MIN, replicates) else None
