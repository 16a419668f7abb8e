"""Logs: JSON lines on stderr, with the kind and place of what happened and never a value.

Exception messages may quote data, parameters or URLs. An exception is therefore logged as its type and the
lines of code it passed through.
"""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

FRAMES_MAX = 20
"""Innermost frames of an exception that are logged."""

QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "sqlalchemy.engine")
"""Libraries whose INFO log holds URLs, queries or statements."""


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return an exception's type and frames, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "frames": [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
    }


def _hide_exception_message(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["fault"] = describe_exception(error)
    return event


def _hide_library_arguments(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep a library's message template and drop what was to be filled in."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["event"] = str(record.msg).partition("\n")[0]
        event.pop("positional_args", None)
    return event


def configure_logging(level: str = "INFO") -> None:
    """Send this process's logs, its own and its libraries', to stderr as JSON lines."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_exception_message,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(sort_keys=True)],
        wrapper_class=structlog.make_filtering_bound_logger(level.lower()),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                _hide_library_arguments,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(sort_keys=True),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
