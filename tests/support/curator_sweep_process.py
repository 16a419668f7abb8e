"""Kills curators and testers with SIGKILL, case after case, as kill_sweep_process.py does agents and testers.

The curator holds the data of two owners. One of them decides by hand: its yes is given again and again until
it has been recorded, as a person would who gets no answer.
"""

import gc
import importlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from curated_world import (
    CURATOR,
    CuratedSum,
    curated_study_of,
    enrol_at_tester,
    make_curator,
    make_data_sets,
    register_owners,
)
from fault_world import SeededNoise
from kill_sweep_process import AGENT_TABLES, IMPORTED_LATE, Sweep

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures import discovery
from tacit_services.agent.intake import Job
from tacit_services.agent.participant import AlreadyDecidedError
from tacit_services.agent.releases import Releaser
from tacit_services.curator.curator import Curator
from tacit_services.curator.tables import METADATA as CURATOR_TABLES
from tacit_services.ledger.entries import Entry
from tacit_services.shared.logging import configure_logging

OWNERS = ("north", "west")
BY_HAND = "west"


class CuratorSweep(Sweep):
    """A supervisor whose party is a curator."""

    party, component = CURATOR, "curator"

    def make_study(self) -> Study:
        return curated_study_of(OWNERS)

    def make_releases(self) -> dict[str, bytes]:
        self.data_sets = make_data_sets(self.folder, OWNERS)
        return {}

    def make_steps(self, noise: SeededNoise) -> list[Callable[[], Any]]:
        if self.planted == "one-owner-pays":
            let_one_owner_pay()
        curator = make_curator(
            self.data_sets, engine=self.agent_engine, client=self.client, noise=noise, clock=self.shared.clock
        )
        decide = lambda: give_yes(curator, self.study)  # noqa: E731 (a step, like the others)
        return [lambda: curator.poll(0), decide, curator.work, curator.fetch_verdicts]

    def tables(self) -> list[sa.MetaData]:
        return [CURATOR_TABLES, AGENT_TABLES]

    def reset_party(self, connection: sa.Connection) -> None:
        register_owners(connection, self.data_sets, OWNERS, [BY_HAND])

    def enrol(self, connection: sa.Connection) -> None:
        enrol_at_tester(connection)

    def debits(self) -> list[tuple[str, str]]:
        return [(f"{owner}/patients", self.study) for owner in OWNERS]


def give_yes(curator: Curator, study: str) -> None:
    with suppress(AlreadyDecidedError):
        curator.approve(study, BY_HAND)


def let_one_owner_pay() -> None:
    """Plant: the account of one owner alone is debited."""
    patched: Any = Releaser
    genuine = Releaser._debit

    def debit_first(self: Releaser, connection: sa.Connection, job: Job, now: int) -> list[Entry]:
        return genuine(self, connection, replace(job, parts=job.parts[:1]), now)

    patched._debit = debit_first


def main(folder: str, curator_url: str, tester_url: str) -> None:
    configure_logging("ERROR")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    procedure = CuratedSum()
    discovery.PROCEDURES[procedure.name] = procedure
    sweep = CuratorSweep(Path(folder), curator_url, tester_url)
    gc.freeze()
    for line in sys.stdin:
        case = json.loads(line)
        sys.stdout.write(json.dumps(sweep.run(case["plan"], case["planted"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
