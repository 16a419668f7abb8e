"""Workers that are processes of a Dask cluster inside the institution. docs/how-to/dask.md.

What is computed is pure, so an item whose worker died is sent again, and so is what all items share when the
last copy of it is lost. Nothing is spent meanwhile: noise is drawn by the caller, after the last result.

A worker writes a failing task's arguments and its exception's text into its log, and the scheduler keeps keys
and types. So what travels is sealed (bytes whose ``repr`` is empty), keys are random, and no exception leaves
:func:`run`: it returns as a value.
"""

import asyncio
import itertools
import logging
import pickle
import platform
import secrets
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Self, TypeAlias, TypeVar

import dask
import structlog
from distributed import Client, Future, KilledWorker, Security
from distributed.client import ClosedClientError, FutureCancelledError

from tacit_protocol.domain import AHEAD, ItemT, ResultT, SharedT, WorkersUnavailableError
from tacit_services.shared.compute import ComputeSettings, arithmetic, prepare_to_compute
from tacit_services.shared.logging import describe_exception
from tacit_services.shared.settings import SettingsError

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
class Task:
    """A function and its first argument."""

    function: Callable[[Any, Any], Any]
    shared: Any


@dataclass(frozen=True)
class TaskResult:
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


def run(ours: Sealed[dict[str, str]], work: Sealed[Task], item: Sealed[Any]) -> Sealed[TaskResult] | str:
    """Apply a function to one item; return its sealed outcome, or say how this worker differs.

    Whatever is raised is returned, so that nothing of it reaches the worker's log.
    """
    differs = difference(ours.open(), versions())
    if differs is not None:
        return differs
    try:
        opened = work.open()
        return Sealed(TaskResult(opened.function(opened.shared, item.open())))
    except BaseException as error:
        return Sealed(TaskResult(error=returnable(error)))


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


CLOSED = "the connection to the Dask cluster was closed"

CLOSE_S = 1.0
"""How long letting go of a connection is waited for."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all connections, in a daemon thread for the process's life."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dask", daemon=True).start()
    return loop


UNLIMITED = 2**62

CONFIGURATION = {
    # The source lines that called would go to the scheduler with every task.
    "distributed.diagnostics.computations.nframes": 0,
    # A chunk of rows may be an item; how many are under way is bounded.
    "distributed.admin.large-graph-warning-threshold": UNLIMITED,
}

LOGGERS = ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "tornado.application")
"""Those that Dask gives handlers of their own when it is imported."""

CERTIFICATE_WORDS = ("CERTIFICATE", "certificate", "SSLError", "SSLCert", "alert")
"""What a connection's error speaks of when the other end was reached and refused, or was refused here."""

log = structlog.get_logger()


@dataclass(frozen=True)
class RetryPolicy:
    """How long is waited for a cluster, in seconds, and how often what was lost is sent again."""

    connect_s: float = 10.0
    """For the scheduler on the first use, and for its answers."""
    reconnect_s: float = 60.0
    """For the scheduler, once it was lost."""
    workers_s: float = 60.0
    """For a first or another worker, while there is none."""
    look_s: float = 5.0
    """Between two looks at whether there are workers, while an item is waited for."""
    send_s: float = 300.0
    """For what all items share to reach the workers."""
    attempts: int = 4
    """Losses in a row, without a result between them, after which a map is given up."""
    pause_s: float = 0.5
    """Before what was lost is sent again; twice as long each time."""


@dataclass(frozen=True)
class Certificates:
    """The files of a TLS connection that both ends prove themselves in, PEM."""

    authority: Path
    certificate: Path
    key: Path

    def require_usable(self) -> None:
        """Raise SettingsError where they cannot be read or do not belong together."""
        try:
            self.security().get_connection_args("client")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "what they hold is no PEM, or does not fit together"
            raise SettingsError(
                f"the certificates of the Dask cluster cannot be used ({reason}): look at dask_ca_file, "
                "dask_certificate_file and dask_key_file"
            ) from None

    def security(self) -> Security:
        """Return them in Dask's form; the files are read whenever a connection is made."""
        return Security(
            require_encryption=True,
            tls_ca_file=str(self.authority),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
        )


