"""What a worker runs: nothing of its arguments or exceptions can be seen, and arrays come as they were."""

import pickle
from typing import Any

import cluster_functions as functions
import numpy as np
import pytest
from cluster_functions import SECRET

from tacit_services.agent.data.source import DataError
from tacit_services.shared.cluster import (
    Outcome,
    Sealed,
    TaskFailedError,
    Work,
    difference,
    run,
    versions,
)


class AwkwardError(DataError):
    """One of Tacit's own whose copy cannot be made."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


AwkwardError.__module__ = "tacit_services.awkward"


def raise_awkward(shared: object, item: object) -> None:
    raise AwkwardError(SECRET, SECRET)


def travelled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 (made in the line itself)


def outcome_of(function: Any, shared: object, item: object) -> Outcome:
    sent = travelled((Sealed(versions()), Sealed(Work(function, shared)), Sealed(item)))
    answer = run(*sent)
    assert isinstance(answer, Sealed)
    assert SECRET not in repr((*sent, answer))
    assert SECRET not in str(answer)
    opened = travelled(answer).open()
    assert isinstance(opened, Outcome)
    return opened


def test_an_exception_of_tacit_comes_back_itself_and_any_other_without_its_message() -> None:
    own = outcome_of(functions.fail_of_data, SECRET, SECRET).error
    assert type(own) is DataError
    assert str(own) == "the data set has no column 'age'"
    other = outcome_of(functions.fail, SECRET, SECRET).error
    assert type(other) is TaskFailedError
    assert "builtins.ValueError at" in str(other)
    assert "cluster_functions.py" in str(other)
    assert SECRET not in str(other)


@pytest.mark.parametrize("function", [functions.unpicklable, raise_awkward, functions.leave])
def test_what_cannot_travel_or_would_end_the_worker_is_described(function: Any) -> None:
    error = outcome_of(function, None, None).error
    assert type(error) is TaskFailedError
    assert SECRET not in str(error)


def test_arrays_come_aligned_and_writable_and_read_only_ones_stay_so() -> None:
    rows = np.arange(7.0)[1::2]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    for given, writable in ((np.arange(5.0), True), (rows, True), (frozen, False)):
        for padding in range(9):  # so that its bytes begin anywhere in what travels
            _, found = travelled(Sealed(("x" * padding, given))).open()
            assert found.flags["ALIGNED"]
            assert found.flags["WRITEABLE"] is writable
            assert found.tobytes() == given.tobytes()


def test_differences_are_told_where_they_are_short() -> None:
    ours = versions()
    assert difference(ours, dict(ours)) is None
    said = difference(ours, ours | {"numpy": "1.0", "instructions of NumPy": "SSE " * 50})
    assert said == f"numpy 1.0 where this service has {ours['numpy']}, other instructions of NumPy"
    assert difference(ours, {}) is not None
