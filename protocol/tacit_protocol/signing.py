"""Ed25519 keys (RFC 8032): how a party is known, and how it signs. Tokens, envelopes and sealed messages.

A request's token is a self-signed EdDSA JSON Web Token (RFC 7519, RFC 8037) that lives one minute. It says
"the holder of this key is asking this service now", nothing more: whether the key is known, and what it may
do, is the service's affair. It travels under TLS; what it allows is idempotent.

A DSSE envelope (https://github.com/secure-systems-lab/dsse) holds a payload's exact bytes, its type, and one
signature over both, in standard base64 and one spelling: the JSON has sorted keys and no spaces, so that an
envelope can be compared and stored byte by byte. The signature is checked before the payload is parsed, and
the payload is never encoded again.

A sealed message can be read by one owner alone, whoever carries it: HPKE of RFC 9180, base mode. An owner's
sealing key is an X25519 key derived from its identity key, so that there is no second key to keep. A
certificate, signed with the identity key, says which it is; it stands in the study, and whoever seals checks
it, so that neither analyst nor tester can put a key of its own in the place. The study, the sender and the
receiver are bound into the key schedule (``info``): a ciphertext opens as part of its own study alone. Who
sent it is not HPKE's affair here: the sender signs a statement that names the ciphertext.

Errors::

    SignatureError        a signature does not hold, or a key cannot be read
    ├── EnvelopeError     an envelope is not what its receiver expects
    ├── SealError         a sealed message or a certificate is not what its reader expects
    └── TokenError        a request's token is not valid here and now
"""

import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import jwt
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import Field

from tacit_protocol.messages.encoding import MessageError, decode, encode_json
from tacit_protocol.messages.study import SealingCertificate
from tacit_protocol.strict import Egress, StrictModel

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


_MODULUS = 2**255 - 19
_OF_ORDER_EIGHT = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
SMALL_ORDER = frozenset({0, 1, _MODULUS - 1, _OF_ORDER_EIGHT, _MODULUS - _OF_ORDER_EIGHT})
"""Second coordinates of the points of order 8 or less: whoever has none of their keys signs for them all."""


def load_public_key(public_hex: str) -> Ed25519PublicKey:
    """Read a public key from its 64 lower-case hexadecimal digits.

    Raises:
        SignatureError: the text is not of that form, or no public key; anybody could sign for it; or it is a
            second spelling of a key.
    """
    if len(public_hex) != PUBLIC_HEX_LENGTH or not set(public_hex) <= set("0123456789abcdef"):
        raise SignatureError("a public key is 64 lower-case hexadecimal digits")
    y = int.from_bytes(bytes.fromhex(public_hex), "little") % 2**255
    if y in SMALL_ORDER or y >= _MODULUS:
        raise SignatureError("anybody could sign for this key: make another one")
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


LIFE_S = 60
"""A token's life: long enough for one request, short enough that a leaked one is soon worthless."""

LEEWAY_S = 30
"""How far the clocks of two institutions may differ."""

TOKEN_LENGTH_MAX = 2048
"""A token has about 400 characters; a longer one is not read."""

ALGORITHM = "EdDSA"
CLAIMS = {
    "iss": "the caller's public key",
    "aud": "the service that is asked",
    "iat": "the caller's clock, in whole seconds",
    "exp": "a minute later",
    "jti": "sixteen random bytes",
}
"""What a token says. None of it depends on data."""


class TokenError(SignatureError):
    """The token is not valid here and now. The text is constant."""


def issue_token(key: PrivateKey, audience: str, now: int) -> str:
    """Sign a token for one service, valid for :data:`LIFE_S` seconds from ``now`` (Unix seconds)."""
    claims = {
        "iss": key.public_hex,
        "aud": audience,
        "iat": now,
        "exp": now + LIFE_S,
        "jti": secrets.token_hex(16),
    }
    return jwt.encode(claims, key.ed25519, algorithm=ALGORITHM)


