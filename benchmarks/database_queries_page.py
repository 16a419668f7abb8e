"""The page and the picture of the queries' errors, from the counts."""

from pathlib import Path

import numpy as np

from benchmarks.database_query_data import FILES
from benchmarks.resumable import Counts, table

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 4.0)
DRAWN_POINTS = 300
POINT_COUNTS = (100, 300, 1000)
FREQUENCIES = 500
HISTOGRAM_SHARE = 0.25
FOREIGN = {"wine": "red wine"}
"""Data sets with a public sample of a related population."""

KINDS = ("mean", "histogram", "correlation", "probability")

SAMPLING = "sampling alone"
HISTOGRAMS = "all one- and two-way histograms"
COARSE = "the same, 5 bins"
PEERS = (HISTOGRAMS, COARSE)
UNIFORM = "uniform points"
OWN_POINTS, OWN_DATABASE = "published part", "points: a published part"
RED_POINTS, RED_DATABASE = "public red wines", "points: public red wines"
MARGINAL_POINTS, MARGINAL_DATABASE = "points of noisy histograms alone", "points: noisy histograms"
RANDOM_FEATURES = "random features, a published part"
LOCAL = "tacit.local, defaults"
JOINT = {f"histograms inside the study, {count} points": count for count in (300, 1000)}

OURS = (UNIFORM, OWN_DATABASE, RED_DATABASE, MARGINAL_DATABASE, RANDOM_FEATURES)
WITHOUT_EPSILON = (SAMPLING, f"{OWN_POINTS} alone", f"{RED_POINTS} alone")
ORDER = (
    *WITHOUT_EPSILON,
    *PEERS,
    *OURS,
    MARGINAL_POINTS,
    *JOINT,
    LOCAL,
)

HEAD = """# Fifty queries of a released database

Mean errors of fifty queries on three real data sets, δ = 1e-6, over {runs} runs{fewer}. Made by

    python -m benchmarks.database_queries

Queries: the mean of each numeric column (error in its standard deviations), the histogram of each column
(ten bins, or levels; total variation), correlations of numeric columns, and probabilities of intervals or
levels of one column or two. Every row counts as a unit; bounds and levels are public, and columns are
clipped to them before anything else. *Truth* is what the whole data set answers. Data: `randhie` (RAND,
20 190 rows, 10 columns), white wines (4 898 rows, 12 columns) and `adult_train` (32 561; ten of its columns).

- *sampling alone*: rows drawn again from the data (bootstrap), without privacy.
- *{histograms}*: the peer. Gaussian noise on every one- and two-way table, all under the same
  (ε, δ) at the exact curve; 20 bins a numeric column, a cell for each whole number, level and end of bounds
  where rows gather; each table then projected on the probabilities. *{coarse}*: for numbers that are not
  whole. It cannot be asked about three columns.
- *{uniform}*: `embedding_release`, {points} points uniform over the bounds.
- *{own}*: {points} records that are published and not protected; the mean is that of the others.
  *{own_alone}*: those records, unweighted; nothing else is released, ε is not spent.
- *{red}*: {points} red wines, as a public sample of another population; *alone* as above.
- *{marginal}*: {share:.0%} of μ² buys a histogram of each column; {points} points are drawn from them,
  columns independent; the rest buys the mean on these points. *{marginal_alone}*: the same points,
  unweighted.
- *{random}*: P2's Algorithm 2 in pairs, {frequencies} frequencies, weights on the published part.
- *histograms inside the study*: `embedding_release` with `placement = "histograms"`. The same in one study,
  20 bins, and weights that match the histograms besides the mean; OpenDP's noise.
- *{local}*: `tacit.local.database.release_database` as it is: the same with 500 points.

Weights are probabilities (`.weights`), the kernel is the procedure's default on its points. smartnoise-synth
(MST, AIM) is not among the peers: its installation, with PyTorch and JAX, did not end within ten minutes.

"""


