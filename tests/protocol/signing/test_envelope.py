"""Envelopes: what an attacker may try with the bytes, and what each receiver refuses."""

import base64
import json

import pytest
from securesystemslib.dsse import Envelope

from tacit_protocol.signing import (
    ENVELOPE_BYTES_MAX,
    RELEASE_TYPE,
    STUDY_TYPE,
    EnvelopeError,
    PrivateKey,
    open_envelope,
    peek_key_id,
    sign_envelope,
    verify_signature,
)

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
