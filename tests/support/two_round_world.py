"""Two owners in a study of two rounds in the open: a small procedure, the study, the agents.

North releases a noisy answer of each of its units; south, which holds the same people, releases a noisy table
of those answers against its own column. The verdict reads both.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fault_world import agent_of, key_of, study_of
from peer_world import CAP, COLUMNS, RECEIVER, SENDER, UNITS, make_peer_agent
from plan_of_methods import ProcedureOfMethods
from pydantic import BaseModel

from tacit_protocol.domain import Domain, NumericColumn, Table
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure, Progress, ReleaseError, StudyError
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.mutual_independence import MutualIndependence
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.screening import Screening
from tacit_protocol.strict import StrictModel
from tacit_services.agent.agent import Agent
from tacit_services.agent.study.releases import Dependencies

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


PROCEDURE = TwoRoundTable()
ANSWERS_OF_PAIRS = DistanceCorrelation()


def two_round_study(reuses: str | None = None, **changes: Any) -> Study:
    """Return a study whose first round is north's; or north's release for an earlier study."""
    owners = tuple(
        Owner(
            name=name,
            key=key_of(name).public_hex,
            data_set="people",
            columns=(column,),
            reuses=reuses if name == SENDER else None,
        )
        for name, column in COLUMNS.items()
    )
    fields: dict[str, Any] = {
        "title": "Does the response depend on the dose?",
        "procedure": PROCEDURE.name,
        "domain": Domain(
            columns=tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in COLUMNS.values())
        ),
        "budget": Budget.of("2", "0"),
        "owners": owners,
    }
    return study_of(["unused"]).model_copy(update={**fields, **changes})


make_two_round_agent = partial(make_peer_agent, procedure=PROCEDURE, epsilon_per_study_max=15.0)
"""Puts an owner's agent together on an engine that is up to date."""


def answers_study(**changes: Any) -> Study:
    """Return a study by randomised answers, of the real procedure, between the same owners."""
    parameters = {"method": "two-round", "categories": 2, "permutations": 99}
    fields: dict[str, Any] = {"procedure": DistanceCorrelation.name, "parameters": parameters}
    return two_round_study(**{**fields, **changes})


def screening_study(**changes: Any) -> Study:
    """Return a screening by randomised answers, whose outcome is the sender's."""
    parameters = {"outcome": SENDER, "categories": 2, "permutations": 99}
    fields: dict[str, Any] = {"procedure": Screening.name, "parameters": parameters}
    return two_round_study(**{**fields, **changes})


THIRD = "west"
SEVERAL = {SENDER: "dose", THIRD: "habit", RECEIVER: "response"}
"""Three owners' columns: two send, the last counts."""


def several_study(**changes: Any) -> Study:
    """Return a study of three owners, two of whom answer before the third counts."""
    owners = tuple(
        Owner(name=name, key=key_of(name).public_hex, data_set="people", columns=(column,))
        for name, column in SEVERAL.items()
    )
    fields: dict[str, Any] = {
        "procedure": MutualIndependence.name,
        "parameters": {"categories": 2, "permutations": 99},
        "owners": owners,
        "domain": Domain(
            columns=tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in SEVERAL.values())
        ),
    }
    return two_round_study(**{**fields, **changes})


def make_several_agent(folder: Path, name: str, **uses: Any) -> Agent:
    """Put an agent of three together, with noise of the operating system."""
    source = folder / f"{name}.csv"
    if not source.exists():
        own = np.random.default_rng(len(name)).random(UNITS)
        source.write_text("\n".join([SEVERAL[name], *(repr(float(value)) for value in own)]) + "\n")
    own_uses = Dependencies(uses["engine"], uses["client"], OpenDPNoise(), uses["clock"])
    return agent_of(name, source, own_uses, MutualIndependence(), "people", SEVERAL[name], CAP, 15.0)


def make_answers_agent(
    folder: Path, name: str, procedure: Procedure = ANSWERS_OF_PAIRS, **uses: Any
) -> Agent:
    """Put an owner's agent together that answers it, with noise of the operating system."""
    own = uses | {"noise": OpenDPNoise(), "procedure": procedure}
    return make_peer_agent(folder, name, epsilon_per_study_max=15.0, **own)


def make_screening_agent(folder: Path, name: str, **uses: Any) -> Agent:
    """Put an owner's agent together that answers a screening."""
    return make_answers_agent(folder, name, Screening(), **uses)


__all__ = [
    "PROCEDURE",
    "RECEIVER",
    "SENDER",
    "SEVERAL",
    "THIRD",
    "answers_study",
    "make_answers_agent",
    "make_screening_agent",
    "make_several_agent",
    "make_two_round_agent",
    "screening_study",
    "several_study",
    "two_round_study",
]
