"""The apps of all services, put together as the services do; whether answers fit their OpenAPI documents."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from jsonschema import Draft202012Validator

from tacit import __version__
from tacit.setup import configuration
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent import service as agent_service
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.curator import __main__ as curator_service
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings

TESTER = configuration.TesterAddress("http://127.0.0.1:8400", "0" * 64)


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
    return create_agent_app(agent, Runtime(__version__, lambda: True, lambda: None))


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


def document_of(name: str, folder: Path) -> dict[str, Any]:
    """Return a service's OpenAPI document; ``folder`` is empty, and its own."""
    return SERVICES[name](folder).openapi()


def operation_of(document: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    """Return what a document says of a request; None where it has no such address."""
    for template, operations in document["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            found: dict[str, Any] = operations[method.lower()]
            return found
    return None


def misfits(
    document: dict[str, Any], method: str, path: str, status: int, media_type: str, body: bytes
) -> Iterator[str]:
    """Yield how an answer differs from what a service's document says of it."""
    place = f"{method} {path} {status}"
    operation = operation_of(document, method, path)
    if operation is None:
        if status < 400:
            yield f"{place}: the document has no such request"
        return
    said = operation["responses"].get(
        str(status), operation["responses"]["default"] if status >= 400 else None
    )
    if said is None:
        yield f"{place}: the document has no such status"
    elif not said.get("content"):
        yield from [f"{place}: there is a body"] if body else []
    elif media_type not in said["content"]:
        yield f"{place}: the document has no {media_type}"
    else:
        schema = said["content"][media_type]["schema"] | {"components": document["components"]}
        for error in Draft202012Validator(schema).iter_errors(json.loads(body)):
            yield f"{place}: {error.json_path} {error.message[:200]}"
