"""Noisy counts in one process, and tests on counts: identity, homogeneity, independence, strata, survival."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import OWNER, CountedTable, owner_names, run_tables, terms
from tacit.in_process.samples import Missing, array_of, drawing, read_columns, read_variables
from tacit.local.any_procedure import run_samples
from tacit.local.randomised import RandomisedColumn, one_sample, run_beside
from tacit_protocol.domain import LEVELS_MAX, CategoricalColumn, Domain, Table
from tacit_protocol.features.cell_counts import CELLS_MAX, CellGrid
from tacit_protocol.messages.study import UNITS_MAX, UnitRows
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.masking import Aggregation

if TYPE_CHECKING:
    from tacit.results import (
        DecisionResult,
        HomogeneityResult,
        IdentityResult,
        IndependenceTableResult,
        NoisyCountsResult,
        StratifiedTableResult,
        SurvivalResult,
    )

Noise = Literal["gaussian", "laplace"]
Unlisted = Literal["cells", "last"]
Cuts = Mapping[str, Sequence[float]]


def noisy_counts(
    *samples: Any,
    epsilon: float,
    delta: float = 0.0,
    noise: Noise = "laplace",
    rho: float | None = None,
    bounds: Any = None,
    cuts: Cuts | None = None,
    unlisted: Unlisted = "cells",
    aggregation: Aggregation = "separate",
    colluders: int | None = None,
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int | None = None,
) -> "NoisyCountsResult":
    """Release noisy counts of the cells of one column, or of the cross product of several.

    Args:
        samples: arrays may be of categories.
        seed: has no effect on the noise.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A result with ``table`` and ``to_pandas()``.

    Example:
        >>> import tacit.local
        >>> result = tacit.local.noisy_counts(["a", "b", "a"], epsilon=1, bounds=["a", "b"])
        >>> result.table.shape
        (4,)
    """
    found: NoisyCountsResult = run_samples(
        "noisy_counts",
        samples,
        _parameters(noise, rho, cuts, unlisted) | {"aggregation": aggregation, "colluders": colluders},
        at=terms(epsilon, delta, alpha, seed),
        bounds=bounds,
        columns=columns,
        units=units,
        missing=missing,
        names=names,
    )
    return found


def homogeneity(
    *samples: Any,
    epsilon: float,
    delta: float = 0.0,
    noise: Noise = "laplace",
    rho: float | None = None,
    bounds: Any = None,
    cuts: Cuts | None = None,
    unlisted: Unlisted = "cells",
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    n_replicates: int | None = None,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> "HomogeneityResult":
    """Test privately whether two or more owners' categories have one distribution.

    Args:
        samples: or, without ``bounds``, the counts themselves: arrays of whole numbers of one shape.

    Other arguments: :mod:`tacit.local`.

    Example:
        >>> import tacit.local
        >>> result = tacit.local.homogeneity([900, 50, 50], [300, 300, 400], epsilon=2, seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    found: HomogeneityResult
    if bounds is None:
        found = run_tables(
            "homogeneity",
            _counted(samples, units),
            owner_names(names, len(samples)),
            _parameters(noise, rho, cuts, "last", n_replicates),
            at=at,
            progress=progress,
        )
    else:
        found = run_samples(
            "homogeneity",
            samples,
            _parameters(noise, rho, cuts, unlisted, n_replicates),
            at=at,
            bounds=bounds,
            columns=columns,
            units=units,
            missing=missing,
            names=names,
            progress=progress,
        )
    return found


def independence_table(
    *variables: Any,
    epsilon: float,
    delta: float = 0.0,
    noise: Noise = "laplace",
    rho: float | None = None,
    bounds: Any = None,
    cuts: Cuts | None = None,
    unlisted: Unlisted = "cells",
    units: npt.ArrayLike | None = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    alpha: float = 0.05,
    n_replicates: int | None = None,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> "IndependenceTableResult":
    """Test privately whether categories are independent, by a noisy contingency table.

    Args:
        variables: two or more columns; or, without ``bounds``, one table of counts, with an axis for each
            variable. Or what :func:`randomise_column` released, and one column, or a table, of another owner,
            whose ``bounds`` are given.
        epsilon: budget to spend, as delta.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with Cramér's V and its interval.

    Example:
        >>> import tacit.local
        >>> result = tacit.local.independence_table([[400, 100], [100, 400]], epsilon=2, seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    found: IndependenceTableResult
    if variables and isinstance(variables[0], RandomisedColumn):
        if len(variables) != 2:
            raise InputError("beside a randomised column, pass one column, or a table of several")
        found = run_beside(
            "independence_table",
            variables[0],
            read_columns(variables[1], "y", bounds, missing),
            _parameters(noise, rho, cuts, unlisted, n_replicates),
            given=(units, names),
            at=at,
        )
        return found
    held: Sequence[Table]
    if bounds is None:
        if len(variables) != 1:
            raise InputError("without bounds, pass one table of counts; or say each variable's levels")
        drawing(unit_rows, units)  # refuses to draw rows of counts
        held, unlisted = _counted(variables, units, names), "last"
    else:
        held = [read_variables(variables, bounds, names, missing).together(units, unit_rows)]
    found = run_tables(
        "independence_table",
        held,
        [OWNER],
        _parameters(noise, rho, cuts, unlisted, n_replicates),
        at=at,
        progress=progress,
    )
    return found


def stratified_table(
    *samples: Any,
    epsilon: float,
    delta: float = 0.0,
    group: str | RandomisedColumn | None = None,
    outcome: str | None = None,
    event: str | None = None,
    noise: Noise = "laplace",
    rho: float | None = None,
    bounds: Any = None,
    cuts: Cuts | None = None,
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    n_replicates: int | None = None,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> "StratifiedTableResult":
    """Test privately whether groups differ in an outcome within every owner, and estimate by how much.

    Every owner is a stratum, and so is each combination of the further columns in it: what differs between
    owners neither makes a difference nor hides one. No curator is needed.

    Args:
        samples: or, without ``bounds``, the counts themselves: arrays (groups, outcomes) or
            (groups, outcomes, ...).
        group: name of the column of the groups; by default the first one. Or what :func:`randomise_column`
            released of them, beside one sample of another owner: effects are of the groups themselves.
        outcome: name of the column that they may differ in; by default the first of the others.
        event: the outcome's level whose risk is compared; by default the last one of two, each of more.
        columns: all but two stratify.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with ``odds_ratio`` and its ``interval``, ``effects``, ``effects_by_owner`` and
        ``heterogeneity_pvalue``.

    Example:
        >>> import tacit.local
        >>> north, south = [[400, 100], [300, 200]], [[90, 10], [80, 20]]
        >>> result = tacit.local.stratified_table(north, south, epsilon=4, seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    parameters = _parameters(noise, rho, cuts, "cells" if bounds is not None else "last", n_replicates)
    parameters |= {"outcome": outcome, "event": event}
    found: StratifiedTableResult
    if isinstance(group, RandomisedColumn):
        found = run_beside(
            "stratified_table",
            group,
            one_sample(samples, bounds, columns, missing),
            parameters | {"group": group.column.name},
            given=(units, names),
            at=at,
        )
    elif bounds is None:
        found = run_tables(
            "stratified_table",
            _counted(samples, units),
            owner_names(names, len(samples)),
            parameters | {"group": group},
            at=at,
            progress=progress,
        )
    else:
        found = run_samples(
            "stratified_table",
            samples,
            parameters | {"group": group},
            at=at,
            bounds=bounds,
            columns=columns,
            units=units,
            missing=missing,
            names=names,
            progress=progress,
        )
    return found


def survival(
    *samples: Any,
    time: str,
    event: str,
    intervals: Sequence[float],
    bounds: Mapping[str, Sequence[str]],
    epsilon: float,
    delta: float = 0.0,
    group: str | RandomisedColumn | None = None,
    event_level: str | None = None,
    strata: Sequence[str] = (),
    noise: Noise = "laplace",
    rho: float | None = None,
    aggregation: Aggregation = "separate",
    colluders: int | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    n_replicates: int | None = None,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> "SurvivalResult":
    """Estimate survival curves privately and, with groups, test whether their times to the event differ.

    The test and the hazard ratios are within owners; the curves are of all owners' units together. No curator
    is needed.

    Args:
        time: name of the column of times, until the event or until a unit was last seen.
        event: name of the column that says which of the two; it has two levels.
        intervals: ends of the public intervals of time, increasing: the first is the beginning, the last the
            end of follow-up. Times beyond them count in the first or the last interval.
        bounds: the levels of the categorical columns, by name.
        group: name of the column of the groups, which are compared with the first one listed; None for one
            curve. Or what :func:`randomise_column` released of them, beside one sample of another owner:
            curves and effects are of the groups themselves.
        event_level: the level that means the event; by default the last one listed.
        strata: further columns that stratify within owners.
        aggregation: masked, one table of all owners' units, and no finding within owners.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A result with ``curves``, and with groups ``effects`` (hazard ratios, differences of restricted means)
        and ``hazard_ratio``: then it is a test.

    Example:
        >>> import tacit.local
        >>> people = {"months": [2.0, 5.0, 9.0] * 200, "died": ["yes", "no", "yes"] * 200}
        >>> import pandas
        >>> result = tacit.local.survival(
        ...     pandas.DataFrame(people), time="months", event="died", intervals=[0, 4, 8, 12],
        ...     bounds={"died": ["no", "yes"]}, epsilon=2, seed=1,
        ... )
        >>> result.curves[0].median is not None
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    edges = [float(edge) for edge in intervals]
    if len(edges) < 3 or not all(low < high for low, high in pairwise(edges)):
        raise InputError("intervals are three ends or more, increasing: a beginning, cuts, an end")
    if time in bounds:
        raise InputError(
            f"the bounds of {time!r} are the first and the last of intervals: leave it out of bounds"
        )
    columns = [time, event, *([group] if isinstance(group, str) else []), *strata]
    known = {time: (edges[0], edges[-1])} | {name: list(levels) for name, levels in bounds.items()}
    parameters = _parameters(noise, rho, {time: edges[1:-1]}, "cells", n_replicates)
    parameters |= {"time": time, "event": event, "event_level": event_level}
    found: SurvivalResult
    if isinstance(group, RandomisedColumn):
        found = run_beside(
            "survival",
            group,
            one_sample(samples, known, columns, missing),
            parameters | {"group": group.column.name},
            given=(units, names),
            at=at,
        )
    else:
        found = run_samples(
            "survival",
            samples,
            parameters | {"group": group, "aggregation": aggregation, "colluders": colluders},
            at=at,
            bounds=known,
            columns=columns,
            units=units,
            missing=missing,
            names=names,
            progress=progress,
        )
    return found


def _parameters(
    noise: Noise,
    rho: float | None,
    cuts: Cuts | None,
    unlisted: Unlisted,
    n_replicates: int | None = None,
) -> dict[str, Any]:
    edges = None if cuts is None else {name: [float(cut) for cut in inner] for name, inner in cuts.items()}
    return {"noise": noise, "rho": rho, "cuts": edges, "unlisted": unlisted, "replicates": n_replicates}


def _counted(tables: Sequence[Any], units: Any, names: Sequence[str] | None = None) -> Sequence[Table]:
    """Read counts of whole units; every cell is a level, and no cell is added."""
    if units is not None:
        raise InputError("counts have no units: they are of units already")
    try:
        arrays = [_whole_counts(table) for table in tables]
    except InputError as error:
        raise InputError(f"{error}; for categories state bounds=") from None
    if not arrays or arrays[0].ndim < 1 or any(array.shape != arrays[0].shape for array in arrays):
        raise InputError("counts must be arrays of one shape; for categories state bounds=")
    shape = arrays[0].shape
    listed = [f"x{axis}" for axis in range(1, len(shape) + 1)] if names is None else list(names)
    if len(listed) != len(shape):
        raise InputError(f"names holds {len(listed)} names for {len(shape)} axes: pass one for each")
    domain = Domain(
        columns=tuple(
            CategoricalColumn(name=name, levels=tuple(str(level) for level in range(size)))
            for name, size in zip(listed, shape, strict=True)
        )
    )
    cells = np.arange(int(np.prod(shape)))
    return [CountedTable(domain, array.ravel(), cells) for array in arrays]


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
) -> "IdentityResult | DecisionResult":
    """Test privately whether counts come from a known distribution.

    Args:
        counts: (k,) whole counts of units by cell, at least two cells.
        q: (k,) the known distribution; adds to 1. A cell of probability 0 may be counted.
        epsilon: budget to spend, as delta.
        method: ``mcgof`` (noisy counts), ``zcdp-gof`` (Gaussian counts; needs delta), ``privit-laplace`` (one
            noisy statistic), ``privit`` (Algorithm 1: one decision) or ``repetition`` (a baseline).
        delta: used by zcdp-gof alone.
        parameters: such as ``distance``, ``clipping`` or ``rho``.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test; or a decision and nothing finer for ``privit`` and ``repetition``.

    Example:
        >>> import tacit.local
        >>> result = tacit.local.identity([900, 50, 50], [1 / 3, 1 / 3, 1 / 3], epsilon=1, seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    counted, known = _checked(counts, q)
    domain, cells, size = columns_of(len(counted))
    probabilities = np.zeros(size)
    probabilities[cells] = known
    found: IdentityResult | DecisionResult = run_tables(
        "identity",
        [CountedTable(domain, counted, cells)],
        [OWNER],
        {"method": method, "probabilities": probabilities.tolist()} | parameters,
        at=at,
        progress=progress,
    )
    return found


def _checked(
    counts: npt.ArrayLike, q: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    counted = _whole_counts(counts)
    try:
        known = array_of(q, "q").astype(np.float64)
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


def _whole_counts(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return counts of units by cell, of any shape.

    Raises:
        InputError: they are not whole numbers, none negative and at least one positive, or too many.
    """
    given = array_of(values, "counts")
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)):
        raise InputError("counts must be finite numbers")
    if given.size > CELLS_MAX:
        raise InputError(f"there are more than {CELLS_MAX} counts: use fewer cells")
    if np.any(given != np.floor(given)) or np.any(given < 0) or not np.any(given > 0):
        raise InputError("counts must be whole numbers, none negative, at least one of them positive")
    if float(given.sum(dtype=np.float64)) > UNITS_MAX:
        raise InputError(f"counts must add up to {UNITS_MAX} units at most")
    return given.astype(np.int64)
