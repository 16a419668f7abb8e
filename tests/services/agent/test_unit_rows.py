"""Units of several rows, of which one is drawn: fairly, apart from other units, and so that levels hold."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_studies import made_study

from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.alignment import UnitKey
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.procedures.base import StudyError, planned, reread
from tacit_protocol.procedures.discovery import procedure_named
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.reader import AlignedUnits, TableBounds, UnitHasher, drawn_rows, row_draw
from tacit_services.agent.data.table import SourceTable

DOMAIN = Domain(columns=tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("x", "y")))
HASHER = UnitHasher(bytes(16))
RUNS, UNITS = 60, 160
ROWS = ("average", "one")

Floats = npt.NDArray[np.float64]


def table_of(
    folder: Path, ids: npt.ArrayLike, values: Floats, draw: int | None, chunk_rows: int = 1000
) -> SourceTable:
    rows = pa.table({"id": np.asarray(ids), "x": values[:, 0], "y": values[:, 1]})
    pq.write_table(rows, folder / "rows.parquet")
    source = open_source("rows.parquet", None, folder)
    bounds = TableBounds(chunk_rows_max=chunk_rows, part_bytes=40 * chunk_rows)
    return SourceTable(source, DOMAIN, "id", bounds, HASHER, draw=draw)


def drawn(table: SourceTable) -> set[tuple[float, ...]]:
    chunks = list(table.chunks())
    assert all(chunk.unit is None for chunk in chunks)
    rows = [tuple(row) for chunk in chunks for row in chunk.numeric.tolist()]
    assert len(rows) == table.units
    return set(rows)


def test_every_row_of_a_unit_has_the_same_chance() -> None:
    """Chi-square of the places 0 to 4 of 50 000 units, 4 degrees of freedom: above 40 one time in 10^7."""
    own = np.random.default_rng(1).integers(0, 2**63, 50_000).astype(np.uint64)
    unit = np.repeat(np.arange(len(own)), 5)
    for draw in (0, row_draw("0" * 32, "north"), row_draw("0" * 32, "south")):
        places = np.bincount(drawn_rows(unit, own, draw) % 5, minlength=5)
        assert np.sum((places - 10_000) ** 2 / 10_000) < 40


def test_owners_and_studies_draw_apart() -> None:
    own = np.random.default_rng(2).integers(0, 2**63, 10_000).astype(np.uint64)
    unit = np.repeat(np.arange(len(own)), 20)
    draws = [row_draw(seed * 32, owner) for seed, owner in (("0", "a"), ("0", "b"), ("1", "a"))]
    first, second, third = (drawn_rows(unit, own, draw) for draw in draws)
    # 500 of 10 000 agree by chance, 22 the standard deviation.
    assert abs(np.mean(first == second) - 0.05) < 0.02
    assert abs(np.mean(first == third) - 0.05) < 0.02


@pytest.mark.parametrize("chunk_rows", [7, 50, 1000])
def test_what_is_drawn_of_a_unit_depends_on_no_other(tmp_path: Path, chunk_rows: int) -> None:
    """A unit is replaced, with its id and its number of rows: the other units' rows stay what they were."""
    rng = np.random.default_rng(3)
    ids, values = rng.integers(0, 60, 400), rng.random((400, 2))
    before = drawn(table_of(tmp_path, ids, values, 11))
    replaced = ids == ids[0]
    own = {tuple(row) for row in values[replaced].tolist()}
    for rows in (1, 30):
        changed_ids = np.concatenate([np.full(rows, 1000), ids[~replaced]])
        others = rng.random((rows, 2))
        changed = np.concatenate([others, values[~replaced]])
        after = drawn(table_of(tmp_path, changed_ids, changed, 11, chunk_rows))
        assert len(before & own) == 1
        assert len(after - before) == 1
        assert before - own == after - {tuple(row) for row in others.tolist()}


def test_the_order_of_the_source_has_no_say(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    ids, values = rng.integers(0, 60, 400), rng.random((400, 2))
    order = rng.permutation(400)
    before = drawn(table_of(tmp_path, ids, values, 11))
    assert drawn(table_of(tmp_path, ids[order], values[order], 11, 50)) == before


def test_places_of_aligned_units_stay(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": ["b", "a", "b", "c"], "x": [0.1, 0.2, 0.3, 0.4], "y": [0.0] * 4}),
        tmp_path / "rows.parquet",
    )
    hasher, source = AlignedUnits(UnitKey(bytes(32))), open_source("rows.parquet", None, tmp_path)
    average, one = (SourceTable(source, DOMAIN, "id", None, hasher, ordered=True, draw=d) for d in (None, 5))
    (all_rows,), (rows,) = average.chunks(), one.chunks()
    assert rows.positions.tolist() == [0, 1, 2]
    assert all_rows.unit is not None
    for place, x in zip(rows.positions, rows.numeric[:, 0], strict=True):
        assert x in all_rows.numeric[all_rows.unit == place, 0]
    assert np.array_equal(one.order, average.order)


def study(unit_rows: str) -> Study:
    return made_study(
        "curated_distance_correlation",
        DOMAIN,
        {"permutations": 99, "test_share": 0.9},
        owners=["north"],
        curated=True,
        epsilon=20.0,
        unit_column="id",
        unit_rows=unit_rows,
    )


def rejected(folder: Path, unit_rows: str) -> int:
    """Count rejections of independence where columns are independent, and units have 1 or 20 rows."""
    asked = study(unit_rows)
    procedure = procedure_named(asked.procedure)
    found = 0
    for run in range(RUNS):
        rng = np.random.default_rng([7, run])
        ids = np.repeat(np.arange(UNITS), rng.choice([1, 20], UNITS))
        draw = row_draw(f"{run:032x}", "north") if unit_rows == "one" else None
        table = table_of(folder, ids, rng.random((len(ids), 2)), draw, 100_000)
        summary = planned(procedure, asked).summarise(table, rng)
        found += bool(procedure.privatise(asked, summary, SimulatedNoise(rng)).decision)
    return found


@pytest.mark.long
def test_the_level_holds_where_units_have_different_numbers_of_rows(tmp_path: Path) -> None:
    """At level .05, 14 or more of 60 are rejected with probability 1e-6. The same runs see averages."""
    drawn_one = rejected(tmp_path, "one")
    assert drawn_one < 14
    assert rejected(tmp_path, "average") > drawn_one + 4


def test_a_release_of_rows_counted_otherwise_is_not_read_again() -> None:
    procedure = procedure_named("noisy_counts")
    average, one = (
        study(rows).model_copy(
            update={
                "procedure": procedure.name,
                "curator": None,
                "parameters": {"cuts": {"x": [0.5], "y": [0.5]}},
            }
        )
        for rows in ROWS
    )
    release = Release(units=3, guarantee=procedure.cost(average), vectors={}, decision=True)
    for asked, source in ((one, average), (average, one)):
        with pytest.raises(StudyError, match="the same unit_rows"):
            reread(procedure, asked, asked.owners[0], source, release)
