"""The RKHS error of released databases against n, epsilon and the number of points, beside P2's noise.

    python -m benchmarks.database_release      # continues where it stopped

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*.
The population is that of its experiments, known in closed form, so that every error is exact for its weights:
no sample stands in for the population. The procedure's own weights (``spectrum``) need no data at all: their
mean squared error over data and noise is a formula in what is counted here. Weights that users get are fitted
to drawn data with simulated noise at the procedure's own scale; ``tacit.local`` adds OpenDP's.
"""

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.database_population import LOWER, SIDE, Floats, Mixture, p2_bandwidth, p2_mixture
from benchmarks.harness import Answers, Cell, Counts, grid, main, named, picture, table
from benchmarks.problems import locations_of
from tacit.local.database import release_database
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import REGULARISATION_PER_LOCATION, WhitenedMeanEmbedding
from tacit_protocol.features.moments import MEAN, MomentRelease, MomentShares
from tacit_protocol.numerics.simplex_weights import fit_simplex
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.exact_sums import grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import DISCRETISATION_SHARE, gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import Budget

DELTA = 1e-6
BLOCK_ROWS = 4096
DIMENSIONS = (2, 5)
EPSILONS = (0.1, 1.0, 4.0)
UNITS = (1_000, 10_000, 100_000, 1_000_000)
POINTS = (30, 100, 300, 1000)
OURS, P2 = "ours", "p2"
SPECTRUM_PARTS = ("missed", "spread", "unseen", "trace")
FITTED_POINTS = 100
FREQUENCIES = (50, 500)
LOCAL_CELL, LOCAL_UNITS, LOCAL_POINTS = "tacit.local", 10_000, 100
SWEPT_UNITS = 100_000
"""Units of the tables over epsilon: P2's own number."""

PLACEMENTS = {
    "own": "a published part",
    "uniform": "uniform over the bounds",
    "wide": "P2's N(0, 500²)",
    "wrong": "N(500, 150²)",
}


def p2_noise(n: int, epsilon: float) -> float:
    """Return the standard deviation of P2's noise on a coordinate."""
    return 2 / n * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def our_noise(columns: int, count: int, n: int, epsilon: float) -> float:
    """Return that of the procedure's (tested against it by the cells that run it)."""
    kernel = ProductKernel("gaussian", p2_bandwidth(columns))
    sensitivity = kernel.distance_max(columns, 0) + rounding_sensitivity(count, grid_bits(n, False))
    return sensitivity / (n * gaussian_mu(epsilon, DELTA * (1 - DISCRETISATION_SHARE)))


def question(placement: str, count: int, rest: str) -> str:
    """Name a figure of a placement."""
    return f"{placement} | {count} | {rest}"


def spectrum_cell(columns: int) -> str:
    """Name the cell of Algorithm 1's weights."""
    return f"spectrum D={columns}"


def fitted_cell(columns: int, n: int) -> str:
    """Name a cell of fitted weights."""
    return f"weights D={columns} n={n}"


def swept_cell(columns: int) -> str:
    """Name the cell of fitted weights over epsilon."""
    return f"epsilon D={columns} n={SWEPT_UNITS}"


def random_features(count: int) -> str:
    """Name random features of so many frequencies, as placements are named."""
    return f"random features, {count} frequencies"


def raw_error(
    counts: Counts, columns: int, placement: str, count: int, n: float, sigma: float, *, to_data: bool = False
) -> float | None:
    """Return the root mean square error of Algorithm 1's weights under noise of deviation ``sigma``."""
    cell = spectrum_cell(columns)
    found = [counts.rate(cell, question(placement, count, part)) for part in SPECTRUM_PARTS]
    if any(value is None for value in found):
        return None
    missed, spread, unseen, trace = (value or 0.0 for value in found)
    sampled = (unseen - missed) / n if to_data else spread / n
    return math.sqrt(missed + sampled + sigma**2 * trace)


def place(placement: str, mixture: Mixture, count: int, rng: np.random.Generator) -> Floats:
    """Draw public points, (count, D) in [0, 1]."""
    shape = (count, mixture.columns)
    if placement == "own":
        return mixture.draw(count, rng)
    if placement == "uniform":
        return rng.random(shape)
    if placement == "wide":
        return np.clip((500 * rng.standard_normal(shape) - LOWER) / SIDE, 0.0, 1.0)
    return np.clip((500 + 150 * rng.standard_normal(shape) - LOWER) / SIDE, 0.0, 1.0)


