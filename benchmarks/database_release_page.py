"""The page of the RKHS error of released databases, from the counts."""

import math

from benchmarks.database_population import p2_bandwidth, p2_mixture
from benchmarks.database_release_error import (
    DIMENSIONS,
    EPSILONS,
    FITTED_POINTS,
    FREQUENCIES,
    LOCAL_CELL,
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
    raw_ratio,
    swept_cell,
)
from benchmarks.resumable import Counts, table

P2_PUBLISHED = {
    (2, 100): {0.1: 0.01306, 1.0: 0.01034},
    (2, 300): {0.1: 0.01015, 1.0: 0.00100},
    (2, 1000): {0.1: 0.01273, 1.0: 0.00109},
    (5, 100): {0.1: 0.01834, 1.0: 0.01478},
    (5, 300): {0.1: 0.01887, 1.0: 0.00353},
    (5, 1000): {0.1: 0.02852, 1.0: 0.00284},
}
"""Errors that P2's authors publish with their code, for 104, 319 and 977 points of their own data."""

HEAD = """# The error of a released database

The RKHS distance between a released database and the *population*, root mean square, δ = 1e-6, beside what
P2 (Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*)
would release with its own noise: sensitivity 2/n, and √(2 ln(1.25/δ))/ε (proved for ε < 1 alone). Made by

    python -m benchmarks.database_release

The population is that of P2's experiments, with the means that its published code draws: ten Gaussians of
deviation 30 around means drawn from N(100, 200²), weights like 1, 1/2, ..., 1/10, in D = 2 and 5 columns;
the kernel is P2's, exp(−|x − y|²/(100² D)). Bounds are −900 and 1100. Its embedding is known in closed form,
so that no sample stands in for it. {norms}

Public points are

- *a published part*: further rows of the population, which nobody protects;
- *uniform over the bounds*; *P2's N(0, 500²)*, which P2 takes where nothing is public; and
- *N(500, 150²)*, a wrong distribution, which covers few of the components.

`embedding_release` has sensitivity √2/n, less where the kernel's minimum allows it, and the exact Gaussian
curve: with ε = {epsilons} its noise is {ratios} times smaller than P2's. Figures in brackets are
P2's error over ours: above 1, ours is lower (1.00+: by less than half a per cent; 1.00: not lower).
{lower}

"""

EXACT_HEAD = """## Algorithm 1's weights

Weights (K + λI)^(-1/2) m̃ as P2's Algorithm 1 has them (`with_weights("raw")`). Nothing is simulated here
but the points ({runs}): given them, the mean squared error over data and noise is a formula,
|Aμ − μ|² + (E|Ah|² − |Aμ|²)/n + σ² tr K(K + λI)⁻¹, with A the (shrunken) projection on the points and h
a record's k(x, ·). The rounding of sums is left out. *Data alone* is the error of the records themselves,
without privacy.

"""

SWEEP_HEAD = """
At n = 100 000, against ε:

"""

PUBLISHED_HEAD = """
## Beside the figures that P2 publishes

The same population, n = 100 000, a published part; distance to the *data's* embedding, as P2 measures it.
*Published* is read from the results in the code of P2's authors: one draw of 104, 319 and 977 points (ours:
100, 300 and 1000). *P2's noise here* should be of its size: what the points miss differs from draw to draw.

"""

FITTED_HEAD = """
## The weights that users get

`.weights`: probabilities, the smoothest that match the release within its noise. Data are drawn and noise is
simulated with NumPy at the procedure's scale; both noises are the same normal draws, scaled; {runs}.
Points: 100, drawn afresh in every cell, whose luck shows where noise is small. Random features are P2's
Algorithm 2 with cosines and sines in pairs, norm 1 (P2's map cos(ωx + b) has norm up to √2), and the same
weights on a published part of 100 points.

"""

SWEPT_HEAD = """
At n = 100 000, against ε: {runs}, each with the same data and the same published part in every line.

"""

