"""Counts against a known distribution in one process, through the same procedure as at an agent."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import local_study, run, seed_text
from tacit.in_process.samples import CountedTable, whole_counts
from tacit.results import DecisionResult, IdentityResult
from tacit_protocol.domain.columns import LEVELS_MAX, CategoricalColumn, Domain
from tacit_protocol.features.cell_counts import CellGrid
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.identity import Identity

OWNER = "owner"
"""Name of the one owner."""

OTHERS = 2
"""Categories of every column beside its levels: other and missing values."""

Method = Literal["privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"]


def identity(
    counts: npt.ArrayLike,
    q: npt.ArrayLike,
    epsilon: float,
    method: Method = "mcgof",
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    seed: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> IdentityResult | DecisionResult:
    """Test privately whether counts come from a known distribution.

    Args:
        counts: (k,) whole counts of units by cell, at least two cells.
        q: (k,) the known distribution; adds to 1. A cell of probability 0 may be counted.
        epsilon: budget to spend, greater than 0.
        method: ``mcgof`` (noisy counts), ``zcdp-gof`` (Gaussian counts; needs delta), ``privit-laplace`` (one
            noisy statistic), ``privit`` (Algorithm 1: one decision) or ``repetition`` (a baseline).
        delta: budget to spend, in [0, 1); used by zcdp-gof alone.
        alpha: level of the test, in (0, 0.5).
        seed: fixes the simulated null distribution. Never the noise: two calls may decide differently.
        progress: called with the part done, in [0, 1], and the step.
        parameters: further parameters of the procedure, such as ``distance``, ``clipping`` or ``rho``.

    Returns:
        A frozen result: statistic and p-value, or a decision and nothing finer for ``privit`` and
        ``repetition``.

    Raises:
        InputError: the counts or the distribution cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or would not be private.

    Example:
        >>> import tacit.local
        >>> result = tacit.local.identity([900, 50, 50], [1 / 3, 1 / 3, 1 / 3], epsilon=1, seed=1)
        >>> result.reject
        True
    """
    counted, known = _checked(counts, q)
    domain, cells, size = columns_of(len(counted))
    probabilities = np.zeros(size)
    probabilities[cells] = known
    study = local_study(
        Identity.name,
        domain,
        [OWNER],
        {"method": method, "probabilities": probabilities.tolist()} | parameters,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        seed=seed_text(seed),
    )
    result = run(Identity(), study, [CountedTable(domain, counted, cells)], OpenDPNoise(), progress)
    if not isinstance(result, IdentityResult | DecisionResult):
        raise TypeError("identity has a result of another kind")
    return result


def _checked(
    counts: npt.ArrayLike, q: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    counted = whole_counts(counts)
    try:
        known = np.asarray(q, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("q must be probabilities") from None
    if counted.ndim != 1 or counted.shape != known.shape or len(counted) < 2:
        raise InputError("counts and q must be two vectors of one length, at least 2")
    if np.any(~np.isfinite(known)) or np.any(known < 0):
        raise InputError("q must be probabilities")
    return counted, known


def columns_of(count: int) -> tuple[Domain, npt.NDArray[np.int64], int]:
    """Return columns with at least so many cells, which cells the counts go to, and how many there are.

    All of a column's categories are used, "other" and "missing" too: no cell is added but for rounding up.
    """
    sizes = _sizes(count)
    columns = tuple(
        CategoricalColumn(name=f"c{i}", levels=tuple(str(level) for level in range(size - OTHERS)))
        for i, size in enumerate(sizes, 1)
    )
    domain = Domain(columns=columns)
    return domain, np.arange(count), CellGrid.of(domain).size


def _sizes(count: int) -> Sequence[int]:
    if count <= LEVELS_MAX + OTHERS:
        return (max(count, OTHERS + 1),)
    rows = -(-count // (LEVELS_MAX + OTHERS))
    rows = max(rows, OTHERS + 1)
    return (rows, -(-count // rows))
