"""Keys, envelopes, sealed packages and tokens."""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from securesystemslib.dsse import Envelope

from tacit_protocol import signing
from tacit_protocol.messages.study import SealingCertificate
from tacit_protocol.signing import (
    ENVELOPE_BYTES_MAX,
    LEEWAY_S,
    LIFE_S,
    RELEASE_TYPE,
    STUDY_TYPE,
    EnvelopeError,
    PrivateKey,
    SealContext,
    SealError,
    SignatureError,
    TokenError,
    certified_bytes,
    certify,
    issue_token,
    open_envelope,
    open_sealed,
    peek_key_id,
    require_certified,
    seal_to,
    sign_envelope,
    verify_signature,
    verify_token,
)


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


# Envelopes: what an attacker may try with the bytes, and what each receiver refuses.


KEY = PrivateKey.generate()
PAYLOAD = b'{"a":1, "b":[1,2,3]}  '


@pytest.fixture
def envelope() -> bytes:
    return sign_envelope(PAYLOAD, RELEASE_TYPE, KEY)


def test_the_payload_comes_back_byte_for_byte(envelope: bytes) -> None:
    assert open_envelope(envelope, RELEASE_TYPE, KEY.public_hex) == PAYLOAD
    assert peek_key_id(envelope) == KEY.public_hex


def test_another_implementation_of_the_format_agrees(envelope: bytes) -> None:
    other = Envelope.from_dict(json.loads(envelope))
    signature = bytes.fromhex(other.signatures[KEY.public_hex].signature)
    verify_signature(KEY.public_hex, signature, other.pae())
    assert other.payload == PAYLOAD


def test_a_bit_flipped_at_any_byte_is_refused(envelope: bytes) -> None:
    for index in range(len(envelope)):
        for bit in (0, 1, 5, 7):
            flipped = bytearray(envelope)
            flipped[index] ^= 1 << bit
            with pytest.raises(EnvelopeError):
                open_envelope(bytes(flipped), RELEASE_TYPE, KEY.public_hex)


def test_replay_under_another_type_is_refused(envelope: bytes) -> None:
    with pytest.raises(EnvelopeError, match="another type"):
        open_envelope(envelope, STUDY_TYPE, KEY.public_hex)
    relabelled = envelope.replace(RELEASE_TYPE.encode(), STUDY_TYPE.encode())
    with pytest.raises(EnvelopeError, match="signature"):
        open_envelope(relabelled, STUDY_TYPE, KEY.public_hex)


def test_another_signer_is_refused(envelope: bytes) -> None:
    mallory = PrivateKey.generate()
    with pytest.raises(EnvelopeError, match="another key"):
        open_envelope(sign_envelope(PAYLOAD, RELEASE_TYPE, mallory), RELEASE_TYPE, KEY.public_hex)
    borrowed_name = sign_envelope(PAYLOAD, RELEASE_TYPE, mallory).replace(
        mallory.public_hex.encode(), KEY.public_hex.encode()
    )
    with pytest.raises(EnvelopeError, match="signature"):
        open_envelope(borrowed_name, RELEASE_TYPE, KEY.public_hex)


def _parts(envelope: bytes) -> dict[str, object]:
    parts: dict[str, object] = json.loads(envelope)
    return parts


def _compact(parts: object) -> bytes:
    return json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()


def test_no_signature_or_two_signatures_are_refused(envelope: bytes) -> None:
    parts = _parts(envelope)
    one = parts["signatures"]
    assert isinstance(one, list)
    assert _compact(parts) == envelope
    for signatures in ([], one * 2):
        with pytest.raises(EnvelopeError):
            open_envelope(_compact(parts | {"signatures": signatures}), RELEASE_TYPE, KEY.public_hex)


