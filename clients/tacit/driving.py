"""Drivers of operations (:mod:`tacit.asking`): one that blocks, and one that is awaited."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tacit.asking import NOTHING, Operation, Pause, Result
from tacit.transport import AsyncTransport, Transport


class Driver:
    """Runs operations over a transport. Use it as a context manager."""

    def __init__(self, transport: Transport, sleep: Callable[[float], None]) -> None:
        self._transport = transport
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, operation: Operation[Result]) -> Result:
        answer = None
        while True:
            try:
                step = operation.send(answer) if answer is not None else next(operation)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Pause):
                self._sleep(step.seconds)
                answer = NOTHING
            else:
                answer = self._transport.send(step)


class AsyncDriver:
    """Runs operations over a transport without blocking. Use it as an asynchronous context manager."""

    def __init__(self, transport: AsyncTransport, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._transport = transport
        self._sleep = sleep

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, operation: Operation[Result]) -> Result:
        answer = None
        while True:
            try:
                step = operation.send(answer) if answer is not None else next(operation)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Pause):
                await self._sleep(step.seconds)
                answer = NOTHING
            else:
                answer = await self._transport.send(step)
