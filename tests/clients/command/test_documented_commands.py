"""Every documented command exists with the options it shows; those that need no service are run."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from tacit.command.app import command_tree, run

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

OFFLINE = (
    "version",
    "tester init",
    "agent init",
    "party init",
    "curator init",
    "owner init",
    "plan power kernel_two_sample",
)
"""Commands that need nothing but this machine, in any folder."""


def commands_of(page: Path) -> list[list[str]]:
    """Return the arguments of every `$ tacit ...` line of a page's console blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ tacit ")) for line in lines if line.startswith("$ tacit ")]


DOCUMENTED = [(page, arguments) for page in PAGES if page.is_file() for arguments in commands_of(page)]


def parse(arguments: list[str]) -> None:
    """Parse a command line down to its verb, without running it."""
    command = typer.main.get_command(command_tree())
    rest = list(arguments)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(arguments[0], rest).close()


@pytest.mark.parametrize(
    ("page", "arguments"), DOCUMENTED, ids=[f"{page.stem}: {' '.join(a)[:60]}" for page, a in DOCUMENTED]
)
def test_a_documented_command_exists_with_its_options(page: Path, arguments: list[str]) -> None:
    parse(arguments)


TUTORIALS = [ROOT / "docs" / "tutorials" / f"{person}.md" for person in ("analyst", "curator")]


@pytest.mark.parametrize(
    "page", [ROOT / "docs" / "reference" / "command.md", *TUTORIALS], ids=lambda p: p.stem
)
def test_documented_commands_that_need_no_service_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "north.csv").write_text("age,sex\n60,F\n")
    (tmp_path / "south.csv").write_text("age,sex\n60,F\n")
    ran = 0
    for arguments in commands_of(page):
        if any(" ".join(arguments).startswith(verb) for verb in OFFLINE):
            with_key = [re.sub("(TESTER|CURATOR)_KEY", "0" * 64, a) for a in arguments]
            assert run(with_key) == 0, capsys.readouterr().err
            ran += 1
    assert ran >= 5 - (page.stem == "curator")
    for file in ("north/agent.toml",) if page.stem != "curator" else ("registry/curator.toml",):
        assert (tmp_path / file).is_file()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("page", [ROOT / "docs" / "reference" / "sdk.md", *TUTORIALS], ids=lambda p: p.stem)
def test_documented_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(
        r"^```python( client)?\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(snippets) >= 3
    for needs_tester, snippet in snippets:
        code = compile(snippet, page.name, "exec")
        if not needs_tester:
            exec(code, {"__name__": "snippet"})  # noqa: S102 (our own page)
