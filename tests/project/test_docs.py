"""The documentation holds: links lead somewhere, snippets run, commands exist, and nothing is left out."""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel
from typer.main import get_command

from tacit.command.app import command_tree
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.study.policy import DataSetRules, Policy
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.curator.data_sets import ConfiguredDataSet
from tacit_services.tester.settings import TesterSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("deploy/**/*.md"))]
REFERENCE = "".join(path.read_text() for path in sorted(ROOT.glob("docs/reference/**/*.md")))

SOURCES = (
    "protocol",
    "services",
    "clients",
    "tests",
    "benchmarks",
    "examples",
    "tools",
    "deploy",
    "docs",
    ".ci",
)
SUFFIXES = {
    "",
    *[".py", ".md", ".toml", ".txt", ".yml", ".cfg", ".service", ".sh", ".html", ".css", ".mako"],
}
# Written in pieces, so that this file does not find itself.
FORBIDDEN = [
    re.compile(r"(?<![\w.])/" + "(root|work)" + "/"),
    re.compile("--(extra-)?index" + "-url|--find" + "-links|--trusted" + "-host"),
    re.compile("files.python" + "hosted|/simp" + "le/"),
    re.compile("bash_" + "jobs"),
]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """The anchors that a renderer gives to a page's headings."""
    prose = FENCE.sub("", text)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in HEADING.findall(prose)
    }


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Say which relative links of a page lead nowhere."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text() if path else text)):
            yield link


def project_files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*")):
            hidden = {"__pycache__", "federation"} & set(path.relative_to(ROOT / source).parts[:-1])
            if path.is_file() and path.suffix in SUFFIXES and not hidden:
                yield path


def commands_of(tree: typer.core.TyperGroup, prefix: str = "tacit") -> Iterator[str]:
    """Every command and group, in full."""
    for name, command in tree.commands.items():
        yield f"{prefix} {name}"
        if isinstance(command, typer.core.TyperGroup):
            yield from commands_of(command, f"{prefix} {name}")


@cache
def all_commands() -> frozenset[str]:
    tree = get_command(command_tree())
    assert isinstance(tree, typer.core.TyperGroup)
    return frozenset(commands_of(tree))


def unknown_commands(text: str, known: frozenset[str]) -> Iterator[str]:
    """Say which ``tacit ...`` command lines of a page name no command."""
    in_code = re.findall(r"`(?:[\w./-]*/)?(tacit [^`\n]+)`", text)
    in_code += re.findall(r"^(?: {4,}|\$ )(?:\S*/)?(tacit .+)$", text, re.MULTILINE)
    in_code += re.findall(r"exec \S+ (tacit .+)$", text, re.MULTILINE)
    for line in in_code:
        words = re.match(r"tacit((?: [a-z|-]+(?![\w.=/]))*)", line)
        parts = words[1].split() if words else []
        if not parts or parts[0].startswith("-"):
            continue
        for first in parts[0].split("|"):
            group = any(command.startswith(f"tacit {first} ") for command in known)
            wanted = [f"tacit {first}"]
            if group and len(parts) > 1:
                wanted = [f"tacit {first} {second}" for second in parts[1].split("|")]
            yield from (command for command in wanted if command not in known)


def fields_of(model: type[BaseModel]) -> list[str]:
    return [name for name in model.model_fields if name != "folder"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_no_file_names_a_machine_path_or_a_registry_host() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in project_files()
        for pattern in FORBIDDEN
        if (match := pattern.search(path.read_text()))
    ]
    assert found == []


def missing_pages(text: str) -> set[str]:
    """The Markdown pages that a source file names and that do not exist."""
    named = re.findall(r"(?<![\w./-])(?:[\w-]+/)*[\w-]+\.md\b", text)
    bare = {page.name for page in PAGES}
    return {page for page in named if page not in bare and not (ROOT / page).exists()}


def test_every_page_that_the_source_names_exists() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {page}"
        for path in project_files()
        if path.suffix in {".py", ".toml", ".yml"} and path != Path(__file__).resolve()
        for page in missing_pages(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    assert list(unknown_commands(page.read_text(), all_commands())) == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, page


def test_the_readme_lists_exactly_the_procedures_that_exist() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(PROCEDURES)


def test_python_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    snippets = [
        code for language, code in FENCE.findall((ROOT / "README.md").read_text()) if language == "python"
    ]
    assert snippets
    for code in snippets:
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 (our own page)
    assert "p = " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "name"),
    [("tester-configuration.md", name) for name in fields_of(TesterSettings)]
    + [
        ("curator-configuration.md", name)
        for model in (CuratorSettings, ConfiguredDataSet)
        for name in fields_of(model)
    ]
    + [
        ("agent-configuration.md", name)
        for model in (AgentSettings, DataSetSettings, Policy, DataSetRules)
        for name in fields_of(model)
    ],
)
def test_every_setting_has_a_reference(page: str, name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "reference" / page).read_text()


def test_every_command_has_a_reference() -> None:
    assert {command for command in all_commands() if command not in REFERENCE} == set()


def missing_folders(text: str) -> list[str]:
    """The paths in the project that a page names in code and that do not exist."""
    named = re.findall(rf"`((?:{'|'.join(SOURCES[:-1])})/[\w./-]*)`", FENCE.sub("", text))
    return [path for path in named if not (ROOT / path).exists()]


def test_every_path_that_contributing_names_exists() -> None:
    assert missing_folders((ROOT / "CONTRIBUTING.md").read_text()) == []


@pytest.mark.parametrize("index", sorted(ROOT.glob("docs/**/README.md")), ids=lambda page: page.parent.name)
def test_a_folders_list_names_every_page_of_the_folder(index: Path) -> None:
    assert {page.name for page in set(index.parent.glob("*.md")) - linked_from(index) - {index}} == set()


def linked_from(page: Path) -> set[Path]:
    """The pages of this project that a page links to."""
    if page.suffix != ".md" or not page.exists():
        return set()
    links = (link.partition("#")[0] for link in LINK.findall(FENCE.sub("", page.read_text())))
    return {(page.parent / link).resolve() for link in links if link and ":" not in link}


PAPERS = (ROOT / "docs" / "papers.md").read_text()
PAPERS_ROWS = [line for line in PAPERS.splitlines() if line.startswith("|") and not line.startswith("|-")]


def test_every_row_of_the_papers_is_whole_and_none_is_left_open() -> None:
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in PAPERS_ROWS]
    assert [row for row in cells if len(row) != 5 or not row[0].strip() or not row[1].strip()] == []
    assert re.findall(r"\*\*open\*\*|not in the material", PAPERS) == []


@pytest.mark.parametrize("command", sorted(set(re.findall("`python ([^`]+)`", PAPERS))))
def test_every_command_of_the_papers_names_what_exists(command: str) -> None:
    words = command.split()
    assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
    if not command.startswith("-m benchmarks."):
        return
    asked = dict(zip(words[2::2], words[3::2], strict=True))
    benchmarks = importlib.import_module(words[1]).BENCHMARKS
    chosen = [one for one in benchmarks if asked.get("--page", one.page) == one.page]
    assert chosen
    assert "--cells" not in asked or any(asked["--cells"] in c.name for one in chosen for c in one.cells())
