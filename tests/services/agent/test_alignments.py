"""Aligned units: whose ids are the same, what is recorded, and what an agent answers or refuses."""

import datetime
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from agent_fakes import IDS, UNIT_COLUMN, AttackedAgent, Peer, World, aligned_study

from tacit_protocol.domain import DataError, Domain, NumericColumn
from tacit_protocol.messages.alignment import UnitKey
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.alignment import (
    Alignment,
    AlignmentRefusedError,
    alignments,
    forget_alignments,
    make,
    read_unit_key,
    record_alignment,
    unit_key_of,
)
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.reader import AlignedUnits, TableBounds
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.schema import State
from tacit_services.agent.study.intake import ALIGNED_OTHERWISE, NEVER_ALIGNED, DataSetUse
from tacit_services.agent.study.studies import StudyRow
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.settings import SettingsError


class Owners:
    """The agent of one owner, and the peer that it aligns with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent = AttackedAgent(
            folder, World(folder), PROCEDURES, data_set=UNIT_COLUMN, policy="approve_hopeless = true"
        )
        self.config = folder / "agent.toml"
        self.peer = Peer(folder)

    def write(self, ids: list[str]) -> None:
        rows = "".join(f"{i % 10},{i},{name}\n" for i, name in enumerate(ids))
        finished = self.folder / "new.csv"
        finished.write_text("x,y,id\n" + rows)
        finished.replace(self.folder / "patients.csv")

    def asked(self, **changes: Any) -> StudyRow:
        """What became of an aligned study."""
        study: Study = aligned_study(self.agent.world, self.peer, **changes)
        digest = self.agent.world.ask(self.agent.tester, study)
        self.agent.turn()
        return self.agent.row(digest)

    def recorded(self) -> int:
        return len(run_transaction(self.agent.agent.engine, alignments, read_only=True))

    def require_unspent(self) -> None:
        assert self.agent.debits() == []
        assert self.agent.spent() == 0


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def test_an_aligned_study_is_answered(owners: Owners) -> None:
    report = owners.peer.compared(owners.config)
    assert report["ok"]
    assert report["digest"] == owners.peer.message().digest
    assert report["peer"] == {"name": "south", "key": owners.peer.key.public_hex, "data_set": "persons"}
    assert owners.asked().state is State.SENT
    assert len(owners.agent.debits()) == 1


def test_neither_the_order_of_rows_nor_their_number_matters(owners: Owners) -> None:
    owners.peer.compared(owners.config)
    owners.write([*reversed(IDS), " p7", "p7 "])
    assert owners.asked().state is State.SENT


def test_a_study_without_a_recorded_alignment_is_refused(owners: Owners) -> None:
    row = owners.asked()
    assert (row.state, row.problem, row.reason) == (State.REFUSED, "not-aligned", NEVER_ALIGNED)
    owners.require_unspent()


def test_a_unit_column_without_an_alignment_is_refused(owners: Owners) -> None:
    row = owners.asked(alignment=None)
    assert (row.state, row.problem) == (State.REFUSED, "study-refused")
    row = owners.asked(alignment=None, unit_column=None)
    assert (row.state, row.problem) == (State.REFUSED, "policy-refused")
    owners.require_unspent()


@pytest.mark.parametrize("ids", [[*IDS[1:], "p99"], [*IDS, "p99"], list(IDS[1:]), [*IDS[1:], "P0"]])
def test_data_that_changed_since_are_refused(owners: Owners, ids: list[str]) -> None:
    owners.peer.compared(owners.config)
    owners.write(ids)
    row = owners.asked()
    assert (row.state, row.problem, row.reason) == (State.REFUSED, "not-aligned", ALIGNED_OTHERWISE)
    owners.require_unspent()


def test_a_row_that_lost_its_id_is_refused(owners: Owners) -> None:
    owners.peer.compared(owners.config)
    owners.write([*IDS, ""])
    row = owners.asked()
    assert (row.state, row.problem) == (State.REFUSED, "data-unreadable")
    owners.require_unspent()


def test_an_agent_that_did_not_look_again_would_be_caught(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners.peer.compared(owners.config)
    owners.write([*IDS[1:], "p99"])
    monkeypatch.setattr(DataSetUse, "require_aligned", lambda *_: None)
    assert owners.asked().state is State.SENT


def test_different_data_are_not_recorded_and_a_study_is_refused(owners: Owners) -> None:
    report = owners.peer.compared(owners.config, owners.peer.sealed(owners.peer.message(IDS[1:])))
    assert (report["ok"], report["units_of_peer"]) == (False, 59)
    assert owners.recorded() == 0
    assert owners.asked().problem == "not-aligned"
    owners.require_unspent()


def test_a_file_made_here_is_what_a_peer_makes(owners: Owners) -> None:
    out = owners.folder / "ours.json"
    made = make(owners.config, "patients", "id", owners.peer.key_file, out)
    assert (made["units"], made["digest"]) == (60, owners.peer.message().digest)
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AlignmentRefusedError, match="your own file"):
        owners.peer.compared(owners.config, out.read_bytes())


def test_the_privacy_unit_of_the_data_set_is_the_column(owners: Owners) -> None:
    key, out = owners.peer.key_file, owners.folder / "ours.json"
    for data_set, column, message in (("patients", "y", "unit_column"), ("absent", "id", "no data set")):
        with pytest.raises(AlignmentRefusedError, match=message):
            make(owners.config, data_set, column, key, out)
    owners.write([*IDS, ""])
    with pytest.raises(DataError, match="has no id"):
        make(owners.config, "patients", None, key, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [("0" * 64, 0o644, "others may read"), ("0" * 63, 0o600, "shared key"), ("Z" * 64, 0o600, "shared key")],
)
def test_a_shared_key_is_a_secret_of_its_form(tmp_path: Path, content: str, mode: int, message: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(SettingsError, match=message):
        read_unit_key(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_unit_key(tmp_path / "absent")


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


KEY = UnitKey(bytes(range(32)))
DOMAIN = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=1000.0),))


def hashes(values: Any, kind: pa.DataType | None = None) -> list[int]:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return [int(value) for value in AlignedUnits(KEY).hashes(column)]


def expected(*texts: str) -> list[int]:
    return [int(value) for value in KEY.hashes(texts)]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.string()]
)
def test_a_whole_number_is_the_same_person_in_every_kind_of_column(kind: pa.DataType) -> None:
    values: list[Any] = [7, 70]
    if pa.types.is_decimal(kind):
        values = [Decimal(value) for value in values]
    elif pa.types.is_string(kind):
        values = ["7", " 70 "]
    assert hashes(values, kind) == expected("7", "70")
    assert hashes(pa.array([*values, values[0]], kind).dictionary_encode()) == expected("7", "70", "7")


def test_ids_are_the_same_person_where_their_text_is() -> None:
    assert len(set(hashes(["7", "07", "007", "a7", "A7"]))) == 5
    assert len(set(hashes(["Jose\u0301", "Jos\u00e9", " Jos\u00e9"]))) == 1
    large = [2**63 - 2, 2**63 - 1]
    assert hashes(large, pa.int64()) == expected(*map(str, large))
    assert hashes([datetime.date(2024, 2, 29)]) == expected("2024-02-29")
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", None]))
    assert hashes(unused) == expected("a", "a"), "a missing value that no row has"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", ""]),
        pa.array(["a", "  "]),
        pa.array([1, None]),
        pa.array([1.0, float("nan")]),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([None, None], pa.null()),
    ],
)
def test_a_row_without_an_id_is_refused(column: pa.Array) -> None:
    """It could be anybody, and would be matched with whatever stands at its place on the other side."""
    with pytest.raises(DataError, match="a row has no id"):
        hashes(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([2.0**54]),
        pa.array([float("inf")]),
        pa.array([Decimal("1.50")]),
        pa.array([True]),
        pa.array([b"\xff\xfe"]),
        pa.array([[1]]),
        pa.array(["x" * 300]),
        pa.array(["caf\ufffd"]),
    ],
)
def test_what_is_no_id_is_refused_and_never_quoted(column: pa.Array) -> None:
    with pytest.raises(DataError) as refused:
        hashes(column)
    assert "caf" not in str(refused.value)
    assert "1.5" not in str(refused.value)


def csv_of(folder: Path, ids: list[str]) -> Source:
    (folder / "t.csv").write_text("id,x\n" + "".join(f"{name},{i}\n" for i, name in enumerate(ids)))
    return open_source("t.csv", None, folder)


def parquet_of(folder: Path, ids: list[Any]) -> Source:
    table = pa.table({"id": ids, "x": [float(i) for i in range(len(ids))]})
    pq.write_table(table, folder / "t.parquet", row_group_size=7)
    return open_source("t.parquet", None, folder)


def sql_of(folder: Path, ids: list[Any]) -> Source:
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (id, x REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(name, i) for i, name in enumerate(ids)])
    connection.close()
    return open_source("sqlite:///t.sqlite3", "SELECT id, x FROM t", folder)


def table_of(source: Source, **bounds: int) -> SourceTable:
    return SourceTable(
        source, DOMAIN, "id", TableBounds(**bounds) if bounds else None, AlignedUnits(KEY), ordered=True
    )


def test_three_kinds_of_source_have_one_digest(tmp_path: Path) -> None:
    ids = [int(i) for i in np.random.default_rng(1).permutation(500)]
    found = {
        KEY.digest(table_of(source).order)
        for source in (
            csv_of(tmp_path, [str(i) for i in ids]),
            parquet_of(tmp_path, ids[::-1]),
            parquet_of(tmp_path, [float(i) for i in sorted(ids)]),
            sql_of(tmp_path, [*ids, ids[0]]),
        )
    }
    assert len(found) == 1


@pytest.mark.parametrize("bounds", [{}, {"chunk_bytes": 64}, {"part_bytes": 256}, {"chunk_rows_max": 1}])
def test_places_are_those_of_the_ids_however_the_rows_are_cut(tmp_path: Path, bounds: dict[str, int]) -> None:
    ids = [str(i % 40) for i in range(100)]
    table = table_of(csv_of(tmp_path, ids), **bounds)
    places = {name: place for place, name in enumerate(sorted(set(ids), key=lambda i: expected(i)[0]))}
    seen = []
    for chunk in table.chunks():
        for row in range(chunk.rows):
            name = ids[round(float(chunk.numeric[row, 0]) * 1000)]
            assert chunk.positions[chunk.unit[row]] == places[name]
        seen += chunk.positions.tolist()
    assert sorted(seen) == list(range(40))


def test_ids_that_change_between_the_reads_of_a_database_are_noticed(tmp_path: Path) -> None:
    """As many rows and units as before, and no file whose time would tell."""
    table = table_of(sql_of(tmp_path, list(range(50))))
    assert table.units == 50
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("UPDATE t SET id = 1000 WHERE id = 3")
    connection.close()
    with pytest.raises(DataError, match="changed"):
        list(table.chunks())
