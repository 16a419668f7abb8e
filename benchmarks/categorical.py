"""Levels of homogeneity and independence_table on sparse and skewed tables.

    python -m benchmarks.categorical      # everything; continues where it stopped
    python -m benchmarks.categorical --runs 0.05 --cells search --folder /tmp/glance

Tables are multinomial, noise is simulated with NumPy; statistics and what the null distributions are drawn
from are the procedures' own functions.
``fitted`` is the same test with its null at the margins (or the pooled shares) at hand alone, which is what
was tested before: ``--cells search`` runs both on the same tables, ``--cells confirm`` the worst of them with
longer nulls, ``--cells cost`` the power that the other nulls cost.
``plain`` is the same test with the plain chi-square statistic, sum D_i over its scale, in the place of the
one that subtracts what is explained: a baseline, here and in a test alone.
``noisy 2 x 2`` are four noisy counts of yes and no, and the difference of shares that they show over its
standard error, with the noise in it or, ``as if exact``, without.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from scipy.special import chdtrc

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    grid,
    level_statement,
    main,
    named,
    question,
    seeds,
    table,
)
from tacit_protocol.features.cell_counts import compared_places
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, onto_simplex
from tacit_protocol.procedures.homogeneity import Weights, homogeneity_test, plausible_pools
from tacit_protocol.procedures.independence_table import (
    independence_test,
    plausible_margins,
    residuals,
)

RUNS, POWER_RUNS, REPLICATES = 1000, 300, 199
LEVELS = (0.05, 0.01)
EPSILONS = (0.3, 1.0, 3.0, 20.0)
OURS, PLAIN, FITTED = "ours", "plain", "fitted"

LISTED_POWER_RUNS = 400
NAIVE = ("noisy 2 x 2", "noisy 2 x 2, as if exact")
SEARCH_RUNS, CONFIRM_RUNS, COST_RUNS, CONFIRM_REPLICATES = 400, 3000, 300, 1999
SEARCH_EPSILONS = (0.03, 0.1, 0.3, 1.0, 5.0, 20.0)
CONFIRM_LEVELS = (0.05, 0.01, 0.001)

SIZES = {"100, 100": (100, 100), "50, 1000": (50, 1000), "2000, 2000": (2000, 2000), "5 x 300": (300,) * 5}
CELLS = (4, 30, 200, 1000)
LAWS = ("uniform", "Zipf", "tenth")
TABLES = ((2, 3), (5, 8), (16, 4), (30, 30))
UNITS = (100, 1000, 20_000)


def law(name: str, cells: int) -> Floats:
    """Equal shares; shares falling like i^-1.5; or all units in a tenth of the cells, equally."""
    if name == "uniform":
        return np.full(cells, 1 / cells)
    if name == "Zipf":
        weights = np.arange(1, cells + 1) ** -1.5
        return np.asarray(weights / weights.sum())
    used = max(2, cells // 10)
    return np.where(np.arange(cells) < used, 1 / used, 0.0)


def simulate(table: NoisyTable, probabilities: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Draw noisy shares (draws, k) of as many units, with the table's noise."""
    return table.draw(probabilities, rng, draws).shares


def draw(probabilities: Floats, units: int, noise: CellNoise, rng: np.random.Generator) -> NoisyTable:
    """Draw a noisy table."""
    counts = rng.multinomial(units, probabilities) + noise.draw(rng, probabilities.shape)
    return NoisyTable(counts, units, (noise,))


def pvalues_of(tables: list[NoisyTable], rng: np.random.Generator) -> tuple[float, float, float]:
    """Return the p-values of homogeneity, of its one null, and of the plain chi-square statistic."""
    weights, shares = weights_of(tables)
    probabilities = onto_simplex(weights.pooled(shares))
    drawn = np.stack([simulate(table, probabilities, rng, REPLICATES) for table in tables], axis=1)
    (plain, own), (plains, owns) = weights.cells(shares), weights.cells(drawn)
    others = plausible_pools(tables)[1:]
    found = [tail(own, owns), *(pool_tail(tables, pool, rng, REPLICATES) for pool in others)]
    return max(found), found[0], tail(plain, plains)


