"""The task of a Dask worker: one item of a map, wrapped so that Dask's logs say nothing about it.

A worker writes a failing task's arguments and its exception's text into its log, and the scheduler keeps
keys and types. So what travels is sealed (bytes whose ``repr`` is empty), keys are random, and no exception
leaves :func:`run`: it returns as a value.
"""

import pickle
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any, Generic, TypeVar

from tacit_services.shared.arithmetic import arithmetic, prepare_to_compute
from tacit_services.shared.logging import describe_exception

ValueT = TypeVar("ValueT")

OWN_PACKAGES = ("tacit_protocol", "tacit_services")
"""Where exceptions are defined whose texts are known to quote no value; others come back by type alone."""

COMPARED = ("tacit", "numpy", "scipy", "pyarrow", "distributed")
"""Distributions that must be the same everywhere: other versions may round otherwise, or not understand."""

TOLD_MAX = 100
"""Longer than this, a difference is named and not told."""


class TaskFailedError(Exception):
    """A function failed in a worker; the text has its exception's type and lines of code, and no message."""


class Sealed(Generic[ValueT]):
    """A pickled value whose ``repr`` says nothing. It is unpickled once, where it is opened.

    Pickled in one piece, arrays come back aligned, and writable if they were so.
    """

    __slots__ = ("_lock", "_opened", "_payload")

    def __init__(self, value: ValueT) -> None:
        self._reset(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    def _reset(self, payload: bytes) -> None:
        self._payload, self._lock = payload, Lock()
        self._opened: list[ValueT] = []

    def open(self) -> ValueT:
        """Return the value: to every thread that asks the same one."""
        with self._lock:
            if not self._opened:
                self._opened.append(pickle.loads(self._payload))  # noqa: S301 (the cluster's certificates)
            return self._opened[0]

    def __reduce__(self) -> tuple[Callable[[bytes], "Sealed[Any]"], tuple[bytes]]:
        return _sealed, (self._payload,)

    def __repr__(self) -> str:
        return "Sealed"

    def __sizeof__(self) -> int:
        return len(self._payload)


def _sealed(payload: bytes) -> Sealed[Any]:
    made: Sealed[Any] = Sealed.__new__(Sealed)
    made._reset(payload)
    return made


@dataclass(frozen=True)
class Work:
    """A function and its first argument."""

    function: Callable[[Any, Any], Any]
    shared: Any


@dataclass(frozen=True)
class Outcome:
    """What came of an item: a value, or the exception to raise where it is waited for."""

    value: Any = None
    error: Exception | None = None


@cache
def versions() -> dict[str, str]:
    """Return what must be the same everywhere: versions, Python's to two places, and the arithmetic.

    Linear algebra uses one thread in this process from then on: its results may depend on their number.
    """
    prepare_to_compute()
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | {name: _version(name) for name in COMPARED} | arithmetic()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def difference(ours: dict[str, str], theirs: dict[str, str]) -> str | None:
    """Say in what a worker is not as this service, both told where they are short; None where all agree."""
    found = []
    for name, have in ours.items():
        other = theirs.get(name, "absent")
        if other != have:
            short = len(have) + len(other) <= TOLD_MAX
            found.append(f"{name} {other} where this service has {have}" if short else f"other {name}")
    return ", ".join(found) or None


def run(ours: Sealed[dict[str, str]], work: Sealed[Work], item: Sealed[Any]) -> Sealed[Outcome] | str:
    """Apply a function to one item; return its sealed outcome, or say how this worker differs.

    Whatever is raised is returned, so that nothing of it reaches the worker's log.
    """
    differs = difference(ours.open(), versions())
    if differs is not None:
        return differs
    try:
        opened = work.open()
        return Sealed(Outcome(opened.function(opened.shared, item.open())))
    except BaseException as error:
        return Sealed(Outcome(error=returnable(error)))


def returnable(error: BaseException) -> Exception:
    """Return an exception as it may travel: Tacit's own as it is, any other as its type and place alone."""
    if isinstance(error, Exception) and type(error).__module__.partition(".")[0] in OWN_PACKAGES:
        try:
            copied = pickle.loads(pickle.dumps(error))  # noqa: S301 (made in the line itself)
        except Exception:  # an exception that cannot travel is described
            copied = None
        if type(copied) is type(error):
            return error
    described = describe_exception(error)
    return TaskFailedError(f"{described['type']} at {'; '.join(described['frames'][-3:])}")