def verify_token(token: str, audience: str, now: int) -> str:
    """Return the public key (hex) that signed the token for this audience.

    The caller decides whether that key is known.

    Raises:
        TokenError: malformed, forged, for another audience, of another algorithm, expired or not yet valid.
    """
    if len(token) > TOKEN_LENGTH_MAX:
        raise TokenError("the token is too long")
    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        public_key = load_public_key(issuer if isinstance(issuer, str) else "")
        # The clock is passed in, so times are checked below rather than by the library.
        claims = jwt.decode(
            token,
            public_key,
            algorithms=[ALGORITHM],
            audience=audience,
            options={"require": list(CLAIMS), "verify_exp": False, "verify_iat": False, "verify_nbf": False},
        )
    except (jwt.InvalidTokenError, SignatureError, ValueError, RecursionError):
        raise TokenError("the token is not valid for this service") from None
    _check_times(claims, now)
    return str(issuer)


def _check_times(claims: dict[str, Any], now: int) -> None:
    issued, expires = claims["iat"], claims["exp"]
    if type(issued) is not int or type(expires) is not int:
        raise TokenError("the token's times are not whole seconds")
    if not 0 < expires - issued <= LIFE_S:
        raise TokenError("the token's life is too long")
    if now > expires + LEEWAY_S:
        raise TokenError("the token has expired")
    if now < issued - LEEWAY_S:
        raise TokenError("the token is not valid yet")


STUDY_TYPE = "application/vnd.tacit.study.v1+json"
RELEASE_TYPE = "application/vnd.tacit.release.v1+json"
VERDICT_TYPE = "application/vnd.tacit.verdict.v1+json"
DECLINE_TYPE = "application/vnd.tacit.decline.v1+json"
CANCELLATION_TYPE = "application/vnd.tacit.cancellation.v1+json"
SEALED_RELEASE_TYPE = "application/vnd.tacit.sealed-release.v1+json"
RECEIPT_TYPE = "application/vnd.tacit.receipt.v1+json"
ACCEPTANCE_TYPE = "application/vnd.tacit.acceptance.v1+json"
MASK_KEY_TYPE = "application/vnd.tacit.mask-key.v1+json"
ALIGNMENT_TYPE = "application/vnd.tacit.alignment.v1+json"
CATALOGUE_TYPE = "application/vnd.tacit.catalogue.v1+json"

ENVELOPE_BYTES_MAX = 2**20
"""Largest envelope: one request's body. Its payload has at most three quarters of that."""


class EnvelopeError(SignatureError):
    """The envelope is not what its receiver expects. The text is constant."""


SIGNED = Egress(
    "public",
    "tacit_protocol.signing:sign_envelope",
    "the key that the study names, and its signature of the payload",
)


class _Signature(StrictModel):
    keyid: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), SIGNED]
    sig: Annotated[str, Field(min_length=88, max_length=88), SIGNED]


class Envelope(StrictModel):
    """A DSSE envelope as it is written; :func:`sign_envelope` and :func:`open_envelope` make and read it."""

    payload: Annotated[
        str,
        Egress("post-processed", "tacit_protocol.signing:sign_envelope", "a message with rows of its own"),
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
            "application/vnd.tacit.mask-key.v1+json",
            "application/vnd.tacit.alignment.v1+json",
            "application/vnd.tacit.catalogue.v1+json",
        ],
        SIGNED,
    ]
    signatures: Annotated[tuple[_Signature, ...], Field(min_length=1, max_length=1)]


def sign_envelope(payload: bytes, payload_type: str, key: PrivateKey) -> bytes:
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


KEY_LABEL = b"tacit/sealing-key/1"
"""HKDF's label: what is derived serves sealing alone."""

