"""What the intervals of results cover, in default, skewed, rare, discrete and many-column cells; the worst.

    python -m benchmarks.coverage                       # everything; continues where it stopped
    python -m benchmarks.coverage --cells "Cramér" --runs 0.2 --folder /tmp/glance

Every run draws rows from a law whose value is known, and asks ``tacit.local`` with OpenDP's noise, or, of
Cramér's V, the statistic that the procedure calls (its test alone takes ten times as long). A database's
``held`` is the mean over its questions in a run. Survival, mutual independence, associations of 15 columns
and groups in 50 have simulated noise, and of the latter two no test is made.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.spatial.distance import cdist
from scipy.special import ndtri

import tacit.local
from benchmarks import dependence, strata
from benchmarks.association import cells_of_values, correlation_of, midranks
from benchmarks.database_errors import (
    BANDWIDTH,
    DEVIATIONS,
    NOISES,
    NULLS,
    POPULATIONS,
    compare_run,
    two_groups,
)
from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_for,
    cells_of,
    covered,
    main,
    table,
)
from benchmarks.problems import dependent, locations_of
from tacit.database.points import Estimate
from tacit.database.released import ReleasedDatabase
from tacit.errors import InputError
from tacit.in_process.runner import local_study, terms, two_sample_procedure, with_units
from tacit.in_process.samples import ArrayTable, Sample
from tacit.local.distance import CORRELATION_OWNERS
from tacit.local.synthetic import release_database
from tacit.planning.simulation import SimulatedNoise
from tacit.results import TwoSampleResult
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.features.cell_counts import compared_places
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.moments import sum_features
from tacit_protocol.features.private_cells import GRIDS
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.numerics.inference import Estimated, estimated
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.association.plan import RANKS, correlations
from tacit_protocol.procedures.association.plan import separate_plan as association_plan
from tacit_protocol.procedures.association.statistic import estimated as estimated_correlation
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.group_comparison.plan import separate_plan as groups_plan
from tacit_protocol.procedures.group_comparison.statistic import mean_difference
from tacit_protocol.procedures.homogeneity import differences
from tacit_protocol.procedures.independence_table import cramers_v
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.survival import curves

EPSILON, LEVEL, DELTA = 1.0, 0.05, 1e-5
RUNS, RUNS_DATABASE, RUNS_COUNTS, RUNS_SHARES, RUNS_OF_MANY = 100, 20, 200, 500, 1000
POPULATION = 400_000
"""Rows that stand for a law whose distance covariance has no formula: its error is far smaller."""
POPULATION_OF_SEVERAL = 3000
"""The same for several columns, whose distances are counted pair by pair, in each of so many samples:"""
SAMPLES_OF_SEVERAL = 10

SEVERAL = "3 x 2 columns"
KINDS = ("independent", "linear", "quadratic", "rare yes/no", "skewed")
SEED = 1
"""Public seed of the studies of several columns: it fixes the directions, and with them what is estimated."""


def columns_of_law(kind: str, units: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw two columns of numbers in [0, 1], (n,) each; of "3 x 2 columns" (n, 3) and (n, 2)."""
    if kind == SEVERAL:
        x = rng.random((units, 3))
        y = x[:, :2] + 0.2 * rng.standard_normal((units, 2))
        return x, np.clip(y, 0, 1)
    x, noise = rng.random(units), rng.standard_normal(units)
    if kind in ("linear", "quadratic"):
        return x, dependent(kind, x, noise)
    if kind == "rare yes/no":
        x = (rng.random(units) < 0.05).astype(float)
        return x, np.where(rng.random(units) < 0.3, x, (rng.random(units) < 0.05).astype(float))
    if kind == "skewed":
        x = np.clip(rng.lognormal(0, 1, units) / 20, 0, 1)
        return x, np.clip(x * rng.lognormal(0, 0.5, units), 0, 1)
    return x, rng.random(units)


@functools.cache
def whole_truth(kind: str) -> tuple[float, float]:
    """Return the law's squared distance covariance, over public diameters, and its distance correlation."""
    if kind != SEVERAL:
        x, y = columns_of_law(kind, POPULATION, np.random.default_rng(1))
        return distance_covariance_sqr(x, y), math.sqrt(max(0.0, distance_correlation_sqr(x, y)))
    found = []
    for number in range(SAMPLES_OF_SEVERAL):
        sides = columns_of_law(kind, POPULATION_OF_SEVERAL, np.random.default_rng(number))
        first, second = (_centred(side) for side in sides)
        found.append([np.mean(a * b) for a, b in ((first, second), (first, first), (second, second))])
    covariance, own, theirs = np.mean(found, axis=0)
    return float(covariance), math.sqrt(float(covariance / math.sqrt(own * theirs)))


