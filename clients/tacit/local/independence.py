"""The joint independence test in one process, at one owner that holds all columns."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import as_run, local_study, of_type, run, terms
from tacit.in_process.samples import (
    ArrayTable,
    Missing,
    Sample,
    by_argument_names,
    drawing,
    read_variables,
)
from tacit.results import CellsTableResult, DecisionResult, JointIndependenceResult, MutualIndependenceResult
from tacit_protocol.messages.study import Study, UnitRows
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.joint_independence import JointIndependence, JointPlan

OWNER = "owner"
"""Name of the one owner."""


class _Watched(JointIndependence):
    """Tells how far the permutations are."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def plan(self, study: Study) -> JointPlan:
        found = super().plan(study)
        found.summarise = partial(found.summarise, progress=self._progress)  # type: ignore[method-assign]
        return found


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
) -> DecisionResult | JointIndependenceResult | CellsTableResult:
    """Test privately whether two or more variables are jointly independent.

    The null hypothesis is that the joint distribution is the product of the variables' own. Variables that
    are independent in pairs may be jointly dependent, and the test sees it.

    Args:
        variables: at least two, over the same rows: each an array (n,) or (n, D), numbers or categories, or a
            column or a table of pandas, Polars or Arrow. A variable of several columns counts as one.
        epsilon: budget to spend, greater than 0.
        delta: budget to spend, in [0, 1).
        alpha: level of the test, in (0, 0.5); at least 1 / (n_permutations + 1).
        n_permutations: random permutations; chosen by the procedure by default.
        kernel: kernel of numeric columns; categories are compared for equality. "distance" has no bandwidth,
            and makes the test of two variables one of distance covariance; "linear" compares covariances, as
            of genotype counts 0, 1 and 2.
        bandwidth: kernel bandwidth, in units of the scaled columns, where 1 is a column's whole range; or
            several, whose kernels are averaged; chosen by the procedure by default.
        bounds: what is publicly known: a list with each variable's bounds, a (lower, upper) pair or a list of
            levels; or by column name; or an array (columns, 2); or one pair for every column. Never taken
            from the data.
        units: (n,), each row's privacy unit; by default every row is a unit.
        unit_rows: "average", or "one": of a unit's rows one counts, drawn by lot and in secret. Take "one"
            where numbers of rows differ: averages of independent columns depend on each other through them.
        missing: "refuse" raises where a value is missing; "encode" does what studies do: a missing number
            becomes the middle of its bounds, a missing category a level of its own.
        seed: fixes the permutations. Never the noise: two calls may decide differently.
        names: the variables' names, by default x1, x2, ... or a table's columns.
        progress: called with the part done, in [0, 1], and the step.
        method: "auto" chooses by the columns, epsilon and the number of rows. "table" releases a noisy table
            of the columns' cells between private quantiles, for epsilon alone: a p-value, and correlations
            with intervals; ``categories`` says how many cells. "aggregate" tests blocks of rows and releases
            the noisy number of those that reject, for epsilon alone, with a p-value. "permutation" decides on
            all rows at once (dpdHSIC).
        parameters: further parameters of the procedure, such as ``category_similarity``, or ``graph``, each
            child's parents by name: are the graph's noises independent?

    Returns:
        A frozen test, which unpacks into ``statistic, pvalue``. By "permutation" a frozen decision:
        ``reject`` and nothing finer, because nothing finer is private.

    Raises:
        InputError: the variables or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or so many rows.

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
    procedure = _Watched(progress)
    study = local_study(
        procedure.name,
        read.domain,
        [OWNER],
        chosen | parameters,
        **at,
    )
    table = ArrayTable.of(read.sample, read.domain, units, drawing(unit_rows, units))
    study = as_run(procedure, study, [table.units])
    with by_argument_names():
        result = run(procedure, study, [table], OpenDPNoise())
    if not isinstance(result, DecisionResult | JointIndependenceResult | CellsTableResult):
        raise TypeError("joint_independence has a result that is neither decision nor test")
    return result


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
) -> MutualIndependenceResult:
    """Test privately whether columns that three or more owners hold are independent of each other.

    Each column is another owner's, over the same rows. All owners but the last release one randomised answer
    of every row; the last counts its own cells beside them, with noise. Nothing but epsilon is spent.

    Args:
        columns: three to six, over the same rows: each an array (n,), numbers or categories, or a column of
            pandas, Polars or Arrow.
        epsilon: budget that every owner spends, greater than 0.
        method: "two-round", or "one-round", in which the last owner answers as the others do.
        categories: cells of a numeric column, 2 to 4; chosen by default.
        n_permutations: simulations of each test; chosen by default.
        bounds: what is publicly known: a list with each column's bounds, a (lower, upper) pair or a list of
            levels; or by column name; or one pair for every column. Never taken from the data.
        alpha: level of the test, in (0, 0.5).
        units: (n,), each row's privacy unit; by default every row is a unit. Of several rows one counts.
        missing: "refuse" raises where a value is missing; "encode" does what studies do.
        seed: fixes the simulations. Never the noise: two calls differ.
        names: the columns' names, by default x1, x2, ... or a table's columns.
        progress: called with the part done, in [0, 1], and the step.
        parameters: further parameters of the procedure, such as ``cuts``.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``, with ``pairs`` and ``steps``.

    Raises:
        InputError: the columns or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or so few or so many rows.

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
    study = local_study(
        "mutual_independence",
        read.domain,
        [f"{group[0]}-owner" for group in read.groups],
        {"method": method, "categories": categories, "permutations": n_permutations} | parameters,
        **at,
        columns=read.groups,
    )
    tables = [
        ArrayTable.of(Sample({group[0]: read.sample.columns[group[0]]}), study.domain_of(owner), units)
        for group, owner in zip(read.groups, study.owners, strict=True)
    ]
    procedure = procedure_named(study.procedure)
    with by_argument_names():
        study = as_run(procedure, study, [table.units for table in tables])
        found = run(procedure, study, tables, OpenDPNoise(), progress)
    return of_type(MutualIndependenceResult, found)
