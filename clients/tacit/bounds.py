"""Public bounds and levels, as users write them, made into a domain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from tacit.errors import InputError
from tacit_protocol.domain.columns import COLUMNS_MAX, CategoricalColumn, Column, Domain, NumericColumn

MISSING_ADVICE = (
    "bounds must be public: write down what is known without looking at the data, such as "
    'bounds={"age": (0, 120), "sex": ["F", "M"]}; bounds taken from the data would leak it'
)


def domain_of(bounds: Any, columns: Sequence[str]) -> Domain:
    """Build the domain of ``columns``, in their order.

    Args:
        bounds: by column name a (lower, upper) pair, a list of levels (text) or a Column; or an array
            (D, 2) of pairs in the order of the columns; or one pair for all of them.
        columns: the columns' names.

    Raises:
        InputError: bounds are missing, not finite, not ordered, or do not fit the columns.
    """
    if bounds is None:
        raise InputError(MISSING_ADVICE)
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"{len(columns)} columns, where a study takes {COLUMNS_MAX} at most: leave some out")
    if isinstance(bounds, Domain):
        bounds = {column.name: column for column in bounds.columns}
    by_name = bounds if isinstance(bounds, Mapping) else _by_position(bounds, columns)
    absent = [name for name in columns if name not in by_name]
    if absent:
        raise InputError(f"no bounds for {', '.join(map(repr, absent))}: {MISSING_ADVICE}")
    unknown = [str(name) for name in by_name if name not in columns]
    if unknown:
        raise InputError(f"bounds name {', '.join(map(repr, unknown))}, which the samples do not have")
    try:
        return Domain(columns=tuple(_bounded_column(name, by_name[name]) for name in columns))
    except ValidationError as error:
        raise InputError(f"bounds: {_reason(error)}") from error


def _by_position(bounds: Any, columns: Sequence[str]) -> dict[str, Any]:
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("bounds must be a dictionary, one (lower, upper) pair, or an array (D, 2)") from None
    if array.shape == (2,):
        return dict.fromkeys(columns, array)
    if array.shape != (len(columns), 2):
        raise InputError(
            f"bounds have shape {array.shape}: for {len(columns)} columns pass ({len(columns)}, 2), "
            "or one (lower, upper) pair"
        )
    return dict(zip(columns, array, strict=True))


def _bounded_column(name: str, bound: Any) -> Column:
    if isinstance(bound, NumericColumn | CategoricalColumn):
        return bound
    values = [bound] if isinstance(bound, str) else _listed(name, bound)
    try:
        if values and all(isinstance(value, str) for value in values):
            return CategoricalColumn(name=name, levels=tuple(values))
        lower, upper = (float(value) for value in values)
    except ValidationError as error:
        raise InputError(f"bounds of {name!r}: {_reason(error)}") from error
    except (TypeError, ValueError):
        raise InputError(
            f"bounds of {name!r} must be a (lower, upper) pair of numbers or a list of levels (text)"
        ) from None
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise InputError(f"bounds of {name!r} must be finite numbers, not NaN or infinity")
    try:
        return NumericColumn(name=name, lower=lower, upper=upper)
    except ValidationError as error:
        raise InputError(f"bounds of {name!r}: {_reason(error)}") from error


def _listed(name: str, bound: Any) -> list[Any]:
    try:
        return list(bound)
    except TypeError:
        raise InputError(
            f"bounds of {name!r} must be a (lower, upper) pair of numbers or a list of levels (text)"
        ) from None


def _reason(error: ValidationError) -> str:
    return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
