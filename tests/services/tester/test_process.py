"""The tester as a process: it starts from a file, stops when told, and survives being killed."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import own_time
import pytest

from tacit.setup.processes import free_ports
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token

START_S_MAX = 300
ANSWER_S_MAX = 300

WAIT_S = 60
"""How long the inbox is asked to wait; a stop that waited for its callers would take as long."""

ATTEMPTS_MAX = 3
"""Stops of which one must be in time, and let its callers go: machines are shared."""


class TesterProcess:
    """A tester's directory, and the process that serves it."""

    def __init__(self, directory: Path) -> None:
        self.key = PrivateKey.generate()
        (directory / "tester.pem").write_bytes(self.key.to_pem())
        (self.port,) = free_ports(1)
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
        token = issue_token(options.pop("signer", self.key), self.url, int(time.time()))
        headers = {"authorization": f"Bearer {token}"} | options.pop("headers", {})
        return httpx.request(
            method, self.url + path, headers=headers, trust_env=False, timeout=ANSWER_S_MAX, **options
        )

    def wait_for_end(self) -> int:
        """Wait until the process has ended by itself."""
        assert self.process is not None
        self.process.communicate(timeout=ANSWER_S_MAX)
        return self.process.returncode

    def stop(self) -> tuple[int, float, str]:
        """Stop it; returns its exit code, the seconds of its own that it took, and its log."""
        assert self.process is not None
        code, stopped_s = own_time.stop(self.process)
        _, errors = self.process.communicate(timeout=ANSWER_S_MAX)
        return code, stopped_s, errors


@pytest.fixture
def tester(tmp_path: Path) -> Iterator[TesterProcess]:
    tester = TesterProcess(tmp_path)
    yield tester
    if tester.process is not None:
        if tester.process.poll() is None:
            tester.process.kill()
        tester.process.communicate()


@dataclass
class Stop:
    """How a tester stopped while somebody waited for an inbox that stays empty."""

    code: int
    took_s: float
    statuses: list[int]
    """What the caller was answered, if anything."""
    log: str


def stop_while_asked(tester: TesterProcess, owner: PrivateKey) -> Stop:
    statuses: list[int] = []
    sent = threading.Event()

    def note(event: str, _: object) -> None:
        if event == "http11.send_request_body.complete":
            sent.set()

    def ask() -> None:
        path = f"/v1/inbox?wait_s={WAIT_S}"
        with httpx.Client(trust_env=False, timeout=2 * WAIT_S) as http, suppress(httpx.TransportError):
            token = issue_token(owner, tester.url, int(time.time()))
            headers = {"authorization": f"Bearer {token}"}
            answer = http.get(tester.url + path, headers=headers, extensions={"trace": note})
            statuses.append(answer.status_code)

    waiting = threading.Thread(target=ask)
    waiting.start()
    assert sent.wait(ANSWER_S_MAX)
    # A later call is answered only once the tester has read the one before it.
    assert tester.call("GET", "/v1/studies").status_code == 200
    waiting.join(1)
    assert waiting.is_alive(), "the inbox is empty, so the call waits"
    code, took_s, log = tester.stop()
    waiting.join(ANSWER_S_MAX)
    return Stop(code, took_s, statuses, log)


def test_a_tester_that_stops_lets_its_callers_go(tester: TesterProcess) -> None:
    tester.start()
    owner = PrivateKey.generate()
    invited = tester.call("POST", "/v1/invitations", json={"role": "owner", "name": "north"}).json()
    body = {
        "invitation": invited["invitation"],
        "name": "north",
        "key": owner.public_hex,
        "role": "owner",
    }
    assert tester.call("POST", "/v1/enrolments", signer=owner, json=body).status_code == 201
    stops = [stop_while_asked(tester, owner)]
    while stops[-1].took_s >= own_time.STOP_S_MAX and len(stops) < ATTEMPTS_MAX:
        tester.start()
        stops.append(stop_while_asked(tester, owner))
    assert {stop.code for stop in stops} == {0}
    in_time = stops[-1]
    assert in_time.took_s < own_time.STOP_S_MAX, stops
    assert in_time.statuses == [200]
    lines = [json.loads(line) for line in in_time.log.splitlines()]
    assert {line["level"] for line in lines} <= {"info"}, in_time.log
    for stop in stops:
        assert invited["invitation"] not in stop.log
        assert owner.public_hex not in stop.log


def test_a_wrong_setting_and_a_database_that_is_away_are_said_on_one_line(tester: TesterProcess) -> None:
    text = tester.config.read_text()
    away = text.replace("sqlite:///tester.sqlite3", "postgresql://127.0.0.1:1/none")
    command = [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(tester.config)]
    for written, said in ((text + "prot = 1\n", "setting prot"), (away, "the database is unavailable\n")):
        tester.config.write_text(written)
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S_MAX, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"tester: {said}")
        assert len(done.stderr.splitlines()) == 1
