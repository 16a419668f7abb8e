"""Test locations and bandwidth, or frequencies, that a private test would see most with: by gradient ascent.

Everything here is a function of public rows: a public sample, or points of a database released earlier, with
their weights. Never use rows of the test itself: P0 optimises on a fifth of the private rows, which then have
no guarantee. L-BFGS-B with analytic gradients climbs from several seeded starts; rows are split, so that the
start that wins, and the power stated for it, come from rows that no gradient has seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit_protocol.features.optimised_choices import Choices, Pair
from tacit_protocol.features.power_criterion import (
    CRITERIA,
    FloatVector,
    PlannedTest,
    predicted_power,
)
from tacit_protocol.features.public_rows import pool

ITERATIONS_MAX = 200
"""Of L-BFGS-B, from each start: beyond it the criterion gains per mille."""

ROWS_MAX = 2000
"""Public rows of each sample behind one gradient: with more the optimum moves by less than tests can tell."""


CRITERION_MIN = 1e-200
"""A criterion that is not larger is 0: the features do not tell the two samples apart at all."""


class NoDifferenceError(ValueError):
    """The two public samples look the same to the features: there is nothing to optimise for."""


@dataclass(frozen=True)
class PublicPair:
    """Two public samples, or a sample and the same rows with an expected effect (``paired``).

    ``held_out`` rows choose among the starts, and give the predicted power. They are the rows of ``fit``
    where rows must stay together.
    """

    fit: Pair
    held_out: Pair
    paired: bool = False


@dataclass(frozen=True)
class Optimum:
    """The choices found; the criterion on the rows they were fitted to, and on rows held out.

    ``unoptimised`` is the criterion of the first start before any step, ``power`` the test's predicted power
    at ``choices``, both on the rows held out.
    """

    choices: FloatVector
    fitted: float
    held_out: float
    unoptimised: float
    power: float


def optimise(
    choices: Choices,
    public: PublicPair,
    test: PlannedTest,
    *,
    level: float,
    starts: int,
    rng: np.random.Generator,
    progress: Callable[[float], None] | None = None,
) -> Optimum:
    """Climb from every start on the rows to fit, and keep what is best on those held out.

    Raises NoDifferenceError where the two samples look the same to the features.
    """
    fit, held_out = _thin(public.fit, public.paired, rng), _thin(public.held_out, public.paired, rng)
    pooled = pool(*fit)
    unoptimised, ends = 0.0, []
    for number in range(starts):
        start = choices.start(pooled, number, rng)
        if number == 0:
            unoptimised = _value(choices, start, held_out, test)
        end, fitted = _climb(choices, start, fit, test)
        ends.append((_value(choices, end, held_out, test), fitted, end))
        if progress is not None:
            progress((number + 1) / starts)
    if max(fitted for _, fitted, _ in ends) <= 2 * CRITERION_MIN:
        raise NoDifferenceError("the two public samples look the same to these features")
    best, fitted, end = max(ends, key=lambda found: found[0])
    contrast = choices.contrast(end, held_out, test)
    # Of paired rows the difference has next to no sampling error: nothing is taken off for it.
    excess = 0.0 if public.paired else _sampling_ratio(held_out, test)
    power = predicted_power(contrast, test.form, level, contrast.sampling * excess, rng)
    return Optimum(end, fitted, best, unoptimised, power)


def _thin(pair: Pair, paired: bool, rng: np.random.Generator) -> Pair:
    if paired and pair[0].sample and len(pair[0]) > ROWS_MAX:
        rows = rng.choice(len(pair[0]), ROWS_MAX, replace=False)
        return pair[0].take(rows), pair[1].take(rows)
    x, y = (
        one.take(rng.choice(len(one), ROWS_MAX, replace=False)) if one.sample and len(one) > ROWS_MAX else one
        for one in pair
    )
    return x, y


def _value(choices: Choices, vector: FloatVector, rows: Pair, test: PlannedTest) -> float:
    return CRITERIA[test.form](choices.contrast(vector, rows, test)).value


def _sampling_ratio(rows: Pair, test: PlannedTest) -> float:
    """Return how much larger the public difference's covariance is than the test's will be, at most."""
    sizes = [1 / float(np.sum(one.weights**2)) for one in rows]
    return max(units / size for units, size in zip(test.units, sizes, strict=True))


def _climb(choices: Choices, start: FloatVector, fit: Pair, test: PlannedTest) -> tuple[FloatVector, float]:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    def descend(vector: FloatVector) -> tuple[float, FloatVector]:
        value, gradient = choices.criterion(vector, fit, test)
        if not value > CRITERION_MIN:
            # Far from all rows the kernel underflows: a step to turn back from.
            return -math.log(CRITERION_MIN), np.zeros_like(vector)
        # The logarithm: steps then do not depend on the scale of the criterion.
        return -math.log(value), -gradient / value

    bounds = choices.bounds()
    result = minimize(
        descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS_MAX}
    )
    return np.asarray(result.x), math.exp(-float(result.fun))
