"""The page and the pictures on P4's eight data sets, from the counts."""

from pathlib import Path

from benchmarks.p4_data import DATA_SETS
from benchmarks.resumable import Counts, table

DELTA = 1e-5
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SKETCH, PNC, DISJOINT, CURATOR = "sketch", "pnc", "pnc-disjoint", "curator"
ATTRIBUTE = "P4 as published"
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

- *sketch*: `distance_correlation` as it is (madelon: one frequency, as no more fits). A correlation is not
  stated where a variance is lost in its noise: its error is over the runs that state one, whose part follows.
- *pnc*, *pnc-disjoint*: P4's 8 projections, calibrated to protect a person, noise at both owners. Their raw
  values are what P4 takes for estimates; the noise shrinks them, so that where it is large their error is
  that of saying 0.
- *curator*: `curated_distance_correlation` without its test. A correlation is not always stated here either.
- *P4 as published*: **does not protect a person.** Noise for one attribute of one row, at one owner alone;
  the other owner's rows go in without noise. For comparison only.
- *saying 0* releases nothing.

"""

TRUNCATED = """## What two frequencies leave out

With several columns a side the sketch keeps two frequencies for each direction by default. Projections of
several columns crowd together, where two frequencies see little: of the exact squared distance covariance
they keep .39 (naval), .32 (bike), .24 (wine) and .20 (parkinsons); four keep .77, .77, .64 and .46, eight
.96, 1.02, .93 and .78 (without privacy, mean of two draws of directions, whose own error is a few
hundredths). So the sketch's error below stops falling with ε near the part left out; `truncation` in verdicts
bounds it. Correlations suffer less, as variances lose as much. With many units choose `n_features = 8`.

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
    for quantity, words in QUANTITIES.items():
        parts += [
            f"## Error of the {words}\n\n",
            f"![Error of the {words} against epsilon, eight data sets](p4-{quantity}.svg)\n\n",
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


def _errors(counts: Counts, quantity: str) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name in _present(counts):
        zero = counts.rate(name, f"exact {quantity}") or 0.0
        for method in METHODS:
            label = f"{method} (not protecting a person)" if method == ATTRIBUTE else method
            row = rows.setdefault(f"{name}, {label}", {})
            for epsilon in SHOWN:
                row[f"ε={epsilon:g}"] = _shown(counts, name, error_of(method, epsilon, quantity))
        rows[f"{name}, saying 0"] = {f"ε={epsilon:g}": _figure(zero) for epsilon in SHOWN}
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


def draw(counts: Counts, folder: Path) -> None:
    """Draw the errors against epsilon, a panel for each data set, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # The same counts make the same bytes; letters stay letters.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 8})
    for quantity, words in QUANTITIES.items():
        figure, panels = plt.subplots(2, 4, figsize=(11, 5.6), sharex=True, layout="constrained")
        for panel, name in zip(panels.flat, _present(counts), strict=False):
            for method in METHODS:
                found = [(e, counts.rate(name, error_of(method, e, quantity))) for e in EPSILONS]
                points = [(epsilon, error) for epsilon, error in found if error is not None]
                colour, line, marker = STYLES[method]
                label = f"{method}: does not protect a person" if method == ATTRIBUTE else method
                if points:
                    panel.plot(
                        *zip(*points, strict=True), line, color=colour, marker=marker, ms=3, label=label
                    )
            panel.axhline(
                counts.rate(name, f"exact {quantity}"), color="black", lw=0.8, ls=":", label="saying 0"
            )
            panel.set(xscale="log", yscale="log", title=name)
        for panel in panels.flat[len(_present(counts)) :]:
            panel.set_visible(False)
        figure.supxlabel("ε")
        figure.supylabel(f"mean error of the {words}")
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(folder / f"p4-{quantity}.svg", metadata={"Date": None})
        plt.close(figure)
