"""Ed25519 keys: reference vectors, reading and refusing."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tacit_protocol.signing import PrivateKey, SignatureError, verify_signature


def test_reference_vector_of_rfc_8032() -> None:
    # RFC 8032 section 7.1, test 2.
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = PrivateKey(Ed25519PrivateKey.from_private_bytes(secret))
    assert key.public_hex == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


def test_the_text_form_hides_the_key() -> None:
    key = PrivateKey.generate()
    secret = key.ed25519.private_bytes_raw().hex()
    assert secret not in repr(key)
    assert key.public_hex in repr(key)


def test_a_pem_of_another_kind_of_key_is_refused() -> None:
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for pem in (other, b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(SignatureError):
            PrivateKey.from_pem(pem)


def test_a_changed_signature_message_or_key_does_not_hold() -> None:
    key = PrivateKey.generate()
    signature = key.sign(b"message")
    verify_signature(key.public_hex, signature, b"message")
    changed = bytes([signature[0] ^ 1]) + signature[1:]
    for public_hex, one_signature, message in (
        (key.public_hex, changed, b"message"),
        (key.public_hex, signature, b"massage"),
        (PrivateKey.generate().public_hex, signature, b"message"),
        (key.public_hex, b"", b"message"),
        (key.public_hex.upper(), signature, b"message"),
        (key.public_hex[:-2], signature, b"message"),
    ):
        with pytest.raises(SignatureError):
            verify_signature(public_hex, one_signature, message)


def test_a_signature_with_a_larger_scalar_is_refused() -> None:
    """Ed25519 malleability: S + L signs the same message unless the verifier checks the range."""
    order = 2**252 + 27742317777372353535851937790883648493
    key = PrivateKey.generate()
    signature = key.sign(b"message")
    scalar = int.from_bytes(signature[32:], "little") + order
    with pytest.raises(SignatureError):
        verify_signature(key.public_hex, signature[:32] + scalar.to_bytes(32, "little"), b"message")
