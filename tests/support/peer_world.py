"""Two owners in peer mode, north who sends and south who receives: the study, the agents, their noise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fault_world import NOW, agent_of, key_of, study_of
from made_studies import SeededNoise
from sqlalchemy.engine import Engine

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.signing import certify
from tacit_services.agent.agent import Agent
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.tester_client import TesterClient

SENDER, RECEIVER = "north", "south"
COLUMNS = {SENDER: "dose", RECEIVER: "response"}
UNITS = 60
CAP = Budget.of("20", "1e-4")

PROCEDURE = DistanceCorrelation()
GaussianNoise = SeededNoise


def owner_of(name: str, columns: tuple[str, ...]) -> Owner:
    sealing = certify(key_of(name)) if name == RECEIVER else None
    return Owner(name=name, key=key_of(name).public_hex, data_set="people", columns=columns, sealing=sealing)


def peer_study(publish: bool = False, **changes: Any) -> Study:
    """Return a study in which south receives what north releases."""
    owners = tuple(owner_of(name, (column,)) for name, column in COLUMNS.items())
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in COLUMNS.values())
    parameters = {
        "method": "pnc",
        "mode": "peer",
        "receiver": RECEIVER,
        "publish": publish,
        "permutations": 99,
    }
    fields: dict[str, Any] = {
        "title": "Does the response depend on the dose?",
        "procedure": PROCEDURE.name,
        "parameters": parameters,
        "domain": Domain(columns=columns),
        "budget": Budget.of("4", "1e-5"),
        "owners": owners,
    }
    return study_of(["unused"]).model_copy(update={**fields, **changes})


def write_source(folder: Path, name: str) -> Path:
    """Write an owner's file unless it is there."""
    source = folder / f"{name}.csv"
    if not source.exists():
        values = np.random.default_rng(3).random(UNITS)
        own = values if name == SENDER else values**2
        source.write_text("\n".join([COLUMNS[name], *(repr(float(value)) for value in own)]) + "\n")
    return source


def make_peer_agent(
    folder: Path,
    name: str,
    *,
    engine: Engine,
    client: TesterClient,
    noise: NoiseSource,
    clock: Callable[[], float] = lambda: NOW,
    by_hand: bool = False,
    procedure: Procedure = PROCEDURE,
    epsilon_per_study_max: float = 5.0,
) -> Agent:
    """Put an owner's agent together on an engine that is up to date."""
    uses, source = Dependencies(engine, client, noise, clock), write_source(folder, name)
    column = COLUMNS[name]
    return agent_of(name, source, uses, procedure, "people", column, CAP, epsilon_per_study_max, by_hand)
