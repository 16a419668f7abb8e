"""The joint independence test in one process, at one owner that holds all columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import OWNER, run_tables, terms
from tacit.in_process.samples import Missing, by_argument_names, read_variables
from tacit_protocol.messages.study import UnitRows
from tacit_protocol.procedures.base import Progress

if TYPE_CHECKING:
    from tacit.results import (
        CellsTableResult,
        DecisionResult,
        JointIndependenceResult,
        MutualIndependenceResult,
    )


@by_argument_names()
def joint_independence(
    *variables: Any,
    epsilon: float,
    delta: float = 0.0,
    alpha: float = 0.05,
    n_permutations: int | None = None,
    kernel: Literal["gaussian", "laplacian", "distance", "linear"] = "gaussian",
    bandwidth: float | Sequence[float] | None = None,
    bounds: Any = None,
    units: npt.ArrayLike | None = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    seed: int | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    method: Literal["auto", "permutation", "aggregate", "table"] = "auto",
    **parameters: Any,
) -> "DecisionResult | JointIndependenceResult | CellsTableResult":
    """Test privately whether two or more variables are jointly independent.

    The null hypothesis is that the joint distribution is the product of the variables' own. Variables that
    are independent in pairs may be jointly dependent, and the test sees it.

    Args:
        variables: at least two, numbers or categories. A variable of several columns counts as one.
        alpha: at least 1 / (n_permutations + 1).
        kernel: kernel of numeric columns; categories are compared for equality. "distance" has no bandwidth,
            and makes the test of two variables one of distance covariance; "linear" compares covariances, as
            of genotype counts 0, 1 and 2.
        bandwidth: kernel bandwidth, in units of the scaled columns, where 1 is a column's whole range; or
            several, whose kernels are averaged; chosen by the procedure by default.
        method: "auto" chooses by the columns, epsilon and the number of rows. "table" releases a noisy table
            of the columns' cells between private quantiles, for epsilon alone: a p-value, and correlations
            with intervals; ``categories`` says how many cells. "aggregate" tests blocks of rows and releases
            the noisy number of those that reject, for epsilon alone, with a p-value. "permutation" decides on
            all rows at once (dpdHSIC).
        parameters: such as ``category_similarity``, or ``graph``, each child's parents by name: are the
            graph's noises independent?

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test. By "permutation" a decision: ``reject`` and nothing finer, because nothing finer is private.

    Example:
        >>> import numpy as np, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> x, y = rng.choice([-1.0, 1.0], (2, 2000))
        >>> result = tacit.local.joint_independence(x, y, x * y, epsilon=5, bounds=(-1, 1), seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    read = read_variables(variables, bounds, names, missing)
    chosen: dict[str, Any] = {
        "groups": [list(group) for group in read.groups],
        "kernel": kernel,
        "bandwidth": list(bandwidth) if isinstance(bandwidth, Sequence) else bandwidth,
        "permutations": n_permutations,
        "method": method,
    }
    found: DecisionResult | JointIndependenceResult | CellsTableResult = run_tables(
        "joint_independence",
        [read.together(units, unit_rows)],
        [OWNER],
        chosen | parameters,
        at=at,
        progress=progress,
    )
    return found


@by_argument_names()
def mutual_independence(
    *columns: Any,
    epsilon: float,
    method: Literal["two-round", "one-round"] = "two-round",
    categories: int | None = None,
    n_permutations: int | None = None,
    bounds: Any = None,
    alpha: float = 0.05,
    units: npt.ArrayLike | None = None,
    missing: Missing = "refuse",
    seed: int | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> "MutualIndependenceResult":
    """Test privately whether columns that three or more owners hold are independent of each other.

    Each column is another owner's, over the same rows. All owners but the last release one randomised answer
    of every row; the last counts its own cells beside them, with noise. Nothing but epsilon is spent.

    Args:
        columns: three to six: each an array (n,), numbers or categories, or a column of pandas, Polars or
            Arrow.
        method: "two-round", or "one-round", in which the last owner answers as the others do.
        bounds: as of variables.
        units: (n,); of a unit's rows one counts.
        names: of the columns, as of variables.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with ``pairs`` and ``steps``.

    Example:
        >>> import numpy as np, tacit.local
        >>> x, y, z = np.random.default_rng(1).random((3, 5000))
        >>> result = tacit.local.mutual_independence(x, y, x, epsilon=2, bounds=(0, 1), seed=1)
        >>> result.reject, result.pairs[0].first, result.pairs[0].second
        (True, 'x1', 'x3')
    """
    at = terms(epsilon, 0.0, alpha, seed)
    read = read_variables(columns, bounds, names, missing)
    if any(len(group) > 1 for group in read.groups):
        raise InputError("pass one column of each owner")
    count = len(read.groups)
    found: MutualIndependenceResult = run_tables(
        "mutual_independence",
        read.apart([units] * count, [None] * count),
        [f"{group[0]}-owner" for group in read.groups],
        {"method": method, "categories": categories, "permutations": n_permutations} | parameters,
        at=at,
        progress=progress,
    )
    return found
