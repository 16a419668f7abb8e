"""Samples and variables as they are passed to `tacit.local`, and refusals by the names of arguments."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.samples import MISSING_ADVICE, Sample, domain_of, read_samples
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn

ARGUMENTS: Mapping[str, str] = {"parameter permutations": "n_permutations"}
"""What arguments of this package's functions are called in a study, where that is another name."""


@contextmanager
def by_argument_names() -> Iterator[None]:
    """Say n_permutations where a refusal would say what a study's file calls it."""
    try:
        yield
    except StudyRefusedError as error:
        text = str(error)
        for theirs, ours in ARGUMENTS.items():
            text = text.replace(theirs, ours)
        raise StudyRefusedError(text) from error.__cause__


def read_with_units(
    samples: Sequence[Any], columns: Sequence[str] | None, units: str | Sequence[npt.ArrayLike] | None
) -> tuple[list[Sample], list[npt.ArrayLike | None]]:
    """Read samples that have the same columns, and each one's units: (rows,), or None where rows are units.

    Raises:
        InputError: the samples or the units cannot be used; the message says what to change.
    """
    if isinstance(units, str):
        wanted = None if columns is None else [name for name in columns if name != units] + [units]
        read = read_samples(samples, wanted)
        if units not in read[0].columns:
            raise InputError(f"the samples have no column {units!r} to take units from")
        return [_without(sample, units) for sample in read], [sample.columns[units] for sample in read]
    read = read_samples(samples, columns)
    if units is None:
        return read, [None] * len(read)
    if len(units) != len(read):
        raise InputError(f"units holds {len(units)} arrays for {len(read)} samples: pass one for each")
    return read, list(units)


def _without(sample: Sample, name: str) -> Sample:
    kept = {column: values for column, values in sample.columns.items() if column != name}
    if not kept:
        raise InputError("the unit column is the only column: the test needs others")
    return Sample(kept)


Missing = Literal["refuse", "encode"]


@dataclass(frozen=True)
class Variables:
    """Variables over the same rows: their columns side by side, and which belong to which variable."""

    sample: Sample
    domain: Domain
    groups: tuple[tuple[str, ...], ...]


def read_variables(
    variables: Sequence[Any],
    bounds: Any,
    names: Sequence[str] | None,
    missing: Missing,
    *,
    arguments: Sequence[str] | None = None,
    same_rows: bool = True,
) -> Variables:
    """Read variables.

    Args:
        variables: each an array (n,) or (n, D), or a column or a table of pandas, Polars or Arrow.
        bounds: a list with each variable's bounds, or anything that
            :func:`~tacit.in_process.samples.domain_of` takes for all columns.
        names: the variables' names; by default x1, x2, ... for arrays, and a table's own for its columns.
        missing: whether a missing value is refused, or encoded as studies do.
        arguments: of two variables, what the caller wrote them as, which no names= can change: messages say
            so, and arrays are named so, instead of x1, x2, ...
        same_rows: whether all must have the same number of rows.

    Raises:
        InputError: the variables cannot be used as they are; the message says what to change.
    """
    if len(variables) < 2:
        raise InputError("pass at least two variables: independence is a question about several")
    default = arguments or [f"x{index}" for index in range(1, len(variables) + 1)]
    listed = list(default if names is None else names)
    if len(listed) != len(variables):
        raise InputError(f"names holds {len(listed)} names for {len(variables)} variables: pass one for each")
    read = [
        _read(variable, name, named=names is not None)
        for variable, name in zip(variables, listed, strict=True)
    ]
    if same_rows:
        _require_same_rows(read, listed)
    groups = tuple(tuple(sample.columns) for sample in read)
    columns = [name for group in groups for name in group]
    if len(set(columns)) != len(columns):
        if arguments is None:
            raise InputError(
                "two variables have a column of the same name: pass names=, one for each variable"
            )
        shared = min(set(groups[0]) & set(groups[1]))
        both = " and ".join(arguments)
        raise InputError(f"{both} both have a column named {shared!r}: rename it in one of them")
    domain = _domain(bounds, read, columns, listed)
    joined = Sample({name: values for sample in read for name, values in sample.columns.items()})
    if missing == "refuse":
        _require_complete(joined, domain, dict(zip(columns, _owners_of(groups, listed), strict=True)))
    elif missing != "encode":
        raise InputError('missing must be "refuse" or "encode"')
    return Variables(joined, domain, groups)


