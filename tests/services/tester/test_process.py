"""The tester as a process: it starts from a file, stops when told, and survives being killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token

START_S_MAX = 60


class TesterProcess:
    """A tester's directory, and the process that serves it."""

    def __init__(self, directory: Path) -> None:
        self.key = PrivateKey.generate()
        (directory / "tester.pem").write_bytes(self.key.to_pem())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = directory / "tester.toml"
        self.config.write_text(
            f'name = "tester"\nurl = "{self.url}"\nport = {self.port}\nkey_file = "tester.pem"\n'
            'database_url = "sqlite:///tester.sqlite3"\n'
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self, **environment: str) -> None:
        command = [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(self.config)]
        self.process = subprocess.Popen(
            command, env=os.environ | environment, text=True, stderr=subprocess.PIPE
        )
        end = time.monotonic() + START_S_MAX
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)  # between two attempts to connect, not for luck
        raise AssertionError("the tester did not start")

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        token = issue_token(self.key, self.url, int(time.time()))
        headers = {"authorization": f"Bearer {token}"}
        return httpx.request(method, self.url + path, headers=headers, trust_env=False, timeout=30, **options)

    def stop(self) -> tuple[int, str]:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=10)
        return self.process.returncode, errors


@pytest.fixture
def tester(tmp_path: Path) -> Iterator[TesterProcess]:
    tester = TesterProcess(tmp_path)
    yield tester
    if tester.process is not None:
        if tester.process.poll() is None:
            tester.process.kill()
        tester.process.communicate()


def test_a_tester_stops_within_five_seconds_and_lets_callers_go(tester: TesterProcess) -> None:
    tester.start()
    owner = PrivateKey.generate()
    invited = tester.call("POST", "/v1/invitations", json={"role": "owner", "name": "north"}).json()
    body = {
        "invitation": invited["invitation"],
        "name": "north",
        "key": owner.public_hex,
        "role": "owner",
    }
    tester.key, tester_key = owner, tester.key
    assert tester.call("POST", "/v1/enrolments", json=body).status_code == 201
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(tester.call("GET", "/v1/inbox?wait_s=30")))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive(), "the inbox is empty, so the call waits"
    started = time.monotonic()
    code, errors = tester.stop()
    assert time.monotonic() - started <= 5
    assert code == 0
    waiting.join(10)
    assert [answer.status_code for answer in answers] == [200]
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["level"] for line in lines} <= {"info"}, errors
    assert invited["invitation"] not in errors
    assert tester_key.public_hex not in errors


def test_a_wrong_setting_is_said_on_one_line(tester: TesterProcess) -> None:
    tester.config.write_text(tester.config.read_text() + "prot = 1\n")
    command = [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(tester.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tester: setting prot")
    assert len(done.stderr.splitlines()) == 1
