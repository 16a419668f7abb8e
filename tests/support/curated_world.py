"""A real curator with several owners' data: keys from names, repeatable noise, small procedures."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import sqlalchemy as sa
from agent_fakes import FakeSum
from fault_world import CAP, NOW, PooledVerdict, check_account, key_of, study_of
from made_studies import SeededNoise
from pydantic import BaseModel
from simulation import Simulation

from tacit_protocol.domain import NumericColumn, PooledTable, Table
from tacit_protocol.messages.study import Party, Release, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, Progress, ReleaseError
from tacit_protocol.strict import StrictModel
from tacit_services.agent.schema import OUTBOX
from tacit_services.agent.study.participant import AlreadyDecidedError, ParticipantIdentity
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.curator.curator import Curator, CuratorIntake
from tacit_services.curator.data_sets import OWNERS, ConfiguredDataSet, DataSets, HeldPolicy, Registration
from tacit_services.curator.store import RowStore, StorageKeys
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import run_transaction
from tacit_services.shared.people import Person
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.tables import PARTIES

CURATOR = "clearinghouse"
"""The curator's name."""


class CuratedSum(FakeSum):
    """The sum of a column over all owners' rows, once, with Laplace noise."""

    name: ClassVar[str] = "curated_sum"
    Verdict: ClassVar[type[BaseModel]] = PooledVerdict

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        return (f"there are {sum(units.values())} units",)

    def summarise(self, study: Study, table: Table) -> Any:
        assert isinstance(table, PooledTable)
        return table.units_by_owner, super().summarise(study, table)

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        units_by_owner, exact = summary
        release = super().privatise(study, exact, noise)
        return release.model_copy(update={"units_by_owner": units_by_owner})

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        (release,) = releases.values()
        return PooledVerdict(total=float(release.vectors["sum"].values[0]))


class DecisionVerdict(StrictModel):
    """A decision, and what is public beside it."""

    reject: bool
    units: dict[str, int]


CANARY = 73_519_204_681
"""What the exact sum is in tests that look for it where it may not be."""


class CuratedDecision(CuratedSum):
    """Whether the noisy sum passes a bound: a bit, and nothing finer."""

    name: ClassVar[str] = "curated_decision"
    Verdict: ClassVar[type[BaseModel]] = DecisionVerdict

    def release_size(self, study: Study) -> int:
        return 1

    def summarise(self, study: Study, table: Table) -> Any:
        units_by_owner, (units, _) = super().summarise(study, table)
        return units_by_owner, (units, CANARY)

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        units_by_owner, (units, total) = summary
        (noisy,) = noise.laplace(np.array([total], dtype=np.int64), 2.0**12)
        return Release(
            units=units,
            units_by_owner=units_by_owner,
            guarantee=self.cost(study),
            decision=bool(noisy > 0),
        )

    def check_release(self, study: Study, release: Release) -> None:
        if release.vectors or release.decision is None:
            raise ReleaseError("the release holds more than a decision")

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        (release,) = releases.values()
        assert release.decision is not None
        return DecisionVerdict(reject=release.decision, units=release.units_by_owner)


PROCEDURES: dict[str, Procedure] = {
    CuratedSum.name: CuratedSum(),
    CuratedDecision.name: CuratedDecision(),
}


def curated_study_of(owners: Iterable[str], **changes: Any) -> Study:
    """Return a study of these owners' data at the curator."""
    fields = {
        "procedure": CuratedSum.name,
        "curator": Party(name=CURATOR, key=key_of(CURATOR).public_hex),
    }
    return study_of(owners, **(fields | changes))


def enrol_at_tester(connection: sa.Connection) -> None:
    """Write the rows of curator and analyst, as enrolments would; the owners have none."""
    rows = [
        {"name": name, "key": key_of(name).public_hex, "role": role, "enrolled_at": 0}
        for name, role in ((CURATOR, "curator"), ("ada", "analyst"))
    ]
    connection.execute(PARTIES.insert(), rows)


def policy_of(by_hand: bool, **changes: Any) -> HeldPolicy:
    """Return an owner's policy that allows these tests' studies."""
    allowed = {
        "approval": "by-hand" if by_hand else "automatic",
        "epsilon_per_study_max": 1.0,
        "delta_per_study_max": 1e-5,
        "respond_after_s_min": 0,
        "analysts": ("*",),
    }
    return HeldPolicy(**(allowed | changes))


def registration_of(by_hand: bool, **changes: Any) -> Registration:
    """Return what an owner registers: one column, the caps of every test."""
    return Registration(
        columns=(NumericColumn(name="x", lower=0.0, upper=10.0),),
        epsilon=CAP.epsilon,
        delta=CAP.delta,
        policy=policy_of(by_hand, **changes),
    )


def make_data_sets(folder: Path, owners: Iterable[str]) -> DataSets:
    """Write every owner's rows to a file, and return the data sets that read them."""
    configured = []
    for name in owners:
        source = folder / f"{name}.csv"
        if not source.exists():
            source.write_text("x\n" + "".join(f"{(i + len(name)) % 10}\n" for i in range(60)))
        configured.append(ConfiguredDataSet(owner=name, name="patients", source=str(source)))
    return DataSets(RowStore(folder / "rows", StorageKeys.parse("00" * 32)), configured)


def register_owners(
    connection: sa.Connection, data_sets: DataSets, owners: Iterable[str], by_hand: Collection[str] = ()
) -> None:
    """Enrol owners at the curator and register their data sets, as requests would."""
    for name in owners:
        row = {"name": name, "key": key_of(name).public_hex, "role": "owner", "enrolled_at": 0}
        connection.execute(OWNERS.insert().values(**row))
        data_sets.register(connection, name, "patients", registration_of(name in by_hand), NOW)


def make_curator(
    data_sets: DataSets,
    *,
    engine: sa.Engine,
    client: TesterClient,
    noise: SeededNoise,
    clock: Callable[[], float],
    procedures: Mapping[str, Procedure] = PROCEDURES,
) -> Curator:
    """Put a curator together on an engine that is up to date."""
    identity = ParticipantIdentity(CURATOR, key_of(CURATOR), key_of("tester").public_hex)
    intake = CuratorIntake(identity, engine, data_sets, procedures, respond_after_s_min=0)
    return Curator(identity, intake, Dependencies(engine, client, noise, clock))


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
                curator.approve(name, BY_HAND, Person(""))
            else:
                curator.decline(name, BY_HAND, None, Person(""))

    def delete_data_set(self, owner: str) -> None:
        with suppress(RegisteredProblemError):  # it was deleted before
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
            studies = [entry.study for entry in debits if entry.study is not None]
            asked = {name for name, study in self.studies.items() if holder in {o.name for o in study.owners}}
            assert len(studies) == len(set(studies)), "a study was debited twice"
            assert asked & set(releases) <= set(studies) <= asked, "a release was not paid for"
        verify(connection)
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"