def read_columns(variable: Any, name: str, bounds: Any, missing: Missing) -> tuple[Sample, Domain]:
    """Read one variable, which the caller wrote as ``name``, with its bounds.

    Raises:
        InputError: it cannot be used as it is; the message says what to change.
    """
    sample = _read(variable, name, named=False)
    columns = list(sample.columns)
    domain = domain_of({own: list(bounds) for own in columns} if _are_levels(bounds) else bounds, columns)
    if missing == "refuse":
        _require_complete(sample, domain, dict.fromkeys(columns, name))
    elif missing != "encode":
        raise InputError('missing must be "refuse" or "encode"')
    return sample, domain


def _read(variable: Any, name: str, named: bool) -> Sample:
    column = _as_column(variable)
    if column is not None:
        label, values = column
        read = read_samples([values], None, name)[0]
        return Sample({name if named or label is None else label: next(iter(read.columns.values()))})
    sample = read_samples([variable], None, name)[0]
    if not named and not isinstance(variable, np.ndarray | list | tuple):
        return sample
    if len(sample.columns) == 1:
        return Sample({name: next(iter(sample.columns.values()))})
    return Sample({f"{name}.{own.removeprefix('x')}": values for own, values in sample.columns.items()})


def _as_column(variable: Any) -> tuple[str | None, Any] | None:
    """Return the name and the values of a pandas, Polars or Arrow column; None for everything else."""
    if isinstance(variable, np.ndarray | list | tuple):
        return None
    try:
        series = nw.from_native(variable, series_only=True)
    except TypeError:
        return None
    label = series.name if isinstance(series.name, str) and series.name else None
    return label, series.to_frame().to_native()


def _require_same_rows(read: Sequence[Sample], names: Sequence[str]) -> None:
    for sample, name in zip(read[1:], names[1:], strict=True):
        if sample.rows != read[0].rows:
            raise InputError(
                f"{name} has {sample.rows} rows and {names[0]} has {read[0].rows}: every variable must "
                "describe the same rows, in the same order"
            )


def _owners_of(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    return [name for group, name in zip(groups, names, strict=True) for _ in group]


def _domain(bounds: Any, read: Sequence[Sample], columns: Sequence[str], listed: Sequence[str]) -> Domain:
    if not isinstance(bounds, list | tuple) or not _one_for_each(bounds, len(read), len(columns)):
        if _are_levels(bounds):
            bounds = {name: list(bounds) for name in columns}
        return domain_of(bounds, columns)
    for bound, variable in zip(bounds, listed, strict=True):
        if bound is None:
            raise InputError(f"{variable} has no bounds: {MISSING_ADVICE}")
    found: list[Column] = []
    for bound, sample in zip(bounds, read, strict=True):
        own = {name: list(bound) for name in sample.columns} if _are_levels(bound) else bound
        if isinstance(own, NumericColumn | CategoricalColumn):
            own = {name: own.model_copy(update={"name": name}) for name in sample.columns}
        found += domain_of(own, list(sample.columns)).columns
    return domain_of({column.name: column for column in found}, columns)


def _one_for_each(bounds: Sequence[Any], variables: int, columns: int) -> bool:
    """Tell bounds of each variable from one pair, or one list of levels, for every column."""
    scalars = all(isinstance(bound, str) or np.isscalar(bound) for bound in bounds)
    if scalars or (len(bounds) != variables and len(bounds) == columns):
        return False
    if len(bounds) != variables:
        raise InputError(f"bounds holds {len(bounds)} items for {variables} variables: pass one for each")
    return True


def _are_levels(bound: Any) -> bool:
    return (
        not isinstance(bound, str | Mapping | Domain)
        and isinstance(bound, Sequence | np.ndarray)
        and len(bound) > 0
        and all(isinstance(value, str) for value in bound)
    )


def _require_complete(sample: Sample, domain: Domain, variable_of: Mapping[str, str]) -> None:
    gaps = [column.name for column in domain.numeric if not np.isfinite(sample.numeric(column.name)).all()]
    gaps += [
        column.name
        for column in domain.categorical
        if any(value is None for value in sample.categorical(column.name))
    ]
    if gaps:
        name = variable_of[gaps[0]]
        raise InputError(
            f"{name} holds missing values (NaN, an infinity or None): leave those rows out of every "
            'variable, or pass missing="encode" to treat them as studies do'
        )
