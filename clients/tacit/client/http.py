"""HTTP in plain values: what is asked, what came back. No library and no socket in here."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from tacit.errors import ProblemError, ResponseError
from tacit_protocol.messages.answers import ServiceAnswer
from tacit_protocol.messages.encoding import MessageError, encode_json
from tacit_protocol.messages.problems import MEDIA_TYPE, URN_PREFIX

MESSAGE_SIZE_MAX = 1 << 20
"""Longest answer in bytes that is read unless the request says otherwise: the protocol's own cap."""

ANSWER_TIMEOUT_S = 30.0
"""How long a service may stay silent before the request counts as lost."""


@dataclass(frozen=True)
class Upload:
    """A body that is read while it is sent, for files of any size.

    ``open`` begins at the start each time: a request that is sent again reads its file again.
    """

    open: Callable[[], Iterator[bytes]]
    size_bytes: int
    content_type: str


@dataclass(frozen=True)
class HttpRequest:
    """One request to a service, below its base URL."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Upload | None = None
    """JSON, or a file's content."""
    signed: bool = True
    """Whether a bearer token of the caller's key goes with it."""
    timeout_s: float = ANSWER_TIMEOUT_S
    size_bytes_max: int = MESSAGE_SIZE_MAX

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does what sending it once does."""
        return self.method in {"GET", "PUT"}


@dataclass(frozen=True)
class HttpResponse:
    """One answer, read whole. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """How long the service asks to wait, in seconds, or None."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdigit() else None


def segment(text: str) -> str:
    """Quote text for use as one segment of a path."""
    return quote(text, safe="")


def problem_slug(response: HttpResponse) -> str:
    """Slug of the problem document in an answer, or "" where there is none."""
    kind = str(_fields(response).get("type", ""))
    return kind.removeprefix(URN_PREFIX) if kind.startswith(URN_PREFIX) else ""


def check(response: HttpResponse) -> HttpResponse:
    """Return the answer, or raise the ProblemError it carries."""
    if 200 <= response.status < 300:
        return response
    detail = str(_fields(response).get("detail") or "")
    slug = problem_slug(response) or f"http-{response.status}"
    raise ProblemError(slug, response.status, detail, response.retry_after_s)


def json_object(response: HttpResponse) -> dict[str, Any]:
    """Parse the answer's body as one JSON object.

    Raises:
        ResponseError: it is something else.
    """
    try:
        parsed = json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise ResponseError("the service's answer is not JSON; is this the address of Tacit?") from error
    if not isinstance(parsed, dict):
        raise ResponseError("the service's answer is not a JSON object; is this the address of Tacit?")
    return parsed


def _fields(response: HttpResponse) -> dict[str, Any]:
    if not response.headers.get("content-type", "").startswith(MEDIA_TYPE):
        return {}
    return json_object(response)


Answer = TypeVar("Answer", bound=ServiceAnswer)


def parse(model: type[Answer], answer: HttpResponse) -> Answer:
    """Read an answer; raises ResponseError where it is not what the model says."""
    return parse_item(model, json_object(answer))


def parse_item(model: type[Answer], item: Any) -> Answer:
    """Read one item of a list; raises ResponseError where it is not what the model says."""
    try:
        return model.model_validate_json(encode_json(item))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise ResponseError(f"the service's answer has no valid {place or 'content'}") from error
    except MessageError as error:
        raise ResponseError(
            "the service's answer holds a number that is not finite, or half a character"
        ) from error
