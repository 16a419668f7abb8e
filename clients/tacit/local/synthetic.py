"""A private database of a sample, and synthetic rows from private correlations and margins.

The database is the owner's part and the release, in one process. Synthetic rows come from a Gaussian copula,
made of what was released already: post-processing alone, no data is read, no budget spent. What a row holds
follows from the releases that the correlations and the margins came from, and people are protected by the
composition of those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from tacit.correlations import (
    NO_MATRIX,
    AnsweredScreeningResult,
    CorrelationMatrix,
    ScreeningResult,
    nearest_correlation,
    symmetric,
)
from tacit.database.released import ReleasedDatabase, databases_of
from tacit.database.weights import Weighting
from tacit.errors import InputError, StudyRefusedError, pandas_module
from tacit.in_process.runner import as_run, local_study, terms
from tacit.in_process.samples import (
    ArrayTable,
    Missing,
    Sample,
    admitted,
    domain_of,
    read_samples,
    read_with_units,
)
from tacit.results import NoisyCountsResult
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.cell_counts import OTHER
from tacit_protocol.features.column_histograms import ColumnHistograms, is_of_whole_numbers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError, check_release, planned
from tacit_protocol.procedures.counts.release import counted_part, grid_of
from tacit_protocol.procedures.embedding_release import EmbeddingRelease

if TYPE_CHECKING:
    import pandas as pd


OWNER = "sample"


def release_database(
    x: Any,
    *,
    epsilon: float,
    delta: float,
    method: Literal["subspace", "random-features", "exponential"] = "subspace",
    n_points: int | None = None,
    bounds: Any = None,
    public: Sequence[Sequence[float | str | None]] | None = None,
    columns: Sequence[str] | None = None,
    units: str | npt.ArrayLike | None = None,
    missing: Missing = "refuse",
    bandwidth: float | None = None,
    whole_numbers: Sequence[str] | None = None,
    move_points: bool = False,
    weights: Weighting = "simplex",
    l1_max: float = 1.0,
    seed: int | None = None,
    **parameters: Any,
) -> ReleasedDatabase:
    """Release a sample once as a weighted synthetic database, which anyone may then use for ever.

    Args:
        x: one sample.
        delta: 0 means pure epsilon, by Laplace noise or an exact choice.
        method: "subspace": the noisy mean embedding on public points (P2, Algorithm 1, with sharper noise);
            "random-features": that of random frequencies, to which points are fitted (Algorithm 2);
            "exponential": one of the candidate databases of ``candidate_rows`` rows of few points, drawn.
        n_points: number of points. With method "subspace" they are drawn from noisy histograms of the
            columns, for which a part of the budget is spent (``placement="uniform"`` draws them over the
            domain instead): 500 by default, less where columns are many. Candidates are of 10 points by
            default. Random features have ``n_frequencies`` instead.
        public: public points in place of drawn ones: rows with one value per column, in their own units.
        units: a column's name, or an array (n,).
        bandwidth: kernel bandwidth in units of the scaled columns; the median distance of the points by
            default.
        whole_numbers: columns that are publicly known to hold whole numbers, with bounds that are whole:
            histograms then have a bin for each number, and points stand on them, so that probabilities of
            "at most 10" are right. By default the columns whose type is an integer one. Only where points
            are drawn from histograms.
        move_points: move the points to match the release
            (:meth:`tacit.database.released.ReleasedDatabase.reduced`). By default they stay where they are,
            public ones above all, and :attr:`tacit.database.released.ReleasedDatabase.limits` says if they
            do not match it.
        weights: "simplex", "regularised" (with ``l1_max``), "raw" or "shrunk"; see
            :class:`tacit.database.released.ReleasedDatabase`, whose ``with_weights`` changes it later.
        l1_max: bound on the L1 norm of regularised weights.
        seed: fixes the points.
        parameters: such as ``kernel`` or ``category_similarity``.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A frozen database with ``expectation``, ``probability``, ``mmd``, ``two_sample_test``, ``sample``,
        ``transform`` and ``to_parquet``, ``to_csv``, ``to_pandas``.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).normal(3, 1, (20000, 1))
        >>> found = tacit.local.release_database(x, epsilon=1, delta=1e-6, bounds=(-5, 5), seed=1)
        >>> abs(found.expectation(lambda c: c["x1"]) - 3) < 0.2
        True
    """
    at = terms(epsilon, delta, 0.05, seed)
    given = None if units is None or isinstance(units, str) else [units]
    (sample,), (unit,) = read_with_units([x], columns, units if isinstance(units, str) else given, bounds)
    domain = domain_of(bounds, list(sample.columns))
    points = None
    if public is not None:
        names = [column.name for column in domain.columns]
        points = read_samples([public], names, "public")[0].points(domain)
    chosen: dict[str, Any] = {
        "method": method,
        "n_points": n_points,
        "bandwidth": bandwidth,
        "points": points,
        "whole_numbers": list(whole_numbers or ()) or None,
    }
    from_histograms = method == "subspace" and public is None
    if whole_numbers is None and from_histograms and parameters.get("placement") in {None, "histograms"}:
        chosen["whole_numbers"] = _whole_columns(sample, domain) or None
    procedure = EmbeddingRelease()
    (sample,) = admitted([sample], domain, missing)
    study = local_study(
        procedure.name,
        domain,
        [OWNER],
        chosen | parameters,
        **at,
    )
    try:
        table = ArrayTable.of(sample, domain, unit)
        if table.units < 1:
            raise InputError("the sample has no rows")
        study = as_run(procedure, study, [table.units])
        procedure.check(study)
        plan = planned(procedure, study)
        release = plan.privatise(plan.summarise(table), OpenDPNoise())
        check_release(procedure, study, release)
        verdict: Any = plan.conclude({OWNER: release}, {OWNER: release.units})
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    database = databases_of(study, verdict)[OWNER]
    if move_points:
        database = database.reduced(len(database), starts=1, seed=seed)
    return database if weights == "simplex" else database.with_weights(weights, l1_max=l1_max)


def _whole_columns(sample: Sample, domain: Domain) -> list[str]:
    """Name the columns whose type says that they hold whole numbers, where their bounds are whole too.

    A column's type is public, as its name is: no value is looked at.
    """
    return [
        column.name
        for column in domain.numeric
        if sample.is_of_integers(column.name) and is_of_whole_numbers(column)
    ]


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
        """Return the rows as a data frame. Raises InputError where pandas is not installed."""
        found: pd.DataFrame = pandas_module().DataFrame(self.columns)
        return found


def copula_sample(
    correlations: Any,
    margins: Margins | Sequence[Margins],
    n: int,
    seed: int | None = None,
) -> CopulaSample:
    """Draw synthetic rows with private margins and private dependence between every two columns.

    Results of studies serve as results of :mod:`tacit.local` do. What a Gaussian copula lacks no release
    brings back: dependence that goes up and down, and of more than two columns at once.

    Args:
        correlations: a screening with ``matrix=True``, whose signed distance correlations are turned into
            the correlations of normal scores that have them under these margins; or a
            :class:`CorrelationMatrix` of such, or a pandas, Polars or Arrow table, a row for each column.
        margins: of every column: noisy counts, a released database, margins by name, or several of these.
        n: how many rows to draw.
        seed: fixes the rows.

    Raises:
        InputError: a column has no margin, the screening no matrix, or a table is no correlation matrix.

    Example:
        >>> import numpy as np, tacit.local
        >>> from tacit.local.synthetic import Margin
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
    correlations: Any, margins: Mapping[str, Margin]
) -> tuple[tuple[str, ...], Floats, tuple[str, ...]]:
    """Return columns, correlations of their normal scores, and the columns without any."""
    if not isinstance(correlations, AnsweredScreeningResult | ScreeningResult | CorrelationMatrix):
        correlations = _matrix_of(correlations)
    given = correlations if isinstance(correlations, CorrelationMatrix) else correlations.matrix
    if given is None:
        raise InputError(NO_MATRIX)
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


def _matrix_of(table: Any) -> CorrelationMatrix:
    if isinstance(table, np.ndarray | list | tuple):
        raise InputError("an array names no columns: pass CorrelationMatrix(columns, array)")
    sample = read_samples([table], None, "correlations")[0]
    values = np.array([sample.numeric(name) for name in sample.columns]).T
    if values.shape[0] != values.shape[1] or not np.allclose(values, values.T):  # NaN is close to nothing
        raise InputError("correlations must be a symmetric table of numbers, a row for each column in order")
    return CorrelationMatrix(tuple(sample.columns), values)


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
