"""An agent as a process: it serves its owner, and stops when asked."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import agent_process
import httpx
from agent_fakes import FakeTester, World
from own_time import require_a_stop_in_time, stop

from tacit.setup.processes import free_ports
from tacit_protocol.signing.tokens import issue_token

PATIENCE_S = 300.0


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/readyz", trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the agent does not serve")


def test_an_agent_serves_its_owner_and_stops_with_status_zero(tmp_path: Path) -> None:
    world, tester, (port,) = World(tmp_path), FakeTester(), free_ports(1)
    world.ask(tester, world.study())
    with tester.serving() as tester_address:
        config = world.write(tester_address)
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
        command = [sys.executable, str(Path(agent_process.__file__)), str(config)]
        address = f"http://127.0.0.1:{port}"

        def stopped_s() -> float:
            with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, stderr=log) as process:
                try:
                    wait_for(address, process)
                    token = issue_token(world.agent, "agent:north", int(time.time()))
                    headers = {"Authorization": f"Bearer {token}"}
                    status = f"{address}/v1/status"
                    answer = httpx.get(status, headers=headers, trust_env=False, timeout=PATIENCE_S)
                    assert answer.json()["party"]["name"] == "north"
                    code, seconds = stop(process)
                finally:
                    process.kill()
            assert code == 0
            return seconds

        require_a_stop_in_time(stopped_s)
    log_text = (tmp_path / "log").read_text()
    assert "Traceback" not in log_text
    assert "eyJ" not in log_text  # how every token begins
