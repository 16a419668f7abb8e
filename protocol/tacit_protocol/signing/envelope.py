"""DSSE envelopes: a payload's exact bytes, its type, and one Ed25519 signature over both.

Format: https://github.com/secure-systems-lab/dsse, with one signature, standard base64, and one spelling:
the JSON has sorted keys and no spaces, so that an envelope can be compared and stored byte by byte. The
signature is checked before the payload is parsed, and the payload is never encoded again.
"""

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.messages.encoding import MessageError, decode, encode_json
from tacit_protocol.signing.keys import PrivateKey, SignatureError, verify_signature
from tacit_protocol.strict import Egress, StrictModel

STUDY_TYPE = "application/vnd.tacit.study.v1+json"
RELEASE_TYPE = "application/vnd.tacit.release.v1+json"
VERDICT_TYPE = "application/vnd.tacit.verdict.v1+json"
DECLINE_TYPE = "application/vnd.tacit.decline.v1+json"
CANCELLATION_TYPE = "application/vnd.tacit.cancellation.v1+json"
SEALED_RELEASE_TYPE = "application/vnd.tacit.sealed-release.v1+json"
RECEIPT_TYPE = "application/vnd.tacit.receipt.v1+json"
ACCEPTANCE_TYPE = "application/vnd.tacit.acceptance.v1+json"
ALIGNMENT_TYPE = "application/vnd.tacit.alignment.v1+json"

ENVELOPE_BYTES_MAX = 2**20
"""Largest envelope: one request's body. Its payload has at most three quarters of that."""


class EnvelopeError(SignatureError):
    """The envelope is not what its receiver expects. The text is constant."""


SIGNED = Egress(
    "public",
    "tacit_protocol.signing.envelope:seal",
    "the key that the study names, and its signature of the payload",
)


class _Signature(StrictModel):
    keyid: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), SIGNED]
    sig: Annotated[str, Field(min_length=88, max_length=88), SIGNED]


class Envelope(StrictModel):
    """A DSSE envelope as it is written; :func:`seal` and :func:`open_envelope` make and read it."""

    payload: Annotated[
        str,
        Egress("post-processed", "tacit_protocol.signing.envelope:seal", "a message with rows of its own"),
    ]
    payloadType: Annotated[  # noqa: N815 (the format's name)
        Literal[
            "application/vnd.tacit.study.v1+json",
            "application/vnd.tacit.release.v1+json",
            "application/vnd.tacit.verdict.v1+json",
            "application/vnd.tacit.decline.v1+json",
            "application/vnd.tacit.cancellation.v1+json",
            "application/vnd.tacit.sealed-release.v1+json",
            "application/vnd.tacit.receipt.v1+json",
            "application/vnd.tacit.acceptance.v1+json",
            "application/vnd.tacit.alignment.v1+json",
        ],
        SIGNED,
    ]
    signatures: Annotated[tuple[_Signature, ...], Field(min_length=1, max_length=1)]


def seal(payload: bytes, payload_type: str, key: PrivateKey) -> bytes:
    """Sign a payload; returns the envelope's exact bytes, to be stored and sent as they are.

    Raises:
        EnvelopeError: the envelope would be larger than :data:`ENVELOPE_BYTES_MAX`.
    """
    envelope = _write(payload, payload_type, key.public_hex, key.sign(_encoding(payload, payload_type)))
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise EnvelopeError("the payload is too large for an envelope")
    return envelope


def open_envelope(envelope: bytes, payload_type: str, public_hex: str) -> bytes:
    """Return the payload once the type and the signature have been checked.

    Args:
        envelope: the exact bytes received.
        payload_type: the type that is expected here; an envelope of another type is refused.
        public_hex: the key that must have signed.

    Raises:
        EnvelopeError: malformed, of another type, of another key, or the signature does not hold.
    """
    payload, found_type, key_id, signature = _read(envelope)
    if found_type != payload_type:
        raise EnvelopeError("the envelope holds another type of message")
    if key_id != public_hex:
        raise EnvelopeError("the envelope names another key")
    try:
        verify_signature(public_hex, signature, _encoding(payload, payload_type))
    except SignatureError:
        raise EnvelopeError("the signature does not hold") from None
    return payload


def peek_key_id(envelope: bytes) -> str:
    """Return the public key that the envelope claims, unverified: only good for looking up a party.

    Raises:
        EnvelopeError: malformed.
    """
    return _read(envelope)[2]


def payload_of(envelope: bytes) -> bytes:
    """Return an envelope's payload, unverified: for one that was made or checked here before.

    Raises:
        EnvelopeError: malformed.
    """
    return _read(envelope)[0]


def _encoding(payload: bytes, payload_type: str) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _write(payload: bytes, payload_type: str, key_id: str, signature: bytes) -> bytes:
    return encode_json(
        {
            "payload": base64.b64encode(payload).decode("ascii"),
            "payloadType": payload_type,
            "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode("ascii")}],
        }
    )


def _read(envelope: bytes) -> tuple[bytes, str, str, bytes]:
    try:
        parsed = decode(Envelope, envelope, size_bytes_max=ENVELOPE_BYTES_MAX)
        payload = base64.b64decode(parsed.payload, validate=True)
        signature = base64.b64decode(parsed.signatures[0].sig, validate=True)
    except (MessageError, binascii.Error, ValueError):
        raise EnvelopeError("this is not an envelope") from None
    key_id = parsed.signatures[0].keyid
    # One spelling only: spare bits of base64, spaces or reordered keys would make two envelopes of one.
    if _write(payload, parsed.payloadType, key_id, signature) != envelope:
        raise EnvelopeError("the envelope is not in its one spelling")
    return payload, parsed.payloadType, key_id, signature