def _centred(side: Floats) -> Floats:
    """Return the distances between rows (n, D), over their public diameter, doubly centred, (n, n)."""
    distances = cdist(side, side) / math.sqrt(side.shape[1])
    rows = distances.mean(axis=0)
    return np.asarray(distances - rows - rows[:, None] + rows.mean())


def _study(sides: tuple[int, int]) -> Study:
    """Return the study of so many columns a side that ``tacit.local`` plays with the seed ``SEED``."""
    groups = [[f"{letter}.{i + 1}" for i in range(n)] for letter, n in zip("xy", sides, strict=True)]
    names = tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for group in groups for name in group)
    return local_study(
        "distance_correlation",
        Domain(columns=names),
        CORRELATION_OWNERS,
        {},
        **terms(1.0, DELTA, LEVEL, SEED),
        columns=tuple(tuple(group) for group in groups),
    )


@functools.cache
def kept_truth(kind: str) -> tuple[float, float]:
    """Return both numbers in the frequencies, and directions, that the sketch keeps of the law."""
    values = [v.reshape(len(v), -1) for v in columns_of_law(kind, POPULATION, np.random.default_rng(1))]
    plan = DistanceCorrelation().plan(_study((values[0].shape[1], values[1].shape[1])))
    centred: list[Floats] = []
    for side, sketch in zip(values, plan.sketches, strict=True):
        found = np.asarray(sketch.features(locations_of(side)))
        centred.append(found - found.mean(axis=0))
    first, second = centred

    def squared(a: Floats, b: Floats) -> float:
        return float(np.sum((a.T @ b / POPULATION) ** 2))

    ratio = math.sqrt(squared(first, first) * squared(second, second))
    return 4 * squared(first, second), math.sqrt(squared(first, second) / ratio)


def _ask(kind: str, units: int, epsilon: float, number: int, **chosen: Any) -> tuple[Floats, Floats, Any]:
    """Draw rows and ask ``tacit.local`` about them."""
    x, y = columns_of_law(kind, units, np.random.default_rng([number, units]))
    asked = {"delta": DELTA, "bounds": (0, 1), "alpha": LEVEL, "seed": number} | chosen
    if "mode" not in asked:
        asked["method"] = "sketch"
    return x, y, tacit.local.distance_correlation(x, y, epsilon=epsilon, **asked)


def sketch_run(kind: str, units: int, epsilon: float, number: int) -> Answers:
    """Ask two owners for their distance covariance and correlation."""
    seed = SEED if kind == SEVERAL else number
    _, _, found = _ask(kind, units, epsilon, number, n_permutations=99, seed=seed)
    (kept, correlation), (whole, _) = kept_truth(kind), whole_truth(kind)
    lower, upper = found.covariance_interval or (math.nan, math.nan)
    answers = covered((lower, upper), kept, found.distance_covariance_sqr) | {
        "held, whole": lower <= whole <= upper,
        "held, whole, with truncation": lower <= whole <= upper + (found.truncation or 0.0),
    }
    return answers | _correlation(found.interval, correlation)


def _correlation(interval: tuple[float, float] | None, value: float) -> dict[str, float]:
    """Say whether a correlation's interval holds its value, where one is stated."""
    return {} if interval is None else {"held, correlation": covered(interval, value, 0.0)["held"]}


def curator_run(kind: str, units: int, epsilon: float, number: int) -> Answers:
    """Ask a curator for the distance covariance, the correlation, and that of the units held."""
    x, y, found = _ask(kind, units, epsilon, number, mode="curator", test=False)
    covariance, correlation = whole_truth(kind)
    answers = covered(found.covariance_interval, covariance, found.distance_covariance_sqr)
    if found.held_interval is not None and x.ndim == 1:
        own = math.sqrt(max(0.0, distance_correlation_sqr(x, y)))
        answers["held, of these units"] = covered(found.held_interval, own, 0.0)["held"]
    return answers | _correlation(found.interval, correlation)


@functools.lru_cache(maxsize=200)
def _screened(epsilon: float, number: int) -> dict[str, Answers]:
    """Screen a column of every kind against outcomes of its own; return each kind's own pair."""
    units = 20_000
    rng = np.random.default_rng([number, units])
    drawn = [columns_of_law(kind, units, rng) for kind in KINDS]
    x, y = (np.column_stack([pair[side] for pair in drawn]) for side in (0, 1))
    result = tacit.local.screening(
        x,
        y,
        epsilon=epsilon,
        delta=DELTA,
        matrix=True,
        alpha=LEVEL,
        bounds=(0, 1),
        n_permutations=99,
        seed=number,
    )
    if not isinstance(result, tacit.local.ScreeningResult):
        raise TypeError("a matrix comes with sketches")
    found: dict[str, Answers] = {}
    for pair in result.pairs:
        place = int(pair.column.split(".")[1]) - 1
        if pair.outcome == f"y.{place + 1}":
            kept, correlation = kept_truth(KINDS[place])
            answers = covered(pair.covariance_interval, kept, pair.distance_covariance_sqr)
            found[KINDS[place]] = answers | _correlation(pair.interval, correlation)
    return found


