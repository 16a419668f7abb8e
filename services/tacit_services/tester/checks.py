"""The checks of new studies: few at once, one for each analyst, in threads that the end of the process ends.

What a study of three kilobytes fixes may take a second of processor time and tens of megabytes to compute.
Requests share some tens of threads, which must be there for everybody else.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit_services.shared.http_server import Stopping
from tacit_services.shared.problem_responses import ProblemError

AT_ONCE_MAX = 2
"""Checks at once: an analyst's dear study leaves room for another's."""

WAITING_MAX, WAITING_BYTES_MAX = 100, 2**22
"""Studies of one analyst that wait, and their bytes. Most have a few thousand and take milliseconds; a
hundred of the dearest take a minute or two."""

RETRY_S = 5
"""When an analyst with too many studies that wait may try again."""

LOOK_S = 0.5
"""How often it is looked whether the service is stopping."""

Result = TypeVar("Result")


@dataclass(eq=False)
class _Check:
    """One check: who asked for it, what it takes, and what comes of it."""

    analyst: str
    size_bytes: int
    work: Callable[[], Any]
    outcome: "asyncio.Future[Any]"


class Checks:
    """Runs the checks, each analyst's in their order and the analysts' in turn.

    Used in event loops, of which there may be several at once: each check ends in the one that asked for it.

    Args:
        stopping: whether the service has been asked to stop: then nobody waits for a check any more.
    """

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._waiting: dict[str, deque[_Check]] = {}
        """By analyst; whose turn it is comes first."""
        self._checking: set[str] = set()
        self._changing = threading.Lock()

    async def run(
        self,
        analyst: str,
        size_bytes: int,
        work: Callable[[], Result],
        on_gone: Callable[[Callable[[], None] | None], None],
    ) -> Result:
        """Return what ``work`` (blocking) returns, once it has had its turn, or raise what it raises.

        Args:
            analyst: who asked.
            size_bytes: how much is held while it waits.
            work: the check; it is not begun once its caller has gone.
            on_gone: has what it is given called when the caller goes; None takes that back.

        Raises:
            ProblemError: ``rate-limited``: too much waits already; ``not-ready``: the service stops.
        """
        check = _Check(analyst, size_bytes, work, asyncio.get_running_loop().create_future())
        with self._changing:
            mine = self._waiting.get(analyst, ())
            held_bytes = sum(check.size_bytes for check in mine)
            if len(mine) >= WAITING_MAX or held_bytes + size_bytes > WAITING_BYTES_MAX:
                raise ProblemError("rate-limited", retry_after_s=RETRY_S)
            self._waiting.setdefault(analyst, deque()).append(check)
        on_gone(check.outcome.cancel)  # type: ignore[arg-type]
        try:
            self._begin()
            while not (await asyncio.wait({check.outcome}, timeout=LOOK_S))[0]:
                if self._stopping.requested:
                    raise ProblemError("not-ready", retry_after_s=RETRY_S)
            if check.outcome.cancelled():
                raise ProblemError("not-ready", retry_after_s=RETRY_S)  # nobody is there to read it
            result: Result = check.outcome.result()
            return result
        finally:
            on_gone(None)
            check.outcome.cancel()
            self._begin()  # it may have been the first of those that wait

    def _begin(self) -> None:
        """Begin what may begin: of each analyst whose turn it is, the oldest check that is still wanted."""
        with self._changing:
            for analyst, checks in list(self._waiting.items()):
                wanted = deque(check for check in checks if not check.outcome.done())
                if wanted and analyst not in self._checking and len(self._checking) < AT_ONCE_MAX:
                    self._checking.add(analyst)
                    # Not one of the requests' threads: those keep a process that is to stop until they end.
                    begun = (wanted.popleft(),)
                    threading.Thread(target=self._check, args=begun, name="check", daemon=True).start()
                self._waiting[analyst] = wanted
                if not wanted:
                    del self._waiting[analyst]

    def _check(self, check: _Check) -> None:
        try:
            result = check.work()
        except BaseException as error:
            ended = _failing(check.outcome, error)
        else:
            ended = _ending(check.outcome, result)
        with self._changing:
            self._checking.discard(check.analyst)
            if check.analyst in self._waiting:  # the others' turn comes first
                self._waiting[check.analyst] = self._waiting.pop(check.analyst)
        with suppress(RuntimeError):  # the service has stopped, and nobody waits
            check.outcome.get_loop().call_soon_threadsafe(ended)
        self._begin()


def _failing(outcome: "asyncio.Future[Any]", error: BaseException) -> Callable[[], None]:
    return lambda: None if outcome.done() else outcome.set_exception(error)


def _ending(outcome: "asyncio.Future[Any]", result: Any) -> Callable[[], None]:
    return lambda: None if outcome.done() else outcome.set_result(result)
