"""A study of a thousand owners, run in one piece: what it takes of everyone, on SQLite and on PostgreSQL.

    python -m benchmarks.cost_owners                      # writes docs/benchmarks/thousand-owners.md
    python -m benchmarks.cost_owners --cells "10 owners"  # a glance

A real tester process, real HTTP, a key and tokens for every owner, releases by the agents' code
(benchmarks/cost_federation.py). PostgreSQL's tester gets the releases that SQLite's got, under the same key.
"""

import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cost_cell import Costs, Fresh
from benchmarks.cost_federation import (
    PROCESSES,
    VERDICT_S_MAX,
    Made,
    Owned,
    Owners,
    Watched,
    database_bytes,
    enrol,
    open_files,
    put_study,
    verify_by_command,
    verify_in_process,
    write_owners,
)
from benchmarks.cost_owners_page import COLUMNS, NUMBERS, ROWS, text
from benchmarks.cost_studies import QUESTIONS, Point
from benchmarks.load_servers import postgres, serving, write_tester
from benchmarks.resumable import Answers, Cell, main
from tacit import Client
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.shared.arithmetic import prepare_to_compute

QUESTION = QUESTIONS["kernel_two_sample"]


@dataclass(frozen=True)
class Run:
    """What both databases share."""

    folder: Path
    tester: PrivateKey
    analyst: PrivateKey
    owners: list[tuple[str, PrivateKey, Path]]
    fresh: Fresh

    def parties(self) -> list[tuple[str, PrivateKey, str]]:
        """Return everyone who is enrolled."""
        return [
            ("analyst", self.analyst, "analyst"),
            *((name, key, "owner") for name, key, _ in self.owners),
        ]

    def draft(self) -> dict[str, object]:
        """Return the study as an analyst writes it."""
        return {
            "title": "a study of many owners",
            "columns": [
                {"kind": "numeric", "name": f"c{i}", "lower": -5.0, "upper": 5.0} for i in range(COLUMNS)
            ],
            "owners": [{"name": name, "data_set": "rows", "units": ROWS} for name, _, _ in self.owners],
            "epsilon": 1.0,
            "delta": 1e-6,
        }


@dataclass(frozen=True)
class Played:
    """A study as it was created and answered."""

    digest: str
    envelope: bytes
    made: list[Made]


def play(count: int, fresh: Fresh) -> Costs:
    """Run one study of so many owners on both databases."""
    prepare_to_compute()
    with tempfile.TemporaryDirectory(prefix="tacit-owners-") as place:
        folder = Path(place)
        owners = write_owners(folder / "owners", QUESTION, Point(ROWS, COLUMNS, 0, count))
        run = Run(folder, PrivateKey.generate(), PrivateKey.generate(), owners, fresh)
        costs: Costs = {}
        played = _at(run, f"sqlite:///{folder / 'tester.sqlite3'}", "SQLite", None, costs)
        with postgres(folder) as url:
            _at(run, url, "PostgreSQL", played, costs)
        return costs


def _at(run: Run, url: str, name: str, before: Played | None, costs: Costs) -> Played:
    """Play the study at a tester on that database; as it was played ``before``, where it was."""
    file, port = write_tester(run.folder, run.tester, url)
    audience = f"http://127.0.0.1:{port}"
    owned = [Owned(name, key.to_pem(), rows, audience) for name, key, rows in run.owners]
    with serving(port, "tester", "--config", str(file)) as served, ProcessPoolExecutor(PROCESSES) as pool:
        watched, owners = Watched(served), Owners(owned, pool)
        found: Costs = {"empty database, bytes": database_bytes(url)}
        enrol(audience, run.tester, run.parties())
        found |= watched.look("enrolment")
        with Client(audience, run.analyst) as analyst:
            if before is None:
                digest = analyst.create_study(run.draft(), force=True)
            else:
                put_study(audience, run.analyst, digest := before.digest, before.envelope)
            found |= watched.look("study")
            envelope = _only(owners.fetch())
            found |= watched.look("inboxes and fetches")
            made = owners.make(envelope, run.analyst.public_hex) if before is None else before.made
            watched.look("releases")
            owners.upload(digest, made)
            found |= watched.look("uploads")
            analyst.wait_for_verdict(digest, timeout_s=VERDICT_S_MAX)
            found |= watched.look("verdict")
            transcript = analyst.transcript(digest)
            found |= watched.look("transcript")
        found |= {"database, bytes": database_bytes(url), "transcript, bytes": len(transcript)}
        found |= {"open files": open_files(served.pid)}
    if before is None:
        costs |= _of_owners(made) | {"study, bytes": len(envelope)} | _verified(run, transcript)
    costs |= {f"{name}, {what}": value for what, value in found.items()}
    return Played(digest, envelope, made)


def _only(answers: set[bytes]) -> bytes:
    (answer,) = answers
    return answer


def _of_owners(made: list[Made]) -> Costs:
    """Return the mean of every stage of the owners' work, and the largest sum."""
    stages = {
        f"owner {stage}, CPU s": statistics.fmean(one.costs[stage] for one in made) for stage in made[0].costs
    }
    sums = [sum(one.costs.values()) for one in made]
    sizes = [len(one.envelope) for one in made]
    return stages | {
        "owner, CPU s": statistics.fmean(sums),
        "owner at most, CPU s": max(sums),
        "release, bytes": statistics.fmean(sizes),
        "releases, bytes": sum(sizes),
    }


def _verified(run: Run, transcript: bytes) -> Costs:
    path = run.folder / "transcript.json"
    path.write_bytes(transcript)
    return verify_by_command(path) | run.fresh.call(verify_in_process, path)


def cells(fresh: Fresh) -> list[Cell]:
    """Return a run for every number of owners."""

    def run_of(count: int) -> Cell:
        def run(_: int) -> Answers:
            return play(count, fresh)

        return Cell(f"{count} owners", 1, run)

    return [run_of(count) for count in NUMBERS]


if __name__ == "__main__":
    main(__doc__, "thousand-owners", cells(Fresh()), text)