def weights_of(tables: list[NoisyTable]) -> tuple[Weights, Floats]:
    """Return homogeneity's weights, and the noisy shares, (J, k)."""
    variances = np.array([table.noise_variance for table in tables])
    units = np.array([float(table.units) for table in tables])
    return Weights.of(units, variances, len(tables[0].counts)), np.stack([t.counts / t.units for t in tables])


def pool_tail(tables: list[NoisyTable], pool: Floats, rng: np.random.Generator, replicates: int) -> float:
    """Return the p-value of homogeneity where the null's tables have these shares."""
    weights, shares = weights_of(tables)
    drawn = np.stack([simulate(table, pool, rng, replicates) for table in tables], axis=1)
    return tail(weights.cells(shares)[1], weights.cells(drawn)[1])


def homogeneity_pvalues(
    tables: list[NoisyTable], rng: np.random.Generator, replicates: int = REPLICATES
) -> tuple[float, float]:
    """Return the p-value of homogeneity, and the one of the null at the pooled shares alone."""
    pools = plausible_pools(tables)
    found = [pool_tail(tables, pool, rng, replicates) for pool in pools]
    return max(found), found[0]


def independence_pvalues(
    table: NoisyTable, shape: tuple[int, int], rng: np.random.Generator, replicates: int = REPLICATES
) -> tuple[float, float]:
    """Return the p-value of independence_table, and the one of the null at the fitted margins alone."""
    variance = table.noise_variance / table.units**2
    own, found = residuals(table.counts / table.units, shape, table.units, variance), []
    for fitted in plausible_margins(table, shape):
        shares = simulate(table, fitted, rng, replicates)
        drawn = residuals(shares, shape, table.units, variance).statistics
        found.append(float((1 + np.sum(drawn >= own.statistics)) / (replicates + 1)))
    return max(found), found[0]


def tail(own: Floats, drawn: Floats) -> float:
    """Return the p-value of cells' sums, (k,) against (replicates, k)."""
    return float((1 + np.sum(drawn.sum(axis=-1) >= own.sum())) / (len(drawn) + 1))


def judged(
    pvalues: tuple[float, ...], methods: tuple[str, ...], epsilon: float, levels: tuple[float, ...]
) -> dict[str, bool]:
    """Say what each method rejects, by question."""
    return {
        question(method, epsilon, level): pvalue <= level
        for method, pvalue in zip(methods, pvalues, strict=True)
        for level in levels
    }


def homogeneity_run(name: str, shares: str, cells: int, sizes: str, run: int) -> Answers:
    """Test owners of one distribution at every epsilon."""
    return _tested(name, [law(shares, cells)] * len(SIZES[sizes]), SIZES[sizes], LEVELS, run)


def power_run(name: str, cells: int, units: int, run: int) -> Answers:
    """Test two owners of whom the second has a quarter more and a quarter less in alternate cells."""
    one = law("uniform", cells)
    return _tested(name, [one, alternating(one, 0.25)], (units, units), (0.05,), run)


def alternating(shares: Floats, part: float) -> Floats:
    """Return shares with that part more and less in alternate cells."""
    other = shares * np.where(np.arange(len(shares)) % 2 == 0, 1 + part, 1 - part)
    return np.asarray(other / other.sum())


def _tested(
    name: str, shares: list[Floats], sizes: tuple[int, ...], levels: tuple[float, ...], run: int
) -> Answers:
    rng, seed = seeds(name, run)
    answers: dict[str, bool] = {}
    for epsilon, null in zip(EPSILONS, seed.spawn(len(EPSILONS)), strict=True):
        noise = CellNoise("laplace", 2 / epsilon)
        tables = [draw(p, units, noise, rng) for p, units in zip(shares, sizes, strict=True)]
        pvalues = pvalues_of(tables, np.random.default_rng(null))
        answers |= judged(pvalues, (OURS, FITTED, PLAIN), epsilon, levels)
    return answers


