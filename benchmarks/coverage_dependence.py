"""Cells of coverage of distances: two owners', a curator's, screened pairs, and published covariances.

Part of ``python -m benchmarks.coverage``. Laws are of rows in [0, 1]; every run asks ``tacit.local``.
"""

import functools
import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

import tacit.local
from benchmarks.harness import Answers, Cell, covered
from benchmarks.problems import locations_of
from tacit.in_process.runner import local_study, seed_text
from tacit.local.distance import OWNERS
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.procedures.distance_correlation.release import plan_of

Floats = npt.NDArray[np.float64]

LEVEL, DELTA, RUNS = 0.05, 1e-5, 100
POPULATION = 400_000
"""Rows that stand for a law whose distance covariance has no formula: its error is far smaller."""
POPULATION_OF_SEVERAL = 3000
"""The same for several columns, whose distances are counted pair by pair, in each of so many samples:"""
SAMPLES_OF_SEVERAL = 10

SEVERAL = "3 x 2 columns"
KINDS = ("independent", "linear", "quadratic", "rare yes/no", "skewed")
SEED = 1
"""Public seed of the studies of several columns: it fixes the directions, and with them what is estimated."""


def law(kind: str, units: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw two columns of numbers in [0, 1], (n,) each; of "3 x 2 columns" (n, 3) and (n, 2)."""
    if kind == SEVERAL:
        x = rng.random((units, 3))
        y = x[:, :2] + 0.2 * rng.standard_normal((units, 2))
        return x, np.clip(y, 0, 1)
    x, noise = rng.random(units), rng.standard_normal(units)
    if kind == "linear":
        return x, np.clip(x + 0.17 * noise, 0, 1)
    if kind == "quadratic":
        return x, np.clip((2 * x - 1) ** 2 + 0.03 * noise, 0, 1)
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
        x, y = law(kind, POPULATION, np.random.default_rng(1))
        return distance_covariance_sqr(x, y), math.sqrt(max(0.0, distance_correlation_sqr(x, y)))
    found = []
    for number in range(SAMPLES_OF_SEVERAL):
        sides = law(kind, POPULATION_OF_SEVERAL, np.random.default_rng(number))
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
        OWNERS,
        {},
        epsilon=1.0,
        delta=DELTA,
        alpha=LEVEL,
        seed=seed_text(SEED),
        columns=tuple(tuple(group) for group in groups),
    )


@functools.cache
def kept_truth(kind: str) -> tuple[float, float]:
    """Return both numbers in the frequencies, and directions, that the sketch keeps of the law."""
    values = [v.reshape(len(v), -1) for v in law(kind, POPULATION, np.random.default_rng(1))]
    plan = plan_of(_study((values[0].shape[1], values[1].shape[1])))
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
    x, y = law(kind, units, np.random.default_rng([number, units]))
    asked = {"delta": DELTA, "bounds": (0, 1), "alpha": LEVEL, "seed": number} | chosen
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


def curated_run(kind: str, units: int, epsilon: float, number: int) -> Answers:
    """Ask a curator for the distance covariance, the correlation, and that of the units held."""
    x, y, found = _ask(kind, units, epsilon, number, mode="curator", test=False)
    covariance, correlation = whole_truth(kind)
    answers = covered(found.covariance_interval, covariance, found.distance_covariance_sqr)
    if found.held_interval is not None and x.ndim == 1:
        own = math.sqrt(max(0.0, distance_correlation_sqr(x, y)))
        answers["held, of these units"] = covered(found.held_interval, own, 0.0)["held"]
    return answers | _correlation(found.interval, correlation)


def screened_run(units: int, epsilon: float, number: int) -> dict[str, Answers]:
    """Screen a column of every kind against outcomes of its own; return each kind's own pair."""
    rng = np.random.default_rng([number, units])
    drawn = [law(kind, units, rng) for kind in KINDS]
    x, y = (np.column_stack([pair[side] for pair in drawn]) for side in (0, 1))
    result = tacit.local.screening(
        x, y, epsilon=epsilon, delta=DELTA, alpha=LEVEL, bounds=(0, 1), n_permutations=99, seed=number
    )
    found: dict[str, Answers] = {}
    for pair in result:
        place = int(pair.column.split(".")[1]) - 1
        if pair.outcome != f"y.{place + 1}":
            continue
        kept, correlation = kept_truth(KINDS[place])
        answers = covered(pair.covariance_interval, kept, pair.distance_covariance_sqr)
        found[KINDS[place]] = answers | _correlation(pair.interval, correlation)
    return found


_screened = functools.lru_cache(maxsize=200)(screened_run)


def published_run(method: Any, kind: str, epsilon: float, number: int) -> Answers:
    """Publish a receiver's covariance: its interval is for the same without the receiver's noise."""
    chosen = {"mode": "peer", "method": method, "n_permutations": 99, "publish": True}
    _, _, found = _ask(kind, 2000, epsilon, number, **chosen)
    own = found.finding.distance_covariance_sqr_unbiased
    if found.stated.interval is None or own is None:
        raise TypeError("this study publishes a covariance")
    return covered(found.stated.interval, own, own)


def _one_screened(epsilon: float, kind: str, number: int) -> Answers:
    return _screened(20_000, epsilon, number)[kind]


def cells() -> list[Cell]:
    """List cells of every distance that a result states an interval for."""
    kinds = (*KINDS, SEVERAL)
    settings: list[tuple[str, Any, tuple[Any, ...]]] = [
        (f"distance, two owners, {kind}, n={n}, ε={e:g}", sketch_run, (kind, n, e))
        for kind, (n, e) in product(kinds, ((5000, 1.0), (20_000, 20.0)))
    ]
    settings += [
        (f"distance, curator, {kind}, n={n}, ε={e:g}", curated_run, (kind, n, e))
        for kind, (n, e) in product(kinds, ((500, 1.0), (1500, 20.0)))
    ]
    settings += [
        (f"screened pair of 5 x 5, {kind}, n=20000, ε={e:g}", _one_screened, (e, kind))
        for e, kind in product((4.0, 20.0), KINDS)
    ]
    settings += [
        (f"published covariance, {method}, {kind}, ε={e:g}", published_run, (method, kind, e))
        for method, kind, e in product(
            ("pnc", "pnc-disjoint"), ("independent", "linear", "rare yes/no"), (1.0, 20.0)
        )
    ]
    return [Cell(name, RUNS, functools.partial(run, *chosen)) for name, run, chosen in settings]
