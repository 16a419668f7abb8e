"""Archiving of ended studies: a file first, durable and verified; then, where asked, the rows are deleted.

A study is archived once it has a verdict: completed, incomplete or cancelled. One whose verdict could not be
computed has no transcript that could be verified, and stays. So does, among those to be deleted, a study
whose release a later study reads again: until that one is archived too, whose transcript holds the release.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.decimals import read_number
from tacit_protocol.terminal import printable
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import forget_deleted, read_from, run_transaction
from tacit_services.shared.failpoints import ArchiveStep, reached
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.archive.folder import (
    ArchivedStudy,
    ArchiveError,
    ArchiveFolder,
    file_digest,
    open_archive,
    open_folder,
)
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import (
    ACCEPTANCES,
    ARCHIVED,
    CANCELLATIONS,
    DECLINES,
    JOBS,
    MASK_KEYS,
    PROGRESS,
    RELEASES,
    REUSES,
    SEALED,
    STUDIES,
    STUDY_OWNERS,
    VERDICTS,
)

ENDED = ("completed", "incomplete", "cancelled")
"""States with a signed verdict."""

PAGE = 100
"""Studies that are looked for at once."""

# What names another row goes before it.
_ROWS = (
    SEALED,
    REUSES,
    ACCEPTANCES,
    MASK_KEYS,
    RELEASES,
    DECLINES,
    CANCELLATIONS,
    JOBS,
    PROGRESS,
    VERDICTS,
    STUDY_OWNERS,
)

log = structlog.get_logger()


@dataclass
class Archived:
    """What a run did."""

    written: list[str] = field(default_factory=list)
    """Studies whose file is there and durable."""
    deleted: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """Studies that were not deleted, as a later study reads a release of theirs."""
    refused: dict[str, str] = field(default_factory=dict)
    """Studies that were left alone, and why."""


class Archiver:
    """Archives into one folder.

    Args:
        engine: the tester's database.
        folder: where to.
        clock: Unix time in seconds, for tombstones.
        delete: whether rows are deleted once their file is durable and verified.
    """

    def __init__(self, engine: Engine, folder: ArchiveFolder, clock: Clock, *, delete: bool) -> None:
        self._engine = engine
        self._folder = folder
        self._clock = clock
        self._delete = delete

    def run(self, ended_before: Mapping[str, int], studies_max: int | None = None) -> Archived:
        """Archive the studies of each state that ended before its time, the newest first.

        Newest first, as a study that reads another's release is the newer one of the two. With
        ``studies_max``, at most so many are deleted, and those that others need are passed over.

        Raises:
            ArchiveError: the folder holds something that it should not; what was archived before is.
            OSError: the disk is full or the folder cannot be written; likewise.
            DatabaseError: likewise.
        """
        done = Archived()
        for study in self._found(ended_before, free=studies_max is not None):
            if studies_max is not None and len(done.deleted) + len(done.refused) >= studies_max:
                break
            if self._delete or not self._folder.holds(study):
                self._archive(study, done)
        if done.deleted:
            forget_deleted(self._engine)
        return done

    def _found(self, ended_before: Mapping[str, int], *, free: bool) -> Iterator[str]:
        before: int | None = None
        while True:
            query = _due(ended_before, before, free=free)
            rows = read_from(self._engine, lambda c, q=query: c.execute(q).all())  # type: ignore[misc]
            for row in rows:
                yield str(row.digest)
            if len(rows) < PAGE:
                return
            before = int(rows[-1].sequence)

    def _archive(self, study: str, done: Archived) -> None:
        read = read_from(self._engine, _read, study)
        if read is None:
            return  # another process was quicker
        entry, transcript = read
        self._folder.store(entry, transcript)
        try:
            verify_transcript(self._folder.path_of(study).read_bytes())
        except VerificationError as error:
            log.warning("archive_not_verified", study=study, step=error.step)
            done.refused[study] = f"its file does not verify ({error}); its rows stay"
            return
        done.written.append(study)
        reached(ArchiveStep.VERIFIED)
        if not self._delete:
            return
        self._folder.require_same(study, transcript)
        now = int(self._clock())
        is_gone = run_transaction(self._engine, lambda connection: _delete(connection, entry, now))
        (done.deleted if is_gone else done.held).append(study)
        reached(ArchiveStep.DELETED)


def _due(ended_before: Mapping[str, int], sequence_before: int | None, *, free: bool) -> sa.Select[Any]:
    """Return a page of the studies that are due; with ``free``, none that one which is not due reads."""
    query = (
        sa.select(STUDIES.c.digest, STUDIES.c.sequence)
        .join(VERDICTS, VERDICTS.c.study == STUDIES.c.digest)
        .where(_is_due(STUDIES, VERDICTS, ended_before))
        .order_by(STUDIES.c.sequence.desc())
        .limit(PAGE)
    )
    if sequence_before is not None:
        query = query.where(STUDIES.c.sequence < sequence_before)
    if not free:
        return query
    later, verdicts = STUDIES.alias(), VERDICTS.alias()
    readers = (
        sa.select(REUSES.c.study)
        .join(later, later.c.digest == REUSES.c.study)
        .outerjoin(verdicts, verdicts.c.study == REUSES.c.study)
        .where(REUSES.c.source == STUDIES.c.digest)
        .where(sa.not_(sa.func.coalesce(_is_due(later, verdicts, ended_before), sa.false())))
    )
    return query.where(~sa.exists(readers.correlate(STUDIES)))


def _is_due(
    studies: sa.FromClause, verdicts: sa.FromClause, ended_before: Mapping[str, int]
) -> sa.ColumnElement[bool]:
    states = (
        sa.and_(studies.c.state == state, verdicts.c.created_at < time)
        for state, time in ended_before.items()
        if state in ENDED
    )
    return sa.or_(sa.false(), *states)


def _read(connection: Connection, study: str) -> tuple[ArchivedStudy, bytes] | None:
    """Read an ended study whole; None where it is not here any more."""
    row = connection.execute(
        sa.select(STUDIES, VERDICTS.c.created_at.label("ended_at"))
        .join(VERDICTS, VERDICTS.c.study == STUDIES.c.digest)
        .where(STUDIES.c.digest == study, STUDIES.c.state.in_(ENDED))
    ).one_or_none()
    if row is None:
        return None
    transcript = transcript_of(connection, study)
    if transcript is None:
        raise RegisteredProblemError("verdict-pending")
    entry = ArchivedStudy(
        study=study,
        state=row.state,
        title=row.title,
        procedure=row.procedure,
        created_at=row.created_at,
        deadline=row.deadline,
        ended_at=row.ended_at,
        file=f"{study}.json",
        file_digest=file_digest(transcript),
        size_bytes=len(transcript),
    )
    return entry, transcript


def _delete(connection: Connection, entry: ArchivedStudy, now: int) -> bool:
    """Put a tombstone in the place of an ended study; False where a later study needs it, or it is gone."""
    needed = sa.select(REUSES.c.study).where(REUSES.c.source == entry.study)
    state = sa.select(STUDIES.c.state).where(STUDIES.c.digest == entry.study)
    if connection.execute(state).scalar_one_or_none() not in ENDED:
        return False
    if connection.execute(needed.limit(1)).first() is not None:
        return False
    connection.execute(
        ARCHIVED.insert().values(
            study=entry.study,
            state=entry.state,
            ended_at=entry.ended_at,
            archived_at=now,
            file_digest=entry.file_digest,
        )
    )
    for table in _ROWS:
        connection.execute(table.delete().where(table.c.study == entry.study))
    connection.execute(STUDIES.delete().where(STUDIES.c.digest == entry.study))
    reached(ArchiveStep.TOMBSTONE_INSERTED)
    return True


DAY_S = 86_400


def add_archive_arguments(command: argparse.ArgumentParser) -> None:
    """Add what ``archive`` needs to the tester's own command line."""
    age = command.add_mutually_exclusive_group(required=True)
    age.add_argument("--before", type=_date, metavar="DATE", help="studies that ended before 2026-01-31, UTC")
    age.add_argument("--older-than", type=_days, metavar="DAYS", help="studies that ended so many days ago")
    command.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the archive")
    command.add_argument("--state", choices=ENDED, action="append", help="only these; may be given again")
    command.add_argument(
        "--delete", action="store_true", help="delete from the database what is durable and verified"
    )


