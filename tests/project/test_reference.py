"""The reference is complete and current: every address, option, variable, error and field has its place."""

import inspect
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from typer.main import get_command

from tacit import errors
from tacit.client.data_set import DataSetDescription, DataSetPolicy
from tacit.command.app import app
from tacit.setup import configuration
from tacit.studies.draft import DraftOwner, StudyDraft
from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent import service as agent_service
from tacit_services.agent.schema import State
from tacit_services.agent.service import Surroundings, create_agent_app
from tacit_services.agent.settings import AgentSettings
from tacit_services.curator import service as curator_service
from tacit_services.curator.settings import CuratorSettings
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.app import create_tester
from tacit_services.tester.settings import TesterSettings

ROOT = Path(__file__).resolve().parents[2]
HEALTH = {"GET /healthz", "GET /readyz", "GET /metrics"}
"""Every service's, and in no OpenAPI document."""

TESTER = configuration.TesterAddress("http://127.0.0.1:8400", "0" * 64)


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8")


# HTTP: the pages against the OpenAPI documents of real services.


def tester_app(folder: Path) -> FastAPI:
    configuration.init_tester(folder, "tester", "127.0.0.1", 8400)
    settings = TesterSettings.load(folder / "tester.toml")
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    made = create_tester(settings, engine)
    engine.dispose()
    return made


def agent_app(folder: Path) -> FastAPI:
    data_set = configuration.DataSetSetup("patients", "north.csv", 1.0, 1e-5)
    policy = configuration.PolicySetup(epsilon_per_study_max=1.0, delta_per_study_max=1e-5)
    configuration.init_agent(folder, "north", TESTER, data_set, policy, host="127.0.0.1", port=8710)
    settings = AgentSettings.load(folder / "agent.toml")
    agent = agent_service.build(settings, PROCEDURES, threading.Event())
    agent.engine.dispose()
    return create_agent_app(agent, Surroundings("0", lambda: True, lambda: None))


class NoLoops:
    """A curator's threads, not started."""

    def alive(self) -> bool:
        return True

    def ring(self) -> None:
        raise AssertionError("nothing is decided here")


def curator_app(folder: Path) -> FastAPI:
    configuration.init_curator(folder, "registry", TESTER, host="127.0.0.1", port=8720)
    base = curator_service.open_foundation(CuratorSettings.load(folder / "curator.toml"))
    curator = curator_service.make_curator(base, PROCEDURES, threading.Event())
    made = curator_service.make_app(base, curator, NoLoops(), Stopping())  # type: ignore[arg-type]
    base.store.release()
    base.engine.dispose()
    return made


SERVICES = {"tester": tester_app, "agent": agent_app, "curator": curator_app}


@pytest.fixture(scope="module", params=sorted(SERVICES))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Return a service's name, and its OpenAPI document."""
    folder = tmp_path_factory.mktemp("reference") / request.param
    return request.param, SERVICES[request.param](folder).openapi()


def test_the_page_of_a_service_lists_exactly_its_requests(served: tuple[str, Any]) -> None:
    name, document = served
    written = set(
        re.findall(r"^\| `((?:GET|POST|PUT|DELETE|PATCH) /[^` ?]+)", page(f"{name}-api"), re.MULTILINE)
    )
    known = {
        f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations
    }
    assert written == known | HEALTH


def test_the_page_of_a_service_names_every_parameter_of_its_requests(served: tuple[str, Any]) -> None:
    name, document = served
    parameters = {
        parameter["name"]
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
    }
    assert {p for p in parameters if not re.search(rf"[`{{]\??{p}\b", page(f"{name}-api"))} == set()


def test_every_state_of_a_study_at_an_agent_is_explained() -> None:
    assert {state for state in State if f"| `{state.value}` |" not in page("agent-configuration")} == set()


# The command: every option in the reference and with a help text, every variable named.


def options_of(tree: Any, command: str = "tacit") -> Iterator[tuple[str, Any]]:
    for name, inner in tree.commands.items():
        if hasattr(inner, "commands"):
            yield from options_of(inner, f"{command} {name}")
        else:
            yield from ((f"{command} {name}", parameter) for parameter in inner.params)


PARAMETERS = list(options_of(get_command(app)))


def is_named(option: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){option}(?![\w-])", text) is not None


def test_every_option_is_in_the_reference() -> None:
    text = page("command")
    named = [(command, name) for command, p in PARAMETERS for name in p.opts if name.startswith("--")]
    assert len(named) > 100
    assert {pair for pair in named if not is_named(pair[1], text)} == set()


def test_every_option_says_what_it_is() -> None:
    assert {(c, p.name) for c, p in PARAMETERS if not (p.help or "").strip() and p.name != "help"} == set()


def test_every_environment_variable_is_in_the_reference() -> None:
    text = "".join(path.read_text("utf-8") for path in ROOT.glob("docs/**/*.md"))
    read = {p.envvar for _, p in PARAMETERS if p.envvar}
    for source in (ROOT / "services").rglob("*.py"):
        read |= set(re.findall(r"""["'](TACIT_[A-Z_]+)["']""", source.read_text("utf-8")))
    assert {"TACIT_CONFIG", "TACIT_AGENT_", "TACIT_PARTY"} <= read
    assert {variable for variable in read if variable not in text} == set()


# Files that people write.


def fields_read(reader: Any) -> set[str]:
    """Return the fields that a function reads from a TOML file, from its source."""
    return set(re.findall(r"""(?:text_field\(fields, |fields\.get\()"(\w+)\"""", inspect.getsource(reader)))


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("party.toml", fields_read(configuration.read_party)),
        ("owner.toml", fields_read(configuration.read_owner)),
        ("A data set's description", set(DataSetDescription.model_fields) | set(DataSetPolicy.model_fields)),
        ("A study's draft", set(StudyDraft.model_fields) | set(DraftOwner.model_fields)),
    ],
)
def test_every_field_of_a_file_is_in_its_section(heading: str, fields: set[str]) -> None:
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page("command"), re.MULTILINE | re.DOTALL)
    assert section is not None
    assert len(fields) >= 4
    assert {f for f in fields if not re.search(rf"`(?:\[+)?{f}\b", section[1])} == set()


# Refusals and errors.


@pytest.mark.parametrize("slug", sorted(PROBLEMS))
def test_a_problem_has_its_title_its_status_and_what_to_do(slug: str) -> None:
    (row,) = re.findall(rf"^\| `{slug}` \|.*$", page("problems"), re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    problem = PROBLEMS[slug]
    assert (cells[1], cells[2], cells[4]) == (str(problem.status), problem.title, problem.advice)


def test_every_error_of_the_sdk_is_in_its_reference() -> None:
    known = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TacitError)
    }
    assert {name for name in known if name not in page("sdk")} == set()


# Procedures.


@pytest.mark.parametrize("procedure", sorted(PROCEDURES))
def test_a_procedure_has_a_page_of_its_name_with_every_parameter_in_a_table_or_heading(
    procedure: str,
) -> None:
    text = (ROOT / "docs" / "procedures" / f"{procedure}.md").read_text("utf-8")
    parameters: type[BaseModel] = PROCEDURES[procedure].Parameters
    assert {name for name in parameters.model_fields if f"`{name}`" not in text} == set()
