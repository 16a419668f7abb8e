"""One world of parties for every test that runs a study: keys from names, kinds of study, agents, testers.

A kind of study says what is asked, which owners hold what, and what their agents may spend. Whoever tests
it takes the same agents: in memory (simulation.py), or as processes that are killed (kill_sweep_process.py).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import sqlalchemy as sa
from agent_fakes import FakeSum
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from plan_of_methods import ProcedureOfMethods
from pydantic import BaseModel
from sqlalchemy.engine import Connection, Engine
from study_parties import study_bytes

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn, Table
from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import MaskKeyMessage, Owner, Party, Release, ReleaseMessage, Study
from tacit_protocol.privacy.accounting import Amounts, Family, charge
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure, Progress, ReleaseError, StudyError
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.mutual_independence import MutualIndependence
from tacit_protocol.procedures.noisy_counts import NoisyCounts
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.screening import Screening
from tacit_protocol.signing import (
    MASK_KEY_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    PrivateKey,
    certify,
    open_envelope,
    sign_envelope,
)
from tacit_protocol.strict import StrictModel
from tacit_services.agent.agent import Agent
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.study.policy import DataSetRules, Policy
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.ledger.accounts import account_of, debits_of
from tacit_services.ledger.entries import LedgerEntry
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.tables import PARTIES

URL = "http://tester.example"
NOW = 1_800_000_000
"""The Unix time at which every test begins."""

CAP, ROOM = Budget.of("2", "1e-5"), Budget.of("20", "1e-4")
UNITS = 60


def key_of(name: str) -> PrivateKey:
    """Return a party's key: the same in every run."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def study_of(names: Iterable[str], **changes: Any) -> Study:
    """Return a study of these owners' sums."""
    fields: dict[str, Any] = {
        "title": "How high is x?",
        "procedure": PooledSum.name,
        "parameters": {},
        "domain": Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0),)),
        "owners": tuple(owner_of(name, None, "patients") for name in names),
        "tester": Party(name="tester", key=key_of("tester").public_hex),
        "analyst": Party(name="ada", key=key_of("ada").public_hex),
        "budget": Budget.of("0.5", "1e-6"),
        "level": 0.05,
        "created_at": NOW,
        "deadline": NOW + 30 * 24 * 3600,
        "respond_after_s": 0,
        "seed": "0" * 32,
    }
    return Study(**{**fields, **changes})


def owner_of(name: str, columns: tuple[str, ...] | None, data_set: str = "people", **fields: Any) -> Owner:
    return Owner(name=name, key=key_of(name).public_hex, data_set=data_set, columns=columns, **fields)


def sealed(study: Study) -> tuple[str, bytes]:
    """Return a study's digest and envelope."""
    payload = study_bytes(study)
    return digest(payload), sign_envelope(payload, STUDY_TYPE, key_of("ada"))


# Small procedures.


class PooledVerdict(StrictModel):
    """The owners' sums, each weighted by its place in the roster, so that no two may be exchanged."""

    total: float


class PooledSum(FakeSum):
    """The agent tests' sum, with a verdict."""

    name: ClassVar[str] = "pooled_sum"
    Verdict: ClassVar[type[BaseModel]] = PooledVerdict

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
        if source.domain != study.domain:
            raise StudyError("the reused release was made for other columns")
        return release

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        if progress is not None:
            progress(0.5, "adding")
        sums = [releases[owner.name].vectors["sum"].values[0] for owner in study.owners]
        return PooledVerdict(total=float(sum((place + 1) * value for place, value in enumerate(sums))))


GRID = -20
ANSWERS, TABLE = "answers", "table"


class TableVerdict(StrictModel):
    """The noisy table, and how many of the sender's answers are above a half."""

    table: tuple[float, ...]
    above: int
    units: dict[str, int]


