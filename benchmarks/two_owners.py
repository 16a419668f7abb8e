"""A million rows a side through two agents and a tester, each a process of its own, on SQLite.

    python -m benchmarks.two_owners --rows 1000000 --repeats 3
    python -m benchmarks.two_owners --rows 1000000 --repeats 3 --aligned

Owners hold one column each of the same units, in Parquet files, and are asked at once, so that on two cores
they and the tester share these. With ``--aligned`` rows stand in an order of its own at either owner, and
units are matched by ids. An agent's time runs from when it has taken the study in (it approves by itself) to
when its release is signed and stored, by its own log; the tester's from the last release's arrival to when
the analyst holds the verdict. Processor time stands beside. Memory is the most that was ever resident.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import options, peak_mb, table, write_page
from benchmarks.problems import draw
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

COLUMNS = {"north": "dose", "south": "response"}
EPSILON, DELTA = 1.0, 1e-5
VERDICT_TIMEOUT_S = 600.0

UNIT_COLUMN = "person"
FIRST_ID = 870_000_000
"""Ids have nine digits, as national numbers have."""

COMMAND = (sys.executable, "-c", "from tacit.command import main; main()")


@dataclass(frozen=True)
class Step:
    """What one command took: seconds, processor seconds, and most memory in MB."""

    name: str
    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True)
class Alignment:
    """The digest that both owners found, and what every command took."""

    digest: str
    steps: tuple[Step, ...]


def order_of(owner: int, rows: int) -> npt.NDArray[np.int64]:
    """Return the order of an owner's rows, (rows,): another one at each owner."""
    return np.random.default_rng([rows, owner]).permutation(rows)


def align(federation: LocalFederation, folder: Path, data_set: str) -> Alignment:
    """Draw a key, make both owners' files, and have each compare with the other's."""
    key = folder / "shared.key"
    _run("key", ["key", "--out", str(key)])
    owners = [site.name for site in federation.agents]
    made = {owner: folder / f"from-{owner}.json" for owner in owners}
    steps, digests = [], set()
    for step in ("make", "compare"):
        for owner, other in (owners, owners[::-1]):
            config = federation.folder / owner / "agent.toml"
            of = ["--data-set", data_set, "--key", str(key), "--config", str(config), "--json"]
            files = ["--out", str(made[owner])] if step == "make" else ["--with", str(made[other])]
            taken, report = _run(f"{step}, {owner}", [step, *of, *files])
            steps.append(taken)
            digests.add(json.loads(report)["digest"])
    if len(digests) != 1:
        raise RuntimeError("the owners are not aligned")
    return Alignment(digests.pop(), tuple(steps))


