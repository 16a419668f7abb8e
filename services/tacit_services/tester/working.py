"""Runs a tester's worker: in a thread beside the service, or in a process of its own that serves nothing."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from sqlalchemy.engine import Engine

from tacit_services.shared.clock import system_clock
from tacit_services.shared.database import DatabaseError
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.endings import Signer
from tacit_services.tester.jobs import Worker
from tacit_services.tester.studies import Identity, Studies
from tacit_services.tester.waiting import RECHECK_S, Bell

JOIN_S = 1.0
"""How long a stopping process waits for its worker; a job under way is then given back for another."""

GIVE_BACK_S = 2.0
"""How long giving back may take. A job that could not be given back is free when its lease ends."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger()


class Working:
    """A worker in a thread of its own. Nothing that goes wrong in it may end it for good.

    Args:
        worker: what works.
        bell: wakes it when something has come; without a ring it looks once in ``RECHECK_S``.
        stopping: whether it has been asked to stop.
        did: called after something was done, in the worker's thread.
        idle: called when no verdict is due; does a little of what can wait, and returns whether it did.
    """

    def __init__(
        self,
        worker: Worker,
        bell: Bell,
        stopping: Stopping,
        did: Callable[[], None] = lambda: None,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._worker, self._bell, self._stopping, self._did = worker, bell, stopping, did
        self._idle = idle
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop working within ``JOIN_S + GIVE_BACK_S`` seconds; a job under way is given back."""
        self._stopping.requested = True
        self._bell.ring()
        self._thread.join(JOIN_S)
        if not self._thread.is_alive():
            return
        leaving = threading.Thread(target=self._leave, name="leaving", daemon=True)
        leaving.start()
        leaving.join(GIVE_BACK_S)

    def _run(self) -> None:
        while not self._stopping.requested:
            seen, was_busy = self._bell.rings, False
            try:
                was_busy = self._worker.run_once() or self._idle()
                if was_busy:
                    self._did()
            except DatabaseError as error:
                log.warning("worker_waits_for_database", kind=type(error).__name__)
            except Exception as error:
                log.error("worker_failed", fault=describe_exception(error))
            if not was_busy:
                self._bell.wait_blocking(seen, RECHECK_S)

    def _leave(self) -> None:
        try:
            self._worker.leave()
        except DatabaseError as error:
            log.warning("job_not_given_back", kind=type(error).__name__)


def work(
    engine: Engine, identity: Identity, signer: Signer, idle: Callable[[], bool] = lambda: False
) -> None:
    """Compute verdicts until SIGTERM or SIGINT; call it in the main thread.

    Other processes' workers on the same database go on with whatever this one leaves. ``idle`` is as in
    :class:`Working`.
    """
    with _stop_asked() as wait_for_stop:
        worker = Worker(engine, Studies(engine, identity), signer, system_clock)
        working = Working(worker, Bell(), Stopping(), idle=idle)
        working.start()
        log.info("working")
        wait_for_stop()
        working.stop()
    log.info("stopped_working")


@contextmanager
def _stop_asked() -> Iterator[Callable[[], None]]:
    """Take SIGTERM and SIGINT, and yield what waits for one; one that has come before counts.

    By a pipe, which also sees a signal that the system hands to a thread of a numerical library.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
    signal.set_wakeup_fd(writer)
    try:
        yield lambda: _read_one(reader)
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _read_one(reader: int) -> None:
    os.read(reader, 1)
