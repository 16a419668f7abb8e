"""The keys that protect the rows at rest.

Every upload is encrypted with a data key of its own, drawn at random. The database keeps that key wrapped
(AES-256-GCM, NIST SP 800-38D) by the operator's storage key, and bound to the account and the file that it
is for: a wrapped key moved to another row of the database does not open. Whoever deletes the wrapped key has
made every copy of the file unreadable.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
"""AES-256, for data keys and storage keys alike."""

ID_BYTES, NONCE_BYTES = 8, 12

_KEY = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


class StorageKeyError(Exception):
    """The storage keys are malformed, or none of them opens what is stored. The text says what to do."""


@dataclass(frozen=True)
class StorageKeys:
    """The operator's storage keys: the first one wraps, all of them unwrap."""

    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the keys: each 64 hexadecimal digits, apart by white space, the one to use first.

        Raises:
            StorageKeyError: there is none, or one is not of that form.
        """
        words = text.split()
        if not words or not all(_KEY.fullmatch(word) for word in words):
            raise StorageKeyError("storage keys are 64 hexadecimal digits each, one to a line, at least one")
        return cls(tuple(bytes.fromhex(word) for word in words))

    def wrap(self, data_key: bytes, context: bytes) -> bytes:
        """Wrap a data key; ``context`` says what it is for, and must be the same when it is unwrapped."""
        key, nonce = self.keys[0], secrets.token_bytes(NONCE_BYTES)
        return _key_id(key) + nonce + AESGCM(key).encrypt(nonce, data_key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the data key.

        Raises:
            StorageKeyError: it was wrapped by another key or for another file, or it was changed.
        """
        known = [key for key in self.keys if _key_id(key) == wrapped[:ID_BYTES]]
        if not known:
            raise StorageKeyError(
                "the rows were stored with another storage key: add that key to the storage keys"
            )
        nonce, sealed = wrapped[ID_BYTES : ID_BYTES + NONCE_BYTES], wrapped[ID_BYTES + NONCE_BYTES :]
        try:
            return AESGCM(known[0]).decrypt(nonce, sealed, context)
        except (InvalidTag, ValueError):
            raise StorageKeyError("a stored data key was changed; upload the rows again") from None

    def is_current(self, wrapped: bytes) -> bool:
        """Say whether the first key wrapped it."""
        return wrapped[:ID_BYTES] == _key_id(self.keys[0])


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"tacit/curator/storage-key/1" + key).digest()[:ID_BYTES]
