"""An auditor who follows a row of a CSV to its signed, uploaded release opens few files."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_fakes import FakeTester, World

import tacit_protocol
import tacit_services
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.agent import Agent
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.policy import Policy
from tacit_services.agent.releases import Dependencies
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.tester_client import TesterClient
from tacit_services.shared.compute import make_workers
from tacit_services.shared.database import create_engine, upgrade

FILES_MAX = 40
ROOTS = tuple(str(Path(package.__path__[0])) for package in (tacit_protocol, tacit_services))


def files_run_by(*calls: Callable[[], object]) -> set[str]:
    """Return the files of Tacit whose functions run, in any thread."""
    seen: set[str] = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOTS):
            seen.add(frame.f_code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        for call in calls:
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def test_a_row_passes_few_files_on_its_way_to_a_release(tmp_path: Path) -> None:
    world, tester = World(tmp_path), FakeTester()
    settings = AgentSettings.load(world.write("http://tester"))
    engine = create_engine(settings.database_url)
    upgrade(engine, "agent")
    url = settings.tester_url
    agent = Agent(
        settings,
        Policy.load(settings.policy_file),
        world.agent,
        PROCEDURES,
        Dependencies(
            engine,
            TesterClient(url, url, world.agent, time.time, print, transport=tester.transport()),
            OpenDPNoise(),
            time.time,
            computing=Computing(make_workers(settings.compute), settings.compute.memory_bytes),
        ),
    )
    agent.open_accounts()
    asked = world.ask(tester, world.study(procedure="kernel_two_sample", created_at=int(time.time())))
    agent.poll(0)
    agent.confirm()
    files = files_run_by(agent.run_approved, agent.deliver)
    engine.dispose()
    assert [(study, kind) for study, kind, _ in tester.received] == [(asked, "releases")]
    assert len(files) <= FILES_MAX, sorted(files)
