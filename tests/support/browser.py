"""A real Chromium for tests of the pages, and what they ask of every page."""

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import served

from tacit.client.sign_in import Door, make_sign_in_link

ROOT = Path(__file__).resolve().parents[2]
AXE = Path(__file__).parent / "axe" / "axe.min.js"
IMAGES = ROOT / "docs" / "images"

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 300_000
"""No healthy run waits as long; a loaded machine is ten times slower than an idle one."""

STOP_S_MAX = 300.0

AXE_RUN = """async (rules) => {
    const only = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};
    return (await axe.run({resultTypes: ['violations'], ...only})).violations;
}"""

CUT_OFF = """() => [...document.querySelectorAll('.scroll, pre, dd, tbody td, tbody th')]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 300))"""
"""What of a page one would have to scroll to the side for."""

DESKTOP, PHONE = {"width": 1100, "height": 900}, {"width": 390, "height": 800}


def chromium() -> str:
    """The path of Chromium; without one the tests skip, or fail where TACIT_BROWSER_REQUIRED says so."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("TACIT_BROWSER_REQUIRED") == "1":
            pytest.fail("TACIT_BROWSER_REQUIRED=1, and there is no chromium")
        pytest.skip("there is no chromium: apt-get install chromium")
    return found


@contextmanager
def running_browser() -> Iterator[Any]:
    """Run Chromium. Playwright's loop belongs to this thread meanwhile: nothing else may run one in it."""
    path = chromium()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (slow to import, and skipped without)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """One browser window with cookies of its own; remembers what its pages complained about."""

    context: Any
    page: Any
    complaints: list[str]

    def sign_in(self, door: Door, user: str | None = None) -> None:
        """Ask for a link as the command does, open it and press the button."""
        self.use_link(make_sign_in_link(door, user).url)

    def use_link(self, url: str) -> None:
        """Open a link that a command printed, and press the button."""
        self.page.goto(url)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()

    def wait_for_heading(self, name: str, *, exact: bool = False) -> None:
        """Wait until a page with that heading is there, all of it: a heading may come before the rest."""
        self.page.get_by_role("heading", name=name, exact=exact).wait_for()
        self.page.wait_for_load_state()

    def serious_faults(self, *rules: str) -> list[str]:
        """What axe-core finds on the page, by these rules or by all: faults that are serious or worse."""
        if not self.page.evaluate("typeof axe !== 'undefined'"):
            self.page.evaluate(AXE.read_text("utf-8"))
        found = self.page.evaluate(AXE_RUN, list(rules))
        return [
            f"{fault['id']}: {node['html']}"
            for fault in found
            if fault["impact"] in {"serious", "critical"}
            for node in fault["nodes"]
        ]

    def require_accessible(self) -> None:
        """Fail on a serious fault in light or dark, on a phone or wide; nothing may be cut off there."""
        self.page.wait_for_load_state()
        for size, scheme in itertools.product((PHONE, DESKTOP), ("dark", "light")):
            self.page.emulate_media(color_scheme=scheme)
            self.page.set_viewport_size(size)
            # Light and dark differ in their colours alone: every other rule would say the same again.
            rules = ("color-contrast",) if scheme == "dark" else ()
            assert self.serious_faults(*rules) == [], (scheme, size, self.page.url)
            width = self.page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], (size, self.page.url)
            if size == PHONE:
                assert self.page.evaluate(CUT_OFF) == [], self.page.url

    def picture(self, name: str) -> None:
        """Take a picture for the docs, where TACIT_PICTURES=1 asks for it."""
        if os.environ.get("TACIT_PICTURES") == "1":
            IMAGES.mkdir(exist_ok=True)
            self.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")

    def phone_picture(self, name: str) -> None:
        """Take a picture on a phone, in the dark, likewise."""
        self.page.set_viewport_size(PHONE)
        self.page.emulate_media(color_scheme="dark")
        self.picture(name)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(DESKTOP)


@contextmanager
def visitor(browser: Any, **options: Any) -> Iterator[Visitor]:
    """Open a window. Nothing but this machine is reached, and no page may break its own security policy."""
    context = browser.new_context(viewport=DESKTOP, accept_downloads=True, **options)
    context.set_default_timeout(PATIENCE_MS)
    page, complaints = context.new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def leave_alone(route: Any) -> None:
        if urlsplit(route.request.url).hostname == "127.0.0.1":
            route.continue_()
        else:
            complaints.append(f"asked for {route.request.url}")
            route.abort()

    context.route("**/*", leave_alone)
    try:
        yield Visitor(context, page, complaints)
    finally:
        sys.stdout.write(f"{page.url} {complaints} {page.inner_text('body')[:2000]}\n")  # shown on failure
        context.unroute_all(behavior="ignoreErrors")  # what a page still asks for needs no answer any more
        context.close()


serving = served.serving


@contextmanager
def hostile_site(html: str) -> Iterator[str]:
    """Serve one page of another origin, on the same host so that cookies of any SameSite go along."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

    with served.listening(Handler) as url:
        yield url
