"""A million rows a side through two agents and a tester, each a process of its own, on SQLite.

    python -m benchmarks.two_owners --rows 1000000 --repeats 3

Owners hold one column each of the same units, in Parquet files, and are asked at once, so that on two cores
they and the tester share these. An agent's time runs from when it has taken the study in (it approves by
itself) to when its release is signed and stored, by its own log; the tester's from the last release's
arrival to when the analyst holds the verdict. Processor time stands beside. Memory is the most that was ever
resident.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.dependence import draw
from benchmarks.resumable import table
from tacit.configuration import DataSetSetup, PolicySetup
from tacit.draft import StudyDraft
from tacit.federation import LocalFederation, OwnerSetup

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "two-owners.md"
COLUMNS = {"north": "dose", "south": "response"}
EPSILON, DELTA = 1.0, 1e-5
AGENT_S_MAX, TESTER_S_MAX = 10.0, 5.0
"""What the project asks for, of the sketch at a million rows."""

VERDICT_TIMEOUT_S = 600.0

PAGE_TEXT = """# Two owners and a tester, {rows} rows a side

    python -m benchmarks.two_owners --rows {rows} --repeats {repeats}

One column each, linear dependence, Parquet files, ε = {epsilon:g} and δ = {delta:g} at each owner, the
sketch at its defaults. Two agents, a tester and their SQLite files on one machine of {cores} cores, asked at
once. An agent's seconds run from the study's intake to the signed release in its database, by its own log;
the tester's from the last release's arrival to the verdict in the analyst's hands. Memory is the most that
was ever resident, libraries included. Besides, the machine was {busy}.

{table}
{words}
"""


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


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """Write each owner's column, in row groups as pyarrow makes them."""
    values = dict(zip(COLUMNS, draw("linear", rows, 0), strict=True))
    paths = {}
    for owner, column in COLUMNS.items():
        paths[owner] = folder / f"{owner}.parquet"
        pq.write_table(pa.table({column: values[owner]}), paths[owner])
    return paths


def draft(rows: int, run: int) -> StudyDraft:
    """Write the question down."""
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
    )


def measure(rows: int, repeats: int) -> list[Measured]:
    """Ask the question ``repeats`` times of one federation, after one small warm-up by its start alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_files(folder, rows)
        owners = [
            OwnerSetup(
                owner,
                DataSetSetup("people", str(path), (repeats + 1) * EPSILON, 2 * repeats * DELTA),
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
            return [_ask(federation, rows, run) for run in range(repeats)]


def _ask(federation: LocalFederation, rows: int, run: int) -> Measured:
    processes = {service.name: psutil.Process(service.process.pid) for service in federation._services}
    before = {name: _cpu_s(process) for name, process in processes.items()}
    with federation.analyst_client() as client:
        digest = client.create_study(draft(rows, run))
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
        peak_mb={name: _peak_mb(process) for name, process in processes.items()},
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


def _peak_mb(process: psutil.Process) -> float:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell a process's peak memory")


def page(runs: list[Measured], rows: int, load: float) -> str:
    """Write the page: the middle, best and worst of the runs."""
    agents = list(COLUMNS)
    measures: dict[str, list[float]] = {
        f"agent {name}, s": [run.agent_s[name] for run in runs] for name in agents
    }
    measures |= {f"agent {name}, processor s": [run.agent_cpu_s[name] for run in runs] for name in agents}
    measures["tester, s"] = [run.tester_s for run in runs]
    measures["tester, processor s"] = [run.tester_cpu_s for run in runs]
    measures |= {f"{name}, peak MB": [run.peak_mb[name] for run in runs] for name in runs[0].peak_mb}
    lines = {
        name: {
            "median": _figure(np.median(values)),
            "least": _figure(min(values)),
            "most": _figure(max(values)),
        }
        for name, values in measures.items()
    }
    slowest = max(value for run in runs for value in run.agent_s.values())
    tester = max(run.tester_s for run in runs)
    words = (
        f"{len(runs)} studies, {runs[0].buckets} buckets, {sum(run.rejected for run in runs)} rejected.\n"
        f"Asked for: {AGENT_S_MAX:g} s a side at most (slowest here {slowest:.1f} s) and {TESTER_S_MAX:g} s "
        f"at the tester (slowest here {tester:.1f} s)."
    )
    busy = "idle" if load < 0.5 else f"busy with other work (load {load:.1f} when it began)"
    return PAGE_TEXT.format(
        rows=rows,
        repeats=len(runs),
        epsilon=EPSILON,
        delta=DELTA,
        cores=psutil.cpu_count(),
        busy=busy,
        table=table(lines, "").rstrip(),
        words=f"\n{words}",
    )


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    load = psutil.getloadavg()[0]
    text = page(measure(arguments.rows, arguments.repeats), arguments.rows, load)
    print(text)
    arguments.out.write_text(text)


if __name__ == "__main__":
    main()
