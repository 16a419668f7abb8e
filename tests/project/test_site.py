"""The site of the documentation: every page is in its navigation, and it is built without a warning.

The build itself takes half a minute: `make docs` runs it, and this file where TACIT_LONG says so.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from long_runs import LONG

ROOT = Path(__file__).resolve().parents[2]
PAGES = {*ROOT.glob("*.md"), ROOT / "deploy" / "README.md", *ROOT.glob("docs/**/*.md")}
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def load_navigation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_navigation", ROOT / "docs/site/navigation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


navigation = load_navigation()


def skipped_levels(text: str) -> list[str]:
    """Headings more than one level below the one before: neither Sphinx nor a screen reader likes them."""
    level, found = 0, []
    for heading in re.findall(r"^#+ .+$", FENCE.sub("", text), re.MULTILINE):
        deeper = len(heading) - len(heading.lstrip("#"))
        if deeper > level + 1:
            found.append(heading)
        level = deeper
    return found


def directives(text: str) -> list[str]:
    """What only Sphinx would understand: pages must be readable in a repository viewer."""
    return re.findall(r"^(?:`{3,}|:{3,})\{[\w:-]+\}.*$|\{(?:doc|ref|func|class|math)\}`", text, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    below = navigation.navigation(ROOT / "docs" / "index.md", PAGES)
    placed = [entry.page for entries in below.values() for entry in entries]
    assert sorted(placed) == sorted(PAGES - {ROOT / "docs" / "index.md"})


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_markdown_with_no_level_left_out(page: Path) -> None:
    text = page.read_text("utf-8")
    assert skipped_levels(text) == []
    assert directives(text) == []


def fetched(html: str) -> list[str]:
    """What a browser would fetch from elsewhere to show a page."""
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html)
    return [tag for tag in tags if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)]


@pytest.mark.skipif(not LONG, reason="half a minute: make docs, or TACIT_LONG=1")
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-c", "docs/site"]
    subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), ".", str(tmp_path / "site")], cwd=ROOT, check=True
    )
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert {str(page): found for page in pages if (found := fetched(page.read_text("utf-8")))} == {}
    styles = "".join(style.read_text("utf-8") for style in (tmp_path / "site").rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []
