"""Operations of clients: generators that ask for requests, and the drivers that run them."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ForwardRef,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    overload,
)

from tacit.client.http import HttpRequest, HttpResponse, check, json_object
from tacit.client.transport import AsyncTransport, Transport
from tacit.errors import ResponseError

PAGES_MAX = 1000
"""Most pages of one listing that are read: a service that never ends a list is not followed for ever."""

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Pause:
    """Ask the driver to wait."""

    seconds: float


NOTHING = HttpResponse(204, {}, b"")

Operation = Generator[HttpRequest | Pause, HttpResponse, Result]


def ask(request: HttpRequest) -> Operation[HttpResponse]:
    """Send one request; raises ProblemError where the service refuses."""
    return check((yield request))


def ask_object(request: HttpRequest) -> Operation[dict[str, Any]]:
    """Send one request that is answered by a JSON object; raises ProblemError or ResponseError."""
    return json_object((yield from ask(request)))


def pages(
    path: str, query: Mapping[str, str], read: Callable[[Any], Item], pages_max: int = PAGES_MAX
) -> Operation[list[Item]]:
    """Read a whole listing, page after page; ``read`` makes one item of it.

    Raises:
        ResponseError: an answer is no page, or the list does not end.
    """
    items: list[Item] = []
    cursor: str | None = None
    for _ in range(pages_max):
        page_query = dict(query) | ({"cursor": cursor} if cursor is not None else {})
        page = yield from ask_object(HttpRequest("GET", path, page_query))
        listed, following = page.get("items", page.get("entries")), page.get("next")
        if not isinstance(listed, list):
            raise ResponseError("the service's answer is not a list")
        items.extend(read(item) for item in listed)
        if following is None:
            return items
        cursor = str(following)
    raise ResponseError("the service's list does not end")


def object_of(item: Any) -> dict[str, Any]:
    """Return an item of a list that is to be an object; raises ResponseError where it is something else."""
    if not isinstance(item, dict):
        raise ResponseError("an item of the service's answer is not an object")
    return item


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class Call(Generic[Arguments, Returned]):
    """An operation as a method: it blocks in a :class:`Driver`, and is awaited in an :class:`AsyncDriver`."""

    def __init__(self, operation: Callable[Concatenate[Any, Arguments], Operation[Returned]]) -> None:
        self.operation = operation

    if TYPE_CHECKING:

        @overload
        def __get__(self, client: None, owner: Any) -> Self: ...
        @overload
        def __get__(self, client: "Driver", owner: Any) -> Callable[Arguments, Returned]: ...
        @overload
        def __get__(
            self, client: "AsyncDriver", owner: Any
        ) -> Callable[Arguments, Coroutine[Any, Any, Returned]]: ...
        def __get__(self, client: Any, owner: Any) -> Any: ...

    def describe(self, method: Callable[..., Any], owner: type) -> Callable[..., Any]:
        """Give the method of ``owner`` that runs this operation its name, documentation and signature."""
        name = self.operation.__name__
        method.__name__, method.__qualname__ = name, f"{owner.__qualname__}.{name}"
        method.__module__, method.__doc__ = owner.__module__, self.operation.__doc__
        signature = inspect.signature(self.operation)
        returned = get_args(signature.return_annotation)[-1]
        if isinstance(returned, ForwardRef):  # of a class that loads when needed
            returned = returned.__forward_arg__
        method.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        return method


def call(
    operation: Callable[Concatenate[Any, Arguments], Operation[Returned]],
) -> Call[Arguments, Returned]:
    """Mark a method that is an operation."""
    return Call(operation)


def _calls(client: type) -> dict[str, Call[..., Any]]:
    """Operations that a class inherits, by name."""
    inherited = (item for base in reversed(client.__mro__) for item in vars(base).items())
    return {name: value for name, value in inherited if isinstance(value, Call)}


class Driver:
    """Runs operations over a transport. Use it as a context manager."""

    def __init__(self, transport: Transport, sleep: Callable[[float], None]) -> None:
        self._transport = transport
        self._sleep = sleep

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, inherited in _calls(cls).items():
            setattr(cls, name, _blocking(inherited, cls))

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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, inherited in _calls(cls).items():
            setattr(cls, name, _awaited(inherited, cls))

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


def _blocking(inherited: Call[..., Any], client: type[Driver]) -> Callable[..., Any]:
    def method(self: Driver, *arguments: Any, **named: Any) -> Any:
        return self._run(inherited.operation(self, *arguments, **named))

    return inherited.describe(method, client)


def _awaited(inherited: Call[..., Any], client: type[AsyncDriver]) -> Callable[..., Any]:
    async def method(self: AsyncDriver, *arguments: Any, **named: Any) -> Any:
        return await self._run(inherited.operation(self, *arguments, **named))

    return inherited.describe(method, client)
