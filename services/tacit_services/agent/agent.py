"""One owner's agent: the owner's settings and policy, and the decisions of its steward."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.alignment import UnitKey
from tacit_protocol.messages.catalogue import ANY, CatalogueMessage, PublishedDataSet
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Cap
from tacit_protocol.signing import CATALOGUE_TYPE, EnvelopeError, PrivateKey, certify, sign_envelope
from tacit_services.agent.alignment import unit_key_of
from tacit_services.agent.schema import MASK_SECRETS, SIGN_IN, State
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.study.intake import Intake, IntakeRefusedError, Procedures
from tacit_services.agent.study.participant import (
    AlreadyDecidedError,
    Participant,
    ParticipantIdentity,
    TooSoonError,
    require_shown,
)
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.study.releases import Dependencies, send_time
from tacit_services.agent.study.studies import (
    HELD_TOO_LONG,
    ApprovedBeforeError,
    StudyRow,
    approve_by,
    emptied_mask_secrets,
    expire,
    forget_held,
    forget_mask_secrets,
    held_release,
    move,
    note_overwritten,
    put_in_outbox,
    record_decision,
    study_row,
)
from tacit_services.agent.study.tester_client import TesterRefusedError, TesterUnavailableError
from tacit_services.ledger.accounts import BudgetExceededError, all_accounts, changed_account, set_caps
from tacit_services.shared.database import read_from, run_transaction, try_to_forget
from tacit_services.shared.failpoints import ApprovalStep, HeldStep, reached
from tacit_services.shared.people import Person, record_change
from tacit_services.shared.problem_responses import RegisteredProblemError

log = structlog.get_logger()


class Agent(Participant):
    """One owner's agent, with the owner's configuration, policy and key, and the procedures by name."""

    intake: Intake

    def __init__(
        self,
        settings: AgentSettings,
        policy: Policy,
        key: PrivateKey,
        procedures: Procedures,
        dependencies: Dependencies,
    ):
        intake = Intake(
            settings, key.public_hex, policy, procedures, self._unit_key, sealing_key=certify(key).key
        )
        super().__init__(ParticipantIdentity(settings.name, key, settings.tester_key), intake, dependencies)
        self.settings, self.policy, self._procedures = settings, policy, procedures
        self._version_offered = 0

    def _unit_key(self, study: Study, owner: Owner) -> UnitKey | None:
        return read_from(self.engine, unit_key_of, study, owner)

    def open_accounts(self) -> None:
        """Open an account for every data set, or change its caps and shares to what the configuration says.

        Raises:
            DivisionRefusedError: a stated division moves shares that were promised; says what to write.
        """
        for data_set in self.settings.data_sets:
            run_transaction(self.engine, partial(self.open_account, data_set=data_set, policy=self.policy))

    def divide_accounts(self, connection: sa.Connection, policy: Policy) -> None:
        """Divide the caps of every account as suits what a policy allows; raises as open_accounts does."""
        for data_set in self.settings.data_sets:
            self.open_account(connection, data_set, policy)

    def require_divisible(self, connection: sa.Connection, policy: Policy) -> None:
        """Raise DivisionRefusedError where :meth:`divide_accounts` would; nothing is written."""
        accounts, families = all_accounts(connection), policy.families(self._procedures)
        for data_set in self.settings.data_sets:
            if data_set.account in accounts:
                account = accounts[data_set.account]
                changed_account(account, Cap.of(data_set.caps), data_set.division(families))

    def open_account(self, connection: sa.Connection, data_set: DataSetSettings, policy: Policy) -> None:
        """Open the account of a data set, or change it, as :meth:`open_accounts` does."""
        caps, division = data_set.caps, data_set.division(policy.families(self._procedures))
        at = self.now()
        set_caps(connection, data_set.account, caps.epsilon_micro, caps.delta_pico, at=at, division=division)

    def _units_stated(self, study: Study) -> dict[str, int]:
        """Return what the study says, and of this owner what its settings say, where they do."""
        stated = super()._units_stated(study)
        for owner in study.owners:
            data_set = self.settings.data_set(owner.data_set) if owner.name == self.name else None
            if data_set is not None and data_set.units is not None:
                stated[owner.name] = data_set.units
        return stated

    def use_policy(self, policy: Policy) -> None:
        """Answer by another policy from now on; what is being looked at is looked at by the one before."""
        intake = self.intake.under(policy, self.settings)
        self.policy = policy
        self.use_intake(intake)

    def use_settings(self, settings: AgentSettings) -> None:
        """Answer by other data sets from now on."""
        intake = self.intake.under(self.policy, settings)
        self.settings = settings
        self.use_intake(intake)

    def catalogue(self) -> CatalogueMessage:
        """Return what is published: settings and policy where the policy says so, else nothing at all."""
        policy = self.policy
        nothing = CatalogueMessage(owner=self.name, tester=self.tester_key, version=self.now())
        if not policy.catalogue:
            return nothing
        return CatalogueMessage(
            owner=nothing.owner,
            tester=nothing.tester,
            version=nothing.version,
            data_sets=tuple(
                published(data_set, allowed)
                for data_set in self.settings.data_sets
                if (allowed := policy.columns_of(data_set.name)) is not None
            ),
            procedures=policy.procedures,
            per_study_max=policy.maximum,
            respond_after_s_min=policy.respond_after_s_min,
            approval=policy.approval,
            required_fields=policy.required_fields,
            data_uses=policy.data_uses,
            sealing=certify(self.key),
            encoders=policy.encoders,
        )

    def publish(self) -> bool:
        """Hand the catalogue to the tester; returns whether it was taken, or a later one is there."""
        try:
            entry = self.catalogue()
            # Of two that are changed within a second the second is the later one.
            self._version_offered = max(entry.version, self._version_offered + 1)
            entry = entry.model_copy(update={"version": self._version_offered})
            envelope = sign_envelope(encode(entry), CATALOGUE_TYPE, self.key)
        except (ValueError, EnvelopeError):
            # More than a catalogue holds; the agent answers studies all the same.
            log.warning("catalogue_too_large")
            return True
        try:
            self.client.put_catalogue(self.name, envelope)
        except TesterUnavailableError:
            return False
        except TesterRefusedError as error:
            log.info("catalogue_not_taken", problem=error.slug)
            # Anything else may change, as an enrolment that is to come.
            return error.slug == "conflicting-upload"
        return True

    def approve(self, digest: str, by: Person | None = None) -> None:
        """Let a study run, as a person decided: the holder of the key unless another is given.

        Where the policy asks for two people and this is the first, it waits on, and nothing else changes.
        Where it waits for another owner, its cost is reserved in the same transaction.

        Raises:
            AlreadyDecidedError: it is not waiting, or its deadline has passed.
            ApprovedBeforeError: the person has approved before, and another has to as well.
            BudgetExceededError: its cost is to be reserved, and there is too little left; it waits on.
        """
        row, job = read_from(self.engine, study_row, digest), None
        if row is not None:
            with suppress(IntakeRefusedError):  # what is refused by now is declined when it is run
                job = self.job_of(row)

        person = by or self.key_holder

        def approve(connection: sa.Connection) -> bool | None:
            now = self.now()
            expire(connection, now)
            row = study_row(connection, digest)
            if row is None or row.state is not State.WAITING:
                return None
            needed = self.approvals_needed(row, self.name)
            if not approve_by(connection, SIGN_IN.people, (digest, self.name), person, needed=needed, at=now):
                return False
            reached(ApprovalStep.APPROVED_BY_ALL)
            if job is not None:
                self._keep_cost(connection, job)
            return move(connection, digest, before=[State.WAITING], after=State.APPROVED, at=now)

        is_last = run_transaction(self.engine, approve)
        if is_last is None:
            raise AlreadyDecidedError("the study is not waiting for approval")
        reached(ApprovalStep.APPROVAL_STORED)
        self.confirmed.discard(digest)  # long may have passed since it came in
        log.info("approved", study=digest, person=person.name, is_last=is_last)

    def send(self, digest: str, by: Person | None = None) -> None:
        """Send a release that is held, as a person decided who has looked at it.

        Raises:
            AlreadyDecidedError: it is not held, or it is too late to send it; then its study has expired.
            TooSoonError: it may not be looked at yet.
        """
        person = by or self.key_holder

        def send(connection: sa.Connection) -> bool:
            now = self.now()
            expire(connection, now)
            row, held = study_row(connection, digest), held_release(connection, digest)
            if row is None or held is None or row.state is not State.HELD:
                return False
            require_shown(connection, digest, now)
            respond_after_s = self._respond_after_s(row)
            send_at = send_time(now, respond_after_s, self.clock())
            # An answer may be one that another owner's follows, which has a schedule of its own.
            if send_at + respond_after_s >= row.deadline:
                move(
                    connection,
                    digest,
                    before=[State.HELD],
                    after=State.EXPIRED,
                    at=now,
                    problem="study-expired",
                    reason=HELD_TOO_LONG,
                )
                forget_held(connection, digest)
                return False
            shown_from = int(held.shown_from)
            move(connection, digest, before=[State.HELD], after=State.RELEASED, at=now, shown_from=shown_from)
            put_in_outbox(connection, digest, "release", bytes(held.envelope), at=now, send_at=send_at)
            forget_held(connection, digest)
            detail = {"study": digest}
            record_change(connection, SIGN_IN.people, person, "release sent", detail, at=now)
            reached(HeldStep.SENDING)
            return True

        if not run_transaction(self.engine, send):
            raise AlreadyDecidedError("no release of the study is held")
        log.info("sent_by", study=digest, person=person.name)

    def held(self, row: StudyRow) -> Release | None:
        """Return a release that a steward may look at now; None where none is held, or it is too soon."""
        found = read_from(self.engine, held_release, row.digest) if row.state is State.HELD else None
        if found is None or self.now() < found.shown_from:
            return None
        return decode(Release, bytes(found.release))

    def held_view(self, row: StudyRow) -> dict[str, Any] | None:
        """Return what the release of a study holds, and from when on it may be looked at; None elsewhere."""
        found = read_from(self.engine, held_release, row.digest) if row.state is State.HELD else None
        if found is None:
            return None
        release = self.held(row)
        shown = None if release is None else release.model_dump(mode="json", exclude_defaults=True)
        return {"shown_from": int(found.shown_from), "release": shown}

    def waiting_for(self, owner: str | None) -> list[tuple[StudyRow, str]]:
        """Return the studies that wait for a decision, those whose release may be looked at among them."""
        held = [row for row in self.rows(State.HELD) if self.held(row) is not None]
        return super().waiting_for(owner) + [(row, self.name) for row in held]

    def decline(self, digest: str, note: str | None, by: Person | None = None) -> None:
        """Decline a study, as a person decided; the note stays here. What was spent stays spent.

        Raises:
            AlreadyDecidedError: it has been released, refused or declined, its rows are being read, or its
                deadline has passed.
            TooSoonError: its release is held, and may not be looked at yet.
        """
        person = by or self.key_holder

        def decline(connection: sa.Connection) -> bool:
            reason = note or f"declined by {person.name}"
            before = study_row(connection, digest)
            ended = self._end_in(connection, digest, State.DECLINED, None, reason)
            if ended and before is not None and before.state is State.HELD:
                detail = {"study": digest}
                record_change(connection, SIGN_IN.people, person, "release withheld", detail, at=self.now())
                reached(HeldStep.WITHHELD)
            if ended:
                record_decision(
                    connection, SIGN_IN.people, (digest, self.name), person, "declined", at=self.now()
                )
            return ended

        if not run_transaction(self.engine, decline):
            raise AlreadyDecidedError("the study has been decided on already")
        log.info("declined", study=digest, person=person.name)

    def unlock(self, data_set: str, by: Person | None = None) -> None:
        """Let a data set's account answer studies again, as a person decided; nothing where it is not locked.

        Raises:
            ProblemError: ``unknown-data-set``.
        """
        known = self.settings.data_set(data_set)
        if known is None:
            raise RegisteredProblemError("unknown-data-set")
        self.unlock_account(known.account, SIGN_IN.people, by or self.key_holder)

    def _forget(self, connection: sa.Connection) -> None:
        forget_mask_secrets(connection)

    def overwrite(self) -> None:
        """Have the database's log forget the secrets of masks that were emptied, and note that it has.

        A reader may be in the way, or the process die: what is not noted is tried again.
        """
        emptied = read_from(self.engine, emptied_mask_secrets)
        if emptied and try_to_forget(self.engine, MASK_SECRETS):
            run_transaction(self.engine, lambda connection: note_overwritten(connection, emptied))

    def approvals_needed(self, row: StudyRow, owner: str) -> int:  # noqa: ARG002 (one policy for all)
        """Return what the policy says."""
        return self.policy.approvals

    @property
    def procedure_names(self) -> list[str]:
        """The procedures that there are here."""
        return list(self._procedures)

    @property
    def key_holder(self) -> Person:
        """Whoever holds the agent's key."""
        return Person(self.key.public_hex)


