"""`tacit tester archive` and `verify-archive` become the tester's own commands, with the options given."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.command import connect
from tacit.command.app import app
from tacit.errors import ConfigurationError


@pytest.fixture
def becomes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What processes were to be run."""
    found: list[list[str]] = []
    monkeypatch.setattr(connect.os, "execv", lambda _, command: found.append(command))
    return found


def run(tmp_path: Path, *options: str) -> BaseException | None:
    config = tmp_path / "tester.toml"
    config.touch()
    command = ["tester", "archive", "--config", str(config), "--to", "archive", *options]
    return CliRunner().invoke(app, command).exception


def test_options_are_handed_on(tmp_path: Path, becomes: list[list[str]]) -> None:
    assert run(tmp_path, "--older-than", "365") is None
    assert (
        run(tmp_path, "--before", "2026-01-31", "--state", "cancelled", "--state", "completed", "--delete")
        is None
    )
    config = str(tmp_path / "tester.toml")
    begin = ["-m", "tacit_services.tester", "archive", "--config", config]
    states = ["--state", "cancelled", "--state", "completed"]
    assert [command[1:] for command in becomes] == [
        [*begin, "--older-than", "365", "--to", "archive"],
        [*begin, "--before", "2026-01-31", "--to", "archive", *states, "--delete"],
    ]


@pytest.mark.parametrize("options", [[], ["--before", "2026-01-31", "--older-than", "3"]])
def test_the_studies_are_named_in_one_way(
    tmp_path: Path, becomes: list[list[str]], options: list[str]
) -> None:
    assert isinstance(run(tmp_path, *options), ConfigurationError)
    assert becomes == []


def test_an_archive_is_verified_without_a_configuration(becomes: list[list[str]]) -> None:
    command = ["tester", "verify-archive", "--archive", "archive"]
    assert CliRunner().invoke(app, command).exception is None
    keys = ["--tester-key", "ab" * 32, "--tester-key", "cd" * 32]
    assert CliRunner().invoke(app, [*command, *keys]).exception is None
    begin = ["-m", "tacit_services.tester", "verify-archive", "--archive", "archive"]
    assert [command[1:] for command in becomes] == [begin, [*begin, *keys]]
