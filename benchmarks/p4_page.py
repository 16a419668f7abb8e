"""The page and the pictures on P4's eight data sets, from the counts."""

from pathlib import Path

from benchmarks.p4_data import DATA_SETS
from benchmarks.resumable import Counts, table

DELTA = 1e-5
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SKETCH, PNC, DISJOINT, CURATOR = "sketch", "pnc", "pnc-disjoint", "curator"
ATTRIBUTE = "P4 as published"
NOTHING = "saying 0"
METHODS = (SKETCH, PNC, DISJOINT, CURATOR, ATTRIBUTE)
SHOWN = (0.1, 1.0, 10.0)
"""Epsilons of the tables; pictures have all."""

QUANTITIES = {"covariance": "squared distance covariance", "correlation": "distance correlation"}

HEAD = """# P4's eight data sets

The mean of |private estimate − exact value| over {runs} runs, δ = 1e-5, against ε. Made by

    python -m benchmarks.p4_data_sets

One owner holds the first half of a data set's numeric columns, the other the second half. Distances are
Euclidean over their public diameter. Rows with missing cells are left out, and every row counts as a unit,
although several rows belong to one person in *parkinsons* and hours depend on each other in *bike*. Columns
are clipped to their percentiles .5 and 99.5: these public data come without public bounds, and a study takes
its bounds from elsewhere.

- *sketch*: `distance_correlation` as it is. A correlation is not stated where a variance is lost in its
  noise: its error is over the runs that state one, whose part follows. At ε = .1 many are stated that should
  not be, as the check does not count the noise on the mean, which leads there: those points mean nothing.
- *pnc*, *pnc-disjoint*: P4's 8 projections, calibrated to protect a person, noise at both owners. Their raw
  values are what P4 takes for estimates; the noise shrinks them, so that where it is large their error is
  that of saying 0.
- *curator*: `curated_distance_correlation` without its test. A correlation is not always stated here either.
- *P4 as published*: **does not protect a person.** Noise for one attribute of one row, at one owner alone;
  the other owner's rows go in without noise. For comparison only.
- *saying 0* releases nothing.

"""

TRUNCATED = """## What the sketch leaves out

With several columns a side the sketch keeps four cosines of each projection by default, fewer where no more
fit (madelon: one), on about six directions, and one for each column at least. So its error below stops
falling with ε where it meets what the cosines leave out and what the draw of directions adds. Without
privacy, both are [measured on all but madelon](p4-frequencies.md), for one to eight frequencies. `truncation`
in verdicts bounds the first alone. Correlations suffer less, as variances lose as much.

"""

ORDER = """## Which method is nearest

P4's Figure 3 plots this error against ε for its own projections. Here, of the squared distance covariance,
each method's mean place among the five methods and *saying 0* (1: nearest) over the data sets; in brackets on
how many of {sets} it is nearer than saying 0. *P4 as published* protects no person, and *curator* has all
data in one place: among methods for two owners that protect a person, compare *sketch*, *pnc* and
*pnc-disjoint*, which are of use where they are nearer than saying 0.

"""

CAPTION = """Lower is better; what lies above the dotted line is further from the truth than 0 is. The picture
ends at a hundred times that line, and leaves out points that fewer than half of the runs state.

"""

EXACT_HEAD = """## Distance correlations without privacy

*Unbiased* from the unbiased parts, *V-statistic* as Székely, Rizzo and Bakirov define it. P4's own table is
not in the material this project is built from, so that its figures do not stand beside ours; its columns are
scaled otherwise, too.

"""


def error_of(method: str, epsilon: float, quantity: str) -> str:
    """Name the error of one method at one epsilon."""
    return f"{method} | {epsilon:g} | {quantity}"


def text(counts: Counts) -> str:
    """Write the page."""
    runs = sorted(set(counts.runs.values()))
    said = "no" if not runs else " to ".join(str(end) for end in dict.fromkeys((runs[0], runs[-1])))
    parts = [HEAD.format(runs=said), EXACT_HEAD, _exact_table(counts), "\n", TRUNCATED]
    parts += [ORDER.format(sets=len(_present(counts))), _order(counts), "\n"]
    for quantity, words in QUANTITIES.items():
        parts += [
            f"## Error of the {words}\n\n",
            f"![Error of the {words} against epsilon, eight data sets](p4-{quantity}.svg)\n\n",
            CAPTION,
            _errors(counts, quantity),
            "\n",
        ]
    missing = [name for name in DATA_SETS if name not in _present(counts)]
    if missing:
        parts.append(f"Not yet run, or not there: {', '.join(missing)}.\n")
    return "".join(parts).rstrip() + "\n"


def _exact_table(counts: Counts) -> str:
    rows = {}
    for name in _present(counts):
        figures = {
            key: counts.rate(name, key)
            for key in ("units", "exact covariance", "exact correlation", "biased correlation")
        }
        found = {key: 0.0 if value is None else value for key, value in figures.items()}
        rows[name] = {
            "rows": f"{found['units']:.0f}",
            "dCov²": f"{found['exact covariance']:.2e}",
            "dCor, unbiased": f"{found['exact correlation']:.3f}",
            "dCor, V-statistic": f"{found['biased correlation']:.3f}",
        }
    return table(rows, "data set")