def screened_run(epsilon: float, kind: str, number: int) -> Answers:
    """Return the answers of one kind's pair."""
    return _screened(epsilon, number)[kind]


def published_run(method: Any, kind: str, epsilon: float, number: int) -> Answers:
    """Publish a receiver's covariance: its interval is for the same without the receiver's noise."""
    chosen = {"mode": "peer", "method": method, "n_permutations": 99, "publish": True}
    _, _, found = _ask(kind, 2000, epsilon, number, **chosen)
    own = found.finding.distance_covariance_sqr_unbiased
    if found.stated.interval is None or own is None:
        raise TypeError("this study publishes a covariance")
    return covered(found.stated.interval, own, own)


Columns = dict[str, npt.NDArray[Any]]

DATABASE_DELTA = 1e-6

HOWS = ("histograms", "uniform points", "random features", "exponential")
LAWS = ("two groups", "skewed", "rare", "whole numbers")
QUESTIONS = ("mean", "product", "probability", "histogram", "correlation")
UNIT_BOUNDS: dict[str, Any] = {"x": (0, 1), "y": (0, 1), "group": ["a", "b"]}
WHOLE_BOUNDS: dict[str, Any] = {"x": (0, 20), "y": (0, 20), "group": ["a", "b"]}


def database_rows(law: str, units: int, rng: np.random.Generator) -> Columns:
    """Draw rows of two dependent numeric columns and a group."""
    if law in ("two groups", "rare"):
        return two_groups(units, rng, 0.02 if law == "rare" else 0.4)
    group = rng.random(units) < 0.4
    if law == "skewed":
        # Most at one end, and a long tail.
        x = np.where(rng.random(units) < 0.6, 0.0, np.clip(rng.lognormal(0, 1, units) / 20, 0, 1))
        y = np.clip(x * rng.lognormal(0, 0.5, units), 0, 1)
    else:
        x = np.minimum(rng.geometric(0.3, units) - 1, 20).astype(np.int64)
        y = np.minimum(rng.binomial(20, 0.1, units) + x // 2, 20).astype(np.int64)
    return {"x": x, "y": y, "group": np.where(group, "a", "b").astype(object)}


@functools.lru_cache(maxsize=64)
def database_of(law: str, how: str, units: int, number: int) -> tuple[Columns, ReleasedDatabase]:
    """Draw rows and release them once."""
    rng = np.random.default_rng([number, units, LAWS.index(law)])
    columns = database_rows(law, units, rng)
    chosen: dict[str, Any] = {
        "histograms": {},
        "uniform points": {"n_points": 100, "placement": "uniform"},
        "random features": {"method": "random-features"},
        "exponential": {"method": "exponential", "candidate_rows": 5},
    }[how]
    database = release_database(
        pl.DataFrame(columns),
        epsilon=EPSILON,
        delta=0.0 if how == "exponential" else DATABASE_DELTA,
        bounds=WHOLE_BOUNDS if law == "whole numbers" else UNIT_BOUNDS,
        seed=number,
        **chosen,
    )
    return columns, database


def asked(
    question: str, columns: Columns, database: ReleasedDatabase, top: float
) -> Iterator[tuple[Estimate, float]]:
    """Ask what users ask; yields answers with the truth of these records. ``top`` bounds the columns."""
    x, y, group = columns["x"], columns["y"], columns["group"]
    if question == "mean":
        for name in ("x", "y"):
            yield database.mean(name), float(columns[name].mean())
    elif question == "product":
        yield database.expectation(lambda c: c["x"] * c["y"]), float(np.mean(x * y))
    elif question == "probability":
        for part in (0.1, 0.3, 0.5):
            cut = part * top
            yield database.probability_between("x", 0, cut), float(np.mean(x <= cut))
            yield (
                database.probability(lambda c, cut=cut: (c["x"] <= cut) & (c["y"] > cut / 2)),
                float(np.mean((x <= cut) & (y > cut / 2))),
            )
        yield database.probability_level("group", "a"), float(np.mean(group == "a"))
    elif question == "histogram":
        for start in np.arange(10) * top / 10:
            end = start + top / 10
            yield (
                database.probability(lambda c, a=start, b=end: (c["y"] >= a) & (c["y"] < b)),
                float(np.mean((y >= start) & (y < end))),
            )
    else:
        with suppress(InputError):
            yield database.correlation("x", "y"), float(np.corrcoef(x, y)[0, 1])


def database_run(how: str, law: str, units: int, question: str, number: int) -> Answers:
    """Ask a release one kind of question."""
    columns, database = database_of(law, how, units, number)
    found = list(asked(question, columns, database, 20.0 if law == "whole numbers" else 1.0))
    if not found:
        return {}
    off = [abs(float(estimate) - truth) for estimate, truth in found]
    errors = [estimate.error for estimate, _ in found]
    return {
        "held": float(np.mean([o <= DEVIATIONS * e + 1e-12 for o, e in zip(off, errors, strict=True)])),
        "width": float(np.mean(errors)) * 2 * DEVIATIONS,
        "estimate": float(np.mean(off)),
    }


def compared_run(name: str, units: int, null: str, number: int) -> Answers:
    """Compare releases of two populations: the interval of their squared MMD on the points."""
    found = compare_run(name, units, next(iter(NOISES)), number)
    return {"held": found[f"{null} | covers"], "width": found[f"{null} | width"], "estimate": 0.0}


WHOSE = {"one location": 1, "the ten strongest of forty, all together": 40}
"""Which are asked about, and how many locations hold together (Bonferroni)."""


def location_run(whose: str, kind: str, number: int) -> Answers:
    """Ask where two samples differ: the witness at each location named, one alone or all together.

    Of all, each is given the multiplier under which all forty locations hold together: those that are named
    were chosen as the strongest.
    """
    rng = np.random.default_rng([number, kind == "same"])
    first, second = rng.random((1000, 2)), rng.random((1000, 2))
    if kind == "shifted":
        second = np.clip(second + 0.1, 0, 1)
    chosen = {"features": "me", "n_features": WHOSE[whose], "bandwidth": BANDWIDTH}
    found = two_samples(first, second, EPSILON, **chosen)
    reach = float(-ndtri(LEVEL / (2 * WHOSE[whose])))
    held = []
    for place in found.locations:
        x1, x2 = (float(place.values[name] or 0.0) for name in ("x1", "x2"))
        held.append(abs(place.difference - _witness(kind, (x1, x2))) <= reach * place.standard_error)
    return {
        "held": float(all(held)),
        "width": 2 * reach * found.locations[0].standard_error,
        "estimate": found.locations[0].difference,
    }


def two_samples(x: Floats, y: Floats, epsilon: float, **chosen: Any) -> TwoSampleResult:
    """Ask ``tacit.local`` about two samples of two columns in [0, 1]."""
    asked = {"delta": DELTA, "bounds": (0, 1), "columns": ["x1", "x2"], "alpha": LEVEL, "seed": 1}
    found = tacit.local.kernel_two_sample(x, y, epsilon=epsilon, **asked, **chosen)
    assert isinstance(found, TwoSampleResult)
    return found


@functools.cache
def _two_samples(kind: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(1)
    first = rng.random((200_000, 2))
    second = np.clip(rng.random((200_000, 2)) + 0.1, 0, 1) if kind == "shifted" else first
    return first, second


@functools.lru_cache(maxsize=1000)
def _witness(kind: str, place: tuple[float, float]) -> float:
    """Return the witness of the two laws at a place."""
    kernel, at = ProductKernel("gaussian", BANDWIDTH), locations_of(np.array([place]))
    first, second = (float(kernel.gram(locations_of(rows), at).mean()) for rows in _two_samples(kind))
    return first - second


UNIFORM, SKEWED, RARE = "uniform", "skewed", "rare"


def margin(kind: str, size: int) -> Floats:
    """Return equal shares, shares that fall by .46 from level to level, or one level with the most of all."""
    if kind == UNIFORM:
        return np.full(size, 1 / size)
    if kind == RARE:
        return np.array([1 - 0.01 * (size - 1), *[0.01] * (size - 1)])
    shares = 0.6 ** (1.5 * np.arange(size))
    return np.asarray(shares / shares.sum())


def phi(joint: Floats) -> float:
    """Return phi^2 of a table without empty margins."""
    fitted = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(np.sum((joint - fitted) ** 2 / fitted))


def joined(shares: Floats, strength: float) -> Floats:
    """Mix independence with the increasing coupling of two such margins until Cramér's V is ``strength``."""
    ends = np.concatenate([[0], np.cumsum(shares)])
    low, high = np.maximum.outer(ends[:-1], ends[:-1]), np.minimum.outer(ends[1:], ends[1:])
    coupled, apart = np.maximum(high - low, 0), np.outer(shares, shares)
    inside, outside = 0.0, 1.0
    for _ in range(50):
        middle = (inside + outside) / 2
        weak = phi((1 - middle) * apart + middle * coupled) < strength**2 * (len(shares) - 1)
        inside, outside = (middle, outside) if weak else (inside, middle)
    return np.asarray((1 - inside) * apart + inside * coupled)


def cramer_run(
    size: int, kind: str, strength: float, units: int, noise: CellNoise, unlisted: float, number: int
) -> Answers:
    """Draw the default design's table, with cells for unlisted and missing values, and ask for V."""
    rng = np.random.default_rng([number, size, units])
    joint = np.zeros((size + 2, size + 2))
    shares = margin(kind, size)
    joint[:size, :size] = (1 - unlisted) * joined(shares, strength)
    joint[size, :size] += unlisted / 2 * shares
    joint[:size, size + 1] += unlisted / 2 * shares
    drawn = rng.multinomial(units, joint.ravel()) + noise.draw(rng, (joint.size,))
    drawn_table = NoisyTable(drawn, units, (noise,), compared_places(joint.shape, (size, size)))
    seed = np.random.SeedSequence([number, size, units])
    found = cramers_v(drawn_table, (size, size), LEVEL, seed)
    return covered((found.lower, found.upper), strength, found.value)


V_CELL = "Cramér's V, {0}x{0} {1}, V={2:g}, n={3}, {4}"
"""Levels, margins, V, units, and in words what else there is."""


def cramer_cells() -> list[Cell]:
    """List cells of Cramér's V: the issue's, and around them."""
    settings: list[tuple[int, str, float, int, str, CellNoise, float]] = []
    laplace = {epsilon: CellNoise("laplace", 2 / epsilon) for epsilon in (0.3, 1.0, 4.0)}
    for epsilon, noise in laplace.items():
        words = f"ε={epsilon:g}"
        settings += [(2, UNIFORM, v, 2000, words, noise, 0.0) for v in (0.0, 0.1, 0.5)]
        settings += [(4, kind, 0.3, 5000, words, noise, 0.0) for kind in (SKEWED, RARE)]
        settings += [(6, UNIFORM, v, n, words, noise, 0.0) for v, n in ((0.1, 500), (0.7, 1000))]
    one, gaussian = laplace[1.0], CellNoise("gaussian", math.sqrt(2) / gaussian_mu(1.0, DELTA))
    settings += [
        (2, UNIFORM, 0.5, 2000, "ε=1, 5 % unlisted", one, 0.05),
        (4, SKEWED, 0.3, 5000, "ε=1, 5 % unlisted", one, 0.05),
        (2, UNIFORM, 0.3, 200, "ε=1", one, 0.0),
        (4, UNIFORM, 0.7, 5000, "ε=1", one, 0.0),
        (2, UNIFORM, 0.5, 2000, "ε=1, Gaussian", gaussian, 0.0),
        (4, SKEWED, 0.3, 5000, "ε=1, Gaussian", gaussian, 0.0),
        (3, UNIFORM, 0.3, 5000, "ε=1, a pair of three columns", CellNoise("laplace", 2.0, 5), 0.0),
    ]
    return [Cell(V_CELL.format(*s), RUNS, functools.partial(cramer_run, *s[:4], *s[5:])) for s in settings]


SHARES: dict[str, tuple[Floats, Floats]] = {
    "default": (np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.3, 0.3, 0.25, 0.15])),
    SKEWED: (np.array([0.9, 0.06, 0.03, 0.01]), np.array([0.85, 0.09, 0.04, 0.02])),
    RARE: (np.array([0.989, 0.01, 0.001, 0.0]), np.array([0.97, 0.02, 0.005, 0.005])),
    "discrete, ten levels": (np.full(10, 0.1), np.array([0.15, 0.05] * 5)),
}
"""Shares of levels at the first owner, and at all others."""


