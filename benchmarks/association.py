"""Association within owners: level, power and coverage, beside what people would do otherwise.

    python -m benchmarks.association --workers 2     # continues where it stopped

Two columns at every owner: numbers with bounds 4 standard deviations from their mean, or categories of two,
both functions of normal numbers of one correlation. ``shift`` moves both columns' means by so many standard
deviations from the first owner to the last (a category's share by .4): owners together then show a
correlation where no owner has any. Noise is simulated with NumPy; statistics and intervals are the
procedure's own functions. Correlations that intervals should hold are those of a million exact rows.

``pooled Pearson`` is the correlation of all owners' rows together, without privacy; ``within, not private``
Fisher's z of the owners' exact correlations, weighted by n - 3; ``naive`` the same of noisy sums, squares and
products, each with Laplace noise of its part of epsilon, as if they were exact; ``randomised response`` tells
above or below the middle of the bounds truthfully with epsilon/2 a column, and tests the owners' covariances.

Rank correlations are of values by the public cells of the release, of which ties are made: 64 or 32 equal
parts of a number's bounds and both ends, or levels. ``levels``: numbers of few values, normal numbers cut
into levels of equal or very unequal shares (``heaps``), within bounds that are theirs or much wider. Owners
are drawn as multinomial counts, and both correlations, of cells and of exact ranks, are known exactly.

In pure epsilon (``noise="laplace"``): the same designs, levels and coverage; and powers beside Gaussian noise
with a delta and the naive ``table of halves`` and ``table of quarters``: every owner's table of both columns'
equal cells, 2 x 2 or 4 x 4 within the bounds, with Laplace noise of 2/epsilon, and the covariance of places.
"""

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtr, ndtri, stdtrit
from scipy.stats import multivariate_normal, pearsonr, rankdata

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    main,
    question,
    seeds,
    table,
)
from tacit.in_process.runner import local_study, terms
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.numerics.inference import Effects, laplace_widening
from tacit_protocol.privacy.gaussian_mechanism import noise_scales
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.privacy.laplace_mechanism import sums_scale
from tacit_protocol.procedures.association.plan import (
    HISTOGRAMS,
    SCORES,
    LaplaceAssociation,
    SeparateAssociation,
    separate_plan,
)
from tacit_protocol.procedures.association.statistic import (
    OwnerSums,
    block,
    correlation,
    estimated,
    independent,
    rank_block,
)

RUNS, PURE_RUNS, POWER_RUNS, LEVEL, DELTA, BOUND, STRONG = 1000, 1000, 400, 0.05, 1e-5, 4.0, 0.5

DESIGNS: dict[str, tuple[int, float, float, str]] = {
    "n=1000, ε=.5, normal": (1000, 0.5, 0.0, "normal"),
    "n=300, ε=1, shift 1, normal": (300, 1.0, 1.0, "normal"),
    "n=300, ε=.3, shift 1, heavy tails": (300, 0.3, 1.0, "heavy"),
    "n=3000, ε=4, heavy tails": (3000, 4.0, 0.0, "heavy"),
    "n=1000, ε=4, shift 1, skewed": (1000, 4.0, 1.0, "skewed"),
    "n=3000, ε=4, shift 1, normal": (3000, 4.0, 1.0, "normal"),
    "n=1000, ε=1, shift 1, five values": (1000, 1.0, 1.0, "discrete"),
    "n=1000, ε=1, shift 1, categories of .3": (1000, 1.0, 1.0, "category"),
}
"""Units of each owner, epsilon, shift, distribution."""

FRESH: dict[str, tuple[int, float, float, str]] = {
    "n=800, ε=2, shift .5, log-normal": (800, 2.0, 0.5, "log-normal"),
    "n=500, ε=1, shift 2, uniform": (500, 1.0, 2.0, "uniform"),
    "n=2000, ε=1, shift 1, two heaps": (2000, 1.0, 1.0, "heaps"),
    "n=1500, ε=3, tails of t(2)": (1500, 3.0, 0.0, "t2"),
    "n=600, ε=.7, shift 1, categories of .3": (600, 0.7, 1.0, "category"),
    "n=4000, ε=.3, shift 1, normal": (4000, 0.3, 1.0, "normal"),
}
"""Designs that were drawn up after the procedure was finished, and for which nothing was tuned."""

