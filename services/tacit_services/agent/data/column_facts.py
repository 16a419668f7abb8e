"""What an owner's rows hold of columns with public bounds or levels: shares readable, within and missing.

These are exact facts of the data, for the owner's own people on the owner's own machine: nothing of them is
logged, kept or sent, and nothing that an agent decides by itself looks at them.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.arrow_columns import is_text, numbers, text, vectors
from tacit_protocol.domain import (
    CategoricalColumn,
    Column,
    DataError,
    NumericColumn,
    VectorColumn,
    bounds_words,
    encode_categorical,
)
from tacit_protocol.messages.study import Owner, Study
from tacit_services.agent.data.csv_source import CsvSource, RowFaults
from tacit_services.agent.data.source import Columns, Source, require_columns

BATCH_ROWS = 65_536
"""Rows that are read at a time."""

READ_MIN = 0.9
"""Least share of a column's values that must be readable. What is not counts as the middle of the bounds, and
a tenth of such values moves a mean by up to a twentieth of the bounds' width: as much as effects do."""

WITHIN_MIN = 0.5
"""Least share that must lie within the bounds or be listed: with less, the median itself is a bound or no
level, and a unit or coding is mistaken. Fewer beyond may be a tail that public bounds cut off: a check that
failed there would have people fit bounds to the data."""

FEW = 0.01
"""Share of values up to which what is wrong with them does little."""

State = Literal["ok", "warning", "failed"]

CAUTION = (
    "exact, and for the owner's own eyes alone: look for a mistaken unit or coding, and mend data or study; "
    "do not change declared bounds or levels because of it: those that follow the data leak it"
)

LEVELS_TOLD = 6
"""Most levels that a line names."""

_MISSING = re.compile(r"\s*([+-]?(nan|inf|infinity))?\s*", re.IGNORECASE)
"""Texts that stand for no number at all."""

_NUMERIC_CAUSES = {
    "they have decimal commas: write them with points": re.compile(r"\s*[+-]?\d*,\d+\s*"),
    "they have commas between thousands: write them without": re.compile(
        r"\s*[+-]?\d{1,3}(,\d{3})+(\.\d*)?\s*"
    ),
    "a unit or mark stands beside the number: write numbers alone": re.compile(
        r"\s*[<>=~]*\s*[+-]?\d+([.,]\d+)?\s*[^\d\s.,]\S*\s*|\s*[<>=~]+\s*[+-]?\d+([.,]\d+)?\s*"
    ),
}
"""What texts are that look like numbers and are none, the first that fits: each with what to do."""

WORDS = "they are words: write missing values as empty, or declare the column's levels"
SPELLED = "they are listed levels in other capitals, or with blanks: write levels and values alike"
NUMBERS = "they are listed levels written as other numbers are, such as 01 or 1.0 for 1: write them alike"
NOT_UTF8 = "they are not UTF-8: save the file as UTF-8"


def percent(part: int, whole: int) -> str:
    """Write a share that is never rounded to nothing or to all."""
    if part in (0, whole) or not whole:
        return "100 %" if whole and part == whole else "0 %"
    share = min(99.9, max(0.1, round(100 * part / whole, 1)))
    return f"{share:g} %"


