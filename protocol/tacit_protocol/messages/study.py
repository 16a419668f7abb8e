"""A study: one question, frozen; what each owner sends for it; and the transcript of how it ended.

A study is identified by the SHA-256 digest of its exact bytes. An owner's private numbers travel in the open,
sealed to another owner, or are declined. The statement about a sealed release is signed and public; the
ciphertext travels beside it, to the receiver alone, and stands in no transcript: who one day learns the
receiver's key must not find it there. A transcript is enough for anyone to recompute and check the verdict.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit_protocol.domain import COLUMNS_MAX, ColumnName, Domain, Encoder
from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, MessageError, decode, encode
from tacit_protocol.privacy.guarantee import (
    COORDINATES_MAX,
    Budget,
    Guarantee,
    MaskedVector,
    NoisyVector,
    RandomisedAnswers,
)
from tacit_protocol.strict import Egress, StrictModel

OWNERS_MAX = 1000
"""Most owners of one study."""

REUSES_MAX = 100
"""Most owners of one study whose earlier releases are read again: each, up to a mebibyte, is read and checked
before the study is taken."""

ENCODERS_MAX = 16
"""Most encoders of one study."""

UNITS_MAX = 2**40
"""Most privacy units an owner may hold."""

RESPOND_AFTER_S = 3
"""How long after an owner's decision its answer leaves, unless the study says otherwise: a release of a small
data set takes less, so that its time of arrival says nothing."""

RESPOND_AFTER_S_MAX = 7 * 24 * 3600
"""Longest such time that a study may ask for."""

ANALYSTS = Egress(
    "public", "tacit_protocol.messages.study:Study", "the analyst writes it, before any data is read"
)

PartyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
DataSetName = PartyName
PublicKeyHex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
NamedKey = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}:[0-9a-f]{64}$")]
"""A public key with the name that its party must give in studies, ``ann:3f1c…``: an entry of a policy."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
UnixTime = Annotated[int, Field(ge=0, le=2**40)]
RespondAfter = Annotated[int, Field(ge=0, le=RESPOND_AFTER_S_MAX)]
Seed = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
LEVEL_MIN = 1e-12
"""Least level: beside 1 a much smaller one is lost to rounding, and its intervals have no end."""

UnitRows = Literal["average", "one"]

Level = Annotated[float, Field(ge=LEVEL_MIN, lt=0.5)]
EnvelopeText = Annotated[str, Field(min_length=2, max_length=MESSAGE_BYTES_MAX)]
"""A DSSE envelope's JSON, exactly as it was signed and sent. At most as long as one request's body."""

Purpose = Annotated[str, Field(min_length=1, max_length=1000)]
Contact = Annotated[str, Field(min_length=1, max_length=200)]
ApprovalNumber = Annotated[str, Field(min_length=1, max_length=200)]
DataUse = Annotated[str, Field(pattern=r"^DUO:[0-9]{7}$")]
"""A term of GA4GH's Data Use Ontology, such as ``DUO:0000042``; :data:`DATA_USES` has words for some."""

DATA_USES = {
    "DUO:0000004": "no restriction",
    "DUO:0000006": "health, medical or biomedical research",
    "DUO:0000007": "research on one disease",
    "DUO:0000011": "research on population origins or ancestry",
    "DUO:0000042": "general research use",
    "DUO:0000043": "clinical care use",
}
"""Permissions of the Data Use Ontology in words."""

PurposeField = Literal["purpose", "contact", "approval_number", "data_use"]
"""A field of a study that says what it is for; owners' policies may require it."""


class Party(StrictModel):
    """A party and the Ed25519 public key it is known by."""

    egress: ClassVar = ANALYSTS

    name: PartyName
    key: PublicKeyHex


class SealingCertificate(StrictModel):
    """An owner's X25519 key, to which messages for it alone are sealed, signed with its identity key."""

    egress: ClassVar = Egress(
        "public", "tacit_protocol.signing:certify", "a public key and a signature: no data is read"
    )

    key: PublicKeyHex
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
    """Over what :func:`tacit_protocol.signing.certified_bytes` returns."""


