"""A study's draft from the command line's flags, or from a TOML file with flags on top."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.studies.draft import StudyDraft


def draft_from(
    file: Path | None,
    fields: Mapping[str, Any],
    columns: Sequence[str],
    owners: Sequence[str],
    parameters: Sequence[str],
    *,
    reuses: Sequence[str] = (),
) -> StudyDraft:
    """Build a draft from a file or from flags.

    Args:
        file: the draft in TOML, or None.
        fields: the draft's plain fields; those that are None are left out.
        columns: each as :func:`parse_column` reads it.
        owners: each as :func:`parse_owner` reads it.
        parameters: each as :func:`parse_parameter` reads it.
        reuses: ``owner=digest`` for each owner whose earlier release is read again.

    Raises:
        InputError: both or neither are given, or a flag cannot be read.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None:
        if given or columns or owners or parameters or reuses:
            raise InputError("give a TOML file or flags, not both")
        return StudyDraft.from_toml(file)
    if not columns or not owners:
        raise InputError("give a TOML file, or at least --title, --column, --owner, --epsilon and --delta")
    earlier = dict(parse_reuse(reuse) for reuse in reuses)
    named = [parse_owner(owner) for owner in owners]
    if unknown := sorted(set(earlier) - {owner["name"] for owner in named}):
        raise InputError(f"--reuse {unknown[0]}=...: name that owner with --owner too")
    return StudyDraft.from_dict(
        {
            **given,
            "columns": [parse_column(column) for column in columns],
            "owners": [owner | _reuse_of(owner["name"], earlier) for owner in named],
            "parameters": dict(parse_parameter(parameter) for parameter in parameters),
        }
    )


def procedure_or_file(source: str | None) -> tuple[str | None, Path | None]:
    """Tell a procedure's name from the name of a TOML file: what `study create` is given first.

    A file that bears a procedure's name is written ``./screening``.
    """
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load when needed)

    if source is None or source in PROCEDURES:
        return source, None
    return None, Path(source)


def title_of(procedure: str) -> str:
    """Return the question that a procedure answers, for a study without a title."""
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415 (statistics load)

    return procedure_named(procedure).title


def parse_column(text: str) -> dict[str, Any]:
    """Read ``age:0:120`` (numeric, with bounds) or ``sex=F,M`` (categorical, with levels)."""
    name, equals, levels = text.partition("=")
    if equals and name and levels:
        return {"kind": "categorical", "name": name, "levels": levels.split(",")}
    try:
        name, lower, upper = text.rsplit(":", 2)
        return {"kind": "numeric", "name": name, "lower": float(lower), "upper": float(upper)}
    except ValueError:
        raise InputError(
            f"--column {text}: write name:lower:upper for numbers, or name=level,level for categories"
        ) from None


def parse_owner(text: str) -> dict[str, Any]:
    """Read ``cleveland/patients``, optionally with the number of units expected, the owner's key and columns.

    All of it: ``cleveland/patients:303@KEY=age,sex``. Columns are those of an owner who does not hold all.
    """
    described, equals, columns = text.partition("=")
    place, at, key = described.partition("@")
    place, _, units = place.partition(":")
    name, slash, data_set = place.partition("/")
    if not slash or (units and not units.isdigit()) or (at and not key) or (equals and not columns):
        raise InputError(
            f"--owner {text}: write owner/data-set, owner/data-set:units, either with @key, and "
            "=column,column where it does not hold all columns"
        )
    found: dict[str, Any] = {"name": name, "data_set": data_set}
    if columns:
        found["columns"] = columns.split(",")
    return found | ({"units": int(units)} if units else {}) | ({"key": key} if key else {})


def parse_reuse(text: str) -> tuple[str, str]:
    """Read ``owner=digest``: whose release for which earlier study is read again."""
    name, equals, digest = text.partition("=")
    if not equals or not name or not digest:
        raise InputError(f"--reuse {text}: write owner=digest, the whole digest of the earlier study")
    return name, digest


def _reuse_of(name: str, earlier: Mapping[str, str]) -> dict[str, str]:
    return {"reuses": earlier[name]} if name in earlier else {}


def parse_parameter(text: str) -> tuple[str, Any]:
    """Read ``name=value``; the value is JSON, or text where it is not JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--parameter {text}: write name=value")
    try:
        return name, json.loads(value)
    except RecursionError:
        raise InputError(f"--parameter {name}: lists within lists without end; write its value") from None
    except ValueError:
        return name, value
