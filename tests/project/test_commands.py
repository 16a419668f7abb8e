"""make and .ci/run do what they say, and say clearly when there is no Python to do it with."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OLD = "exec {python} -c 'import sys; sys.version_info = (3, 9); exec(sys.argv[1])' \"$2\""
WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1;; esac; exec {python} "$@"'
GOOD = 'exec {python} "$@"'


def find_python(
    folder: Path, pythons: dict[str, str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run .ci/find-python where only these Pythons are on the path."""
    for name, script in {**pythons, "env": 'exec /usr/bin/env "$@"', "bash": 'exec /bin/bash "$@"'}.items():
        path = folder / name
        path.write_text("#!/bin/sh\n" + script.format(python=sys.executable) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    command = ["/bin/bash", str(ROOT / ".ci" / "find-python")]
    path = {"PATH": str(folder)}
    return subprocess.run(command, env=path | environment, capture_output=True, text=True, check=False)


def test_the_first_python_that_serves_is_chosen(tmp_path: Path) -> None:
    found = find_python(tmp_path, {"python3": OLD, "python3.12": WITHOUT_VENV, "python3.11": GOOD})
    assert (found.returncode, found.stdout) == (0, "python3.11\n")


@pytest.mark.parametrize(("target", "chosen"), [("test", ' -m "not long"'), ("test-all", "")])
def test_both_tiers_run_every_check_first(target: str, chosen: str) -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    tools = [line.split("/")[-1].strip() for line in plan if line.startswith(".venv/bin/")]
    assert tools[:2] == ["ruff check .", "ruff format --check ."]
    assert tools[2:] == ["mypy", "lint-imports --no-cache", f"python -m pytest -n 3 --dist worksteal{chosen}"]


def test_an_install_takes_pinned_files_alone_and_sets_no_index() -> None:
    text = (ROOT / ".ci" / "install").read_text()
    needed, project = (line for line in text.splitlines() if "pip install" in line)
    assert '--require-hashes -r requirements/build.txt -r "requirements/$1.txt"' in needed
    assert project.endswith("--no-index --no-deps --no-build-isolation -e .")
    assert "PIP_INDEX" not in text + (ROOT / "Makefile").read_text()
