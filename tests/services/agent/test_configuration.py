"""Settings, policy and the check command: what is wrong is said by name; bounds are told in words."""

import json
from pathlib import Path

import pytest
from agent_fakes import World

from tacit_services.agent.__main__ import main
from tacit_services.agent.check import budget_report
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.policy import Policy
from tacit_services.shared.settings import SettingsError


def allow_only_x(folder: Path) -> None:
    path = folder / "policy.toml"
    path.write_text(path.read_text().replace('["x", "absent"]', '["x"]'))


def test_paths_are_relative_to_the_file_that_names_them_and_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = World(tmp_path).write("http://tester")
    path.write_text(path.read_text().replace('database_url = "sqlite:///agent.sqlite3"\n', ""))
    monkeypatch.setenv("TACIT_AGENT_PORT", "9123")
    settings = AgentSettings.load(path)
    assert settings.key_file == tmp_path / "agent.pem"
    assert settings.database_url == f"sqlite:///{tmp_path / 'agent.sqlite3'}", (
        "beside it, unless said otherwise"
    )
    (data_set,) = settings.data_sets
    assert data_set.open().column_names() == ("x", "y", "id")
    assert settings.audience_of_tester == "http://tester"
    assert settings.port == 9123


@pytest.mark.parametrize(
    "written",
    [
        {"agent": 'tester_kee = "x"'},
        {"data_set": "epsilon = 0"},
        {"data_set": 'columns = [{kind = "numeric", name = "x", lower = 5, upper = 1}]'},
        {"data_set": '[[data_sets]]\nname = "patients"\nsource = "a.csv"\nepsilon = 1\ndelta = 0'},
        {"policy": "units_mn = 5"},
        {"policy": "units_min = 0"},
        {"policy": "epsilon_per_study_max = -1.0"},
    ],
    ids=["unknown", "no budget", "bounds", "two of a name", "policy: unknown", "no units", "no epsilon"],
)
def test_a_wrong_setting_is_an_error(tmp_path: Path, written: dict[str, str]) -> None:
    path = World(tmp_path).write("http://tester", **written)
    with pytest.raises(SettingsError):
        Policy.load(AgentSettings.load(path).policy_file)


def test_a_policy_that_names_no_data_set_allows_none(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('epsilon_per_study_max = 1.0\ndelta_per_study_max = 1e-5\nanalysts = ["*"]\n')
    policy = Policy.load(path)
    assert policy.data_sets == {}
    assert policy.approval == "by-hand"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({}, "no column 'absent'"),
        ({"data_set": 'unit_column = "patient"'}, "no column 'patient'"),
        ({"policy": "units_min = 61"}, "fewer units"),
    ],
)
def test_check_says_what_keeps_the_agent_from_working(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: dict[str, str], words: str
) -> None:
    path = World(tmp_path).write("http://tester", **written)
    if written:
        allow_only_x(tmp_path)
    assert main(["check", "--config", str(path), "--json"]) == 1
    assert words in json.loads(capsys.readouterr().out)["error"]


def test_check_and_serve_without_a_configuration_fail_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent.toml")
    assert main(["check", "--config", absent]) == 1
    assert main(["serve", "--config", absent]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_a_budget_is_read_without_making_a_database(tmp_path: Path) -> None:
    settings = AgentSettings.load(World(tmp_path).write("http://tester"))
    (report,) = budget_report(settings, frozenset(("pure",))).values()
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
    assert "x: 100 % can be read as numbers; 100 % lies within -1e+09 to 1e+09; 0 % is missing" in out
    assert "for the owner's own eyes alone" in out
    assert main(["check", "--config", str(path), "--json"]) == 0
    (data_set,) = json.loads(capsys.readouterr().out)["data_sets"]
    assert (data_set["rows"], data_set["units"], data_set["columns"]) == (60, 60, 3)
    (found,) = data_set["findings"]
    assert (found["name"], found["state"], found["rows"], found["within"]) == ("x", "ok", 60, 60)
