"""Do plans keep their word? Planned power against studies with production's noise, for every procedure.

    python -m benchmarks.planning      # everything; continues where it stopped
    python -m benchmarks.planning --runs 0.1 --folder /tmp/glance

Planned: whole simulated studies with NumPy's noise, as `tacit plan` and the tester's page run them. Real: the
same studies through the same procedures with OpenDP's noise, on samples that plans have not seen. Run r of
both draws one study.

Least: what planners of the fewest units, or of the smallest budget, claim of the place that they find,
against the power there by many more simulations than any plan has. Run r is the plan with seed r.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import chdtrc

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    extent,
    main,
    table,
    with_square,
)
from tacit.local import plan_error, plan_power, plan_smallest
from tacit.planning.questions import population_of
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, paninski
from tacit_protocol.procedures.homogeneity import Weights
from tacit_protocol.procedures.homogeneity import homogeneity_null as pooled_null
from tacit_protocol.procedures.identity.simulate import PlannedIdentity
from tacit_protocol.procedures.independence_table import independence_null as independent_null
from tacit_protocol.procedures.independence_table import residuals

RUNS = 200

PLANS = 30
"""Plans of each planner, which differ in their seeds."""

ASKED, SHORT = 0.8, 0.02
"""Power that plans are asked for, and by how much one in ten may fall short."""

AGE = {"age": (0, 120)}
MIXED = {"age": (0, 120), "weight": (0, 200), "sex": ["F", "M"]}

SETTINGS: dict[str, dict[str, Any]] = {
    "kernel_two_sample, one column": {"n": 1000, "bounds": AGE, "effect": 0.25},
    "kernel_two_sample, three columns": {"n": [2000, 1000], "bounds": MIXED, "effect": 0.35},
    "kernel_two_sample, me": {"n": 800, "bounds": AGE, "effect": 0.2, "features": "me", "n_features": 10},
    "kernel_two_sample, no effect": {"n": 1000, "bounds": AGE, "effect": 0.0},
    "curated_two_sample": {"n": 500, "bounds": AGE, "effect": 0.25},
    "curated_two_sample, permutation": {"n": 400, "bounds": AGE, "effect": 0.3, "release": "permutation"},
    "joint_independence": {"n": 300, "effect": 0.5, "permutations": 199, "method": "permutation"},
    "joint_independence, no effect": {"n": 300, "effect": 0.0, "permutations": 199, "method": "permutation"},
    "distance_correlation": {"n": 20_000, "effect": 0.55},
    "distance_correlation, pnc": {"n": 20_000, "effect": 0.8, "method": "pnc", "epsilon": 4.0},
    "distance_correlation, quadratic": {"n": 40_000, "effect": 0.9, "shape": "quadratic"},
    "curated_distance_correlation": {"n": 500, "effect": 0.45, "permutations": 199},
    "screening": {
        "n": 4000,
        "effect": 0.8,
        "epsilon": 4.0,
        "columns": ["a", "b", "y"],
        "matrix": True,
    },
    "identity, mcgof": {"n": 250, "cells": 10},
    "identity, privit-laplace": {"n": 400, "cells": 10, "method": "privit-laplace"},
    "identity, zcdp-gof": {"n": 400, "cells": 10, "method": "zcdp-gof"},
    "homogeneity": {"n": 350, "cells": 8, "replicates": 999},
    "homogeneity, gaussian": {"n": 600, "cells": 8, "replicates": 999, "noise": "gaussian"},
    "independence_table": {"n": 250, "cells": (3, 4), "replicates": 999},
    "group_comparison": {
        "n": [600, 400],
        "bounds": MIXED,
        "group": "sex",
        "shift": {"age": 6.0},
    },
    "association": {"n": [600, 400], "bounds": AGE | {"weight": (0, 200)}, "effect": 0.25},
    "stratified_table": {"n": [300, 300], "cells": (2, 2), "effect": 0.12, "replicates": 999},
    "survival": {
        "n": [250, 250],
        "bounds": {"t": (0, 10), "dead": ["no", "yes"], "arm": ["a", "b"]},
        "cuts": {"t": [2.0, 4.0, 6.0, 8.0]},
        "group": "arm",
        "effect": 1.6,
        "replicates": 999,
    },
    "noisy_counts": {"n": 1000, "cells": 20},
    "noisy_counts, gaussian": {"n": 1000, "cells": 20, "noise": "gaussian"},
    "embedding_release": {"n": 2000, "bounds": MIXED, "n_points": 50},
    "embedding_release, candidates": {
        "n": 500,
        "bounds": AGE,
        "method": "exponential",
        "n_points": 10,
        "candidate_rows": 3,
        "delta": 0.0,
    },
}
"""Settings whose power is neither 0 nor 1, and two without an effect. Epsilon 1 where none is stated."""

SIDES = {"planned": 0, "real": 10**6}
"""What is added to the numbers of runs, so that the sides draw different samples."""


def study(name: str, run: int) -> Answers:
    """Run one planned study and one with production's noise."""
    procedure = name.partition(",")[0]
    asked: dict[str, Any] = {"epsilon": 1.0, "procedure": procedure, "runs": 1} | SETTINGS[name]
    answers: dict[str, float] = {}
    for side, offset in SIDES.items():
        chosen = asked | {"seed": run + offset, "real_noise": side == "real"}
        value = (
            plan_error(**chosen).error
            if population_of(procedure).measure == "error"
            else plan_power(**chosen).power
        )
        answers |= with_square(side, value)
    return answers


