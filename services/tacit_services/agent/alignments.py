"""The agent's record of alignments: rows of ``agent_alignments``, written by the owner's ``align`` alone."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from tacit_protocol.alignment import UnitKey
from tacit_protocol.messages.study import Owner, Study
from tacit_services.agent.schema import ALIGNMENTS


@dataclass(frozen=True)
class Alignment:
    """A data set was found to hold the same units as a peer's, by the key that both share."""

    data_set: str
    unit_column: str
    digest: str
    peer_name: str
    peer_key: str
    peer_data_set: str
    unit_key: bytes
    aligned_at: int


def record_alignment(connection: sa.Connection, alignment: Alignment) -> None:
    """Record an alignment, in the place of an earlier one of the same units with the same peer."""
    row = asdict(alignment)
    same = [column == row[column.name] for column in ALIGNMENTS.primary_key.columns]
    connection.execute(ALIGNMENTS.delete().where(*same))
    connection.execute(ALIGNMENTS.insert().values(**row))


def alignments(connection: sa.Connection) -> list[Alignment]:
    """Return everything recorded, the newest first."""
    rows = connection.execute(ALIGNMENTS.select().order_by(ALIGNMENTS.c.aligned_at.desc()))
    return [Alignment(**row._mapping) for row in rows]


def forget_alignments(connection: sa.Connection, digest: str) -> int:
    """Delete every alignment of that digest; returns how many there were."""
    return int(connection.execute(ALIGNMENTS.delete().where(ALIGNMENTS.c.digest == digest)).rowcount)


def unit_key_of(connection: sa.Connection, study: Study, owner: Owner) -> UnitKey | None:
    """Return the key that orders an owner's units for a study; None where no alignment of it is recorded.

    It must be of this data set and unit column, of the study's digest, and with the study's other owner: its
    name, key and data set.
    """
    peer = next(other for other in study.owners if other.name != owner.name)
    found = connection.execute(
        sa.select(ALIGNMENTS.c.unit_key).where(
            ALIGNMENTS.c.data_set == owner.data_set,
            ALIGNMENTS.c.unit_column == study.unit_column,
            ALIGNMENTS.c.digest == study.alignment,
            ALIGNMENTS.c.peer_name == peer.name,
            ALIGNMENTS.c.peer_key == peer.key,
            ALIGNMENTS.c.peer_data_set == peer.data_set,
        )
    ).scalar_one_or_none()
    return None if found is None else UnitKey(bytes(found))