class TwoRoundTable(ProcedureOfMethods):
    """The first owner's noisy answers, one a unit, and the second's noisy table of them and its own cells.

    A unit changes one answer by at most 1, and two cells of the table by 1 each: noise of 1/ε and of 2/ε.
    """

    name: ClassVar[str] = "two_round_table"
    title: ClassVar[str] = "A table in two rounds, for tests"
    families: ClassVar[frozenset[Family]] = frozenset(("pure",))
    Parameters: ClassVar[type[BaseModel]] = StrictModel
    Verdict: ClassVar[type[BaseModel]] = TableVerdict
    RelayedVerdict: ClassVar[type[BaseModel]] = TableVerdict

    def check(self, study: Study) -> None:
        if len(study.owners) != 2 or any(owner.columns is None for owner in study.owners):
            raise StudyError("the study is between two owners, each with a column of its own")

    def cost(self, study: Study) -> Guarantee:
        """Half the budget: the sender's. The receiver spends all of it."""
        return _guarantee(Budget.of(study.budget.epsilon / 2, 0), 1)

    def release_size(self, study: Study) -> int:
        return UNITS

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        return ()

    def summarise(self, study: Study, table: Table) -> Any:
        return ANSWERS, _cells(table)

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        name, counts = summary
        guarantee = self._costs(study)[0 if name == ANSWERS else 1]
        scale = guarantee.events[0].noise_multiplier * (1 if name == ANSWERS else 2)
        values = noise.laplace(counts * 2**-GRID, scale * 2.0**-GRID)
        vector = NoisyVector(
            values=tuple(int(value) for value in values), exponent=GRID, noise="laplace", scale=scale
        )
        units = len(counts) if name == ANSWERS else UNITS
        return Release(units=units, guarantee=guarantee, vectors={name: vector})

    def check_release(self, study: Study, release: Release) -> None:
        self._check(study, release, TABLE, 4)

    def check_received(self, study: Study, release: Release) -> None:
        self._check(study, release, ANSWERS, release.units)

    def check_reread(self, study: Study, release: Release) -> None:
        self.check_received(study, release)

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
        if source.procedure != self.name or source.owner_named(owner.name).columns != owner.columns:
            raise StudyError("the reused release was made by another procedure, or of another column")
        return release

    def relay(self, study: Study) -> Relay:
        sender, receiver = study.owners
        own, other = self._costs(study)
        return Relay(
            sender,
            receiver,
            publishes=True,
            sealed=False,
            numbers=4,
            sends="a noisy answer about each person",
            costs={sender.name: own, receiver.name: other},
        )

    def combine(self, study: Study, received: Release, table: Table) -> Combined:
        answers = np.array(received.vectors[ANSWERS].values) * 2.0**GRID > 0.5
        cells = 2 * answers.astype(np.int64) + _cells(table)
        return Combined(summary=(TABLE, np.bincount(cells, minlength=4)))

    def conclude(
        self,
        study: Study,
        units: Mapping[str, int],
        releases: Mapping[str, Release],
        progress: Progress | None = None,
    ) -> TableVerdict:
        sent, table = (releases[owner.name].vectors for owner in study.owners)
        return TableVerdict(
            table=tuple(value * 2.0**GRID for value in table[TABLE].values),
            above=sum(value * 2.0**GRID > 0.5 for value in sent[ANSWERS].values),
            units=dict(units),
        )

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> TableVerdict:
        raise NotImplementedError

    def _costs(self, study: Study) -> tuple[Guarantee, Guarantee]:
        return self.cost(study), _guarantee(Budget.of(study.budget.epsilon, 0), 1)

    def _check(self, study: Study, release: Release, name: str, count: int) -> None:
        guarantee = self._costs(study)[0 if name == ANSWERS else 1]
        scale = guarantee.events[0].noise_multiplier * (1 if name == ANSWERS else 2)
        if release.guarantee != guarantee or set(release.vectors) != {name}:
            raise ReleaseError("the release is not what the study asks for")
        vector = release.vectors[name]
        if len(vector.values) != count or (vector.exponent, vector.noise) != (GRID, "laplace"):
            raise ReleaseError("the release has not the shape that the study fixes")
        if vector.scale != scale:
            raise ReleaseError("the release has not the noise that the study fixes")


def _guarantee(budget: Budget, sensitivity: int) -> Guarantee:
    return Guarantee(budget=budget, events=(LaplaceEvent(noise_multiplier=sensitivity / budget.epsilon),))


def _cells(table: Table) -> Any:
    return np.concatenate([(chunk.numeric[:, 0] > 0.5).astype(np.int64) for chunk in table.chunks()])


# Kinds of study, and who takes part.


