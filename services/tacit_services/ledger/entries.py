"""One entry of the ledger, and the hash that chains it to the one before."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.privacy.events import MechanismEvent

FIRST_HASH = "0" * 64
"""What the first entry of an account has in place of a previous hash."""

_EVENTS: TypeAdapter[tuple[MechanismEvent, ...]] = TypeAdapter(tuple[MechanismEvent, ...])


@dataclass(frozen=True)
class Entry:
    """A debit, or a change of the account's caps.

    For a debit ``epsilon_micro`` and ``delta_pico`` are the study's budget and ``study`` its digest; for a
    change of cap they are the new caps, ``study`` is None and ``events`` is empty. ``spent_after_micro`` is
    what the account has spent after the entry, at the account's delta. ``at`` is in Unix seconds.
    """

    data_set: str
    sequence: int
    kind: Literal["debit", "cap"]
    study: str | None
    events: tuple[MechanismEvent, ...]
    epsilon_micro: int
    delta_pico: int
    at: int
    spent_after_micro: int
    previous_hash: str

    @property
    def events_json(self) -> str:
        """The mechanism events as they are stored and hashed."""
        return encode_json([event.model_dump() for event in self.events]).decode()

    @property
    def entry_hash(self) -> str:
        """SHA-256 of everything in the entry, with the previous entry's hash among it."""
        return hashlib.sha256(encode_json(self._row())).hexdigest()

    def _row(self) -> dict[str, Any]:
        return {**asdict(self), "events": self.events_json}

    def row(self) -> dict[str, Any]:
        """Return the entry as a row of the table, with its hash."""
        return {**self._row(), "entry_hash": self.entry_hash}


def entry_of(row: Any) -> Entry:
    """Return the entry that a row of the table holds; its stored hash is not looked at."""
    return Entry(
        data_set=row.data_set,
        sequence=row.sequence,
        kind=row.kind,
        study=row.study,
        events=_EVENTS.validate_json(row.events),
        epsilon_micro=row.epsilon_micro,
        delta_pico=row.delta_pico,
        at=row.at,
        spent_after_micro=row.spent_after_micro,
        previous_hash=row.previous_hash,
    )
