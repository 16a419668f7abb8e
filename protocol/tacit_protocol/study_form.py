"""A study as a person states it: the model that command, page and SDK fill, and columns as they are typed.

It lacks what only the tester and the moment say: the parties' keys, the times and a fresh seed.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit_protocol.decimals import read_number
from tacit_protocol.domain import CategoricalColumn, Column, ColumnName, Domain, Encoder, NumericColumn
from tacit_protocol.messages.study import (
    ENCODERS_MAX,
    RESPOND_AFTER_S,
    UNITS_MAX,
    ApprovalNumber,
    Contact,
    DataSetName,
    DataUse,
    Digest,
    Level,
    Owner,
    Party,
    PartyName,
    PublicKeyHex,
    Purpose,
    RespondAfter,
    SealingCertificate,
    Seed,
    Study,
    UnitRows,
)
from tacit_protocol.privacy.guarantee import Budget

HOURS_MAX = 90 * 24
"""Longest time a study may stay open: the tester takes deadlines of up to 90 days."""


def parse_column(text: str) -> Column:
    """Read a column with its name: ``age:0:120`` has bounds, ``sex=F,M`` levels. A name may have a colon.

    Raises:
        ValueError: it is neither; the message says what to write.
    """
    name, equals, levels = text.partition("=")
    if equals and name and levels:
        return _categorical(name, levels)
    name, *bounds = text.rsplit(":", 2)
    if len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError("write name:lower:upper for numbers, or name=level,level for categories")
    return _numeric(name, *bounds)


def parse_bounds(name: str, text: str) -> Column:
    """Read a named column's bounds, ``0:120`` or ``0 to 120``, or its levels, ``F, M``.

    Raises:
        ValueError: it is neither; the message says what to write.
    """
    lower, colon, upper = text.replace(" to ", ":").partition(":")
    if colon and _is_number(lower) and _is_number(upper):
        return _numeric(name, lower, upper)
    return _categorical(name, text)


def _numeric(name: str, lower: str, upper: str) -> Column:
    try:
        return NumericColumn(name=name, lower=read_number(lower), upper=read_number(upper))
    except ValidationError as error:
        raise ValueError(_reason(error)) from None


def _categorical(name: str, text: str) -> Column:
    levels = tuple(level.strip() for level in text.split(",") if level.strip())
    if len(levels) < 2:
        raise ValueError("write two bounds, such as 0:120, or at least two levels, such as F, M")
    try:
        return CategoricalColumn(name=name, levels=levels)
    except ValidationError as error:
        raise ValueError(_reason(error)) from None


def _reason(error: ValidationError) -> str:
    return error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


class _DraftModel(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class DraftOwner(_DraftModel):
    """An owner as the analyst names it. ``key`` pins its key; otherwise the tester's list is believed.

    In a curated study ``data_set`` is one that the curator holds, and ``key`` the owner's key at the curator.
    ``reuses`` is the digest of an earlier study: its release by this owner is read again, and nothing asked.
    ``sealing`` is the certificate of an owner that receives another's release: its agent's status shows it.
    """

    name: PartyName
    """The owner's name at the tester."""
    data_set: DataSetName
    """Its data set's name; in a curated study, of one that the curator holds."""
    units: Annotated[int, Field(ge=1, le=UNITS_MAX)] | None = None
    """How many privacy units it holds, as far as is known publicly: power is estimated from it."""
    key: PublicKeyHex | None = None
    """Its public key; by default the tester's list is believed."""
    columns: tuple[ColumnName, ...] | None = None
    """Which of the study's columns it holds, where it does not hold all."""
    reuses: Digest | None = None
    """The whole digest of an earlier study, whose release by this owner is read again at no cost."""
    sealing: SealingCertificate | None = None
    """What `tacit agent certificate` prints, for an owner that receives another's release."""

    def with_key(self, key: str) -> Owner:
        """Return the owner of a study, by this key."""
        return Owner(
            name=self.name,
            key=key,
            data_set=self.data_set,
            units=self.units,
            columns=self.columns,
            reuses=self.reuses,
            sealing=self.sealing,
        )