@dataclass(frozen=True)
class Kind:
    """A kind of study: what is asked, what each owner's file holds, and what its agent may spend."""

    procedure: Procedure
    columns: Mapping[str, str]
    """The owners, and the column that each of them holds."""
    values: Callable[[str], Iterable[object]]
    """The rows of an owner's file."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What its studies say beside procedure, owners and domain."""
    data_set: str = "people"
    cap: Budget = ROOM
    epsilon_max: float = 15.0
    system_noise: bool = False
    """Whether the noise is the operating system's, whatever else is given."""

    def study(self, reuses: str | None = None, **changes: Any) -> Study:
        """Return a study of its owners; the first of them has its release of an earlier one read again."""
        names = list(self.columns)
        owners = tuple(
            owner_of(name, (column,), self.data_set, reuses=reuses if name == names[0] else None)
            for name, column in self.columns.items()
        )
        domain = Domain(
            columns=tuple(
                NumericColumn(name=column, lower=0.0, upper=1.0) for column in self.columns.values()
            )
        )
        said = {"title": "Does the response depend on the dose?", "domain": domain, "owners": owners}
        asked = said | {"procedure": self.procedure.name} | dict(self.fields)
        return study_of(["unused"]).model_copy(update=asked | changes)

    def write(self, folder: Path, name: str) -> Path:
        """Write an owner's file unless it is there."""
        source = folder / f"{name}.csv"
        if not source.exists():
            source.write_text("\n".join(map(str, [self.columns[name], *self.values(name)])) + "\n")
        return source


def make_agent(
    folder: Path,
    name: str,
    kind: Kind | None = None,
    *,
    engine: Engine,
    client: TesterClient,
    noise: NoiseSource | None,
    clock: Callable[[], float],
    by_hand: bool = False,
    epsilon_max: float | None = None,
) -> Agent:
    """Put an owner's agent together, on an engine that is up to date; its policy allows studies of a kind."""
    kind = kind or POOLED
    source = kind.write(folder, name)
    data_set = DataSetSettings(
        name=kind.data_set,
        source=str(source),
        epsilon=kind.cap.epsilon,
        delta=kind.cap.delta,
        folder=folder,
    )
    settings = AgentSettings(
        name=name,
        key_file=folder / "unused",
        tester_url=URL,
        tester_key=key_of("tester").public_hex,
        policy_file=folder / "unused",
        poll_wait_s=0,
        data_sets=(data_set,),
    )
    policy = Policy(
        approval="by-hand" if by_hand else "automatic",
        epsilon_per_study_max=epsilon_max or kind.epsilon_max,
        delta_per_study_max=1e-5,
        respond_after_s_min=0,
        analysts=("*",),
        data_sets={kind.data_set: DataSetRules(columns=(kind.columns[name],))},
    )
    drawn = OpenDPNoise() if noise is None or kind.system_noise else noise
    uses = Dependencies(engine, client, drawn, clock)
    agent = Agent(settings, policy, key_of(name), {kind.procedure.name: kind.procedure}, uses)
    agent.open_accounts()
    return agent


POOLED = Kind(
    PooledSum(),
    dict.fromkeys(("east", "north", "south", "west"), "x"),
    lambda name: ((i + len(name)) % 10 for i in range(UNITS)),
    data_set="patients",
    cap=CAP,
    epsilon_max=1.0,
)
"""Sums of one column over the rows of owners, each of whom has other patients: see :func:`study_of`."""

SENDER, RECEIVER, THIRD = "north", "south", "west"


def dose_or_response(name: str) -> Iterable[object]:
    """What the receiver measures depends on what the sender does."""
    values = np.random.default_rng(3).random(UNITS)
    return (values if name == SENDER else values**2).tolist()


PEER = Kind(
    DistanceCorrelation(),
    {SENDER: "dose", RECEIVER: "response"},
    dose_or_response,
    {"budget": Budget.of("4", "1e-5")},
    epsilon_max=5.0,
)
"""North seals its release to south, who alone learns what is found."""


def peer_owner(name: str, columns: tuple[str, ...]) -> Owner:
    return owner_of(name, columns, sealing=certify(key_of(name)) if name == RECEIVER else None)


def peer_study(publish: bool = False, **changes: Any) -> Study:
    """Return a study in which south receives what north releases."""
    said = {"method": "pnc", "mode": "peer", "receiver": RECEIVER, "publish": publish, "permutations": 99}
    owners = tuple(peer_owner(name, (column,)) for name, column in PEER.columns.items())
    return PEER.study(**{"parameters": said, "owners": owners, **changes})


TWO_ROUNDS = replace(
    PEER, procedure=TwoRoundTable(), fields={"budget": Budget.of("2", "0")}, epsilon_max=15.0
)
"""North answers in the open, and south counts beside the answers: each pays for its round."""

CELLS = {"categories": 2, "permutations": 99}
BY_ANSWERS = replace(
    TWO_ROUNDS,
    procedure=DistanceCorrelation(),
    fields=TWO_ROUNDS.fields | {"parameters": CELLS | {"method": "two-round"}},
    system_noise=True,
)
"""The same of a real procedure, by randomised answers."""

