"""``python -m tacit_services.tester archive``: move ended studies into a folder of verifiable files.

And ``verify-archive``: check such a folder, without a tester.
"""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from sqlalchemy.engine import Engine

from tacit_protocol.terminal import printable
from tacit_services.shared.clock import Clock
from tacit_services.tester.archive.archiving import ENDED, Archived, Archiver
from tacit_services.tester.archive.checking import open_archive
from tacit_services.tester.archive.files import ArchiveError, open_folder

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
    if check.declines_unknown:
        write(f"verdicts of an earlier version, which do not say who declined: {check.declines_unknown}\n")
    write(f"faults: {faults}\n" if faults else "the index and every file hold\n")
    return not faults


def _date(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise argparse.ArgumentTypeError("a date is written 2026-01-31") from None


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= time.time() / DAY_S:
        raise argparse.ArgumentTypeError("a number of days, 0 or more")
    return days
