"""Changes of the policy and new data sets while the agent runs: checked, previewed, written, taken up.

Of the policy the text that the officer sent is written, comments and all, once the parser that reads the file
at every start takes it. A data set that an admin adds is a table at the end of a file of its own; it is of a
file below the folders, or of a database among the connections, that the operator's agent.toml names. The
record has every change with the file's text and who made it; a file that was changed by other means is
noticed at the next start. A crash in between leaves a record that the next start corrects.
"""

import difflib
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
import tomlkit
from pydantic import ValidationError

from tacit_protocol.domain import DataError
from tacit_protocol.public_knowledge import Proposal, proposal
from tacit_services.agent.agent import Agent
from tacit_services.agent.data.opening import SUFFIXES, SourceSettings
from tacit_services.agent.data.sql_source import require_one_query
from tacit_services.agent.schema import SIGN_IN, State
from tacit_services.agent.settings import TWO_ACCOUNTS, DataSetSettings, fault_words
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.policy import APPROVALS_MAX, Policy
from tacit_services.agent.study.studies import StudyRow, studies_in
from tacit_services.ledger.accounts import DivisionRefusedError, all_accounts
from tacit_services.shared.database import read_from, run_transaction, sync_folder
from tacit_services.shared.failpoints import PolicyStep, reached
from tacit_services.shared.people import BY_FILE, Person, record_change, recorded
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import SettingsError

log = structlog.get_logger()

TEXT_LENGTH_MAX = 100_000
"""Longest policy that the page takes."""

CHANGED, FOUND = "policy changed", "policy file found"
"""Actions of the record: a change on the page, and what a start found in the file that was not recorded."""

ADDED, FOUND_DATA_SETS = "data set added", "data sets file found"
"""The same of the file of data sets."""

FEWER = (
    "approvals: where two people approve, or the file may say so and cannot be read, one person cannot lift "
    "that here; change it in the file, on the agent's machine"
)


class EditFaultError(Exception):
    """A change cannot be taken. The text says what is wrong; it may hold names that were given."""


@dataclass(frozen=True)
class FileText:
    """The file as it is now; ``digest`` names it, and ``writable`` says whether it may be changed."""

    text: str
    digest: str
    writable: bool


@dataclass(frozen=True)
class PolicyEffect:
    """What a policy would do to a study that waits; ``reason`` says why it would be refused, or is None."""

    study: str
    title: str
    before: str | None
    reason: str | None


@dataclass(frozen=True)
class Preview:
    """What a policy would change: lines of a diff, and each study that waits or is to be run."""

    diff: list[str]
    effects: list[PolicyEffect]
    faults: list[str]
    """Data sets and procedures that it names and that there are none of."""


class RecordedFile:
    """A file of the agent's that pages change, with every change in the record.

    Args:
        agent: whose.
        file: the file; a link is followed.
        actions: what the record calls a change on a page, and what a start found.
    """

    def __init__(self, agent: Agent, file: Path, actions: tuple[str, str]) -> None:
        self._agent, self.file = agent, file.resolve()
        self._changed, self._found = actions
        self.lock = threading.Lock()

    def read(self) -> FileText:
        """Return the file as it is now, empty where it may be missing; raises SettingsError."""
        try:
            text = self.file.read_bytes().decode("utf-8")
        except FileNotFoundError:
            text = self._missing()
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{self.file.name} cannot be read") from None
        # Root may write anywhere, and a mount that is read-only says so here as well.
        there = not self.file.exists() or os.access(self.file, os.W_OK)
        return FileText(text, _digest(text), os.access(self.file.parent, os.W_OK) and there)

    def _missing(self) -> str:
        raise SettingsError(f"{self.file.name} cannot be read")

    def note_file(self) -> None:
        """Record the file as it is found at a start, unless it is as it was last recorded."""
        now, agent = self.read(), self._agent

        def note(connection: sa.Connection) -> None:
            before = self._last_text(connection)
            if before != now.text and (before or now.text):
                by = Person(agent.key.public_hex, BY_FILE)
                self._record(connection, by, self._found, before or "", now.text)

        run_transaction(agent.engine, note)

    def changes(self) -> list[dict[str, Any]]:
        """Return every change of the file, the newest first: ``at``, ``person``, ``action``, ``diff``."""
        key = self._agent.key.public_hex
        entries, _ = read_from(self._agent.engine, recorded, SIGN_IN.people, key)
        shown = [entry | {"diff": entry["detail"]["diff"]} for entry in entries if self._is_of_file(entry)]
        return shown[::-1]

    def _put(
        self,
        now: FileText,
        text: str,
        by: Person,
        store: Callable[[sa.Connection], None],
        take_up: Callable[[], None],
    ) -> None:
        """Record a change together with what ``store`` stores, replace the file, and take it up.

        Raises:
            EditFaultError: the file cannot be written, or the accounts do not allow it.
        """

        def write(connection: sa.Connection) -> None:
            store(connection)
            self._record(connection, by, self._changed, now.text, text)

        written = self._write_beside(text)
        try:
            run_transaction(self._agent.engine, write)
            reached(PolicyStep.RECORDED)
            os.replace(written, self.file)
        except DivisionRefusedError as error:
            raise EditFaultError(str(error)) from None
        except OSError as error:
            raise EditFaultError(f"{self.file.name} cannot be replaced: {error.strerror}") from None
        finally:
            written.unlink(missing_ok=True)
        sync_folder(self.file.parent)
        reached(PolicyStep.WRITTEN)
        take_up()

    def _record(self, connection: sa.Connection, by: Person, action: str, *texts: str) -> None:
        """Record a change from the first of two texts to the second."""
        before, after = texts
        detail = {"file": self.file.name, "text": after, "diff": diff_of(before, after)}
        at = int(self._agent.clock())
        record_change(connection, SIGN_IN.people, by, action, detail, at=at)

    def _write_beside(self, text: str) -> Path:
        """Write the text to a new file in the same folder, with the old one's rights; returns its path."""
        try:
            handle, name = tempfile.mkstemp(dir=self.file.parent, prefix=f".{self.file.name}-")
            with os.fdopen(handle, "wb") as file:
                if self.file.exists():
                    os.fchmod(handle, self.file.stat().st_mode & 0o777)
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(handle)
        except OSError as error:
            raise EditFaultError(f"{self.file.name} cannot be written: {error.strerror}") from None
        return Path(name)

    def _last_text(self, connection: sa.Connection) -> str | None:
        entries, _ = recorded(connection, SIGN_IN.people, self._agent.key.public_hex)
        texts = [str(entry["detail"]["text"]) for entry in entries if self._is_of_file(entry)]
        return texts[-1] if texts else None

    def _is_of_file(self, entry: dict[str, Any]) -> bool:
        return entry["action"] in {self._changed, self._found}


class PolicyEditor(RecordedFile):
    """Changes the policy of one agent; ``republish`` has its catalogue handed to the tester again."""

    def __init__(self, agent: Agent, republish: Callable[[], None] = lambda: None) -> None:
        super().__init__(agent, agent.settings.policy_file, (CHANGED, FOUND))
        self._republish = republish

    def is_taken_up(self) -> bool:
        """Return whether the agent answers by what the file says, which may have changed since the start."""
        try:
            return Policy.parse(self.read().text) == self._agent.policy
        except SettingsError:
            return False

    def preview(self, text: str) -> Preview:
        """Return what a policy would change; nothing is changed.

        Raises:
            EditFaultError: it cannot be taken.
        """
        policy, agent = self._checked(text), self._agent
        intake = agent.intake.under(policy, agent.settings)
        effects = []
        for row in read_from(agent.engine, studies_in, [State.WAITING, State.APPROVED]):
            before, after = (self._refusal(row, one) for one in (agent.intake, intake))
            effects.append(PolicyEffect(row.digest, self._title(row), before, after))
        named = {data_set.name for data_set in agent.settings.data_sets}
        faults = [f"there is no data set {name}" for name in sorted(set(policy.data_sets) - named)]
        faults += policy.unknown_procedures(agent.procedure_names)
        return Preview(diff_of(self.read().text, text), effects, faults)

    def change(self, text: str, seen: str, by: Person) -> None:
        """Write a policy to the file, record it, and answer by it from now on.

        Args:
            text: the whole file.
            seen: the digest of the file that was changed.
            by: who changes it.

        Raises:
            EditFaultError: it cannot be taken, or the file cannot be written.
            ProblemError: ``policy-changed``: the file is not the one that was seen.
        """
        by.require("officer")
        agent = self._agent
        with self.lock:
            now = self.read()
            if now.digest != seen:
                raise RegisteredProblemError("policy-changed")
            if text == now.text:
                return
            policy = self._checked(text)
            store = partial(agent.divide_accounts, policy=policy)
            self._put(now, text, by, store, partial(agent.use_policy, policy))
        self._republish()
        log.info("policy_changed", person=by.name, digest=_digest(text))

    def _checked(self, text: str) -> Policy:
        if len(text) > TEXT_LENGTH_MAX:
            raise EditFaultError(f"a policy has {TEXT_LENGTH_MAX} characters at most")
        try:
            policy = Policy.parse(text)
        except SettingsError as error:
            raise EditFaultError(str(error)) from None
        if policy.approvals < max(self._agent.policy.approvals, self._approvals_in_file()):
            raise EditFaultError(FEWER)
        try:
            read_from(self._agent.engine, self._agent.require_divisible, policy)
        except DivisionRefusedError as error:
            raise EditFaultError(str(error)) from None
        return policy

    def _approvals_in_file(self) -> int:
        """Return how many people the file asks for; two where it cannot be read: it may have said so."""
        try:
            return Policy.parse(self.read().text).approvals
        except SettingsError:
            return APPROVALS_MAX

    def _refusal(self, row: StudyRow, intake: Any) -> str | None:
        try:
            if row.envelope is None:
                return row.reason
            study = intake.authenticate(row.digest, row.envelope)
            intake.accept(row.digest, study, int(self._agent.clock()))
        except IntakeRefusedError as error:
            return error.reason
        return None

    def _title(self, row: StudyRow) -> str:
        try:
            return self._agent.intake.read(row.digest, row.envelope or b"").title
        except IntakeRefusedError:
            return "A study that cannot be read"


COLUMNS_SHOWN = 200
"""Most columns of a data set that the page takes; for more there is agent.toml."""

FILES_SHOWN = 500
"""Most files of one folder that are offered, and files looked at in it times ten."""

QUERY_LENGTH_MAX = 10_000


OTHER_SHARES = "; its shares are stated in the file, where this data set has to be added too"


@dataclass(frozen=True)
class ChosenRows:
    """Where a new data set's rows are: a file by its place in the list, or a query of a connection."""

    file: str = ""
    connection: str = ""
    query: str = ""

    @property
    def words(self) -> str:
        """The source in words, without what a URL may hold."""
        return self.file or f"a query of {self.connection}"


class DataSetEditor(RecordedFile):
    """Adds data sets to one agent: what the operator's folders and connections hold, and nothing else.

    Nothing is read of a file or a query but the names and types of its columns.
    """

    def __init__(self, agent: Agent, republish: Callable[[], None] = lambda: None) -> None:
        file = agent.settings.data_sets_file or agent.settings.policy_file.parent / "data-sets.toml"
        super().__init__(agent, file, (ADDED, FOUND_DATA_SETS))
        self._republish = republish

    @property
    def is_allowed(self) -> bool:
        """Whether agent.toml names folders or connections, and where added data sets are written."""
        settings = self._agent.settings
        return settings.data_sets_file is not None and bool(settings.data_folders or settings.connections)

    def _missing(self) -> str:
        return ""

    def files(self) -> list[str]:
        """Return the paths of what may be added, in order: files, and folders of Parquet files."""
        found = [path for folder in self._agent.settings.data_folders for path in files_below(folder)]
        return list(dict.fromkeys(found))

    def columns(self, chosen: ChosenRows) -> list[Proposal]:
        """Return the columns of a source and what is proposed for each by its name and type alone.

        Raises:
            EditFaultError: it is not among what may be added, it is a data set already, or it cannot be read.
        """
        try:
            found = self._source(chosen, "a-data-set").open_schema()
        except DataError as error:
            raise EditFaultError(str(error)) from None
        if len(found) > COLUMNS_SHOWN:
            raise EditFaultError(f"it has more than {COLUMNS_SHOWN} columns: name it in agent.toml")
        return [proposal(column) for column in found]

    def beside(self, chosen: ChosenRows) -> list[str]:
        """Return the names of data sets that are queries of the same database."""
        settings = self._agent.settings
        if chosen.connection not in settings.connections:
            return []
        found = SourceSettings(source=settings.connections[chosen.connection], query=chosen.query)
        return [one.name for one in settings.data_sets if one.is_of_same_database(found)]

    def preview(self, chosen: ChosenRows, said: Mapping[str, Any]) -> list[str]:
        """Return the lines that adding a data set would add to the file; raises EditFaultError."""
        now = self.read()
        return diff_of(now.text, self._text_with(now.text, chosen, said)[0])

    def add(self, chosen: ChosenRows, said: Mapping[str, Any], by: Person) -> str:
        """Add a data set: record it, open its account, write it to the file, and answer by it.

        Args:
            chosen: where its rows are.
            said: the fields of ``[[data_sets]]`` but for the source.
            by: who adds it.

        Returns:
            Its name.

        Raises:
            EditFaultError: it cannot be taken, or the file cannot be written.
        """
        by.require("admin")
        agent = self._agent
        with self.lock:
            now = self.read()
            text, added = self._text_with(now.text, chosen, said)
            settings = agent.settings.with_data_set(added)
            self._put(
                now,
                text,
                by,
                partial(agent.open_account, data_set=added, policy=agent.policy),
                partial(agent.use_settings, settings),
            )
        self._republish()
        log.info("data_set_added", person=by.name, data_set=added.name)
        return added.name

    def _text_with(
        self, text: str, chosen: ChosenRows, said: Mapping[str, Any]
    ) -> tuple[str, DataSetSettings]:
        """Return the file's text with a data set more, and that data set."""
        name = str(said.get("name", ""))
        source = self._source(chosen, name, said)
        if source.people is None:
            self._require_new_account(name)
        self.columns(chosen)
        table = {"name": name, **self._place(chosen)}
        table |= {key: found for key, found in said.items() if key != "name"}
        return text + ("\n" if text else "") + tomlkit.dumps({"data_sets": [table]}), source

    def _place(self, chosen: ChosenRows) -> dict[str, str]:
        if chosen.file:
            return {"source": chosen.file}
        return {"connection": chosen.connection, "query": chosen.query}

    def _source(
        self, chosen: ChosenRows, name: str, said: Mapping[str, Any] | None = None
    ) -> DataSetSettings:
        """Return the data set that is chosen; nothing is opened."""
        settings = self._agent.settings
        place: dict[str, Any] = {}
        if chosen.file:
            if chosen.file not in self.files():
                raise EditFaultError("that file is not in the folders that agent.toml allows")
            place = {"source": chosen.file}
        elif chosen.connection not in settings.connections:
            raise EditFaultError("choose a file, or a connection and a query")
        elif not chosen.query.strip() or len(chosen.query) > QUERY_LENGTH_MAX:
            raise EditFaultError(f"write a query, of {QUERY_LENGTH_MAX} characters at most")
        else:
            place = {"source": settings.connections[chosen.connection], "query": chosen.query}
            try:
                require_one_query(place["source"], chosen.query)
            except DataError as error:
                raise EditFaultError(str(error)) from None
        found = SourceSettings.model_validate({**place, "folder": self.file.parent})
        for one in settings.data_sets:
            if one.is_of_same_rows(found):
                raise EditFaultError(
                    f"the data set {one.name} is of the same rows: {TWO_ACCOUNTS}; agent.toml may name both, "
                    "with the same people"
                )
        if name in {one.name for one in settings.data_sets}:
            raise EditFaultError(f"there is a data set {name} already: give another name")
        blank = {"epsilon": 1.0, "delta": 0.0} if said is None else said
        try:
            data_set = DataSetSettings.model_validate(
                {**blank, **place, "name": name, "folder": self.file.parent}
            )
        except ValidationError as error:
            raise EditFaultError(fault_words(error)) from None
        for one in settings.data_sets if said is not None else ():
            if one.account == data_set.account and one.terms != data_set.terms:
                raise EditFaultError(
                    f"the account {one.account} is that of {one.name} too: write its epsilon, "
                    f"{one.epsilon:g}, and its delta, {one.delta:g}"
                    + OTHER_SHARES
                    * (one.terms[2:] != data_set.terms[2:])
                )
        return data_set

    def _require_new_account(self, name: str) -> None:
        """Refuse a name whose account has paid for studies: other people's, of a data set that is gone."""
        account = read_from(self._agent.engine, all_accounts).get(name)
        if account is not None and account.debits:
            raise EditFaultError(f"the ledger has debits of a data set {name}: give another name")


def files_below(folder: Path) -> list[str]:
    """Return the data files in and below a folder, and its folders of Parquet files; no link is followed."""
    root, found, seen = folder.resolve(), dict[str, None](), 0
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        below = Path(place).relative_to(root).parts
        for name in sorted(names):
            path = Path(place, name)
            seen += 1
            if name.startswith(("_", ".")) or not name.endswith(SUFFIXES) or not _is_regular(path):
                continue
            if name.endswith(".parquet") and below:
                keyed = next((number for number, part in enumerate(below) if "=" in part), len(below))
                if keyed:
                    found[f"{Path(root, *below[:keyed])}/"] = None
            if not any("=" in part for part in below):
                found[str(path)] = None
        if seen > 10 * FILES_SHOWN or len(found) >= FILES_SHOWN:
            break
    return list(found)[:FILES_SHOWN]


def _is_regular(path: Path) -> bool:
    """Say whether a file lies there itself: no link, and no pipe, which would be waited for."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def diff_of(before: str, after: str) -> list[str]:
    """Return the lines of a difference between two texts."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2)
    return list(lines)[2:]
