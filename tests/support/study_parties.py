"""Parties with their keys, the messages that they sign, and a stand-in procedure."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from plan_of_methods import ProcedureOfMethods
from pydantic import BaseModel

from tacit_protocol.domain import Domain, NumericColumn, Table
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import (
    CancellationMessage,
    DeclineMessage,
    Owner,
    Party,
    PublicRule,
    Release,
    ReleaseMessage,
    Study,
)
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent, Guarantee, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Progress, ReleaseError, StudyError, canonical
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    PrivateKey,
    sign_envelope,
)
from tacit_protocol.strict import StrictModel


class MeanVerdict(StrictModel):
    """The verdict of the stand-in procedure."""

    mean: float
    units: dict[str, int]
    note: str = "mean"


class MeanProcedure(ProcedureOfMethods):
    """A stand-in procedure: each owner sends one number, the verdict is their mean. No privacy at all."""

    name: ClassVar[str] = "mean"
    title: ClassVar[str] = "What is the mean?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = StrictModel
    Verdict: ClassVar[type[BaseModel]] = MeanVerdict

    def __init__(self) -> None:
        self.assembled = 0
        self.during_assembly: Callable[[], None] = lambda: None

    def check(self, study: Study) -> None:
        if study.parameters:
            raise StudyError("the procedure takes no parameters")

    def cost(self, study: Study) -> Guarantee:
        return Guarantee(budget=study.budget, events=(GaussianEvent(noise_multiplier=2.0),))

    def release_size(self, study: Study) -> int:
        return 1

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        return ("there are few units",) if sum(units.values()) < 100 else ()

    def summarise(self, study: Study, table: Table) -> Any:
        raise NotImplementedError

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        raise NotImplementedError

    def check_release(self, study: Study, release: Release) -> None:
        if set(release.vectors) != {"mean"} or len(release.vectors["mean"].values) != 1:
            raise ReleaseError("a release holds one number")

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
        if source.domain != study.domain:
            raise StudyError("the reused release was made for other columns")
        return release

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> MeanVerdict:
        self.assembled += 1
        report = progress or (lambda fraction, step: None)
        report(0.25, "adding")
        self.during_assembly()
        means = [
            float(releases[o.name].vectors["mean"].mean(releases[o.name].units)[0]) for o in study.owners
        ]
        return MeanVerdict(
            mean=sum(means) / len(means), units={name: release.units for name, release in releases.items()}
        )


def study_bytes(study: Study) -> bytes:
    """Return a study's canonical bytes, as a client signs them; of what no procedure takes, its encoding."""
    try:
        return encode(canonical(procedure_named(study.procedure), study))
    except StudyError:
        return encode(study)


class Parties:
    """Keys of an analyst, a tester and three owners, and the messages that they sign."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.tester, self.analyst = PrivateKey.generate(), PrivateKey.generate()
        self.owners = {name: PrivateKey.generate() for name in ("north", "south", "west")}

    def study(self, **changes: Any) -> Study:
        plain: dict[str, Any] = {
            "title": "What is the mean?",
            "procedure": "mean",
            "parameters": {},
            "domain": Domain(columns=(NumericColumn(name="age", lower=0.0, upper=120.0),)),
            "owners": tuple(
                Owner(name=name, key=key.public_hex, data_set="patients") for name, key in self.owners.items()
            ),
            "tester": Party(name="tester", key=self.tester.public_hex),
            "analyst": Party(name="analyst", key=self.analyst.public_hex),
            "budget": Budget(epsilon_micro=10**6, delta_pico=10**7),
            "level": 0.05,
            "created_at": self.now,
            "deadline": self.now + 3600,
            "seed": "0" * 32,
        }
        return Study(**(plain | changes))

    def owner(self, name: str, /, **changes: Any) -> Owner:
        """Return an owner as a study names it."""
        plain = {"name": name, "key": self.owners[name].public_hex, "data_set": "patients"}
        return Owner(**(plain | changes))

    def sealed_study(self, **changes: Any) -> tuple[str, bytes]:
        """Return a study's digest and its envelope."""
        payload = study_bytes(self.study(**changes))
        return digest(payload), sign_envelope(payload, STUDY_TYPE, self.analyst)

    def release(self, study: str, owner: str, /, value: int = 7, **changes: Any) -> bytes:
        """Return the envelope of an owner's release."""
        message = ReleaseMessage(
            study=study,
            party=owner,
            release=Release(
                units=10,
                guarantee=Guarantee(
                    budget=Budget(epsilon_micro=10**6, delta_pico=10**7),
                    events=(GaussianEvent(noise_multiplier=2.0),),
                ),
                vectors={"mean": NoisyVector(values=(value,), exponent=0, noise="gaussian", scale=1.0)},
            ),
        )
        payload = encode(message.model_copy(update=changes))
        return sign_envelope(payload, RELEASE_TYPE, self.owners[owner])

    def decline(self, study: str, owner: str, rule: PublicRule | None = None) -> bytes:
        """Return the envelope of an owner's decline."""
        message = DeclineMessage(study=study, party=owner, rule=rule)
        return sign_envelope(encode(message), DECLINE_TYPE, self.owners[owner])

    def cancellation(self, study: str) -> bytes:
        """Return the envelope of the analyst's cancellation."""
        return sign_envelope(encode(CancellationMessage(study=study)), CANCELLATION_TYPE, self.analyst)
