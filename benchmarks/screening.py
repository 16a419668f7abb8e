"""Screening: which columns that depend on an outcome are found, how many falsely, and what intervals cover.

    python -m benchmarks.screening      # everything; continues where it stopped
    python -m benchmarks.screening --runs 0.1 --cells null --folder /tmp/glance

Every run is the services' own procedure, with simulated noise of OpenDP's laws: OpenDP draws a sketch's two
million numbers in half a minute. Answers: in two rounds as it comes, the same without a delta, and the
sketches of a correlation matrix; beside them the naive way, in which each owner sends one randomised answer
of every unit, for the pair of columns that it is dealt to, above or below the middle, and an analyst runs
chi-squared. All have the same control of false discoveries on their p-values, and see the same rows.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    grid,
    main,
    named,
    question,
    table,
    with_square,
)
from benchmarks.problems import quantiles
from tacit.in_process.runner import local_study, run, terms
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.planning.simulation import SimulatedNoise
from tacit.results import AnsweredScreeningResult, ScreenedColumn
from tacit_protocol.features.private_cells import GRIDS
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.numerics.randomised_tables import cell_cramers_v, cell_rank_correlation
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.screening.verdict import Control, false_discovery_values

DELTA, LEVEL = 1e-5, 0.05
COLUMNS, EPSILONS = (5, 20, 80), (1.0, 2.0, 4.0, 8.0)
UNITS = (20_000, 100_000)
RUNS = 40
CONTROLS: tuple[Control, ...] = ("by", "bh")

GRID = 500
"""Quantiles of the outcome and of the factor, for the distance correlations of their joint law."""


def rows(columns: int, units: int, run: int) -> tuple[Floats, Floats, int]:
    """Draw columns (n, p) that share a factor, the outcome (n,), and how many of the first depend on it.

    A fifth of the columns depends: by turns x = .8 y + .2 factor and x = .8 (2y - 1)^2 + .2 factor. The
    others are half factor, half noise.
    """
    rng = np.random.default_rng([columns, units, run])
    y, factor = rng.random(units), rng.random(units)
    x = 0.5 * factor[:, None] + 0.5 * rng.random((units, columns))
    dependent = columns // 5
    for index in range(dependent):
        x[:, index] = depending(y, factor, linear=index % 2 == 0)
    return x, y, dependent


def depending(y: Floats, factor: Floats, *, linear: bool) -> Floats:
    """Return a column that depends on the outcome, given the outcome and the factor, (n,) each."""
    return 0.8 * (y if linear else (2 * y - 1) ** 2) + 0.2 * factor


@functools.cache
def truth(linear: bool) -> tuple[float, float]:
    """Return a depending column's squared distance covariance and its distance correlation, to about 1e-5."""
    y, factor = quantiles(GRID)
    x = depending(y, factor, linear=linear)
    return distance_covariance_sqr(x, y, "biased"), math.sqrt(distance_correlation_sqr(x, y))


def _answers(name: str, pvalues: Floats, dependent: int) -> Answers:
    """Say which part of the dependent columns is found, and which part of those found is false."""
    found: dict[str, float] = {}
    for control in CONTROLS:
        reject = false_discovery_values(pvalues, control) <= LEVEL
        found[f"{name} {control} linear"] = float(reject[:dependent:2].mean())
        if dependent > 1:
            found[f"{name} {control} quadratic"] = float(reject[1:dependent:2].mean())
        found |= with_square(f"{name} {control} false", reject[dependent:].sum() / max(1, reject.sum()))
    return found


def _covered(pairs: list[ScreenedColumn], dependent: int) -> Answers:
    """Say which part of the intervals holds what it estimates; pairs are in the order of the columns.

    Of correlations, among the intervals that are stated.
    """
    true = [truth(index % 2 == 0) if index < dependent else (0.0, 0.0) for index in range(len(pairs))]
    found: dict[str, float] = {}
    for kind, chosen in (("dependent", slice(dependent)), ("independent", slice(dependent, None))):
        own = list(zip(pairs[chosen], true[chosen], strict=True))
        inside = [pair.covariance_interval[0] <= t[0] <= pair.covariance_interval[1] for pair, t in own]
        found |= with_square(f"covariance {kind}", float(np.mean(inside)))
        stated = [(pair.interval, t[1]) for pair, t in own if pair.interval is not None]
        found[f"stated {kind}"] = len(stated) / len(own)
        if stated:
            covers = [low <= value <= high for (low, high), value in stated]
            found |= with_square(f"correlation {kind}", float(np.mean(covers)))
    return found


