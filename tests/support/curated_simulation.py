"""The simulation of simulation.py with a curator: owners decide, and delete their data."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from curated_world import (
    CURATOR,
    curated_study_of,
    enrol_at_tester,
    make_curator,
    make_data_sets,
    register_owners,
    registration_of,
)
from fault_world import check_account
from simulation import Simulation

from tacit_protocol.messages.study import Study
from tacit_services.agent.participant import AlreadyDecidedError
from tacit_services.agent.schema import OUTBOX
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError

HELD = ("east", "north", "west")
"""The owners whose data the curator holds."""

BY_HAND = "west"
"""The one of them who decides by hand."""


class CuratedSimulation(Simulation):
    """One history of a curator and a tester."""

    parties = (CURATOR,)
    component = "curator"

    @staticmethod
    def fill_party(connection: sa.Connection) -> None:
        register_owners(connection, make_data_sets(Path(), ()), HELD, [BY_HAND])

    @staticmethod
    def fill_tester(connection: sa.Connection) -> None:
        enrol_at_tester(connection)

    def study_of(self, owners: Sequence[str], **fields: Any) -> Study:
        return curated_study_of(owners, **fields)

    def make_agent(self, owner: str, **uses: Any) -> Any:
        self.data_sets = make_data_sets(self.folder, HELD)
        return make_curator(self.data_sets, **uses)

    def decide(self, name: str, approve: bool) -> None:
        curator = self.agents[CURATOR]
        with suppress(AlreadyDecidedError):
            if approve:
                curator.approve(name, BY_HAND)
            else:
                curator.decline(name, BY_HAND, None)

    def delete_data_set(self, owner: str) -> None:
        with suppress(ProblemError):  # it was deleted before
            run_transaction(
                self.engines[CURATOR],
                lambda c: self.data_sets.delete(c, owner, "patients", int(self.now)),
            )

    def register_data_set(self, owner: str) -> None:
        registration = registration_of(owner == BY_HAND)
        run_transaction(
            self.engines[CURATOR],
            lambda c: self.data_sets.register(c, owner, "patients", registration, int(self.now)),
        )

    def _check_owner(self, connection: sa.Connection, owner: str) -> None:
        rows = connection.execute(OUTBOX.select()).all()
        releases = {row.study: bytes(row.envelope) for row in rows if row.kind == "release"}
        for holder in HELD:
            debits = check_account(connection, f"{holder}/patients")
            studies = sorted(entry.study for entry in debits if entry.study is not None)
            asked = {name for name, study in self.studies.items() if holder in {o.name for o in study.owners}}
            assert studies == sorted(asked & set(releases)), "debits and releases differ"
        verify(connection)
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"
