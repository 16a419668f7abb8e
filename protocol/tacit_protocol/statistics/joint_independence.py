"""The joint independence statistic (dHSIC) of data and of many permutations of them, fast and exact.

T = |(1/n) sum_i a_i1 x .. x a_id  -  (mean of a_1) x .. x (mean of a_d)|, with a_ij the feature of unit i in
variable j: the square root of the V-statistic of Pfister, Buhlmann, Scholkopf and Peters (2018). A
permutation reorders the units of variables 2..d, each by itself.

Three ways to the same number, all within joint_sensitivity.evaluation_error of T: where all variables have
explicit features of low rank (low_rank.py), the norm of a tensor (joint_tensor.py); otherwise sums over pairs
of units, of kernel matrices that are held, or evaluated anew in tiles (joint_pairs.py). Which one may depend
on the data, and not on the workers: the error counts whichever it is.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.joint_pairs import (
    GRAM_BYTES_MAX,
    PairStatistic,
    PermutableGram,
    holding_pays,
    replicate_ns,
)
from tacit_protocol.statistics.joint_tensor import (
    SPLIT_VARIABLES_MAX,
    TENSOR_ENTRIES_MAX,
    TensorStatistic,
    fits,
)
from tacit_protocol.statistics.low_rank import factorise
from tacit_protocol.statistics.permutations import PermutedStatistic, Progress, replicated
from tacit_protocol.workers import ONE_WORKER, Workers, linear_algebra

__all__ = ["TENSOR_ENTRIES_MAX", "permuted_feature_statistics", "permuted_statistics", "units_max"]

Floats = npt.NDArray[np.float64]

PAIRS_MAX = 10**13
"""Most pairs of units that are evaluated, over all replicates and permuted variables: half a day of one
processor core, at 3 to 4 ns a pair of rows of one column."""

PREPARING = 0.1
"""Part of the progress that is told of before the first replicate."""


def units_max(variables: int, permutations: int, several_rows: bool = False) -> int:
    """Return the most units that a test takes; public, whichever way is taken.

    The time grows with their square: (permutations + 1) (variables - 1) n^2 / 2 is at most PAIRS_MAX. Of
    units with ``several_rows``, of which a pair is a mean over pairs of rows, the kernel matrices must fit
    GRAM_BYTES_MAX besides, so that they are evaluated once.
    """
    worked = math.isqrt(2 * PAIRS_MAX // ((permutations + 1) * (variables - 1)))
    return min(worked, math.isqrt(GRAM_BYTES_MAX // (8 * variables))) if several_rows else worked


def permuted_statistics(
    grams: Sequence[PermutableGram],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> Floats:
    """Return T of the data and of ``permutations`` random permutations, (permutations + 1,).

    ``grams`` are the kernel matrices of two or more variables between the same units; values in [0, 1].
    Permutation b is drawn from child b of ``seed``. The result is the same bits for any ``workers``.
    ``progress`` is called with the part done.

    Raises ValueError where there are fewer than two variables or they have different numbers of units.
    """
    if len(grams) < 2 or any(gram.size != grams[0].size for gram in grams):
        raise ValueError("permuting needs two or more variables of the same units")
    report = progress if progress is not None else _silent
    # One thread in linear algebra: its results may depend on its own.
    with linear_algebra().limit(limits=1, user_api="blas"):
        statistic = _statistic(grams, workers, report)
        here = isinstance(statistic, PairStatistic) and not (statistic.travels or workers.in_process)
        return replicated(
            statistic,
            permutations,
            seed,
            ONE_WORKER if here else workers,
            lambda part: report(PREPARING + (1 - PREPARING) * part),
        )


def permuted_feature_statistics(
    factors: Sequence[Floats],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> Floats:
    """Return T as :func:`permuted_statistics` does, of explicit features: (J, units) of every variable.

    Raises ValueError where there are fewer than two variables, they have different numbers of units, or
    their tensor has more than TENSOR_ENTRIES_MAX entries.
    """
    if len(factors) < 2 or any(factor.shape[1] != factors[0].shape[1] for factor in factors):
        raise ValueError("permuting needs two or more variables of the same units")
    if not fits([len(factor) for factor in factors]):
        raise ValueError("the variables' features have a tensor that is too large")
    with linear_algebra().limit(limits=1, user_api="blas"):
        return replicated(TensorStatistic(factors), permutations, seed, workers, progress or _silent)


def _statistic(grams: Sequence[PermutableGram], workers: Workers, report: Progress) -> PermutedStatistic:
    factors = _factors(grams, workers, report)
    if factors is not None:
        tensor = TensorStatistic(factors)
        if tensor.replicate_ns <= replicate_ns(grams):
            return tensor
    return PairStatistic(grams, holding_pays(grams), workers)


def _factors(grams: Sequence[PermutableGram], workers: Workers, report: Progress) -> list[Floats] | None:
    """Return every variable's explicit features, (rank, units) each, or None where a tensor would not fit."""
    factors: list[Floats] = []
    for number, gram in enumerate(grams, start=1):
        factor = factorise(gram, workers=workers) if len(grams) <= SPLIT_VARIABLES_MAX else None
        if factor is None or not fits([len(found) for found in (*factors, factor)]):
            return None
        factors.append(factor)
        report(PREPARING * number / len(grams))
    return factors


def _silent(part: float) -> None:
    """Report progress to nobody."""
