"""How a screening is asked for and shown: the columns found first, then the best of the others."""

from typing import Any

from tacit.command.output import lines, table
from tacit.results import ScreenedColumn, ScreeningResult
from tacit_protocol.messages.study import Study

NOT_FOUND_SHOWN = 10
"""Pairs that were not found and are shown all the same: the list may have a thousand."""


def screening_fields(result: ScreeningResult) -> dict[str, Any]:
    """Return what a screening adds to the fields of every result."""
    return {
        "aligned": result.aligned,
        "ranking": [
            {
                "outcome": pair.outcome,
                "column": pair.column,
                "distance_covariance_sqr": pair.distance_covariance_sqr,
                "distance_covariance_sqr_unbiased": pair.distance_covariance_sqr_unbiased,
                "covariance_interval": pair.covariance_interval,
                "distance_correlation": pair.distance_correlation,
                "interval": pair.interval,
                "sign": pair.sign,
                "pvalue": pair.pvalue,
                "qvalue": pair.qvalue,
                "reject": pair.reject,
            }
            for pair in result.ranking
        ],
        "matrix": result.verdict["matrix"],
    }


def print_screening(result: ScreeningResult) -> None:
    """Print the ranking."""
    found = len(result.found)
    lines(
        f"Verdict: {found} of {len(result.ranking)} pairs of columns depend on each other "
        f"(false discovery rate at most {result.alpha:g})",
        f"  {result.method}",
    )
    shown = result.ranking[: found + NOT_FOUND_SHOWN]
    table(
        ("Column", "Outcome", "Distance correlation", "p", "q", ""),
        [
            (
                pair.column,
                pair.outcome,
                _correlation(pair),
                f"{pair.pvalue:.2g}",
                f"{pair.qvalue:.2g}",
                "found" if pair.reject else "",
            )
            for pair in shown
        ],
    )
    if len(shown) < len(result.ranking):
        lines(f"  {len(result.ranking) - len(shown)} more were not found: --json lists them")


def screening_words(study: Study) -> tuple[str, ...]:
    """Say what a study asks, where it is a screening; raises StudyError where it cannot be run as written."""
    if study.procedure != "screening":
        return ()
    from tacit_protocol.procedures.screening_plan import screening_plan  # noqa: PLC0415 (statistics load)

    plan = screening_plan(study)
    outcomes, columns = plan.names[plan.outcome], plan.names[1 - plan.outcome]
    owners = study.owners[plan.outcome].name, study.owners[1 - plan.outcome].name
    return (
        f"  {len(columns)} columns of {owners[1]} against {', '.join(outcomes)} of {owners[0]}; "
        f"false discovery rate at most {study.level:g}, {plan.permutations} permutations",
    )


def _correlation(pair: ScreenedColumn) -> str:
    if pair.distance_correlation is None or pair.interval is None:
        return "unknown"
    sign = {1: "+", -1: "-", 0: ""}[pair.sign]
    return f"{sign}{pair.distance_correlation:.2f}, {pair.interval[0]:.2f} to {pair.interval[1]:.2f}"
