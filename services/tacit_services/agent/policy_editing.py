"""Changes of the policy while the agent runs: checked, previewed, written to the file, recorded, taken up.

What is written is the text that the officer sent, comments and all, once the parser that reads the file at
every start takes it. The record has every change with its text and who made it; a file that was changed by
other means is noticed at the next start. A crash in between leaves a record that the next start corrects.
"""

import difflib
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_services.agent.agent import Agent
from tacit_services.agent.intake import StudyRefusedError
from tacit_services.agent.policy import Policy
from tacit_services.agent.schema import SIGN_IN, State
from tacit_services.agent.studies import StudyRow, studies_in
from tacit_services.ledger.accounts import DivisionRefusedError
from tacit_services.shared.database import read_from, run_transaction, sync_folder
from tacit_services.shared.failpoints import PolicyStep, reached
from tacit_services.shared.people import BY_FILE, Person, record_change, recorded
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.shared.settings import SettingsError

log = structlog.get_logger()

TEXT_LENGTH_MAX = 100_000
"""Longest policy that the page takes."""

CHANGED, FOUND = "policy changed", "policy file found"
"""Actions of the record: a change on the page, and what a start found in the file that was not recorded."""

FEWER = (
    "approvals: where two people approve, one person cannot lift that here; change it in the file, on the "
    "agent's machine"
)


class PolicyFaultError(Exception):
    """A policy cannot be taken. The text says where it is wrong; it may hold names that the policy gives."""


@dataclass(frozen=True)
class PolicyText:
    """The file as it is now; ``digest`` names it, and ``writable`` says whether it may be changed."""

    text: str
    digest: str
    writable: bool


@dataclass(frozen=True)
class Effect:
    """What a policy would do to a study that waits; ``reason`` says why it would be refused, or is None."""

    study: str
    title: str
    before: str | None
    reason: str | None


@dataclass(frozen=True)
class Preview:
    """What a policy would change: lines of a diff, and each study that waits or is to be run."""

    diff: list[str]
    effects: list[Effect]
    faults: list[str]
    """Data sets that it names and that there are none of."""


