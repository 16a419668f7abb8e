"""The documentation as a site: `make docs` builds it from the Markdown that a repository viewer shows.

The source folder is the whole project, so that links between `docs`, `README.md` and `deploy` are the same in
both. Pages hold no directive of Sphinx: what `docs/index.md` lists becomes the navigation here.
"""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import tacit

sys.path.insert(0, str(Path(__file__).parent))
from members import local_functions, local_plans
from navigation import Entry, navigation, toctrees
from options import options_text

from tacit_protocol.verdicts.base import BaseVerdict

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "index.md"
REFERENCE = ROOT / "docs" / "reference" / "README.md"
TABLES: dict[str, str] = {}
"""The table of contents of each page, by its name at Sphinx."""
ARRAYS = re.compile(
    r"(?:int \| )?\S*_Buffer \| \S*_SupportsArray\[.*?\S*_NestedSequence\[complex \| bytes \| str\]"
)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)\)")

project = "Tacit"
author = "The Tacit developers"
copyright = "The Tacit developers, Apache 2.0"
release = tacit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "docs/**",
]
exclude_patterns = [".*", "build", "dist", "demo-federation", "deploy/federation", "docs/site/static"]
smartquotes = False
highlight_language = "none"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "exclude-members": "model_config"}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Tacit {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_show_sphinx = False
html_copy_source = False
html_permalinks_icon = "#"
# Fonts are the reader's own, and nothing is fetched from elsewhere: the site works from a folder.
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "font-stack": "system-ui, sans-serif",
        "font-stack--monospace": "ui-monospace, monospace",
        "color-brand-primary": "#1f5675",
        "color-brand-content": "#1f5675",
        "color-brand-visited": "#1f5675",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8cc4e6",
        "color-brand-content": "#8cc4e6",
        "color-brand-visited": "#8cc4e6",
    },
}
pygments_style = "tango"
pygments_dark_style = "monokai"


def find_navigation(_app: Sphinx, env: BuildEnvironment, _docnames: list[str]) -> None:
    """Write, once, the table of contents of every page that has others below it."""
    pages = {ROOT / env.doc2path(name, base=False) for name in env.found_docs}
    below = navigation(INDEX, {page for page in pages if page.suffix == ".md"})
    api = [Entry("", "", page) for page in sorted(pages) if page.suffix == ".rst"]
    below[REFERENCE] = [*below[REFERENCE], *api]
    TABLES.update(
        (page.relative_to(ROOT).with_suffix("").as_posix(), toctrees(entries, ROOT, captions=page == INDEX))
        for page, entries in below.items()
    )


def add_navigation(_app: Sphinx, docname: str, content: list[str]) -> None:
    """Append its table of contents to a page's text as Sphinx reads it.

    Links to folders, which the site does not show, become plain text.
    """
    folder = (ROOT / docname).parent
    content[0] = LINK.sub(lambda link: link[1] if (folder / link[2]).is_dir() else link[0], content[0])
    content[0] += TABLES.get(docname, "")
    if docname == "docs/site/options":
        content[0] += options_text()
    if docname == "docs/site/sdk-api":
        content[0] = content[0].replace("LOCAL_FUNCTIONS", local_functions())
        content[0] = content[0].replace("LOCAL_PLANS", local_plans())


def shorten_signature(
    _app: Sphinx,
    _kind: str,
    _name: str,
    documented: object,
    _options: object,
    signature: str | None,
    result: str,
) -> tuple[str | None, str]:
    """Write NumPy's types by the names that the source has, and no signature of results."""
    if isinstance(documented, type) and issubclass(documented, BaseVerdict):
        return "", result
    return ARRAYS.sub("ArrayLike", signature) if signature else signature, result


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the navigation."""
    app.connect("env-before-read-docs", find_navigation)
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-signature", shorten_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