def independence_run(name: str, shares: str, shape: tuple[int, int], units: int, run: int) -> Answers:
    """Test independent columns at every epsilon."""
    rng, seed = seeds(name, run)
    probabilities = np.outer(law(shares, shape[0]), law(shares, shape[1])).ravel()
    answers: dict[str, bool] = {}
    for epsilon, null in zip(EPSILONS, seed.spawn(len(EPSILONS)), strict=True):
        drawn = draw(probabilities, units, CellNoise("laplace", 2 / epsilon), rng)
        pvalues = independence_pvalues(drawn, shape, np.random.default_rng(null))
        answers |= judged(pvalues, (OURS, FITTED), epsilon, LEVELS)
    return answers


def skewed(size: int, share: float, others: int) -> Floats:
    """Return a category of that share, and the rest evenly in so many others."""
    margin = np.zeros(size)
    margin[0], margin[1 : 1 + others] = share, (1 - share) / others
    return margin


SEARCHED = ((1.0, 1), (0.95, 1), (0.83, -1))
"""Largest share, and how many other categories hold the rest: -1 for all."""

RARE = ((2, 0.0), (4, 0.009), (12, 0.009), (40, 0.009), (12, 0.002))
"""Categories, and the share of each but the first."""


def searched_run(
    name: str, margin: Floats, sizes: tuple[int, ...], epsilons: tuple[float, ...], replicates: int, run: int
) -> Answers:
    """Test two columns of that margin (one size), or owners of that distribution, by both nulls."""
    rng, seed = seeds(name, run)
    answers: dict[str, bool] = {}
    for epsilon, null in zip(epsilons, seed.spawn(len(epsilons)), strict=True):
        noise, of_null = CellNoise("laplace", 2 / epsilon), np.random.default_rng(null)
        if len(sizes) == 1:
            drawn = draw(np.outer(margin, margin).ravel(), sizes[0], noise, rng)
            pvalues = independence_pvalues(drawn, (len(margin), len(margin)), of_null, replicates)
        else:
            tables = [draw(margin, units, noise, rng) for units in sizes]
            pvalues = homogeneity_pvalues(tables, of_null, replicates)
        answers |= judged(pvalues, (OURS, FITTED), epsilon, CONFIRM_LEVELS)
    return answers


def cost_run(
    name: str, shape: tuple[int, int], strength: float, units: int, epsilon: float, run: int
) -> Answers:
    """Test two dependent columns by both nulls."""
    rng, seed = seeds(name, run)
    drawn = draw(dependent(shape, strength), units, CellNoise("laplace", 2 / epsilon), rng)
    pvalues = independence_pvalues(drawn, shape, np.random.default_rng(seed), 999)
    return judged(pvalues, (OURS, FITTED), epsilon, LEVELS)


def homogeneity_cost_run(name: str, cells: int, part: float, units: int, epsilon: float, run: int) -> Answers:
    """Test two owners of whom the second has that part more and less in alternate cells, by both nulls."""
    rng, seed = seeds(name, run)
    one, noise = law("uniform", cells), CellNoise("laplace", 2 / epsilon)
    tables = [draw(shares, units, noise, rng) for shares in (one, alternating(one, part))]
    pvalues = homogeneity_pvalues(tables, np.random.default_rng(seed), 999)
    return judged(pvalues, (OURS, FITTED), epsilon, LEVELS)


def fourfold(counts: Floats, variance: float) -> dict[str, float]:
    """Return the p-values by the names of NAIVE, of noisy counts (2, 2): a difference of rows' shares of yes.

    Both are chi-square of one degree, the first with the noise's ``variance`` of a count beside that of yes.
    """
    rows = np.maximum(counts.sum(axis=1), 1.0)
    shares = np.clip(counts[:, 0] / rows, 0.0, 1.0)
    pooled = float(np.clip(counts[:, 0].sum() / rows.sum(), 1 / rows.sum(), 1 - 1 / rows.sum()))
    sampled = pooled * (1 - pooled) * np.sum(1 / rows)
    noise = variance * (pooled**2 + (1 - pooled) ** 2) * np.sum(1 / rows**2)
    square = float(np.diff(shares)[0] ** 2)
    return {
        name: float(chdtrc(1, square / spread))
        for name, spread in zip(NAIVE, (sampled + noise, sampled), strict=True)
    }


