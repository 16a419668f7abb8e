"""Units by the keyed hash of a shared id: the same at two owners, and so the order of their units."""

import numpy as np
import pyarrow as pa

from tacit_protocol.alignment import AlignmentError, UnitKey, canonical_id
from tacit_services.agent.data.arrow_columns import is_bytes, text
from tacit_services.agent.data.source import DataError
from tacit_services.agent.data.units import FLOAT_EXACT_MAX, UnitHashes

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