@dataclass
class ColumnFacts:
    """Exact counts of one column's rows.

    Attributes:
        column: its name, bounds or levels.
        rows: how many there are.
        missing: of these, without a value.
        unreadable: with one that is not of the column's kind.
        within: of those that can be read, within the bounds, listed, or no longer than the norm.
        causes: what may have made values unreadable or unlisted, and of how many.
        seen: rows of each listed level.
        fault: why the whole column cannot be read.
    """

    column: Column | VectorColumn
    rows: int = 0
    missing: int = 0
    unreadable: int = 0
    within: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    fault: str | None = None

    @property
    def present(self) -> int:
        """Rows that have a value."""
        return self.rows - self.missing

    @property
    def readable(self) -> int:
        """Rows whose value can be read."""
        return self.present - self.unreadable

    def add(self, batch: pa.Array) -> None:
        """Count the rows of one batch."""
        if self.fault is not None:
            return
        try:
            if isinstance(self.column, NumericColumn):
                self._add_numbers(self.column, batch)
            elif isinstance(self.column, CategoricalColumn):
                self._add_levels(self.column, batch)
            else:
                self._add_vectors(self.column, batch)
        except DataError as error:
            self.fault = str(error)

    def _add_numbers(self, column: NumericColumn, batch: pa.Array) -> None:
        numbers(column.name, batch.slice(0, 0))  # whether the type has numbers at all
        values, counts = _distinct(batch)
        found = numbers(column.name, values)
        held = np.isfinite(found)
        absent: npt.NDArray[np.bool_] = np.array(values.is_null(nan_is_null=True).to_pylist(), dtype=np.bool_)
        if is_text(values.type):
            spelled = text(values)
            none = np.zeros(len(values), dtype=np.bool_)
            for place in np.flatnonzero(~held & ~absent):
                word = spelled.distinct[int(spelled.indices[place])] or ""
                none[place] = _MISSING.fullmatch(word) is not None
                if not none[place]:
                    self._count_cause(_numeric_cause(word), int(counts[place]))
            absent = absent | none
        else:
            absent = absent | ~held  # infinities, which stand for no number
        self._count(len(batch), counts, absent, ~held & ~absent)
        self.within += int(counts[held & (found >= column.lower) & (found <= column.upper)].sum())

    def _add_levels(self, column: CategoricalColumn, batch: pa.Array) -> None:
        text(batch.slice(0, 0))  # whether the type has texts at all
        values, counts = _distinct(batch)
        spelled = text(values)
        codes = encode_categorical(column, spelled)
        other, missing = len(column.levels), len(column.levels) + 1
        self._count(len(batch), counts, codes == missing, np.zeros(len(codes), dtype=np.bool_))
        self.within += int(counts[codes < other].sum())
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if code < other:
                level = column.levels[code]
                self.seen[level] = self.seen.get(level, 0) + count
        for place in np.flatnonzero(codes == other).tolist():
            word = spelled.distinct[int(spelled.indices[place])] or ""
            self._count_cause(_level_cause(word, column.levels), int(counts[place]))

    def _add_vectors(self, column: VectorColumn, batch: pa.Array) -> None:
        found = vectors(column.name, batch, column.length)
        held = np.asarray(np.isfinite(found).all(axis=1))
        absent: npt.NDArray[np.bool_] = np.array(batch.is_null().to_pylist(), dtype=np.bool_)
        self._count(len(batch), np.ones(len(batch), dtype=np.int64), absent, ~held & ~absent)
        norms = np.linalg.norm(np.where(held[:, None], found, 0.0), axis=1)
        self.within += int((held & (norms <= column.norm * (1 + 1e-9))).sum())

    def _count(
        self,
        rows: int,
        counts: npt.NDArray[np.int64],
        absent: npt.NDArray[np.bool_],
        unreadable: npt.NDArray[np.bool_],
    ) -> None:
        self.rows += rows
        self.missing += rows - int(counts.sum()) + int(counts[absent].sum())
        self.unreadable += int(counts[unreadable].sum())

    def _count_cause(self, cause: str | None, count: int) -> None:
        if cause is not None:
            self.causes[cause] = self.causes.get(cause, 0) + count

    @property
    def state(self) -> State:
        """Whether studies of the column would say anything of it."""
        if self.fault is not None or not self.present:
            return "failed"
        if self.readable < READ_MIN * self.present or self.within < WITHIN_MIN * self.readable:
            return "failed"
        wrong = self.unreadable > 0 or self.readable - self.within > FEW * self.readable
        return "warning" if wrong or self.missing > FEW * self.rows else "ok"

    @property
    def cause(self) -> str | None:
        """What most of the values that do not fit have in common; None where nothing is known."""
        listed = isinstance(self.column, CategoricalColumn)
        wrong = self.present - self.within if listed else self.unreadable
        found = max(self.causes.items(), key=lambda item: item[1], default=None)
        return found[0] if found is not None and 2 * found[1] >= wrong else None

    @property
    def words(self) -> str:
        """All shares in one line, with the cause of what is wrong."""
        return "; ".join(self._said())

    def _said(self) -> Iterator[str]:
        column = self.column
        if self.fault is not None:
            yield self.fault
            return
        if not self.present:
            yield "no row has a value"
            return
        if not isinstance(column, CategoricalColumn):
            what = "numbers" if isinstance(column, NumericColumn) else f"vectors of {column.length} numbers"
            yield f"{percent(self.readable, self.present)} can be read as {what}"
        if self.readable:
            yield self._within_words(column)
        if self.cause is not None:
            yield self.cause
        as_number = ""
        if self.missing and isinstance(column, NumericColumn):
            as_number = f", and would be read as {column.missing_value:g}"
        yield f"{percent(self.missing, self.rows)} is missing{as_number}"

    def _within_words(self, column: Column | VectorColumn) -> str:
        share = percent(self.within, self.readable)
        if isinstance(column, NumericColumn):
            return f"{share} lies within {bounds_words(column)}"
        if isinstance(column, VectorColumn):
            return f"{share} is no longer than {column.norm:g}"
        unseen = [level for level in column.levels if level not in self.seen]
        if not unseen:
            return f"{share} is listed"
        named = " or ".join(unseen[:LEVELS_TOLD]) + (" or others" if len(unseen) > LEVELS_TOLD else "")
        return f"{share} is listed, and no row has level {named}"

    def fields(self) -> dict[str, Any]:
        """Return the facts as plain values, with the same words."""
        return {
            "name": self.column.name,
            "state": self.state,
            "words": self.words,
            "rows": self.rows,
            "missing": self.missing,
            "readable": self.readable,
            "within": self.within,
        }