class Owner(Party):
    """A data owner's part in a study; in a curated study its data set is one that the curator holds."""

    egress: ClassVar = ANALYSTS

    data_set: DataSetName
    units: Annotated[int, Field(ge=1, le=UNITS_MAX)] | None = None
    """How many privacy units the analyst expects; public, used for planning alone."""
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=COLUMNS_MAX)] | None = None
    """Which of the study's columns this owner holds; None where every owner holds all of them."""
    sealing: SealingCertificate | None = None
    """The key that another owner's release is sealed to, where this owner receives one."""
    reuses: Digest | None = None
    """An earlier study at the same tester, whose release by this very owner (name, key and data set) is read
    again: the owner is not asked, and spends nothing. None asks the owner for a release of its own."""


class Study(StrictModel):
    """One question, frozen: procedure, columns, parties, budget, level and deadline."""

    egress: ClassVar = ANALYSTS

    format: Literal["tacit/study/1"] = "tacit/study/1"
    title: Annotated[str, Field(min_length=1, max_length=200)]
    purpose: Purpose | None = None
    """What the answer is for. This and the next three fields are the analyst's own words."""
    contact: Contact | None = None
    """Who answers for the study: a name, an address."""
    approval_number: ApprovalNumber | None = None
    """An ethics committee's or an access committee's number for it, and whose it is."""
    data_use: DataUse | None = None
    """The kind of use, as a code of the Data Use Ontology."""
    procedure: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    procedure_origin: (
        Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100} [A-Za-z0-9.!+_-]{1,50}$")] | None
    ) = None
    """The distribution and version that bring the procedure, ``sign-test 1.0.2``; None of a built-in one."""
    parameters: dict[str, Any]
    """Checked by the procedure's own ``Parameters`` model."""
    domain: Domain
    encoders: Annotated[tuple[Encoder, ...], Field(max_length=ENCODERS_MAX)] = ()
    """How some of the domain's numeric columns are made of others of the data set, row by row."""
    unit_column: ColumnName | None = None
    """The column whose value names the privacy unit; None where every row is a unit."""
    unit_rows: UnitRows = "average"
    """What of a unit with several rows counts: their average, or ``one``, drawn by the study's seed."""
    alignment: Annotated[
        Digest | None,
        Egress(
            "keyed",
            "tacit_protocol.messages.alignment:UnitKey",
            "digest of the ids that two owners share: says nothing without their key",
        ),
    ] = None
    """Keyed digest of the units that two owners of different columns both hold: says nothing without the key.
    See docs/how-to/align-two-owners.md."""
    owners: Annotated[tuple[Owner, ...], Field(min_length=1, max_length=OWNERS_MAX)]
    curator: Party | None = None
    """Who holds the owners' data and plays their part in one release; None where every owner has an agent."""
    tester: Party
    analyst: Party
    budget: Budget
    """What each owner spends on its data set, whoever plays its part."""
    level: Level
    created_at: UnixTime
    deadline: UnixTime
    respond_after_s: RespondAfter = RESPOND_AFTER_S
    """When answers leave: this long after an owner's decision, so that their time says nothing about data.

    State more than the slowest owner needs. 0 asks for no schedule; policies refuse it unless they allow it.
    """
    seed: Seed
    """Public randomness: of feature locations and of simulated null distributions, never of noise."""

    @model_validator(mode="after")
    def _parties_are_distinct(self) -> Self:
        holders = [*self.owners, *([self.curator] if self.curator is not None else [])]
        names = [party.name for party in holders]
        keys = [party.key for party in holders] + [self.tester.key]
        if len(set(names)) != len(names) or len(set(keys)) != len(keys):
            raise ValueError("owners, curator and tester must have distinct names and keys")
        if self.deadline <= self.created_at:
            raise ValueError("the deadline must come after the study's creation")
        if self.unit_column is not None and self.unit_column in {c.name for c in self.domain.columns}:
            raise ValueError("the unit column cannot be a column of the test")
        if self.unit_column is None and self.unit_rows != "average":
            raise ValueError("one row a unit needs the unit column that says whose row it is")
        return self

    @model_validator(mode="after")
    def _alignment_is_between_two(self) -> Self:
        if self.alignment is None:
            return self
        if self.unit_column is None:
            raise ValueError("an alignment needs the unit column that both owners share")
        if len(self.owners) != 2 or self.curator is not None or None in [o.columns for o in self.owners]:
            raise ValueError("an alignment is between two owners who hold different columns")
        return self

    @model_validator(mode="after")
    def _columns_are_the_studys(self) -> Self:
        known = {column.name for column in self.domain.columns}
        for owner in self.owners:
            names = owner.columns or ()
            if len(set(names)) != len(names) or not known.issuperset(names):
                raise ValueError("an owner's columns must be distinct columns of the study")
        return self

    @model_validator(mode="after")
    def _encoders_make_columns(self) -> Self:
        made = [name for encoder in self.encoders for name in encoder.outputs]
        if not made:
            return self
        if self.curator is not None:
            raise ValueError("where a curator answers for the owners, no encoder runs: leave encoders out")
        if len(set(made)) != len(made) or not {c.name for c in self.domain.numeric}.issuperset(made):
            raise ValueError("outputs of encoders must be distinct numeric columns of the study")
        read = {column.name for encoder in self.encoders for column in encoder.inputs}
        if read & {*made, self.unit_column}:
            raise ValueError("an encoder reads columns that no encoder makes, and not the unit column")
        for owner in self.owners:
            held = set(made if owner.columns is None else owner.columns)
            if any(0 < len(held.intersection(one.outputs)) < len(one.outputs) for one in self.encoders):
                raise ValueError("an owner holds all outputs of an encoder or none")
        return self

    @model_validator(mode="after")
    def _reuse_is_the_owners_own(self) -> Self:
        if self.reusing and self.curator is not None:
            raise ValueError("where a curator answers for the owners, none of them can reuse a release")
        if len(self.reusing) > REUSES_MAX:
            raise ValueError(f"at most {REUSES_MAX} owners of a study can reuse a release")
        return self

    def owner_named(self, name: str) -> Owner:
        """Return the owner of that name, who must be one of the study's."""
        return next(owner for owner in self.owners if owner.name == name)

    @property
    def columns_apart(self) -> bool:
        """Whether owners hold columns of their own, and not all of them the same."""
        return any(owner.columns is not None for owner in self.owners)

    def domain_of(self, owner: Owner) -> Domain:
        """Return the columns that one of the study's owners holds, in the study's order."""
        if owner.columns is None:
            return self.domain
        return Domain(columns=tuple(c for c in self.domain.columns if c.name in owner.columns))

    def encoders_of(self, owner: Owner) -> tuple[Encoder, ...]:
        """Return the encoders that one of the study's owners runs."""
        held = {column.name for column in self.domain_of(owner).columns}
        return tuple(encoder for encoder in self.encoders if held.issuperset(encoder.outputs))

    def columns_read(self, owner: Owner) -> frozenset[str]:
        """Return the names of a data set's own columns that are read for one of the study's owners."""
        encoders = self.encoders_of(owner)
        made = {name for encoder in encoders for name in encoder.outputs}
        held = {column.name for column in self.domain_of(owner).columns}
        return frozenset(held - made | {column.name for encoder in encoders for column in encoder.inputs})

    @property
    def stated_purpose(self) -> tuple[tuple[str, str], ...]:
        """What the study says of its purpose, as pairs of a label and the analyst's words."""
        use = None if self.data_use is None else DATA_USES.get(self.data_use)
        said = (
            ("Purpose", self.purpose),
            ("Contact", self.contact),
            ("Approval number", self.approval_number),
            ("Data use", self.data_use if use is None else f"{self.data_use}, {use}"),
        )
        return tuple((label, words) for label, words in said if words is not None)

    @property
    def averages_rows(self) -> bool:
        """Whether a unit may count by the average of several rows."""
        return self.unit_column is not None and self.unit_rows == "average"

    @property
    def reusing(self) -> tuple[Owner, ...]:
        """The owners whose earlier releases are read again."""
        return tuple(owner for owner in self.owners if owner.reuses is not None)

    @property
    def senders(self) -> tuple[Party, ...]:
        """Who sends a release: every owner that does not reuse one, or the curator for all of them.

        Empty where every owner's earlier release is read again.
        """
        if self.curator is not None:
            return (self.curator,)
        return tuple(owner for owner in self.owners if owner.reuses is None)


