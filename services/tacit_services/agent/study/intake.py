"""Decisions on incoming studies: everything is checked here, and nothing is taken from the tester.

No data is touched. The order is: signature, digest, form, roster, deadline, data set, policy, procedure,
cost, canonical bytes. A study that fails is refused with a registered problem and a text for the owner's own
log.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import sqlalchemy as sa

from tacit_protocol.domain import PooledTable
from tacit_protocol.messages.alignment import UnitKey
from tacit_protocol.messages.encoding import MessageError, digest
from tacit_protocol.messages.study import Owner, PublicRule, Study, read_study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.procedures.base import (
    Procedure,
    PublicRuleError,
    StudyError,
    check_study,
    claim_of,
    masking_of,
    require_canonical,
    require_units,
)
from tacit_protocol.procedures.masking import Masking
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import cost_for, relay_of
from tacit_protocol.signing import STUDY_TYPE, EnvelopeError, open_envelope, peek_key_id
from tacit_protocol.strict import HOPELESS
from tacit_services.agent.data.encoders import EncoderFolders, RowEncoders
from tacit_services.agent.data.reader import IN_THIS_THREAD, AlignedUnits, Computing, row_draw
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.policy import DeclaredDataSet, Policy, PolicyRefusedError, Rules

Procedures = Mapping[str, Procedure]

UnitKeys = Callable[[Study, Owner], UnitKey | None]
"""Returns the key that orders an owner's units for a study, None where they were never aligned as it says."""

NEVER_ALIGNED = "no alignment of this data set is recorded with that digest and the study's other owner"
ALIGNED_OTHERWISE = "the data set's ids have changed since it was aligned: align it again"


class IntakeRefusedError(Exception):
    """A study is refused. ``problem`` is a registered slug, ``reason`` a text that quotes no value.

    Of all this the tester is told ``rule`` alone, where there is one: the public rule that the units break.
    """

    def __init__(self, problem: str, reason: str, rule: PublicRule | None = None):
        super().__init__(reason)
        self.problem = problem
        self.reason = reason
        self.rule: PublicRule | None = rule


@dataclass(frozen=True)
class DataSetUse:
    """One owner's data set as a study uses it here.

    ``data_set`` is its name here, ``account`` the ledger's account that pays, and ``open`` returns the source
    without reading it.
    ``version`` changes with the data set where a database says what is held. ``unit_key`` orders the units as
    the study's other owner does, where the study names an alignment. In ``folders`` are the public files of
    encoders, and what images they may be shown.
    """

    owner: str
    data_set: str
    account: str
    open: Callable[[], Source]
    rules: Rules
    version: int = 0
    unit_key: UnitKey | None = None
    folders: EncoderFolders = EncoderFolders()  # noqa: RUF009 (frozen)

    def approved(self, hopeless: Sequence[str]) -> bool:
        """Whether the owner's policy approves a study by itself that its procedure says this of."""
        return self.rules.approval == "automatic" and (self.rules.approve_hopeless or not hopeless)

    def table(self, study: Study, computing: Computing) -> SourceTable:
        """Open the source as the study reads it; raises DataError where a column of the study is missing."""
        owner = study.owner_named(self.owner)
        return SourceTable(
            self.open(),
            study.domain_of(owner),
            study.unit_column,
            computing.bounds,
            None if self.unit_key is None else AlignedUnits(self.unit_key),
            ordered=self.unit_key is not None,
            workers=computing.workers,
            draw=row_draw(study.seed, self.owner) if study.unit_rows == "one" else None,
            encoders=RowEncoders(study.encoders_of(owner), self.folders),
        )

    def require_aligned(self, study: Study, table: SourceTable) -> None:
        """Refuse a table of other units than the study's alignment is of."""
        if self.unit_key is not None and self.unit_key.digest(table.order) != study.alignment:
            refuse("not-aligned", ALIGNED_OTHERWISE)


