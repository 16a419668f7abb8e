"""How many units tests on counts and tests of identity need, by simulation. Public inputs only."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.planning.sizes import (
    RUNS,
    Floats,
    Goal,
    SampleSizePlan,
    Scores,
    distribution,
    distributions,
    in_batches,
    seed_from,
)
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, total_variation
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.counts.homogeneity import Weights
from tacit_protocol.procedures.counts.homogeneity import homogeneity_null as pooled_null
from tacit_protocol.procedures.counts.independence_table import independence_null as independent_null
from tacit_protocol.procedures.counts.independence_table import margins_of, product, residuals
from tacit_protocol.procedures.counts.release import (
    count_noise,
    gaussian_count_guarantee,
    laplace_count_guarantee,
)
from tacit_protocol.procedures.identity.privit import PrivitRefusedError, RepetitionRefusedError
from tacit_protocol.procedures.identity.release import DECISIONS
from tacit_protocol.procedures.identity.simulate import PlannedIdentity, first_guess

START = 1000
"""Units at which a search starts."""


def plan_homogeneity(
    q: int | npt.ArrayLike,
    *,
    epsilon: float,
    distance: float = 0.1,
    other: npt.ArrayLike | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    gaussian: bool = False,
    alpha: float = 0.05,
    miss: float = 0.2,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units of each of two owners at which homogeneity misses a difference seldom enough.

    Args:
        q: the first owner's distribution, (k,), or a number of equally likely cells. Cells of other
            and missing values are no part of it.
        epsilon: what every owner would spend.
        distance: total variation distance of the second owner's, which has more and less in cells in turn.
        other: the second owner's distribution, (k,), in the place of ``distance``.
        delta: what every owner would spend.
        rho: zCDP of Gaussian noise.
        gaussian: whether the noise is Gaussian.
        alpha: level of the test: the first error.
        miss: the second error.
        runs: simulated studies of each number of units that is tried; four times as many of the one found.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    one, two = distributions(q, distance, other)
    goal, noise = Goal(epsilon, delta, alpha, miss, runs, seed), _noise(epsilon, delta, rho, gaussian)

    def power(units: int, count: int, nulls: int, of_step: np.random.SeedSequence) -> int:
        weights = Weights.of(np.full(2, float(units)), np.full(2, noise.variance), len(one))

        def scores(first: Floats, second: Floats) -> Scores:
            def some(size: int, rng: np.random.Generator) -> Floats:
                held = [_shares(each, units, noise, size, rng) for each in (first, second)]
                return np.asarray(weights.cells(np.stack(held, axis=1))[1].sum(axis=-1))

            return in_batches(some, 2 * len(one))

        def null(draws: int, rng: np.random.Generator) -> Floats:
            held = [_table(each, units, noise, rng) for each in (one, two)]
            return pooled_null(held, draws, seed_from(rng)).statistics

        return goal.rejections(null, scores(one, two), count, nulls, np.random.default_rng(of_step))

    words = f"homogeneity of two owners, {noise.kind} noise"
    return goal.plan(words, (one, two), power, START, progress)


def plan_independence(
    table: npt.ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    rho: float | None = None,
    gaussian: bool = False,
    alpha: float = 0.05,
    miss: float = 0.2,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units at which independence_table misses a given dependence seldom enough.

    Args:
        table: the joint distribution that should be found, an axis for each column.
            Cells of other and missing values are no part of it.
        epsilon: what the owner would spend.
        delta: what the owner would spend.
        rho: zCDP of Gaussian noise.
        gaussian: whether the noise is Gaussian.
        alpha: level of the test: the first error.
        miss: the second error.
        runs: simulated studies of each number of units that is tried; four times as many of the one found.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    try:
        given = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a table is an array of numbers, its rows of one length") from None
    if given.ndim < 2 or min(given.shape) < 2:
        raise InputError("a table has at least two axes, each of at least two cells")
    joint, shape = distribution(given.ravel()), given.shape
    independent = product(margins_of(joint, shape))
    if np.allclose(joint, independent):
        raise InputError("the columns of the table are independent: there is nothing to be found")
    goal, noise = Goal(epsilon, delta, alpha, miss, runs, seed), _noise(epsilon, delta, rho, gaussian)

    def power(units: int, count: int, nulls: int, of_step: np.random.SeedSequence) -> int:
        def scores(probabilities: Floats) -> Scores:
            def some(size: int, rng: np.random.Generator) -> Floats:
                shares = _shares(probabilities, units, noise, size, rng)
                return residuals(shares, shape, units, noise.variance / units**2).statistics

            return in_batches(some, len(joint))

        def null(draws: int, rng: np.random.Generator) -> Floats:
            held = _table(joint, units, noise, rng)
            return independent_null(held, shape, draws, seed_from(rng)).statistics

        return goal.rejections(null, scores(joint), count, nulls, np.random.default_rng(of_step))

    words = f"independence_table, {noise.kind} noise"
    return goal.plan(words, (joint, independent), power, START, progress)


def _noise(epsilon: float, delta: float, rho: float | None, gaussian: bool) -> CellNoise:
    try:
        budget = Budget.of(epsilon, delta)
        if gaussian or rho is not None:
            return CellNoise("gaussian", count_noise(gaussian_count_guarantee(budget, rho))[1])
        return CellNoise("laplace", count_noise(laplace_count_guarantee(budget))[1])
    except (ValueError, ArithmeticError, SensitivityError) as error:
        raise InputError(f"epsilon and delta: {error}") from None


def _table(probabilities: Floats, units: int, noise: CellNoise, rng: np.random.Generator) -> NoisyTable:
    """Draw a study's noisy table: studies draw their null distribution from what it says of the margins."""
    (shares,) = _shares(probabilities, units, noise, 1, rng)
    return NoisyTable(shares * units, units, (noise,))


