"""The forms of every service's pages: from elsewhere, without their token, with more, or below their role."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import AttackedAgent
from curated_world import NOW as CURATOR_NOW
from curated_world import URL as CURATOR_URL
from curated_world import curator_federation, key_of
from people_windows import add, window_of
from tester_federation import URL as TESTER_URL
from tester_federation import Federation
from window import Window

from tacit_protocol.signing import issue_token
from tacit_services.shared.people import ROLES

EVERYWHERE = {"/sign-out": "viewer", "/people": "admin", "/people/removal": "admin"}
LEAST = {
    "agent": EVERYWHERE
    | dict.fromkeys(("/studies/{digest}/data-check", "/studies/{digest}/approval"), "steward")
    | dict.fromkeys(("/studies/{digest}/sending", "/studies/{digest}/decline"), "steward")
    | {"/data-sets/{data_set}/unlocking": "steward", "/policy": "officer", "/policy/preview": "officer"}
    | dict.fromkeys(("/data-sets", "/data-sets/columns", "/data-sets/preview"), "admin"),
    "tester": EVERYWHERE | {"/plan": "viewer", "/new": "steward"},
    "curator": EVERYWHERE
    | dict.fromkeys(("/studies/{digest}/approval", "/studies/{digest}/decline"), "steward")
    | {"/data-sets/{owner}/{name}/unlocking": "steward"},
}
"""The least role that may send each form. A page with a new one says here whose it is."""

ORIGINS: tuple[dict[str, str], ...] = (
    {"origin": "http://evil"},
    {"origin": "null"},
    {"origin": "http://localhost.evil"},
    {"origin": "http://localhost:8080"},
    {"origin": ""},
    {"origin": "agent"},
)


def forms_of(routes: Any) -> Iterator[str]:
    """Yield the paths of an app's forms."""
    for route in routes:
        if included := getattr(route, "original_router", None):
            yield from forms_of(included.routes)
        elif "POST" in (getattr(route, "methods", None) or ()) and not route.path.startswith("/v1"):
            yield route.path


@pytest.fixture
def window(
    request: pytest.FixtureRequest, tmp_path: Path, attacked: Callable[..., AttackedAgent]
) -> Iterator[Callable[[], Window]]:
    """Open windows at a service, where an analyst, or an owner, has its people."""
    kind = request.param

    @contextmanager
    def served() -> Iterator[Callable[[], Window]]:
        if kind == "agent":
            agent = attacked(policy='approval = "by-hand"')
            yield lambda: window_of(agent)
        elif kind == "tester":
            found: Federation = request.getfixturevalue("federation")
            analyst = found.parties.analyst
            yield lambda: Window(
                found.app, TESTER_URL, lambda: issue_token(analyst, TESTER_URL, int(found.now))
            )
        else:
            with curator_federation(tmp_path) as curated:
                curated.add_owner("north", "by-hand")
                token = lambda: issue_token(key_of("north"), CURATOR_URL, CURATOR_NOW)  # noqa: E731
                yield lambda: Window(curated.app, CURATOR_URL, token)

    with served() as opened:
        yield opened


@pytest.mark.parametrize(("window", "kind"), [(kind, kind) for kind in LEAST], indirect=["window"])
def test_a_form_is_refused_from_elsewhere_without_its_token_with_more_and_below_its_role(
    window: Callable[[], Window], kind: str
) -> None:
    first = window()
    add(first, *((role[:3], role) for role in ROLES))
    people = {role: window().sign_in(role[:3]) for role in ROLES}
    tokens = {role: one.token() for role, one in people.items()}
    assert set(forms_of(first.app.routes)) - {"/sign-in"} == set(LEAST[kind])
    before = first.ask("GET", "/v1/record").json()
    for path, least in LEAST[kind].items():
        place = path.format(digest="0" * 64, data_set="patients", owner="north", name="patients")
        for role in ROLES[: ROLES.index(least)]:
            for token in (tokens[role], tokens["admin"]):
                assert people[role].post(place, {"form_token": token}).status_code == 403, (path, role)
        may, token = people[least], tokens[least]
        one = path == "/people"  # every way of forging at one form, and one way at every form
        for headers in ORIGINS[: None if one else 1]:
            assert may.post(place, {"form_token": token}, headers=headers).status_code == 403, path
        other = next(tokens[role] for role in ROLES if role != least)
        forged = (other, "", "0" * 64, token[:-1], token + "0", "\u00e9")[: None if one else 1]
        for wrong in ({}, *({"form_token": text} for text in forged)):
            assert may.post(place, wrong).status_code == 403, (path, wrong)
        assert may.post(place, {"form_token": token, "user": "adm"}).status_code == 400, path
        json = {"content-type": "application/json"}
        assert may.post(place, {"form_token": token}, headers=json).status_code == 415, path
        assert window().post(place, {"form_token": token}).status_code == 401, path
    assert first.ask("GET", "/v1/record").json() == before
    assert all(one.get("/").status_code == 200 for one in people.values())


def test_pages_of_what_one_may_not_change_are_not_shown(attacked: Callable[..., AttackedAgent]) -> None:
    agent = attacked(agent='data_folders = ["."]')
    add(window_of(agent), *((role[:3], role) for role in ROLES))
    for path, shown, words, least in (
        ("/policy/edit", "/policy", "Change the policy", "officer"),
        ("/data-sets/new", "/data-sets", "Add a data set", "admin"),
        ("/people", "/people", "Add a person", "admin"),
    ):
        for role in ROLES:
            one, may = window_of(agent).sign_in(role[:3]), ROLES.index(role) >= ROLES.index(least)
            assert one.get(path).status_code == (200 if may or path == shown else 403), (path, role)
            assert (words in one.get(shown).text) == may, (path, role)
