"""How many units an identity test needs, by simulation. Public inputs only; spends nothing."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.planning.sizes import RUNS, Goal, SampleSizePlan, distributions
from tacit_protocol.numerics.noisy_tables import total_variation
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.identity.privit import PrivitRefusedError, RepetitionRefusedError
from tacit_protocol.procedures.identity.release import DECISIONS
from tacit_protocol.procedures.identity.simulate import PlannedIdentity, first_guess

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
