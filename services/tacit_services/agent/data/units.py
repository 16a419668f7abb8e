"""Privacy units by a 64-bit hash of their column's value."""

import hashlib
import secrets
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.messages.alignment import AlignmentError, UnitKey, canonical_id
from tacit_services.agent.data.arrow_columns import UNDECODED, is_bytes, numbers, text
from tacit_services.agent.data.source import DataError

HASH_BYTES = 8
"""Size of a unit's hash. Among 10^8 units the chance that any two share one is 3e-4; two that did would be
counted, and averaged, as one."""

FLOAT_EXACT_MAX = 2.0**53
"""Whole floating numbers up to this one are distinct integers; larger ones may be several in one."""

UnitHashes = npt.NDArray[np.uint64]


class Hasher(Protocol):
    """Tells units apart by hashes of their ids."""

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64; raises DataError for ids it cannot take."""


class UnitHasher:
    """Hashes unit values under a key of its own, so that no one can choose values that collide.

    All rows whose unit value is missing hash alike, and so belong to one unit. Were each its own unit, a
    person with many such rows would weigh as many units, and replacing that one person would change more
    than the privacy bound allows; dropped, the number of units would depend on them.
    """

    def __init__(self, key: bytes | None = None):
        self._key = secrets.token_bytes(16) if key is None else key
        self._offset = np.uint64(int.from_bytes(self._digest(b"integer"), "little"))
        self._missing = np.uint64(int.from_bytes(self._digest(b"missing"), "little"))

    def _digest(self, value: bytes) -> bytes:
        return hashlib.blake2b(value, digest_size=HASH_BYTES, key=self._key).digest()

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64; a whole floating number's is the integer's.

        One missing value in a column of integers, or in one of a data set's files, is often what made it
        floating.
        """
        if pa.types.is_integer(column.type):
            return self._of_integers(column)
        if pa.types.is_floating(column.type):
            return self._of_floats(column)
        return self._of_texts(column)

    def _of_texts(self, column: pa.Array) -> UnitHashes:
        values = text(column)
        known = [
            self._missing
            if value is None
            else np.uint64(int.from_bytes(self._digest(b"text:" + value.encode(errors=UNDECODED)), "little"))
            for value in values.distinct
        ]
        # The last place is what an index of -1, a missing value, reaches.
        return np.array([*known, self._missing], dtype=np.uint64)[values.indices]

    def _of_integers(self, column: pa.Array) -> UnitHashes:
        present = column.cast(pa.int64(), safe=False).fill_null(0)
        scattered = mixed(present.to_numpy(zero_copy_only=False).view(np.uint64) + self._offset)
        if column.null_count:
            scattered[column.is_null().to_numpy(zero_copy_only=False)] = self._missing
        return scattered

    def _of_floats(self, column: pa.Array) -> UnitHashes:
        values = numbers("", column)
        whole = (np.abs(values) <= FLOAT_EXACT_MAX) & (values == np.rint(values))
        integers = np.where(whole, values, 0).astype(np.int64)
        return np.where(whole, self._of_integers(pa.array(integers)), self._of_texts(column))


def row_draw(seed: str, owner: str) -> int:
    """Return the 64 bits by which one row of each of an owner's units is drawn, in a study of that seed.

    Owners draw apart: the same place among both owners' rows would relate what they hold through its order.
    """
    drawn = hashlib.blake2b(owner.encode(), digest_size=HASH_BYTES, key=bytes.fromhex(seed)).digest()
    return int.from_bytes(drawn, "little")


def mixed(values: UnitHashes) -> UnitHashes:
    """Scatter whole numbers, (n,), over 64 bits without collisions: splitmix64's finaliser, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class DistinctHashes:
    """Counts distinct hashes in a stream, at eight bytes each (and twice that while it merges)."""

    def __init__(self) -> None:
        self._merged: UnitHashes = np.empty(0, dtype=np.uint64)
        self._pending: list[UnitHashes] = []
        self._pending_count = 0

    def add(self, hashes: UnitHashes) -> None:
        """Take in one batch of hashes."""
        distinct = np.unique(hashes)
        self._pending.append(distinct)
        self._pending_count += len(distinct)
        # Merging only once as much is pending as is merged keeps the whole count near n log n.
        if self._pending_count > max(len(self._merged), 1_000_000):
            self._merge()

    def _merge(self) -> None:
        self._merged = np.unique(np.concatenate([self._merged, *self._pending]))
        self._pending, self._pending_count = [], 0

    def count(self) -> int:
        """Return the number of distinct hashes so far."""
        self._merge()
        return len(self._merged)

    def ordered(self) -> UnitHashes:
        """Return the distinct hashes so far, (units,), in their order."""
        self._merge()
        return self._merged


NOT_ALIGNED = "the data set cannot be aligned"
WRONG_KIND = f"{NOT_ALIGNED}: ids are text or whole numbers"

DECIMAL_DIGITS = 76
"""Most digits of an Arrow decimal."""


class AlignedUnits:
    """Hashes ids under the key that two owners share.

    A missing id is refused: it would be a unit of its own kind at either owner, and match any other one.
    """

    def __init__(self, key: UnitKey):
        self.key = key

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64.

        Raises:
            DataError: a row has no id, or one that cannot be compared.
        """
        values = text(_readable(column))
        try:
            ids = [None if value is None else canonical_id(value) for value in values.distinct]
        except AlignmentError as error:
            raise DataError(f"{NOT_ALIGNED}: {error}") from None
        # An index of -1, a missing value, reaches the last place.
        present = np.array([*(known is not None for known in ids), False])
        if not present[values.indices].all():
            raise DataError(f"{NOT_ALIGNED}: a row has no id")
        return self.key.hashes(known or "" for known in ids)[values.indices]


def _readable(column: pa.Array) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(column.type):
        coded = column.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return _whole_decimals(column)
    if pa.types.is_floating(kind):
        _require_whole(column)
    elif pa.types.is_boolean(kind) or pa.types.is_nested(kind) or is_bytes(kind):
        raise DataError(WRONG_KIND)
    return column


def _whole_decimals(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.decimal256(DECIMAL_DIGITS, 0))
    except pa.ArrowInvalid:
        raise DataError(WRONG_KIND) from None


def _require_whole(column: pa.Array) -> None:
    values = column.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    known = values[~np.isnan(values)]
    if (np.abs(known) > FLOAT_EXACT_MAX).any() or (known != np.rint(known)).any():
        raise DataError(WRONG_KIND)
