"""A release: the private numbers one owner sends for one study, and the events that paid for them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit_protocol.messages.study import OWNERS_MAX, UNITS_MAX, Digest, PartyName
from tacit_protocol.privacy.guarantee import Guarantee, NoisyVector
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

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.vectors and self.decision is None and self.choice is None:
            raise ValueError("a release holds noisy vectors, a decision or a choice")
        if self.units_by_owner and sum(self.units_by_owner.values()) != self.units:
            raise ValueError("the owners' units do not add up to the release's")
        return self


class ReleaseMessage(StrictModel):
    """A release bound to its study and its owner: the payload that the owner signs."""

    format: Annotated[Literal["tacit/release/1"], BOUND] = "tacit/release/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    release: Release


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
