"""Real agents and a real tester for the fault tests: keys from names, repeatable noise, a small procedure."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from agent_fakes import FakeSum
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.engine import Connection, Engine
from study_parties import study_bytes

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import digest
from tacit_protocol.messages.study import Owner, Party, Release, Study
from tacit_protocol.privacy.accounting import Amounts, charge
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, Progress, StudyError
from tacit_protocol.signing import STUDY_TYPE, PrivateKey, sign_envelope
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

CAP = Budget.of("2", "1e-5")


def key_of(name: str) -> PrivateKey:
    """Return a party's key: the same in every run."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


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


PROCEDURE = PooledSum()


def study_of(owners: Iterable[str], **changes: Any) -> Study:
    fields: dict[str, Any] = {
        "title": "How high is x?",
        "procedure": PooledSum.name,
        "parameters": {},
        "domain": Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0),)),
        "owners": tuple(
            Owner(name=name, key=key_of(name).public_hex, data_set="patients") for name in owners
        ),
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


def sealed(study: Study) -> tuple[str, bytes]:
    """Return a study's digest and envelope."""
    payload = study_bytes(study)
    return digest(payload), sign_envelope(payload, STUDY_TYPE, key_of("ada"))


def make_tester(folder: Path, url: str, engine: Engine, clock: Callable[[], float]) -> FastAPI:
    """Put a tester together on an engine that is up to date."""
    key_file = folder / "tester.pem"
    key_file.write_bytes(key_of("tester").to_pem())
    return create_tester(TesterSettings(name="tester", url=url, key_file=key_file), engine, clock)


def make_agent(
    folder: Path,
    name: str,
    *,
    engine: Engine,
    client: TesterClient,
    noise: NoiseSource,
    clock: Callable[[], float],
    by_hand: bool = False,
) -> Agent:
    """Put an owner's agent together on an engine that is up to date. Each owner has other patients."""
    source = folder / f"{name}.csv"
    if not source.exists():
        source.write_text("x\n" + "".join(f"{(i + len(name)) % 10}\n" for i in range(60)))
    uses = Dependencies(engine, client, noise, clock)
    return agent_of(name, source, uses, PROCEDURE, "patients", "x", CAP, 1.0, by_hand)


def agent_of(
    name: str,
    source: Path,
    uses: Dependencies,
    procedure: Procedure,
    data_set: str,
    column: str,
    cap: Budget,
    epsilon_per_study_max: float,
    by_hand: bool = False,
) -> Agent:
    """Put an agent together whose policy allows studies of one column by one procedure."""
    settings = AgentSettings(
        name=name,
        key_file=source.parent / "unused",
        tester_url=URL,
        tester_key=key_of("tester").public_hex,
        policy_file=source.parent / "unused",
        poll_wait_s=0,
        data_sets=(
            DataSetSettings(
                name=data_set, source=str(source), epsilon=cap.epsilon, delta=cap.delta, folder=source.parent
            ),
        ),
    )
    policy = Policy(
        approval="by-hand" if by_hand else "automatic",
        epsilon_per_study_max=epsilon_per_study_max,
        delta_per_study_max=1e-5,
        respond_after_s_min=0,
        analysts=("*",),
        data_sets={data_set: DataSetRules(columns=(column,))},
    )
    agent = Agent(settings, policy, key_of(name), {procedure.name: procedure}, uses)
    agent.open_accounts()
    return agent


def enrol(connection: Connection, owners: Iterable[str]) -> None:
    """Write the parties' rows, as enrolments would."""
    roles = {"ada": "analyst"} | dict.fromkeys(owners, "owner")
    rows = [
        {"name": name, "key": key_of(name).public_hex, "role": role, "enrolled_at": 0}
        for name, role in roles.items()
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