def features_at(points: Floats) -> WhitenedMeanEmbedding:
    """Return the features that a study with these public points and P2's kernel fixes."""
    kernel = ProductKernel("gaussian", p2_bandwidth(points.shape[1]))
    return WhitenedMeanEmbedding(kernel, locations_of(points))


def procedure_noise(features: FeatureMap, n: int, epsilon: float) -> float:
    """Return the standard deviation of the procedure's noise on a coordinate of the mean."""
    guarantee = gaussian_guarantee(Budget.of(epsilon, DELTA))
    parts = MomentRelease(features, MomentShares(1.0, 0.0)).parts(n)
    return noise_scales(parts, guarantee)[MEAN] / n


def spectrum(columns: int, number: int) -> Answers:
    """Return what the exact error of Algorithm 1's weights depends on, for every placement and number.

    The released element is A mu_X + noise, A = Phi (K + lambda)^-1 Phi' on the points. ``missed`` is
    |A mu - mu|^2, ``spread`` E|A h|^2 - |A mu|^2 with h = k(X, .), ``unseen`` E|A h - h|^2, and ``trace``
    that of K (K + lambda)^-1, the squared norm of standard noise.
    """
    mixture, bandwidth = p2_mixture(columns), p2_bandwidth(columns)
    rng = np.random.default_rng([number, columns])
    answers: dict[str, float] = {}
    for placement in PLACEMENTS:
        cloud = place(placement, mixture, max(POINTS), rng)
        for count in POINTS:
            found = _spectrum(mixture, bandwidth, cloud[:count])
            answers |= {
                question(placement, count, part): value
                for part, value in zip(SPECTRUM_PARTS, found, strict=True)
            }
    return answers


def _spectrum(mixture: Mixture, bandwidth: float, points: Floats) -> tuple[float, float, float, float]:
    gram = ProductKernel("gaussian", bandwidth).gram(locations_of(points), locations_of(points))
    eigenvalues, vectors = np.linalg.eigh((gram + gram.T) / 2)
    floor = REGULARISATION_PER_LOCATION * len(points)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    kept = eigenvalues / (eigenvalues + floor)
    # Coordinates of psi in the eigenbasis: the mean, and the mean squares.
    mean = (vectors.T @ mixture.embedding(points, bandwidth)) / np.sqrt(eigenvalues + floor)
    second = np.sum(vectors * (mixture.second_moment(points, bandwidth) @ vectors), axis=0)
    squares = second / (eigenvalues + floor)
    missed = mixture.norm_sqr(bandwidth) + float(mean**2 @ (kept - 2))
    spread = float((squares - mean**2) @ kept)
    unseen = 1 + float(squares @ (kept - 2))
    return max(0.0, missed), spread, max(0.0, unseen), float(kept.sum())


def fitted(columns: int, n: int, number: int) -> Answers:
    """Draw data once; fit the weights that users get, under our noise and P2's, the same normal draws."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns, n])
    data = mixture.draw(n, rng)
    answers: dict[str, float] = {}
    for placement in PLACEMENTS:
        points = place(placement, mixture, FITTED_POINTS, rng)
        answers |= _fit_subspace(placement, mixture, points, data, (1.0,), rng)
        if placement == "own":
            answers |= _fit_random_features(mixture, points, data, (1.0,), rng)
    return answers


def swept(columns: int, number: int) -> Answers:
    """Draw data and a published part once; fit weights to both kinds of release, for every epsilon."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns, SWEPT_UNITS, 1])
    data = mixture.draw(SWEPT_UNITS, rng)
    points = place("own", mixture, FITTED_POINTS, rng)
    answers = _fit_subspace("own", mixture, points, data, EPSILONS, rng)
    return answers | _fit_random_features(mixture, points, data, EPSILONS, rng)