def test_a_second_spelling_of_the_base64_is_refused() -> None:
    envelope = sign_envelope(b"x", RELEASE_TYPE, KEY)
    parts = _parts(envelope)
    assert parts["payload"] == "eA=="
    assert base64.b64decode("eB==") == b"x"
    for spelling in ("eB==", "eA", "eA==\n", "e-A="):
        with pytest.raises(EnvelopeError):
            open_envelope(_compact(parts | {"payload": spelling}), RELEASE_TYPE, KEY.public_hex)


def test_another_spelling_is_refused(envelope: bytes) -> None:
    doubled = envelope[:-1] + b',"payload":"eA=="}'
    reordered = json.dumps(dict(reversed(_parts(envelope).items())), separators=(",", ":")).encode()
    longer = envelope + b" ", b" " + envelope, envelope + b"\n", envelope * 2
    for changed in (doubled, reordered, *longer, envelope[:-1], b""):
        with pytest.raises(EnvelopeError):
            open_envelope(changed, RELEASE_TYPE, KEY.public_hex)


def test_an_envelope_that_could_not_be_sent_is_not_made() -> None:
    with pytest.raises(EnvelopeError):
        sign_envelope(b"x" * ENVELOPE_BYTES_MAX, RELEASE_TYPE, KEY)


# Sealing: only the receiver opens, and only in the context that the message was sealed in.


OWN, OTHER = PrivateKey.generate(), PrivateKey.generate()
CONTEXT = SealContext("0" * 64, "north", "south")
MESSAGE = b"seventeen numbers"


def sealed(message: bytes = MESSAGE) -> bytes:
    return seal_to(certify(OWN), OWN.public_hex, CONTEXT, message)


def test_the_receiver_opens_what_was_sealed_to_it() -> None:
    ciphertext = sealed()
    assert open_sealed(OWN, CONTEXT, ciphertext) == MESSAGE
    assert len(ciphertext) == len(MESSAGE) + 48
    assert MESSAGE not in ciphertext


def test_the_sealing_key_is_the_same_each_time_and_another_than_the_identity() -> None:
    assert certify(OWN) == certify(OWN)
    assert certify(OWN).key != OWN.public_hex
    assert certify(OWN).key != certify(OTHER).key


def closed(ciphertext: bytes, context: SealContext = CONTEXT, key: PrivateKey = OWN) -> None:
    with pytest.raises(SealError, match="cannot be opened"):
        open_sealed(key, context, ciphertext)


def test_another_context_or_key_does_not_open_it() -> None:
    for context in (
        SealContext("1" + "0" * 63, "north", "south"),
        SealContext("0" * 64, "west", "south"),
        SealContext("0" * 64, "north", "west"),
        SealContext("0" * 64, "south", "north"),
    ):
        closed(sealed(), context)
    closed(sealed(), key=OTHER)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    ciphertext = sealed(b"n")
    for position in range(len(ciphertext)):
        closed(ciphertext[:position])
        for bit in range(8):
            changed = bytearray(ciphertext)
            changed[position] ^= 1 << bit
            closed(bytes(changed))


def with_own_key(_: SealingCertificate) -> SealingCertificate:
    """A go-between's own key, certified by itself."""
    return certify(OTHER)


def with_another_key(genuine: SealingCertificate) -> SealingCertificate:
    return genuine.model_copy(update={"key": certify(OTHER).key})


def with_the_identity_as_key(genuine: SealingCertificate) -> SealingCertificate:
    return genuine.model_copy(update={"key": OWN.public_hex})


def with_a_flipped_signature(genuine: SealingCertificate) -> SealingCertificate:
    first = "0" if genuine.signature[0] != "0" else "1"
    return genuine.model_copy(update={"signature": first + genuine.signature[1:]})


@pytest.mark.parametrize(
    "change", [with_own_key, with_another_key, with_the_identity_as_key, with_a_flipped_signature]
)
def test_a_substituted_certificate_seals_nothing(
    change: Callable[[SealingCertificate], SealingCertificate],
) -> None:
    changed = change(certify(OWN))
    with pytest.raises(SealError, match="not certified"):
        require_certified(changed, OWN.public_hex)
    with pytest.raises(SealError, match="not certified"):
        seal_to(changed, OWN.public_hex, CONTEXT, MESSAGE)


