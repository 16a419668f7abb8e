"""Releases: the private numbers that an owner sends, in the open, sealed to another owner, or declined.

The statement about a sealed release is signed and public; the ciphertext travels beside it, to the receiver
alone, and stands in no transcript: who one day learns the receiver's key must not find it there.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import OWNERS_MAX, UNITS_MAX, Digest, PartyName
from tacit_protocol.messages.transcript import EnvelopeText
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee, NoisyVector, RandomisedAnswers
from tacit_protocol.strict import Egress, StrictModel

CHOICES_MAX = 10**6
"""Most candidates of any procedure that draws one of them."""

UNITS = Egress(
    "public",
    "tacit_protocol.domain.table:Table.units",
    "n is public: neighbours replace a unit and never change how many there are",
)

BOUND = Egress(
    "public",
    "tacit_protocol.messages.release:ReleaseMessage",
    "names of the study and of the sender, which the study states",
)

UnitCount = Annotated[int, Field(ge=1, le=UNITS_MAX)]


class Release(StrictModel):
    """What a procedure privatised, not yet bound to a study and a party: noisy vectors, or a decision."""

    units: Annotated[UnitCount, UNITS]
    """Number of privacy units n. Public."""
    units_by_owner: Annotated[dict[PartyName, UnitCount], Field(max_length=OWNERS_MAX), UNITS] = Field(
        default_factory=dict
    )
    """Where a curator plays several owners' part: each one's units, which add up to ``units``. Public."""
    guarantee: Guarantee
    vectors: Annotated[dict[str, NoisyVector], Field(max_length=64)] = Field(default_factory=dict)
    decision: Annotated[
        bool | None,
        Egress(
            "noised",
            "tacit_protocol.privacy.permutation_test:permutation_decision",
            "one bit of a comparison of noisy statistics, or a private coin",
        ),
    ] = None
    """A private decision, where nothing finer is private."""
    choice: Annotated[
        Annotated[int, Field(ge=0, le=CHOICES_MAX)] | None,
        Egress(
            "noised",
            "tacit_protocol.privacy.laplace_mechanism:ExponentialChoice.choose",
            "drawn by the exponential mechanism from public candidates",
        ),
    ] = None
    """Which of the study's public candidates was drawn, counted from 0, where the procedure draws one."""
    answers: Annotated[dict[str, RandomisedAnswers], Field(max_length=64)] = Field(default_factory=dict)
    """Of a column a randomised answer of every unit, where the procedure asks for such."""
    cuts: Annotated[
        dict[str, Annotated[tuple[Annotated[int, Field(ge=1, le=CHOICES_MAX)], ...], Field(max_length=64)]],
        Field(max_length=128),
        Egress(
            "noised",
            "tacit_protocol.features.private_cells:ColumnCells.draw_cuts",
            "drawn by the exponential mechanism from all lists of places on a public grid",
        ),
    ] = Field(default_factory=dict)
    """Of a numeric column the private cuts between its cells, in steps of a public grid."""

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Releases without answers and cuts keep the bytes that they had before there were any.
        fields: dict[str, Any] = handler(self)
        return {n: value for n, value in fields.items() if value or n not in ("answers", "cuts")}

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.vectors and not self.answers and self.decision is None and self.choice is None:
            raise ValueError("a release holds noisy vectors, answers, a decision or a choice")
        if self.units_by_owner and sum(self.units_by_owner.values()) != self.units:
            raise ValueError("the owners' units do not add up to the release's")
        return self


class ReleaseMessage(StrictModel):
    """A release bound to its study and its owner: the payload that the owner signs."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"received"})

    format: Annotated[Literal["tacit/release/1"], BOUND] = "tacit/release/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    release: Release
    received: Annotated[
        Digest | None,
        Egress(
            "public",
            "tacit_protocol.procedures.relay:require_received",
            "says which release of another owner this one was computed with; that one is in the open",
        ),
    ] = None
    """Digest of what another owner signed in an earlier round, with which this release was computed."""


PublicRule = Literal["unequal-sizes", "too-few-units", "too-many-units", "too-many-numbers", "no-plan"]
"""Why a study cannot be run with an owner's number of units, whatever they hold: a closed list."""

PUBLIC_RULES: Mapping[PublicRule, str] = {
    "unequal-sizes": "the study pairs the units of two samples, and these have different sizes",
    "too-few-units": "the study's method needs more units than there are",
    "too-many-units": "the study's method takes fewer units than there are",
    "too-many-numbers": "so many units times so many projections make more numbers than a release holds",
    "no-plan": "with so many units, the method has no form that is private and keeps its level",
}
"""What each rule says, in words."""


