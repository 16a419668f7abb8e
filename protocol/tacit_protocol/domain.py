"""Public bounds and levels of columns, functions of the study alone; and the tables encoded by them.

A procedure sees an owner's rows as an encoded table, chunk by chunk. Every row is treated by itself: how one
is encoded depends on no other, nor on how rows are cut into chunks. The sensitivities of every procedure rest
on that.

Exact sums of tables, and permutation replicates, are computed by threads of this process, or by the workers
that a table brings along. What leaves an owner is made after everything computed there has come back, in the
owner's own process: workers see data, and never signing keys, budgets or noise, except what a release
publishes of it.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from pydantic import Field, model_validator
from threadpoolctl import ThreadpoolController

from tacit_protocol.strict import Egress, StrictModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# ruff: noqa: PLC0415 (NumPy waits for rows: studies are read and written without it)


LEVELS_MAX = 1000
"""Most levels of one categorical column: each is a coordinate of every owner's release."""

COLUMNS_MAX = 1000
"""Most columns of one study: bounds what a study can make an agent compute."""

VECTOR_MAX = 4096
"""Most numbers of a vector in one column."""

SIDE_MAX = 1024
"""Most rows, and most columns, of the pixels that a model is given of an image."""

TEXT_MAX = 4096
"""Characters of a text that a model is given: a longer one is cut."""

STATED = Egress("public", "tacit_protocol.domain:Domain", "the analyst states it, never taken from data")

ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
Level = Annotated[str, Field(min_length=1, max_length=128)]


class NumericColumn(StrictModel):
    """A numeric column with public bounds.

    Values are clipped to [``lower``, ``upper``], then scaled to [0, 1]. A missing value (null, NaN or an
    infinity) becomes ``missing``, by default the middle of the bounds.
    """

    egress: ClassVar = STATED

    kind: Literal["numeric"] = "numeric"
    name: ColumnName
    lower: float
    upper: float
    missing: float | None = None

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("lower must be less than upper")
        if self.upper - self.lower == float("inf"):
            raise ValueError("upper - lower must be finite")
        if self.missing is not None and not self.lower <= self.missing <= self.upper:
            raise ValueError("missing must lie within the bounds")
        return self

    @property
    def missing_value(self) -> float:
        """The number as which a missing value is read."""
        return self.lower / 2 + self.upper / 2 if self.missing is None else self.missing


class CategoricalColumn(StrictModel):
    """A categorical column with a public list of levels.

    It has ``len(levels) + 2`` categories: the levels, one for every value that is not listed, and one for
    missing values.
    """

    egress: ClassVar = STATED

    kind: Literal["categorical"] = "categorical"
    name: ColumnName
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=LEVELS_MAX)]

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Self:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("levels must be distinct")
        return self

    @property
    def categories(self) -> int:
        """Number of categories: the levels, "other" and "missing"."""
        return len(self.levels) + 2


Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]


def lies_within(asked: Column, declared: Column) -> bool:
    """Return whether a column is of the declared kind, with bounds or levels within the declared ones."""
    if isinstance(asked, NumericColumn):
        return (
            isinstance(declared, NumericColumn)
            and declared.lower <= asked.lower
            and asked.upper <= declared.upper
        )
    return not isinstance(declared, NumericColumn) and set(asked.levels) <= set(declared.levels)