READ = """## What to choose

- **Nothing public: the defaults.** Points are drawn from histograms that the same study buys, and weights
  match both. Where the points cannot follow the mean as far as its noise allows, the histograms come first,
  so that questions about one column are answered about as well as by histograms alone.
- **Points.** Points uniform over the bounds do not cover ten columns, at any ε: do not use them on a table
  of more than a few. `.fit` shows it: the weights stay farther from the release than its noise. A sample of
  another population (red wines) is better, and not good enough.
- **Many points.** Probability weights average the noise out, so that more points cost little and see more:
  1000 are better than 300 of every kind. A fit then takes seconds.
- A published part is best, where there is one. Compare it with those records alone: what the budget buys is
  the difference. Nobody protects them, and 1000 are many of 4 898.
- *{marginal}* matches the mean alone, and on Adult, whose columns are mostly categories, does more harm than
  good so: weights must match the histograms too.
- **The peer** answers what it was made for, histograms and probabilities of one column or two, better as soon
  as its noise is small (many rows, or a large ε). The database takes any function of all columns for the one
  budget, and its means and correlations are nearer where rows are few. On Adult the better peer wins from
  ε = 1 on: its cells are whole numbers and levels, where a column of the database has 20 bins (`n_bins`).
"""


def question(method: str, epsilon: float | None, kind: str) -> str:
    """Name the error of one method on one kind of query."""
    return f"{method} | {'' if epsilon is None else f'{epsilon:g}'} | {kind}"


def points_cell(name: str, count: int) -> str:
    """Name the cell of databases of so many points."""
    return f"{name}: {count} points"


def text(counts: Counts) -> str:
    """Write the page."""
    names = [name for name in FILES if counts.runs.get(name)]
    head = HEAD.format(
        runs=_runs(counts, names),
        fewer=_fewer(counts, names),
        histograms=HISTOGRAMS,
        coarse=COARSE,
        uniform=UNIFORM,
        points=DRAWN_POINTS,
        own=OWN_DATABASE,
        own_alone=f"{OWN_POINTS} alone",
        red=RED_DATABASE,
        share=HISTOGRAM_SHARE,
        marginal=MARGINAL_DATABASE,
        marginal_alone=MARGINAL_POINTS,
        random=RANDOM_FEATURES,
        frequencies=FREQUENCIES,
        local=LOCAL,
    )
    parts = [head, "![Mean error of fifty queries against epsilon](database-queries.svg)\n\n"]
    parts += ["## All fifty\n\n", _summary(counts, names), "\n", _winners(counts, names)]
    parts += ["\n## The number of points\n\nAt ε = 1; *alone*: the same points, unweighted.\n\n"]
    parts.append(_points_table(counts, names))
    for name in names:
        parts += [f"\n## {name}, by kind of query\n\n", _by_kind(counts, name)]
    parts.append(f"\n{READ.format(marginal=MARGINAL_DATABASE)}")
    missing = [name for name in FILES if name not in names and name not in FOREIGN.values()]
    if missing:
        parts.append(f"\nNot yet run, or not there: {', '.join(missing)}.\n")
    return "".join(parts)


def _summary(counts: Counts, names: list[str]) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        for method in ORDER:
            cells = {f"ε={e:g}": _rate(counts, name, method, e, "all") for e in EPSILONS}
            if any(cells.values()):
                rows[f"{name}, {method}"] = cells
    return table(rows, "data set, method")


def _runs(counts: Counts, names: list[str]) -> str:
    runs = sorted({counts.runs[name] for name in names})
    return " to ".join(str(end) for end in dict.fromkeys((runs[0], runs[-1]))) if runs else "no"


def _fewer(counts: Counts, names: list[str]) -> str:
    """Say over how many runs the rows were measured that joined later."""
    runs = sorted({counts.answered.get((name, question(LOCAL, 1.0, "all")), 0) for name in names})
    if not runs or runs[0] == min(counts.runs[name] for name in names):
        return ""
    return f"\n(*histograms inside the study* and *{LOCAL}* over {runs[0]})"


