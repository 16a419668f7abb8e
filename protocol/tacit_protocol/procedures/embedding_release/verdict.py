"""What a study of a private database says: every sender's database, laid out and drawn as bars.

Histograms of a release are drawn as they are, with their noise; elsewhere public points get weights that
match the release, as the reader of a database does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from tacit_protocol.domain import CategoricalColumn
from tacit_protocol.features.cell_counts import MISSING, OTHER
from tacit_protocol.features.column_histograms import ColumnHistograms, HistogramCells
from tacit_protocol.features.mean_embedding import Locations, draw_locations
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import CellNoise, half_width
from tacit_protocol.numerics.simplex_weights import fit_simplex
from tacit_protocol.procedures.embedding_release.plan import MeanFeatures, points_rng
from tacit_protocol.verdicts.base import BaseVerdict, ShownTable
from tacit_protocol.verdicts.presentation import COLUMN_BINS_MAX, Bar, BarsPanel, Floats, Shown, bar, largest

Row = tuple[float | str | None, ...]
"""A point: one value per column, in its own units."""


class EmbeddingReleaseVerdict(BaseVerdict):
    """The public points, one value per column each, and every database on them, by its sender.

    A sender is an owner, or the curator of all owners, and ``units`` counts its units. Where owners mask, the
    only database is that of "all owners together", and ``units`` counts every owner's.

    Where points are drawn from histograms ``points`` are none, and every sender has ``drawn_points`` of its
    own, and ``histograms``: each column's noisy shares of the units by public cell, with noise of standard
    deviation ``histogram_noise``. A number's cells are ``bins`` equal bins, or its whole numbers where the
    study's ``whole_numbers`` name it; its lower bound, its upper bound, and what stands for a missing value,
    where that is neither; a category's are levels, unlisted, missing.

    ``embedding`` holds coordinates of the noisy mean: with ``subspace`` in the orthonormal basis
    (K + lambda I)^(-1/2) of the points' kernels, with ``random-features`` those of ``frequencies`` random
    ones, which ``features_of`` draws again from the study (there are no points then). ``noise`` is the
    standard deviation of the noise on each coordinate, of the law ``noise_law``, and ``noise_error`` the root
    mean square of the noise's norm: no expectation of a function of norm 1 is off by more than that on
    average, besides sampling and what points or frequencies miss.

    With ``exponential`` a database is candidate number ``chosen`` of ``candidates``: ``weights`` on the
    points, each 0 or more, with sum 1, and ``embedding`` is its own. But for a probability of ``level`` its
    distance from the data is within ``excess`` of the nearest candidate's. Fields that a method has not are
    absent. ``reject`` is always false: a database tests nothing.
    """

    reject: Annotated[Literal[False], Shown("")]
    columns: tuple[str, ...]
    points: tuple[Row, ...]
    kernel: Literal["gaussian", "laplacian"]
    bandwidth: float
    category_similarity: float
    embedding: dict[str, tuple[float, ...]]
    noise: dict[str, float]
    noise_error: dict[str, float]
    noise_law: Literal["gaussian", "laplace"] | None = None
    frequencies: int | None = None
    candidates: int | None = None
    chosen: dict[str, int] | None = None
    weights: dict[str, tuple[float, ...]] | None = None
    excess: dict[str, float] | None = None
    drawn_points: dict[str, tuple[Row, ...]] | None = None
    bins: int | None = None
    histograms: Annotated[dict[str, dict[str, tuple[float, ...]]] | None, Shown("")] = None
    histogram_noise: dict[str, float] | None = None

    def units_of(self, name: str) -> int:
        """Return how many units a database is of: a sender's, or of masked ones all owners'."""
        return self.units[name] if name in self.units else sum(self.units.values())

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: whose databases were released."""
        return (
            f"Released: {', '.join(f'{name} ({self.units_of(name)} units)' for name in self.embedding)}",
            f"  {self.method}",
            "  keep the transcript, and ask it as often as you like: tacit release show",
        )


PANELS_MAX = 12
"""Most columns that are drawn, of all databases together; the last one's note says how many there are."""

FITTED_POINTS_MAX, FITS_MAX = 500, 2
"""Most points of a database whose weights are fitted for a picture, and most such databases."""

BLIND_POINTS = 400
"""Uniform points that get the weights of random features, which have none."""

POINTS_PER_BIN, POINT_BINS_MIN, POINT_BINS_MAX = 5, 4, 20
"""Of a number's histogram over points."""

HISTOGRAM = (
    "The noisy histogram that was released: the share in the data is within its interval with probability"
)


def database_panels(
    study: Study,
    verdict: Mapping[str, Any],
    of_sender: Callable[[Study, Mapping[str, Any], str], list[BarsPanel]],
) -> list[BarsPanel]:
    """Return every column of every database, ``PANELS_MAX`` at most; ``of_sender`` draws one's."""
    names = list(verdict["embedding"])
    found: list[BarsPanel] = []
    drawn = names if verdict.get("histograms") or verdict.get("weights") else names[:FITS_MAX]
    for name in drawn:
        panels = of_sender(study, verdict, name)
        found += panels if len(names) == 1 else [replace(p, title=f"{p.title}: {name}") for p in panels]
        if len(found) >= PANELS_MAX:
            break
    more = len(names) * len(study.domain.columns) - len(found[:PANELS_MAX])
    if found and more:
        last = found[:PANELS_MAX][-1]
        note = f"{last.note} And {more} more columns of databases: result.to_svg() in Python draws them."
        found[found.index(last)] = replace(last, note=note)
    return found[:PANELS_MAX]