def archive(engine: Engine, options: argparse.Namespace, clock: Clock) -> Archived:
    """Archive what the options say.

    Raises:
        ArchiveError: the folder cannot be written, or holds what it should not.
        DatabaseError: the database cannot be reached, or is full.
    """
    if options.before is not None:
        before = int(datetime.combine(options.before, datetime.min.time(), UTC).timestamp())
    else:
        before = int(clock() - options.older_than * DAY_S)
    ended_before = dict.fromkeys(options.state or ENDED, before)
    try:
        with open_folder(options.to) as folder:
            return Archiver(engine, folder, clock, delete=options.delete).run(ended_before)
    except OSError as error:
        raise ArchiveError(f"the archive {options.to} cannot be written: {error.strerror}") from None


def text_of_archive(done: Archived) -> str:
    """Return what was done as lines for a terminal."""
    lines = [f"archived: {len(done.written)} studies", f"deleted: {len(done.deleted)} studies"]
    if done.held:
        lines.append(f"kept: {len(done.held)} studies whose releases later studies here read again")
    lines += [f"refused: study {study}: {reason}" for study, reason in done.refused.items()]
    return "\n".join(lines) + "\n"


def add_verification_arguments(command: argparse.ArgumentParser) -> None:
    """Add what ``verify-archive`` needs to the tester's own command line."""
    command.add_argument("--archive", type=Path, required=True, metavar="FOLDER", help="the archive")
    command.add_argument(
        "--tester-key",
        action="append",
        default=[],
        metavar="KEY",
        help="may be given again, after a rotation",
    )