def given_listed_run(
    name: str, phi: float, unlisted: float, together: bool, units: int, epsilon: float, run: int
) -> Answers:
    """Test two columns of yes and no: given the listed values, by all cells, and by four cells alone.

    Of others half are unlisted and half missing, each in one column, or all are missing in both.
    """
    rng, seed = seeds(name, run)
    joint = np.zeros((4, 4))
    joint[:2, :2] = (1 - unlisted) * (0.25 + phi / 4 * np.array([[1, -1], [-1, 1]]))
    if together:
        joint[3, 3] = unlisted
    else:
        joint[2, :2] = joint[:2, 3] = unlisted / 4
    drawn = draw(joint.ravel(), units, CellNoise("laplace", 2 / epsilon), rng)
    listed = compared_places((4, 4), (2, 2))
    found = {
        OURS: independence_test(replace(drawn, compared=listed), (2, 2), REPLICATES, seed).pvalue,
        "all cells": independence_test(drawn, (4, 4), REPLICATES, seed).pvalue,
    }
    if not unlisted:
        four = replace(drawn, counts=drawn.counts[listed])
        found["four cells"] = independence_test(four, (2, 2), REPLICATES, seed).pvalue
    found |= fourfold(drawn.counts[listed].reshape(2, 2), drawn.noise_variance)
    return {question(method, epsilon, 0.05): pvalue <= 0.05 for method, pvalue in found.items()}


def given_listed_owners_run(
    name: str,
    shares: tuple[float, float],
    unlisted: tuple[float, float],
    units: int,
    epsilon: float,
    run: int,
) -> Answers:
    """Test two owners who have so many yes among the listed, and so many other values."""
    rng, seed = seeds(name, run)
    tables = []
    for share, other in zip(shares, unlisted, strict=True):
        law_of_one = np.array([(1 - other) * share, (1 - other) * (1 - share), other / 3, 2 * other / 3])
        tables.append(draw(law_of_one, units, CellNoise("laplace", 2 / epsilon), rng))
    found = {
        OURS: homogeneity_test(
            [replace(own, compared=np.arange(2)) for own in tables], REPLICATES, seed
        ).pvalue,
        "all cells": homogeneity_test(tables, REPLICATES, seed).pvalue,
    }
    found |= fourfold(np.stack([own.counts[:2] for own in tables]), tables[0].noise_variance)
    return {question(method, epsilon, 0.05): pvalue <= 0.05 for method, pvalue in found.items()}


GIVEN_LISTED = tuple(
    (0.0, unlisted, together, units, epsilon)
    for unlisted, together in product((0.1, 0.5, 0.9, 0.97), (False, True))
    for units, epsilon in ((300, 0.3), (1000, 1.0), (5000, 3.0))
)
"""Phi, share of values that are not listed, whether all are missing in both columns, units and epsilon."""

GIVEN_LISTED_OWNERS = tuple(
    ((share, share), unlisted, units, epsilon)
    for share, unlisted in product((0.5, 0.95), ((0.0, 0.5), (0.1, 0.5), (0.9, 0.1), (0.9, 0.9), (0.97, 0.5)))
    for units, epsilon in ((300, 0.3), (1000, 1.0), (5000, 3.0))
)
"""Shares of yes, shares of values that are not listed, units and epsilon."""

LISTED_CELL = "listed {} independence phi={:g} unlisted={:g} together={} n={} epsilon={:g}"
LISTED_OWNERS_CELL = "listed {} homogeneity yes={} unlisted={} n={} epsilon={:g}"

COSTS = (
    ((2, 3), 0.12, 500, 1.0),
    ((2, 3), 0.12, 500, 20.0),
    ((2, 3), 0.3, 500, 0.3),
    ((5, 8), 0.1, 300, 3.0),
    ((5, 8), 0.08, 1000, 1.0),
    ((5, 8), 0.3, 1000, 0.3),
)
"""Shape, strength of dependence, units and epsilon."""