def from_histograms(study: Study, verdict: Mapping[str, Any], name: str) -> list[BarsPanel]:
    """Return the columns of one database as its noisy histograms."""
    deviation = float(verdict["histogram_noise"][name])
    laplace = verdict["noise_law"] == "laplace"
    noise = CellNoise("laplace", deviation / 2**0.5) if laplace else CellNoise("gaussian", deviation)
    unit = f"share of the units, with {100 * (1 - study.level):g} % noise intervals"
    note = f"{HISTOGRAM} {1 - study.level:g} at least."
    found = []
    whole = tuple(study.parameters.get("whole_numbers") or ())
    for cells in ColumnHistograms(study.domain, int(verdict["bins"]), whole).columns[:PANELS_MAX]:
        shares = np.array(verdict["histograms"][name][cells.column.name], dtype=np.float64)
        if len(shares) != cells.size:
            raise ValueError("the verdict has not one share for each cell")
        halves = partial(half_width, (noise,), level=study.level)
        if isinstance(cells.column, CategoricalColumn):
            found.append(_levels(cells.column, shares, halves(1), unit, note))
            continue
        edges, bars = _bins(cells.edges, shares[: cells.bins], halves)
        single = [bar(each, float(v), halves(1)) for each, v in _gathered(cells, shares)]
        found.append(BarsPanel(cells.column.name, unit, (*bars, *single), note, edges))
    return found


def _bins(
    places: Floats, shares: Floats, halves: Callable[[int], float | None]
) -> tuple[tuple[float, ...], list[Bar]]:
    """Add neighbouring bins up to ``BINS_MAX`` at most; a sum's interval is that of so many noises."""
    step = -(-len(shares) // COLUMN_BINS_MAX)
    starts = [*range(0, len(shares), step), len(shares)]
    edges = [float(places[start]) for start in starts]
    bars = [
        bar(f"{low:g} to {high:g}", float(part.sum()), halves(len(part)))
        for low, high, part in zip(edges[:-1], edges[1:], np.split(shares, starts[1:-1]), strict=True)
    ]
    return tuple(edges), bars


def _gathered(cells: HistogramCells, shares: Floats) -> list[tuple[str, float]]:
    """Return the shares of the values with a cell of their own: the bounds, where others are moved to."""
    column = cells.column
    if isinstance(column, CategoricalColumn):
        raise TypeError("a category's cells are its levels")
    labels = (f"≤ {column.lower:g}", f"≥ {column.upper:g}", "missing")
    return list(zip(labels, shares[cells.bins :].tolist(), strict=False))


def _levels(column: CategoricalColumn, shares: Floats, half: float | None, unit: str, note: str) -> BarsPanel:
    labels, shown = (*column.levels, OTHER, MISSING), largest(shares)
    some = "" if len(shown) == len(shares) else f", the {len(shown)} largest of {len(shares)} levels"
    bars = tuple(bar(labels[i], float(shares[i]), half) for i in shown)
    return BarsPanel(column.name + some, unit, bars, note)


def from_points(plan: MeanFeatures, study: Study, verdict: Mapping[str, Any], name: str) -> list[BarsPanel]:
    """Return the columns of one database on public points, with weights that match it."""
    points = _points(plan, study)
    chosen = verdict.get("weights")
    if chosen is None and len(points) > FITTED_POINTS_MAX:
        return []
    weights = _fitted(plan, points, verdict, name) if chosen is None else np.array(chosen[name], dtype=float)
    if weights.shape != (len(points),):
        raise ValueError("the verdict has not one weight for each point")
    note = _note(plan, verdict, name)
    unit = "share of the weighted points"
    numeric, categorical = iter(points.numeric.T), iter(points.categorical.T)
    found = []
    for column in study.domain.columns[:PANELS_MAX]:
        if isinstance(column, CategoricalColumn):
            shares: Floats = np.zeros(column.categories)
            np.add.at(shares, next(categorical), weights)
            found.append(_levels(column, shares, None, unit, note))
            continue
        count = int(np.clip(len(points) // POINTS_PER_BIN, POINT_BINS_MIN, POINT_BINS_MAX))
        in_bins = np.minimum((next(numeric) * count).astype(np.int64), count - 1)
        heights: Floats = np.zeros(count)
        np.add.at(heights, in_bins, weights)
        edges, bars = _bins(np.linspace(column.lower, column.upper, count + 1), heights, lambda _: None)
        found.append(BarsPanel(column.name, unit, tuple(bars), note, edges))
    return found


def _points(plan: MeanFeatures, study: Study) -> Locations:
    if plan.points is not None:
        return plan.points
    rng = points_rng(study.seed)
    drawn = draw_locations(study.domain, BLIND_POINTS, rng)
    return Locations(rng.random(drawn.numeric.shape), drawn.categorical)


def _fitted(plan: MeanFeatures, points: Locations, verdict: Mapping[str, Any], name: str) -> Floats:
    target = np.array(verdict["embedding"][name], dtype=np.float64)
    return fit_simplex(plan.features(points), target, float(verdict["noise_error"][name])).weights


def _note(plan: MeanFeatures, verdict: Mapping[str, Any], name: str) -> str:
    if verdict.get("weights") is not None:
        return (
            f"Candidate {verdict['chosen'][name]} of {verdict['candidates']}, drawn by its nearness "
            "to the data; it has no noise beside that choice."
        )
    which = (
        "Public points" if plan.points is not None else "Uniform points, for the release has none of its own,"
    )
    return (
        f"{which} with the smoothest weights that match the release within its noise. How far each "
        "bar may be off, by noise and by the points, a database's plot() in Python draws."
    )