POWERS = ((4, 1000, 0.5, 0.2), (4, 300, 1.0, 0.3), (10, 300, 1.0, 0.2))
"""Owners, units of each, epsilon, the correlation."""

PURE_POWERS = (
    (4, 1000, 0.5, 0.2, "normal"),
    (4, 300, 1.0, 0.3, "normal"),
    (10, 300, 1.0, 0.2, "normal"),
    (4, 300, 0.3, 0.3, "normal"),
    (1, 1000, 1.0, 0.2, "normal"),
    (1, 3000, 0.3, 0.2, "normal"),
    (1, 300, 3.0, 0.3, "normal"),
    (4, 1000, 0.5, 0.2, "skewed"),
    (4, 1000, 0.5, 0.2, "heavy"),
    (4, 1000, 0.5, 0.3, "category"),
    (1, 1000, 1.0, 0.17, "category"),
    (1, 300, 1.0, 0.33, "category"),
    (1, 1000, 0.3, 0.17, "category"),
)
"""The same in pure epsilon, and the law."""

PURE_METHODS = (
    "association, pure",
    "association, δ = 1e-5",
    "table of halves",
    "table of quarters",
    "randomised response",
    "within, not private",
)

METHODS = ("association", "pooled Pearson", "within, not private", "naive", "randomised response")
KINDS = ("Pearson correlation", "rank correlation")

VALUES = np.array([-1.0, -0.5, 0.0, 0.5, 3.0])


def offsets(owners: int, shift: float) -> list[float]:
    """Return by how much every owner's means are moved."""
    return [shift * (place / (owners - 1) - 0.5) if owners > 1 else 0.0 for place in range(owners)]


def rows_of(rng: np.random.Generator, n: int, law: str, off: float, rho: float) -> Floats:
    """Draw one owner's two columns, (n, 2) in [-1, 1]."""
    latent = rng.standard_normal((n, 2))
    latent[:, 1] = rho * latent[:, 0] + np.sqrt(1 - rho**2) * latent[:, 1]
    if law == "category":
        return np.where(ndtr(latent) < 0.7 - 0.4 * off, -1.0, 1.0)
    drawn = {
        "normal": lambda: latent,
        "heavy": lambda: stdtrit(3, np.clip(ndtr(latent), 1e-12, 1 - 1e-12)) / np.sqrt(3),
        "skewed": lambda: -np.log1p(-np.minimum(ndtr(latent), 1 - 1e-12)) - 1,
        "log-normal": lambda: np.exp(0.6 * latent) - np.exp(0.18),
        "uniform": lambda: 4 * ndtr(latent) - 2,
        "heaps": lambda: latent / 3 + np.sign(latent) * 1.5,
        "t2": lambda: stdtrit(2, np.clip(ndtr(latent), 1e-12, 1 - 1e-12)) / 2,
        "discrete": lambda: VALUES[np.minimum((ndtr(latent) * 5).astype(int), 4)],
    }[law]()
    return np.asarray(np.clip((drawn + off) / BOUND, -1, 1))


LEVELS = tuple(
    (levels, bounds, shares, latent, *cell)
    for levels, bounds, shares, latent in (
        ((3, 4), "own", "equal", 0.9),
        ((5, 4), "own", "equal", 0.8),
        ((2, 7), "own", "equal", 0.6),
        ((10, 3), "own", "heaps", 0.5),
        ((5, 5), "own", "heaps", 0.95),
        ((3, 4), "one wider", "equal", 0.9),
        ((6, 8), "thrice", "equal", 0.5),
        ((5, 4), "thirty times", "equal", 0.8),
        ((8, 8), "own", "equal", 0.0),
    )
    for cell in ((1000, 1.0, True), (5000, 1.0, False), (5000, 1.0, True), (20000, 100.0, False))
)
"""Numbers of values, bounds, their shares, the normal numbers' correlation; units, epsilon, pure or not."""


@cache
def joint_levels(levels: tuple[int, int], shares: str, latent: float) -> Floats:
    """Return the probabilities (k, l) of levels that two normal numbers are cut into."""
    cuts = []
    for count in levels:
        own = np.ones(count) if shares == "equal" else 0.5 ** np.arange(count)[::-1] + 0.02
        cuts.append(np.concatenate([[-9.0], ndtri(np.cumsum(own / own.sum())[:-1]), [9.0]]))
    law = multivariate_normal([0, 0], [[1, latent], [latent, 1]])
    reached = np.array([[law.cdf([a, b]) for b in cuts[1]] for a in cuts[0]])
    found = np.maximum(np.diff(np.diff(reached, axis=0), axis=1), 0)
    return np.asarray(found / found.sum())