class ClusterClient:
    """The client of one scheduler; its coroutines run in one loop."""

    def __init__(self, address: str, certificates: Certificates | None, patience: RetryPolicy) -> None:
        self.patience = patience
        self._address = address
        self._certificates = certificates
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._before = self._closed = False
        dask.config.set(CONFIGURATION)
        take_over_logs()

    async def connected(self) -> Client:
        """Return a client that is connected and whose workers have this service's versions.

        Raises:
            WorkersUnavailableError: the scheduler cannot be reached, or a worker's versions differ; or it
                was closed.
        """
        async with self._connecting:
            if self._closed:
                raise WorkersUnavailableError(CLOSED)
            if self._client is not None and self._client.status == "running":
                return self._client
            await self._let_go()
            client = await self._connect()
            try:
                await self._require_versions(client)
            except BaseException:
                await _close(client)
                raise
            self._client, self._before = client, True
            log.info("dask_connected", scheduler=self._address)
            return client

    async def _connect(self) -> Client:
        wait_s = self.patience.reconnect_s if self._before else self.patience.connect_s
        try:
            if self._certificates is not None:
                self._certificates.require_usable()
        except SettingsError as error:
            raise WorkersUnavailableError(str(error)) from None
        security = None if self._certificates is None else self._certificates.security()
        try:
            client: Client = await Client(
                self._address, asynchronous=True, timeout=wait_s, security=security, set_as_default=False
            )
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            raise WorkersUnavailableError(self._fault(error)) from None
        return client

    def _fault(self, error: BaseException) -> str:
        text = f"{error} {error.__cause__ or ''}"
        if self._certificates is not None and any(word in text for word in CERTIFICATE_WORDS):
            return f"the Dask scheduler at {self._address} and this service refuse each other's certificates"
        return f"the Dask scheduler at {self._address} cannot be reached"

    async def _require_versions(self, client: Client) -> None:
        """Raise WorkersUnavailableError where a worker's versions or arithmetic are not this service's.

        A worker that does not answer, or joins later, is looked at with every item.
        """
        try:
            async with asyncio.timeout(self.patience.connect_s):
                answers: dict[str, object] = await client.run(versions, on_error="return")
        except (OSError, TimeoutError):
            return
        for worker, theirs in answers.items():
            if isinstance(theirs, dict):
                differs = difference(versions(), theirs)
            else:
                differs = None if isinstance(theirs, OSError) else "no tacit that understands this one"
            if differs is not None:
                raise WorkersUnavailableError(not_alike(worker, differs))

    async def threads(self) -> dict[str, int]:
        """Return the addresses of the workers, each with its number of threads.

        Raises:
            WorkersUnavailableError: as for :meth:`connected`.
        """
        client = await self.connected()
        try:
            async with asyncio.timeout(self.patience.connect_s):
                found: dict[str, int] = await client.nthreads()
        except (OSError, TimeoutError):
            raise WorkersUnavailableError(f"the Dask scheduler at {self._address} does not answer") from None
        return dict(found)

    async def close(self) -> None:
        """Let go of the connection, for good: what waits for it ends with WorkersUnavailableError."""
        self._closed = True
        async with self._connecting:
            await self._let_go()

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _close(client)


def take_over_logs() -> None:
    """Have what Dask logs in this process go the way of its other logs, which hides arguments and messages.

    What its client says of a lost connection, with tracebacks, is said here in one line.
    """
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("distributed").setLevel(logging.WARNING)
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)


async def _close(client: Client) -> None:
    with suppress(OSError, TimeoutError):
        await client.close()


def not_alike(worker: str, differs: str) -> str:
    """Say what to do about a worker that might compute other bits."""
    return (
        f"the Dask worker {worker} has {differs}: all workers need this service's packages "
        "(requirements/dask.txt) and processors that compute alike (docs/how-to/dask.md)"
    )


LOST = (FutureCancelledError, KilledWorker, OSError, TimeoutError)
"""How Dask says that workers or data are gone."""

Answer: TypeAlias = Sealed[TaskResult] | str


@dataclass
class _Underway:
    """An item that was sent, kept until its result is here."""

    item: Sealed[Any]
    future: Future[Answer] | None
    """None where the connection had been given up before it was sent."""
    answer: asyncio.Task[Answer]
    """Fetches the result as soon as there is one."""

    def failed(self) -> bool:
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)

    def forget(self) -> None:
        """Let the workers forget it, too; the answer, not waited for any more, then ends by itself."""
        if self.future is not None:
            self.future.release()
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())