STUDIES_KEPT = 16
"""Studies that a process keeps as it read them last: each at most as long as one request's body."""


@lru_cache(STUDIES_KEPT)
def read_study(payload: bytes) -> Study:
    """Read a study strictly: the same object for the same bytes, so that what it fixes is worked out once.

    Signatures are checked before, each time.

    Raises:
        MessageError: the bytes are not a study.
    """
    return decode(Study, payload)


class CancellationMessage(StrictModel):
    """The payload that a study's analyst signs to withdraw it."""

    egress: ClassVar = ANALYSTS

    format: Literal["tacit/cancellation/1"] = "tacit/cancellation/1"
    study: Digest


CHOICES_MAX = 10**6
"""Most candidates of any procedure that draws one of them."""

UNITS = Egress(
    "public",
    "tacit_protocol.domain:Table.units",
    "n is public: neighbours replace a unit and never change how many there are",
)

BOUND = Egress(
    "public",
    "tacit_protocol.messages.study:ReleaseMessage",
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
    masked: Annotated[dict[str, MaskedVector], Field(max_length=64)] = Field(default_factory=dict)
    """In the place of noisy vectors, where only the sum of all owners' can be read."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (
            not (self.vectors or self.answers or self.masked)
            and self.decision is None
            and self.choice is None
        ):
            raise ValueError("a release holds noisy vectors, answers, a decision or a choice")
        if self.units_by_owner and sum(self.units_by_owner.values()) != self.units:
            raise ValueError("the owners' units do not add up to the release's")
        return self


class ReleaseMessage(StrictModel):
    """A release bound to its study and its owner: the payload that the owner signs."""

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
    """Digest of what other owners signed in an earlier round, with which this release was computed: another's
    release, or all owners' keys of a study with masks."""


PublicRule = Literal[
    "unequal-sizes", "too-few-units", "too-many-units", "too-many-numbers", "no-plan", "no-encoder"
]
"""Why a study cannot be run by an owner, whatever its data hold: a closed list."""

PUBLIC_RULES: Mapping[PublicRule, str] = {
    "unequal-sizes": "the study pairs the units of two samples, and these have different sizes",
    "too-few-units": "the study's method needs more units than there are",
    "too-many-units": "the study's method takes fewer units than there are",
    "too-many-numbers": "so many units times so many projections make more numbers than a release holds",
    "no-plan": "with so many units, the method has no form that is private and keeps its level",
    "no-encoder": "an encoder of the study is allowed there, and its file or what runs it is not installed",
}
"""What each rule says, in words."""


class DeclineMessage(StrictModel):
    """The payload that an owner signs to decline a study.

    ``reason`` has one value for everyone: why an owner declines (its policy, its budget, its data, its
    steward) may say something about its data, and stays in its own ledger. ``rule`` may stand beside it: it
    follows from the study, the number of units, which is public, and the programs and files of the agent.
    """

    format: Annotated[Literal["tacit/decline/1"], BOUND] = "tacit/decline/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    reason: Annotated[
        Literal["declined"],
        Egress("public", "tacit_protocol.messages.study:DeclineMessage", "one value, whatever the cause"),
    ] = "declined"
    rule: Annotated[
        PublicRule | None,
        Egress(
            "public",
            "tacit_protocol.procedures.base:require_units",
            "of a closed list: a function of the study, the number of units, which is public, and what is "
            "installed",
        ),
    ] = None
    """The public rule that the owner breaks; None where nothing of the kind is said."""


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
    "tacit_protocol.messages.study:padded",
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
            "tacit_protocol.signing:seal_to",
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


