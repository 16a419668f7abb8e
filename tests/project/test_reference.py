"""The reference is complete: every address, option, variable, error, field and table has its place."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from typer.main import get_command

from tacit import errors
from tacit.client.data_set import DataSetDescription, DataSetPolicy
from tacit.command.app import command_tree
from tacit.setup import configuration
from tacit.studies.draft import StudyDraft
from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.study_form import DraftOwner
from tacit_services.agent.schema import State
from tacit_services.tester.tables import METADATA

ROOT = Path(__file__).resolve().parents[2]
HEALTH = {"GET /healthz", "GET /readyz", "GET /metrics"}
"""Every service's, and in no OpenAPI document."""


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8")


# HTTP: the pages against the OpenAPI documents of real services.


@pytest.fixture(params=["tester", "agent", "curator"])
def served(request: pytest.FixtureRequest, apps: dict[str, FastAPI]) -> tuple[str, Any]:
    """Return a service's name, and its OpenAPI document."""
    return request.param, apps[request.param].openapi()


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


PARAMETERS = list(options_of(get_command(command_tree())))


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


def test_every_table_has_its_line() -> None:
    lines = set(
        re.findall(
            r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "how-a-study-runs.md").read_text("utf-8"), re.MULTILINE
        )
    )
    assert lines - {"alembic_tester"} == set(METADATA.tables)
