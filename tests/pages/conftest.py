"""A tester on SQLite with everyone enrolled, agents of this process, and a real one that tests kill."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from agent_fakes import AttackedAgent, FakeTester, World
from people_windows import agent_process, free_port, wait_for
from tester_federation import lone_federation as federation
from window import FORM

from tacit_protocol.signing import issue_token

__all__ = ["federation"]


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Callable[..., AttackedAgent]]:
    """Make agents of this process in the test's folder."""
    made: list[AttackedAgent] = []

    def make(**options: Any) -> AttackedAgent:
        made.append(AttackedAgent(tmp_path, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.agent.engine.dispose()


class CatalogueTester(FakeTester):
    """Keeps what agents publish."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogues: list[bytes] = []

    def handle(self, method: str, url: str, body: bytes) -> tuple[int, bytes]:
        if method == "PUT" and "/v1/catalogue/" in url:
            self.catalogues.append(body)
            return 201, b"{}"
        return super().handle(method, url, body)


class RealAgent:
    """An agent as a process of its own at a fake tester, which a failpoint kills."""

    def __init__(self, folder: Path, tester: CatalogueTester, url: str, **written: str) -> None:
        self.tester, self.world, self.folder = tester, World(folder), folder
        self.config = self.world.write(url, **written)
        port = free_port()
        self.config.write_text(self.config.read_text().replace("port = 0", f"port = {port}"))
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask the interface with the owner's key."""
        headers = {
            "authorization": f"Bearer {issue_token(self.world.agent, 'agent:north', int(time.time()))}"
        }
        return httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)

    @contextmanager
    def running(self, point: str = "") -> Iterator["Popen[bytes]"]:
        """Run it, to be killed at a point or else ended in good order."""
        with agent_process(self.config, point) as process:
            up = lambda: httpx.get(f"{self.url}/healthz").status_code == 200  # noqa: E731
            wait_for(lambda: process.poll() is not None or up())
            yield process
            if point:
                assert process.wait(120) == -signal.SIGKILL
            else:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0

    @contextmanager
    def browser(self, user: str | None = None) -> Iterator[httpx.Client]:
        """A browser that has signed in with a link."""
        link = self.ask("POST", "/v1/sign-in-links", {} if user is None else {"user": user}).json()["path"]
        with httpx.Client(base_url=self.url, headers={"origin": self.url}, timeout=60) as browser:
            assert browser.post(link, headers={"content-type": FORM}).status_code == 303
            yield browser

    @staticmethod
    def hidden(page: httpx.Response, *names: str) -> dict[str, str]:
        """Read hidden fields of 64 digits off a page."""
        return {name: page.text.split(f'name="{name}" value="')[1][:64] for name in names}

    def debits(self) -> int:
        entries = self.ask("GET", "/v1/ledger").json()["entries"]
        return sum(entry["kind"] == "debit" for entry in entries)


@pytest.fixture
def real_agent(tmp_path: Path) -> Iterator[Callable[..., RealAgent]]:
    """Make the one real agent of a test, at a tester that keeps what it publishes."""
    tester = CatalogueTester()
    with tester.serving() as url:
        yield lambda **written: RealAgent(tmp_path, tester, url, **written)