def screened(
    x: Floats,
    y: Floats,
    epsilon: float,
    delta: float,
    number: int,
    noise: NoiseSource,
    chosen: Mapping[str, Any] | None = None,
) -> Any:
    """Screen one owner's columns (n, p) for the other's outcome (n,), with that noise."""
    held = {f"x.{place + 1}": column for place, column in enumerate(x.T)}, {"y": y}
    names = [*held[0], "y"]
    study = local_study(
        "screening",
        domain_of(dict.fromkeys(names, (0, 1)), names),
        ("columns-owner", "outcome-owner"),
        {"outcome": "outcome-owner"} | dict(chosen or {}),
        **terms(epsilon, delta, LEVEL, number),
        columns=[tuple(side) for side in held],
    )
    procedure = procedure_named(study.procedure)
    study = procedure.with_defaults(study)
    tables = [
        ArrayTable.of(Sample(side), study.domain_of(owner))
        for side, owner in zip(held, study.owners, strict=True)
    ]
    return run(procedure, study, tables, noise)


def simulated(*drawn: int) -> SimulatedNoise:
    """Return simulated noise of a run, drawn apart from its rows."""
    return SimulatedNoise(np.random.default_rng([*drawn, 1]))


def screen_run(columns: int, units: int, epsilon: float, run: int) -> Answers:
    """Screen all columns by sketches."""
    x, y, dependent = rows(columns, units, run)
    noise = simulated(columns, units, round(100 * epsilon), run)
    result = screened(x, y, epsilon, DELTA, run, noise, {"matrix": True})
    found = {pair.column: pair for pair in result.pairs}
    pairs = [found[f"x.{index + 1}"] for index in range(columns)]
    pvalues = np.array([pair.pvalue for pair in pairs])
    return {**_answers("joint", pvalues, dependent), **_covered(pairs, dependent)}


ASKED = (
    *((5, n, epsilon) for n, epsilon in ((1000, 1.0), (2000, 1.0), (5000, 0.5), (5000, 1.0), (20_000, 0.5))),
    *((20, n, epsilon) for n, epsilon in ((2000, 1.0), (5000, 1.0), (5000, 2.0))),
    *((20, 20_000, epsilon) for epsilon in (0.5, 1.0, 2.0)),
    *((80, n, epsilon) for n, epsilon in ((5000, 1.0), (20_000, 0.5), (20_000, 1.0), (20_000, 2.0))),
)
"""Columns, units and epsilon of what is asked by answers."""

ANSWERED_RUNS = 40

WAYS = ("two rounds", "two rounds, no δ", "one round, χ²", "sketch")

POPULATION = 200_000
"""Rows whose shares of cells stand for the population's."""


def answered_run(columns: int, units: int, epsilon: float, run: int) -> Answers:
    """Screen all columns in two rounds, by the naive way, and by sketches."""
    x, y, dependent = rows(columns, units, run)
    found: dict[str, float] = {}
    noise = simulated(columns, units, round(100 * epsilon), run)
    for way, delta in (("two rounds", DELTA), ("two rounds, no δ", 0.0), ("sketch", DELTA)):
        chosen = {"matrix": True} if way == "sketch" else {}
        result = screened(x, y, epsilon, delta, run, noise, chosen)
        pvalues = {pair.column: pair.pvalue for pair in result.ranking}
        own = np.array([pvalues[f"x.{index + 1}"] for index in range(columns)])
        found |= _answers(way, own, dependent)
        if isinstance(result, AnsweredScreeningResult):
            found |= _measured(result, columns, dependent)
    naive = answered_chi_squared(x, y, epsilon, np.random.default_rng([columns, units, run, 1]))
    return found | _answers("one round, χ²", naive, dependent)


