"""The default tier of the tests holds what tests/README.md says that it holds."""

import ast
import re
from pathlib import Path

import pytest

from tacit_protocol.procedures.discovery import PROCEDURES

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS / "README.md").read_text()
ROWS = re.findall(r"^\| *([^|]*?) *\| `(\w[^`|]*::test_\w+)` \|$", PAGE, re.MULTILINE)
KINDS = {
    *("real processes", "a real browser", "SQLite and PostgreSQL", "its planted mistakes"),
    *(f"level: `{name}`" for name in set(PROCEDURES) - {"embedding_release", "noisy_counts"}),
}
"""Counts and databases are no tests: their coverage, and the level of what is asked of them, are listed."""


def always_run(source: str) -> set[str]:
    """The tests of a file of which at least some cases are not long."""
    module = ast.parse(source).body
    if any("mark.long" in ast.unparse(node) for node in module if ast.unparse(node).startswith("pytestmark")):
        return set()
    return {
        node.name
        for node in module
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not any(ast.unparse(mark) == "pytest.mark.long" for mark in node.decorator_list)
    }


def test_every_kind_of_test_is_listed() -> None:
    assert {kind for kind, _ in ROWS} >= KINDS


@pytest.mark.parametrize("name", sorted({test for _, test in ROWS}))
def test_what_the_page_lists_is_in_the_default_tier(name: str) -> None:
    file, _, test = name.partition("::")
    assert test in always_run((TESTS / file).read_text())


@pytest.mark.parametrize("file", sorted(TESTS.glob("attacks/test_*.py")), ids=lambda file: file.stem)
def test_every_file_of_attacks_is_in_the_default_tier(file: Path) -> None:
    assert always_run(file.read_text()) != set()