class StudyForm(_DraftModel):
    """A study as its analyst states it.

    ``curator`` names who holds the owners' data and answers for them all; ``curator_key`` pins its key.
    ``alignment`` is the digest that two owners of different columns found by `tacit data align`.
    ``seed`` fixes public choices. Left out it is fresh, or that of the first study that an owner reuses, so
    that features drawn from it are the same.
    """

    title: Annotated[str, Field(min_length=1, max_length=200)]
    """The question, in a line."""
    purpose: Purpose | None = None
    """What the answer is for; owners' policies may require this and the next three."""
    contact: Contact | None = None
    """Who answers for the study: a name, an address."""
    approval_number: ApprovalNumber | None = None
    """An ethics or access committee's number for it, and whose it is."""
    data_use: DataUse | None = None
    """The kind of use, as a code of GA4GH's Data Use Ontology: DUO:0000042 is general research use."""
    procedure: str = "kernel_two_sample"
    """The method that answers it: docs/procedures."""
    parameters: dict[str, Any] = {}
    """The procedure's own parameters; each has a default."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    """The columns that are looked at, with public bounds or levels; outputs of encoders need none."""
    encoders: Annotated[tuple[Encoder, ...], Field(max_length=ENCODERS_MAX)] = ()
    """How numeric columns are made of vectors, images or texts, row by row: docs/how-to/use-an-encoder.md."""
    owners: Annotated[tuple[DraftOwner, ...], Field(min_length=1)]
    """Whose data sets are asked."""
    curator: PartyName | None = None
    """Who holds the owners' data and answers for them; by default every owner has an agent."""
    curator_key: PublicKeyHex | None = None
    """The curator's public key, to be compared with the tester's list."""
    unit_column: ColumnName | None = None
    """The column that names the privacy unit; by default every row is a unit."""
    unit_rows: UnitRows = "average"
    """What of a unit with several rows counts: their average, or "one", drawn by lot: take "one" where the
    question is whether columns depend on each other."""
    alignment: Digest | None = None
    """The digest that two owners of different columns found by `tacit data align`."""
    epsilon: Annotated[float, Field(gt=0)]
    """What every owner that is asked spends of its data set's budget; 1 is usual."""
    delta: Annotated[float, Field(ge=0, lt=1)]
    """The same: at most one in ten times the number of units; 1e-5 is usual, 0 where the procedure allows."""
    level: Level = 0.05
    """Level of the test: how often it may reject what is true."""
    open_for_hours: Annotated[float, Field(gt=0, le=HOURS_MAX)] = 168.0
    """How long owners may answer, in hours."""
    respond_after_s: RespondAfter = RESPOND_AFTER_S
    """When owners' answers leave, in seconds after each owner's decision."""
    seed: Seed | None = None
    """Public randomness, never of noise; by default fresh."""

    @property
    def reuses(self) -> str | None:
        """The first earlier study that an owner reuses, or None."""
        return next((owner.reuses for owner in self.owners if owner.reuses is not None), None)

    def study_between(
        self,
        keys: Mapping[str, str],
        curator: Party | None,
        tester: Party,
        analyst: Party,
        *,
        now: int,
        seed: str,
    ) -> Study:
        """Fill in the owners' keys, by name, the other parties, the times, and a seed where none is stated.

        Raises:
            ValidationError: the parts do not make a study.
        """
        return Study(
            title=self.title,
            purpose=self.purpose,
            contact=self.contact,
            approval_number=self.approval_number,
            data_use=self.data_use,
            procedure=self.procedure,
            parameters=self.parameters,
            domain=Domain(columns=self.columns),
            encoders=self.encoders,
            unit_column=self.unit_column,
            unit_rows=self.unit_rows,
            alignment=self.alignment,
            owners=tuple(owner.with_key(keys[owner.name]) for owner in self.owners),
            curator=curator,
            tester=tester,
            analyst=analyst,
            budget=Budget.of(self.epsilon, self.delta),
            level=self.level,
            created_at=now,
            deadline=now + max(1, round(self.open_for_hours * 3600)),
            respond_after_s=self.respond_after_s,
            seed=self.seed or seed,
        )
