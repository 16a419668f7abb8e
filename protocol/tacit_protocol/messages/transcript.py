"""A transcript: study, signed releases and verdict; enough for anyone to recompute and check the verdict."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_protocol.messages.study import OWNERS_MAX, REUSES_MAX, Digest, PartyName
from tacit_protocol.strict import Egress, StrictModel

TRANSCRIPT_BYTES_MAX = 2**28
"""Largest transcript: 256 MiB bounds what a verifier reads into memory."""

NUMBER_BYTES = 28
"""Room for one noisy number: a sign, 19 digits and a comma, in base64."""

RELEASE_BYTES = 2**13
"""Room for what a release holds beside its numbers; a kilobyte is usual."""

EnvelopeText = Annotated[str, Field(min_length=2, max_length=MESSAGE_BYTES_MAX)]
"""A DSSE envelope's JSON, exactly as it was signed and sent. At most as long as one request's body."""


def numbers_max(releases: int) -> int:
    """Return how many numbers each of so many releases may have so that a transcript surely holds them all.

    Study and verdict have room for the largest envelope.
    """
    room = (TRANSCRIPT_BYTES_MAX - 2 * MESSAGE_BYTES_MAX) // releases
    return (room - RELEASE_BYTES) // NUMBER_BYTES


class Transcript(StrictModel):
    """The DSSE envelopes of one study, exactly as they were signed."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"declines", "cancellation"})
    egress: ClassVar = Egress(
        "post-processed",
        "tacit_services.tester.transcripts:transcript_of",
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
    verdict: EnvelopeText