def _run(name: str, command: Sequence[str]) -> tuple[Step, str]:
    begun = time.monotonic()
    process = subprocess.Popen([*COMMAND, "data", "align", *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    report = process.stdout.read()
    # Counts what the command's own child used, which reads the data.
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"tacit data align {name} failed")
    wall_s = time.monotonic() - begun
    return Step(name, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), report


@dataclass(frozen=True)
class Measured:
    """One study: seconds of every agent and of the tester, and peak memory by process."""

    agent_s: Mapping[str, float]
    agent_cpu_s: Mapping[str, float]
    tester_s: float
    tester_cpu_s: float
    peak_mb: Mapping[str, float]
    buckets: int
    rejected: bool


def write_files(folder: Path, rows: int, aligned: bool) -> dict[str, Path]:
    """Write each owner's column, in row groups as pyarrow makes them; with ids in an order of its own."""
    values = dict(zip(COLUMNS, draw("linear", rows, 0), strict=True))
    paths = {}
    for index, (owner, column) in enumerate(COLUMNS.items()):
        paths[owner] = folder / f"{owner}.parquet"
        held: dict[str, npt.NDArray[Any]] = {column: values[owner]}
        if aligned:
            order = order_of(index, rows)
            held = {UNIT_COLUMN: FIRST_ID + order, column: values[owner][order]}
        pq.write_table(pa.table(held), paths[owner])
    return paths


def draft(rows: int, run: int, alignment: Alignment | None) -> StudyDraft:
    """Write the question down."""
    matched = {} if alignment is None else {"unit_column": UNIT_COLUMN, "alignment": alignment.digest}
    columns = [{"kind": "numeric", "name": name, "lower": 0, "upper": 1} for name in COLUMNS.values()]
    owners = [
        {"name": owner, "data_set": "people", "units": rows, "columns": [column]}
        for owner, column in COLUMNS.items()
    ]
    return StudyDraft.from_dict(
        {
            "title": f"Two owners, run {run}",
            "procedure": "distance_correlation",
            "columns": columns,
            "owners": owners,
            "epsilon": EPSILON,
            "delta": DELTA,
        }
        | matched
    )


def measure(rows: int, repeats: int, aligned: bool) -> tuple[list[Measured], Alignment | None]:
    """Ask the question ``repeats`` times of one federation, after one small warm-up by its start alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_files(folder, rows, aligned)
        owners = [
            OwnerSetup(
                owner,
                DataSetSetup(
                    "people",
                    str(path),
                    (repeats + 1) * EPSILON,
                    2 * repeats * DELTA,
                    UNIT_COLUMN if aligned else None,
                ),
                PolicySetup(
                    approval="automatic",
                    columns=(COLUMNS[owner],),
                    epsilon_per_study_max=EPSILON,
                    procedures=("distance_correlation",),
                ),
            )
            for owner, path in paths.items()
        ]
        with LocalFederation(folder / "federation", owners) as federation:
            federation.wait_until_ready()
            federation.enrol_all()
            found = align(federation, folder, "people") if aligned else None
            return [_ask(federation, draft(rows, run, found)) for run in range(repeats)], found


def _ask(federation: LocalFederation, asked: StudyDraft) -> Measured:
    processes = {service.name: psutil.Process(service.process.pid) for service in federation._services}
    before = {name: _cpu_s(process) for name, process in processes.items()}
    with federation.analyst_client() as client:
        digest = client.create_study(asked)
        verdict = client.wait_for_verdict(digest, timeout_s=VERDICT_TIMEOUT_S)
        ended_at = time.time()
    after = {name: _cpu_s(process) for name, process in processes.items()}
    if verdict.result is None:
        raise RuntimeError("the study ended without a verdict")
    agents = {site.name: _events(site.folder / "agent.log") for site in federation.agents}
    puts = [
        event["at"]
        for event in _events(federation.tester.folder / "tester.log")
        if event.get("method") == "PUT" and "releases" in str(event.get("route"))
    ]
    return Measured(
        agent_s={name: _released_after_s(events, digest) for name, events in agents.items()},
        agent_cpu_s={name: after[name] - before[name] for name in agents},
        tester_s=ended_at - max(puts),
        tester_cpu_s=after["tester"] - before["tester"],
        peak_mb={name: peak_mb(process.pid) for name, process in processes.items()},
        buckets=int(verdict.result.verdict["buckets"]),
        rejected=bool(verdict.result.reject),
    )


def _events(log: Path) -> list[dict[str, Any]]:
    """Read a service's log; every event has its Unix time as ``at``."""
    events = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        event["at"] = datetime.fromisoformat(event["timestamp"]).timestamp()
        events.append(event)
    return events


def _released_after_s(events: list[dict[str, Any]], digest: str) -> float:
    at = {event["event"]: event["at"] for event in events if event.get("study") == digest}
    return float(at["released"] - at["study_taken_in"])


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def parts(runs: list[Measured], load: float, alignment: Alignment | None) -> dict[str, str]:
    """Write the page's figures: the middle, best and worst of the runs, and what the alignment took."""
    measures: dict[str, list[float]] = {}
    for name in COLUMNS:
        measures[f"agent {name}, s"] = [run.agent_s[name] for run in runs]
    for name in COLUMNS:
        measures[f"agent {name}, processor s"] = [run.agent_cpu_s[name] for run in runs]
    measures["tester, s"] = [run.tester_s for run in runs]
    measures["tester, processor s"] = [run.tester_cpu_s for run in runs]
    for name in runs[0].peak_mb:
        measures[f"{name}, peak MB"] = [run.peak_mb[name] for run in runs]
    heads = {"median": np.median, "least": min, "most": max}
    lines = {
        name: {head: _figure(of(values)) for head, of in heads.items()} for name, values in measures.items()
    }
    found = {
        "cores": str(psutil.cpu_count()),
        "load": f"{load:.1f}",
        "table": table(lines, ""),
        "studies": str(len(runs)),
        "buckets": str(runs[0].buckets),
        "rejected": str(sum(run.rejected for run in runs)),
        "slowest agent": f"{max(value for run in runs for value in run.agent_s.values()):.1f}",
        "busiest agent": f"{max(value for run in runs for value in run.agent_cpu_s.values()):.1f}",
        "slowest tester": f"{max(run.tester_s for run in runs):.1f}",
    }
    if alignment is not None:
        steps = {
            step.name: {
                "s": _figure(step.wall_s),
                "processor s": _figure(step.cpu_s),
                "peak MB": _figure(step.peak_mb),
            }
            for step in alignment.steps
        }
        found["alignment"] = table(steps, "")
    return found


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def main() -> None:
    """Measure, and write the page."""
    chosen = options(__doc__, rows=1_000_000, repeats=3, aligned=False)
    load = psutil.getloadavg()[0]
    runs, alignment = measure(chosen.rows, chosen.repeats, chosen.aligned)
    found = {"rows": str(chosen.rows)} | parts(runs, load, alignment)
    print(found["table"])
    write_page("two-owners-aligned" if chosen.aligned else "two-owners", found, chosen.folder)


if __name__ == "__main__":
    main()
