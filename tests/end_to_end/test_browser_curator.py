"""A curator's pages in a real Chromium: owners and the operator look, decide, and watch the budgets."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest
from browser import Visitor, visitor
from curated_world import OPERATOR, CuratorFederation, curator_federation
from served import serving
from world import NOW, key_of

from tacit.client.sign_in import Door, make_sign_in_link
from tacit_services.ledger.accounts import account_of

pytestmark = pytest.mark.long

URL = "http://curator.example"
"""Without TLS: a browser keeps no Secure cookie of a plain loopback address."""

Found = TypeVar("Found")


def elsewhere(work: Callable[[], Found]) -> Found:
    """Do it in another thread: in this one runs the browser's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.fixture(scope="module")
def curated(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuratorFederation]:
    """A curator that holds two owners' data; both decide by hand."""
    running = curator_federation(tmp_path_factory.mktemp("curator"), url=URL)
    found = elsewhere(running.__enter__)
    try:
        for owner in ("north", "south"):
            elsewhere(partial(found.add_owner, owner, "by-hand"))
        yield found
    finally:
        elsewhere(lambda: running.__exit__(None, None, None))


@pytest.fixture(scope="module")
def address(curated: CuratorFederation) -> Iterator[str]:
    with serving(curated.app) as url:
        yield url


@pytest.fixture
def window(browser: Any, address: str) -> Iterator[Callable[[str], Visitor]]:
    """Sign somebody in; every window is closed at the end, and none may have complained."""
    opened: list[Any] = []

    def open_for(party: str) -> Visitor:
        context = visitor(browser)
        found = context.__enter__()
        opened.append((context, found))
        door = Door(address, address, URL, key_of(party))
        found.use_link(elsewhere(lambda: make_sign_in_link(door, clock=lambda: NOW).url))
        return found

    yield open_for
    for context, found in opened:
        context.__exit__(None, None, None)
        assert found.complaints == []


def test_owners_decide_each_for_itself_and_their_ledgers_show_it(
    curated: CuratorFederation, window: Callable[[str], Visitor]
) -> None:
    digest = elsewhere(lambda: curated.ask("north", "south"))
    north, operator = window("north"), window(OPERATOR)
    north.wait_for_heading("What is asked of north")
    operator.wait_for_heading("What is asked of all owners")
    operator.require_accessible()
    north.page.locator(f"a[href$='/studies/{digest}']").first.click()
    north.wait_for_heading("Approvals")
    north.require_accessible()
    operator.page.locator(f"a[href$='/studies/{digest}']").first.click()
    operator.wait_for_heading("Approvals")
    assert operator.page.get_by_role("button", name=re.compile("Approve")).count() == 0

    north.page.get_by_role("button", name=re.compile("Approve and spend")).click()
    north.page.get_by_role("button", name=re.compile("Approve")).wait_for(state="detached")
    south = window("south")
    south.page.locator(f"a[href$='/studies/{digest}']").first.click()
    south.page.get_by_role("button", name=re.compile("Approve and spend")).click()
    south.page.get_by_role("button", name=re.compile("Approve")).wait_for(state="detached")
    elsewhere(curated.turn)
    for name, who in (("north", north), ("south", south)):
        who.page.get_by_role("link", name="Ledger").click()
        who.wait_for_heading(f"{name}/patients")
        with curated.base.engine.connect() as connection:
            account = account_of(connection, f"{name}/patients")
        assert account.debits == 1
        for share, spent, whole in (
            ("pure", account.spent.pure_pico, account.share.pure_pico),
            ("gaussian", account.spent.gaussian_femto, account.share.gaussian_femto),
        ):
            dots = who.page.locator(f"circle.dot.{share}")
            left = dots.evaluate_all("all => all.map(dot => dot.dataset.left)")
            assert float(left[0]) == 100
            assert float(left[-1]) == pytest.approx(100 * (1 - spent / whole))
        assert who.page.locator("svg.burn-down").count() == 1
    north.require_accessible()
    operator.page.get_by_role("link", name="Ledger").click()
    operator.wait_for_heading("south/patients")
    assert operator.page.locator("svg.burn-down").count() == 2


def test_an_owner_declines_by_keyboard_and_keeps_its_reason(
    curated: CuratorFederation, window: Callable[[str], Visitor], address: str
) -> None:
    digest, reason = elsewhere(lambda: curated.ask("south")), "Not before the board has met."
    south = window("south")
    south.page.goto(f"{address}/studies/{digest}")
    south.page.get_by_label("A note for your own record").focus()
    south.page.keyboard.type(reason)
    south.page.keyboard.press("Tab")
    south.page.keyboard.press("Enter")
    south.page.locator(".state.declined").first.wait_for()
    south.require_accessible()
    operator = window(OPERATOR)
    operator.page.goto(f"{address}/studies/{digest}")
    operator.wait_for_heading("Approvals")
    assert south.page.get_by_role("button", name=re.compile("Approve")).count() == 0
    assert operator.page.get_by_role("button", name=re.compile("Approve")).count() == 0
