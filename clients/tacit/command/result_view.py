"""How a procedure's result is shown: what it says of itself, beside what all of them have."""

from typing import Any

from tacit.command.output import lines, table
from tacit.results import Result


def result_fields(result: Result) -> dict[str, Any]:
    """Return a result's fields as plain values; those that it does not have are left out."""
    return {
        "reject": result.reject,
        "alpha": result.alpha,
        "method": result.method,
        "n": dict(result.n),
        "epsilon": result.epsilon,
        "delta": result.delta,
        "warnings": list(result.warnings),
        **result.fields(),
    }


def print_result(result: Result) -> None:
    """Print a result for people."""
    for shown in result.shown():
        if isinstance(shown, str):
            lines(shown)
        else:
            table(shown.headings, shown.rows)
    lines(*(f"Note: {warning}" for warning in result.warnings))
