"""A study: one question, frozen. Identified by the SHA-256 digest of its exact bytes."""

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from tacit_protocol.domain.columns import COLUMNS_MAX, ColumnName, Domain
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.strict import Egress, StrictModel

OWNERS_MAX = 1000
"""Most owners of one study."""

REUSES_MAX = 100
"""Most owners of one study whose earlier releases are read again: each, up to a mebibyte, is read and checked
before the study is taken."""

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
        "public", "tacit_protocol.signing.sealing:certify", "a public key and a signature: no data is read"
    )

    key: PublicKeyHex
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
    """Over what :func:`tacit_protocol.signing.sealing.certified_bytes` returns."""


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
    added_fields: ClassVar[frozenset[str]] = frozenset(
        {"unit_rows", "procedure_origin", *get_args(PurposeField)}
    )

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
    def _reuse_is_the_owners_own(self) -> Self:
        if self.reusing and self.curator is not None:
            raise ValueError("where a curator answers for the owners, none of them can reuse a release")
        if len(self.reusing) > REUSES_MAX:
            raise ValueError(f"at most {REUSES_MAX} owners of a study can reuse a release")
        return self

    def owner_named(self, name: str) -> Owner:
        """Return the owner of that name, who must be one of the study's."""
        return next(owner for owner in self.owners if owner.name == name)

    def domain_of(self, owner: Owner) -> Domain:
        """Return the columns that one of the study's owners holds, in the study's order."""
        if owner.columns is None:
            return self.domain
        return Domain(columns=tuple(c for c in self.domain.columns if c.name in owner.columns))

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


class CancellationMessage(StrictModel):
    """The payload that a study's analyst signs to withdraw it."""

    egress: ClassVar = ANALYSTS

    format: Literal["tacit/cancellation/1"] = "tacit/cancellation/1"
    study: Digest
