"""The pictures of the RKHS error of released databases, from the counts."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.database_population import p2_bandwidth, p2_mixture
from benchmarks.database_release_error import (
    DIMENSIONS,
    EPSILONS,
    FITTED_POINTS,
    FREQUENCIES,
    OURS,
    P2,
    PLACEMENTS,
    POINTS,
    SWEPT_UNITS,
    UNITS,
    fitted_cell,
    fitted_error,
    our_noise,
    p2_noise,
    question,
    random_features,
    raw_error,
    spectrum_cell,
    swept_cell,
)
from benchmarks.resumable import Counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"own": "#1f77b4", "uniform": "#2ca02c", "wide": "#ff7f0e", "wrong": "#9467bd"}
FEATURE_COLOURS = dict(zip(FREQUENCIES, ("#d62728", "#8c564b"), strict=True))


def draw(counts: Counts, folder: Path) -> None:
    """Draw the error against n, the number of points and epsilon, as SVG, once both D have figures."""
    cells = [cell(columns) for columns in DIMENSIONS for cell in (spectrum_cell, swept_cell)]
    if not all(counts.runs.get(cell) for cell in cells):
        return
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # The same counts make the same bytes; letters stay letters.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 9})

    def panels(name: str, label: str, fill: Callable[..., None], keys: tuple[float, ...]) -> None:
        figure, axes = plt.subplots(1, len(keys), figsize=(10, 4.6), sharey=True, layout="constrained")
        for panel, key in zip(axes, keys, strict=True):
            fill(counts, panel, key)
            panel.set(xscale="log", yscale="log", xlabel=label)
        axes[0].set_ylabel("RKHS distance to the population")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(folder / f"database-release-{name}.svg", metadata={"Date": None})
        plt.close(figure)

    panels("n", "n", _against_n, DIMENSIONS)
    panels("points", "number of points", _against_points, (0.1, 1.0))
    panels("epsilon", "ε", _against_epsilon, DIMENSIONS)


def _against_n(counts: Counts, panel: "Axes", columns: int) -> None:
    sizes = np.geomspace(UNITS[0], UNITS[-1], 25)
    for placement, words in PLACEMENTS.items():
        for count, width in ((100, 1.0), (1000, 2.0)):
            for line, theirs in (("-", False), ("--", True)):
                found = []
                for n in sizes:
                    sigma = p2_noise(int(n), 1.0) if theirs else our_noise(columns, count, int(n), 1.0)
                    found.append(raw_error(counts, columns, placement, count, n, sigma) or math.nan)
                wanted = not theirs and count == 1000
                panel.plot(
                    sizes, found, line, color=COLOURS[placement], lw=width, label=words if wanted else None
                )
    asked = question("own", FITTED_POINTS, f"1 | {OURS}")
    own = [fitted_error(counts, fitted_cell(columns, n), asked) or math.nan for n in UNITS]
    panel.plot(UNITS, own, "o", color=COLOURS["own"], ms=5, label="published part, fitted weights (100)")
    norm = p2_mixture(columns).norm_sqr(p2_bandwidth(columns))
    panel.plot(sizes, np.sqrt((1 - norm) / sizes), ":", color="black", lw=1, label="data alone")
    panel.plot([], [], "--", color="grey", label="P2's noise")
    panel.set_title(f"D = {columns}, ε = 1; thin: 100 points, thick: 1000")


def _against_points(counts: Counts, panel: "Axes", epsilon: float) -> None:
    for placement, words in PLACEMENTS.items():
        for line, theirs in (("o-", False), ("x--", True)):
            found = []
            for count in POINTS:
                sigma = p2_noise(SWEPT_UNITS, epsilon)
                if not theirs:
                    sigma = our_noise(2, count, SWEPT_UNITS, epsilon)
                found.append(raw_error(counts, 2, placement, count, SWEPT_UNITS, sigma) or math.nan)
            label = None if theirs else words
            panel.plot(POINTS, found, line, color=COLOURS[placement], ms=4, label=label)
    panel.plot([], [], "x--", color="grey", label="P2's noise")
    panel.set_title(f"D = 2, n = 100 000, ε = {epsilon:g}")


def _against_epsilon(counts: Counts, panel: "Axes", columns: int) -> None:
    lines = {"own": ("published part", COLOURS["own"])}
    for count, colour in FEATURE_COLOURS.items():
        lines[random_features(count)] = (random_features(count), colour)
    for words, (label, colour) in lines.items():
        for style, owner in (("o-", OURS), ("x--", P2)):
            found = [
                fitted_error(
                    counts, swept_cell(columns), question(words, FITTED_POINTS, f"{epsilon:g} | {owner}")
                )
                or math.nan
                for epsilon in EPSILONS
            ]
            panel.plot(EPSILONS, found, style, color=colour, ms=4, label=label if owner == OURS else None)
    panel.plot([], [], "x--", color="grey", label="P2's noise")
    panel.set_title(f"D = {columns}, n = 100 000, fitted weights on {FITTED_POINTS} points")
