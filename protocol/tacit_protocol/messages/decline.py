"""A decline: an owner says that it will not take part. The message carries no reason that depends on data."""

from typing import Literal

from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import StrictModel


class DeclineMessage(StrictModel):
    """The payload that an owner signs to decline a study.

    ``reason`` has one value for everyone: why an owner declines (its policy, its budget, its data, its
    steward) may say something about its data, and stays in its own ledger.
    """

    format: Literal["tacit/decline/1"] = "tacit/decline/1"
    study: Digest
    party: PartyName
    reason: Literal["declined"] = "declined"
