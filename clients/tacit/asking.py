"""Operations: generators that ask for requests and are handed the answers.

No socket, no waiting and no clock in here: blocking and asynchronous clients drive the same generators
(:mod:`tacit.driving`). A :class:`Pause` is answered by :data:`NOTHING`.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.errors import ResponseError
from tacit.http import HttpRequest, HttpResponse, check, json_object

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
