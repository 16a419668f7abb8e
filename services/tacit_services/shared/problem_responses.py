"""Errors as registered problems, which quote nothing that was submitted."""

from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from tacit_protocol.messages.encoding import MessageError, MessageTooLargeError, encode_json
from tacit_protocol.messages.problems import MEDIA_TYPE, PROBLEMS, problem_document
from tacit_protocol.signing import EnvelopeError
from tacit_services.shared.database import DatabaseError, DatabaseUnavailableError, StorageFullError
from tacit_services.shared.logging import describe_exception

DATABASE_RETRY_S = 2
"""When a database that is away is worth trying again."""

STORAGE_RETRY_S = 60
"""When a full disk is worth trying again: somebody has to make room."""

log = structlog.get_logger()


class RegisteredProblemError(Exception):
    """A registered problem, on its way to the caller."""

    def __init__(
        self,
        slug: str,
        *,
        detail: str | None = None,
        path: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(slug)
        self.problem = PROBLEMS[slug]
        self.detail = detail
        self.path = path
        self.retry_after_s = retry_after_s
        self.headers = dict(headers or {})


def problem_response(error: RegisteredProblemError, request_id: str | None) -> Response:
    """Write a problem as an HTTP response."""
    document = problem_document(
        error.problem.slug,
        instance=None if request_id is None else f"urn:tacit:request:{request_id}",
        detail_path=error.path,
        retry_after_s=error.retry_after_s,
        detail=error.detail,
    )
    headers = {"X-Content-Type-Options": "nosniff", **error.headers}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.problem.status in {408, 413, 415}:
        headers["Connection"] = "close"  # the rest of the body is not worth reading
    if error.problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(encode_json(document), error.problem.status, headers, MEDIA_TYPE)


async def answer_problem(error: RegisteredProblemError, scope: Scope) -> Response:
    """Answer with a page where a browser asks a service that has pages, and with JSON otherwise."""
    page = getattr(scope["app"].state, "error_page", None)
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    if page is None or not any(b"text/html" in value.lower() for value in accepted):
        return problem_response(error, scope.get("tacit_request_id"))
    response: Response = await page(Request(scope), error)
    return response


def as_problem(error: Exception) -> RegisteredProblemError:
    """Say which problem an exception is; what is not foreseen is an internal error, and logged."""
    match error:
        case RegisteredProblemError():
            problem = error
        case MessageTooLargeError():
            problem = RegisteredProblemError("message-too-large")
        case MessageError():
            problem = RegisteredProblemError("malformed-message", detail=error.reason, path=error.path)
        case EnvelopeError():
            problem = RegisteredProblemError("invalid-signature", detail=str(error))
        case RequestValidationError():
            problem = RegisteredProblemError("malformed-message", path=_parameter_path(error))
        case HTTPException():
            problem = _http_problem(error)
        case StorageFullError() | DatabaseUnavailableError():
            problem = _database_problem(error)
        case _:
            log.error("internal_error", fault=describe_exception(error))
            problem = RegisteredProblemError("internal-error")
    return problem


def install_problem_handlers(app: FastAPI) -> None:
    """Replace the framework's own error responses, which echo rejected values."""

    async def handle(request: Request, error: Exception) -> Response:
        return await answer_problem(as_problem(error), request.scope)

    for kind in (
        RegisteredProblemError,
        MessageError,
        EnvelopeError,
        StorageFullError,
        DatabaseUnavailableError,
        RequestValidationError,
        HTTPException,
    ):
        app.add_exception_handler(kind, handle)


def _parameter_path(error: RequestValidationError) -> str | None:
    """Where in the request a parameter is wrong: the place and the declared name, e.g. ``query.wait_s``."""
    location: tuple[Any, ...] = error.errors()[0]["loc"]
    return ".".join(str(part) for part in location[:2]) if location[0] in {"path", "query"} else None


def _database_problem(error: DatabaseError) -> RegisteredProblemError:
    log.error("database_error", kind=type(error).__name__, cause=type(error.__cause__).__qualname__)
    if isinstance(error, StorageFullError):
        return RegisteredProblemError("storage-full", retry_after_s=STORAGE_RETRY_S)
    return RegisteredProblemError("database-unavailable", retry_after_s=DATABASE_RETRY_S)


def _http_problem(error: HTTPException) -> RegisteredProblemError:
    headers = error.headers
    match error.status_code:
        case 404:
            return RegisteredProblemError("not-found", headers=headers)
        case 405:
            return RegisteredProblemError("method-not-allowed", headers=headers)
        case 413:
            return RegisteredProblemError("message-too-large")
        case status if status < 500:
            return RegisteredProblemError("malformed-message")
        case _:
            return RegisteredProblemError("internal-error")