@dataclass(frozen=True)
class Job:
    """A study that may be run here, with all that running it needs.

    An agent's job has one part, its own; a curator's has one for each owner of the study.
    """

    digest: str
    study: Study
    sender: str
    parts: tuple[DataSetUse, ...]
    procedure: Procedure
    cost: Guarantee
    relay: Relay | None = None
    """Who sends to whom, where one owner's release goes to another."""
    masking: Masking | None = None
    """Who masks, where only the sum of all owners' releases can be read."""

    @property
    def receives(self) -> bool:
        """Whether another owner's release comes here."""
        return self.relay is not None and self.sender == self.relay.receiver.name

    @property
    def sends_on(self) -> bool:
        """Whether this owner's release goes to another owner, who answers in a second round."""
        return self.relay is not None and self.relay.is_sender(self.sender)

    @property
    def spends(self) -> bool:
        """Whether anything private is released, and so paid for."""
        return self.relay is None or self.relay.spends(self.sender)

    @property
    def waits(self) -> bool:
        """Whether what is approved now is debited later, when another owner's word or release has come."""
        if self.masking is not None:
            return True
        return self.relay is not None and self.spends and (self.receives or self.relay.accepted_first)

    @property
    def is_held(self) -> bool:
        """Whether a steward looks at the release before it is sent; what releases nothing is not held."""
        return self.spends and all(part.rules.holds_releases for part in self.parts)

    def hopeless(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Return what the procedure calls hopeless at these numbers of units, by owner."""
        found = self.procedure.warnings(self.study, units)
        return tuple(warning for warning in found if warning.startswith(HOPELESS))

    def approved(self, hopeless: Sequence[str]) -> bool:
        """Whether the study runs without a steward's word."""
        return all(part.approved(hopeless) for part in self.parts)

    @property
    def data_set(self) -> str | None:
        """The one data set that an agent's study reads; None at a curator."""
        return None if self.study.curator is not None else self.parts[0].data_set

    def table(self, computing: Computing = IN_THIS_THREAD) -> SourceTable | PooledTable:
        """Open every part's source and return the rows that the procedure summarises, counted.

        Each source refuses to be read once it differs from what it was when it was opened, so that all of
        them together are read as they were at one moment.

        Raises:
            DataError: a source lacks a column of the study, or cannot be read.
            StudyRefusedError: an owner's policy asks for more units than its data set has, or these are not
                the units that were aligned.
        """
        study = self.study
        tables = {part.owner: part.table(study, computing) for part in self.parts}
        for part in self.parts:
            try:
                part.rules.require_units(tables[part.owner].units)
            except PolicyRefusedError as error:
                refuse("policy-refused", str(error))
            part.require_aligned(study, tables[part.owner])
        return tables[self.sender] if study.curator is None else PooledTable(study.domain, tables)

    def require_units(self, table: SourceTable | PooledTable) -> None:
        """Refuse numbers of units that the study's procedure does not take: the one refusal that says why.

        It looks at the study and at the numbers of units, and at nothing that they hold.
        """
        own = {self.sender: table.units} if isinstance(table, SourceTable) else table.units_by_owner
        require_public_rule(self.procedure, self.study, own)

    def units_by_data_set(self, table: SourceTable | PooledTable) -> dict[str, int]:
        """Return the number of privacy units of each data set. Public."""
        if isinstance(table, SourceTable):
            return {self.parts[0].data_set: table.units}
        return {part.data_set: table.parts[part.owner].units for part in self.parts}


def require_public_rule(procedure: Procedure, study: Study, units: Mapping[str, int]) -> None:
    """Refuse numbers of units, by owner, that a study's procedure does not take."""
    try:
        require_units(procedure, study, units)
    except PublicRuleError as error:
        raise IntakeRefusedError("study-refused", str(error), error.rule) from None


class StudyIntake(ABC):
    """What an owner's agent and a curator check alike; each adds its roster, data sets and policies.

    Args:
        procedures: the procedures by name.
    """

    def __init__(self, procedures: Procedures):
        self._procedures = procedures

    @abstractmethod
    def authenticate(self, study_digest: str, envelope: bytes) -> Study:
        """Return the study in an envelope once its signer is allowed, its signature and digest hold.

        Raises:
            StudyRefusedError: they do not, or the study is malformed.
        """

    @abstractmethod
    def accept(self, study_digest: str, study: Study, now: int) -> Job:
        """Return how the study is to be run here. Raises StudyRefusedError: it may not be."""

    @property
    @abstractmethod
    def respond_after_s_min(self) -> int:
        """When a study is answered that says nothing that could be believed."""

    @abstractmethod
    def data_set_of(self, owner: Owner) -> str | None:
        """Return the name of an owner's data set; None where the owner's data are not held here."""

    @abstractmethod
    def require_current(self, connection: sa.Connection, job: Job) -> None:
        """Return if the data of a job are held as they were when it was approved.

        Raises:
            StudyRefusedError: they are held no more, or have changed.
        """

    def read(self, study_digest: str, envelope: bytes) -> Study:
        """Return the study in an envelope once signature and digest hold, whoever the analyst is.

        Raises:
            StudyRefusedError: they do not, or the study is malformed.
        """
        try:
            key = peek_key_id(envelope)
            payload = open_envelope(envelope, STUDY_TYPE, key)
        except EnvelopeError as error:
            refuse("invalid-signature", str(error))
        if digest(payload) != study_digest:
            refuse("digest-mismatch", "the study's bytes are not those that its digest names")
        try:
            study = read_study(payload)
        except MessageError as error:
            refuse("malformed-message", str(error))
        if study.analyst.key != key:
            refuse("invalid-signature", "the study is signed by another key than its analyst's")
        return study

    def price(self, study: Study, name: str) -> tuple[Procedure, Guarantee]:
        """Return a study's procedure and what it costs the sender of that name.

        Raises StudyRefusedError where it cannot be run.
        """
        procedure = self._procedures.get(study.procedure)
        if procedure is None:
            refuse("study-refused", "there is no such procedure in this version")
        try:
            check_study(procedure, study)
            cost = cost_for(procedure, study, name)
            # Of masked sums the study states what holds towards those it names; the owner pays for more.
            stated = claim_of(procedure, study)
        except StudyError as error:
            refuse("study-refused", str(error))
        if (
            stated.budget.epsilon_micro > study.budget.epsilon_micro
            or stated.budget.delta_pico > study.budget.delta_pico
        ):
            refuse("study-refused", "the procedure would spend more than the study states")
        return procedure, cost

    def require_canonical(self, study_digest: str, study: Study, procedure: Procedure) -> None:
        """Refuse bytes that say what other bytes say: nothing is spent twice on one study."""
        try:
            require_canonical(procedure, study, study_digest)
        except StudyError as error:
            refuse("study-refused", str(error))


class Intake(StudyIntake):
    """Checks studies against one owner's settings and policy.

    Args:
        settings: who the owner is, whose tester it listens to, which data sets there are.
        public_hex: the owner's public key.
        policy: what may be answered.
        procedures: the procedures by name.
        unit_keys: which alignments are recorded.
        sealing_key: the public key to which others may seal to this owner; None where nothing is received.
    """

    def __init__(
        self,
        settings: AgentSettings,
        public_hex: str,
        policy: Policy,
        procedures: Procedures,
        unit_keys: UnitKeys,
        *,
        sealing_key: str | None = None,
    ):
        super().__init__(procedures)
        self._sealing_key = sealing_key
        self._settings, self._public_hex, self._policy = settings, public_hex, policy
        self._unit_keys, self._procedures = unit_keys, procedures

    def under(self, policy: Policy, settings: AgentSettings) -> "Intake":
        """Return the same intake under another policy and settings."""
        return Intake(
            settings,
            self._public_hex,
            policy,
            self._procedures,
            self._unit_keys,
            sealing_key=self._sealing_key,
        )

    def authenticate(self, study_digest: str, envelope: bytes) -> Study:
        """Look at the signer first: what an unknown analyst sends is read no further."""
        try:
            self._policy.require_analyst(peek_key_id(envelope))
        except EnvelopeError as error:
            refuse("invalid-signature", str(error))
        except PolicyRefusedError as error:
            refuse("policy-refused", str(error))
        return self.read(study_digest, envelope)

    def accept(self, study_digest: str, study: Study, now: int) -> Job:
        """Check roster, deadline, data set, policy, procedure, cost, bytes, alignment and sealing key."""
        owner = self._roster(study)
        if now >= study.deadline:
            refuse("study-expired", "the study's deadline has passed")
        data_set = self._settings.data_set(owner.data_set)
        if data_set is None:
            refuse("policy-refused", "the study asks for a data set that does not exist here")
        procedure, cost = require_allowed(self._policy, self, study, owner, data_set)
        self.require_canonical(study_digest, study, procedure)
        unit_key = None if study.alignment is None else self._unit_keys(study, owner)
        if study.alignment is not None and unit_key is None:
            refuse("not-aligned", NEVER_ALIGNED)
        folders = EncoderFolders(self._settings.encoders_folder, data_set.images)
        if (lack := folders.lacks(study.encoders_of(owner))) is not None:
            raise IntakeRefusedError("study-refused", lack, "no-encoder")
        part = DataSetUse(
            owner.name,
            data_set.name,
            data_set.account,
            data_set.open,
            self._policy,
            unit_key=unit_key,
            folders=folders,
        )
        relay = relay_of(procedure, study)
        masking = masking_of(procedure, study)
        job = Job(study_digest, study, owner.name, (part,), procedure, cost, relay, masking)
        is_sealed = relay is not None and relay.sealed and job.receives
        if is_sealed and (owner.sealing is None or owner.sealing.key != self._sealing_key):
            refuse("forbidden", "the study seals to another key than this agent's")
        return job

    def _roster(self, study: Study) -> Owner:
        if study.tester.key != self._settings.tester_key:
            refuse("forbidden", "the study names another tester than the one configured here")
        if study.curator is not None:
            refuse("forbidden", "the study asks a curator for this owner's data, not this agent")
        for owner in study.owners:
            if (owner.name, owner.key) == (self._settings.name, self._public_hex):
                if owner.reuses is not None:
                    refuse("forbidden", "the study reads this owner's earlier release; it asks for no other")
                return owner
        refuse("forbidden", "the study does not name this owner with its name and key")

    @property
    def respond_after_s_min(self) -> int:
        """The policy's own."""
        return self._policy.respond_after_s_min

    def data_set_of(self, owner: Owner) -> str | None:
        """Return the name of this owner's data set."""
        return owner.data_set if owner.name == self._settings.name else None

    def require_current(self, connection: sa.Connection, job: Job) -> None:
        """Nothing: where an agent's data sets are is not recorded in its database."""


def require_allowed(
    rules: Rules, intake: StudyIntake, study: Study, owner: Owner, data_set: DeclaredDataSet
) -> tuple[Procedure, Guarantee]:
    """Return a study's procedure and cost where one owner's policy allows it of that data set.

    Raises:
        StudyRefusedError: the policy does not, or the study cannot be run.
    """
    try:
        rules.require_analysts_name(study.analyst.key, study.analyst.name)
        rules.require_study(study, owner, data_set)
        procedure, cost = intake.price(study, owner.name)
        relay = relay_of(procedure, study)
        if relay is None or relay.spends(owner.name):
            rules.require_budget(study.budget)
            rules.require_budget(cost.budget)
    except PolicyRefusedError as error:
        refuse("policy-refused", str(error))
    return procedure, cost


def refuse(problem: str, reason: str) -> NoReturn:
    """Raise StudyRefusedError."""
    raise IntakeRefusedError(problem, reason)