class MaskKeyMessage(StrictModel):
    """The payload that an owner signs in the first round of a study with masks: its key for this study alone.

    It is signed before any data are read, as an acceptance is, and the owner's cost is reserved by then.
    """

    format: Annotated[Literal["tacit/mask-key/1"], BOUND] = "tacit/mask-key/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    key: Annotated[
        PublicKeyHex,
        Egress(
            "public",
            "tacit_protocol.signing:draw_mask_secret",
            "an X25519 key from the operating system's randomness: no data is read",
        ),
    ]


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


ENDED = Egress(
    "public",
    "tacit_services.tester.verdicts:end",
    "how the study ended, and digests of what everyone may read",
)


class VerdictMessage(StrictModel):
    """The payload that the tester signs when a study ends.

    ``completed``: ``result`` holds the procedure's verdict, computed from exactly the listed releases.
    ``incomplete``: the deadline passed, every owner had answered, or a key that the study needs was revoked;
    ``missing`` names who sent no release.
    ``cancelled``: the analyst withdrew the study; the transcript holds its signed cancellation.
    """

    format: Annotated[Literal["tacit/verdict/1"], ENDED] = "tacit/verdict/1"
    study: Annotated[Digest, ENDED]
    outcome: Annotated[Literal["completed", "incomplete", "cancelled"], ENDED]
    releases: Annotated[dict[PartyName, Digest], Field(max_length=1000), ENDED]
    """Digest of each owner's release payload, by owner; a reused one's too, which names its own study."""
    missing: Annotated[tuple[PartyName, ...], Field(max_length=1000), ENDED] = ()
    declines: Annotated[dict[PartyName, Digest] | None, Field(max_length=1000), ENDED] = None
    """Digest of each decline's payload, by owner, so that none can be removed from the record. None where the
    study is completed."""
    revoked: Annotated[tuple[PartyName, ...], Field(max_length=1000), ENDED] = ()
    """Whose revoked key ended the study: its analyst's, or one from which a release was missing."""
    result: Annotated[
        dict[str, Any] | None,
        Egress(
            "post-processed",
            "tacit_protocol.procedures.base:Procedure.assemble",
            "computed from the study and the releases alone: anyone computes it again",
        ),
    ] = None
    software: Annotated[str, Field(max_length=64), ENDED]
    """Name and version of the software that computed it, e.g. ``tacit 0.1.0``."""