def _shares(
    probabilities: Floats, units: int, noise: CellNoise, runs: int, rng: np.random.Generator
) -> Floats:
    counts = rng.multinomial(units, probabilities, size=runs)
    return np.asarray((counts + noise.draw(rng, counts.shape)) / units)


Method = Literal["privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"]


def plan_identity(
    q: int | npt.ArrayLike,
    *,
    epsilon: float,
    distance: float = 0.1,
    other: npt.ArrayLike | None = None,
    delta: float = 0.0,
    alpha: float = 0.05,
    miss: float = 0.2,
    method: Method = "mcgof",
    rho: float | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units at which an identity test misses an alternative ``miss`` of the time at most.

    Args:
        q: the known distribution, (k,), or a number of equally likely cells.
        epsilon: what the owner would spend.
        distance: total variation distance of the alternative, which makes cells larger and smaller in turn.
        other: the alternative itself, (k,), in the place of ``distance``.
        delta: what the owner would spend; zcdp-gof needs it.
        alpha: level of the test: the first error.
        miss: the second error.
        method: of the procedure.
        rho: zCDP of zcdp-gof; by default the largest that epsilon and delta allow.
        runs: simulated studies of each number of units that is tried; four times as many of the one found.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    pair = distributions(q, distance, other)
    goal = Goal(epsilon, delta, alpha, miss, runs, seed)
    if rho is not None and not 0 < rho < np.inf:
        raise InputError("rho must be positive and finite")
    if method == "zcdp-gof" and rho is None:
        if not 0 < delta < 1:
            raise InputError("zcdp-gof needs a delta above 0, such as 1e-6, or rho")
        rho = gaussian_mu(epsilon, delta) ** 2 / 2
    known, alternative = pair
    apart = total_variation(*pair)

    def power(units: int, count: int, nulls: int, of_step: np.random.SeedSequence) -> int | None:
        plan = PlannedIdentity(
            method, known, units, epsilon, alpha, delta=delta, rho=rho, distance=min(1.0, apart)
        )
        rng = np.random.default_rng(of_step)
        if method not in DECISIONS:
            scores = plan.scores()
            return goal.rejections(partial(scores, known), partial(scores, alternative), count, nulls, rng)
        try:
            parts = np.array_split(np.arange(count), min(count, nulls))
            return int(sum(plan.decisions(alternative, len(part), rng).sum() for part in parts))
        except (PrivitRefusedError, RepetitionRefusedError):
            return None

    guess = first_guess(method, len(known), max(apart, 1e-6), epsilon, rho or 1.0)
    return goal.plan(method, pair, power, guess, progress)


def compare_identity_methods(
    q: int | npt.ArrayLike,
    *,
    epsilon: float,
    distance: float = 0.1,
    other: npt.ArrayLike | None = None,
    delta: float = 0.0,
    alpha: float = 0.05,
    miss: float = 0.2,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sequence[SampleSizePlan]:
    """Plan every method that may be the best for an alternative; returns the plans, fewest units first.

    They are ``privit-laplace`` and ``mcgof``, and ``zcdp-gof`` where ``delta`` is above 0; ``privit`` and
    ``repetition`` need more units than these. Arguments and errors are those of :func:`plan_identity`.
    """
    methods: tuple[Method, ...] = ("privit-laplace", "mcgof")
    plans = [
        plan_identity(
            q,
            epsilon=epsilon,
            distance=distance,
            other=other,
            delta=delta,
            alpha=alpha,
            miss=miss,
            method=method,
            runs=runs,
            seed=seed,
            progress=progress,
        )
        for method in (methods if delta == 0 else (*methods, "zcdp-gof"))
    ]
    return sorted(plans, key=lambda plan: plan.units)
