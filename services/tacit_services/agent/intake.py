"""Decide what to do with a study: everything is checked here, and nothing is taken from the tester.

No data is touched. The order is: signature, digest, form, roster, deadline, data set, policy, procedure,
cost. A study that fails is refused with a registered problem and a text for the owner's own log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from tacit_protocol.messages.encoding import MessageError, decode
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.signing.envelope import STUDY_TYPE, EnvelopeError, digest, open_envelope, peek_key_id
from tacit_services.agent.policy import Policy, PolicyRefusedError
from tacit_services.agent.settings import AgentSettings, DataSetSettings

Procedures = Mapping[str, Procedure]


class StudyRefusedError(Exception):
    """A study is refused. ``problem`` is a registered slug, ``reason`` a text that quotes no value."""

    def __init__(self, problem: str, reason: str):
        super().__init__(reason)
        self.problem = problem
        self.reason = reason


@dataclass(frozen=True)
class Job:
    """A study that may be run here, with all that running it needs."""

    digest: str
    study: Study
    owner: Owner
    data_set: DataSetSettings
    procedure: Procedure
    cost: Guarantee


class Intake:
    """Checks studies against the owner's settings and policy.

    Args:
        settings: who the owner is, whose tester it listens to, which data sets there are.
        public_hex: the owner's public key.
        policy: what may be answered.
        procedures: the procedures by name.
    """

    def __init__(self, settings: AgentSettings, public_hex: str, policy: Policy, procedures: Procedures):
        self._settings, self._public_hex = settings, public_hex
        self._policy, self._procedures = policy, procedures

    def authenticate(self, study_digest: str, envelope: bytes) -> Study:
        """Return the study in an envelope once its signer is allowed, its signature and digest hold.

        Raises:
            StudyRefusedError: they do not, or the study is malformed.
        """
        try:
            self._policy.require_analyst(peek_key_id(envelope))
        except EnvelopeError as error:
            _refuse("invalid-signature", str(error))
        except PolicyRefusedError as error:
            _refuse("policy-refused", str(error))
        return self.read(study_digest, envelope)

    def read(self, study_digest: str, envelope: bytes) -> Study:
        """Return the study in an envelope once signature and digest hold, whoever the analyst is.

        Raises:
            StudyRefusedError: they do not, or the study is malformed.
        """
        try:
            key = peek_key_id(envelope)
            payload = open_envelope(envelope, STUDY_TYPE, key)
        except EnvelopeError as error:
            _refuse("invalid-signature", str(error))
        if digest(payload) != study_digest:
            _refuse("digest-mismatch", "the study's bytes are not those that its digest names")
        try:
            study = decode(Study, payload)
        except MessageError as error:
            _refuse("malformed-message", str(error))
        if study.analyst.key != key:
            _refuse("invalid-signature", "the study is signed by another key than its analyst's")
        return study

    def accept(self, study_digest: str, study: Study, now: int) -> Job:
        """Return how the study is to be run here.

        Raises:
            StudyRefusedError: it may not be.
        """
        owner = self._roster(study)
        if now >= study.deadline:
            _refuse("study-expired", "the study's deadline has passed")
        data_set = self._settings.data_set(owner.data_set)
        if data_set is None:
            _refuse("policy-refused", "the study asks for a data set that does not exist here")
        try:
            self._policy.require_study(study, data_set)
            self._policy.require_budget(study.budget)
            procedure, cost = self.price(study)
            self._policy.require_budget(cost.budget)
        except PolicyRefusedError as error:
            _refuse("policy-refused", str(error))
        return Job(study_digest, study, owner, data_set, procedure, cost)

    def _roster(self, study: Study) -> Owner:
        if study.tester.key != self._settings.tester_key:
            _refuse("forbidden", "the study names another tester than the one configured here")
        for owner in study.owners:
            if (owner.name, owner.key) == (self._settings.name, self._public_hex):
                return owner
        _refuse("forbidden", "the study does not name this owner with its name and key")

    def price(self, study: Study) -> tuple[Procedure, Guarantee]:
        """Return a study's procedure and what it costs; raises StudyRefusedError where it cannot be run."""
        procedure = self._procedures.get(study.procedure)
        if procedure is None:
            _refuse("study-refused", "there is no such procedure in this version")
        try:
            procedure.check(study)
            cost = procedure.cost(study)
        except StudyError as error:
            _refuse("study-refused", str(error))
        if (
            cost.budget.epsilon_micro > study.budget.epsilon_micro
            or cost.budget.delta_pico > study.budget.delta_pico
        ):
            _refuse("study-refused", "the procedure would spend more than the study states")
        return procedure, cost

    def require_units(self, units: int) -> None:
        """Raise StudyRefusedError where the data set is too small for the policy."""
        try:
            self._policy.require_units(units)
        except PolicyRefusedError as error:
            _refuse("policy-refused", str(error))

    @property
    def respond_after_s_min(self) -> int:
        """When a study is answered that says nothing that could be believed."""
        return self._policy.respond_after_s_min

    @property
    def automatic(self) -> bool:
        """Whether accepted studies run without a steward."""
        return self._policy.approval == "automatic"


def _refuse(problem: str, reason: str) -> NoReturn:
    raise StudyRefusedError(problem, reason)