TRANSCRIPT_BYTES_MAX = 2**28
"""Largest transcript: 256 MiB bounds what a verifier reads into memory."""

NUMBER_TEXT_BYTES = 28
"""Room for one noisy number: a sign, 19 digits and a comma, in base64."""

RELEASE_BYTES = 2**13
"""Room for what a release holds beside its numbers; a kilobyte is usual."""


def numbers_max(releases: int) -> int:
    """Return how many numbers each of so many releases may have so that a transcript surely holds them all.

    Study and verdict have room for the largest envelope.
    """
    room = (TRANSCRIPT_BYTES_MAX - 2 * MESSAGE_BYTES_MAX) // releases
    return (room - RELEASE_BYTES) // NUMBER_TEXT_BYTES


class Transcript(StrictModel):
    """The DSSE envelopes of one study, exactly as they were signed."""

    egress: ClassVar = Egress(
        "post-processed",
        "tacit_services.tester.studies:transcript_of",
        "the envelopes as they came, whose payloads have rows of their own",
    )

    format: Literal["tacit/transcript/1"] = "tacit/transcript/1"
    study: EnvelopeText
    releases: Annotated[dict[PartyName, EnvelopeText], Field(max_length=OWNERS_MAX)]
    reused: Annotated[dict[PartyName, EnvelopeText], Field(max_length=REUSES_MAX)] = Field(
        default_factory=dict
    )
    """The earlier release of each owner that reuses one."""
    sources: Annotated[dict[Digest, EnvelopeText], Field(max_length=REUSES_MAX)] = Field(default_factory=dict)
    """The studies for which those releases were made, by digest."""
    declines: Annotated[dict[PartyName, EnvelopeText], Field(max_length=OWNERS_MAX)] = Field(
        default_factory=dict
    )
    """Each decline that the verdict lists, as its owner signed it."""
    cancellation: EnvelopeText | None = None
    """The analyst's signed cancellation of a study that was cancelled."""
    mask_keys: Annotated[dict[PartyName, EnvelopeText], Field(max_length=OWNERS_MAX)] = Field(
        default_factory=dict
    )
    """Of a study with masks, the key that each owner signed in the first round."""
    verdict: EnvelopeText
