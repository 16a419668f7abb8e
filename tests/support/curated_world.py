"""A real curator with several owners' data: keys from names, repeatable noise, small procedures."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import served
import sqlalchemy as sa
from agent_fakes import FakeSum
from made_studies import SeededNoise
from pydantic import BaseModel
from simulation import Network, Simulation, forget_apps
from world import CAP, NOW, POOLED, PooledVerdict, check_account, enrol, key_of, make_tester, sealed, study_of
from world import URL as TESTER_URL

from tacit_protocol.domain import NumericColumn, PooledTable, Table
from tacit_protocol.messages.study import Party, Release, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.base import Procedure, Progress
from tacit_protocol.signing import issue_token
from tacit_services.agent.schema import OUTBOX
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import Loops, work
from tacit_services.agent.study.participant import AlreadyDecidedError, ParticipantIdentity
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.curator import __main__ as service
from tacit_services.curator.curator import Curator, CuratorIntake
from tacit_services.curator.data_sets import OWNERS, ConfiguredDataSet, DataSets, HeldPolicy, Registration
from tacit_services.curator.store import RowStore, StorageKeys
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.people import Person
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.studies import transcript_of

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


PROCEDURES: dict[str, Procedure] = {CuratedSum.name: CuratedSum()}


def curated_study_of(owners: Iterable[str], **changes: Any) -> Study:
    """Return a study of these owners' data at the curator."""
    fields = {
        "procedure": CuratedSum.name,
        "curator": Party(name=CURATOR, key=key_of(CURATOR).public_hex),
    }
    return study_of(owners, **(fields | changes))


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
    configured = [
        ConfiguredDataSet(owner=name, name="patients", source=str(POOLED.write(folder, name)))
        for name in owners
    ]
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

    @classmethod
    def fill_tester(cls, connection: sa.Connection) -> None:
        enrol(connection, cls.parties, "curator")

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


# A curator as its settings make it, and a tester, both in memory.

URL = "https://curator.example"
OPERATOR = CURATOR
COLUMNS = ({"kind": "numeric", "name": "x", "lower": 0.0, "upper": 10.0},)
CSV = b"x\n" + b"".join(b"%d\n" % (i % 10) for i in range(60))


def registration(approval: str, columns: tuple[dict[str, Any], ...] = COLUMNS) -> dict[str, Any]:
    """Return what an owner registers."""
    policy = {
        "approval": approval,
        "epsilon_per_study_max": 1.0,
        "delta_per_study_max": 1e-5,
        "respond_after_s_min": 0,
        "analysts": ["*"],
    }
    return {"columns": list(columns), "epsilon": 2.0, "delta": 1e-5, "policy": policy}


class CuratorFederation:
    """A curator's app, a tester's, and requests to both."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        procedures: Mapping[str, Procedure] = PROCEDURES,
        noise: NoiseSource | None = None,
        url: str = URL,
    ) -> None:
        self.url = url
        self.now: float = NOW
        (folder / "curator.pem").write_bytes(key_of(CURATOR).to_pem())
        (folder / "storage.key").write_text("3b" * 32)
        self.settings = service.CuratorSettings(
            name=CURATOR,
            url=url,
            key_file=folder / "curator.pem",
            database_url=f"sqlite:///{folder / 'curator.sqlite3'}",
            storage_folder=folder / "rows",
            storage_keys_file=folder / "storage.key",
            tester_url=TESTER_URL,
            tester_key=key_of("tester").public_hex,
            respond_after_s_min=0,
        )
        self.network = network
        self.tester_engine = create_engine(f"sqlite:///{folder / 'tester.sqlite3'}")
        upgrade(self.tester_engine, "tester")
        run_transaction(self.tester_engine, lambda c: enrol(c, (CURATOR,), "curator"))
        network.app = make_tester(folder, TESTER_URL, self.tester_engine, lambda: self.now)
        self.base = service.open_foundation(self.settings, lambda: self.now)
        stop = threading.Event()
        self.curator = service.make_curator(self.base, procedures, stop, noise or SeededNoise(1))
        self.app = service.make_app(self.base, self.curator, Loops(self.curator, stop, 0), Stopping())

    def close(self) -> None:
        self.curator.client.close()
        self.base.store.release()
        self.base.engine.dispose()
        self.tester_engine.dispose()
        self.network.close()
        forget_apps()

    def call(self, method: str, path: str, party: str, **options: Any) -> httpx.Response:
        """Send a request to the curator."""
        headers = {"authorization": f"Bearer {issue_token(key_of(party), self.url, int(self.now))}"}
        headers |= options.pop("headers", {})
        return served.call(self.app, self.url, method, path, raises=False, headers=headers, **options)

    def call_tester(self, method: str, path: str, party: str, content: bytes = b"") -> httpx.Response:
        """Send a request to the tester."""
        headers = {
            "authorization": f"Bearer {issue_token(key_of(party), TESTER_URL, int(self.now))}",
            "content-type": "application/json",
        }
        response = self.network.deliver(
            httpx.Request(method, TESTER_URL + path, headers=headers, content=content)
        )
        response.read()
        return response

    def add_owner(
        self, name: str, approval: str, registered: dict[str, Any] | None = None, rows: bytes = CSV
    ) -> None:
        invited = self.call("POST", "/v1/invitations", OPERATOR, json={"name": name}).json()
        body = {"invitation": invited["invitation"], "name": name, "key": key_of(name).public_hex}
        assert self.call("POST", "/v1/enrolments", name, json=body).status_code == 201
        path = f"/v1/data-sets/{name}/patients"
        response = self.call("PUT", path, name, json=registered or registration(approval))
        assert response.status_code == 201, response.text
        response = self.call("PUT", path + "/rows", name, content=rows, headers={"content-type": "text/csv"})
        assert response.status_code == 201, response.text

    def ask(self, *owners: str) -> str:
        """Put a study of these owners, and let the curator take it in."""
        return self.put_study(curated_study_of(owners))

    def put_study(self, study: Study) -> str:
        name = self.put_study_unheard(study)
        self.turn()
        return name

    def put_study_unheard(self, study: Study) -> str:
        """Put a study that the curator has not yet asked for."""
        name, envelope = sealed(study)
        response = self.call_tester("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert response.status_code == 201, response.text
        return name

    def turn(self) -> None:
        Fetcher(self.curator).poll(0)
        work(self.curator)

    def end(self, study: str) -> bytes:
        """Let the tester compute and the curator read the verdict; returns the transcript."""
        self.network.app.state.worker.run_once()
        Fetcher(self.curator).fetch_verdicts()
        transcript = run_transaction(self.tester_engine, lambda c: transcript_of(c, study), read_only=True)
        assert transcript is not None
        return transcript


@contextmanager
def curator_federation(
    folder: Path,
    procedures: Mapping[str, Procedure] = PROCEDURES,
    noise: NoiseSource | None = None,
    url: str = URL,
) -> Iterator[CuratorFederation]:
    """Run a curator, at that address, and a tester in memory, with these procedures registered."""
    network = Network()
    with pytest.MonkeyPatch.context() as patch:
        reaching = partial(TesterClient, transport=httpx.MockTransport(network.carry))
        patch.setattr("tacit_services.agent.service.TesterClient", reaching)
        for name, procedure in procedures.items():
            patch.setitem(discovery.PROCEDURES, name, procedure)
        federation = CuratorFederation(folder, network, procedures, noise, url)
        try:
            yield federation
        finally:
            federation.close()