Power = Callable[[float], float]

TABLE = np.array([[0.3, 0.1, 0.1], [0.1, 0.2, 0.2]])
EQUAL = np.full(10, 0.1)
NOISE = (CellNoise("laplace", 4.0),)

STUDIES, NULLS, DRAWS = 16_000, 200, 999
"""Simulated studies behind a true power, in groups with a null distribution each, drawn as studies do."""


def _rejected(null: Callable[[], Floats], drawn: Callable[[int], Floats]) -> float:
    size, rejected = STUDIES // NULLS, 0
    for _ in range(NULLS):
        statistics = drawn(size)
        larger = np.max([DRAWS - np.searchsorted(own, statistics) for own in np.sort(null())], axis=0)
        rejected += int(np.sum((1 + larger) / (DRAWS + 1) <= 0.05))
    return rejected / STUDIES


def _noisy(p: Floats, units: int, size: int, rng: np.random.Generator) -> Floats:
    counts = rng.multinomial(units, p, size=size)
    return np.asarray((counts + NOISE[0].draw(rng, counts.shape)) / units)


@functools.cache
def independence_power(units: int) -> float:
    """Return the power of independence_table at epsilon .5."""
    rng, joint = np.random.default_rng(units), TABLE.ravel()

    def scores(shares: Floats) -> Floats:
        return residuals(shares, TABLE.shape, units, 32.0 / units**2).statistics

    def null() -> Floats:
        (held,) = _noisy(joint, units, 1, rng) * units
        seed = np.random.SeedSequence(int(rng.integers(2**62)))
        return independent_null(NoisyTable(held, units, NOISE), TABLE.shape, DRAWS, seed).statistics

    return _rejected(null, lambda size: scores(_noisy(joint, units, size, rng)))


@functools.cache
def homogeneity_power(units: int) -> float:
    """Return the power of homogeneity of two owners at epsilon .5 and distance .1 of ten cells."""
    rng, other = np.random.default_rng(units), paninski(EQUAL, 0.2)
    weights = Weights.of(np.full(2, float(units)), np.full(2, 32.0), len(EQUAL))

    def scores(first: Floats, second: Floats, size: int) -> Floats:
        held = np.stack([_noisy(p, units, size, rng) for p in (first, second)], axis=1)
        return np.asarray(weights.cells(held)[1].sum(axis=-1))

    def null() -> Floats:
        held = [NoisyTable(_noisy(p, units, 1, rng)[0] * units, units, NOISE) for p in (EQUAL, other)]
        return pooled_null(held, DRAWS, np.random.SeedSequence(int(rng.integers(2**62)))).statistics

    return _rejected(null, lambda size: scores(EQUAL, other, size))


@functools.cache
def identity_power(method: str, units: int) -> float:
    """Return the power of a method of identity at distance .2 of ten cells."""
    test = PlannedIdentity(method, EQUAL, units, 0.5, 0.05, delta=1e-6, distance=0.2)
    other, seed = paninski(EQUAL, 0.4), np.random.SeedSequence(units)
    return test.rates(other, STUDIES, 100 * DRAWS, seed).true


@functools.cache
def chi_square_power(units: int, epsilon: float, delta: float = 1e-6) -> float:
    """Return the power of zcdp-gof with its chi-square null, at distance .2 of ten cells."""
    test = PlannedIdentity("zcdp-gof", EQUAL, units, epsilon, 0.05, delta=delta)
    scores = test.scores()(paninski(EQUAL, 0.4), 10 * STUDIES, np.random.default_rng(units))
    return float(np.mean(chdtrc(len(EQUAL) - 1, np.maximum(scores, 0.0)) <= 0.05))


def _identity(method: str) -> tuple[Callable[..., Any], Power]:
    asked: Mapping[str, Any] = {
        "epsilon": 0.5,
        "delta": 1e-6,
        "effect": 0.2,
        "method": method,
        "runs": SEARCHED,
    }
    planner = functools.partial(plan_smallest, "n", procedure="identity", cells=10, **asked)
    return planner, lambda n: identity_power(method, int(n))