class Domain(StrictModel):
    """The columns a study uses, in order, with their public bounds and levels."""

    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=COLUMNS_MAX)]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("column names must be distinct")
        return self

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns, in the study's order."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns, in the study's order."""
        return tuple(c for c in self.columns if isinstance(c, CategoricalColumn))


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Licence = Annotated[str, Field(min_length=1, max_length=100)]
"""Under which terms a public file may be used: an SPDX identifier, such as ``Apache-2.0``."""

Norm = Annotated[float, Field(gt=0, le=1e100)]
Shift = Annotated[float, Field(ge=-1e3, le=1e3)]
Scale = Annotated[float, Field(ge=1e-3, le=1e3)]


class VectorColumn(StrictModel):
    """A column of vectors: a list of ``length`` numbers in each row, of Euclidean norm at most ``norm``.

    A longer vector is scaled down to the norm. One that is null, of another length, or holds a null, a NaN or
    an infinity, is missing as a whole.
    """

    egress: ClassVar = STATED

    kind: Literal["vector"] = "vector"
    name: ColumnName
    length: Annotated[int, Field(ge=1, le=VECTOR_MAX)]
    norm: Norm


class ImageColumn(StrictModel):
    """A column of paths to images, below a folder that the owner configures, and how a model is given them.

    An image is resized to ``width`` x ``height`` pixels (bilinear). A value v, 0 to 255, of channel c becomes
    (v / 255 - ``mean[c]``) / ``deviation[c]``; a list of one number is for all channels. An image that cannot
    be read is missing.
    """

    egress: ClassVar = STATED

    kind: Literal["image"] = "image"
    name: ColumnName
    width: Annotated[int, Field(ge=1, le=SIDE_MAX)]
    height: Annotated[int, Field(ge=1, le=SIDE_MAX)]
    channels: Literal["grey", "rgb", "bgr"] = "rgb"
    layout: Literal["channels-first", "channels-last"] = "channels-first"
    mean: Annotated[tuple[Shift, ...], Field(min_length=1, max_length=3)] = (0.0,)
    deviation: Annotated[tuple[Scale, ...], Field(min_length=1, max_length=3)] = (1.0,)

    @model_validator(mode="after")
    def _one_for_each_channel(self) -> Self:
        if not {len(self.mean), len(self.deviation)} <= {1, 1 if self.channels == "grey" else 3}:
            raise ValueError("mean and deviation hold one number, or one for each channel")
        return self


class TextColumn(StrictModel):
    """A column of texts; of a longer one a model is given the first :data:`TEXT_MAX` characters."""

    egress: ClassVar = STATED

    kind: Literal["text"] = "text"
    name: ColumnName


InputColumn = Annotated[VectorColumn | ImageColumn | TextColumn, Field(discriminator="kind")]
"""A column of a data set that an encoder reads."""


class EncoderModel(StrictModel):
    """A public ONNX model: which file, under which licence, and the vector that it makes of a row.

    ``length`` and ``norm`` are of its first output, as of a :class:`~tacit_protocol.domain.VectorColumn`.
    """

    egress: ClassVar = STATED

    sha256: Sha256
    licence: Licence
    length: Annotated[int, Field(ge=1, le=VECTOR_MAX)]
    norm: Norm


class Projection(StrictModel):
    """A public matrix that vectors are multiplied by: drawn from a seed, or in a file.

    Drawn, its rows are independent uniform directions. The file is NumPy's ``.npy``, (outputs, length) float;
    a row that is longer than 1 is scaled to norm 1.
    """

    egress: ClassVar = STATED

    seed: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    sha256: Sha256 | None = None
    licence: Licence | None = None

    @model_validator(mode="after")
    def _is_drawn_or_in_a_file(self) -> Self:
        if (self.seed is None) == (self.sha256 is None) or (self.sha256 is None) != (self.licence is None):
            raise ValueError("a projection has a seed, or the sha256 of a public file and its licence")
        return self

    def matrix(self, outputs: int, length: int) -> "npt.NDArray[np.float64]":
        """Draw the matrix of the seed, (outputs, length) float64; each row has norm 1."""
        import numpy as np

        drawn = np.random.default_rng(int(self.seed or "0", 16)).standard_normal((outputs, length))
        return np.ascontiguousarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


class Encoder(StrictModel):
    """How numeric columns of the study are made of other columns of the same row, by public rules alone.

    A vector is read, or made by ``model`` of the ``inputs``, in the order of the model's own; scaled down to
    its norm R; multiplied by the ``projection``, if there is one; and its numbers are the columns
    ``outputs``, in order. The domain bounds each of them as it does any column, within [-R, R] of which
    nothing lies outside.
    """

    egress: ClassVar = STATED

    inputs: Annotated[tuple[InputColumn, ...], Field(min_length=1, max_length=16)]
    model: EncoderModel | None = None
    projection: Projection | None = None
    outputs: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=COLUMNS_MAX)]

    @model_validator(mode="after")
    def _makes_its_outputs(self) -> Self:
        names = [column.name for column in self.inputs]
        if len(set(self.outputs)) != len(self.outputs) or len(set(names)) != len(names):
            raise ValueError("an encoder's inputs must be distinct, and its outputs too")
        if self.model is None and not (len(names) == 1 and isinstance(self.inputs[0], VectorColumn)):
            raise ValueError("an encoder without a model reads one vector column")
        if self.projection is None and len(self.outputs) != self.vector.length:
            raise ValueError("an encoder without a projection has as many outputs as its vector has numbers")
        return self

    @property
    def vector(self) -> "VectorColumn | EncoderModel":
        """What bounds the vector that is projected: the model's, or that of the one column."""
        if self.model is not None:
            return self.model
        (column,) = self.inputs
        assert isinstance(column, VectorColumn)  # noqa: S101 (checked when it was made)
        return column

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """The public files that it needs: the SHA-256 and the licence of each."""
        named = (self.model, self.projection)
        return tuple((one.sha256, str(one.licence)) for one in named if one is not None and one.sha256)

    def columns(self, spread: float = 4.0) -> tuple[NumericColumn, ...]:
        """Return numeric columns for the outputs, with bounds from public knowledge alone.

        A number of a vector of norm R in d dimensions whose direction is uniform is beyond ``spread`` times
        R / sqrt(d) with chance 2 exp(-spread^2 / 2) or less; the bounds are there, and at R at most.
        """
        bound = self.vector.norm * min(1.0, spread / math.sqrt(self.vector.length))
        return tuple(NumericColumn(name=name, lower=-bound, upper=bound) for name in self.outputs)

    def matrix(self, file: "npt.NDArray[np.float64] | None" = None) -> "npt.NDArray[np.float64] | None":
        """Return the projection's matrix, (outputs, length), of the seed or of its ``file``; None of none.

        Raises:
            ValueError: the file's matrix has another shape, or holds what is no finite number.
        """
        import numpy as np

        shape = len(self.outputs), self.vector.length
        if self.projection is None:
            return None
        if file is None:
            return self.projection.matrix(*shape)
        if file.shape != shape or not np.isfinite(file).all():
            raise ValueError(f"the projection is no matrix of {shape[0]} x {shape[1]} finite numbers")
        longest = np.maximum(np.linalg.norm(file.astype(np.float64), axis=1, keepdims=True), 1.0)
        return np.ascontiguousarray(file / longest)

    def made_of(
        self, vectors: "npt.NDArray[np.float64]", matrix: "npt.NDArray[np.float64] | None"
    ) -> dict[str, "npt.NDArray[np.float64]"]:
        """Return the output columns, each (rows,) float64, of ``vectors`` (rows, length), NaN where missing.

        ``matrix`` is what :meth:`matrix` returns. Every row is multiplied by itself: what comes of it does
        not depend on its neighbours, nor on their number, to the last bit.
        """
        import numpy as np

        made = clipped = clipped_to_norm(vectors, self.vector.norm)
        if matrix is not None:
            made, vector = np.empty((len(clipped), len(matrix))), np.empty(matrix.shape[1])
            for row in range(len(clipped)):
                # In one place of memory, and by no linear algebra library, whose result may depend on both.
                vector[:] = clipped[row]
                made[row] = np.einsum("kd,d->k", matrix, vector)
        return {name: made[:, place] for place, name in enumerate(self.outputs)}

    def words(self) -> str:
        """Say in a sentence what is made of what, by which files."""
        names = self.outputs
        made = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} columns)"
        read = ", ".join(f"{column.name} ({column.kind})" for column in self.inputs)
        steps = []
        if self.model is not None:
            steps.append(f"the public model {self.model.sha256} (licence {self.model.licence})")
        if self.projection is not None:
            of = self.projection
            drawn = f"drawn from the seed {of.seed}"
            file = f"{of.sha256} (licence {of.licence})"
            steps.append(f"a public projection {drawn if of.sha256 is None else file}")
        by = f", by {' and '.join(steps)}" if steps else ""
        return f"{made} {'is' if len(names) == 1 else 'are'} computed here from {read}{by}."


