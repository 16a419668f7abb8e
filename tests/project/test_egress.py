"""The table of everything that leaves: current, complete, and refusing what nobody has classified."""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import declared_egress as egress
import pytest
from declared_egress import ROUTES, Service
from fastapi import FastAPI
from pydantic import create_model

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.strict import Egress, StrictModel, UnclassifiedFieldError, egress_of
from tacit_services.agent.study import tester_client
from tacit_services.agent.web import routes as agent_api

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A script of docs/site."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


page = load("egress")


def test_the_page_is_what_the_code_says() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run: python docs/site/egress.py"


@pytest.mark.parametrize("model", egress.PAYLOADS.values(), ids=lambda model: str(model.__name__))
def test_every_field_of_a_signed_message_says_what_it_tells(model: type[StrictModel]) -> None:
    assert dict(egress_of(model))


@pytest.mark.parametrize("model", [Release, NoisyVector])
def test_a_new_field_that_says_nothing_is_refused(model: type[StrictModel]) -> None:
    grown = create_model("Grown", __base__=model, median=(float, 0.0))
    with pytest.raises(UnclassifiedFieldError, match=r"Grown\.median"):
        dict(egress_of(grown))
    told = create_model("Told", __base__=model, median=(Annotated[float, Egress("noised", "a:b", "c")], 0.0))
    assert dict(egress_of(told))["median"].kind == "noised"


def test_a_message_inside_a_message_does_not_take_its_word() -> None:
    """What an owner makes must say so itself, wherever it stands; what an analyst writes need not."""

    class Silent(StrictModel):
        rows: int

    class Outer(StrictModel):
        inside: tuple[Silent, ...]
        named: dict[str, Silent | None]

    with pytest.raises(UnclassifiedFieldError, match=r"Silent\.rows"):
        dict(egress_of(Outer))
    assert {found.kind for _, found in egress_of(Study)} == {"public", "keyed"}


def places() -> set[str]:
    """Every place of the code that the table names."""
    fields: list[Any] = [list(egress_of(model)) for model in egress.PAYLOADS.values()]
    fields += [exchange.answer.items() for routes in ROUTES.values() for exchange in routes.values()]
    fields += [exchange.request.items() for routes in ROUTES.values() for exchange in routes.values()]
    fields += [
        table.items()
        for table in (egress.PROBLEM, egress.REQUEST_HEADERS, egress.ANSWER_HEADERS, egress.PACKAGE)
    ]
    return {found.made for table in fields for _, found in table}


@pytest.mark.parametrize("made", sorted(places()))
def test_every_place_that_the_table_names_exists(made: str) -> None:
    module, _, name = made.partition(":")
    found: Any = importlib.import_module(module)
    first, *rest = name.split(".")
    found = getattr(found, first)
    for part in rest:
        found = getattr(found, part, None) or found.__annotations__[part]
    assert found is not None


def routes_of(routes: Iterable[Any]) -> Iterator[str]:
    """The method and template of every route, included routers' too."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)
        else:
            yield from (f"{method} {route.path}" for method in route.methods - {"HEAD"})


@pytest.mark.parametrize("service", ["tester", "curator", "agent"])
def test_the_table_has_every_route_of_every_service_and_no_other(
    service: Service, apps: dict[str, FastAPI]
) -> None:
    assert set(routes_of(apps[service].routes)) == set(ROUTES[service])


def test_an_agent_asks_nothing_that_is_not_in_the_table() -> None:
    """Every request of its client stands in its source, the only module by which it reaches the tester."""
    asked = set()
    for call in ast.walk(ast.parse(inspect.getsource(tester_client))):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in {"_send", "_attempt"}:
            method, path = call.args[:2]
            if isinstance(method, ast.Constant):
                asked.add(f"{method.value} {template(path)}")
    assert asked == set(egress.REQUESTS)


def template(path: ast.expr) -> str:
    """A path as a route's template."""
    if isinstance(path, ast.Constant):
        return str(path.value)
    assert isinstance(path, ast.JoinedStr)
    names = {"party": "owner", "sender": "owner"}
    parts = []
    for part in path.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        else:
            assert isinstance(part, ast.FormattedValue)
            assert isinstance(part.value, ast.Name)
            parts.append("{" + names.get(part.value.id, part.value.id) + "}")
    return "".join(parts)


def test_an_owners_note_stays_in_its_own_record() -> None:
    """What an agent is told by its owner, by hand, is no field of what it sends."""
    sent = {path.rpartition(".")[2] for model in egress.PAYLOADS.values() for path, _ in egress_of(model)}
    assert set(agent_api.Decline.model_fields) & sent == {"reason"}
    reason = dict(egress_of(egress.PAYLOADS[egress.DECLINE_TYPE]))["reason"]
    assert reason.why == "one value, whatever the cause"


releases = load("releases")


@pytest.fixture(scope="module")
def release_pages() -> dict[Path, str]:
    return releases.pages()


@pytest.mark.parametrize("name", ["README", *PROCEDURES])
def test_the_page_of_a_release_is_what_the_procedure_does(name: str, release_pages: dict[Path, str]) -> None:
    path = releases.FOLDER / f"{name}.md"
    assert path.read_text("utf-8") == release_pages[path], "run: python docs/site/releases.py"