def shares_run(
    kind: str, sizes: tuple[int, ...], epsilon: float, noise: str, number: int
) -> dict[str, float]:
    """Ask owners how their shares differ: of all differences, how many intervals hold, and whether all do."""
    rng = np.random.default_rng([number, *sizes])
    laws = [SHARES[kind][min(place, 1)] for place in range(len(sizes))]
    scale = 2 / epsilon if noise == "laplace" else math.sqrt(2) / gaussian_mu(epsilon, DELTA)
    # Cells of other and missing values are there, and empty.
    law = CellNoise("laplace" if noise == "laplace" else "gaussian", scale)
    tables = []
    for n, p in zip(sizes, laws, strict=True):
        held = rng.multinomial(n, np.append(p, [0.0, 0.0]))
        tables.append(NoisyTable(held + law.draw(rng, held.shape), n, (law,)))
    levels = np.arange(len(laws[0]))
    found, alone, together = differences(tables, levels, LEVEL, 1999, np.random.SeedSequence(number))
    true = np.array([one - other for one, other in combinations(laws, 2)])
    off = np.abs(found - true)
    return {
        "held": float(np.mean(off <= alone)),
        "held, all together": float(np.all(off <= together)),
        "width": float(np.mean(2 * alone)),
        "estimate": float(np.mean(np.abs(found))),
    }


