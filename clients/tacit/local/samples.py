"""Samples and their privacy units, as they are passed to :mod:`tacit.local`."""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from tacit.errors import InputError
from tacit.frames import Sample, read_samples


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


def owner_names(names: Sequence[str] | None, count: int) -> list[str]:
    """Return the owners' names: those given, or sample-1, sample-2, ...

    Raises:
        InputError: there is not one for each sample.
    """
    listed = [f"sample-{index}" for index in range(1, count + 1)] if names is None else list(names)
    if len(listed) != count:
        raise InputError(f"names holds {len(listed)} names for {count} samples: pass one for each")
    return listed