class ClusterMap:
    """One map; its coroutines and functions run in the connection's loop."""

    def __init__(self, cluster: ClusterClient, work: Sealed[Task]) -> None:
        self._cluster, self._work = cluster, work
        self._versions = Sealed(versions())
        self._client: Client | None = None
        self._shared: Future[Task] | None = None
        self._underway: deque[_Underway] = deque()
        self._losses = 0
        self.ahead = AHEAD
        """How many items to keep under way."""

    async def start(self) -> None:
        """Send what is shared to every worker.

        Raises:
            WorkersUnavailableError: there is no scheduler or no worker, or workers kept dying.
        """
        while True:
            try:
                await self._send_shared()
                return
            except LOST:
                await self._pause()

    async def _send_shared(self) -> None:
        patience = self._cluster.patience
        threads = await self._workers()
        self._client = client = await self._cluster.connected()
        try:
            async with asyncio.timeout(patience.send_s):
                sent = await client.scatter({_key(): self._work}, broadcast=True, hash=False)
        except TimeoutError:
            raise WorkersUnavailableError("the Dask cluster does not take what is to be computed") from None
        self._shared = next(iter(sent.values()))
        self.ahead = AHEAD * sum(threads.values())

    async def _workers(self) -> dict[str, int]:
        patience = self._cluster.patience
        deadline = asyncio.get_running_loop().time() + patience.workers_s
        while not (threads := await self._cluster.threads()):
            if asyncio.get_running_loop().time() > deadline:
                raise WorkersUnavailableError(_no_worker(patience.workers_s))
            await asyncio.sleep(min(patience.pause_s, patience.look_s))
        return threads

    async def submit(self, items: list[Sealed[Any]]) -> None:
        """Send items."""
        self._underway.extend(self._sent(item) for item in items)

    def _sent(self, item: Sealed[Any]) -> _Underway:
        assert self._client is not None  # noqa: S101 (narrows the type)
        try:
            future = self._client.submit(run, self._versions, self._shared, item, key=_key(), pure=False)
        except ClosedClientError:  # Dask gave up a scheduler that stayed away
            return _Underway(item, None, asyncio.ensure_future(_lost()))
        return _Underway(item, future, asyncio.ensure_future(future.result()))

    async def next(self) -> Sealed[TaskResult]:
        """Return the outcome of the item that was sent first.

        Raises:
            WorkersUnavailableError: the scheduler or all workers stayed away, or workers kept dying.
        """
        while True:
            try:
                answer = await self._answer(self._underway[0].answer)
            except LOST:
                await self._pause()
                await self._send_again()
                continue
            self._underway.popleft().forget()
            self._losses = 0
            if isinstance(answer, str):
                raise WorkersUnavailableError(not_alike("that joined", answer))
            return answer

    async def _answer(self, answer: asyncio.Task[Answer]) -> Answer:
        """Wait for a result for as long as there are workers."""
        patience, without_s = self._cluster.patience, 0.0
        while not (await asyncio.wait({answer}, timeout=patience.look_s))[0]:
            threads = await self._cluster.threads()
            if await self._cluster.connected() is not self._client:
                raise TimeoutError  # the connection that it was to come by has gone
            if threads:
                without_s, self.ahead = 0.0, AHEAD * sum(threads.values())  # some may have joined
                continue
            without_s += patience.look_s
            if without_s >= patience.workers_s:
                raise WorkersUnavailableError(_no_worker(without_s))
        try:
            return answer.result()
        except LOST:
            raise
        except asyncio.CancelledError:  # Dask's own coroutine was cancelled, not this one
            raise TimeoutError from None
        except Exception:  # a worker could not even unpickle the task
            raise WorkersUnavailableError(not_alike("that was asked", "another tacit")) from None

    async def _pause(self) -> None:
        patience = self._cluster.patience
        self._losses += 1
        if self._losses > patience.attempts:
            raise WorkersUnavailableError(
                "Dask workers died again and again: look at their logs and at their memory limit"
            )
        log.warning("dask_work_lost", times=self._losses)
        await asyncio.sleep(patience.pause_s * 2 ** (self._losses - 1))

    async def _send_again(self) -> None:
        """Send anew what failed; where the shared part is lost too, everything that has no result."""
        client = await self._cluster.connected()
        lost_all = client is not self._client or self._shared is None or self._shared.status != "finished"
        if lost_all:
            await self.start()
        for place, sent in enumerate(self._underway):
            if sent.failed() or (lost_all and not sent.answer.done()):
                sent.forget()
                self._underway[place] = self._sent(sent.item)

    def end(self) -> None:
        """Take back what has not begun, and let the workers forget the rest."""
        for sent in self._underway:
            sent.forget()
        self._underway.clear()
        if self._shared is not None:
            self._shared.release()


async def _lost() -> Answer:
    raise TimeoutError


def _key() -> str:
    """Return a task's key: random, since keys are logged."""
    return f"tacit-{secrets.token_hex(16)}"


def _no_worker(wait_s: float) -> str:
    return f"the Dask cluster has had no worker for {wait_s:g} s: start workers"


AnswerT = TypeVar("AnswerT")


class ClusterWorkers:
    """A Dask cluster as workers. Nothing is connected to before the first use.

    Raises:
        SettingsError: the certificates' files cannot be used.
    """

    in_process = False

    def __init__(
        self, address: str, certificates: Certificates | None, patience: RetryPolicy | None = None
    ) -> None:
        if certificates is not None:
            certificates.require_usable()
        self._cluster = ClusterClient(address, certificates, patience or RetryPolicy())

    @classmethod
    def of(cls, settings: ComputeSettings) -> Self:
        """Return the workers that settings name."""
        files = (settings.dask_ca_file, settings.dask_certificate_file, settings.dask_key_file)
        present = [file for file in files if file is not None]
        assert settings.dask_scheduler is not None  # noqa: S101 (the caller's condition)
        certificates = Certificates(*present) if settings.dask_scheduler.startswith("tls://") else None
        return cls(settings.dask_scheduler, certificates)

    @staticmethod
    def _call(coroutine: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        running = asyncio.run_coroutine_threadsafe(coroutine, _loop())
        try:
            return running.result()
        except CancelledError:  # by Dask, as the connection went
            raise WorkersUnavailableError(CLOSED) from None
        except BaseException:
            running.cancel()
            raise

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
        running = ClusterMap(self._cluster, Sealed(Task(function, shared)))
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
            _loop().call_soon_threadsafe(running.end)

    def close(self) -> None:
        """Let go of the connection, for good; maps that are under way end with WorkersUnavailableError."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._cluster.close(), _loop()).result(CLOSE_S)
