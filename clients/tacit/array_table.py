"""A table held in memory, streamed in chunks as the services stream theirs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.frames import Sample
from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.encode import encode
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.workers import ThreadWorkers, Workers

CHUNK_ROWS = 65_536
"""Rows encoded at a time: a few dozen megabytes for tables of hundreds of columns."""


_THREADS = ThreadWorkers(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


@dataclass(frozen=True)
class ArrayTable:
    """A sample encoded in a domain; implements :class:`tacit_protocol.domain.table.Table`.

    ``units`` is the number of privacy units; ``starts`` (units + 1,) holds the first row of each unit once
    rows are ordered by unit, or is None where every row is a unit.
    """

    domain: Domain
    units: int
    columns: dict[str, Any]
    starts: npt.NDArray[np.int64] | None
    chunk_rows: int = CHUNK_ROWS

    @classmethod
    def of(
        cls,
        sample: Sample,
        domain: Domain,
        unit: npt.ArrayLike | None = None,
        draw: np.random.Generator | None = None,
    ) -> "ArrayTable":
        """Build a table; ``unit`` (rows,) names each row's privacy unit, ``draw`` draws one row of each.

        Raises:
            InputError: a numeric column holds other things, or ``unit`` does not fit the rows.
        """
        numeric = {column.name: sample.numeric(column.name) for column in domain.numeric}
        levels = {column.name: sample.categorical(column.name) for column in domain.categorical}
        columns: dict[str, Any] = numeric | levels
        if unit is None:
            return cls(domain, sample.rows, columns, None)
        codes = _unit_codes(_array(unit, sample.rows))
        order = np.argsort(codes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.int64)
        if draw is not None:
            order = order[starts[:-1] + (draw.random(len(starts) - 1) * np.diff(starts)).astype(np.int64)]
            return cls(domain, len(order), {name: values[order] for name, values in columns.items()}, None)
        ordered = {name: values[order] for name, values in columns.items()}
        return cls(domain, len(starts) - 1, ordered, starts)

    @property
    def workers(self) -> Workers:
        """A thread for each of the processors that this process may use."""
        return _THREADS

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the rows; all rows of a unit lie in one chunk."""
        if self.starts is None:
            rows = self.units
            for start in range(0, rows, self.chunk_rows):
                yield encode(self.domain, self._rows(start, min(start + self.chunk_rows, rows)))
            return
        first = 0
        while first < self.units:
            # As many whole units as fit; one that is larger than a chunk gets a chunk of its own.
            limit = self.starts[first] + self.chunk_rows
            last = max(first + 1, int(np.searchsorted(self.starts, limit, side="right")) - 1)
            sizes = np.diff(self.starts[first : last + 1])
            unit = np.repeat(np.arange(last - first, dtype=np.int64), sizes)
            rows_of = self._rows(int(self.starts[first]), int(self.starts[last]))
            yield encode(self.domain, rows_of, unit, last - first)
            first = last

    def _rows(self, start: int, stop: int) -> dict[str, Any]:
        return {name: values[start:stop] for name, values in self.columns.items()}


def drawing(unit_rows: str, units: object) -> np.random.Generator | None:
    """Return what draws one row of each unit where that is asked for; None keeps all of them.

    It is secret and drawn afresh: which row another unit has says nothing, whoever is replaced.

    Raises:
        InputError: ``unit_rows`` is neither "average" nor "one", or no units have several rows.
    """
    if unit_rows not in {"average", "one"}:
        raise InputError('unit_rows must be "average" or "one"')
    if unit_rows == "average":
        return None
    if units is None:
        raise InputError('unit_rows="one" needs units: they say whose row each is')
    return np.random.default_rng()


def _array(unit: npt.ArrayLike, rows: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(unit)
    except ValueError:  # lists of several lengths
        array = np.empty(0)
    if array.shape != (rows,):
        raise InputError(f"units must name one unit for each of the {rows} rows, in an array of that length")
    return array


def _unit_codes(unit: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if any(value is None or value != value for value in unit.tolist()):  # noqa: PLR0124 (NaN)
        raise InputError("units hold missing values: give every row a unit")
    try:
        codes = np.unique(unit, return_inverse=True)[1]
    except TypeError:
        codes = np.unique(np.array([str(value) for value in unit.tolist()]), return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64).reshape(-1)
