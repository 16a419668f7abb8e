"""Every exception of the SDK, in one small tree; each says what to do next.

TacitError
├── InputError (a ValueError)      what was passed cannot be used as it is
├── ConfigurationError             a key file or a configuration file is missing or cannot be read
├── StudyRefusedError              the procedure does not take the study as written
│   └── HopelessStudyError         the study would spend its budget and could not find anything
├── TransportError                 no answer came
├── ResponseError                  an answer came that the protocol does not allow
├── ProblemError                   the service refused, with a problem document (RFC 9457)
├── VerificationFailedError        a signature, a digest or a recomputed figure does not match
├── VerdictTimeoutError            the verdict was not there in time
├── ServiceError                   a local service process did not start or ended early
└── PlottingError                  a plot was asked for, and matplotlib is not installed

DataWarning (a UserWarning)        values are missing, out of bounds or not listed
"""

from typing import Any, Literal

from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.terminal import printable


class TacitError(Exception):
    """The root of every exception that the SDK raises."""


class InputError(TacitError, ValueError):
    """What was passed cannot be used as it is; the message says what to change."""


class DataWarning(UserWarning):
    """Values are not as the bounds say; the message says which. It tells shares of the exact data.

    A Python warning and no part of a result, which may be shown to others.
    """


class ConfigurationError(TacitError):
    """A key file or a configuration file is missing or cannot be read."""


class StudyRefusedError(TacitError):
    """The procedure does not take the study as written; the message says what to change."""


class HopelessStudyError(StudyRefusedError):
    """The study would spend its budget and could hardly find anything.

    ``warnings`` holds the procedure's reasons.
    """

    def __init__(self, warnings: tuple[str, ...]) -> None:
        self.warnings = warnings
        super().__init__(
            "the study looks hopeless, and nothing was sent: "
            + " ".join(warnings)
            + " Ask for more rows or more budget, or pass force=True (--force) to send it as it is."
        )


class TransportError(TacitError):
    """No answer came: the service is down, or the address or the network is wrong.

    ``hop`` says where on the way that showed: at a proxy, at certificates, or at the service itself.
    """

    def __init__(self, *args: object, hop: Literal["proxy", "certificate", "service"] = "service") -> None:
        super().__init__(*args)
        self.hop = hop


class ResponseError(TacitError):
    """An answer came that the protocol does not allow: too long, encoded, or not a message."""


class ProblemError(TacitError):
    """The service refused, with a problem document.

    ``problem`` is the slug of its type (docs/reference), ``status`` the HTTP status, ``retry_after_s`` how
    long the service asks to wait, in seconds, or None.
    """

    def __init__(self, problem: str, status: int, detail: str = "", retry_after_s: float | None = None):
        self.problem = problem
        self.status = status
        self.detail = printable(detail)
        self.retry_after_s = retry_after_s
        known = PROBLEMS.get(problem)
        self.advice = known.advice if known else ""
        title = known.title if known else f"the service answered {status}"
        parts = [title + (f": {self.detail.strip()}" if self.detail else ""), self.advice]
        super().__init__(". ".join(part.rstrip(".") for part in parts if part) + f". [{problem}]")


class VerificationFailedError(TacitError):
    """A signature, a digest or a recomputed figure does not match: do not trust the document."""


class VerdictTimeoutError(TacitError):
    """The verdict was not there in time. The study goes on: ask again later."""


class ServiceError(TacitError):
    """A local service process did not start or ended early; the message names its log."""


class PlottingError(TacitError):
    """Plotting needs matplotlib, which is not installed."""


def pandas_module() -> Any:
    """Return pandas, which is optional; raises InputError where it is not installed."""
    try:
        import pandas  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise InputError("to_pandas() needs pandas: pip install pandas") from error
    return pandas