def clipped_to_norm(vectors: "npt.NDArray[np.float64]", norm: float) -> "npt.NDArray[np.float64]":
    """Scale rows (rows, length) longer than ``norm`` down to it; those that are not finite become NaN.

    Numbers of any size that float64 holds are scaled: the largest one is taken out before squares are.
    """
    import numpy as np

    known = np.isfinite(vectors).all(axis=1, keepdims=True)
    found = np.where(known, vectors, 0.0)
    largest = np.maximum(np.abs(found).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    scaled = found / largest
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None], 1e-300)
    with np.errstate(over="ignore"):
        longer = norm / largest < lengths
    return np.where(known, np.where(longer, scaled * (norm / lengths), found), math.nan)


@dataclass(frozen=True)
class EncodedChunk:
    """Rows encoded in a :class:`~tacit_protocol.domain.Domain`.

    ``numeric`` is (rows, numeric columns) float64 in [0, 1]; ``categorical`` is (rows, categorical columns)
    int32 category codes. ``unit`` is None where every row is its own privacy unit; otherwise it is (rows,)
    int64, numbering the chunk's units from 0 to ``units - 1``. ``positions`` (units,) int64 is the place of
    each of the chunk's units among all n, which two owners share; None where that is the order of the rows.
    """

    numeric: "npt.NDArray[np.float64]"
    categorical: "npt.NDArray[np.int32]"
    unit: "npt.NDArray[np.int64] | None"
    units: int
    positions: "npt.NDArray[np.int64] | None" = None

    @property
    def rows(self) -> int:
        """Number of rows in the chunk."""
        return int(self.numeric.shape[0])


