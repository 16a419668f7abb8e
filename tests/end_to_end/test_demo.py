"""`tacit demo`, as a user runs it."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

HOSPITALS = ("cleveland", "budapest", "zurich-basel", "long-beach")
Process = Callable[..., "subprocess.CompletedProcess[str]"]


def left_running(folder: Path) -> list[int]:
    """Find services whose configuration lies in this folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(str(folder) in argument for argument in process.info["cmdline"] or ()):
            found.append(process.info["pid"])
    return found


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
        (left,) = re.findall(rf"^ *{hospital} +([\d.]+) +([\d.]+) *$", done.stdout, re.M)
        assert left == ("1", "2")
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


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(
    end: signal.Signals, tmp_path: Path, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    folder = tmp_path / "federation"
    command = [sys.executable, "-c", "from tacit.command import main; main()"]
    with subprocess.Popen(
        [*command, "demo", "--folder", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as demo:
        # Five services and the demo's own process name the folder.
        eventually(lambda: len(left_running(folder)) == 6)
        os.kill(demo.pid, end)
        assert demo.wait(300) in {130, 143}
    assert left_running(folder) == []


def test_a_folder_in_use_is_not_touched(tacit_process: Process, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    done = tacit_process("demo", "--folder", str(tmp_path))
    assert done.returncode == 2
    assert "--folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_demo_that_keeps_running_can_be_played_with(tmp_path: Path, tacit_json: Callable[..., Any]) -> None:
    folder = tmp_path / "federation"
    command = [sys.executable, "-c", "from tacit.command import main; main()"]
    with subprocess.Popen(
        [*command, "demo", "--folder", str(folder), "--keep-running"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        printed = []
        for line in demo.stdout:
            printed.append(line)
            if line.startswith("long-beach: http"):
                break
        listed = tacit_json("study", "list", "--party", str(folder / "analyst" / "party.toml"))
        ledger = tacit_json("ledger", "show", "--config", str(folder / "cleveland" / "agent.toml"))
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        demo.wait(300)
    assert any("Still running" in line for line in printed)
    assert [study["state"] for study in listed] == ["completed"]
    assert [entry["epsilon_micro"] for entry in ledger if entry["study"]] == [1_000_000]
    assert left_running(folder) == []