EPSILON_PICTURE = "\n![Error against ε, two and five columns](database-release-epsilon.svg)\n"

READ = """
**How to read them.** While noise counts, probability weights are nearer than Algorithm 1's: they average
noise out. Once n is large they end at what non-negative weights on so few points can reach, and raw weights
go on; so `with_weights("raw")` is the better choice for RKHS distances there, though not for expectations of
functions outside the RKHS. Everything ends at what the points miss: a placement that covers the population
counts for more than any constant, and in five columns neither the uniform nor P2's normal one covers it.

"""

LOCAL_HEAD = """## With OpenDP's noise

The same through `tacit.local.database.release_database`, n = 10 000, ε = 1, a published part of 100 points:
mean squared error of raw weights over {runs}, and what the formula of the noise expects of them.

"""


def text(counts: Counts) -> str:
    """Write the page."""
    raw, sweep, published = _raw_table(counts), _sweep_table(counts), _published_table(counts)
    users, swept = _fitted_table(counts), _swept_table(counts)
    parts = [
        HEAD.format(
            norms=_norms(),
            epsilons=", ".join(f"{e:g}" for e in EPSILONS),
            ratios=", ".join(f"{p2_noise(10**5, e) / our_noise(2, 100, 10**5, e):.2f}" for e in EPSILONS),
            lower=_lower(counts),
        ),
        "![Error against n, two and five columns](database-release-n.svg)\n\n",
        EXACT_HEAD.format(runs=_times(counts.runs_of("spectrum"), "draw")),
        raw,
        SWEEP_HEAD,
        sweep,
        "\n![Error against the number of points](database-release-points.svg)\n",
        PUBLISHED_HEAD,
        published,
        FITTED_HEAD.format(runs=_times(counts.runs_of("weights"), "run")),
        users,
        SWEPT_HEAD.format(runs=_times(counts.runs_of("epsilon"), "run")),
        swept,
        EPSILON_PICTURE,
        READ,
        LOCAL_HEAD.format(runs=_times(counts.runs_of(LOCAL_CELL), "release")),
        _local_table(counts),
    ]
    return "".join(parts)


def _times(count: str, what: str) -> str:
    return f"{count} {what}" if count == "1" else f"{count} {what}s"


def _norms() -> str:
    norms = [p2_mixture(columns).norm_sqr(p2_bandwidth(columns)) for columns in DIMENSIONS]
    return "Weights of 0, which say nothing, have the error\n{:.3f} in 2 columns and {:.3f} in 5.".format(
        *(math.sqrt(norm) for norm in norms)
    )


def _lower(counts: Counts) -> str:
    """Say in how many comparisons ours is the lower."""
    ratios = [
        ratio
        for columns in DIMENSIONS
        for placement in PLACEMENTS
        for count in POINTS
        for n in UNITS
        for epsilon in EPSILONS
        if (ratio := raw_ratio(counts, columns, placement, count, n, epsilon)) is not None
    ]
    fitted = [
        (counts.rate(cell, asked) or 0.0, counts.rate(cell, asked.removesuffix(OURS) + P2) or 0.0)
        for cell, asked in counts.answered
        if cell.startswith(("weights", "epsilon")) and asked.endswith(OURS)
    ]
    lower = sum(ours < theirs for ours, theirs in fitted)
    worst = min((math.sqrt(theirs / ours) for ours, theirs in fitted), default=1.0)
    return (
        f"Algorithm 1's weights: ours is lower in {sum(r > 1 for r in ratios)} of {len(ratios)} cells,\n"
        f"by a factor of up to {max(ratios, default=1):.2f}, and of 1 + {min(ratios, default=1) - 1:.0e} "
        f"where noise no longer counts. Fitted weights: lower in {lower} of {len(fitted)}\n"
        f"cells; in the others, of the latter kind, ours is higher by {max(0.0, 1 / worst - 1):.1%} at most."
    )


