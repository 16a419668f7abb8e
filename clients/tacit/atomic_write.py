"""Files that a user names, written whole or not at all: an error or an interrupt leaves what was there."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tacit.errors import InputError

MODE = 0o666
"""Of a new file, less what the user's mask takes away."""


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` once the block has ended well.

    It lies beside it until then. A device or a pipe is written as it is.

    Raises:
        InputError: it cannot be written; says why, and what to do.
    """
    require_writable(path)
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            with target.open("wb") as opened:
                yield opened
            return
        beside = target.with_name(f".tacit-{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as opened:
                yield opened
            if target.exists():
                beside.chmod(target.stat().st_mode & 0o777)
            beside.replace(target)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot(path, error) from error


def require_writable(path: Path) -> None:
    """Raise InputError where a file cannot be written: before the work that it is to hold, not after."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder = path.resolve().parent
        if not folder.is_dir():
            missing = errno.ENOTDIR if folder.exists() else errno.ENOENT
            raise OSError(missing, os.strerror(missing))
        places = [path] if path.exists() else []
        if path.is_file() or not places:
            places.append(folder)
        if not all(os.access(place, os.W_OK) for place in places):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError to pathlib
        raise _cannot(path, error) from error


def _cannot(path: Path, error: Exception) -> InputError:
    advice = {
        errno.ENOENT: "its folder does not exist: make it first, or name another",
        errno.EISDIR: "it is a folder: name a file in it",
        errno.ENOTDIR: "what should be its folder is a file: name another",
        errno.EACCES: "you may not write there: name another file",
        errno.ENOSPC: "the disk is full: make room, or name another",
    }
    known = advice.get(getattr(error, "errno", None) or 0)
    return InputError(f"cannot write {path}: {known or reason_of(error)}")


def reason_of(error: Exception) -> str:
    """Say in words why a file could not be read or written, without a library's own words around it."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error) or "it cannot be used"