def column_facts(source: Source, columns: Sequence[Column | VectorColumn]) -> list[ColumnFacts]:
    """Read every row, and return what it holds of the columns.

    Raises:
        DataError: the rows cannot be read.
    """
    facts = {column.name: ColumnFacts(column) for column in columns}
    if not facts:
        return []
    asked = Columns(
        tuple(column.name for column in columns if isinstance(column, NumericColumn)),
        tuple(column.name for column in columns if isinstance(column, CategoricalColumn)),
        vectors=tuple(column.name for column in columns if isinstance(column, VectorColumn)),
    )
    for batch in source.batches(asked, BATCH_ROWS):
        for name, own in facts.items():
            own.add(batch.column(name))
    return list(facts.values())


def columns_of(study: Study, owner: Owner) -> list[Column | VectorColumn]:
    """Return the columns of the owner's data set that a study reads, as it reads them.

    Images and texts, which a model turns into numbers, have no bounds or levels to be held against.
    """
    read = study.columns_read(owner)
    found: list[Column | VectorColumn] = [c for c in study.domain_of(owner).columns if c.name in read]
    inputs = (column for encoder in study.encoders_of(owner) for column in encoder.inputs)
    return found + list({c.name: c for c in inputs if isinstance(c, VectorColumn)}.values())


def _distinct(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return a column's distinct values and how many rows hold each; rows without one are in none.

    Whatever a text's length, it is looked at once.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary
    indices = column.indices.cast(pa.int32()).fill_null(len(values)).to_numpy(zero_copy_only=False)
    return values, np.bincount(indices, minlength=len(values) + 1)[: len(values)].astype(np.int64)


def _numeric_cause(word: str) -> str | None:
    for cause, pattern in _NUMERIC_CAUSES.items():
        if pattern.fullmatch(word):
            return cause
    return WORDS if any(letter.isalpha() for letter in word) else None


def _level_cause(word: str, levels: Sequence[str]) -> str | None:
    if any("\udc80" <= letter <= "\udcff" for letter in word):
        return NOT_UTF8
    plain = " ".join(word.split()).casefold()
    if any(plain == " ".join(level.split()).casefold() for level in levels):
        return SPELLED
    number = _number(word)
    return NUMBERS if number is not None and number in {_number(level) for level in levels} else None


def _number(word: str) -> float | None:
    try:
        found = float(word)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def data_findings(source: Source, columns: Sequence[Column | VectorColumn]) -> list[dict[str, Any]]:
    """Return what is found of the columns, and of rows that are none where a file has any: plain values.

    Raises:
        DataError: the rows cannot be read, or a column is not there.
    """
    require_columns(source, [column.name for column in columns])
    rows = _rows_found(source.row_faults()) if isinstance(source, CsvSource) else []
    return rows + [own.fields() for own in column_facts(source, columns)]


def _rows_found(faults: RowFaults) -> list[dict[str, Any]]:
    if not faults.unreadable:
        return []
    share = percent(faults.unreadable, faults.rows)
    words = f"{share} of the rows do not have the header's values, and count as rows without values; "
    if 2 * faults.trailing >= faults.unreadable:
        words += "they end in a comma more than the header: take it away"
    else:
        words += "repair the file; if values hold line breaks, set quoted_line_breaks = true"
    failed = faults.unreadable > (1 - READ_MIN) * faults.rows
    state: State = "failed" if failed else "warning"
    return [{"name": "rows", "state": state, "words": words, "rows": faults.rows}]


def faults_in(findings: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what of the findings keeps studies from an answer that means anything; None where nothing does."""
    return "; ".join(line_of(found) for found in findings if found["state"] == "failed") or None


def line_of(found: Mapping[str, Any]) -> str:
    """Return one finding as a line."""
    mark = {"ok": "", "warning": "WARNING ", "failed": "FAILED "}[found["state"]]
    return f"{mark}{found['name']}: {found['words']}"
