"""A verdict: what the tester concluded from the releases; anyone can recompute it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import StrictModel


class VerdictMessage(StrictModel):
    """The payload that the tester signs when a study ends.

    ``completed``: ``result`` holds the procedure's verdict, computed from exactly the listed releases.
    ``incomplete``: the deadline passed, every owner had answered, or a key that the study needs was revoked;
    ``missing`` names who sent no release.
    ``cancelled``: the analyst withdrew the study; the transcript holds its signed cancellation.
    """

    added_fields: ClassVar[frozenset[str]] = frozenset({"declines", "revoked"})

    format: Literal["tacit/verdict/1"] = "tacit/verdict/1"
    study: Digest
    outcome: Literal["completed", "incomplete", "cancelled"]
    releases: Annotated[dict[PartyName, Digest], Field(max_length=1000)]
    """Digest of each owner's release payload, by owner; a reused one's too, which names its own study."""
    missing: Annotated[tuple[PartyName, ...], Field(max_length=1000)] = ()
    declines: Annotated[dict[PartyName, Digest], Field(max_length=1000)] | None = None
    """Digest of each decline's payload, by owner, so that none can be removed from the record. None where the
    study is completed, and in verdicts of versions that did not list declines."""
    revoked: Annotated[tuple[PartyName, ...], Field(max_length=1000)] = ()
    """Whose revoked key ended the study: its analyst's, or one from which a release was missing."""
    result: dict[str, Any] | None = None
    software: Annotated[str, Field(max_length=64)]
    """Name and version of the software that computed it, e.g. ``tacit 0.1.0``."""
