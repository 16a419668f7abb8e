"""`tacit demo`, as a user runs it."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tacit.command.demo import _kept_when_done
from tacit.errors import ServiceError

HOSPITALS = ("cleveland", "budapest", "zurich-basel", "long-beach")
ROOT = Path(__file__).resolve().parents[2]
DEMO = ("-c", "from tacit.command import main; main()", "demo")
ALL_SYSTEMS = ("-m", "examples.all_systems")
Process = Callable[..., "subprocess.CompletedProcess[str]"]


def left_running(folder: Path) -> list[int]:
    """Find services whose configuration lies in this folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(str(folder) in argument for argument in process.info["cmdline"] or ()):
            found.append(process.info["pid"])
    return found


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_tells_its_verdict_and_its_transcript_verifies(
    tacit_process: Process, tacit_json: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "federation"
    done = tacit_process("demo", "--folder", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"{n}/7" for n in range(1, 8)] == re.findall(r"^(\d/7) ", done.stdout, re.MULTILINE)
    assert re.search(r"^Verdict: (DIFFERENT populations|no difference shown) \(p = ", done.stdout, re.M)
    for first, second in (("cleveland", "zurich-basel"), ("budapest", "long-beach")):
        assert f"{first} and {second}" in done.stdout
    for hospital in HOSPITALS:
        # Gaussian studies add up by their noise: one of epsilon 1 leaves more than two of three.
        assert re.search(rf"^ *{hospital} +86 % of epsilon 3 *$", done.stdout, re.M)
    assert str(folder) in done.stdout
    for investigator in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano"):
        assert investigator in done.stdout
        assert investigator in (folder / "ATTRIBUTION.txt").read_text()
    assert left_running(folder) == []

    transcript = folder / "transcript.json"
    verified = tacit_json("verify", str(transcript))
    assert verified["verified"] is True
    assert set(verified["owners"]) == set(HOSPITALS)
    check_ledgers(folder)
    refuse_a_changed_figure(tacit_process, transcript)


def check_ledgers(folder: Path) -> None:
    for hospital in HOSPITALS:
        with sqlite3.connect(folder / hospital / "agent.sqlite3") as database:
            debits = database.execute(
                "SELECT epsilon_micro, delta_pico FROM ledger_entries WHERE study IS NOT NULL"
            ).fetchall()
        database.close()
        assert debits == [(1_000_000, 10_000_000)]


def refuse_a_changed_figure(tacit_process: Process, transcript: Path) -> None:
    parts = json.loads(transcript.read_text())
    envelope = parts["releases"]["cleveland"]
    middle = len(envelope) // 2
    parts["releases"]["cleveland"] = (
        envelope[:middle] + ("A" if envelope[middle] != "A" else "B") + envelope[middle + 1 :]
    )
    transcript.write_text(json.dumps(parts))
    done = tacit_process("verify", str(transcript))
    assert done.returncode == 1
    assert "does not hold" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "command", "services"), [(signal.SIGTERM, DEMO, 5), (signal.SIGINT, ALL_SYSTEMS, 8)]
)
def test_an_interrupted_demo_leaves_no_process_and_no_file_behind(
    end: signal.Signals,
    command: tuple[str, ...],
    services: int,
    tmp_path: Path,
    eventually: Callable[[Callable[[], Any]], Any],
) -> None:
    folder = tmp_path / "new" / "federation"
    with (
        tempfile.TemporaryFile() as told,
        subprocess.Popen(
            [sys.executable, *command, "--folder", str(folder)],
            cwd=ROOT,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as demo,
    ):
        # The services and the demo's own process name the folder.
        eventually(lambda: demo.poll() is not None or len(left_running(folder)) > services)
        if demo.poll() is None:
            os.kill(demo.pid, end)
        code = demo.wait(300)
        told.seek(0)
        assert code in {130, 143}, told.read().decode()
    assert left_running(folder) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("there", "whole", "left"), [(False, False, 0), (True, False, 1), (False, True, 2)])
def test_a_demo_that_fails_keeps_its_files_only_once_they_are_whole(
    tmp_path: Path, there: bool, whole: bool, left: int
) -> None:
    """A folder that was there before is there afterwards, and empty again."""
    folder = tmp_path / "federation"
    if there:
        folder.mkdir()

    def fail() -> None:
        with _kept_when_done(folder) as (_, done):
            (folder / "tester").mkdir(parents=True)
            if whole:
                done()
            raise ServiceError("the tester ended")

    with pytest.raises(ServiceError, match="the tester ended"):
        fail()
    assert len(list(tmp_path.rglob("*"))) == left


def test_a_folder_in_use_is_not_touched(tacit_process: Process, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    done = tacit_process("demo", "--folder", str(tmp_path))
    assert done.returncode == 2
    assert "--folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
