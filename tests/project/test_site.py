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
PAGE = ".md"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def load_navigation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_navigation", ROOT / "docs/site/navigation.py")
    assert spec is not None
    assert spec.loader is not None
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


def test_a_folders_list_has_its_pages_below_it(tmp_path: Path) -> None:
    def write(name: str, links: str) -> Path:
        path = (tmp_path / name).with_suffix(PAGE)
        path.parent.mkdir(exist_ok=True)
        path.write_text(re.sub(r"\(([\w/]+)\)", rf"(\1{PAGE})", links))
        return path

    index = write("index", "[first](first) [list](folder/README)")
    first, listed = write("first", "[page](folder/page)"), write("folder/README", "[page](page)")
    page = write("folder/page", "")
    below = navigation.navigation(index, {index, first, listed, page})
    assert [entry.page for entry in below[listed]] == [page]
    assert first not in below


def test_sections_of_the_index_are_the_headings_and_a_page_without_a_link_comes_last(tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        path = (tmp_path / name).with_suffix(".md")
        path.write_text(re.sub(r"\((\w+)\)", rf"(\1{path.suffix})", text))
        return path

    index = write("index", "[a](a)\n## Use\n[`b_c`](b) [a again](a) [no](none)\n")
    first = write("a", "[deeper](sub)\n```\n[in code](lost)\n```\n")
    others = {write(name, f"# {name}\n") for name in ("b", "sub", "lost")}
    below = navigation.navigation(index, {index, first, *others})
    shown = [(entry.section, entry.title, entry.page.stem) for entry in below[index]]
    assert shown == [("", "A", "a"), ("Use", "b_c", "b"), ("More", "", "lost")]
    assert [entry.page.stem for entry in below[first]] == ["sub"]
    text = navigation.toctrees(below[index], tmp_path, captions=True)
    assert "b_c </b>" in text
    assert ":caption: More\n\n/lost\n" in text


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_markdown_with_no_level_left_out(page: Path) -> None:
    text = page.read_text("utf-8")
    assert skipped_levels(text) == []
    assert directives(text) == []


def test_a_skipped_level_and_a_directive_are_seen() -> None:
    assert skipped_levels("# One\n```\n### code\n```\n### Three\n") == ["### Three"]
    assert directives("```{note}\nx\n```\nsee {doc}`x`") == ["```{note}", "{doc}`"]


def fetched(html: str) -> list[str]:
    """What a browser would fetch from elsewhere to show a page."""
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html)
    return [tag for tag in tags if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)]


def test_something_fetched_from_elsewhere_is_seen() -> None:
    assert fetched('<script src="https://x.org/a.js"></script><a href="https://x.org">x</a>') != []
    assert fetched('<a href="https://x.org">x</a><script src="a.js"></script>') == []


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
