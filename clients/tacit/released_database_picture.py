"""A picture of a released database: every column's distribution over the weighted points, with its errors."""

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tacit.errors import PlottingError
from tacit.released_database_points import WeightedDatabase
from tacit_protocol.domain.columns import NumericColumn
from tacit_protocol.features.public_choices import UNLISTED
from tacit_protocol.terminal import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_MAX = 60
"""Most columns that are drawn; the title says how many there are."""

LEVELS_MAX = 12
"""Most levels of one column that are drawn; the smallest are drawn together."""

BINS_MIN, BINS_MAX, POINTS_PER_BIN = 4, 20, 5

PANEL_WIDTH, PANEL_HEIGHT, ACROSS = 250, 190, 3
LEFT, RIGHT, TOP, BOTTOM = 34, 10, 26, 54
HEADING = 40

LABEL_LENGTH_MAX = 14

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Marginal:
    """One column's distribution.

    ``probabilities`` (bars,) with their standard errors, of noise and points, and labels.
    ``edges`` is (bars + 1,) of a numeric column, in its units, or None.
    """

    name: str
    labels: tuple[str, ...]
    edges: Floats | None
    probabilities: Floats
    errors: Floats


def marginals(database: WeightedDatabase) -> list[Marginal]:
    """Return the distribution of every column, at most ``PANELS_MAX``."""
    return [_marginal(database, index) for index in range(min(PANELS_MAX, len(database.domain.columns)))]


def _marginal(database: WeightedDatabase, index: int) -> Marginal:
    column = database.domain.columns[index]
    values = database.points[column.name]
    if isinstance(column, NumericColumn):
        bars = int(np.clip(len(database) // POINTS_PER_BIN, BINS_MIN, BINS_MAX))
        edges = np.linspace(column.lower, column.upper, bars + 1)
        numbers = np.asarray(values, dtype=np.float64)
        places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, bars - 1)
        members = np.eye(bars)[places]
        labels = (f"{column.lower:g}", f"{column.upper:g}")
        return _filled(database, column.name, labels, edges, members)
    names: list[str | None] = [*column.levels, UNLISTED, None]
    members = np.array([[value == name for name in names] for value in values], dtype=np.float64)
    kept = np.argsort(-np.abs(database.weights @ members), kind="stable")[:LEVELS_MAX]
    rest = np.setdiff1d(np.arange(len(names)), kept)
    shown = ["missing" if names[i] is None else str(names[i]) for i in kept]
    members = np.column_stack([members[:, kept], members[:, rest].sum(axis=1)[:, None]])
    return _filled(database, column.name, (*shown, "the rest"), None, members)


def _filled(
    database: WeightedDatabase, name: str, labels: tuple[str, ...], edges: Floats | None, members: Floats
) -> Marginal:
    if edges is None and not members[:, -1].any():
        labels, members = labels[:-1], members[:, :-1]
    known = database.uncertainty
    parts = [known.noise] if known.projection is None else [known.noise, known.projection]
    errors = np.linalg.norm(members.T @ np.hstack(parts), axis=1)
    return Marginal(name, labels, edges, database.weights @ members, errors)


def summary_svg(database: WeightedDatabase) -> str:
    """Return every column's distribution as SVG; whiskers are one standard error, of noise and points."""
    panels = marginals(database)
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    width, height = across * PANEL_WIDTH, HEADING + down * PANEL_HEIGHT
    drawn = [
        _panel(panel, (number % across) * PANEL_WIDTH, HEADING + number // across * PANEL_HEIGHT)
        for number, panel in enumerate(panels)
    ]
    title = heading(database, len(panels))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{_text(title)}" '
            'font-family="sans-serif" font-size="11" fill="#222">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="13">{_text(title)}</text>',
            *drawn,
            "</svg>",
        ]
    )


def heading(database: WeightedDatabase, shown: int) -> str:
    """Say in a line what the picture shows."""
    columns = len(database.domain.columns)
    some = f", {shown} of {columns} columns" if shown < columns else ""
    return f"{len(database)} weighted points{some}; whiskers: standard error, of noise and points"


def _panel(panel: Marginal, x: int, y: int) -> str:
    inner_width, inner_height = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM
    low, high = _range(panel)
    bars = len(panel.probabilities)
    step = inner_width / bars

    def across(bar: float) -> str:
        return f"{x + LEFT + bar * step:.1f}"

    def down(value: float) -> float:
        return y + TOP + (high - min(high, max(low, value))) / (high - low) * inner_height

    parts = [
        f'<text x="{x + LEFT}" y="{y + TOP - 8}" font-weight="bold">{_short(panel.name, 30)}</text>',
        *(
            f'<text x="{x + LEFT - 4}" y="{down(value) + 4:.1f}" text-anchor="end" font-size="9">{value:.2g}'
            "</text>"
            for value in ({low, high} if low < 0 else {0.0, high})
        ),
    ]
    gap = 0.08 if panel.edges is not None else 0.2
    for bar, (value, error) in enumerate(zip(panel.probabilities, panel.errors, strict=True)):
        top, bottom = down(max(value, 0.0)), down(min(value, 0.0))
        parts.append(
            f'<rect x="{across(bar + gap / 2)}" y="{top:.1f}" width="{step * (1 - gap):.1f}" '
            f'height="{bottom - top:.1f}" fill="#4878a8"/>'
        )
        middle = across(bar + 0.5)
        parts.append(
            f'<line x1="{middle}" x2="{middle}" y1="{down(value - error):.1f}" '
            f'y2="{down(value + error):.1f}" stroke="#222"/>'
        )
    base = down(0.0)
    parts.append(
        f'<line x1="{across(0)}" x2="{across(bars)}" y1="{base:.1f}" y2="{base:.1f}" stroke="#888"/>'
    )
    foot = y + PANEL_HEIGHT - BOTTOM + 14
    if panel.edges is not None:
        parts.append(f'<text x="{across(0)}" y="{foot}">{_text(panel.labels[0])}</text>')
        parts.append(f'<text x="{across(bars)}" y="{foot}" text-anchor="end">{_text(panel.labels[1])}</text>')
        return "\n".join(parts)
    for bar, label in enumerate(panel.labels):
        there = across(bar + 0.5)
        tilt = f' text-anchor="end" transform="rotate(-25 {there} {foot - 4})"' if bars > 3 else ""
        anchor = "" if tilt else ' text-anchor="middle"'
        size = 9 if bars > 3 else 11
        parts.append(
            f'<text x="{there}" y="{foot - 4}" font-size="{size}"{anchor}{tilt}>'
            f"{_short(label, LABEL_LENGTH_MAX)}</text>"
        )
    return "\n".join(parts)


def _range(panel: Marginal) -> tuple[float, float]:
    """Return what a panel's axis spans: the bars, and whiskers up to the height of the largest bar again."""
    largest = float(np.abs(panel.probabilities).max()) or 1.0
    high = min(float((panel.probabilities + panel.errors).max()), 2 * largest)
    low = max(float((panel.probabilities - panel.errors).min()), -2 * largest)
    return (min(low, 0.0) if panel.probabilities.min() < 0 else 0.0), max(high, 1e-9)


def _short(text: str, length: int) -> str:
    return _text(text if len(text) <= length else text[: length - 1] + "…")


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def plot(database: WeightedDatabase) -> "Figure":
    """Draw the same with matplotlib. Raises PlottingError where it is not installed."""
    try:
        from matplotlib import pyplot  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise PlottingError(
            "plot() needs matplotlib: pip install matplotlib; or use summary_svg()"
        ) from error
    panels = marginals(database)
    across = min(ACROSS, len(panels))
    figure, axes = pyplot.subplots(
        -(-len(panels) // across), across, squeeze=False, layout="constrained", figsize=(4 * across, 6)
    )
    for axis in axes.ravel()[len(panels) :]:
        axis.set_visible(False)
    for panel, axis in zip(panels, axes.ravel(), strict=False):
        places = (
            np.arange(len(panel.labels)) if panel.edges is None else (panel.edges[1:] + panel.edges[:-1]) / 2
        )
        breadth = 0.8 if panel.edges is None else float(panel.edges[1] - panel.edges[0])
        axis.bar(places, panel.probabilities, width=breadth, yerr=panel.errors, capsize=2)
        axis.set_title(printable(panel.name))
        if panel.edges is None:
            axis.set_xticks(places, [printable(label) for label in panel.labels], rotation=30)
    figure.suptitle(heading(database, len(panels)))
    return figure
