"""Cells of coverage of released databases' answers, of tests between them, and of named locations.

Part of ``python -m benchmarks.coverage``. A cell's ``held`` is the mean over its questions in a run.
"""

import functools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import ndtri

import tacit.local
from benchmarks.database_comparison import NOISES, NULLS, POPULATIONS
from benchmarks.database_comparison import run as compared
from benchmarks.harness import Answers, Cell
from benchmarks.problems import locations_of
from tacit.database.points import Estimate
from tacit.database.released import ReleasedDatabase
from tacit.errors import InputError
from tacit.local.database import release_database
from tacit.results import TwoSampleResult
from tacit_protocol.features.kernels import ProductKernel

Floats = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]

EPSILON, DELTA, LEVEL = 1.0, 1e-6, 0.05
DEVIATIONS = 1.96
RUNS, RUNS_COMPARED, RUNS_LOCATIONS = 20, 100, 100

HOWS = ("histograms", "uniform points", "random features", "exponential")
LAWS = ("two groups", "skewed", "rare", "whole numbers")
QUESTIONS = ("mean", "product", "probability", "histogram", "correlation")
BOUNDS: dict[str, Any] = {"x": (0, 1), "y": (0, 1), "group": ["a", "b"]}
WHOLE_BOUNDS: dict[str, Any] = {"x": (0, 20), "y": (0, 20), "group": ["a", "b"]}


def database_rows(law: str, units: int, rng: np.random.Generator) -> Columns:
    """Draw rows of two dependent numeric columns and a group."""
    group = rng.random(units) < (0.02 if law == "rare" else 0.4)
    if law == "skewed":
        # Most at one end, and a long tail.
        x = np.where(rng.random(units) < 0.6, 0.0, np.clip(rng.lognormal(0, 1, units) / 20, 0, 1))
        y = np.clip(x * rng.lognormal(0, 0.5, units), 0, 1)
    elif law == "whole numbers":
        x = np.minimum(rng.geometric(0.3, units) - 1, 20).astype(np.int64)
        y = np.minimum(rng.binomial(20, 0.1, units) + x // 2, 20).astype(np.int64)
    else:
        x = np.clip(np.where(group, rng.normal(0.35, 0.1, units), rng.normal(0.6, 0.15, units)), 0, 1)
        y = np.clip(0.7 * x + rng.normal(0.1, 0.1, units), 0, 1)
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
        delta=0.0 if how == "exponential" else DELTA,
        bounds=WHOLE_BOUNDS if law == "whole numbers" else BOUNDS,
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
        try:
            yield database.correlation("x", "y"), float(np.corrcoef(x, y)[0, 1])
        except InputError:
            return


def database_run(law: str, how: str, units: int, question: str, number: int) -> Answers:
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
    found = compared(name, units, next(iter(NOISES)), number)
    return {"held": found[f"{null} | covers"], "width": found[f"{null} | width"], "estimate": 0.0}


WHOSE = {"one": "one location", "all": "the ten strongest of forty, all together"}


def location_run(kind: Literal["same", "shifted"], asked_of: Literal["one", "all"], number: int) -> Answers:
    """Ask where two samples differ: the witness at each location named, one alone or all together.

    Of all, each is given the multiplier under which all forty locations hold together (Bonferroni): those
    that are named were chosen as the strongest.
    """
    rng = np.random.default_rng([number, kind == "same"])
    first, second = rng.random((1000, 2)), rng.random((1000, 2))
    if kind == "shifted":
        second = np.clip(second + 0.1, 0, 1)
    bandwidth = 0.3
    found = tacit.local.kernel_two_sample(
        first,
        second,
        epsilon=EPSILON,
        delta=1e-5,
        bounds=(0, 1),
        columns=["x1", "x2"],
        features="me",
        n_features=1 if asked_of == "one" else 40,
        bandwidth=bandwidth,
        alpha=LEVEL,
        seed=1,
    )
    if not isinstance(found, TwoSampleResult) or not found.locations:
        raise TypeError("this study names no locations")
    count = 1 if asked_of == "one" else 40
    reach = float(-ndtri(LEVEL / (2 * count)))
    held = []
    for place in found.locations:
        x1, x2 = (float(place.values[name] or 0.0) for name in ("x1", "x2"))
        off = abs(place.difference - _witness(kind, (x1, x2), bandwidth))
        held.append(off <= reach * place.standard_error)
    return {
        "held": float(all(held)),
        "width": 2 * reach * found.locations[0].standard_error,
        "estimate": found.locations[0].difference,
    }


@functools.cache
def _population(kind: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(1)
    first = rng.random((200_000, 2))
    second = np.clip(rng.random((200_000, 2)) + 0.1, 0, 1) if kind == "shifted" else first
    return first, second


@functools.lru_cache(maxsize=1000)
def _witness(kind: str, place: tuple[float, float], bandwidth: float) -> float:
    """Return the witness of the two laws at a place."""
    kernel, at = ProductKernel("gaussian", bandwidth), locations_of(np.array([place]))
    first, second = (float(kernel.gram(locations_of(rows), at).mean()) for rows in _population(kind))
    return first - second


def cells() -> list[Cell]:
    """List cells of databases, their comparisons, and locations."""
    found = [
        Cell(
            f"database, {how}, {law}, n={units}: {question}",
            RUNS,
            functools.partial(database_run, law, how, units, question),
        )
        for how in HOWS
        for law in LAWS
        for units in ((1000,) if how == "exponential" else (1000, 10_000))
        for question in QUESTIONS
    ]
    found += [
        Cell(
            f"databases compared, {name}, n={units}, null={null}",
            RUNS_COMPARED,
            functools.partial(compared_run, name, units, null),
        )
        for name in POPULATIONS
        for units in (200, 20_000)
        for null in NULLS
    ]
    kinds: tuple[Literal["same", "shifted"], ...] = ("same", "shifted")
    whose: tuple[Literal["one", "all"], ...] = ("one", "all")
    found += [
        Cell(
            f"witness, {WHOSE[asked_of]}, {kind}",
            RUNS_LOCATIONS,
            functools.partial(location_run, kind, asked_of),
        )
        for asked_of in whose
        for kind in kinds
    ]
    return found