SCREENING = replace(
    BY_ANSWERS, procedure=Screening(), fields=TWO_ROUNDS.fields | {"parameters": CELLS | {"outcome": SENDER}}
)
"""A screening whose outcome is the sender's."""

SEVERAL = Kind(
    MutualIndependence(),
    {SENDER: "dose", THIRD: "habit", RECEIVER: "response"},
    lambda name: np.random.default_rng(len(name)).random(UNITS).tolist(),
    TWO_ROUNDS.fields | {"parameters": CELLS},
    system_noise=True,
)
"""Two of three owners answer before the third counts."""

MASKED = ("east", "north", "south", "west", "york")
"""Five owners: enough for two who collude and three who do not."""

LEVELS = ("no", "yes")
COUNTED = {name: (40 + 10 * place, 20) for place, name in enumerate(MASKED)}
"""How many of each owner's units have either level."""

COUNTS = Kind(
    NoisyCounts(),
    dict.fromkeys(MASKED, "answer"),
    lambda name: [level for level, n in zip(LEVELS, COUNTED[name], strict=True) for _ in range(n)],
    data_set="patients",
    cap=CAP,
    epsilon_max=2.0,
)
"""Counts of owners, each of whom shows its own under a mask."""


def masked_study(
    owners: tuple[str, ...] = MASKED, colluders: int = 0, parameters: Any = None, **changes: Any
) -> Study:
    """Return a study of the owners' masked counts."""
    asked: dict[str, Any] = {"noise": "gaussian", "aggregation": "masked", "colluders": colluders}
    fields: dict[str, Any] = {
        "title": "How many answered yes?",
        "procedure": NoisyCounts.name,
        "parameters": asked | (parameters or {}),
        "domain": Domain(columns=(CategoricalColumn(name="answer", levels=LEVELS),)),
        "budget": Budget.of("0.5", "1e-6"),
    }
    return study_of(owners).model_copy(update={**fields, **changes})


def exact_total(owners: tuple[str, ...] = MASKED) -> Any:
    """Return the exact counts of the owners together."""
    return np.sum([COUNTED[name] for name in owners], axis=0)


def key_message(study: str, name: str, key: str, signer: str = "") -> bytes:
    """Return an owner's signed key for a study's masks."""
    message = MaskKeyMessage(study=study, party=name, key=key)
    return sign_envelope(encode(message), MASK_KEY_TYPE, key_of(signer or name))


def key_shown(envelope: bytes | str, name: str) -> MaskKeyMessage:
    """Return what an owner signed in the first round."""
    text = envelope.encode() if isinstance(envelope, str) else envelope
    return decode(MaskKeyMessage, open_envelope(text, MASK_KEY_TYPE, key_of(name).public_hex))


def release_in(envelope: bytes | str, name: str) -> ReleaseMessage:
    """Return what an owner signed as its release."""
    text = envelope.encode() if isinstance(envelope, str) else envelope
    return decode(ReleaseMessage, open_envelope(text, RELEASE_TYPE, key_of(name).public_hex))


# Whoever else takes part.


def make_tester(folder: Path, url: str, engine: Engine, clock: Callable[[], float]) -> FastAPI:
    """Put a tester together on an engine that is up to date."""
    key_file = folder / "tester.pem"
    key_file.write_bytes(key_of("tester").to_pem())
    return create_tester(TesterSettings(name="tester", url=url, key_file=key_file), engine, clock)


def enrol(connection: Connection, owners: Iterable[str], role: str = "owner") -> None:
    """Write the rows of the analyst and of other parties, as enrolments would."""
    rows = [
        {"name": name, "key": key_of(name).public_hex, "role": own, "enrolled_at": 0}
        for name, own in ({"ada": "analyst"} | dict.fromkeys(owners, role)).items()
    ]
    connection.execute(PARTIES.insert(), rows)


def check_account(connection: sa.Connection, data_set: str) -> list[LedgerEntry]:
    """Check that an account's sums are those of its debits and within its shares; returns the debits."""
    account, debits = account_of(connection, data_set), debits_of(connection, data_set)
    taken = sum((charge(entry.events) for entry in debits), Amounts())
    assert account.spent == taken, "spent is not what the debits took"
    assert account.spent.within(account.share), "spent more than a share"
    assert account.cap.covers(account.promised), "promised more than the cap"
    return debits
