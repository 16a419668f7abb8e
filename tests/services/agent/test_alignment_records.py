"""What an agent records of alignments, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from agent_fakes import Peer, World, aligned_study

from tacit_services.agent.alignment import (
    Alignment,
    alignments,
    forget_alignments,
    record_alignment,
    unit_key_of,
)
from tacit_services.shared.database import create_engine, run_transaction, upgrade


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    upgrade(engine, "agent")
    yield engine
    engine.dispose()


def test_an_alignment_is_found_by_all_that_names_it_and_by_nothing_less(
    engine: sa.Engine, tmp_path: Path
) -> None:
    world, peer = World(tmp_path), Peer(tmp_path)
    study = aligned_study(world, peer)
    owner = study.owners[0]
    assert study.alignment is not None
    record = Alignment(
        "patients", "id", study.alignment, "south", peer.key.public_hex, "persons", peer.shared.secret, 5
    )

    def found() -> bytes | None:
        key = run_transaction(engine, lambda c: unit_key_of(c, study, owner), read_only=True)
        return None if key is None else key.secret

    others = [
        replace(record, data_set="others"),
        replace(record, unit_column="person"),
        replace(record, digest="0" * 64),
        replace(record, peer_name="west"),
        replace(record, peer_key="0" * 64),
        replace(record, peer_data_set="others"),
    ]
    for other in others:
        run_transaction(engine, lambda c, other=other: record_alignment(c, other))  # type: ignore[misc]
        assert found() is None
    for at in (5, 6):
        run_transaction(engine, lambda c, at=at: record_alignment(c, replace(record, aligned_at=at)))  # type: ignore[misc]
    assert found() == peer.shared.secret
    held = run_transaction(engine, alignments, read_only=True)
    assert len(held) == 7
    assert held[0] == replace(record, aligned_at=6)
    assert run_transaction(engine, lambda c: forget_alignments(c, record.digest)) == 6
    assert found() is None
