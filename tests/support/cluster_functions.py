"""Functions that tests have the workers of a Dask cluster run; workers import this module."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import DataError
from tacit_services.shared.cluster import Sealed, Task, TaskResult

SECRET = "patient-4711-has-gout"  # noqa: S105 (what no log may hold)
"""A value in data, in arguments and in the texts of exceptions."""


def square(shared: int, item: int) -> int:
    return shared + item * item


def echo(shared: str, item: str) -> str:
    return item


def trace(shared: Path, item: int) -> int:
    """Leave a trace of having been run, and by which process; slowly enough to be killed."""
    (shared / f"{item}-{os.getpid()}").touch()
    time.sleep(0.02)
    return item * item


def wait_for(shared: Path, item: str) -> str:
    """Return once there is a file of that name."""
    while not (shared / item).exists():
        time.sleep(0.01)
    return item


def sum_of(shared: npt.NDArray[np.float64], item: int) -> float:
    return float(shared[item:].sum())


class Counted:
    """Says how often it was unpickled in this process."""

    opened = 0

    def __setstate__(self, state: object) -> None:
        Counted.opened += 1

    def __getstate__(self) -> object:
        return {"some": "state"}


def openings(shared: Counted, item: int) -> tuple[int, int]:
    return os.getpid(), Counted.opened


def layout(shared: npt.NDArray[np.float64], item: npt.NDArray[np.float64]) -> list[bool]:
    return [array.flags[name] for array in (shared, item) for name in ("ALIGNED", "WRITEABLE")]


def fail(shared: str, item: str) -> None:
    raise ValueError(f"{shared} {item}")


def fail_of_data(shared: str, item: str) -> None:
    raise DataError("the data set has no column 'age'")


class Unpicklable:
    """Quotes the secret where it is pickled, and where it is shown."""

    def __reduce__(self) -> str:
        raise ValueError(SECRET)

    def __repr__(self) -> str:
        return SECRET


def unpicklable(shared: str, item: str) -> Unpicklable:
    return Unpicklable()


def leave(shared: str, item: str) -> None:
    sys.exit(SECRET)


def kill_worker(shared: Path, item: int) -> int:
    """Leave a trace, and end the worker's process as a lack of memory would: every time."""
    (shared / f"{item}-{os.getpid()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def unwrapped(ours: Sealed[dict[str, str]], work: Sealed[Task], item: Sealed[str]) -> Sealed[TaskResult]:
    """Run a task as Dask would have it, without the wrapper that keeps its exceptions."""
    opened = work.open()
    return Sealed(TaskResult(opened.function(opened.shared, item.open())))