def placed(count: int, bounds: str) -> Floats:
    """Return where so many levels, 0, 1, 2 and so on, lie within bounds, scaled to [0, 1]."""
    last = count - 1
    lower, upper = {
        "own": (0, last),
        "one wider": (0, last + 1),
        "thrice": (-last - 0.4, 2 * last + 0.7),
        "thirty times": (-12 * last, 18 * last),
    }[bounds]
    return np.asarray((np.arange(count) - lower) / (upper - lower))


def midranks(codes: npt.NDArray[Any], weights: Floats) -> Floats:
    """Return the mid-distribution function at each of some values that have such probabilities."""
    _, places = np.unique(codes, return_inverse=True)
    mass = np.bincount(places, weights=weights)
    return np.asarray((np.cumsum(mass) - mass / 2)[places])


def correlation_of(first: Floats, second: Floats, weights: Floats) -> float:
    """Return the correlation of two columns whose rows have such probabilities."""
    a, b = first - first @ weights, second - second @ weights
    return float((a * b) @ weights / np.sqrt((a * a) @ weights * ((b * b) @ weights)))


def cells_of_values(scaled: Floats, bins: int) -> npt.NDArray[Any]:
    """Return in which cell of a release each scaled value is, in order: both ends are cells of their own."""
    inner = np.minimum((scaled * bins).astype(int), bins - 1) + 1
    return np.where(scaled <= 0, 0, np.where(scaled >= 1, bins + 1, inner))


def levels_checked(name: str, cell: Sequence[Any], run: int) -> Answers:
    """Ask what the interval of a rank correlation of few levels holds."""
    rng, _ = seeds(name, run)
    levels, bounds, shares, latent, n, epsilon, pure = cell
    law = joint_levels(levels, shares, latent)
    where = [placed(count, bounds) for count in levels]
    rows = np.stack([part.ravel() for part in np.meshgrid(*where, indexing="ij")], axis=1)
    counts, plan = rng.multinomial(n, law.ravel()), plan_for(epsilon, True, pure)
    own = blocks_of(rng, [2 * rows - 1], epsilon, True, pure, counts=counts)
    if pure:
        own = [each.widened(laplace_widening(LEVEL)) for each in own]
    found = estimated(correlation(own, ranks=True), LEVEL)
    if found.value is None or found.lower is None or found.upper is None:
        return {"said": 0.0}
    bins, weights = plan.histograms(n).bins, law.ravel()
    truths = {
        "held": correlation_of(*(midranks(cells_of_values(u, bins), weights) for u in rows.T), weights),
        "exact held": correlation_of(*(midranks(u, weights) for u in rows.T), weights),
    }
    answers = {asked: float(found.lower <= truth <= found.upper) for asked, truth in truths.items()}
    half = (found.upper - found.lower) / 2
    return {**answers, "said": 1.0, "half": half, "cells": truths["held"], "exact": truths["exact held"]}


@cache
def plan_for(epsilon: float, numeric: bool, pure: bool = False) -> SeparateAssociation:
    """Return the procedure's plan of two columns."""
    columns = tuple(
        NumericColumn(name=name, lower=-1.0, upper=1.0)
        if numeric
        else CategoricalColumn(name=name, levels=("no", "yes"))
        for name in ("x", "y")
    )
    noise = {"noise": "laplace" if pure else "gaussian"}
    asked = terms(epsilon, 0.0 if pure else DELTA, LEVEL, 0)
    return separate_plan(local_study("association", Domain(columns=columns), ["owner"], noise, **asked))


