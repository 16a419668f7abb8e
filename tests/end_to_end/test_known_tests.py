"""A known test by blocks, asked of two owners by the command: one with a CSV file, one with a database."""

import csv
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup

Start = Callable[[Sequence[OwnerSetup]], LocalFederation]

STUDY = """
title = "Is pain lower on the drug?"
procedure = "aggregated_test"
epsilon = 1.0
delta = 0.0
level = 0.05
unit_column = "patient"
unit_rows = "one"

[parameters]
test = "mann_whitney"

[[columns]]
kind = "categorical"
name = "arm"
levels = ["placebo", "drug"]

[[columns]]
kind = "numeric"
name = "pain"
lower = 0
upper = 10

[[owners]]
name = "north"
data_set = "trial"

[[owners]]
name = "south"
data_set = "trial"
"""


def visits(seed: int, shift: float) -> Iterator[tuple[str, str, float]]:
    """Two visits of each of 300 patients; owners differ by a shift, which makes no difference."""
    rng = np.random.default_rng(seed)
    for patient in range(300):
        arm = "drug" if rng.random() < 0.5 else "placebo"
        for _ in range(2):
            pain = float(np.clip(5 + shift + rng.normal(0, 1.5) - 1.5 * (arm == "drug"), 0, 10))
            yield f"p{patient}", arm, round(pain, 1)


def tacit(*arguments: str) -> Any:
    command = (sys.executable, "-c", "from tacit.command import main; main()", *arguments, "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_a_known_test_is_asked_verified_and_reported(tmp_path: Path, start_federation: Start) -> None:
    """The noise is the system's. Nearly all of 60 blocks vote down; that fewer than 20 are left after the
    noise, of scale 2 an owner, has probability below 1e-6."""
    header = ("patient", "arm", "pain")
    with (tmp_path / "north.csv").open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(header)
        writer.writerows(visits(1, 0.0))
    with sqlite3.connect(tmp_path / "south.sqlite3") as database:
        database.execute("CREATE TABLE trial (patient TEXT, arm TEXT, pain REAL)")
        database.executemany("INSERT INTO trial VALUES (?, ?, ?)", visits(2, 1.0))
    database.close()
    policy = PolicySetup(approval="automatic", columns=("arm", "pain"), procedures=("aggregated_test",))
    sources = {
        "north": DataSetSetup("trial", str(tmp_path / "north.csv"), 2.0, 1e-4, "patient"),
        "south": DataSetSetup(
            "trial", f"sqlite:///{tmp_path / 'south.sqlite3'}", 2.0, 1e-4, "patient", "SELECT * FROM trial"
        ),
    }
    federation = start_federation([OwnerSetup(name, own, policy) for name, own in sources.items()])
    party = ("--party", str(federation.analyst.configuration))
    (tmp_path / "study.toml").write_text(STUDY, "utf-8")
    digest = tacit("study", "create", str(tmp_path / "study.toml"), *party)["digest"]
    watched = tacit("study", "watch", digest, *party)
    assert watched["outcome"] == "completed"
    result = watched["result"]
    assert (result["reject"], result["direction"], result["blocks"]) == (True, "down", 60)
    assert set(result["votes_by_owner"]) == {"north", "south"}

    transcript = tmp_path / "transcript.json"
    tacit("study", "transcript", digest, "--output", str(transcript), *party)
    assert tacit("verify", str(transcript), "--tester-key", federation.tester_key)["verified"]
    tacit("study", "report", digest, "--output", str(tmp_path / "report.html"), *party)
    report = (tmp_path / "report.html").read_text("utf-8")
    assert "pain is smaller in drug than in placebo" in report
    assert "Votes of a block" in report