def _points_table(counts: Counts, names: list[str]) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        for method in (OWN_DATABASE, MARGINAL_DATABASE):
            for asked in (method, f"{method}, alone"):
                row = rows.setdefault(f"{name}, {asked}", {})
                for count in POINT_COUNTS:
                    row[f"J={count}"] = _rate(counts, points_cell(name, count), asked, 1.0, "all")
    return table(rows, "ε = 1")


def _rate(counts: Counts, name: str, method: str, epsilon: float, kind: str) -> str:
    asked = None if method in WITHOUT_EPSILON else epsilon
    found = counts.rate(name, question(method, asked, kind))
    return "" if found is None else f"{found:.4f}"


def _winners(counts: Counts, names: list[str]) -> str:
    """Say which kinds of query the better of the peers answers better than ours."""
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        for method in (UNIFORM, OWN_DATABASE, MARGINAL_DATABASE, RANDOM_FEATURES, *JOINT, LOCAL):
            if counts.rate(name, question(method, 1.0, "all")) is None:
                continue
            row = rows.setdefault(f"{name}, {method}", {})
            for epsilon in EPSILONS:
                lost = [kind for kind in (*KINDS, "all") if _loses(counts, name, method, epsilon, kind)]
                row[f"ε={epsilon:g}"] = (
                    "every kind" if len(lost) > len(KINDS) else ", ".join(lost) or "nowhere"
                )
    words = (
        "**Where the peer wins**: kinds of query whose error is smaller with the better of the two peers.\n"
    )
    return f"{words}Elsewhere ours wins.\n\n{table(rows, 'data set, ours')}"


def _loses(counts: Counts, name: str, method: str, epsilon: float, kind: str) -> bool:
    ours = counts.rate(name, question(method, epsilon, kind))
    peers = [counts.rate(name, question(peer, epsilon, kind)) for peer in PEERS]
    return ours is not None and any(peer is not None and peer <= ours for peer in peers)


def _by_kind(counts: Counts, name: str) -> str:
    rows = {}
    for method in ORDER:
        for epsilon in (1.0, 4.0):
            if method in WITHOUT_EPSILON and epsilon > 1:
                continue
            cells = {kind: _rate(counts, name, method, epsilon, kind) for kind in KINDS}
            if any(cells.values()):
                rows[method if method in WITHOUT_EPSILON else f"{method}, ε = {epsilon:g}"] = cells
    return table(rows, "method")


COLOURS = {
    HISTOGRAMS: "#d62728",
    UNIFORM: "#2ca02c",
    OWN_DATABASE: "#1f77b4",
    RED_DATABASE: "#8c564b",
    MARGINAL_DATABASE: "#9467bd",
    RANDOM_FEATURES: "#ff7f0e",
    LOCAL: "black",
}


def draw(counts: Counts, folder: Path) -> None:
    """Draw the mean error against epsilon, a panel for each data set, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # The same counts make the same bytes; letters stay letters.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 9})
    names = [name for name in FILES if counts.runs.get(name)]
    if not names:
        return
    figure, axes = plt.subplots(
        1, len(names), figsize=(11, 4.4), sharey=True, layout="constrained", squeeze=False
    )
    handles = {}
    for panel, name in zip(axes[0], names, strict=True):
        for method, colour in COLOURS.items():
            found = [counts.rate(name, question(method, e, "all")) for e in EPSILONS]
            if any(value is not None for value in found):
                values = [np.nan if value is None else value for value in found]
                line = "s--" if method == HISTOGRAMS else "o-"
                handles[method] = panel.plot(EPSILONS, values, line, color=colour, ms=4)[0]
        for method, dash in ((SAMPLING, ":"), (f"{OWN_POINTS} alone", "-.")):
            level = counts.rate(name, question(method, None, "all"))
            if level is not None:
                handles[method] = panel.axhline(level, color="black", lw=0.9, ls=dash)
        panel.set(xscale="log", yscale="log", title=name, xlabel="ε", xticks=EPSILONS)
        panel.set_xticklabels([f"{e:g}" for e in EPSILONS])
        panel.minorticks_off()
    axes[0][0].set_ylabel("mean error of fifty queries")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(folder / "database-queries.svg", metadata={"Date": None})
    plt.close(figure)