class Table(Protocol):
    """An owner's data set, streamed in chunks. All rows of one privacy unit lie in one chunk."""

    @property
    def domain(self) -> Domain:
        """The domain the chunks are encoded in."""

    @property
    def units(self) -> int:
        """Number of privacy units n. Public."""

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the rows, in any order and in chunks of any size. May be called again."""


@dataclass(frozen=True)
class PooledTable:
    """Several owners' tables in one place, at a curator; as a whole it is a table of all their units.

    ``parts`` holds each owner's table by name, in one domain. A person whom several owners hold is a unit of
    each of them.
    """

    domain: Domain
    parts: Mapping[str, Table]

    @property
    def units(self) -> int:
        """Number of privacy units of all owners together. Public."""
        return sum(part.units for part in self.parts.values())

    @property
    def units_by_owner(self) -> dict[str, int]:
        """Number of privacy units of each owner. Public."""
        return {owner: part.units for owner, part in self.parts.items()}

    @property
    def workers(self) -> "Workers":
        """What the first owner's table is computed by: all are in one place."""
        return workers_of(next(iter(self.parts.values())))

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield every owner's rows, one owner after the other. May be called again."""
        for part in self.parts.values():
            yield from part.chunks()


PartialT = TypeVar("PartialT")


class Reduction(Protocol[PartialT]):
    """What is summed over a table. It is picklable, and so are its partial results.

    Partial results are exact (whole numbers, or float64 that holds them), so that adding and merging them is
    associative and commutative to the last bit.
    """

    def start(self) -> PartialT:
        """Return the partial result of no chunk."""

    def add(self, partial: PartialT, chunk: EncodedChunk) -> None:
        """Add a chunk to a partial result, in place."""

    def merge(self, partial: PartialT, other: PartialT) -> None:
        """Add another partial result to one, in place; ``other`` is not used again."""


