"""A transcript: study, signed releases and verdict; enough for anyone to recompute and check the verdict."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_protocol.messages.study import OWNERS_MAX, REUSES_MAX, Digest, PartyName
from tacit_protocol.strict import Egress, StrictModel

ENDED = Egress(
    "public",
    "tacit_services.tester.study_completion:end",
    "how the study ended, and digests of what everyone may read",
)


class VerdictMessage(StrictModel):
    """The payload that the tester signs when a study ends.

    ``completed``: ``result`` holds the procedure's verdict, computed from exactly the listed releases.
    ``incomplete``: the deadline passed, every owner had answered, or a key that the study needs was revoked;
    ``missing`` names who sent no release.
    ``cancelled``: the analyst withdrew the study; the transcript holds its signed cancellation.
    """

    added_fields: ClassVar[frozenset[str]] = frozenset({"declines", "revoked"})

    format: Annotated[Literal["tacit/verdict/1"], ENDED] = "tacit/verdict/1"
    study: Annotated[Digest, ENDED]
    outcome: Annotated[Literal["completed", "incomplete", "cancelled"], ENDED]
    releases: Annotated[dict[PartyName, Digest], Field(max_length=1000), ENDED]
    """Digest of each owner's release payload, by owner; a reused one's too, which names its own study."""
    missing: Annotated[tuple[PartyName, ...], Field(max_length=1000), ENDED] = ()
    declines: Annotated[dict[PartyName, Digest] | None, Field(max_length=1000), ENDED] = None
    """Digest of each decline's payload, by owner, so that none can be removed from the record. None where the
    study is completed, and in verdicts of versions that did not list declines."""
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
    verdict: EnvelopeText