class PolicyEditor:
    """Changes the policy of one agent; ``republish`` has its catalogue handed to the tester again."""

    def __init__(self, agent: Agent, republish: Callable[[], None] = lambda: None) -> None:
        self._agent, self._republish = agent, republish
        self._file = agent.settings.policy_file.resolve()
        self._lock = threading.Lock()

    def read(self) -> PolicyText:
        """Return the file as it is now; raises SettingsError where it cannot be read."""
        try:
            content = self._file.read_bytes()
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise SettingsError("the policy file cannot be read") from None
        # Root may write anywhere, and a mount that is read-only says so here as well.
        writable = os.access(self._file.parent, os.W_OK) and os.access(self._file, os.W_OK)
        return PolicyText(text, _digest(text), writable)

    def is_taken_up(self) -> bool:
        """Return whether the agent answers by what the file says, which may have changed since the start."""
        try:
            return Policy.parse(self.read().text) == self._agent.policy
        except SettingsError:
            return False

    def preview(self, text: str) -> Preview:
        """Return what a policy would change; nothing is changed.

        Raises:
            PolicyFaultError: it cannot be taken.
        """
        policy, agent = self._checked(text), self._agent
        intake = agent.intake.under(policy)
        effects = []
        for row in read_from(agent.engine, studies_in, [State.WAITING, State.APPROVED]):
            before, after = (self._refusal(row, one) for one in (agent.intake, intake))
            effects.append(Effect(row.digest, self._title(row), before, after))
        named = {data_set.name for data_set in agent.settings.data_sets}
        faults = [f"there is no data set {name}" for name in sorted(set(policy.data_sets) - named)]
        return Preview(_diff(self.read().text, text), effects, faults)

    def change(self, text: str, seen: str, by: Person) -> None:
        """Write a policy to the file, record it, and answer by it from now on.

        Args:
            text: the whole file.
            seen: the digest of the file that was changed.
            by: who changes it.

        Raises:
            PolicyFaultError: it cannot be taken, or the file cannot be written.
            ProblemError: ``policy-changed``: the file is not the one that was seen.
        """
        by.require("officer")
        with self._lock:
            now = self.read()
            if now.digest != seen:
                raise ProblemError("policy-changed")
            if text == now.text:
                return
            policy = self._checked(text)
            written = self._write_beside(text)
            try:
                run_transaction(
                    self._agent.engine, partial(self._store, now=now, text=text, by=by, policy=policy)
                )
                reached(PolicyStep.RECORDED)
                os.replace(written, self._file)
            except DivisionRefusedError as error:
                raise PolicyFaultError(str(error)) from None
            except OSError as error:
                raise PolicyFaultError(f"the policy file cannot be replaced: {error.strerror}") from None
            finally:
                written.unlink(missing_ok=True)
            sync_folder(self._file.parent)
            reached(PolicyStep.WRITTEN)
            self._agent.use_policy(policy)
        self._republish()
        log.info("policy_changed", person=by.name, digest=_digest(text))

    def note_file(self) -> None:
        """Record the file as it is found at a start, unless it is as it was last recorded."""
        now, agent = self.read(), self._agent

        def note(connection: sa.Connection) -> None:
            before = _last_text(connection, agent)
            if before != now.text:
                by = Person(agent.key.public_hex, BY_FILE)
                self._record(connection, by, FOUND, before or "", now.text)

        run_transaction(agent.engine, note)

    def changes(self) -> list[dict[str, Any]]:
        """Return every change of the policy, the newest first: ``at``, ``person``, ``action``, ``diff``."""
        key = self._agent.key.public_hex
        entries, _ = read_from(self._agent.engine, recorded, SIGN_IN.people, key)
        shown = [entry | {"diff": entry["detail"]["diff"]} for entry in entries if _is_policy(entry)]
        return shown[::-1]

    def _store(
        self, connection: sa.Connection, now: PolicyText, text: str, by: Person, policy: Policy
    ) -> None:
        self._agent.divide_accounts(connection, policy)
        self._record(connection, by, CHANGED, now.text, text)

    def _record(self, connection: sa.Connection, by: Person, action: str, *texts: str) -> None:
        """Record a change from the first of two texts to the second."""
        before, after = texts
        detail = {"file": self._file.name, "text": after, "diff": _diff(before, after)}
        at = int(self._agent.clock())
        record_change(connection, SIGN_IN.people, by, action, detail, at=at)

    def _checked(self, text: str) -> Policy:
        if len(text) > TEXT_LENGTH_MAX:
            raise PolicyFaultError(f"a policy has {TEXT_LENGTH_MAX} characters at most")
        try:
            policy = Policy.parse(text)
        except SettingsError as error:
            raise PolicyFaultError(str(error)) from None
        if policy.approvals < self._agent.policy.approvals:
            raise PolicyFaultError(FEWER)
        try:
            read_from(self._agent.engine, self._agent.require_divisible, policy)
        except DivisionRefusedError as error:
            raise PolicyFaultError(str(error)) from None
        return policy

    def _write_beside(self, text: str) -> Path:
        """Write the text to a new file in the same folder, with the old one's rights; returns its path."""
        try:
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}-")
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, self._file.stat().st_mode & 0o777)
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(handle)
        except OSError as error:
            raise PolicyFaultError(f"the policy file cannot be written: {error.strerror}") from None
        return Path(name)

    def _refusal(self, row: StudyRow, intake: Any) -> str | None:
        try:
            if row.envelope is None:
                return row.reason
            study = intake.authenticate(row.digest, row.envelope)
            intake.accept(row.digest, study, int(self._agent.clock()))
        except StudyRefusedError as error:
            return error.reason
        return None

    def _title(self, row: StudyRow) -> str:
        try:
            return self._agent.intake.read(row.digest, row.envelope or b"").title
        except StudyRefusedError:
            return "A study that cannot be read"


def _is_policy(entry: dict[str, Any]) -> bool:
    return entry["action"] in {CHANGED, FOUND}


def _last_text(connection: sa.Connection, agent: Agent) -> str | None:
    entries, _ = recorded(connection, SIGN_IN.people, agent.key.public_hex)
    texts = [str(entry["detail"]["text"]) for entry in entries if _is_policy(entry)]
    return texts[-1] if texts else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _diff(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2)
    return list(lines)[2:]
