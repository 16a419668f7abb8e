"""One map on a Dask cluster: items under way, their results in order, and what is lost sent again."""

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError, FutureCancelledError

from tacit_protocol.workers import AHEAD, WorkersUnavailableError
from tacit_services.shared.cluster_client import ClusterClient, not_alike
from tacit_services.shared.cluster_task import Outcome, Sealed, Work, run, versions

LOST = (FutureCancelledError, KilledWorker, OSError, TimeoutError)
"""How Dask says that workers or data are gone."""

Answer: TypeAlias = Sealed[Outcome] | str

log = structlog.get_logger()


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

    def __init__(self, cluster: ClusterClient, work: Sealed[Work]) -> None:
        self._cluster, self._work = cluster, work
        self._versions = Sealed(versions())
        self._client: Client | None = None
        self._shared: Future[Work] | None = None
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

    async def next(self) -> Sealed[Outcome]:
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