HOMOGENEITY_COSTS = (
    (4, 0.12, 1000, 0.3),
    (30, 0.2, 1000, 1.0),
    (30, 0.25, 1000, 0.3),
    (200, 0.25, 1000, 3.0),
)
"""Cells, part more and less, units of each owner and epsilon."""


def dependent(shape: tuple[int, int], strength: float) -> Floats:
    """Return skewed margins joined by a mixture with a diagonal, (k,)."""
    margins = [law("Zipf", size) for size in shape]
    diagonal = np.zeros(shape)
    for place in range(max(shape)):
        diagonal[place % shape[0], place % shape[1]] += 1 / max(shape)
    joint: Floats = (1 - strength) * np.outer(*margins) + strength * diagonal
    return joint.ravel()


CONFIRMED: tuple[tuple[str, Floats, tuple[int, ...], float], ...] = (
    ("independence 4x4 0.95 in one, one", skewed(4, 0.95, 1), (100,), 0.1),
    ("independence 4x4 0.95 in one, one", skewed(4, 0.95, 1), (200,), 0.1),
    ("independence 4x4 1 in one", skewed(4, 1.0, 1), (1000,), 0.03),
    ("independence 2x2 1 in one", skewed(2, 1.0, 1), (200,), 0.1),
    ("independence 5x5 0.83 in one, all", skewed(5, 0.83, 4), (100,), 5.0),
    ("homogeneity k=12 rare=0.009", skewed(12, 0.901, 11), (200, 200), 5.0),
)
"""The worst that the search found, with margins, units and epsilon."""


