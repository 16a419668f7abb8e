"""A real Dask scheduler and real workers: processes with the settings and certificates that deploy/ gives.

What starts them is Dask's own command. How docker-compose.yml starts them is read in its tests.
"""

import importlib.util
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compose_processes import loopback_address
from forked_python import ForkedProcess, forked_python

from tacit_services.shared import cluster
from tacit_services.shared.cluster import Certificates

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

STARTED_S = 300.0
LOOK_S = 0.02

MAIN = "import sys, dask.config; dask.config.refresh(paths=[sys.argv.pop(1)]); main()"
"""Dask's settings are read when it is imported, and it has been."""


def write_certificates(folder: Path) -> Certificates:
    """Write an authority, and certificates of scheduler, worker and client; return the client's."""
    spec = importlib.util.spec_from_file_location("certificates", DEPLOY / "certificates.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder.mkdir(parents=True)
    for name, content in module.dask_secrets():
        (folder / name).write_bytes(content)
    return client_certificates(folder)


def client_certificates(folder: Path) -> Certificates:
    names = ("dask_ca", "dask_client_certificate", "dask_client_key")
    return Certificates(*(folder / name for name in names))


@contextmanager
def connections_closed_whole() -> Iterator[None]:
    """Let this process close its connections whole, however busy the machine is: else sockets may leak."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "CLOSE_S", STARTED_S)
        yield


@dataclass
class DaskCluster:
    """A scheduler and workers of one thread, each a process with a log."""

    folder: Path
    processes: dict[str, ForkedProcess] = field(default_factory=dict)
    host: str = field(default_factory=loopback_address)
    """Of this scheduler alone, so that nobody takes its port while it is down."""
    address: str = ""

    def __post_init__(self) -> None:
        self.certificates = write_certificates(self.folder / "secrets")
        settings = (DEPLOY / "settings" / "dask.yaml").read_text()
        (self.folder / "dask.yaml").write_text(settings.replace("/run/secrets", str(self.folder / "secrets")))

    def _start(self, name: str, role: str, *arguments: str, first: str = "") -> ForkedProcess:
        code = f"{first}\nfrom distributed.cli.dask_{role} import main; {MAIN}"
        command = ["-c", code, str(self.folder / "dask.yaml"), *arguments]
        command += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        with self.log(name).open("ab") as log:
            self.processes[name] = forked_python().start(command, stdout=log, stderr=log, folder=self.folder)
        return self.processes[name]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def start_scheduler(self) -> None:
        """Start the scheduler and wait for it; at the same address as before, if there was one."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] or "0"
        where = ["--protocol", "tls", "--host", self.host, "--port", port]
        process = self._start("scheduler", "scheduler", *where, "--scheduler-file", str(file))
        self.address = str(json.loads(self._content(file, process))["address"])

    def start_worker(self, name: str, *, first: str = "") -> None:
        """Start a worker, which runs the code ``first`` before anything else; it is not waited for."""
        arguments = ["--no-nanny", "--nthreads", "1", "--memory-limit", "1GiB", "--host", "127.0.0.1"]
        arguments += ["--local-directory", str(self.folder / name), "--name", name]
        self._start(name, "worker", self.address, *arguments, first=first)

    def _content(self, file: Path, process: ForkedProcess) -> str:
        deadline = time.monotonic() + STARTED_S
        while time.monotonic() < deadline and process.poll() is None:
            if file.exists() and (text := file.read_text()).endswith("}"):
                return text
            time.sleep(LOOK_S)
        raise AssertionError(f"the scheduler did not start:\n{self.logs()}")

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)
