"""A release: the private numbers one owner sends for one study, and the events that paid for them."""

from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.vector import NoisyVector
from tacit_protocol.strict import StrictModel


class Release(StrictModel):
    """What a procedure privatised, before it is bound to a study and a party."""

    units: Annotated[int, Field(ge=1, le=2**40)]
    """Number of privacy units n. Public."""
    guarantee: Guarantee
    vectors: Annotated[dict[str, NoisyVector], Field(min_length=1, max_length=64)]


class ReleaseMessage(StrictModel):
    """A release bound to its study and its owner: the payload that the owner signs."""

    format: Literal["tacit/release/1"] = "tacit/release/1"
    study: Digest
    party: PartyName
    release: Release