class DeclineMessage(StrictModel):
    """The payload that an owner signs to decline a study.

    ``reason`` has one value for everyone: why an owner declines (its policy, its budget, its data, its
    steward) may say something about its data, and stays in its own ledger. ``rule`` may stand beside it: it
    follows from the study and the number of units alone, which is public.
    """

    added_fields: ClassVar[frozenset[str]] = frozenset({"rule"})

    format: Annotated[Literal["tacit/decline/1"], BOUND] = "tacit/decline/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    reason: Annotated[
        Literal["declined"],
        Egress("public", "tacit_protocol.messages.release:DeclineMessage", "one value, whatever the cause"),
    ] = "declined"
    rule: Annotated[
        PublicRule | None,
        Egress(
            "public",
            "tacit_protocol.procedures.base:require_units",
            "of a closed list, and a function of the study and the number of units, which is public",
        ),
    ] = None
    """The public rule that the owner's number of units breaks; None where nothing of the kind is said."""


HEADER_BYTES = 4096
"""Room for what a release message holds beside its numbers: one vector and a guarantee take 600 bytes."""

NUMBER_BYTES = 21
"""Room for one number: a sign, 19 digits and a comma."""

SEAL_BYTES = 48
"""What sealing adds: a key of 32 bytes and a tag of 16."""

CIPHERTEXT_BYTES_MAX = HEADER_BYTES + NUMBER_BYTES * COORDINATES_MAX + SEAL_BYTES
"""Largest ciphertext: 760 kB, a megabyte in base64, so that it fits one request's body."""


STATEMENT = Egress(
    "public",
    "tacit_protocol.messages.release:padded",
    "says which ciphertext; its size follows from the study",
)


class SealedRelease(StrictModel):
    """The payload that a sender signs: to whom it released, and which ciphertext holds the release."""

    format: Annotated[Literal["tacit/sealed-release/1"], BOUND] = "tacit/sealed-release/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    receiver: Annotated[PartyName, BOUND]
    units: Annotated[UnitCount, UNITS]
    """Number of privacy units n. Public."""
    ciphertext_digest: Annotated[Digest, STATEMENT]
    ciphertext_bytes: Annotated[int, Field(ge=SEAL_BYTES, le=CIPHERTEXT_BYTES_MAX), STATEMENT]


class SealedPackage(StrictModel):
    """What is sent and fetched: the signed statement's envelope, and the ciphertext in base64."""

    format: Annotated[Literal["tacit/sealed-package/1"], BOUND] = "tacit/sealed-package/1"
    statement: Annotated[EnvelopeText, STATEMENT]
    ciphertext: Annotated[
        str,
        Field(max_length=(CIPHERTEXT_BYTES_MAX + 2) // 3 * 4),
        Egress(
            "sealed",
            "tacit_protocol.signing.sealing:seal_to",
            "a release message, noised as any other, for the receiver that the study names alone",
        ),
    ]

    @classmethod
    def of(cls, statement: bytes, ciphertext: bytes) -> "SealedPackage":
        """Put an envelope and a ciphertext together."""
        text = base64.b64encode(ciphertext).decode("ascii")
        return cls(statement=statement.decode("utf-8"), ciphertext=text)

    @property
    def sealed(self) -> bytes:
        """The ciphertext's bytes; raises MessageError where the text is not base64 in its one spelling."""
        try:
            sealed = base64.b64decode(self.ciphertext, validate=True)
        except (binascii.Error, ValueError):
            raise MessageError("the ciphertext is not base64", "$.ciphertext") from None
        if base64.b64encode(sealed).decode("ascii") != self.ciphertext:
            raise MessageError("the ciphertext is not base64", "$.ciphertext")
        return sealed


class Receipt(StrictModel):
    """The payload that a receiver signs: it holds the sealed release. Nothing in it depends on its data."""

    format: Annotated[Literal["tacit/receipt/1"], BOUND] = "tacit/receipt/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    units: Annotated[UnitCount, UNITS]
    """Number of the receiver's own privacy units. Public."""
    received: Annotated[Digest, STATEMENT]
    """Digest of the sender's statement."""


class AcceptanceMessage(StrictModel):
    """The payload that a receiver signs before the sender spends: its own round is approved and reserved.

    It is signed before any data are read, and follows from the study, the owner's policy and the sums of what
    its ledger has spent and reserved: from nothing that neighbouring data sets differ in.
    """

    format: Annotated[Literal["tacit/acceptance/1"], BOUND] = "tacit/acceptance/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]


def padded(message: ReleaseMessage) -> bytes:
    """Encode a release to a size that its number of numbers fixes, so that a ciphertext's says no more.

    Raises MessageError where the message does not fit, which no release of a procedure does.
    """
    payload = encode(message)
    numbers = sum(len(vector.values) for vector in message.release.vectors.values())
    room = HEADER_BYTES + NUMBER_BYTES * numbers
    if len(payload) > room:
        raise MessageError("the release does not fit its padding")
    return payload + b" " * (room - len(payload))


def unpadded(plaintext: bytes) -> ReleaseMessage:
    """Read what :func:`padded` wrote; raises MessageError."""
    return decode(ReleaseMessage, plaintext)


def ciphertext_digest(ciphertext: bytes) -> str:
    """Return the digest that a statement names its ciphertext by."""
    return hashlib.sha256(ciphertext).hexdigest()
