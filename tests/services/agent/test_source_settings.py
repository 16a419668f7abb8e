"""Where a data set's rows are, as agents' and curators' settings say it, up to `tacit data check`."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tacit_services.agent.data.source import Splits
from tacit_services.agent.settings import DataSetSettings, SourceSettings
from tacit_services.curator.data_sets import ConfiguredDataSet

QUERY = {"source": "sqlite:///t.sqlite3", "query": "SELECT x FROM t"}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (QUERY | {"partition_column": "x"}, "need each other"),
        (QUERY | {"partition_bounds": [1]}, "need each other"),
        (QUERY | {"partition_column": "x", "partition_bounds": []}, "need each other"),
        (QUERY | {"partition_column": "x", "partition_bounds": [2, 1]}, "must increase"),
        (QUERY | {"partition_column": "x", "partition_bounds": [1, 1]}, "must increase"),
        (QUERY | {"partition_column": "x", "partition_bounds": [1.5]}, "integer"),
        (QUERY | {"partition_column": "x", "partition_bounds": ["1; DROP TABLE t"]}, "integer"),
        (QUERY | {"partition_column": "x", "partition_bounds": list(range(1001))}, "1000"),
        ({"source": "a.csv", "partition_column": "x", "partition_bounds": [1]}, "database sources"),
    ],
)
def test_ranges_that_cannot_be_are_refused(written: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SourceSettings.model_validate(written)


def test_agents_and_curators_read_a_query_in_the_parts_that_are_declared(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(100)])
    connection.close()
    written = QUERY | {"name": "t", "folder": tmp_path, "partition_column": "x", "partition_bounds": [30, 60]}
    agent = DataSetSettings.model_validate(written | {"epsilon": 1.0, "delta": 0.0})
    curator = ConfiguredDataSet.model_validate(written | {"owner": "north"})
    for settings in (agent, curator):
        source = settings.open()
        assert isinstance(source, Splits)
        assert [part.rows() for part in source.split(3)] == [30, 30, 40]
