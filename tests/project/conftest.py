"""The apps of all services, put together as the services do, for what is compared with their routes."""

import threading
from pathlib import Path

import pytest
from fastapi import FastAPI

from tacit.setup import configuration
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent import service as agent_service
from tacit_services.agent.service import Runtime, create_agent_app
from tacit_services.agent.settings import AgentSettings
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
    return create_agent_app(agent, Runtime("0", lambda: True, lambda: None))


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


@pytest.fixture(scope="session")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastAPI]:
    """Every service's app, by its name."""
    folder = tmp_path_factory.mktemp("apps")
    return {name: make(folder / name) for name, make in SERVICES.items()}