def _present(counts: Counts) -> list[str]:
    return [name for name in DATA_SETS if counts.runs.get(name)]


def _order(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {method: {} for method in (*METHODS, NOTHING)}
    for epsilon in EPSILONS:
        places: dict[str, list[int]] = {method: [] for method in rows}
        nearer = dict.fromkeys(rows, 0)
        for name in _present(counts):
            errors = {m: counts.rate(name, error_of(m, epsilon, "covariance")) for m in METHODS}
            errors[NOTHING] = counts.rate(name, "exact covariance")
            known = {method: error for method, error in errors.items() if error is not None}
            for place, method in enumerate(sorted(known, key=known.__getitem__), start=1):
                places[method].append(place)
                nearer[method] += known[method] < known[NOTHING]
        for method, own in places.items():
            mean = f"{sum(own) / len(own):.1f}" if own else "–"
            rows[method][f"ε={epsilon:g}"] = mean if method == NOTHING else f"{mean} ({nearer[method]})"
    return table(rows, "method")


def _errors(counts: Counts, quantity: str) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name in _present(counts):
        zero = counts.rate(name, f"exact {quantity}") or 0.0
        for method in METHODS:
            label = f"{method} (not protecting a person)" if method == ATTRIBUTE else method
            row = rows.setdefault(f"{name}, {label}", {})
            for epsilon in SHOWN:
                row[f"ε={epsilon:g}"] = _shown(counts, name, error_of(method, epsilon, quantity))
        rows[f"{name}, {NOTHING}"] = {f"ε={epsilon:g}": _figure(zero) for epsilon in SHOWN}
    return table(rows, "data set, method")


def _shown(counts: Counts, name: str, question: str) -> str:
    error, answered = counts.rate(name, question), counts.answered.get((name, question), 0)
    if error is None:
        return "not stated"
    part = answered / counts.runs[name]
    return _figure(error) if part == 1 else f"{_figure(error)} ({part:.0%})"


def _figure(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= value < 10 else f"{value:.1e}"


STYLES = {
    SKETCH: ("#1f77b4", "-", "o"),
    PNC: ("#d62728", "-", "s"),
    DISJOINT: ("#ff7f0e", "-", "^"),
    CURATOR: ("#2ca02c", "-", "D"),
    ATTRIBUTE: ("#7f7f7f", "--", "x"),
}


TOP = 100
"""Pictures end at so many times the error of saying 0: above it nothing is of use."""

LABELLED = (0.1, 1.0, 10.0)


def _points(counts: Counts, name: str, method: str, quantity: str) -> list[tuple[float, float]]:
    """Return epsilons with errors, where half of the runs or more state a value."""
    points = []
    for epsilon in EPSILONS:
        question = error_of(method, epsilon, quantity)
        error, answered = counts.rate(name, question), counts.answered.get((name, question), 0)
        if error is not None and 2 * answered >= counts.runs[name]:
            points.append((epsilon, error))
    return points


def draw(counts: Counts, folder: Path) -> None:
    """Draw the errors against epsilon, a panel for each data set, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # The same counts make the same bytes; letters stay letters.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 8})
    for quantity, words in QUANTITIES.items():
        figure, panels = plt.subplots(2, 4, figsize=(11, 5.8), layout="constrained")
        for panel, name in zip(panels.flat, _present(counts), strict=False):
            zero = counts.rate(name, f"exact {quantity}") or 0.0
            shown = [zero]
            for method in METHODS:
                points = _points(counts, name, method, quantity)
                shown += [error for _, error in points]
                colour, line, marker = STYLES[method]
                label = f"{method}: does not protect a person" if method == ATTRIBUTE else method
                xs, ys = [epsilon for epsilon, _ in points], [error for _, error in points]
                panel.plot(xs, ys, line, color=colour, marker=marker, ms=4, mfc="none", label=label)
            panel.axhline(zero, color="black", lw=1.2, ls=":", label=NOTHING)
            panel.set(xscale="log", yscale="log", title=f"{name}, {counts.rate(name, 'units'):.0f} rows")
            panel.set_xticks(LABELLED, [f"{epsilon:g}" for epsilon in LABELLED])
            panel.set_xlim(EPSILONS[0] / 1.3, EPSILONS[-1] * 1.3)
            panel.set_ylim(min(shown) / 2, zero * TOP if max(shown) > zero * TOP else max(shown) * 2)
        for panel in panels.flat[len(_present(counts)) :]:
            panel.set_visible(False)
        for panel in panels[1]:
            panel.set_xlabel("ε")
        figure.supylabel(f"mean error of the {words}")
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(folder / f"p4-{quantity}.svg", metadata={"Date": None})
        plt.close(figure)