@runtime_checkable
class Reduces(Protocol):
    """A table that reduces itself, several parts of it at once."""

    def reduce(self, reduction: Reduction[PartialT]) -> PartialT:
        """Return the reduction of all chunks."""


def reduce_table(table: Table, reduction: Reduction[PartialT]) -> PartialT:
    """Return a table's reduction: by the table itself where it can, otherwise chunk after chunk."""
    if isinstance(table, PooledTable):
        pooled = reduction.start()
        for part in table.parts.values():
            reduction.merge(pooled, reduce_table(part, reduction))
        return pooled
    if isinstance(table, Reduces):
        return table.reduce(reduction)
    partial = reduction.start()
    for chunk in table.chunks():
        reduction.add(partial, chunk)
    return partial


@dataclass(frozen=True)
class DictionaryValues:
    """A column of text held as its distinct values and, for each row, which of them it has.

    ``indices`` is (rows,) integer, pointing into ``distinct``; -1 is a missing value. An entry None of
    ``distinct`` is a missing value too.
    """

    distinct: Sequence[str | None]
    indices: "npt.NDArray[np.int32]"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.indices)


RawColumn: TypeAlias = "npt.NDArray[np.float64] | npt.NDArray[np.object_] | DictionaryValues"
"""A column as a data source yields it: numbers, objects (str or None), or dictionary-encoded text."""


def encode_numeric(column: NumericColumn, values: "npt.ArrayLike") -> "npt.NDArray[np.float64]":
    """Clip to the public bounds and scale to [0, 1]; NaN and infinities become the declared missing value.

    ``values`` is (rows,), real. Returns (rows,) float64 in [0, 1].
    """
    import numpy as np

    raw = np.asarray(values, dtype=np.float64)
    encoded = np.empty(raw.shape, dtype=np.float64)
    _encode_numeric_into(column, raw, encoded)
    return encoded


def _encode_numeric_into(
    column: NumericColumn, raw: "npt.NDArray[np.float64]", encoded: "npt.NDArray[np.float64]"
) -> None:
    import numpy as np

    finite = np.isfinite(raw)
    if not finite.all():
        raw = np.where(finite, raw, column.missing_value)
    np.clip(raw, column.lower, column.upper, out=encoded)
    encoded -= column.lower
    encoded /= column.upper - column.lower
    # x - lower and upper - lower round alike at x = upper and monotonically below, so this is in [0, 1].


def encode_categorical(
    column: CategoricalColumn, values: "npt.ArrayLike | DictionaryValues"
) -> "npt.NDArray[np.int32]":
    """Map level names to codes 0..K-1, unlisted values to K, missing values (None or NaN) to K + 1.

    ``values`` is (rows,) of str (or None); whatever is not a str is compared by its ``str()``. Returns
    (rows,) int32.
    """
    import numpy as np

    if not isinstance(values, DictionaryValues):
        values = _dictionary(np.asarray(values, dtype=object))
    levels = {level: code for code, level in enumerate(column.levels)}
    other, missing = len(column.levels), len(column.levels) + 1
    codes = [missing if value is None else levels.get(value, other) for value in values.distinct]
    # The last place is what an index of -1 reaches.
    return np.array([*codes, missing], dtype=np.int32)[values.indices]


def _dictionary(values: "npt.NDArray[np.object_]") -> DictionaryValues:
    import numpy as np

    seen: dict[str | None, int] = {}
    indices = np.fromiter(
        (seen.setdefault(_text(value), len(seen)) for value in values), dtype=np.int32, count=len(values)
    )
    return DictionaryValues(list(seen), indices)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or value != value:  # noqa: PLR0124 (NaN is the value that differs from itself)
        return None
    return str(value)


