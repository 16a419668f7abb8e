"""What one owner gives another, past the tester, to find out whether they hold the same units."""

import base64
import binascii
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tacit_protocol.alignment import BUCKET_DIGEST_BYTES, BUCKETS_MAX
from tacit_protocol.domain.columns import ColumnName
from tacit_protocol.messages.release import UNITS
from tacit_protocol.messages.study import UNITS_MAX, DataSetName, Digest, Party
from tacit_protocol.strict import Egress, StrictModel

BUCKETS_TEXT_MAX = 4 * -(-BUCKETS_MAX * BUCKET_DIGEST_BYTES // 3)
"""Longest base64 of bucket digests."""

NO_PROOF = "0" * 64
"""What stands in place of the proof while it is computed."""


SETTING = Egress(
    "public",
    "tacit_protocol.messages.alignment:AlignmentMessage",
    "names from the owner's own configuration, and its key",
)

KEYED = Egress(
    "keyed",
    "tacit_protocol.alignment:UnitKey",
    "digests of ids, given by the owner itself to one other owner, who has the key",
)


class AlignmentMessage(StrictModel):
    """An owner's units, as keyed digests. Says nothing without the key; for who has it see the how-to page.

    ``buckets`` is the base64 of 8 bytes for each of a power of two of buckets. ``proof`` is keyed with the
    shared key over the whole message, with :data:`NO_PROOF` in its place: it shows that who signed has the
    key, where the signature shows who that is.
    """

    format: Annotated[Literal["tacit/alignment/1"], SETTING] = "tacit/alignment/1"
    owner: Party
    data_set: Annotated[DataSetName, SETTING]
    unit_column: Annotated[ColumnName, SETTING]
    key_fingerprint: Annotated[Digest, KEYED]
    units: Annotated[int, Field(ge=1, le=UNITS_MAX), UNITS]
    digest: Annotated[Digest, KEYED]
    buckets: Annotated[str, Field(max_length=BUCKETS_TEXT_MAX), KEYED]
    proof: Annotated[Digest, KEYED]

    @model_validator(mode="after")
    def _buckets_are_digests(self) -> Self:
        try:
            count = len(self.bucket_digests)
        except (binascii.Error, ValueError):
            raise ValueError("the buckets' digests are not base64") from None
        if count & (count - 1) or not 1 <= count <= BUCKETS_MAX:
            raise ValueError("the number of buckets is not a power of two")
        return self

    @property
    def bucket_digests(self) -> npt.NDArray[np.uint64]:
        """The digest of each bucket, (buckets,)."""
        content = base64.b64decode(self.buckets, validate=True)
        return np.frombuffer(content, dtype=">u8").astype(np.uint64)


def buckets_text(digests: npt.NDArray[np.uint64]) -> str:
    """Return bucket digests as a message writes them."""
    return base64.b64encode(digests.astype(">u8").tobytes()).decode("ascii")
