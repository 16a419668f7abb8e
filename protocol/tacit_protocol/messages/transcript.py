"""A transcript: study, signed releases and verdict; enough for anyone to recompute and check the verdict."""

from typing import Annotated, Literal

from pydantic import Field

from tacit_protocol.messages.study import OWNERS_MAX, REUSES_MAX, Digest, PartyName
from tacit_protocol.strict import StrictModel

TRANSCRIPT_BYTES_MAX = 2**28
"""Largest transcript: 256 MiB bounds what a verifier reads into memory."""

EnvelopeText = Annotated[str, Field(min_length=2, max_length=2**20)]
"""A DSSE envelope's JSON, exactly as it was signed and sent. At most as long as one request's body."""


class Transcript(StrictModel):
    """The DSSE envelopes of one study, exactly as they were signed."""

    format: Literal["tacit/transcript/1"] = "tacit/transcript/1"
    study: EnvelopeText
    releases: Annotated[dict[PartyName, EnvelopeText], Field(max_length=OWNERS_MAX)]
    reused: Annotated[dict[PartyName, EnvelopeText], Field(max_length=REUSES_MAX)] = Field(
        default_factory=dict
    )
    """The earlier release of each owner that reuses one."""
    sources: Annotated[dict[Digest, EnvelopeText], Field(max_length=REUSES_MAX)] = Field(default_factory=dict)
    """The studies for which those releases were made, by digest."""
    verdict: EnvelopeText
