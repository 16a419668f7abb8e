"""Drives the supervisors that kill processes: one case at a time, over a pipe."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

SUPERVISORS = {"several testers": "several_testers_process.py"}


class Sweep:
    """The supervisor of a kind of case (kill_sweep_process.py), one case at a time."""

    def __init__(self, kind: str, folder: Path, party_url: str, tester_url: str) -> None:
        script = Path(__file__).parent / SUPERVISORS.get(kind, "kill_sweep_process.py")
        command = [sys.executable, str(script), kind, str(folder), party_url, tester_url]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a fork must not lose a library's threads
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *plan: str, planted: str | None = None) -> dict[str, Any]:
        self._process.stdin.write(json.dumps({"plan": plan, "planted": planted}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def close(self) -> None:
        self._process.communicate(timeout=300)


@contextmanager
def on_sqlite(kind: str, folder: Path) -> Iterator[Sweep]:
    """A supervisor with two SQLite databases."""
    urls = [f"sqlite:///{folder / name}.sqlite3" for name in ("party", "tester")]
    sweep = Sweep(kind, folder, *urls)
    yield sweep
    sweep.close()


@contextmanager
def on_postgresql(kind: str, folder: Path, server: str) -> Iterator[Sweep]:
    """A supervisor with two databases of a PostgreSQL server."""
    names = [f"sweep_{uuid.uuid4().hex}" for _ in range(2)]
    with psycopg.connect(server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}".encode())
    urls = [server.replace("/postgres?", f"/{name}?") for name in names]
    sweep = Sweep(kind, folder, *urls)
    yield sweep
    sweep.close()
    with psycopg.connect(server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
