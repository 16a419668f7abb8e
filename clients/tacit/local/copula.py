"""Synthetic rows from private correlations and margins: a Gaussian copula, made of what was released already.

Post-processing alone: no data is read, no budget spent. What a row holds follows from the releases that the
correlations and the margins came from, and people are protected by the composition of those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from tacit.database.released import ReleasedDatabase
from tacit.errors import InputError
from tacit.results import (
    CorrelationMatrix,
    NoisyCountsResult,
    ScreeningResult,
    nearest_correlation,
    symmetric,
)
from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.features.cell_counts import OTHER
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.procedures.counts.release import counted_part, grid_of

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

QUADRATURE_POINTS = 800
"""Pairs of normal scores at which a copula's distance correlations are worked out: good to .01."""

GRID = np.linspace(-1.0, 1.0, 21)
"""Correlations of normal scores between which a distance correlation is interpolated."""

PLASTIC = 1.32471795724474602596
"""The root of x^3 = x + 1: its powers make the most even sequence of points in a square (Roberts, 2018)."""

ROWS_MAX = 10**8

UNLISTED: tuple[str | None, ...] = (OTHER, None)
"""What stands for a value that is not listed, and for a missing one."""


@dataclass(frozen=True)
class Margin:
    """A column's distribution: cells in their order, with shares (cells,) that are 0 or more and add up to 1.

    A number's cells reach from ``lower`` to ``upper`` (cells,), values within one alike; a cell whose ends
    are equal is a value. A category's ``levels`` are its cells. ``noise`` is the standard deviation of the
    noise on a share, before what is below 0 was taken off.
    """

    shares: Floats
    noise: float
    lower: Floats | None = None
    upper: Floats | None = None
    levels: tuple[str | None, ...] = ()
    whole: bool = False

    @classmethod
    def of_cells(cls, shares: npt.ArrayLike, noise: float, edges: npt.ArrayLike) -> "Margin":
        """Return a number's margin from the noisy shares of the cells between edges, (cells + 1,)."""
        ends = np.asarray(edges, dtype=np.float64)
        return cls(_probabilities(shares), noise, lower=ends[:-1], upper=ends[1:])

    @classmethod
    def of_levels(cls, shares: npt.ArrayLike, noise: float, levels: Iterable[str | None]) -> "Margin":
        """Return a category's margin from the noisy shares of its levels."""
        return cls(_probabilities(shares), noise, levels=tuple(levels))

    def quantiles(self, probabilities: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
        """Return the cells of probabilities (n,), and the numbers there; of categories the cells' places."""
        ends = np.cumsum(self.shares)
        ends[-1] = 1.0
        cells = np.minimum(np.searchsorted(ends, probabilities, side="right"), len(ends) - 1)
        if self.lower is None or self.upper is None:
            return cells, cells.astype(np.float64)
        share = self.shares[cells]
        part = (probabilities - (ends[cells] - share)) / np.where(share > 0, share, 1.0)
        values = self.lower[cells] + np.clip(part, 0, 1) * (self.upper[cells] - self.lower[cells])
        if self.whole:
            first, last = np.ceil(self.lower[cells]), np.floor(self.upper[cells])
            values = np.clip(np.rint(values), first, last)
        return cells, values

    def column(self, probabilities: Floats) -> npt.NDArray[Any]:
        """Return the column's own values at probabilities (n,): numbers, or levels."""
        cells, values = self.quantiles(probabilities)
        return np.array(self.levels, dtype=object)[cells] if self.levels else values


Margins = Mapping[str, Margin] | NoisyCountsResult | ReleasedDatabase


@dataclass(frozen=True)
class CopulaSample:
    """Synthetic rows, and what is known of their errors.

    Attributes:
        columns: each column's values, (n,).
        correlations: of the columns' normal scores, as drawn: positive semidefinite.
        moved: how far the nearest such matrix lies from the private correlations, at most, of an entry.
        margin_noise: by column, the standard deviation of the noise on the share of a cell.
        unknown: columns whose own variance was lost in the noise: drawn independently of all others.
    """

    columns: dict[str, npt.NDArray[Any]]
    correlations: CorrelationMatrix
    moved: float
    margin_noise: dict[str, float]
    unknown: tuple[str, ...]

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame. Raises ImportError where pandas is not installed."""
        import pandas as pd  # noqa: PLC0415 (optional)

        return pd.DataFrame(self.columns)


def copula_sample(
    correlations: ScreeningResult | CorrelationMatrix,
    margins: Margins | Sequence[Margins],
    n: int,
    seed: int | None = None,
) -> CopulaSample:
    """Draw synthetic rows with private margins and private dependence between every two columns.

    Results of studies serve as results of :mod:`tacit.local` do. What a Gaussian copula lacks no release
    brings back: dependence that goes up and down, and of more than two columns at once.

    Args:
        correlations: a screening with ``matrix=True``, whose signed distance correlations are turned into
            the correlations of normal scores that have them under these margins; or a matrix of such.
        margins: of every column: noisy counts, a released database, margins by name, or several of these.
        n: how many rows to draw.
        seed: fixes the rows.

    Raises:
        InputError: a column has no margin, or the screening no matrix.

    Example:
        >>> import numpy as np, tacit.local
        >>> from tacit.local.copula import Margin
        >>> flat = Margin.of_cells([1.0], 0.0, [0.0, 1.0])
        >>> matrix = tacit.local.CorrelationMatrix(("a", "b"), np.array([[1.0, 0.9], [0.9, 1.0]]))
        >>> rows = tacit.local.copula_sample(matrix, {"a": flat, "b": flat}, 10_000, seed=1).columns
        >>> round(float(np.corrcoef(rows["a"], rows["b"])[0, 1]), 1)
        0.9
    """
    if not 1 <= n <= ROWS_MAX:
        raise InputError(f"n must lie between 1 and {ROWS_MAX}")
    found = _margins_by_name(margins)
    names, wished, unknown = _correlations_of(correlations, found)
    nearest = nearest_correlation(wished)
    values, vectors = np.linalg.eigh(nearest)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    scores = np.random.default_rng(seed).standard_normal((n, len(names))) @ root.T
    return CopulaSample(
        columns={name: found[name].column(ndtr(scores[:, place])) for place, name in enumerate(names)},
        correlations=CorrelationMatrix(names, nearest),
        moved=float(np.abs(nearest - wished).max()),
        margin_noise={name: found[name].noise for name in names},
        unknown=unknown,
    )


def _correlations_of(
    correlations: ScreeningResult | CorrelationMatrix, margins: Mapping[str, Margin]
) -> tuple[tuple[str, ...], Floats, tuple[str, ...]]:
    """Return columns, correlations of their normal scores, and the columns without any."""
    given = correlations if isinstance(correlations, CorrelationMatrix) else correlations.matrix
    if given is None:
        raise InputError("the study asked for no correlation matrix: set its parameter matrix = true")
    lacking = [name for name in given.columns if name not in margins]
    if lacking:
        raise InputError(f"no margin is given of {', '.join(lacking)}: count them in a study of their own")
    if isinstance(given, CorrelationMatrix):
        return given.columns, given.values, ()
    below = [np.nan if value is None else value for value in given.correlations]
    signed = symmetric(below, len(given.columns))
    lost = np.isnan(signed).sum(axis=1) == len(signed) - 1
    scores = normal_scores_correlations(np.nan_to_num(signed), [margins[name] for name in given.columns])
    return given.columns, scores, tuple(np.array(given.columns)[lost].tolist())


def normal_scores_correlations(signed: Floats, margins: Sequence[Margin]) -> Floats:
    """Turn signed distance correlations (p, p) into correlations of normal scores that have them.

    Each pair's distance correlation rises with |rho|; it is worked out under the pair's own margins at a grid
    of rho, at :data:`QUADRATURE_POINTS` fixed points, and interpolated. One that no rho reaches becomes 1.
    """
    places = np.arange(1, QUADRATURE_POINTS + 1)
    first, other = (ndtri((0.5 + places / PLASTIC**power) % 1) for power in (1, 2))
    own = np.array([_centred(margin, first) for margin in margins])
    own_norms = np.sqrt(np.maximum((own**2).sum(axis=1), 1e-300))
    curves = np.zeros((len(GRID), len(margins), len(margins)))
    for step, rho in enumerate(GRID):
        scores = rho * first + np.sqrt(1 - rho**2) * other
        moved = np.array([_centred(margin, scores) for margin in margins])
        norms = np.sqrt(np.maximum((moved**2).sum(axis=1), 1e-300))
        curves[step] = np.sqrt(np.clip(own @ moved.T / np.outer(own_norms, norms), 0.0, 1.0))
    curves = (curves + curves.transpose(0, 2, 1)) / 2
    middle, found = len(GRID) // 2, np.eye(len(margins))
    for i, j in zip(*np.tril_indices(len(margins), -1), strict=True):
        ends = curves[middle:, i, j] if signed[i, j] >= 0 else curves[middle::-1, i, j]
        # From 0 at independence, where fixed points leave a hair.
        rising = np.maximum.accumulate(np.concatenate([[0.0], ends[1:]]))
        rho = float(np.interp(abs(signed[i, j]), rising, GRID[middle:]))
        found[i, j] = found[j, i] = rho if signed[i, j] >= 0 else -rho
    return found


def _centred(margin: Margin, scores: Floats) -> Floats:
    """Return the distances between a column's values at normal scores (m,), centred, (m * m,)."""
    _, values = margin.quantiles(ndtr(scores))
    distances = np.abs(values[:, None] - values)
    if margin.levels:
        distances = (distances > 0).astype(np.float64)
    rows = distances.mean(axis=1)
    return np.asarray((distances - rows[:, None] - rows + rows.mean()).ravel())


def _margins_by_name(margins: Margins | Sequence[Margins]) -> dict[str, Margin]:
    if isinstance(margins, NoisyCountsResult):
        return _counted(margins)
    if isinstance(margins, ReleasedDatabase):
        return _of_database(margins)
    if isinstance(margins, Mapping):
        return dict(margins)
    found: dict[str, Margin] = {}
    for each in margins:
        found |= _margins_by_name(each)
    return found


def _counted(result: NoisyCountsResult) -> dict[str, Margin]:
    """Return every column's margin of all owners' noisy tables together."""
    study, table = result.source.study, result.table
    grid, units = grid_of(study, counted_part(study)), sum(result.units.values())
    deviation = result.scale * (np.sqrt(2) if result.noise == "laplace" else 1.0)
    found = {}
    for place, axis in enumerate(grid.axes):
        others = tuple(other for other in range(table.ndim) if other != place)
        shares = table.sum(axis=others) / units
        noise = float(deviation * np.sqrt(len(result.counts) * table.size / axis.size) / units)
        if isinstance(axis.column, NumericColumn):
            edges = [axis.column.lower, *axis.cuts, axis.column.upper]
            found[axis.column.name] = Margin.of_cells(shares, noise, edges)
        else:
            levels = (*axis.column.levels, *(() if axis.folded else UNLISTED))
            found[axis.column.name] = Margin.of_levels(shares, noise, levels)
    return found


def _of_database(database: ReleasedDatabase) -> dict[str, Margin]:
    """Return every column's margin: its noisy histogram, or where there is none its weighted points."""
    noisy = database.histograms
    if noisy is None:
        return {column.name: _of_points(database, column) for column in database.domain.columns}
    found, shares = {}, noisy.by_column(database.domain)
    for cells in ColumnHistograms(database.domain, noisy.bins, noisy.whole).columns:
        column = cells.column
        if isinstance(column, CategoricalColumn):
            levels = (*column.levels, *UNLISTED)
            found[column.name] = Margin.of_levels(shares[column.name], noisy.noise, levels)
            continue
        gathered = column.lower + np.array(cells.gathered) * (column.upper - column.lower)
        lower = np.concatenate([cells.edges[:-1], gathered])
        upper = np.concatenate([cells.edges[1:], gathered])
        # Values that gather at a bound come first or last, missing ones where their public value lies.
        order = np.lexsort((lower == upper, lower + upper))
        order = order[np.argsort(_rank(lower, upper, column)[order], kind="stable")]
        found[column.name] = Margin(
            _probabilities(np.array(shares[column.name])[order]),
            noisy.noise,
            lower[order],
            upper[order],
            whole=bool(cells.whole),
        )
    return found


def _rank(lower: Floats, upper: Floats, column: NumericColumn) -> npt.NDArray[np.int64]:
    """Return -1 for a cell of the lower bound alone, 1 for one of the upper, else 0."""
    single = lower == upper
    last = (single & (upper == column.upper)).astype(np.int64)
    return np.asarray(last - (single & (lower == column.lower)))


def _of_points(database: ReleasedDatabase, column: NumericColumn | CategoricalColumn) -> Margin:
    weights, values = database.probability_weights, database.points[column.name]
    noise = database.noise
    if isinstance(column, CategoricalColumn):
        names = list(dict.fromkeys(values.tolist()))
        shares = [float(weights[[value == name for value in values]].sum()) for name in names]
        return Margin.of_levels(shares, noise, names)
    order = np.argsort(values.astype(np.float64), kind="stable")
    places = values.astype(np.float64)[order]
    return Margin(_probabilities(weights[order]), noise, places, places)


def _probabilities(shares: npt.ArrayLike) -> Floats:
    """Return the probabilities nearest to noisy shares (cells,): 0 or more, with sum 1."""
    values = np.asarray(shares, dtype=np.float64)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    kept = int(np.count_nonzero(falling > excess))
    return np.asarray(np.maximum(values - excess[kept - 1], 0.0))
