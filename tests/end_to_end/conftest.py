"""What the end-to-end tests share: the `tacit` command as a process, and a federation that is stopped."""

import csv
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browser import running_browser
from forked_python import forked_python, services_forked
from own_time import PATIENCE_S, wait_until

from tacit.command.app import run
from tacit.setup.federation import LocalFederation, OwnerSetup

COMMAND = ("-c", "from tacit.command import main; main()")
R_PACKAGE = Path(__file__).resolve().parents[2] / "clients" / "r" / "tacit"


@pytest.fixture(scope="module", autouse=True)
def _services_forked() -> Iterator[None]:
    """Federations start fast; the demo, the tutorial and the composed services start as they do for users."""
    with services_forked():
        yield


def run_tacit(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    if arguments[0] != "demo":
        return forked_python().run([*COMMAND, *arguments], cwd, PATIENCE_S)
    return subprocess.run(
        [sys.executable, *COMMAND, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="session")
def rscript(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run R code with the package; without R the tests skip, or fail where TACIT_R_REQUIRED says so."""
    if shutil.which("Rscript") is None:
        if os.environ.get("TACIT_R_REQUIRED") == "1":
            pytest.fail("TACIT_R_REQUIRED=1, and there is no R")
        pytest.skip("no R here: docs/how-to/use-r.md says what to install")
    library = tmp_path_factory.mktemp("library")
    quick = ["--no-byte-compile", "--no-docs", "--no-help", "--no-test-load"]
    installed = subprocess.run(
        ["R", "CMD", "INSTALL", *quick, f"--library={library}", str(R_PACKAGE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr

    def run(code: str, *arguments: str, cwd: Path = library, **environment: str) -> str:
        done = subprocess.run(
            ["Rscript", "-e", f"library(tacit)\n{code}", *arguments],
            cwd=cwd,
            env=os.environ | {"R_LIBS": str(library)} | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def tacit_process() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the command as a process, and return how it ended."""
    return run_tacit


@pytest.fixture
def tacit_json() -> Callable[..., Any]:
    """Run the command with --json, and return what it printed."""

    def printed(*arguments: str, cwd: Path | None = None) -> Any:
        done = run_tacit(*arguments, "--json", cwd=cwd)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return printed


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Run the command in this process with --json; returns its exit status and what it printed."""

    def said(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.err.splitlines()[-1] if captured.err else captured.out)

    return said


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as running:
        yield running


Patients = Callable[..., Iterator[tuple[str, str]]]


@pytest.fixture(scope="session")
def patients() -> Patients:
    """Write made-up patients, ages and sexes, by the mean age; yields each owner's name and file."""

    def write(
        folder: Path, means: Mapping[str, float], units: int, seed: int, spread: float = 12
    ) -> Iterator[tuple[str, str]]:
        rng = random.Random(seed)  # noqa: S311
        for name, mean_age in means.items():
            source = folder / f"{name}.csv"
            with source.open("w", newline="") as opened:
                writer = csv.writer(opened)
                writer.writerow(["age", "sex"])
                writer.writerows([round(rng.gauss(mean_age, spread)), rng.choice("FM")] for _ in range(units))
            yield name, str(source)

    return write


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Wait for something that other processes do."""
    return wait_until


@pytest.fixture
def start_federation(tmp_path: Path) -> Iterator[Callable[[Sequence[OwnerSetup]], LocalFederation]]:
    """Start a federation with everyone enrolled; it is stopped after the test."""
    with ExitStack() as stack:

        def start(owners: Sequence[OwnerSetup]) -> LocalFederation:
            federation = stack.enter_context(LocalFederation(tmp_path / "federation", owners))
            federation.wait_until_ready()
            federation.enrol_all()
            return federation

        yield start