def _both(ours: float | None, theirs: float | None) -> str:
    if ours is None or theirs is None:
        return ""
    ratio = theirs / ours
    return f"{ours:.4f} ({ratio:.2f})" if ratio >= 1.005 or ratio < 1 else f"{ours:.4f} (1.00+)"


def _raw_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for columns in DIMENSIONS:
        norm = p2_mixture(columns).norm_sqr(p2_bandwidth(columns))
        for placement, words in PLACEMENTS.items():
            for count in POINTS:
                rows[f"D = {columns}, {words}, J = {count}"] = {
                    f"n={n}": _raw_cell(counts, columns, placement, count, n, 1.0) for n in UNITS
                }
        rows[f"D = {columns}, data alone"] = {f"n={n}": f"{math.sqrt((1 - norm) / n):.4f}" for n in UNITS}
    return table(rows, "ε = 1")


def _raw_cell(counts: Counts, columns: int, placement: str, count: int, n: int, epsilon: float) -> str:
    sigmas = our_noise(columns, count, n, epsilon), p2_noise(n, epsilon)
    return _both(*(raw_error(counts, columns, placement, count, n, sigma) for sigma in sigmas))


def _sweep_table(counts: Counts) -> str:
    rows = {}
    for columns in DIMENSIONS:
        for placement, words in PLACEMENTS.items():
            for count in (100, 1000):
                rows[f"D = {columns}, {words}, J = {count}"] = {
                    f"ε={e:g}": _raw_cell(counts, columns, placement, count, SWEPT_UNITS, e) for e in EPSILONS
                }
    return table(rows, "n = 100 000")


def _published_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for (columns, count), published in P2_PUBLISHED.items():
        row = rows.setdefault(f"D = {columns}, J = {count}", {})
        for epsilon, figure in published.items():
            sigmas = our_noise(columns, count, SWEPT_UNITS, epsilon), p2_noise(SWEPT_UNITS, epsilon)
            ours, theirs = (
                raw_error(counts, columns, "own", count, SWEPT_UNITS, sigma, to_data=True) for sigma in sigmas
            )
            row[f"ε={epsilon:g}: published"] = f"{figure:.4f}"
            row[f"P2's noise here, ε={epsilon:g}"] = "" if theirs is None else f"{theirs:.4f}"
            row[f"ours, ε={epsilon:g}"] = "" if ours is None else f"{ours:.4f}"
    return table(rows, "a published part")


def _fitted_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for columns in DIMENSIONS:
        for n in UNITS:
            cell = fitted_cell(columns, n)
            for asked in [asked for name, asked in counts.answered if name == cell and asked.endswith(OURS)]:
                words, _, _, _ = asked.split(" | ")
                label = f"D = {columns}, {PLACEMENTS.get(words, words)}"
                rows.setdefault(label, {})[f"n={n}"] = _fitted_cell(counts, cell, asked.removesuffix(OURS))
    return table(rows, "ε = 1")


def _swept_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for columns in DIMENSIONS:
        for words in ("own", *(random_features(count) for count in FREQUENCIES)):
            rows[f"D = {columns}, {PLACEMENTS.get(words, words)}"] = {
                f"ε={e:g}": _fitted_cell(
                    counts, swept_cell(columns), question(words, FITTED_POINTS, f"{e:g} | ")
                )
                for e in EPSILONS
            }
    return table(rows, "n = 100 000")


def _fitted_cell(counts: Counts, cell: str, asked: str) -> str:
    return _both(*(fitted_error(counts, cell, asked + owner) for owner in (OURS, P2)))


def _local_table(counts: Counts) -> str:
    rows = {}
    for columns in DIMENSIONS:
        cell = f"{LOCAL_CELL} D={columns}"
        found = {part: counts.rate(cell, part) for part in ("found", "expected", "simplex")}
        rows[f"D = {columns}"] = {
            "found": f"{found['found'] or 0:.3e}",
            "expected": f"{found['expected'] or 0:.3e}",
            "probability weights": f"{found['simplex'] or 0:.3e}",
        }
    return table(rows, "squared error")
