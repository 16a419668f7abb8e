"""Service processes are started, watched and stopped; none is ever left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.errors import ServiceError
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.processes import ServiceProcess, interruptions_deferred, stop_all


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_an_interruption_waits_until_the_block_has_ended() -> None:
    steps = []

    def interrupted() -> None:
        with interruptions_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("after the interruption")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["after the interruption"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_service_that_ended_names_its_log_and_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    service = ServiceProcess.start("tester", python("print('the last words'); raise SystemExit(3)"), log)
    service.process.wait(120)
    with pytest.raises(ServiceError, match="ended with code 3") as caught:
        service.check_running()
    assert str(log) in str(caught.value)
    assert "the last words" in str(caught.value)


def test_stopping_kills_what_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.setup.processes.STOP_TIMEOUT_S", 0.2)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    deaf = f"{ignore}; print('up', flush=True); signal.pause()"
    log = tmp_path / "deaf.log"
    service = ServiceProcess.start("deaf", python(deaf), log)
    while "up" not in log.read_text():
        service.check_running()
    stop_all([service])
    assert service.process.returncode == -signal.SIGKILL


def owner(source: str) -> OwnerSetup:
    return OwnerSetup("north", DataSetSetup("patients", source, 1.0, 1e-5), PolicySetup())


@pytest.mark.long
def test_a_federation_that_cannot_start_says_which_service_and_leaves_none(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, [owner("patients.csv")])
    (tmp_path / "tester" / "tester.toml").write_text("nonsense = 1\n")
    started: list[subprocess.Popen[bytes]] = []

    def run() -> None:
        with federation:
            started.extend(service.process for service in federation._services)
            federation.wait_until_ready(300)

    with pytest.raises(ServiceError, match="tester ended"):
        run()
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)
