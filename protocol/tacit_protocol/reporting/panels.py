"""What can be drawn of a verdict, as numbers: any renderer draws the same from these."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.verdicts.panels import BarsPanel, CurvesPanel, Null, Row, RowsPanel

ROWS_MAX = 20
"""Most rows of one panel; its title says how many there are."""

ESTIMATES = {
    "squared_mmd": ("squared MMD", "lower", "upper"),
    "distance_correlation": ("distance correlation", "lower", "upper"),
    "distance_covariance_sqr": ("squared distance covariance", "covariance_lower", "covariance_upper"),
    "cramers_v": ("Cramér's V", "lower", "upper"),
}
"""Estimates that verdicts and their pairs state, in words, and the fields of their intervals."""


Found = TypeVar("Found")


@dataclass(frozen=True)
class NullPanel:
    """The statistic on its null distribution."""

    null: Null
    statistic: float


@dataclass(frozen=True)
class PvaluePanel:
    """The p-value against the level."""

    pvalue: float
    level: float


Panel = NullPanel | PvaluePanel | RowsPanel | BarsPanel | CurvesPanel


def panels_of(study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]) -> tuple[Panel, ...]:
    """Return what can be drawn of a completed study's verdict; nothing for a decision alone.

    Args:
        study: the study.
        verdict: what its procedure reports, as plain values.
        releases: by owner as the study reads them; empty where they are not at hand.
    """
    found: list[Panel] = []
    procedure = PROCEDURES.get(study.procedure)
    if verdict.get("pvalue") is not None:
        null = None if procedure is None else _or_none(lambda: procedure.null(study, verdict, releases))
        if null is not None and math.isfinite(float(verdict["statistic"])):
            found.append(NullPanel(null, float(verdict["statistic"])))
        found.append(PvaluePanel(float(verdict["pvalue"]), study.level))
    found += _effects(verdict)
    if procedure is not None:
        found += _or_none(lambda: procedure.panels(study, verdict, releases)) or ()
    return tuple(found)


def _or_none(work_out: Callable[[], Found]) -> Found | None:
    """Return what can be worked out; None where study, releases and verdict do not fit each other.

    So it is with a verdict of another version: what it states itself is drawn all the same.
    """
    try:
        return work_out()
    except (StudyError, ReleaseError, LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _effects(verdict: Mapping[str, Any]) -> list[Panel]:
    found: list[Panel] = []
    pairs = [pair for pair in verdict.get("pairs") or () if isinstance(pair, Mapping)]
    for name, (words, lower, upper) in ESTIMATES.items():
        rows = [_row("all", verdict, name, lower, upper)]
        rows += [_row(_label(pair), pair, name, lower, upper) for pair in pairs[:ROWS_MAX]]
        shown = [row for row in rows if row is not None]
        if len(shown) == 2 and shown[0].label == "all" and shown[0].value == shown[1].value:
            shown = shown[:1]  # the only pair is all there is
        if shown:
            more = len(pairs) - ROWS_MAX
            title = words if more <= 0 else f"{words}, {ROWS_MAX} of {len(pairs)} pairs"
            found.append(RowsPanel(title, words, tuple(shown)))
    return found


def _row(label: str, source: Mapping[str, Any], name: str, lower: str, upper: str) -> Row | None:
    value, low, high = (source.get(field) for field in (name, lower, upper))
    if value is None or low is None or high is None:
        return None
    return Row(label, float(value), float(low), float(high), bool(source.get("reject")))


def _label(pair: Mapping[str, Any]) -> str:
    if "outcome" in pair:
        return f"{pair['column']} – {pair['outcome']}"
    return f"{pair.get('first', '')} – {pair.get('second', '')}"
