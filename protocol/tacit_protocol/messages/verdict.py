"""A verdict: what the tester concluded from the releases; anyone can recompute it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import StrictModel


class VerdictMessage(StrictModel):
    """The payload that the tester signs when a study ends.

    ``completed``: ``result`` holds the procedure's verdict, computed from exactly the listed releases.
    ``incomplete``: the deadline passed (or an owner declined); ``missing`` names who sent nothing.
    ``cancelled``: the analyst withdrew the study.
    """

    format: Literal["tacit/verdict/1"] = "tacit/verdict/1"
    study: Digest
    outcome: Literal["completed", "incomplete", "cancelled"]
    releases: Annotated[dict[PartyName, Digest], Field(max_length=1000)]
    """Digest of each owner's release payload, by owner; a reused one's too, which names its own study."""
    missing: Annotated[tuple[PartyName, ...], Field(max_length=1000)] = ()
    result: dict[str, Any] | None = None
    software: Annotated[str, Field(max_length=64)]
    """Name and version of the software that computed it, e.g. ``tacit 0.1.0``."""
