"""Retention: a tester's worker archives and deletes, a few at a time, studies that were kept long enough."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy.engine import Engine

from tacit_services.shared.clock import Clock
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.archive.archiving import Archiver
from tacit_services.tester.archive.command import DAY_S
from tacit_services.tester.archive.files import ArchiveError, open_folder
from tacit_services.tester.settings import TesterSettings

BATCH = 10
"""Studies of one turn: a few seconds, after which verdicts come first again."""

PERIOD_S = 60.0
"""Between two looks that found less than a batch."""

TROUBLE_S = 600.0
"""Until the next try where the archive could not be written."""

log = structlog.get_logger()


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
        named = {
            "completed": settings.retention_completed_days,
            "incomplete": settings.retention_incomplete_days,
            "cancelled": settings.retention_cancelled_days,
        }
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
