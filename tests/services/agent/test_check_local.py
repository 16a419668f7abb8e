"""What `check` says of bounds and budgets: words for the steward, and no count of anything."""

import json
from pathlib import Path

import pytest
from agent_fakes import World

from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_services.agent.__main__ import main
from tacit_services.agent.check import bounds_report, budget_report
from tacit_services.agent.settings import AgentSettings, open_source

AGE = NumericColumn(name="age", lower=0, upper=120)
SEX = CategoricalColumn(name="sex", levels=("F", "M"))


@pytest.mark.parametrize(
    ("rows", "age", "sex"),
    [
        (["50,F"] * 200, "all values lie within", "all values lie within"),
        (["50,F"] * 199 + ["121,X"], "a few values lie beyond", "a few values lie beyond"),
        (["50,F"] * 2 + ["-1,X"], "many values lie beyond", "many values lie beyond"),
        (["0,F", "120,M"], "all values lie within", "all values lie within"),
        ([",", "inf,"], "no value can be read", "no value can be read"),
        (["50,F", ","], "all values lie within", "all values lie within"),
    ],
)
def test_bounds_are_told_in_words(tmp_path: Path, rows: list[str], age: str, sex: str) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["age,sex", *rows]) + "\n")
    source = open_source("a.csv", None, tmp_path)
    assert bounds_report(source, (AGE, SEX)) == {"age": age, "sex": sex}
    assert bounds_report(source, ()) == {}


def test_a_budget_is_read_without_making_a_database(tmp_path: Path) -> None:
    settings = AgentSettings.load(World(tmp_path).write("http://tester"))
    (report,) = budget_report(settings, frozenset(("pure",))).values()
    assert report.standing is not None
    assert report.standing.pure_left_micro == report.standing.epsilon_cap_micro > 0
    assert not (tmp_path / "agent.sqlite3").exists()
    (tmp_path / "agent.sqlite3").write_bytes(b"no database, at some length" * 100)
    (report,) = budget_report(settings, frozenset(("pure",))).values()
    assert report.standing is None


def test_check_tells_sizes_and_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = World(tmp_path).write(
        "http://tester",
        data_set='unit_column = "id"\ncolumns = [{kind = "numeric", name = "x", lower = -1e9, upper = 1e9}]',
    )
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text().replace('["x", "absent"]', '["x"]'))
    assert main(["check", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "x: all values lie within" in out
    assert "for your eyes alone" in out
    assert main(["check", "--config", str(path), "--json"]) == 0
    (data_set,) = json.loads(capsys.readouterr().out)["data_sets"]
    assert (data_set["rows"], data_set["units"], data_set["columns"]) == (60, 60, 3)
    assert data_set["bounds"] == {"x": "all values lie within"}
