"""Windows of an agent's people, and a real agent as a process, for tests of pages."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
from agent_fakes import AttackedAgent
from forked_python import ForkedProcess, process_of
from window import Window

from tacit_protocol.signing import issue_token
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.shared.failpoints import VARIABLE
from tacit_services.shared.people import Role


def window_of(agent: AttackedAgent) -> Window:
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    token = lambda: issue_token(agent.world.agent, "agent:north", int(agent.clock()))  # noqa: E731
    return Window(app, "http://localhost", token)


def add(window: Window, *people: tuple[str, Role]) -> None:
    for name, role in people:
        answer = window.ask("PUT", f"/v1/users/{name}", {"role": role})
        assert answer.status_code == 201, answer.text


def press(window: Window, digest: str, what: str = "approval") -> int:
    return window.post(f"/studies/{digest}/{what}", {"form_token": window.token()}).status_code


def agent_process(config: Path, point: str, *planted: str) -> AbstractContextManager[ForkedProcess]:
    """Run an agent, which is killed at that point if there is one; its log is beside its configuration."""
    command = (str(Path(__file__).parent / "agent_process.py"), str(config), *planted)
    return process_of(config.with_suffix(".log"), *command, environment={**os.environ, VARIABLE: point})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("it did not happen within two minutes")
