"""Ed25519 keys (RFC 8032): how a party is known, and how it signs.

Errors of this package::

    SignatureError        a signature does not hold, or a key cannot be read
    ├── EnvelopeError     an envelope is not what its receiver expects
    └── TokenError        a request's token is not valid here and now
"""

from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PUBLIC_HEX_LENGTH = 64
"""An Ed25519 public key has 32 bytes."""


class SignatureError(ValueError):
    """A signature does not hold, or a key cannot be read."""


class PrivateKey:
    """A party's private key. Its text form never shows it."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Read an unencrypted PKCS #8 PEM file's bytes.

        Raises:
            SignatureError: the bytes hold no Ed25519 private key.
        """
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise SignatureError("the key file holds no readable private key") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SignatureError("the key file holds a key that is not Ed25519")
        return cls(key)

    def to_pem(self) -> bytes:
        """Write the key as unencrypted PKCS #8 PEM, for a file that only its owner may read."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def public_hex(self) -> str:
        """The public key: 64 lower-case hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    @property
    def ed25519(self) -> Ed25519PrivateKey:
        """The key itself, for libraries that sign on their own."""
        return self._key

    def sign(self, message: bytes) -> bytes:
        """Sign; the signature has 64 bytes and is the same each time."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"PrivateKey(public_hex={self.public_hex!r})"


def load_public_key(public_hex: str) -> Ed25519PublicKey:
    """Read a public key from its 64 lower-case hexadecimal digits.

    Raises:
        SignatureError: the text is not of that form, or no public key.
    """
    if len(public_hex) != PUBLIC_HEX_LENGTH or not set(public_hex) <= set("0123456789abcdef"):
        raise SignatureError("a public key is 64 lower-case hexadecimal digits")
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex))
    except ValueError:
        raise SignatureError("these digits are no Ed25519 public key") from None


def verify_signature(public_hex: str, signature: bytes, message: bytes) -> None:
    """Return if the signature holds. Raises SignatureError where it does not, or the key cannot be read."""
    try:
        load_public_key(public_hex).verify(signature, message)
    except InvalidSignature:
        raise SignatureError("the signature does not hold") from None