def _fit_subspace(
    placement: str,
    mixture: Mixture,
    points: Floats,
    data: Floats,
    epsilons: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[str, float]:
    features = features_at(points)
    mean = whitened_mean(features, data)
    return _fit(placement, mixture, points, features, mean, len(data), epsilons, rng)


def _fit_random_features(
    mixture: Mixture, points: Floats, data: Floats, epsilons: tuple[float, ...], rng: np.random.Generator
) -> dict[str, float]:
    kernel = ProductKernel("gaussian", p2_bandwidth(mixture.columns))
    answers: dict[str, float] = {}
    for count in FREQUENCIES:
        pairs = RandomFourier.draw(kernel, mixture.columns, (), count, rng)
        mean = plain_mean(pairs, data)
        answers |= _fit(random_features(count), mixture, points, pairs, mean, len(data), epsilons, rng)
    return answers


def _fit(
    name: str,
    mixture: Mixture,
    points: Floats,
    features: FeatureMap,
    exact: Floats,
    n: int,
    epsilons: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[str, float]:
    noise = rng.standard_normal(len(exact))
    answers = {}
    for epsilon in epsilons:
        for owner, scale in ((OURS, procedure_noise(features, n, epsilon)), (P2, p2_noise(n, epsilon))):
            noisy, length = exact + scale * noise, scale * math.sqrt(len(exact))
            weights = fit_simplex(features(locations_of(points)), noisy, length).weights
            asked = question(name, len(points), f"{epsilon:g} | {owner}")
            answers[asked] = squared_error(mixture, points, weights)
    return answers


def whitened_mean(features: WhitenedMeanEmbedding, data: Floats) -> Floats:
    """Return the mean of the features, (J,), whitened once."""
    kernel = ProductKernel("gaussian", p2_bandwidth(data.shape[1]))
    total = np.zeros(features.dimension)
    for start in range(0, len(data), BLOCK_ROWS):
        rows = locations_of(data[start : start + BLOCK_ROWS])
        total += kernel.gram(rows, features.locations).sum(axis=0)
    return np.asarray(np.linalg.solve(features.unwhitener, total / len(data)), dtype=np.float64)


def plain_mean(features: FeatureMap, data: Floats) -> Floats:
    """Return the mean of the features, (dimension,), without the grid, whose rounding is far below noise."""
    total = np.zeros(features.dimension)
    for start in range(0, len(data), BLOCK_ROWS):
        total += features(locations_of(data[start : start + BLOCK_ROWS])).sum(axis=0)
    return total / len(data)


def squared_error(mixture: Mixture, points: Floats, weights: Floats) -> float:
    """Return the squared RKHS distance of a weighted database to the population."""
    bandwidth = p2_bandwidth(mixture.columns)
    gram = ProductKernel("gaussian", bandwidth).gram(locations_of(points), locations_of(points))
    crossed = weights @ mixture.embedding(points, bandwidth)
    return max(0.0, float(weights @ gram @ weights - 2 * crossed) + mixture.norm_sqr(bandwidth))


def through_local(columns: int, number: int) -> Answers:
    """Release by ``tacit.local`` with OpenDP's noise: the squared error found, and the one expected.

    Raises RuntimeError where the procedure's noise is not what the page takes it for.
    """
    mixture = p2_mixture(columns)
    rng = np.random.default_rng([number, columns, LOCAL_UNITS])
    points = place("own", mixture, LOCAL_POINTS, rng)
    data = mixture.draw(LOCAL_UNITS, rng)
    found = release_database(
        data,
        epsilon=1.0,
        delta=DELTA,
        bounds=(0.0, 1.0),
        public=points.tolist(),
        bandwidth=p2_bandwidth(columns),
    )
    features = features_at(points)
    if not math.isclose(found.noise, our_noise(columns, LOCAL_POINTS, LOCAL_UNITS, 1.0), rel_tol=1e-6):
        raise RuntimeError("the procedure's noise has changed: so must the page's formula")
    unwhitener = features.unwhitener
    noisy, exact = (
        squared_error(mixture, points, np.asarray(np.linalg.solve(unwhitener, mean), dtype=np.float64))
        for mean in (found.embedding, whitened_mean(features, data))
    )
    trace = _spectrum(mixture, p2_bandwidth(columns), points)[3]
    return {
        "found": noisy,
        "expected": exact + found.noise**2 * trace,
        "simplex": squared_error(mixture, points, found.weights),
    }


def cells() -> list[Cell]:
    """List the cells."""
    made = []
    for columns in DIMENSIONS:
        made.append(Cell(spectrum_cell(columns), 10, functools.partial(spectrum, columns)))
        made.append(Cell(f"{LOCAL_CELL} D={columns}", 20, functools.partial(through_local, columns)))
        made += [Cell(fitted_cell(columns, n), 4, functools.partial(fitted, columns, n)) for n in UNITS]
        made.append(Cell(swept_cell(columns), 20, functools.partial(swept, columns)))
    return made


Errors = tuple[float | None, float | None]
"""Ours, and with P2's noise."""

P2_PUBLISHED = {
    (2, 100): {0.1: 0.01306, 1.0: 0.01034},
    (2, 300): {0.1: 0.01015, 1.0: 0.00100},
    (2, 1000): {0.1: 0.01273, 1.0: 0.00109},
    (5, 100): {0.1: 0.01834, 1.0: 0.01478},
    (5, 300): {0.1: 0.01887, 1.0: 0.00353},
    (5, 1000): {0.1: 0.02852, 1.0: 0.00284},
}
"""Errors that P2's authors publish with their code, for 104, 319 and 977 points of their own data."""


def raw_errors(
    counts: Counts,
    columns: int,
    placement: str,
    count: int,
    n: float,
    epsilon: float,
    *,
    to_data: bool = False,
) -> Errors:
    """Return the errors of Algorithm 1's weights."""
    sigmas = our_noise(columns, count, int(n), epsilon), p2_noise(int(n), epsilon)
    ours, theirs = (raw_error(counts, columns, placement, count, n, s, to_data=to_data) for s in sigmas)
    return ours, theirs


def fitted_errors(counts: Counts, cell: str, asked: str) -> Errors:
    """Return the errors of fitted weights; ``asked`` is a question without whose noise."""
    ours, theirs = (counts.rate(cell, asked + owner) for owner in (OURS, P2))
    return None if ours is None else math.sqrt(ours), None if theirs is None else math.sqrt(theirs)


def _both(errors: Errors) -> str:
    ours, theirs = errors
    if ours is None or theirs is None:
        return ""
    ratio = theirs / ours
    return f"{ours:.4f} ({ratio:.2f})" if ratio >= 1.005 or ratio < 1 else f"{ours:.4f} (1.00+)"


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    placed = [
        (f"D = {columns}, {words}, J = {count}", (columns, placement, count))
        for columns in DIMENSIONS
        for placement, words in PLACEMENTS.items()
        for count in POINTS
    ]
    swept_rows = [
        (f"D = {columns}, {PLACEMENTS.get(words, words)}", (columns, words))
        for columns in DIMENSIONS
        for words in ("own", *(random_features(count) for count in FREQUENCIES))
    ]
    epsilons = named("ε={:g}", EPSILONS)
    return {
        "comparisons": _lower(counts),
        "draws": counts.runs_of("spectrum"),
        "raw weights": _raw_table(counts),
        "raw weights by epsilon": grid(
            "n = 100 000",
            [row for row in placed if row[1][2] in (100, 1000)],
            epsilons,
            lambda row, e: _both(raw_errors(counts, *row, SWEPT_UNITS, e)),
        ),
        "published": _published_table(counts),
        "fitted runs": counts.runs_of("weights"),
        "fitted weights": _fitted_table(counts),
        "swept runs": counts.runs_of("epsilon"),
        "fitted weights by epsilon": grid(
            "n = 100 000",
            swept_rows,
            epsilons,
            lambda row, e: _both(
                fitted_errors(counts, swept_cell(row[0]), question(row[1], FITTED_POINTS, f"{e:g} | "))
            ),
        ),
        "releases": counts.runs_of(LOCAL_CELL),
        "with OpenDP": grid(
            "squared error",
            named("D = {}", DIMENSIONS),
            [("found", "found"), ("expected", "expected"), ("probability weights", "simplex")],
            lambda columns, part: counts.shown(f"{LOCAL_CELL} D={columns}", part, ".3e"),
        ),
    }


def _lower(counts: Counts) -> str:
    """Say in how many comparisons ours is the lower."""
    raw = [
        raw_errors(counts, columns, placement, count, n, epsilon)
        for columns in DIMENSIONS
        for placement in PLACEMENTS
        for count in POINTS
        for n in UNITS
        for epsilon in EPSILONS
    ]
    ratios = [theirs / ours for ours, theirs in raw if ours is not None and theirs is not None]
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


def _raw_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for columns in DIMENSIONS:
        norm = p2_mixture(columns).norm_sqr(p2_bandwidth(columns))
        for placement, words in PLACEMENTS.items():
            for count in POINTS:
                rows[f"D = {columns}, {words}, J = {count}"] = {
                    f"n={n}": _both(raw_errors(counts, columns, placement, count, n, 1.0)) for n in UNITS
                }
        rows[f"D = {columns}, data alone"] = {f"n={n}": f"{math.sqrt((1 - norm) / n):.4f}" for n in UNITS}
    return table(rows, "ε = 1")


def _published_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for (columns, count), published in P2_PUBLISHED.items():
        row = rows.setdefault(f"D = {columns}, J = {count}", {})
        for epsilon, figure in published.items():
            ours, theirs = raw_errors(counts, columns, "own", count, SWEPT_UNITS, epsilon, to_data=True)
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
                words = asked.split(" | ")[0]
                label = f"D = {columns}, {PLACEMENTS.get(words, words)}"
                errors = fitted_errors(counts, cell, asked.removesuffix(OURS))
                rows.setdefault(label, {})[f"n={n}"] = _both(errors)
    return table(rows, "ε = 1")


COLOURS = {"own": "#1f77b4", "uniform": "#2ca02c", "wide": "#ff7f0e", "wrong": "#9467bd"}
FEATURE_COLOURS = dict(zip(FREQUENCIES, ("#d62728", "#8c564b"), strict=True))


def draw(counts: Counts, folder: Path) -> None:
    """Draw the error against n, the number of points and epsilon, once both D have figures."""
    needed = [cell(columns) for columns in DIMENSIONS for cell in (spectrum_cell, swept_cell)]
    if not all(counts.runs.get(cell) for cell in needed):
        return
    for name, label, fill, keys in (
        ("n", "n", _against_n, DIMENSIONS),
        ("points", "number of points", _against_points, (0.1, 1.0)),
        ("epsilon", "ε", _against_epsilon, DIMENSIONS),
    ):
        path = folder / f"database-release-{name}.svg"
        with picture(path, 1, len(keys), figsize=(10, 4.6), sharey=True) as (figure, axes):
            for panel, key in zip(axes, keys, strict=True):
                fill(counts, panel, key)
                panel.set(xscale="log", yscale="log", xlabel=label)
            axes[0].set_ylabel("RKHS distance to the population")
            handles, labels = axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)


def _against_n(counts: Counts, panel: Any, columns: int) -> None:
    sizes = np.geomspace(UNITS[0], UNITS[-1], 25)
    for placement, words in PLACEMENTS.items():
        for count, width in ((100, 1.0), (1000, 2.0)):
            found = [raw_errors(counts, columns, placement, count, n, 1.0) for n in sizes]
            for line, values in zip(("-", "--"), zip(*found, strict=True), strict=True):
                label = words if line == "-" and count == 1000 else None
                panel.plot(
                    sizes,
                    [v or math.nan for v in values],
                    line,
                    color=COLOURS[placement],
                    lw=width,
                    label=label,
                )
    asked = question("own", FITTED_POINTS, "1 | ")
    own = [fitted_errors(counts, fitted_cell(columns, n), asked)[0] or math.nan for n in UNITS]
    panel.plot(UNITS, own, "o", color=COLOURS["own"], ms=5, label="published part, fitted weights (100)")
    norm = p2_mixture(columns).norm_sqr(p2_bandwidth(columns))
    panel.plot(sizes, np.sqrt((1 - norm) / sizes), ":", color="black", lw=1, label="data alone")
    panel.plot([], [], "--", color="grey", label="P2's noise")
    panel.set_title(f"D = {columns}, ε = 1; thin: 100 points, thick: 1000")


def _pairs(panel: Any, x: tuple[float, ...], found: list[Errors], colour: str, label: str) -> None:
    for line, values, words in zip(("o-", "x--"), zip(*found, strict=True), (label, None), strict=True):
        panel.plot(x, [value or math.nan for value in values], line, color=colour, ms=4, label=words)


def _against_points(counts: Counts, panel: Any, epsilon: float) -> None:
    for placement, words in PLACEMENTS.items():
        found = [raw_errors(counts, 2, placement, count, SWEPT_UNITS, epsilon) for count in POINTS]
        _pairs(panel, POINTS, found, COLOURS[placement], words)
    panel.plot([], [], "x--", color="grey", label="P2's noise")
    panel.set_title(f"D = 2, n = 100 000, ε = {epsilon:g}")


def _against_epsilon(counts: Counts, panel: Any, columns: int) -> None:
    lines = {"own": ("published part", COLOURS["own"])}
    lines |= {random_features(c): (random_features(c), colour) for c, colour in FEATURE_COLOURS.items()}
    for words, (label, colour) in lines.items():
        asked = [question(words, FITTED_POINTS, f"{epsilon:g} | ") for epsilon in EPSILONS]
        found = [fitted_errors(counts, swept_cell(columns), one) for one in asked]
        _pairs(panel, EPSILONS, found, colour, label)
    panel.plot([], [], "x--", color="grey", label="P2's noise")
    panel.set_title(f"D = {columns}, n = 100 000, fitted weights on {FITTED_POINTS} points")


if __name__ == "__main__":
    main(__doc__, "database-release", cells(), parts, draw)