def blocks_of(
    rng: np.random.Generator,
    owners: Sequence[Floats],
    epsilon: float,
    numeric: bool,
    pure: bool = False,
    counts: npt.NDArray[Any] | None = None,
) -> list[OwnerSums]:
    """Return the owners' noisy numbers; ``counts`` says how many units a row stands for, by default one."""
    plan, found = plan_for(epsilon, numeric, pure), []
    for values in owners:
        units = np.ones(len(values)) if counts is None else counts
        n = int(units.sum())
        rows = SimpleNamespace(numeric=(values + 1) / 2, categorical=((values + 1) / 2).astype(np.int32))
        parts = plan.parts(n)
        if isinstance(plan, LaplaceAssociation):
            events = zip(parts, plan.events(n), strict=True)
            scales = {part.name: sums_scale(part, own) for part, own in events}
        else:
            scales = noise_scales(parts, plan.guarantee)
        draw, vector = rng.laplace if pure else rng.normal, None
        if HISTOGRAMS in scales:
            noisy = [
                np.bincount(cells.codes(rows), units, cells.size) + draw(0, scales[HISTOGRAMS], cells.size)
                for cells in plan.histograms(n).columns
            ]
            steps = tuple(int(step) for step in np.rint(np.concatenate(noisy) * 2**20))
            kind = "laplace" if pure else "gaussian"
            vector = NoisyVector(values=steps, exponent=-20, noise=kind, scale=scales[HISTOGRAMS])
        grades = plan.grades(vector, n)
        sums = units @ plan.scores(grades, n)(rows)
        sums += draw(0, scales[SCORES], len(sums))
        own, both = (grades[0], grades[1]), 4 if plan.ranks_alone else 8
        read = (n, sums[:both].reshape(2, -1), sums[both:], scales[SCORES], own)
        found.append(rank_block(*read, pure) if plan.ranks_alone else block(*read))
    return found


