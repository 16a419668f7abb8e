"""Workers that are processes of a Dask cluster inside the institution. docs/how-to/dask.md.

What is computed is pure, so an item whose worker died is sent again, and so is what all items share when the
last copy of it is lost. Nothing is spent meanwhile: noise is drawn by the caller, after the last result.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

from tacit_protocol.workers import ItemT, ResultT, SharedT, WorkersUnavailableError
from tacit_services.shared.cluster_client import Certificates, ClusterClient, Patience
from tacit_services.shared.cluster_map import ClusterMap
from tacit_services.shared.cluster_task import Sealed, Work
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.loop_thread import LoopStoppedError, LoopThread

AnswerT = TypeVar("AnswerT")

CLOSED = "the connection to the Dask cluster was closed"


class ClusterWorkers:
    """A Dask cluster as workers. Nothing is connected to before the first use.

    Raises:
        SettingsError: the certificates' files cannot be used.
    """

    in_process = False

    def __init__(
        self, address: str, certificates: Certificates | None, patience: Patience | None = None
    ) -> None:
        if certificates is not None:
            certificates.require_usable()
        self._cluster = ClusterClient(address, certificates, patience or Patience())
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    @classmethod
    def of(cls, settings: ComputeSettings) -> Self:
        """Return the workers that settings name."""
        files = (settings.dask_ca_file, settings.dask_certificate_file, settings.dask_key_file)
        present = [file for file in files if file is not None]
        assert settings.dask_scheduler is not None  # noqa: S101 (the caller's condition)
        certificates = Certificates(*present) if settings.dask_scheduler.startswith("tls://") else None
        return cls(settings.dask_scheduler, certificates)

    def _running(self) -> LoopThread:
        with self._starting:
            if self._closed:
                raise WorkersUnavailableError(CLOSED)
            if self._thread is None:
                self._thread = LoopThread("dask")
                self._finalizer = weakref.finalize(self, self._thread.stop, self._cluster.close)
            return self._thread

    def _call(self, coroutine: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        try:
            thread = self._running()
        except WorkersUnavailableError:
            coroutine.close()
            raise
        try:
            return thread.call(coroutine)
        except LoopStoppedError:
            raise WorkersUnavailableError(CLOSED) from None

    @property
    def count(self) -> int:
        """How many items are computed at once: the threads of all workers; 1 while they cannot be asked."""
        try:
            return max(1, sum(self.threads().values()))
        except WorkersUnavailableError:
            return 1

    def threads(self) -> dict[str, int]:
        """Return the workers' addresses, each with its number of threads.

        Raises:
            WorkersUnavailableError: the scheduler cannot be reached, or a worker's versions differ.
        """
        return self._call(self._cluster.threads())

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order.

        ``shared`` is sent once. Memory does not grow with the items: twice as many are under way as there
        are workers' threads.

        Raises:
            WorkersUnavailableError: the scheduler or all workers stayed away, or workers kept dying.
            TaskFailedError: the function failed with an exception that is not Tacit's own.
        """
        running = ClusterMap(self._cluster, Sealed(Work(function, shared)))
        upcoming, underway = iter(items), 0
        try:
            self._call(running.start())
            while True:
                more = [Sealed(item) for item in itertools.islice(upcoming, max(0, running.ahead - underway))]
                underway += len(more)
                if more:
                    self._call(running.submit(more))
                if not underway:
                    return
                outcome = self._call(running.next()).open()
                underway -= 1
                if outcome.error is not None:
                    raise outcome.error
                yield outcome.value
        finally:
            # Not waited for: a generator may be collected in any thread, that of the loop included.
            if self._thread is not None:
                self._thread.soon(running.end)

    def close(self) -> None:
        """Let go of the connection, for good; maps that are under way end with WorkersUnavailableError."""
        with self._starting:
            self._closed = True
        if self._thread is not None:
            self._finalizer()
