"""Runs the services of docker-compose.yml as local processes, as an engine would run them.

Every service gets its own command, environment, mounts, secrets and health check from the file. What an
engine would give it is replaced by what this machine has: a container path by a folder, a service's name by
a loopback address of its own, the postgres image by an embedded PostgreSQL.
"""

import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import yaml
from forked_python import forked_python

ROOT = Path(__file__).resolve().parents[2]
HEALTHY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
STATE_FOLDER = "/var/lib/tacit"
DATABASE_ADDRESS = "@postgres:5432/tacit"
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
"""A variable of the shell that starts the engine, and what stands for it where it is not set."""


def loopback_address() -> str:
    """Draw an address of this machine that no other service of this or another run is likely to use."""
    return f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"  # noqa: S311


@dataclass
class ComposeProcesses:
    """The compose file's services, in ``folder``, on what ``make_federation`` wrote there."""

    folder: Path
    postgres_url: str
    compose: dict[str, Any] = field(init=False)
    addresses: dict[str, str] = field(init=False)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        drawn = set[str]()
        while len(drawn) < len(self.compose["services"]):
            drawn.add(loopback_address())
        self.addresses = dict(zip(self.compose["services"], sorted(drawn), strict=True))

    def set_up(self) -> None:
        """Run the service that writes keys, secrets, settings and data; nothing else has to be there."""
        word, script, folder = self.compose["services"]["setup"]["command"]
        assert (word, folder) == ("python", "/deploy/federation")
        command = [sys.executable, str(ROOT / script.removeprefix("/")), str(self.federation)]
        command += [f"--also={address}" for address in self.addresses.values()]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def federation(self) -> Path:
        """Where the keys, settings and data of the federation are."""
        return self.folder / "federation"

    def url(self, service: str, port: int) -> str:
        """The URL of a service on this machine."""
        return f"https://{self.addresses[service]}:{port}"

    @property
    def ca_file(self) -> Path:
        """The certificate that callers of the tester and the curator trust."""
        return self.federation / "secrets" / "services_ca"

    def start_all(self, *names: str) -> None:
        """Start services, each once what it depends on is healthy, and wait until all are healthy."""
        waiting, healthy = list(names), {"postgres"}
        self._prepare_database()
        while waiting:
            ready = [name for name in waiting if healthy >= set(self.compose["services"][name]["depends_on"])]
            assert ready, f"{waiting} wait for what is not started"
            for name in ready:
                self._start(name)
            for name in ready:
                self._wait_until_healthy(name)
            healthy.update(ready)
            waiting = [name for name in waiting if name not in healthy]

    def _start(self, name: str) -> None:
        service = self.compose["services"][name]
        mounts = self._mount(name, service)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._command(name, service["command"], mounts),
                env=self._environment(name, service, mounts),
                cwd=mounts[STATE_FOLDER],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run_in(self, name: str, *command: str) -> str:
        """Run the ``tacit`` command as ``docker compose exec`` would, and return what it prints."""
        result = self.ran_in(name, *command)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def ran_in(self, name: str, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run the ``tacit`` command in a service's surroundings, and return how it ended."""
        assert command[0] == "tacit"
        service = self.compose["services"][name]
        mounts = self._mount(name, service)
        return forked_python().run(
            ["-c", "from tacit.command import main; main()"]
            + [self._local(name, word, mounts) for word in command[1:]],
            folder=Path(mounts[STATE_FOLDER]),
            environment=self._environment(name, service, mounts),
        )

    def stop(self) -> dict[str, int]:
        """Ask every service to end, and return its exit code."""
        for process in self.processes.values():
            process.terminate()
        try:
            return {name: process.wait(STOP_TIMEOUT_S) for name, process in self.processes.items()}
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            self.processes.clear()

    def log(self, name: str) -> str:
        """What a service has printed."""
        return (self.folder / f"{name}.log").read_text()

    def _prepare_database(self) -> None:
        """Do what the postgres image does at its first start: a user and a database of its own."""
        environment = self.compose["services"]["postgres"]["environment"]
        user = environment["POSTGRES_USER"]
        with psycopg.connect(self.postgres_url, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone() is None:
                connection.execute(f"CREATE ROLE {user} LOGIN".encode())
            connection.execute(f"ALTER DATABASE {connection.info.dbname} OWNER TO {user}".encode())

    def _mount(self, name: str, service: dict[str, Any]) -> dict[str, str]:
        """Make the container's folders here; returns local paths by container path, longest first."""
        root = self.folder / name
        mounts = {STATE_FOLDER: root / "state"}
        for source, target, *_ in (volume.split(":") for volume in service.get("volumes", [])):
            mounts[target] = (
                self.folder / "volumes" / source if not source.startswith("./") else root / target[1:]
            )
        for secret in service.get("secrets", []):
            mounts[f"/run/secrets/{secret}"] = root / "run" / "secrets" / secret
        local = {
            path: str(mounts[path])
            for path in sorted(mounts, key=lambda container_path: -len(container_path))
        }
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("./"):
                self._copy(name, self._made(source), mounts[target], local)
            else:
                mounts[target].mkdir(parents=True, exist_ok=True)
        mounts[STATE_FOLDER].mkdir(parents=True, exist_ok=True)
        for secret in service.get("secrets", []):
            made = self._made(self.compose["secrets"][secret]["file"])
            self._copy(name, made, mounts[f"/run/secrets/{secret}"], local)
        return local

    def _made(self, source: str) -> Path:
        """Where the file or folder is that the compose file mounts from deploy."""
        if Path(source).is_relative_to("deploy/federation"):
            return self.federation / Path(source).relative_to("deploy/federation")
        return ROOT / source

    def _copy(self, name: str, source: Path, target: Path, mounts: dict[str, str]) -> None:
        """Copy a file or a folder, with this machine's paths and addresses in it."""
        files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
        for file in files:
            copied = target if source.is_file() else target / file.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(self._local(name, file.read_text(), mounts))

    def _local(self, name: str, text: str, mounts: dict[str, str]) -> str:
        """Replace container paths and addresses by those of this machine."""
        for container_path, path in mounts.items():
            text = re.sub(rf"(?<![\w/]){re.escape(container_path)}(?![\w-])", path, text)
            text = text.replace(f"sqlite:///{container_path}", f"sqlite:///{path}")
        for service, address in self.addresses.items():
            text = text.replace(f"//{service}:", f"//{address}:")
        text = text.replace(DATABASE_ADDRESS, "@/" + self.postgres_url.partition("@/")[2])
        for everywhere in ("0.0.0.0", "127.0.0.1"):  # noqa: S104 (replaced, not bound)
            text = text.replace(everywhere, self.addresses[name])
        return text

    def _command(self, name: str, command: list[str], mounts: dict[str, str]) -> list[str]:
        assert command[0] == "python"
        return [sys.executable, *(self._local(name, part, mounts) for part in command[1:])]

    def _environment(self, name: str, service: dict[str, Any], mounts: dict[str, str]) -> dict[str, str]:
        inherited = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        stated = {key: DEFAULT.sub(r"\1", value) for key, value in service.get("environment", {}).items()}
        own = {key: self._local(name, value, mounts) for key, value in stated.items()}
        return inherited | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | own

    def _wait_until_healthy(self, name: str) -> None:
        """Run the service's own health check until it passes."""
        service = self.compose["services"][name]
        word, *check = service["healthcheck"]["test"]
        assert word == "CMD"
        mounts = self._mount(name, service)
        command = self._command(name, check, mounts)
        environment = self._environment(name, service, mounts)
        ends_at = time.monotonic() + HEALTHY_TIMEOUT_S
        while subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0:
            assert self.processes[name].poll() is None, f"{name} ended:\n{self.log(name)}"
            assert time.monotonic() < ends_at, f"{name} is not healthy:\n{self.log(name)}"
            time.sleep(0.5)