def cells() -> list[Cell]:
    """Return everything that is run."""
    found: list[Cell] = []
    for k, shares in product(CELLS, LAWS):
        form = "level homogeneity {} k={} n={}"
        found += cells_of(form, RUNS, homogeneity_run, [shares], [k], SIZES, seeded=True)
    for shape, shares, n in product(TABLES, ("uniform", "Zipf"), UNITS):
        name = f"level independence {shares} {shape[0]}x{shape[1]} n={n}"
        found.append(Cell(name, RUNS, partial(independence_run, name, shares, shape, n)))
    found += cells_of("power k={} n={}", POWER_RUNS, power_run, (4, 30, 200), (1000, 10_000), seeded=True)
    for size, (share, others), n in product((2, 4, 10, 30), SEARCHED, (200, 1000)):
        name = f"search independence {size}x{size} {share:g} in one, {'all' if others < 0 else 'one'} n={n}"
        margin = skewed(size, share, size - 1 if others < 0 else others)
        run = partial(searched_run, name, margin, (n,), SEARCH_EPSILONS, REPLICATES)
        found.append(Cell(name, SEARCH_RUNS if size < 30 else SEARCH_RUNS // 10, run))
    for (size, share), pair in product(RARE, ((200, 200), (50, 1000))):
        name = f"search homogeneity k={size} rare={share:g} n={pair[0]}, {pair[1]}"
        margin = skewed(size, 1 - (size - 1) * share, size - 1)
        run = partial(searched_run, name, margin, pair, SEARCH_EPSILONS, REPLICATES)
        found.append(Cell(name, SEARCH_RUNS, run))
    for label, margin, of_owners, epsilon in CONFIRMED:
        name = f"confirm {label} n={', '.join(map(str, of_owners))} epsilon={epsilon:g}"
        run = partial(searched_run, name, margin, of_owners, (epsilon,), CONFIRM_REPLICATES)
        found.append(Cell(name, CONFIRM_RUNS, run))
    for kind, runs, given in (
        ("level", RUNS, GIVEN_LISTED),
        ("power", LISTED_POWER_RUNS, ((0.1, 0.0, False, 1000, 1.0), (0.1, 0.2, False, 1000, 1.0))),
    ):
        for one in given:
            name = LISTED_CELL.format(kind, *one)
            found.append(Cell(name, runs, partial(given_listed_run, name, *one)))
    for kind, runs, of_two in (
        ("level", RUNS, GIVEN_LISTED_OWNERS),
        (
            "power",
            LISTED_POWER_RUNS,
            (((0.5, 0.57), (0.0, 0.0), 1000, 1.0), ((0.5, 0.57), (0.2, 0.2), 1000, 1.0)),
        ),
    ):
        for two in of_two:
            name = LISTED_OWNERS_CELL.format(kind, *two)
            found.append(Cell(name, runs, partial(given_listed_owners_run, name, *two)))
    for shape, strength, n, epsilon in COSTS:
        name = f"cost independence Zipf {shape[0]}x{shape[1]} strength={strength:g} n={n} epsilon={epsilon:g}"
        found.append(Cell(name, COST_RUNS, partial(cost_run, name, shape, strength, n, epsilon)))
    for cost in HOMOGENEITY_COSTS:
        name = "cost homogeneity uniform k={} part={:g} n={} epsilon={:g}".format(*cost)
        found.append(Cell(name, COST_RUNS, partial(homogeneity_cost_run, name, *cost)))
    return found


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    both, levels = (FITTED, OURS), []
    for kind in ("homogeneity", "independence"):
        for level in LEVELS:
            tables = _levels(counts, f"level {kind}", both, level)
            levels.append(f"## {kind.capitalize()} at level {level:g}\n\n{tables}\n")
        if kind == "homogeneity":
            plain = _levels(counts, "level homogeneity", (PLAIN,), 0.05)
            levels.append(f"## Homogeneity at level 0.05, the plain statistic\n\n{plain}\n")
    return {
        **{f"{kind} runs": counts.runs_of(kind) for kind in ("level", "power", "search", "confirm", "cost")},
        "search": _both(counts, "search", LEVELS),
        "confirm": _both(counts, "confirm", CONFIRM_LEVELS),
        "cost": _both(counts, "cost", LEVELS),
        "listed runs": counts.runs_of("listed level"),
        "listed power runs": counts.runs_of("listed power"),
        "listed": _listed(counts, "listed level"),
        "listed power": _listed(counts, "listed power"),
        "statement of listed": level_statement(counts, "listed level", OURS),
        "statements of ours": "".join(level_statement(counts, kind, OURS) for kind in ("search", "confirm")),
        "statement of fitted": level_statement(counts, "level", FITTED),
        "levels": "".join(levels),
        "powers": _levels(counts, "power", both, 0.05),
    }


def _shown(
    counts: Counts, cell: str, methods: tuple[str, ...], epsilon: float, level: float, form: str
) -> str:
    rates = [counts.shown(cell, question(method, epsilon, level), form) for method in methods]
    return " ".join(rate for rate in rates if rate)


def _both(counts: Counts, kind: str, levels: tuple[float, ...]) -> str:
    """Write one of the tables that compare the nulls."""
    rows: dict[str, dict[str, str]] = {}
    form = ".4f" if kind == "confirm" else ".3f"
    for cell in (cell for cell in counts.runs if cell.startswith(kind)):
        for level in levels:
            for epsilon in SEARCH_EPSILONS + EPSILONS:
                if pair := _shown(counts, cell, (FITTED, OURS), epsilon, level, form):
                    column = f"{level:g}, ε={epsilon:g}" if kind == "search" else f"{level:g}"
                    rows.setdefault(cell.removeprefix(kind).strip(), {})[column] = pair
    return table(rows, "law") if rows else ""


def _listed(counts: Counts, kind: str) -> str:
    """Write the rates of one of the tables of listed values."""
    rows: dict[str, dict[str, str]] = {}
    for cell in (cell for cell in counts.runs if cell.startswith(kind)):
        epsilon = float(cell.rpartition("=")[2])
        for method in (OURS, *NAIVE, "four cells", "all cells"):
            if rate := counts.shown(cell, question(method, epsilon, 0.05), ".3f"):
                rows.setdefault(cell.removeprefix(kind).strip(), {})[method] = rate
    return table(rows, "law") if rows else ""


def _levels(counts: Counts, kind: str, methods: tuple[str, ...], level: float) -> str:
    rows = [(cell.removeprefix(kind).strip(), cell) for cell in counts.runs if cell.startswith(kind)]
    columns = named("ε={:g}", EPSILONS)
    return grid("law", rows, columns, lambda cell, e: _shown(counts, cell, methods, e, level, ".3f"))


BENCHMARKS = (Benchmark("categorical", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
