"""Aligning two owners of a local federation by the operators' commands, with what each of these takes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.setup.federation import LocalFederation

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
