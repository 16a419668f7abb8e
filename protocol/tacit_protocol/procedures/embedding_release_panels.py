"""Released databases as bars: every column's distribution, as far as the release holds it.

Where points are drawn from histograms, these are of the release, and drawn as they are, with their noise.
Elsewhere public points get weights that match the release, as the reader of a database does.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tacit_protocol.domain.columns import CategoricalColumn
from tacit_protocol.features.column_histograms import ColumnCells, ColumnHistograms
from tacit_protocol.features.mean_embedding import Locations
from tacit_protocol.features.public_choices import draw_locations
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.embedding_release_plan import EmbeddingPlan, plan_of, points_rng
from tacit_protocol.statistics.cell_counts import MISSING, OTHER
from tacit_protocol.statistics.noisy_tables import CellNoise
from tacit_protocol.statistics.simplex_weights import fit_simplex
from tacit_protocol.verdicts.bars import BINS_MAX, Bar, BarsPanel, Floats, bar, half_width, largest

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


def database_panels(study: Study, verdict: Mapping[str, Any]) -> list[BarsPanel]:
    """Return every column of every database, ``PANELS_MAX`` at most."""
    names = list(verdict["embedding"])
    found: list[BarsPanel] = []
    of_sender = _from_histograms if verdict.get("histograms") else partial(_from_points, plan_of(study))
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


def _from_histograms(study: Study, verdict: Mapping[str, Any], name: str) -> list[BarsPanel]:
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
    """Add neighbouring bins up to ``BINS_MAX`` at most; a sum's interval is that of so many noises.

    ``places`` (bins + 1,) are the bins' edges.
    """
    step = -(-len(shares) // BINS_MAX)
    starts = [*range(0, len(shares), step), len(shares)]
    edges = [float(places[start]) for start in starts]
    bars = [
        bar(f"{low:g} to {high:g}", float(part.sum()), halves(len(part)))
        for low, high, part in zip(edges[:-1], edges[1:], np.split(shares, starts[1:-1]), strict=True)
    ]
    return tuple(edges), bars


def _gathered(cells: ColumnCells, shares: Floats) -> list[tuple[str, float]]:
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


def _from_points(plan: EmbeddingPlan, study: Study, verdict: Mapping[str, Any], name: str) -> list[BarsPanel]:
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


def _points(plan: EmbeddingPlan, study: Study) -> Locations:
    if plan.points is not None:
        return plan.points
    rng = points_rng(study.seed)
    drawn = draw_locations(study.domain, BLIND_POINTS, rng)
    return Locations(rng.random(drawn.numeric.shape), drawn.categorical)


def _fitted(plan: EmbeddingPlan, points: Locations, verdict: Mapping[str, Any], name: str) -> Floats:
    target = np.array(verdict["embedding"][name], dtype=np.float64)
    return fit_simplex(plan.features(points), target, float(verdict["noise_error"][name])).weights


def _note(plan: EmbeddingPlan, verdict: Mapping[str, Any], name: str) -> str:
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