def verify_archive(options: argparse.Namespace, write: Callable[[str], object]) -> bool:
    """Check a whole archive, and write what is wrong as it is found; returns whether all is well.

    Raises:
        ArchiveError: the folder is no archive, or cannot be read.
    """
    faults = 0
    try:
        with open_archive(options.archive, options.tester_key) as check:
            for name, fault in check.faults():
                faults += 1
                write(f"{printable(f'{name}: {fault}')}\n")
    except OSError as error:
        raise ArchiveError(f"the archive {options.archive} cannot be read: {error.strerror}") from None
    write(f"studies: {check.studies}\nindex: SHA-256 {check.index_digest}\n")
    write(f"faults: {faults}\n" if faults else "the index and every file hold\n")
    return not faults


def _date(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise argparse.ArgumentTypeError("a date is written 2026-01-31") from None


def _days(text: str) -> float:
    try:
        days = read_number(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= time.time() / DAY_S:
        raise argparse.ArgumentTypeError("a number of days, 0 or more")
    return days


BATCH = 10
"""Studies of one turn: a few seconds, after which verdicts come first again."""

PERIOD_S = 60.0
"""Between two looks that found less than a batch."""

TROUBLE_S = 600.0
"""Until the next try where the archive could not be written."""


@dataclass(frozen=True)
class Retention:
    """How long ended studies stay in the database, by state, and where they go then."""

    folder: Path
    days: Mapping[str, int]

    @classmethod
    def of(cls, settings: TesterSettings) -> "Retention | None":
        """Return what the settings say; None where everything is kept for ever.

        Raises:
            SettingsError: studies are to be archived, and no folder is named.
        """
        named = {state: getattr(settings, f"retention_{state}_days") for state in ENDED}
        days = {state: kept for state, kept in named.items() if kept is not None}
        if not days:
            return None
        if settings.archive_folder is None:
            raise SettingsError("setting archive_folder: name the folder that ended studies are moved to")
        return cls(settings.archive_folder, days)


class Keeper:
    """Applies a retention whenever it has a turn, which it takes when verdicts have none to take."""

    def __init__(self, engine: Engine, retention: Retention, clock: Clock) -> None:
        self._engine = engine
        self._retention = retention
        self._clock = clock
        self._next_s = time.monotonic()

    def take_turn(self) -> bool:
        """Archive and delete a batch if it is time; returns whether anything was deleted.

        An archive that cannot be written is logged and tried again later; no study is deleted meanwhile.

        Raises:
            DatabaseError: the database cannot be reached, or is full.
        """
        if time.monotonic() < self._next_s:
            return False
        now, retention = int(self._clock()), self._retention
        ended_before = {state: now - days * DAY_S for state, days in retention.days.items()}
        self._next_s = time.monotonic() + TROUBLE_S
        try:
            with open_folder(retention.folder) as folder:
                done = Archiver(self._engine, folder, self._clock, delete=True).run(ended_before, BATCH)
        except (ArchiveError, OSError) as error:
            log.error("archive_not_written", kind=type(error).__name__, reason=str(error))
            return False
        if not done.refused:  # what does not verify would be verified again and again
            self._next_s = time.monotonic() + (0.0 if len(done.deleted) == BATCH else PERIOD_S)
        if done.deleted:
            log.info("archived", studies=len(done.deleted))
        return bool(done.deleted)


def idle_of(settings: TesterSettings, engine: Engine, clock: Clock) -> Callable[[], bool]:
    """Return what the tester's worker does when no verdict is due.

    Raises:
        SettingsError: as :meth:`Retention.of`.
    """
    retention = Retention.of(settings)
    return (lambda: False) if retention is None else Keeper(engine, retention, clock).take_turn
