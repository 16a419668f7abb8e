"""Decide what to do with a curated study: everything is checked here, and nothing is taken from the tester.

No data is touched. The order is: signature, digest, form, the tester and the curator that the roster names,
deadline; then for each owner its enrolment here, its data set and its own policy; then procedure, cost and
canonical bytes.
"""

import sqlalchemy as sa

from tacit_protocol.messages.study import Owner, Study
from tacit_services.agent.intake import (
    Job,
    JobOutdatedError,
    Part,
    Procedures,
    StudyIntake,
    refuse,
    require_allowed,
)
from tacit_services.agent.participant import Identity
from tacit_services.agent.policy import PolicyRefusedError
from tacit_services.curator.data_sets import DataSets, HeldDataSet, account_name
from tacit_services.shared.database import run_transaction

NOT_HELD = "an owner of the study is not enrolled here with that key, or has no such data set here"


class CuratorIntake(StudyIntake):
    """Checks studies against what is held here, and against every owner's policy.

    Args:
        identity: who the curator is, and whose tester it listens to.
        engine: the database that says what is held.
        data_sets: the data sets held.
        procedures: the procedures by name.
        respond_after_s_min: when a study is declined that says nothing that could be believed.
    """

    def __init__(
        self,
        identity: Identity,
        engine: sa.Engine,
        data_sets: DataSets,
        procedures: Procedures,
        respond_after_s_min: int,
    ):
        super().__init__(procedures)
        self._identity, self._engine, self._data_sets = identity, engine, data_sets
        self._respond_after_s_min = respond_after_s_min

    def authenticate(self, study_digest: str, envelope: bytes) -> Study:
        """Check signature and digest: which analysts are answered, each owner says for itself."""
        return self.read(study_digest, envelope)

    def accept(self, study_digest: str, study: Study, now: int) -> Job:
        """Check the roster, and every owner's data set and policy."""
        self._require_roster(study)
        if now >= study.deadline:
            refuse("study-expired", "the study's deadline has passed")
        held = run_transaction(self._engine, lambda connection: self._held(connection, study), read_only=True)
        parts = tuple(self._part(study, data_set) for data_set in held)
        procedure, cost = self.price(study)
        self.require_canonical(study_digest, study, procedure)
        return Job(study_digest, study, self._identity.name, parts, procedure, cost)

    def _require_roster(self, study: Study) -> None:
        if study.tester.key != self._identity.tester_key:
            refuse("forbidden", "the study names another tester than the one configured here")
        own = (self._identity.name, self._identity.key.public_hex)
        if study.curator is None or (study.curator.name, study.curator.key) != own:
            refuse("forbidden", "the study does not name this curator with its name and key")

    def _held(self, connection: sa.Connection, study: Study) -> list[HeldDataSet]:
        found = [self._data_sets.held_data_set(connection, o.name, o.data_set) for o in study.owners]
        held = [data_set for data_set in found if data_set is not None and data_set.owner_revoked_at is None]
        if [(data_set.owner, data_set.owner_key) for data_set in held] != [
            (owner.name, owner.key) for owner in study.owners
        ]:
            refuse("policy-refused", NOT_HELD)
        return held

    def _part(self, study: Study, held: HeldDataSet) -> Part:
        if not held.ready:
            refuse("data-unreadable", f"no rows are held of {held.account}")
        try:
            held.policy.require_analyst(study.analyst.key)
        except PolicyRefusedError as error:
            refuse("policy-refused", str(error))
        require_allowed(held.policy, self, study, study.owner_named(held.owner), held)
        return Part(held.owner, held.account, held.source, held.policy, held.version)

    def require_current(self, connection: sa.Connection, job: Job) -> None:
        """Refuse a study whose data sets were deleted; start anew where one has changed since it was read."""
        held = self._held(connection, job.study)
        if not all(data_set.ready for data_set in held):
            refuse("data-unreadable", NOT_HELD)
        if [data_set.version for data_set in held] != [part.version for part in job.parts]:
            raise JobOutdatedError("a data set changed while the study was run; it is run again")

    def require_held(self, connection: sa.Connection, study: Study) -> None:
        """Raise StudyRefusedError where an owner's data set is not held, or has no rows any more."""
        if not all(data_set.ready for data_set in self._held(connection, study)):
            refuse("data-unreadable", NOT_HELD)

    def units_held(self, connection: sa.Connection, study: Study) -> dict[str, int]:
        """Return the number of units of each owner whose rows were uploaded."""
        found = (self._data_sets.held_data_set(connection, o.name, o.data_set) for o in study.owners)
        return {held.owner: held.units for held in found if held is not None and held.units is not None}

    @property
    def respond_after_s_min(self) -> int:
        """The setting's."""
        return self._respond_after_s_min

    def account_of(self, owner: Owner) -> str:
        """Return the account of an owner of a curated study."""
        return account_name(owner.name, owner.data_set)
