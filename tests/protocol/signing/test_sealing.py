"""Sealing: only the receiver opens, and only in the context that the message was sealed in."""

from collections.abc import Callable

import pytest

from tacit_protocol import signing
from tacit_protocol.messages.study import SealingCertificate
from tacit_protocol.signing import (
    PrivateKey,
    SealContext,
    SealError,
    certified_bytes,
    certify,
    open_sealed,
    require_certified,
    seal_to,
)

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
