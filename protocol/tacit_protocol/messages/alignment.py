"""Which units two owners share, and in which order, without showing anyone else a single id.

Owners of different columns know the same units by shared ids, and share a random key that no one else has.
Units are ordered by their ids' HMAC-SHA256 under that key; a digest of the ordered units tells whether both
hold the same ones, and digests of buckets of them roughly which differ. docs/how-to/align-two-owners.md.
"""

import base64
import binascii
import hmac
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from pydantic import Field, model_validator

from tacit_protocol.domain import ColumnName
from tacit_protocol.messages.study import UNITS, UNITS_MAX, DataSetName, Digest, Party
from tacit_protocol.strict import Egress, StrictModel

KEY_BYTES = 32
"""Size of a shared key, as of HMAC-SHA256's output."""

ID_LENGTH_MAX = 256
"""Longest id, in characters: bounds what hashing one takes."""

BUCKET_UNITS = 16
"""Units in a bucket, from so many to twice as many: a bucket that differs is short enough to look through."""

BUCKETS_MAX = 2**16
"""Most buckets: sealed, their digests take 0.9 MB. Of more than 2 million units a bucket holds more."""

HASH_BYTES, BUCKET_DIGEST_BYTES = 8, 8
"""Of an id and of a bucket. Two of 10^8 ids share a hash with probability 3e-4, at both owners alike: they
are then one unit. Sets that differ have one digest with probability below 2**-64 for each id that differs."""

UnitHashes = npt.NDArray[np.uint64]

_UNIT, _TOTAL, _BUCKET, _PROOF, _FINGERPRINT = (
    f"tacit/alignment/1/{use}\0".encode() for use in ("unit", "total", "bucket", "proof", "fingerprint")
)
"""What each use of the key begins with: no output of one is ever that of another."""


class AlignmentError(ValueError):
    """An id or a key cannot be used. The text is constant."""


def canonical_id(text: str) -> str | None:
    """Return the form in which two systems compare an id; None where there is no id.

    White space around it is dropped and composed letters are spelled one way (Unicode NFC). Everything else
    counts: upper and lower case differ, and so do ``7`` and ``07``.

    Raises:
        AlignmentError: longer than :data:`ID_LENGTH_MAX`, or not properly decoded text.
    """
    form = (text if text.isascii() else unicodedata.normalize("NFC", text)).strip()
    if len(form) > ID_LENGTH_MAX:
        raise AlignmentError(f"an id has more than {ID_LENGTH_MAX} characters")
    # Neither marks nor halves of a pair, which stand for bytes that could not be decoded.
    if not form.isascii() and any(c == "\ufffd" or "\ud800" <= c <= "\udfff" for c in form):
        raise AlignmentError("an id is not text in UTF-8")
    return form or None


class UnitKey:
    """The key that two owners share, and all that is computed with it."""

    def __init__(self, secret: bytes):
        if len(secret) != KEY_BYTES:
            raise AlignmentError(f"the shared key must have {KEY_BYTES} bytes")
        self.secret = secret
        # One for each id: this library's copies take half the time of the standard one's.
        self._units = HMAC(secret, SHA256())
        self._units.update(_UNIT)

    def __reduce__(self) -> tuple[type["UnitKey"], tuple[bytes]]:
        # The library's state cannot be pickled; whoever hashes a part of the ids makes it anew.
        return UnitKey, (self.secret,)

    def hashes(self, ids: Iterable[str]) -> UnitHashes:
        """Return the hashes of canonical ids, (ids,) uint64: units come in their order."""
        found = []
        for text in ids:
            keyed = self._units.copy()
            keyed.update(text.encode())
            found.append(keyed.finalize()[:HASH_BYTES])
        return np.frombuffer(b"".join(found), dtype=">u8").astype(np.uint64)

    def digest(self, units: UnitHashes) -> str:
        """Return the digest, in hexadecimal, of ordered and distinct units."""
        return hmac.digest(self.secret, _TOTAL + units.astype(">u8").tobytes(), "sha256").hex()

    def bucket_digests(self, units: UnitHashes, buckets: int) -> npt.NDArray[np.uint64]:
        """Return a digest, (buckets,) uint64, of the units in each bucket: those whose hash begins alike.

        ``units`` are ordered and distinct; ``buckets`` is a power of two.
        """
        content, ends = units.astype(">u8").tobytes(), bucket_ends(units, buckets) * HASH_BYTES
        found = bytearray()
        for bucket, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            named = _BUCKET + bucket.to_bytes(4, "big") + content[start:stop]
            found += hmac.digest(self.secret, named, "sha256")[:BUCKET_DIGEST_BYTES]
        return np.frombuffer(bytes(found), dtype=">u8").astype(np.uint64)

    def proof(self, content: bytes) -> str:
        """Return what only who holds the key can say about ``content``, in hexadecimal."""
        return hmac.digest(self.secret, _PROOF + content, "sha256").hex()

    def proves(self, content: bytes, proof: str) -> bool:
        """Say whether this is the key's proof of ``content``."""
        return hmac.compare_digest(self.proof(content), proof)

    @property
    def fingerprint(self) -> str:
        """What names the key and says nothing else about it, in hexadecimal."""
        return hmac.digest(self.secret, _FINGERPRINT, "sha256").hex()


def bucket_count(units: int) -> int:
    """Return how many buckets so many units have: a power of two."""
    return min(BUCKETS_MAX, 1 << max(0, (units // BUCKET_UNITS).bit_length() - 1))


def bucket_ends(units: UnitHashes, buckets: int) -> npt.NDArray[np.int64]:
    """Return where each bucket ends among ordered units, (buckets,)."""
    bits = buckets.bit_length() - 1
    bucket = units >> np.uint64(64 - bits) if bits else np.zeros(len(units), dtype=np.uint64)
    return np.searchsorted(bucket, np.arange(buckets, dtype=np.uint64), side="right").astype(np.int64)


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
    "tacit_protocol.messages.alignment:UnitKey",
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