CERTIFICATE_LABEL = b"tacit/sealing-certificate/1\n"
"""What a certificate's signed bytes begin with: no envelope and no token begins so."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class SealError(SignatureError):
    """A sealed message or a certificate is not what its reader expects. The text is constant."""


@dataclass(frozen=True)
class SealContext:
    """What a sealed message belongs to: a study's digest, the sender's and the receiver's name."""

    study: str
    sender: str
    receiver: str

    @property
    def info(self) -> bytes:
        """The bytes that are bound into HPKE's key schedule."""
        return encode_json(
            {
                "format": "tacit/seal/1",
                "study": self.study,
                "sender": self.sender,
                "receiver": self.receiver,
            }
        )


def sealing_key(key: PrivateKey) -> X25519PrivateKey:
    """Derive an identity's sealing key: the same each time."""
    seed = key.ed25519.private_bytes_raw()
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=KEY_LABEL).derive(seed)
    return X25519PrivateKey.from_private_bytes(derived)


def certified_bytes(identity_hex: str, sealing_hex: str) -> bytes:
    """Return what a certificate signs: the label, and both keys."""
    return CERTIFICATE_LABEL + f"{identity_hex} {sealing_hex}".encode("ascii")


def certify(key: PrivateKey) -> SealingCertificate:
    """Return the certificate of an identity's sealing key: the same each time."""
    public_hex = sealing_key(key).public_key().public_bytes_raw().hex()
    signature = key.sign(certified_bytes(key.public_hex, public_hex))
    return SealingCertificate(key=public_hex, signature=signature.hex())


def require_certified(certificate: SealingCertificate, identity_hex: str) -> None:
    """Return if the owner of this identity key certified the sealing key.

    Raises:
        SealError: it did not.
    """
    try:
        signature = bytes.fromhex(certificate.signature)
        verify_signature(identity_hex, signature, certified_bytes(identity_hex, certificate.key))
    except SignatureError:
        raise SealError("the sealing key is not certified by its owner") from None


def seal_to(
    certificate: SealingCertificate, identity_hex: str, context: SealContext, message: bytes
) -> bytes:
    """Seal a message to the owner of an identity key; the ciphertext is 48 bytes longer.

    Raises:
        SealError: the certificate does not hold, or its key is none.
    """
    require_certified(certificate, identity_hex)
    try:
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(certificate.key))
        return _SUITE.encrypt(message, public, info=context.info)
    except (ValueError, UnsupportedAlgorithm):
        raise SealError("nothing can be sealed to this key") from None


def open_sealed(key: PrivateKey, context: SealContext, ciphertext: bytes) -> bytes:
    """Return the message that was sealed to this identity in this context.

    Raises:
        SealError: it was sealed to another key or in another context, or was changed.
    """
    try:
        return _SUITE.decrypt(ciphertext, sealing_key(key), info=context.info)
    except (InvalidTag, ValueError, UnsupportedAlgorithm):
        raise SealError("the sealed message cannot be opened") from None


NO_NONCE = bytes(16)
"""ChaCha20's counter and nonce: each key of a pair serves one vector of one study, so both begin at 0."""


def draw_mask_secret() -> bytes:
    """Draw an owner's X25519 secret (32 bytes) for one study, from the operating system's randomness."""
    return X25519PrivateKey.generate().private_bytes_raw()


def mask_public_hex(secret: bytes) -> str:
    """Return the public key of a secret: 64 lower-case hexadecimal digits."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()


def pair_stream(secret: bytes, public_hex: str, info: bytes, size_bytes: int) -> bytes:
    """Return the bytes that two owners share for one purpose, ``info``, and nobody else can tell from chance.

    X25519 between the one's secret and the other's public key, HKDF with SHA-256, and ChaCha20's stream.

    Raises:
        SignatureError: the public key is none, or one of the few that share the same secret with everybody.
    """
    try:
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(public_hex))
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(public)
    except ValueError:
        raise SignatureError("nothing can be shared with this key") from None
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)
    return Cipher(ChaCha20(key, NO_NONCE), mode=None).encryptor().update(bytes(size_bytes))
