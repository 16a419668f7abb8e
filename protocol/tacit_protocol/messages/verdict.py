"""A verdict: what the tester concluded from the releases; anyone can recompute it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import Egress, StrictModel

ENDED = Egress(
    "public",
    "tacit_services.tester.endings:end",
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