SEARCHED = 400
"""Simulated studies of each number of units that a planner of counts tries."""


SMALLEST: Mapping[str, Any] = {
    "procedure": "identity",
    "cells": 10,
    "method": "zcdp-gof",
    "null": "chi-square",
    "effect": 0.2,
    "delta": 1e-6,
}

LEAST: dict[str, tuple[Callable[..., Any], Power]] = {
    "independence_table, over n": (
        functools.partial(
            plan_smallest,
            "n",
            procedure="independence_table",
            cells=np.shape(TABLE),
            other=TABLE,
            epsilon=0.5,
            delta=0.0,
            runs=SEARCHED,
        ),
        lambda n: independence_power(int(n)),
    ),
    "homogeneity, over n": (
        functools.partial(
            plan_smallest,
            "n",
            procedure="homogeneity",
            cells=10,
            effect=0.1,
            epsilon=0.5,
            delta=0.0,
            runs=SEARCHED,
        ),
        lambda n: homogeneity_power(int(n)),
    ),
    **{
        f"identity, {method}, over n": _identity(method) for method in ("mcgof", "privit-laplace", "zcdp-gof")
    },
    "identity, chi-square null, over n": (
        functools.partial(plan_smallest, "n", epsilon=0.5, **SMALLEST),
        lambda n: chi_square_power(int(n), 0.5),
    ),
    "identity, chi-square null, over epsilon": (
        functools.partial(plan_smallest, "epsilon", n=500, **SMALLEST),
        lambda epsilon: chi_square_power(500, epsilon),
    ),
}
"""Planners with what they are asked, and the power at the place that they find."""


def least(name: str, run: int) -> Answers:
    """Make one plan, and compare what it claims with the power at the place found."""
    planner, power = LEAST[name]
    began = time.process_time()
    plan = planner(seed=run)
    took = time.process_time() - began
    found, claimed = plan.smallest, plan.plan.power
    true = power(found)
    return {
        "claimed": claimed,
        "true": true,
        "kept": true >= ASKED - SHORT,
        "below": true < ASKED,
        "place": found,
        "seconds": took,
    }


def cells() -> list[Cell]:
    """List the cells."""
    return cells_of("{}", RUNS, study, SETTINGS) + cells_of("{}", PLANS, least, LEAST)


def _least_rows(counts: Counts) -> dict[str, dict[str, str]]:
    rows = {}
    for name in LEAST:
        claimed, true = counts.rate(name, "claimed"), counts.rate(name, "true")
        if claimed is not None and true is not None:
            rows[name] = {
                "plans": str(counts.answered[name, "true"]),
                "place, mean": counts.shown(name, "place", ".4g"),
                "claimed, mean": f"{claimed:.3f}",
                "true, mean": f"{true:.3f}",
                "claimed − true": f"{claimed - true:+.3f}",
                f"true ≥ {ASKED - SHORT:g}": counts.shown(name, "kept", ".0%"),
                f"true < {ASKED:g}": counts.shown(name, "below", ".0%"),
                "processor seconds": counts.shown(name, "seconds", ".2g"),
            }
    return rows


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    rows, apart = {}, []
    for name, setting in SETTINGS.items():
        planned, real = counts.spread(name, "planned"), counts.spread(name, "real")
        if planned is None or real is None:
            continue
        errors = [found[1] / math.sqrt(counts.answered[name, "real"]) for found in (planned, real)]
        if error := math.hypot(*errors):
            apart.append((planned[0] - real[0]) / error)
        form = ".4f" if population_of(name.partition(",")[0]).measure == "error" else ".3f"
        rows[name] = {
            "n": " and ".join(map(str, n)) if isinstance(n := setting["n"], list) else str(n),
            "ε": f"{setting.get('epsilon', 1.0):g}",
            "planned": f"{planned[0]:{form}} ± {errors[0]:{form}}",
            "real noise": f"{real[0]:{form}} ± {errors[1]:{form}}",
            "difference, in standard errors": f"{apart[-1]:+.1f}" if error else "0",
        }
    squares = sum(one**2 for one in apart)
    return {
        "runs": extent(
            counts.answered[name, "real"] for name in SETTINGS if (name, "real") in counts.answered
        ),
        "studies": table(rows, "study"),
        "differences": (
            f"The squared differences, in standard errors, add up to {squares:.1f} over {len(apart)} rows: "
            "about as many as rows are expected where both kinds of study have the same power."
        ),
        "planners": table(_least_rows(counts), "planner"),
    }


BENCHMARKS = (Benchmark("planning", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
