"""Any procedure in one process: a built-in one, one of another distribution, or one that is being written."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tacit.errors import InputError
from tacit.in_process.runner import Setting, owner_names, run_tables, terms
from tacit.in_process.samples import Missing, drawing, read_tables, read_variables, tables_apart
from tacit.results import Result
from tacit_protocol.messages.study import UnitRows
from tacit_protocol.procedures.base import Procedure, Progress, StudyError
from tacit_protocol.procedures.discovery import procedure_named


def run(
    procedure: str | Procedure,
    *tables: Any,
    epsilon: float,
    delta: float = 0.0,
    bounds: Any = None,
    columns: Sequence[str] | None = None,
    units: Any = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    setting: Setting = "owners",
    seed: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Result:
    """Run a study of any procedure, and return its own result.

    Args:
        procedure: the name of a procedure, built in or of another distribution, or a procedure itself.
        tables: one for each owner: an array (n,) or (n, D), a list of rows, or a column or a table of pandas,
            Polars or Arrow. All have the same columns; but where the procedure's question is of columns
            apart, as that of ``distance_correlation``, each has its own over the same rows in the same order.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1).
        bounds: what is publicly known of the columns: by name a (lower, upper) pair or a list of levels; or
            an array (D, 2); or one pair, or one list of levels, for every column. Never taken from the data.
        columns: names of an array's columns, or which columns of a table to use; not of columns apart.
        units: the column that names a row's privacy unit, or for each table an array (n,) of units; of
            columns apart one array (n,). By default every row is a unit.
        unit_rows: "average", or "one": of a unit's rows one counts, drawn by lot and in secret.
        missing: "refuse" raises where a value is missing; "encode" does what studies do.
        alpha: level of the test, in (0, 0.5).
        names: the owners' names, by default sample-1, sample-2, ...; parameters may name owners.
        setting: "owners": each adds its own noise; "curator": one trusted party holds all tables and adds
            noise once, as it is in any case where no other may answer the procedure's studies.
        seed: fixes public choices and simulations. Never the noise: two calls differ.
        progress: called with the part done, in [0, 1], and the step.
        parameters: the procedure's own, by the names that studies have for them.

    Raises:
        InputError: the tables or the bounds cannot be used, or there is no such procedure; the message says
            what to change.
        StudyRefusedError: the procedure does not take these parameters, or such tables.

    Example:
        >>> import numpy as np, tacit.local
        >>> x, y = np.random.default_rng(1).normal([[0], [1]], 1, (2, 20000))
        >>> tacit.local.run("kernel_two_sample", x, y, epsilon=1, delta=1e-5, bounds=(-5, 5), seed=1).reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    if setting not in {"owners", "curator"}:
        raise InputError('setting must be "owners" or "curator"')
    try:
        asked = procedure_named(procedure) if isinstance(procedure, str) else procedure
    except StudyError as error:
        raise InputError(str(error)) from None
    owners = owner_names(names, len(tables))
    if asked.question is not None and asked.question.apart:
        if columns is not None:
            raise InputError("each table has columns of its own: leave columns out")
        read = read_variables(tables, bounds, None, missing)
        draw = drawing(unit_rows, units)
        held = tables_apart(read, [units] * len(tables), [deepcopy(draw) for _ in tables])
    else:
        held = read_tables(
            tables,
            columns,
            units=units,
            bounds=bounds,
            missing=missing,
            names=owners,
            unit_rows=unit_rows,
        )
    curated = setting == "curator" or "agents" not in asked.held_by
    found: Result = run_tables(asked, held, owners, parameters, at=at, curated=curated, progress=progress)
    return found
