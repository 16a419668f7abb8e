"""A transcript: study, signed releases and verdict; enough for anyone to recompute and check the verdict."""

from typing import Annotated, Any, Literal

from pydantic import Field

from tacit_protocol.messages.study import PartyName
from tacit_protocol.strict import StrictModel


class Transcript(StrictModel):
    """The DSSE envelopes of one study, exactly as they were signed."""

    format: Literal["tacit/transcript/1"] = "tacit/transcript/1"
    study: dict[str, Any]
    releases: Annotated[dict[PartyName, dict[str, Any]], Field(max_length=1000)]
    verdict: dict[str, Any]
