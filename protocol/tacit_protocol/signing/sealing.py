"""Sealing: a message that only one owner can read, whoever carries it. HPKE of RFC 9180, base mode.

An owner's sealing key is an X25519 key derived from its identity key, so that there is no second key to
keep. A certificate, signed with the identity key, says which it is; it stands in the study, and whoever seals
checks it, so that neither analyst nor tester can put a key of its own in the place. The study, the sender and
the receiver are bound into the key schedule (``info``): a ciphertext opens as part of its own study alone.
Who sent it is not HPKE's affair here: the sender signs a statement that names the ciphertext.
"""

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import SealingCertificate
from tacit_protocol.signing.keys import PrivateKey, SignatureError, verify_signature

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
