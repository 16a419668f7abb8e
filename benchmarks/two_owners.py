"""A million rows a side through two agents and a tester, each a process of its own, on SQLite.

    python -m benchmarks.two_owners --rows 1000000 --repeats 3
    python -m benchmarks.two_owners --rows 1000000 --repeats 3 --aligned

Owners hold one column each of the same units, in Parquet files, and are asked at once, so that on two cores
they and the tester share these. With ``--aligned`` rows stand in an order of its own at either owner, and
units are matched by ids. An agent's time runs from when it has taken the study in (it approves by itself) to
when its release is signed and stored, by its own log; the tester's from the last release's arrival to when
the analyst holds the verdict. Processor time stands beside. Memory is the most that was ever resident.
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
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.dependence import draw
from benchmarks.resumable import table
from benchmarks.two_owners_alignment import FIRST_ID, UNIT_COLUMN, Alignment, align, order_of
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
PAGE, ALIGNED_PAGE = FOLDER / "two-owners.md", FOLDER / "two-owners-aligned.md"
COLUMNS = {"north": "dose", "south": "response"}
EPSILON, DELTA = 1.0, 1e-5
AGENT_S_MAX, TESTER_S_MAX = 10.0, 5.0
"""What the project asks for, of the sketch at a million rows."""

VERDICT_TIMEOUT_S = 600.0

PAGE_TEXT = """# Two owners and a tester, {rows} rows a side{kind}

    python -m benchmarks.two_owners --rows {rows} --repeats {repeats}{flag}

One column each, linear dependence, Parquet files, ε = {epsilon:g} and δ = {delta:g} at each owner, the
sketch at its defaults. Two agents, a tester and their SQLite files on one machine of {cores} cores, asked at
once. An agent's seconds run from the study's intake to the signed release in its database, by its own log;
the tester's from the last release's arrival to the verdict in the analyst's hands. Memory is the most that
was ever resident, libraries included. Besides, the machine was {busy}.

{table}
{words}
"""

ALIGNMENT_TEXT = """
## Alignment

Either owner's rows stand in an order of their own, with an id of nine digits in each. Before any study the
owners run `tacit data align make` and `compare` once, one after the other. The agents' seconds above hold a
reading of all ids for each study, by which the agent makes sure that they are still those of the digest.

{steps}"""


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


def page(runs: list[Measured], rows: int, load: float, alignment: Alignment | None) -> str:
    """Write the page: the middle, best and worst of the runs, and what the alignment took."""
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
    studies = "1 study" if len(runs) == 1 else f"{len(runs)} studies"
    busiest = max(value for run in runs for value in run.agent_cpu_s.values())
    words = (
        f"{studies}, {runs[0].buckets} buckets, {sum(run.rejected for run in runs)} rejected.\n"
        f"Asked for: {AGENT_S_MAX:g} s a side at most (slowest here {slowest:.1f} s, of which a "
        f"processor worked {busiest:.1f} s at most) and {TESTER_S_MAX:g} s at the tester (slowest here "
        f"{tester:.1f} s)."
    )
    busy = "idle" if load < 0.5 else f"busy with other work (load {load:.1f} when it began)"
    return PAGE_TEXT.format(
        rows=rows,
        kind="" if alignment is None else ", matched by ids",
        flag="" if alignment is None else " --aligned",
        repeats=len(runs),
        epsilon=EPSILON,
        delta=DELTA,
        cores=psutil.cpu_count(),
        busy=busy,
        table=table(lines, "").rstrip(),
        words=f"\n{words}",
    ) + ("" if alignment is None else _steps(alignment))


def _steps(alignment: Alignment) -> str:
    rows = {
        step.name: {
            "s": _figure(step.wall_s),
            "processor s": _figure(step.cpu_s),
            "peak MB": _figure(step.peak_mb),
        }
        for step in alignment.steps
    }
    return ALIGNMENT_TEXT.format(steps=table(rows, ""))


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--aligned", action="store_true", help="rows in two orders, matched by ids")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    load = psutil.getloadavg()[0]
    runs, alignment = measure(arguments.rows, arguments.repeats, arguments.aligned)
    text = page(runs, arguments.rows, load, alignment)
    print(text)
    (arguments.out or (ALIGNED_PAGE if arguments.aligned else PAGE)).write_text(text)


if __name__ == "__main__":
    main()