def counts_run(levels: int, noise: str, number: int) -> Answers:
    """Count units of rare levels: the noisy counts' own interval, of all cells together."""
    rng = np.random.default_rng([number, levels])
    names = [f"level {place}" for place in range(levels)]
    rows = rng.choice(levels, 500, p=margin(SKEWED, levels))
    values = np.array(names, dtype=object)[rows]
    found = tacit.local.noisy_counts(
        values[:, None],
        epsilon=1.0,
        delta=DELTA if noise == "gaussian" else 0.0,
        noise=noise,
        bounds={"x1": names},
    )
    own = np.concatenate([np.bincount(rows, minlength=levels), [0, 0]])
    off = np.abs(found.table.ravel() - own)
    return {
        "held": bool(off.max() <= found.half_width_all),
        "width": 2 * found.half_width_all,
        "estimate": 0.0,
    }


def samples(kind: str, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw two samples of two columns in [0, 1], (n, 2) each; of "same" from one law."""
    first, second = (rng.random((size, 2)) for size in sizes)
    if kind == "shifted":
        second = np.clip(second + 0.1, 0, 1)
    if kind == RARE:
        # One value in 250 of the first sample, none of the second, where nothing else is.
        first, second = np.clip(first, 0, 0.2), np.clip(second, 0, 0.2)
        first[rng.random(sizes[0]) < 0.004] = 1.0
    if kind == SKEWED:
        first, second = first**8, second**6
    if kind == "discrete":
        first, second = np.rint(first), np.rint(np.clip(second + 0.05, 0, 1))
    return first, second


def mmd_study(features: str, curated: bool, epsilon: float) -> Study:
    """Return the study that ``tacit.local`` plays with these choices, whose public seed is 1."""
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("x1", "x2"))
    return local_study(
        two_sample_procedure("curator" if curated else "owners"),
        Domain(columns=columns),
        ("sample-1", "sample-2"),
        {} if curated else {"features": features},
        **terms(epsilon, DELTA, LEVEL, 1),
        curated=curated,
    )


@functools.cache
def mmd_truth(kind: str, features: str, curated: bool, epsilon: float) -> float:
    """Return the squared MMD of the law, in the study's own public features."""
    study = mmd_study(features, curated, epsilon)
    release = (CuratedTwoSample() if curated else KernelTwoSample()).plan(study).release
    drawn = samples(kind, (POPULATION, POPULATION), np.random.default_rng(1))
    means = []
    for values in drawn:
        table = ArrayTable.of(Sample({"x1": values[:, 0], "x2": values[:, 1]}), study.domain)
        found = sum_features(release.features, table, products=False)
        means.append(found.total / 2.0**found.bits / found.units)
    return float(np.sum((means[0] - means[1]) ** 2))


def mmd_run(
    kind: str, features: str, curated: bool, sizes: tuple[int, int], epsilon: float, number: int
) -> Answers:
    """Ask owners, or a curator, for the squared MMD of two samples."""
    chosen: dict[str, Any] = {"setting": "curator"} if curated else {"features": features}
    found = two_samples(*samples(kind, sizes, np.random.default_rng([number, *sizes])), epsilon, **chosen)
    assert found.interval is not None
    assert found.estimate is not None
    return covered(found.interval, mmd_truth(kind, features, curated, epsilon), found.estimate)


RARE_LIVES = ((1, 1000, 0.02), (4, 1000, 0.02), (10, 1000, 0.02), (1, 3000, 0.003), (4, 1000, 0.003))
"""Owners, units of each, and the hazard in each of INTERVALS."""
INTERVALS = 20


def survival_run(owners: int, units: int, hazard: float, number: int) -> Answers:
    """Ask for the curve of one of two groups alike, its band and its restricted mean."""
    rng, seed = np.random.default_rng([number, owners, units]), np.random.SeedSequence([number, 1])
    lives, _ = strata.lives_of(rng, owners, (units, EPSILON, INTERVALS, hazard, 0.0), 1.0)
    found = curves(lives, np.arange(INTERVALS + 1.0), LEVEL, seed)[0]
    truth = np.exp(-hazard * np.arange(1, INTERVALS + 1))
    value, lower, upper = found.restricted_mean
    mean = covered((lower, upper), float((1 - truth[-1]) / hazard), value)
    return {
        "held": float(np.mean((found.lower <= truth) & (truth <= found.upper))),
        "held, all together": bool(np.all((found.band_lower <= truth) & (truth <= found.band_upper))),
        "held, restricted mean": mean["held"],
        "width": float(np.mean(found.upper - found.lower)),
        "estimate": float(found.survival[-1]),
    }


MUTUAL = (("chain of 3", 1000, 1.0), ("chain of 5", 1000, 1.0), ("four with a common cause", 3000, 1.0))
"""Laws of benchmarks.dependence, units and epsilon."""


def mutual_run(law: str, units: int, epsilon: float, number: int) -> Answers:
    """Ask several owners for the distance correlations of their cells, each pair by itself."""
    rng = np.random.default_rng([number, units])
    sides = [{f"x{place}": column} for place, column in enumerate(dependence.rows(law, units, rng).T)]
    chosen = dependence.NEWLY_ASKED | {"permutations": 99}
    result = dependence.asked("mutual_independence", sides, epsilon, number, rng, chosen, apart=True)
    cuts = {name: own for release in result.source.releases.values() for name, own in release.cuts.items()}
    found = []
    for pair in result.pairs:
        places = [int(name[1:]) for name in (pair.first, pair.second)]
        own = [np.array(cuts[name]) / GRIDS[len(cuts[name]) + 1] for name in (pair.first, pair.second)]
        sizes = [len(ends) + 1 for ends in own]
        intervals = (pair.interval, pair.cramers_v_interval, pair.correlation_interval)
        held = dependence.held(law, places, own, sizes, intervals)
        if "distance correlation held" in held:
            found.append([held["distance correlation held"], held["distance correlation width"]])
    if not found:
        return {}
    rate, width = np.mean(found, axis=0)
    estimate = float(np.mean([pair.distance_correlation or 0.0 for pair in result.pairs]))
    return {"held": float(rate), "width": float(width), "estimate": estimate}


COLUMNS_ASSOCIATED, COLUMNS_COMPARED = 15, 50
CORRELATION, SHIFT = 0.5, 0.5
"""Of every two of 15 columns; and of the second group, in standard deviations, in every one of 50."""

MANY = ((1, 5000, 0.0), (1, 5000, DELTA), (4, 1000, DELTA), (1, 20_000, 0.0))
"""Owners, units of each, delta."""


def _alike(units: int, columns: int, rng: np.random.Generator) -> Floats:
    """Draw normal columns (n, D) every two of which have CORRELATION, within bounds of four deviations."""
    common, own = rng.standard_normal((units, 1)), rng.standard_normal((units, columns))
    return np.clip(0.5 + (math.sqrt(CORRELATION) * common + math.sqrt(1 - CORRELATION) * own) / 8, 0, 1)


@functools.cache
def rank_truth(bins: int) -> float:
    """Return the rank correlation of two such columns by a release's cells."""
    x, weights = _alike(POPULATION, 2, np.random.default_rng(1)), np.full(POPULATION, 1 / POPULATION)
    return correlation_of(*(midranks(cells_of_values(own, bins), weights) for own in x.T), weights)


def _released(
    procedure: str, sides: list[Any], delta: float, number: int, **chosen: Any
) -> tuple[Study, list[Release]]:
    """Return a study of these owners' columns and what they release, without a verdict."""
    named, study, tables = dependence.posed(procedure, sides, EPSILON, number, chosen, delta=delta)
    study, noise = with_units(study, tables), SimulatedNoise(np.random.default_rng([number, 2]))
    return study, [named.privatise(study, named.summarise(study, own), noise) for own in tables]


def _stated(found: list[Estimated], truth: float) -> Answers:
    """Return in which part of the intervals, where one is stated, the truth is; and in which part it is."""
    each = [
        covered((o.lower, o.upper), truth, o.value) for o in found if None not in (o.lower, o.upper, o.value)
    ]
    told = {name: float(np.mean([own[name] for own in each])) for name in each[0]} if each else {}
    return told | {"intervals stated": len(each) / len(found)}


def association_run(owners: int, units: int, delta: float, number: int) -> Answers:
    """Ask how 15 columns go together: the rank correlations of all pairs, each interval by itself."""
    rng = np.random.default_rng([number, owners, units])
    sides = [dependence.named_columns(_alike(units, COLUMNS_ASSOCIATED, rng)) for _ in range(owners)]
    study, releases = _released("association", sides, delta, number)
    plan, found = association_plan(study), []
    for own in plan.blocks(releases):
        effects = correlations(plan.of_intervals(own), pooled=True)[RANKS]
        found.append(estimated_correlation(effects, LEVEL))
    return _stated(found, rank_truth(plan.histograms(units).bins))


def comparison_run(owners: int, units: int, delta: float, number: int) -> Answers:
    """Ask how two groups differ in 50 columns: the difference of means in each, each interval by itself."""
    rng, sides = np.random.default_rng([number, owners, units]), list[Any]()
    for _ in range(owners):
        second = rng.random(units) < 0.5
        values = rng.standard_normal((units, COLUMNS_COMPARED)) + SHIFT * second[:, None]
        columns = dependence.named_columns(np.clip(0.5 + values / 8, 0, 1))
        sides.append({**columns, "g": np.where(second, "b", "a").astype(object)})
    study, releases = _released("group_comparison", sides, delta, number, group="g")
    plan = groups_plan(study)
    blocks = [plan.of_intervals(own) for own in plan.blocks(releases)]
    kind = "mean difference"
    return _stated([estimated(mean_difference(own, 1, 0), LEVEL, kind) for own in blocks], SHIFT / 8)


def cells() -> list[Cell]:
    """Return everything that is run."""
    both = ("laplace", "gaussian")
    found = cramer_cells() + cells_of("noisy counts, {} levels, {}", RUNS_COUNTS, counts_run, (3, 300), both)
    for kind in SHARES:
        for sizes, epsilon, noise in (
            ((1000, 1000), 1.0, "laplace"),
            ((300, 300), 0.5, "laplace"),
            ((200, 5000), 20.0, "laplace"),
            ((5000, 5000), 20.0, "laplace"),
            ((1000, 1000), 1.0, "gaussian"),
            ((1000, 1000, 500, 500), 1.0, "laplace"),
        ):
            name = f"shares, {kind}, n={', '.join(map(str, sizes))}, ε={epsilon:g}, {noise}"
            run = functools.partial(shares_run, kind, sizes, epsilon, noise)
            found.append(Cell(name, RUNS_SHARES, run))
    for words, features, curated in (("auto", "auto", False), ("me", "me", False), ("curator", "", True)):
        for kind in ("same", "shifted", SKEWED, RARE, "discrete"):
            for sizes, epsilon in (((1000, 1000), 1.0), ((200, 5000), 20.0)):
                name = f"squared MMD, {words}, {kind}, n={sizes[0]}, {sizes[1]}, ε={epsilon:g}"
                run = functools.partial(mmd_run, kind, features, curated, sizes, epsilon)
                found.append(Cell(name, RUNS, run))
    for kind, (n, e) in product((*KINDS, SEVERAL), ((5000, 1.0), (20_000, 20.0))):
        found += cells_of("distance, two owners, {}, n={}, ε={:g}", RUNS, sketch_run, [kind], [n], [e])
    for kind, (n, e) in product((*KINDS, SEVERAL), ((500, 1.0), (1500, 20.0))):
        found += cells_of("distance, curator, {}, n={}, ε={:g}", RUNS, curator_run, [kind], [n], [e])
    for e, kind in product((4.0, 20.0), KINDS):
        run = functools.partial(screened_run, e, kind)
        found.append(Cell(f"screened pair of 5 x 5, {kind}, n=20000, ε={e:g}", RUNS, run))
    methods, kinds = ("pnc", "pnc-disjoint"), ("independent", "linear", "rare yes/no")
    found += cells_of(
        "published covariance, {}, {}, ε={:g}", RUNS, published_run, methods, kinds, (1.0, 20.0)
    )
    for how in HOWS:
        sizes = (1000,) if how == "exponential" else (1000, 10_000)
        axes = ([how], LAWS, sizes, QUESTIONS)
        found += cells_of("database, {}, {}, n={}: {}", RUNS_DATABASE, database_run, *axes)
    axes = (POPULATIONS, (200, 20_000), NULLS)
    found += cells_of("databases compared, {}, n={}, null={}", RUNS, compared_run, *axes)
    found += cells_of("witness, {}, {}", RUNS, location_run, WHOSE, ("same", "shifted"))
    many: tuple[tuple[str, Callable[..., Answers], Sequence[Sequence[Any]]], ...] = (
        ("survival, rare events, {} owners, n={}, hazard {:g}", survival_run, RARE_LIVES),
        ("mutual independence, {}, n={}, ε={:g}", mutual_run, MUTUAL),
        ("association of 15 columns, {} owners, n={}, ε=1, δ={:g}", association_run, MANY),
        ("groups in 50 columns, {} owners, n={}, ε=1, δ={:g}", comparison_run, MANY),
    )
    for form, of_many, settings in many:
        found += cells_for(form, RUNS_OF_MANY, of_many, settings)
    return found


CLAIMED = (
    "held",
    "held, correlation",
    "held, of these units",
    "held, all together",
    "held, restricted mean",
)
"""What results claim to cover."""

BESIDE = ("held, whole", "held, whole, with truncation", "intervals stated")
"""What they do not claim, and the page shows."""


WORST_SHOWN = 10
"""Cells that the page lists first."""


def parts(counts: Counts) -> dict[str, str]:
    """Write the table of the page, and its worst cells."""
    rows: dict[str, dict[str, str]] = {}
    found: list[tuple[float, str]] = []
    for cell in [cell for cell in counts.runs if counts.rate(cell, "held") is not None]:
        rows[cell] = {"runs": str(counts.runs[cell]), "covered": counts.shown(cell, "held")}
        rows[cell] |= {"width": counts.shown(cell, "width", ".3g")}
        rows[cell] |= {"mean estimate": counts.shown(cell, "estimate", ".3g")}
        for asked in (*CLAIMED, *BESIDE):
            rate = counts.rate(cell, asked)
            if asked in CLAIMED and rate is not None:
                found.append((rate, cell + asked.removeprefix("held")))
            if asked != "held":
                rows[cell][asked.removeprefix("held, ")] = counts.shown(cell, asked)
    return {
        "rates": str(len(found)),
        "worst": "".join(f"- {cell}: **{rate:.3f}**\n" for rate, cell in sorted(found)[:WORST_SHOWN]),
        "table": table(rows, "cell"),
    }


BENCHMARKS = (Benchmark("coverage", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
