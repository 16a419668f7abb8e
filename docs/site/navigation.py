"""The site's navigation, read from the links that the pages have anyway.

Sections of the index become headings of the navigation. A page that the index does not list stands below the
page that lists its folder (``README.md``), or else the first that links to it, and a page without any link to
it at the end: no page is ever entered here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SECTION_OR_LINK = re.compile(
    r"^## (?P<section>.+)$|(?<!!)\[(?P<title>[^\]]+)\]\((?P<path>[^)\s#]+\.md)", re.MULTILINE
)


class Entry(NamedTuple):
    """One line of the navigation: a page, under which heading, and as what."""

    section: str
    title: str
    page: Path


def entries_of(page: Path) -> Iterator[Entry]:
    """Yield the existing Markdown pages that a page links to, in order."""
    section = ""
    for found in SECTION_OR_LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        if found["section"]:
            section = found["section"]
        elif "://" not in found["path"]:
            target = (page.parent / found["path"]).resolve()
            if target.is_file():
                yield Entry(section, heading(found["title"]), target)


def heading(title: str) -> str:
    """Turn a link's text into a line of the navigation: names of code stay as they are."""
    return title.strip("`") if "_" in title else title[:1].upper() + title[1:]


def navigation(index: Path, pages: set[Path]) -> dict[Path, list[Entry]]:
    """Place each page once: what every page has below it, breadth first, lists of folders before others."""
    below: dict[Path, list[Entry]] = {}
    placed = {index}
    waiting = [index]
    while waiting:
        page = min(waiting, key=lambda page: page.name != "README.md")
        waiting.remove(page)
        for entry in entries_of(page):
            if entry.page in pages - placed:
                placed.add(entry.page)
                below.setdefault(page, []).append(entry)
                waiting.append(entry.page)
    for page in sorted(pages - placed):
        below.setdefault(index, []).append(Entry("More", "", page))
    return below


def toctrees(entries: list[Entry], root: Path, *, captions: bool) -> str:
    """Write Sphinx's table of contents for one page, hidden: the page's own links are what readers see."""
    sections = dict.fromkeys(entry.section if captions else "" for entry in entries)
    text = ""
    for section in sections:
        lines = [
            f"{entry.title} </{name}>" if captions and entry.title else f"/{name}"
            for entry in entries
            if not captions or entry.section == section
            for name in [entry.page.relative_to(root).with_suffix("").as_posix()]
        ]
        caption = f":caption: {section}\n" if section else ""
        text += f"\n\n```{{toctree}}\n:hidden:\n:titlesonly:\n{caption}\n" + "\n".join(lines) + "\n```\n"
    return text
