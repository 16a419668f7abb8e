"""A decline: an owner says that it will not take part. The message carries no reason that depends on data."""

from typing import Annotated, Literal

from tacit_protocol.messages.release import BOUND
from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import Egress, StrictModel


class DeclineMessage(StrictModel):
    """The payload that an owner signs to decline a study.

    ``reason`` has one value for everyone: why an owner declines (its policy, its budget, its data, its
    steward) may say something about its data, and stays in its own ledger.
    """

    format: Annotated[Literal["tacit/decline/1"], BOUND] = "tacit/decline/1"
    study: Annotated[Digest, BOUND]
    party: Annotated[PartyName, BOUND]
    reason: Annotated[
        Literal["declined"],
        Egress("public", "tacit_protocol.messages.decline:DeclineMessage", "one value, whatever the cause"),
    ] = "declined"