@cache
def truths(law: str, shift: float, rho: float, owners: int, bins: int) -> dict[str, float]:
    """Return the correlations of numbers and of ranks by cells within owners, in a million rows."""
    rng, found = np.random.default_rng(5), []
    for off in offsets(owners, shift):
        values = rows_of(rng, 1_000_000 // owners, law, off, rho)
        codes = [cells_of_values((column + 1) / 2, bins) for column in values.T]
        ranks = np.stack([rankdata(column) for column in codes], axis=1)
        found.append([np.cov(each.T) for each in (values, ranks)])
    pooled = np.mean(found, axis=0)
    return {
        kind: float(own[0, 1] / np.sqrt(own[0, 0] * own[1, 1]))
        for kind, own in zip(KINDS, pooled, strict=True)
    }


def held(
    effects: Effects, kind: str, asked: str, truth: float, blocks: Sequence[OwnerSums]
) -> dict[str, float]:
    """Say whether an interval holds the truth, and whether there is one; of ranks as in new studies."""
    found = estimated(effects, LEVEL)
    if found.value is None or found.lower is None or found.upper is None:
        return {asked: 1.0, f"{asked} said": 0.0}
    return {asked: bool(found.lower <= truth <= found.upper), f"{asked} said": 1.0}


def checked(name: str, owners: int, design: str, run: int) -> Answers:
    """Test one study without any association; and ask of one with a strong one what its intervals hold."""
    rng, _ = seeds(name, run)
    n, epsilon, shift, law = (DESIGNS | FRESH)[design]
    answers: dict[str, float] = {}
    for rho in (0.0, STRONG):
        rows = [rows_of(rng, n, law, off, rho) for off in offsets(owners, shift)]
        blocks = blocks_of(rng, rows, epsilon, law != "category")
        if not rho:
            answers[question("test", design, LEVEL)] = independent(blocks).pvalue <= LEVEL
        truth = truths(law, shift, rho, owners, plan_for(epsilon, law != "category").histograms(n).bins)
        for kind in KINDS[law == "category" :]:  # of two levels both are one, and one is told
            effects = correlation(blocks, ranks=kind == KINDS[1])
            answers |= held(effects, kind, f"{kind} {rho:g}", truth[kind], blocks)
            if owners > 1 and rho and law != "category":
                own = correlation(blocks, ranks=kind == KINDS[1], pooled=False).heterogeneity()
                answers[question(f"one {kind}", design, LEVEL)] = own is not None and own <= LEVEL
    return answers


def checked_pure(name: str, owners: int, design: str, run: int) -> Answers:
    """Ask the same in pure epsilon."""
    rng, null = seeds(name, run)
    n, epsilon, shift, law = (DESIGNS | FRESH)[design]
    answers: dict[str, float] = {}
    for rho in (0.0, STRONG):
        rows = [rows_of(rng, n, law, off, rho) for off in offsets(owners, shift)]
        blocks = blocks_of(rng, rows, epsilon, law != "category", pure=True)
        if not rho:
            answers[question("test", design, LEVEL)] = independent(blocks, null, PURE_DRAWS).pvalue <= LEVEL
        truth = truths(law, shift, rho, owners, plan_for(epsilon, True, True).histograms(n).bins)[KINDS[1]]
        wide = [own.widened(laplace_widening(LEVEL)) for own in blocks]
        answers |= held(correlation(wide, ranks=True), KINDS[1], f"{KINDS[1]} {rho:g}", truth, wide)
        if owners > 1 and rho and law != "category":
            own = correlation(wide, ranks=True, pooled=False).heterogeneity()
            answers[question(f"one {KINDS[1]}", design, LEVEL)] = own is not None and own <= LEVEL
    return answers


PURE_DRAWS = 1999
"""Simulated nulls here; studies have 9999."""


def tables(rng: np.random.Generator, owners: Sequence[Floats], epsilon: float, cells: int) -> float:
    """Return the p-value of covariances of places in noisy tables of equal cells, within owners."""
    total, variance, places = 0.0, 0.0, np.arange(cells) - (cells - 1) / 2
    for values in owners:
        codes = np.minimum(((values + 1) / 2 * cells).astype(int), cells - 1)
        counts = np.bincount(codes[:, 0] * cells + codes[:, 1], minlength=cells**2).reshape(cells, cells)
        noisy, scale = counts + rng.laplace(0, 2 / epsilon, counts.shape), 2 / epsilon
        size, sums = len(values), [places @ noisy.sum(axis=1), places @ noisy.sum(axis=0)]
        total += float(places @ noisy @ places - sums[0] * sums[1] / size)
        squares = [places**2 @ noisy.sum(axis=1), places**2 @ noisy.sum(axis=0)]
        spreads = [max(square - own**2 / size, 1.0) for square, own in zip(squares, sums, strict=True)]
        product = np.outer(places, places) - (sums[1] * places[:, None] + sums[0] * places) / size
        variance += spreads[0] * spreads[1] / size + 2 * scale**2 * float(np.sum(product**2))
    return float(chdtrc(1, total**2 / variance))


def powers_pure(name: str, cell: Sequence[Any], part: float, run: int) -> Answers:
    """Test one study by every method; ``part`` times the correlation is there."""
    rng, null = seeds(name, run)
    owners, n, epsilon, rho, law = cell
    rows = [rows_of(rng, n, law, off, part * rho) for off in offsets(owners, 1.0)]
    numeric = law != "category"
    blocks = blocks_of(rng, rows, epsilon, numeric, pure=True)
    exact = np.array([pearsonr(rankdata(v[:, 0]), rankdata(v[:, 1])).statistic for v in rows])
    pvalues = {
        "association, pure": independent(blocks, null, PURE_DRAWS).pvalue,
        "association, δ = 1e-5": independent(blocks_of(rng, rows, epsilon, numeric)).pvalue,
        "table of halves": tables(rng, rows, epsilon, 2),
        "table of quarters": tables(rng, rows, epsilon, 4),
        "randomised response": responses(rng, rows, epsilon),
        "within, not private": fisher(exact, np.full(owners, float(n))),
    }
    answers: dict[str, float] = {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}
    wide = [own.widened(laplace_widening(LEVEL)) for own in blocks]
    found = estimated(correlation(wide, ranks=True), LEVEL)
    if found.lower is not None and found.upper is not None:
        truth = truths(law, 1.0, part * rho, owners, plan_for(epsilon, True, True).histograms(n).bins)[
            KINDS[1]
        ]
        answers |= {"half": (found.upper - found.lower) / 2, "held": found.lower <= truth <= found.upper}
    return answers


def fisher(correlations: Floats, sizes: Floats) -> float:
    """Return the p-value of a meta-analysis of correlations by Fisher's z."""
    z, weights = np.arctanh(np.clip(correlations, -0.999, 0.999)), sizes - 3
    return float(2 * ndtr(-abs(np.sum(weights * z)) / np.sqrt(np.sum(weights))))


def from_moments(sums: Floats) -> Floats:
    """Return correlations of sums (k, 6): units, both columns, both squares, products."""
    n, a, b, aa, bb, ab = np.maximum(sums.T, [[2.0], [-np.inf], [-np.inf], [1e-3], [1e-3], [-np.inf]])
    spreads = [np.maximum(square - column**2 / n, 1e-3) for square, column in ((aa, a), (bb, b))]
    return np.asarray((ab - a * b / n) / np.sqrt(spreads[0] * spreads[1]))


def responses(rng: np.random.Generator, owners: Sequence[Floats], epsilon: float) -> float:
    """Return the p-value of the covariances of randomised answers, added up over owners."""
    truthful, total, variance = 1 / (1 + np.exp(-epsilon / 2)), 0.0, 0.0
    for values in owners:
        told = np.where(rng.random(values.shape) < truthful, values > 0, values <= 0).astype(float)
        away = told - told.mean(axis=0)
        total += float(away[:, 0] @ away[:, 1])
        variance += len(values) * float(np.prod(told.var(axis=0)))
    return float(chdtrc(1, total**2 / max(variance, 1e-9)))


def powers(name: str, cell: Sequence[float], shift: float, part: float, run: int) -> Answers:
    """Test one study by every method; ``part`` times the correlation is there."""
    rng, _ = seeds(name, run)
    owners, n, epsilon, rho = cell
    rows = [rows_of(rng, int(n), "normal", off, part * rho) for off in offsets(int(owners), shift)]
    blocks = blocks_of(rng, rows, epsilon, numeric=True)
    exact = np.array(
        [[len(v), *v.sum(axis=0), *(v**2).sum(axis=0), v[:, 0] @ v[:, 1]] for v in rows], dtype=float
    )
    together, sizes = np.concatenate(rows), exact[:, 0]
    # Replacing a unit moves sums by 2, squares by 1, products by 2: 8 in L1.
    noisy = exact + rng.laplace(0, 8 / epsilon, exact.shape) * [0, 1, 1, 1, 1, 1]
    pvalues = {
        METHODS[0]: independent(blocks).pvalue,
        METHODS[1]: float(pearsonr(together[:, 0], together[:, 1]).pvalue),
        METHODS[2]: fisher(from_moments(exact), sizes),
        METHODS[3]: fisher(from_moments(noisy), sizes),
        METHODS[4]: responses(rng, rows, epsilon),
    }
    answers: dict[str, float] = {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}
    bins = plan_for(epsilon, True).histograms(int(n)).bins
    truth_of = truths("normal", shift, part * rho, int(owners), bins)
    for kind, truth in truth_of.items():
        found = estimated(correlation(blocks, ranks=kind == KINDS[1]), LEVEL)
        if found.lower is not None and found.upper is not None:
            answers[f"{kind} half"] = (found.upper - found.lower) / 2
            answers[kind] = bool(found.lower <= truth <= found.upper)
    return answers


def cells() -> list[Cell]:
    """Return all cells."""
    found = cells_of("check {} owners, {}", RUNS, checked, (1, 2, 4, 10), DESIGNS, seeded=True)
    found += cells_of("fresh {} owners, {}", RUNS, checked, (1, 3, 6), FRESH, seeded=True)
    found += cells_of(
        "levels {0[0][0]} and {0[0][1]}, {0[1]}, {0[2]}, {0[3]:g}; n={0[4]}, ε={0[5]:g}, pure {0[6]}",
        RUNS,
        levels_checked,
        LEVELS,
        seeded=True,
    )
    found += cells_of(
        "pure-check {} owners, {}", PURE_RUNS, checked_pure, (1, 4), DESIGNS | FRESH, seeded=True
    )
    found += cells_of(
        "pure-power {0[0]} x {0[1]}, ε={0[2]:g}, {0[4]}, correlation {0[3]}, times {1:g}",
        POWER_RUNS,
        powers_pure,
        PURE_POWERS,
        (0.0, 1.0),
        seeded=True,
    )
    return found + cells_of(
        "power {0[0]} x {0[1]}, ε={0[2]:g}, correlation {0[3]}, shift {1:g}, times {2:g}",
        POWER_RUNS,
        powers,
        POWERS,
        (0.0, 1.0),
        (0.0, 1.0),
        seeded=True,
    )


def statement(counts: Counts, group: str) -> str:
    """Say which level and which coverage of a group of cells is the worst."""
    answered = [(cell, q) for cell, q in counts.answered if cell.startswith(group)]
    asked = [one for one in answered if one[1].startswith("test | ")]
    tail, cell = min(((counts.tail(*one, LEVEL), one[0]) for one in asked), default=(1.0, ""))
    highest = max((counts.rate(*one) or 0.0 for one in asked), default=0.0)
    covering = [f"{kind} {rho:g}" for kind in KINDS for rho in (0.0, STRONG)]
    rates = [(counts.rate(c, q) or 0.0, q, c) for c, q in answered if q in covering]
    common = max((counts.rate(c, q) or 0.0 for c, q in answered if q.startswith("one ")), default=0.0)
    lowest = min(rates, default=(0.0, "", ""))
    return (
        f"Of {len(asked)} levels of the test the highest is {highest:.3f}; the one furthest above "
        f"{LEVEL:g} ({cell})\nwould be as large with probability {tail:.2g} were the level exact; times "
        f"{len(asked)}: {min(1.0, tail * len(asked)):.2g}. "
        f"Of {len(rates)} coverages of .95 "
        f"the lowest is\n{lowest[0]:.3f} ({lowest[1]}, {lowest[2].removeprefix(group)}). "
        f"Heterogeneity is rejected at most {common:.3f} of the time.\n"
    )


def level_row(counts: Counts, cell: str) -> dict[str, str]:
    """Write the row of numbers of few levels."""
    return {
        "of cells": counts.shown(cell, "cells", ".3f"),
        "held": counts.shown(cell, "held"),
        "of exact ranks": counts.shown(cell, "exact", ".3f"),
        "exact held": counts.shown(cell, "exact held"),
        "half width": counts.shown(cell, "half"),
        "runs": str(counts.runs[cell]),
    }


def confirmed(counts: Counts, rows: dict[str, dict[str, str]]) -> str:
    """Write what fresh designs confirm."""
    runs = f"{counts.runs_of('fresh')} runs a cell. "
    return f"{runs}{statement(counts, 'fresh ')}\n{table(rows, 'design')}"


def parts(counts: Counts) -> dict[str, str]:
    """Write the page's tables."""
    checks, fresh, found, pure_checks, pure_powers = {}, {}, {}, {}, {}
    few: dict[str, dict[str, str]] = {}
    for cell in counts.runs:
        group, _, name = cell.partition(" ")
        if group == "levels":
            few[name] = level_row(counts, cell)
            continue
        if group == "power":
            found[name] = {m: counts.shown(cell, m, ".2f") for m in METHODS} | {
                f"{kind}: coverage, half width": ", ±".join(
                    (counts.shown(cell, kind), counts.shown(cell, f"{kind} half", ".2f"))
                )
                for kind in KINDS
            }
            continue
        if group == "pure-power":
            pure_powers[name] = {m: counts.shown(cell, m, ".2f") for m in PURE_METHODS} | {
                "rank correlation: coverage, half width": ", ±".join(
                    (counts.shown(cell, "held"), counts.shown(cell, "half", ".2f"))
                )
            }
            continue
        design = name.partition(", ")[2]
        row = {"rejected": counts.shown(cell, question("test", design, LEVEL))}
        for effect in KINDS[group == "pure-check" :]:
            for rho in (0.0, STRONG):
                said = counts.shown(cell, f"{effect} {rho:g} said", ".2f")
                row[f"{effect}, {rho:g}"] = f"{counts.shown(cell, f'{effect} {rho:g}')} ({said})"
            row[f"one {effect} rejected"] = counts.shown(cell, question(f"one {effect}", design, LEVEL))
        row["runs"] = str(counts.runs[cell])
        {"check": checks, "fresh": fresh, "pure-check": pure_checks}[group][name] = row
    return {
        "runs": counts.runs_of("check"),
        "power runs": counts.runs_of("power"),
        "statement": statement(counts, "check "),
        "checks": table(checks, "design") if checks else "",
        "fresh": confirmed(counts, fresh) if fresh else "",
        "powers": table(found, "design") if found else "",
        "levels": table(few, "values of each, bounds, shares, correlation of normal numbers") if few else "",
        "pure": f"{counts.runs_of('pure-check')} runs a cell. {statement(counts, 'pure-check ')}\n"
        + (table(pure_checks, "design") if pure_checks else ""),
        "pure powers": f"{counts.runs_of('pure-power')} runs a cell.\n\n"
        + (table(pure_powers, "design") if pure_powers else ""),
    }


BENCHMARKS = (Benchmark("association", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
