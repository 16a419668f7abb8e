"""A cancellation: the analyst withdraws a study."""

from typing import ClassVar, Literal

from tacit_protocol.messages.study import ANALYSTS, Digest
from tacit_protocol.strict import StrictModel


class CancellationMessage(StrictModel):
    """The payload that a study's analyst signs to withdraw it."""

    egress: ClassVar = ANALYSTS

    format: Literal["tacit/cancellation/1"] = "tacit/cancellation/1"
    study: Digest
