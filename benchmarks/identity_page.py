"""The page of the identity benchmark: tables and curves of sample sizes."""

import math
from pathlib import Path

from benchmarks.resumable import table

EXPERIMENTS = {
    "uniform": "Uniform distribution",
    "2-histogram": "2-histogram",
    "guarantees": "zCDP against approximate and pure differential privacy",
}

HEAD = """# Sample sizes of the identity tests

How many units each method of [`identity`](../procedures/identity.md) needs, by the rule of P3 (Cai,
Daskalakis and Kamath, *Priv'IT*, 2017): the smallest n at which both errors were at most 1/3, over {runs}
simulated studies of each kind; ε = α = 0.1. Made by

    python -m benchmarks.identity

n runs over a grid with steps of 5 %, and its smallest place is found by galloping and halving, so that a size
is good to about 5 %, and a little more where errors are flat. Tests have level 0.3: at level 1/3 the
simulated type I error would exceed 1/3 by chance half of the time. Where it does at 0.3, and the type II
error is small enough, another {runs} simulations decide. Null distributions are made of 999 simulations.
Counts and noise are simulated directly; the statistics are the functions that agents and testers
run. All methods are private for the **replacement** of a unit, with noise twice as wide as P3's, whose
guarantees are for adding or removing one.

"""

TEXTS = {
    "uniform": """k equal cells; the alternative is Paninski's, (1 ± α)/k in turn, as in P3's published code:
a total variation distance of α/2. *privit (Algorithm 1)* looks for the distance α by its own constants:
with the blind coin in one case of ten, and its exact Lipschitz check, it is bound by privacy alone.

""",
    "2-histogram": """As in P3's published code: one cell in 200 (two at least) is heavy, all others together
have probability α/3. The alternative moves the heavy cells by α/(2 pairs) each, in turn. Cells with less than
α/(4k) would not count in the Priv'IT methods; all have more here, and with the published weights carry nearly
all of the sensitivity of *privit-laplace*: one unit in a light cell decides the noise. *Noise-aware weights*,
the default, cap what a unit may add there ([derivation](../mathematics/identity.md#weights)), and need the
fewest units here too.

""",
    "guarantees": """The uniform problem again, one test under several guarantees. δ = 1e-6. *zCDP that pure
0.1 implies*: ρ = ε²/2, the weakest guarantee of all. *By the exact curve*: the Gaussian noise that
(0.1, 1e-6) allows. *By the zCDP bound*: ρ + 2√(ρ log(1/δ)) = 0.1, as published.

""",
}


ORDER = """P3 says of Priv'IT that it always needs fewer units than a χ² test on noisy counts, and fewer than
repetition. Its figures are not in the material that this project is built from, so that they do not stand
here. For uniform distributions the practical form as published needs fewer than repetition everywhere, and
fewer than MCGOF only where cells are many; with tight clipping, and noise-aware weights where cells differ,
it needs fewer than both everywhere. Algorithm 1, with its own constants and its exact check, needs more than
any other method.

"""


def text(folder: Path, sizes: dict[str, int], runs: int) -> None:
    """Write the page and its pictures into a folder; ``sizes`` by "experiment | method | cells"."""
    parts = [HEAD.format(runs=runs)]
    for experiment, title in EXPERIMENTS.items():
        curves = _curves(sizes, experiment)
        if not curves:
            continue
        picture = f"identity-{experiment}.svg"
        _draw(folder / picture, title, curves)
        parts += [f"## {title}\n\n", TEXTS[experiment], f"![Units against cells]({picture})\n\n"]
        parts += [table(_rows(curves), "k"), "\n"]
    parts.append(_statement(sizes))
    (folder / "identity.md").write_text("".join(parts).rstrip() + "\n")


Curves = dict[str, dict[int, int]]


def _curves(sizes: dict[str, int], experiment: str) -> Curves:
    curves: Curves = {}
    for name, size in sizes.items():
        kind, label, cells = name.split(" | ")
        if kind == experiment:
            curves.setdefault(label, {})[int(cells)] = size
    return curves


def _rows(curves: Curves) -> dict[str, dict[str, str]]:
    cells = sorted({k for curve in curves.values() for k in curve})
    return {
        f"{k:,}": {label: f"{curve[k]:,}" if k in curve else "" for label, curve in curves.items()}
        for k in cells
    }


def _draw(path: Path, title: str, curves: Curves) -> None:
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # A fixed salt and no date: the same sizes make the same picture.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for marker, (label, curve) in zip("ovs^Dx*P", curves.items(), strict=False):
        cells = sorted(curve)
        axes.loglog(cells, [curve[k] for k in cells], marker=marker, markersize=4, label=label)
    axes.set(title=title, xlabel="cells k", ylabel="units n")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _statement(sizes: dict[str, int]) -> str:
    """Say how the curves lie to each other, from the figures."""
    lines = ["## What the curves say\n\n", ORDER]
    for experiment in ("uniform", "2-histogram"):
        curves = _curves(sizes, experiment)
        aware = "privit-laplace, tight, noise-aware weights"
        tight = curves.get(aware, curves.get("privit-laplace, tight", {}))
        peers = {
            "its published form": "privit-laplace, filter (P3)",
            "MCGOF as published": "mcgof, published weights",
            "MCGOF with noise-aware weights": "mcgof, noise-aware weights",
        }
        for name, other in ((name, curves.get(label, {})) for name, label in peers.items()):
            both = sorted(set(tight) & set(other))
            if both:
                ratios = [other[k] / tight[k] for k in both]
                lines.append(
                    f"- {experiment}: `privit-laplace` as it is by default needs {min(ratios):.1f} to "
                    f"{max(ratios):.1f} times fewer units than {name}, k = {both[0]:,} to {both[-1]:,}.\n"
                )
        lines += [_slope(experiment, label, curve) for label, curve in curves.items() if len(curve) > 2]
    return "".join(lines)


def _slope(experiment: str, label: str, curve: dict[int, int]) -> str:
    first, last = min(curve), max(curve)
    slope = math.log(curve[last] / curve[first]) / math.log(last / first)
    return f"- {experiment}: {label} grows like k^{slope:.2f} from k = {first:,} to {last:,}.\n"
