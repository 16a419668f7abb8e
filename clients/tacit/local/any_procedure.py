"""Any procedure in one process: a built-in one, one of another distribution, or one that is being written."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from tacit.errors import InputError
from tacit.in_process.runner import Setting, Terms, owner_names, run_tables, terms
from tacit.in_process.samples import Missing, drawing, read_tables, read_variables
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
        tables: samples; but where the procedure's question is of columns apart, as that of
            ``distance_correlation``, each owner's own columns over the same rows in the same order.
        columns: not of columns apart.
        units: of columns apart one array (n,).
        names: parameters may name owners.
        setting: "owners": each adds its own noise; "curator": one trusted party holds all tables and adds
            noise once, as it is in any case where no other may answer the procedure's studies.

    Other arguments: :mod:`tacit.local`.

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
    curated = setting == "curator" or "agents" not in asked.held_by
    found: Result
    if asked.question is None or not asked.question.apart:
        found = run_samples(
            asked,
            tables,
            parameters,
            at=at,
            bounds=bounds,
            columns=columns,
            units=units,
            unit_rows=unit_rows,
            missing=missing,
            names=names,
            curated=curated,
            progress=progress,
        )
        return found
    owners = owner_names(names, len(tables))
    if columns is not None:
        raise InputError("each table has columns of its own: leave columns out")
    draw = drawing(unit_rows, units)
    held = read_variables(tables, bounds, None, missing).apart(
        [units] * len(tables), [deepcopy(draw) for _ in tables]
    )
    found = run_tables(asked, held, owners, parameters, at=at, curated=curated, progress=progress)
    return found


def run_samples(
    procedure: str | Procedure,
    samples: Sequence[Any],
    parameters: Mapping[str, Any],
    *,
    at: Terms,
    bounds: Any,
    columns: Sequence[str] | None,
    units: Any,
    missing: Missing,
    names: Sequence[str] | None,
    unit_rows: UnitRows = "average",
    group: str | None = None,
    curated: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Run the study of samples with the same columns, among them the one of the groups if it is named."""
    owners = owner_names(names, len(samples))
    tables = read_tables(
        samples,
        columns,
        units=units,
        bounds=bounds,
        missing=missing,
        names=owners,
        unit_rows=unit_rows,
    )
    if group is not None and group not in {column.name for column in tables[0].domain.columns}:
        raise InputError(f"neither samples nor bounds have a column {group!r} to take groups from")
    return run_tables(procedure, tables, owners, parameters, at=at, curated=curated, progress=progress)
