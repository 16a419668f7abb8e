"""Two owners in peer mode, north who sends and south who receives: the study, the agents, their noise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fault_world import NOW, URL, key_of, study_of
from sqlalchemy.engine import Engine

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.signing.sealing import certify
from tacit_services.agent.agent import Agent
from tacit_services.agent.policy import DataSetPolicy, Policy
from tacit_services.agent.releases import Dependencies
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.tester_client import TesterClient

SENDER, RECEIVER = "north", "south"
COLUMNS = {SENDER: "dose", RECEIVER: "response"}
UNITS = 60
CAP = Budget.of("20", "1e-4")

PROCEDURE = DistanceCorrelation()


class GaussianNoise:
    """Gaussian noise with a seed. For tests alone."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return values + np.rint(self._rng.normal(scale=scale, size=values.shape)).astype(np.int64)

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        raise NotImplementedError


def peer_study(publish: bool = False, **changes: Any) -> Study:
    """Return a study in which south receives what north releases."""
    owners = tuple(
        Owner(
            name=name,
            key=key_of(name).public_hex,
            data_set="people",
            columns=(column,),
            sealing=certify(key_of(name)) if name == RECEIVER else None,
        )
        for name, column in COLUMNS.items()
    )
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
) -> Agent:
    """Put an owner's agent together on an engine that is up to date."""
    data_set = DataSetSettings(
        name="people",
        source=str(write_source(folder, name)),
        epsilon=CAP.epsilon,
        delta=CAP.delta,
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
        epsilon_per_study_max=5.0,
        delta_per_study_max=1e-5,
        respond_after_s_min=0,
        analysts=("*",),
        data_sets={"people": DataSetPolicy(columns=(COLUMNS[name],))},
    )
    agent = Agent(
        settings,
        policy,
        key_of(name),
        {PROCEDURE.name: PROCEDURE},
        Dependencies(engine, client, noise, clock),
    )
    agent.open_accounts()
    return agent