def published(data_set: DataSetSettings, allowed: tuple[str, ...]) -> PublishedDataSet:
    """Describe a data set by its settings, as far as the policy allows its columns."""
    columns = tuple(column for column in data_set.columns if {ANY, column.name} & set(allowed))
    vectors = tuple(column for column in data_set.vectors if {ANY, column.name} & set(allowed))
    declared = {column.name for column in (*data_set.columns, *data_set.vectors)}
    shown = {column.name for column in columns}
    return PublishedDataSet(
        name=data_set.name,
        about=data_set.about,
        units=data_set.units,
        unit_column=data_set.unit_column,
        columns=columns,
        other_columns=tuple(name for name in allowed if name not in declared),
        measures={name: words for name, words in data_set.measures.items() if name in shown},
        vectors=vectors,
    )


def require_row(agent: Agent, digest: str) -> StudyRow:
    """Return what is recorded of a study; raises the problem ``unknown-study``."""
    row = read_from(agent.engine, study_row, digest)
    if row is None:
        raise RegisteredProblemError("unknown-study")
    return row


def decide(agent: Agent, digest: str, decision: Callable[[], None]) -> StudyRow:
    """Carry a decision out; returns what the study is then.

    Raises:
        ProblemError: ``unknown-study``, ``study-expired``, ``already-decided``, ``approved-before``,
            ``too-soon`` or ``budget-exceeded``.
    """
    require_row(agent, digest)
    try:
        decision()
    except AlreadyDecidedError:
        expired = require_row(agent, digest).state is State.EXPIRED
        raise RegisteredProblemError("study-expired" if expired else "already-decided") from None
    except ApprovedBeforeError:
        raise RegisteredProblemError("approved-before") from None
    except TooSoonError as error:
        raise RegisteredProblemError("too-soon", detail=str(error)) from None
    except BudgetExceededError:
        raise RegisteredProblemError("budget-exceeded") from None
    return require_row(agent, digest)