def encode(
    domain: Domain,
    columns: Mapping[str, RawColumn],
    unit: "npt.NDArray[np.int64] | None" = None,
    units: int | None = None,
) -> EncodedChunk:
    """Encode raw columns, all of the same length, keyed by column name.

    ``unit`` and ``units`` are as in :class:`~tacit_protocol.domain.EncodedChunk`. The encoded arrays
    are in column order (Fortran), which is how they are written and how matrix products read them fastest.
    """
    import numpy as np

    rows = len(next(iter(columns.values())))
    numeric = np.empty((rows, len(domain.numeric)), dtype=np.float64, order="F")
    for index, numeric_column in enumerate(domain.numeric):
        raw = np.asarray(columns[numeric_column.name], dtype=np.float64)
        _encode_numeric_into(numeric_column, raw, numeric[:, index])
    categorical = np.empty((rows, len(domain.categorical)), dtype=np.int32, order="F")
    for index, categorical_column in enumerate(domain.categorical):
        categorical[:, index] = encode_categorical(categorical_column, columns[categorical_column.name])
    return EncodedChunk(numeric, categorical, unit, rows if unit is None else int(units or 0))


def bounds_words(column: Column, form: str = "read") -> str:
    """Write a column's bounds or levels: to be read, or as ``parse_bounds`` takes them ("typed")."""
    if isinstance(column, NumericColumn):
        return f"{column.lower:g}{' to ' if form == 'read' else ':'}{column.upper:g}"
    return ", ".join(column.levels)


SharedT = TypeVar("SharedT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

AHEAD = 2
"""Items under way or waiting, for each worker: no worker idles, and memory does not grow with the items."""


class DataError(Exception):
    """A data set cannot be read as asked.

    The message says what to change. It may name a column or a data set, which are public; it never holds a
    value, a row number, or a library's own error text, which may quote values.
    """


class WorkersUnavailableError(Exception):
    """Workers cannot be reached, or keep dying. Says nothing about the data; it may be tried again."""


class Workers(Protocol):
    """Applies a function to many items, possibly elsewhere, several at once."""

    @property
    def count(self) -> int:
        """How many items are computed at once, at least 1."""

    @property
    def in_process(self) -> bool:
        """Whether functions run in this process, and may share its objects."""

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order.

        Elsewhere than in this process the function is pure and, like ``shared``, every item and every result,
        picklable: an item whose worker died is computed again. The function's own exception reaches the
        caller and ends the map.

        Raises:
            WorkersUnavailableError: the items cannot be computed now.
        """


class ThreadWorkers:
    """Threads of this process; one worker is the calling thread itself.

    NumPy lets go of the interpreter where it computes. Linear algebra uses one thread meanwhile: the workers
    are the threads, and its results may depend on its own.
    """

    in_process = True

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError("there must be at least one worker")
        self.count = count

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order."""
        with linear_algebra().limit(limits=1, user_api="blas"):
            if self.count == 1:
                for item in items:
                    yield function(shared, item)
                return
            with ThreadPoolExecutor(self.count, thread_name_prefix="worker") as pool:
                yield from in_order(
                    (pool.submit(function, shared, item) for item in items), AHEAD * self.count
                )


ONE_WORKER = ThreadWorkers(1)
"""The calling thread."""


def workers_of(table: object) -> Workers:
    """Return the workers that a table brings along; the calling thread for one that has none."""
    found: Workers | None = getattr(table, "workers", None)
    return ONE_WORKER if found is None else found


def in_order(futures: Iterable[Future[ResultT]], ahead: int) -> Iterator[ResultT]:
    """Yield the results of futures in their order; at most ``ahead`` are made before the first one is done.

    Where one fails, or the caller stops, those not yet begun are cancelled.
    """
    upcoming = iter(futures)
    under_way = deque(itertools.islice(upcoming, ahead))
    try:
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(itertools.islice(upcoming, 1))
            yield result
    finally:
        for future in under_way:
            future.cancel()


@cache
def linear_algebra() -> ThreadpoolController:
    """Return what limits its threads; looking for the libraries takes milliseconds."""
    return ThreadpoolController()