def test_a_key_of_small_order_seals_nothing() -> None:
    """The owner itself could certify it; what is sealed to it everybody could read."""
    zero = "0" * 64
    signature = OWN.sign(certified_bytes(OWN.public_hex, zero)).hex()
    with pytest.raises(SealError, match="nothing can be sealed"):
        seal_to(SealingCertificate(key=zero, signature=signature), OWN.public_hex, CONTEXT, MESSAGE)


def test_a_context_that_is_not_bound_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing.SealContext, "info", property(lambda _: b"tacit"))
    other = SealContext("1" * 64, "north", "south")
    assert open_sealed(OWN, other, sealed()) == MESSAGE


# Request tokens: forged, borrowed, stale and foreign ones are refused.


AUDIENCE = "https://tester.example"
NOW = int(time.time())


def refused(token: str, audience: str = AUDIENCE, now: int = NOW) -> None:
    with pytest.raises(TokenError):
        verify_token(token, audience, now)


def claims(**changes: Any) -> dict[str, Any]:
    plain = {"iss": KEY.public_hex, "aud": AUDIENCE, "iat": NOW, "exp": NOW + LIFE_S, "jti": "1"}
    return {name: value for name, value in (plain | changes).items() if value is not None}


def signed(**changes: Any) -> str:
    return jwt.encode(claims(**changes), KEY.ed25519, algorithm="EdDSA")


def _segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_names_its_signer() -> None:
    assert verify_token(issue_token(KEY, AUDIENCE, NOW), AUDIENCE, NOW) == KEY.public_hex
    assert verify_token(signed(), AUDIENCE, NOW) == KEY.public_hex


def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    token = issue_token(KEY, AUDIENCE, NOW)
    verify_token(token, AUDIENCE, NOW + LIFE_S + LEEWAY_S)
    verify_token(token, AUDIENCE, NOW - LEEWAY_S)
    refused(token, now=NOW + LIFE_S + LEEWAY_S + 1)
    refused(token, now=NOW - LEEWAY_S - 1)


def test_another_audience_is_refused() -> None:
    refused(issue_token(KEY, "https://other.example", NOW))
    refused(signed(aud=["https://other.example"]))


def test_a_forged_issuer_is_refused() -> None:
    mallory = PrivateKey.generate()
    refused(jwt.encode(claims(), mallory.ed25519, algorithm="EdDSA"))
    refused(signed(iss=mallory.public_hex))


def test_other_algorithms_are_refused() -> None:
    """None at all, and HS256 keyed with the public key."""
    refused(f"{_segment({'alg': 'none', 'typ': 'JWT'})}.{_segment(claims())}.")
    refused(jwt.encode(claims(), bytes.fromhex(KEY.public_hex), algorithm="HS256"))
    refused(jwt.encode(claims(), KEY.public_hex, algorithm="HS256"))


def test_missing_and_odd_claims_are_refused() -> None:
    for name in ("iss", "aud", "iat", "exp", "jti"):
        refused(signed(**{name: None}))
    for expires in (NOW + LIFE_S + 1, NOW, float(NOW + 10)):
        refused(signed(exp=expires))
    refused(signed(iat=True))
    for issuer in ("f" * 63, "zz" * 32):
        refused(signed(iss=issuer))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "x" * 5000, "é.é.é", "e30.e30.e30", "W10.W10.W10"])
def test_what_is_no_token_is_refused(token: str) -> None:
    refused(token)


def test_a_bit_flipped_in_any_character_is_refused() -> None:
    token = issue_token(KEY, AUDIENCE, NOW)
    for index in range(len(token)):
        changed = chr(ord(token[index]) ^ 2)
        if index == len(token) - 1:
            continue  # the last character's low bits carry no data in base64url
        refused(token[:index] + changed + token[index + 1 :])