def answered_chi_squared(x: Floats, y: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Return each column's p-value (p,) of chi-squared on two randomised answers of the units dealt to it."""
    # Loading scipy.stats takes half a second.
    from scipy.stats import chi2_contingency  # noqa: PLC0415

    units, columns = x.shape
    dealt = rng.permutation(units) % columns
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    answers = [
        np.where(rng.random(units) < truth, own, 1 - own)
        for own in ((x[np.arange(units), dealt] > 0.5).astype(int), (y > 0.5).astype(int))
    ]
    tables = [
        np.bincount(2 * answers[0][dealt == j] + answers[1][dealt == j], minlength=4) for j in range(columns)
    ]
    return np.array([chi2_contingency(own.reshape(2, 2) + 1e-9, correction=False).pvalue for own in tables])


@functools.cache
def _population() -> tuple[Floats, Floats]:
    """Return rows of a linear, a quadratic and an independent column (n, 3), and of the outcome (n,)."""
    x, y, _ = rows(10, POPULATION, 0)
    return x[:, :3], y


def _measured(result: AnsweredScreeningResult, columns: int, dependent: int) -> Answers:
    """Say which part of the intervals holds the measure of the population's cells."""
    x, y = _population()
    sent, counted = (result.source.releases[name].cuts for name in ("outcome-owner", "columns-owner"))
    (own,) = sent.values()
    held: dict[str, list[bool]] = {}
    places = {f"x.{index + 1}": index for index in range(columns)}
    for pair in result.pairs:
        place = places[pair.column]
        kind = place % 2 if place < dependent else 2
        cuts = [own, counted[pair.column]]
        codes = [
            np.searchsorted(np.array(each) / GRIDS[len(each) + 1], values, side="right")
            for each, values in zip(cuts, (y, x[:, kind]), strict=True)
        ]
        size = len(cuts[1]) + 1
        shares = np.bincount(codes[0] * size + codes[1], minlength=(len(own) + 1) * size) / len(y)
        joint = shares.reshape(-1, size)
        for name, interval, true in (
            ("Cramér's V", pair.cramers_v_interval, cell_cramers_v),
            ("rank correlation", pair.correlation_interval, cell_rank_correlation),
        ):
            if interval is not None and joint.sum(axis=0).min() > 0:
                words = f"{name} {'dependent' if kind < 2 else 'independent'}"
                held.setdefault(words, []).append(interval[0] <= true(joint) <= interval[1])
    return {
        name: value for words, own in held.items() for name, value in with_square(words, np.mean(own)).items()
    }


NULLS = (
    *(
        (5, n, epsilon, delta)
        for n in (100, 1000, 10_000)
        for epsilon in (0.3, 3.0)
        for delta in (0.0, DELTA)
    ),
    *((20, n, epsilon, delta) for n in (400, 4000) for epsilon in (0.3, 3.0) for delta in (0.0, DELTA)),
)
"""Columns, units, epsilon and delta where no column depends on the outcome."""

NULL_RUNS, NULL_PERMUTATIONS = 600, 399


def null_run(columns: int, units: int, epsilon: float, delta: float, number: int) -> Answers:
    """Screen columns that share a factor, skewed and tied ones among them, none of which depends."""
    rng = np.random.default_rng([columns, units, round(100 * epsilon), number])
    factor = rng.random(units)
    x = 0.5 * factor[:, None] + 0.5 * rng.random((units, columns))
    x[:, 1], x[:, 2] = x[:, 1] ** 6, np.where(x[:, 2] < 0.8, 0.0, x[:, 2])
    chosen = {"permutations": NULL_PERMUTATIONS}
    result = screened(x, rng.random(units) ** 3, epsilon, delta, number, SimulatedNoise(rng), chosen)
    pvalues = np.array([pair["pvalue"] for pair in result.verdict["pairs"]])
    found: dict[str, float] = {"any": float(result.reject)}
    for level in (0.05, 0.01):
        found |= with_square(question("pairs", epsilon, level), float(np.mean(pvalues <= level + 1e-12)))
    return found


def _name(columns: int, units: int, epsilon: float) -> str:
    return f"p={columns} n={units} ε={epsilon:g}"


def cells() -> list[Cell]:
    """List the cells: joint sketches, answers, and answers of independent columns."""
    found = cells_of("joint p={} n={} ε={:g}", RUNS, screen_run, COLUMNS, UNITS, EPSILONS)
    found += [
        Cell(f"answers {_name(*asked)}", ANSWERED_RUNS, functools.partial(answered_run, *asked))
        for asked in ASKED
    ]
    found += [Cell(_null_name(*asked), NULL_RUNS, functools.partial(null_run, *asked)) for asked in NULLS]
    return found


def _null_name(columns: int, units: int, epsilon: float, delta: float) -> str:
    return f"null {_name(columns, units, epsilon)} δ={delta:g}"


def _answered(counts: Counts) -> dict[str, str]:
    """Write the tables of answers."""
    power, false, levels = {}, {}, {}
    for asked in ASKED:
        cell = f"answers {_name(*asked)}"
        head = "{} columns, {}, {:g}".format(*asked)
        kinds = ("linear", "quadratic") if asked[0] > 5 else ("linear",)
        for kind in kinds:
            power[f"{kind}, {head}"] = {
                way: counts.shown(cell, f"{way} by {kind}", ".2f") for way in WAYS
            } | {"runs": str(counts.runs[cell])}
        false[head] = {way: counts.shown(cell, f"{way} by false", ".3f") for way in WAYS} | {
            f"{name}, {kind}": counts.shown(cell, f"{name} {kind}", ".3f")
            for name in ("Cramér's V", "rank correlation")
            for kind in ("dependent", "independent")
        }
    for columns, n, epsilon, delta in NULLS:
        cell = _null_name(columns, n, epsilon, delta)
        levels[f"{columns}, {n}, {epsilon:g}, {delta:g}"] = {
            "pairs at .05": counts.shown(cell, question("pairs", epsilon, 0.05), ".3f"),
            "pairs at .01": counts.shown(cell, question("pairs", epsilon, 0.01), ".3f"),
            "studies that find any": counts.shown(cell, "any", ".3f"),
            "runs": str(counts.runs[cell]),
        }
    return {
        "answers": table(power, "dependence, columns, units, ε"),
        "answers false": table(false, "columns, units, ε"),
        "answers level": table(levels, "columns, units, ε, δ"),
    }


def _rates(counts: Counts, method: str, control: str, what: str, units: int) -> str:
    return grid(
        f"n = {units}",
        named("{} columns", COLUMNS),
        named("ε={:g}", EPSILONS),
        lambda p, e: counts.shown(f"{method} {_name(p, units, e)}", f"{method} {control} {what}", ".2f"),
    )


def _mean(counts: Counts, row: tuple[int, int], asked: str) -> str:
    """Return a question's mean over every epsilon, and its standard error.

    Runs of one number have the same rows at every epsilon, so that errors are added as they stand.
    """
    names = [f"joint {_name(row[1], row[0], epsilon)}" for epsilon in EPSILONS]
    found = [(counts.spread(cell, asked), counts.answered.get((cell, asked), 0)) for cell in names]
    known = [(spread[0], spread[1] / math.sqrt(runs)) for spread, runs in found if spread is not None]
    return "{:.3f} ± {:.3f}".format(*np.mean(known, axis=0)) if known else ""


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    rows = [(f"n = {units}, {p} columns", (units, p)) for units in UNITS for p in COLUMNS]
    false = [("Benjamini and Yekutieli", "joint by false"), ("Benjamini and Hochberg", "joint bh false")]
    covered = [
        ("covariance, dependent columns", "covariance dependent"),
        ("independent", "covariance independent"),
        ("correlation, dependent columns", "correlation dependent"),
        ("independent ones", "correlation independent"),
    ]
    powers = []
    for units in UNITS:
        powers.append(f"## Power, n = {units}")
        for words, control, kind in (
            ("Linear dependence, Benjamini and Yekutieli (the default)", "by", "linear"),
            ("The same, Benjamini and Hochberg", "bh", "linear"),
            ("Quadratic dependence, Benjamini and Yekutieli", "by", "quadratic"),
        ):
            powers.append(f"{words}:\n\n{_rates(counts, 'joint', control, kind, units).rstrip()}")
    return {
        "runs": counts.runs_of("joint"),
        "false discoveries": grid("", rows, false, lambda row, asked: _mean(counts, row, asked)),
        "intervals": grid("", rows, covered, lambda row, asked: _mean(counts, row, asked)),
        "powers": "\n\n".join(powers),
        **_answered(counts),
    }


BENCHMARKS = (Benchmark("screening", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
