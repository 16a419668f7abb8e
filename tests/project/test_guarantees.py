"""The table of guarantees: every test that it names exists, and every page that promises is in it."""

import ast
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from scipy.stats import norm

from tacit_protocol.privacy.accounting import gaussian_mu

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security" / "guarantees.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
BELOW_TESTS = re.compile(r"`(\w[\w/]*/test_\w+\.py)::(\w+)`")
"""As pages beside the tests name them."""
LINK = re.compile(r"\]\(([^)#\s]+)")

PROMISING = sorted(
    path
    for pattern in (
        "mathematics/*.md",
        "procedures/*.md",
        "decisions/0*.md",
        "security/*.md",
        "threat-model.md",
    )
    for path in (ROOT / "docs").glob(pattern)
    if path != PAGE and path.name != "README.md"
)
"""Pages that state guarantees; a folder's README.md lists them."""


@cache
def tests_in(path: str) -> frozenset[str]:
    """The tests of a file; none where there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = ast.walk(ast.parse(file.read_text("utf-8")))
    return frozenset(
        part.name for part in found if isinstance(part, ast.FunctionDef) and part.name.startswith("test_")
    )


def missing_tests(text: str) -> Iterator[str]:
    """Yield the tests that a page names and that do not exist."""
    named = NAMED.findall(text) + [
        (f"tests/{path}", name) for path, name in BELOW_TESTS.findall(text) if not path.startswith("tests/")
    ]
    for path, name in named:
        if not (ROOT / path).is_file() or (name and name not in tests_in(path)):
            yield f"{path}::{name}"


def rows(text: str) -> list[list[str]]:
    """Return the cells of the page's guarantees: the tables of four columns."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if len(row) == 4 and row[0] != "guarantee"]


@pytest.mark.parametrize("page", [ROOT / "tests" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))])
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert list(missing_tests(page.read_text("utf-8"))) == []


def test_every_guarantee_says_where_it_is_stated_and_which_test_attacks_it() -> None:
    found = rows(PAGE.read_text("utf-8"))
    assert len(found) > 50
    assert [
        row[0] for row in found if not all(row) or not LINK.search(row[1]) or not NAMED.search(row[3])
    ] == []


@pytest.mark.parametrize("page", PROMISING, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_every_page_that_promises_something_is_in_the_table(page: Path) -> None:
    stated = {
        (PAGE.parent / link).resolve()
        for row in rows(PAGE.read_text("utf-8"))
        for link in LINK.findall(row[1])
    }
    assert page in stated


def test_the_table_for_data_protection_officers_is_what_epsilon_means() -> None:
    """A belief of a half, and an attacker's best power at two false-alarm rates, for both kinds of noise."""
    text = (ROOT / "docs" / "data-protection.md").read_text("utf-8")
    lines = re.findall(r"^\| ([\d.]+) \|((?: [\d.]+ % \|){5})$", text, re.MULTILINE)
    assert len(lines) == 7
    for stated, cells in lines:
        epsilon, mu = float(stated), gaussian_mu(float(stated), 1e-5)
        odds = math.exp(epsilon)
        true = [odds / (1 + odds)]
        for alarms in (0.05, 0.01):
            true.append(min(odds * alarms, 1 - (1 - alarms) / odds))
            true.append(float(norm.cdf(norm.ppf(alarms) + mu)))
        assert [cell.strip(" %") for cell in cells.split("|")[:-1]] == [f"{100 * one:.1f}" for one in true]
