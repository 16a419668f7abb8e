"""A study: one question, frozen. Identified by the SHA-256 digest of its exact bytes."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tacit_protocol.domain.columns import ColumnName, Domain
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.strict import StrictModel

OWNERS_MAX = 1000
"""Most owners of one study."""

UNITS_MAX = 2**40
"""Most privacy units an owner may hold."""

RESPOND_AFTER_S = 3
"""How long after an owner's decision its answer leaves, unless the study says otherwise: a release of a small
data set takes less, so that its time of arrival says nothing."""

RESPOND_AFTER_S_MAX = 7 * 24 * 3600
"""Longest such time that a study may ask for."""

PartyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
DataSetName = PartyName
PublicKeyHex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
UnixTime = Annotated[int, Field(ge=0, le=2**40)]
RespondAfter = Annotated[int, Field(ge=0, le=RESPOND_AFTER_S_MAX)]
Level = Annotated[float, Field(gt=0, lt=0.5)]


class Party(StrictModel):
    """A party and the Ed25519 public key it is known by."""

    name: PartyName
    key: PublicKeyHex


class Owner(Party):
    """A data owner's part in a study; in a curated study its data set is one that the curator holds."""

    data_set: DataSetName
    units: Annotated[int, Field(ge=1, le=UNITS_MAX)] | None = None
    """How many privacy units the analyst expects; public, used for planning alone."""


class Study(StrictModel):
    """One question, frozen: procedure, columns, parties, budget, level and deadline."""

    format: Literal["tacit/study/1"] = "tacit/study/1"
    title: Annotated[str, Field(min_length=1, max_length=200)]
    procedure: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    parameters: dict[str, Any]
    """Checked by the procedure's own ``Parameters`` model."""
    domain: Domain
    unit_column: ColumnName | None = None
    """The column whose value names the privacy unit; None where every row is a unit."""
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
    seed: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
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
        return self

    @property
    def senders(self) -> tuple[Party, ...]:
        """Who sends a release: every owner, or the curator for all of them."""
        return self.owners if self.curator is None else (self.curator,)
