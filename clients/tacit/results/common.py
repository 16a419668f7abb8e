"""What every procedure's verdict states, and every result holds."""

from collections.abc import Mapping
from typing import Any, TypedDict

from tacit_protocol.messages.study import Study


class CommonFields(TypedDict):
    """The decision, how and on what it was reached, and what it cost."""

    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    verdict: Mapping[str, Any]


def common_fields(study: Study, verdict: Mapping[str, Any]) -> CommonFields:
    """Read the fields that every procedure reports.

    What was agreed on (level and budget) comes from the study, which the parties signed.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict lacks one of them.
    """
    reject = verdict["reject"]
    if not isinstance(reject, bool):
        raise TypeError("a verdict's decision is a truth value")
    return CommonFields(
        reject=reject,
        alpha=study.level,
        method=str(verdict["method"]),
        n={str(name): int(units) for name, units in verdict["units"].items()},
        epsilon=study.budget.epsilon,
        delta=study.budget.delta,
        warnings=tuple(str(warning) for warning in verdict["warnings"]),
        verdict=verdict,
    )
