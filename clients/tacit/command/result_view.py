"""How a procedure's result is shown: the decision first, then what it rests on."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tacit.command.counts_view import counts_fields, print_counts
from tacit.command.output import lines, table
from tacit.command.screening_view import print_screening, screening_fields
from tacit.results import (
    Comparison,
    CuratedDistanceCorrelationResult,
    DatabaseResult,
    DecisionResult,
    DistanceCorrelationResult,
    HomogeneityResult,
    IdentityResult,
    IndependenceTableResult,
    NoisyCountsResult,
    PeerResult,
    ProcedureResult,
    Result,
    ScreeningResult,
    TwoSampleResult,
)

PLAIN_FIELDS: Mapping[type[Result], tuple[str, ...]] = {
    DistanceCorrelationResult: (
        "statistic",
        "pvalue",
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_correlation",
        "interval",
        "truncation",
        "attenuation",
        "aligned",
    ),
    CuratedDistanceCorrelationResult: (
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_variances",
        "distance_correlation",
        "interval",
        "held_interval",
    ),
    PeerResult: ("receiver", "spent", "distance_covariance_sqr", "interval"),
    IdentityResult: ("statistic", "pvalue", "cells", "rho"),
}
"""What results have besides the common fields, where they are plain values."""


def result_fields(result: Result) -> dict[str, Any]:
    """Return a result's fields as plain values; those that it does not have are left out."""
    fields: dict[str, Any] = {
        "reject": result.reject,
        "alpha": result.alpha,
        "method": result.method,
        "n": dict(result.n),
        "epsilon": result.epsilon,
        "delta": result.delta,
        "warnings": list(result.warnings),
    }
    match result:
        case TwoSampleResult():
            return fields | {
                "statistic": result.statistic,
                "pvalue": result.pvalue,
                "estimate": result.estimate,
                "estimate_unbiased": result.estimate_unbiased,
                "interval": result.interval,
                "pairs": [_comparison(pair) for pair in result.pairs],
                "columns": [_comparison(column) for column in result.columns],
                "locations": [asdict(location) for location in result.locations],
            }
        case DecisionResult():
            return fields | {"finding": result.finding}
        case ScreeningResult():
            return fields | screening_fields(result)
        case NoisyCountsResult() | HomogeneityResult() | IndependenceTableResult():
            return fields | counts_fields(result)
        case DatabaseResult() | ProcedureResult():
            return fields | {"verdict": dict(result.verdict)}
        case _:
            return fields | {name: getattr(result, name) for name in PLAIN_FIELDS[type(result)]}


def print_result(result: Result) -> None:
    """Print a result for people."""
    match result:
        case TwoSampleResult():
            _print_two_sample(result)
        case DecisionResult():
            lines(
                f"Verdict: {result.finding} (level {result.alpha:g})",
                *_variables(result),
                f"  {result.method}",
                "  the decision alone is private: there is no statistic and no p-value to show",
            )
        case DistanceCorrelationResult():
            _print_distance_correlation(result)
        case CuratedDistanceCorrelationResult():
            _print_curated_distance(result)
        case PeerResult():
            _print_peer(result)
        case ScreeningResult():
            print_screening(result)
        case NoisyCountsResult() | HomogeneityResult() | IndependenceTableResult():
            print_counts(result)
        case IdentityResult():
            finding = "categories follow another distribution" if result.reject else "no difference shown"
            lines(
                f"Verdict: {finding} (p = {result.pvalue:.3g}, level {result.alpha:g})",
                f"  {result.method}, {result.cells} cells",
            )
        case DatabaseResult() | ProcedureResult():
            _print_plain(result)
    if not isinstance(result, PeerResult):
        lines(f"  every owner spent epsilon {result.epsilon:g}, delta {result.delta:g}")
    if isinstance(result, TwoSampleResult):
        _print_estimates(result)
    for warning in result.warnings:
        lines(f"Note: {warning}")


def _print_plain(result: DatabaseResult | ProcedureResult) -> None:
    if isinstance(result, DatabaseResult):
        lines(
            f"Released: {', '.join(f'{name} ({units} units)' for name, units in result.n.items())}",
            f"  {result.method}",
            "  keep the transcript, and ask it as often as you like: tacit release show",
        )
        return
    decision = "rejected" if result.reject else "not rejected"
    lines(
        f"Verdict of {result.procedure}: the hypothesis is {decision} (level {result.alpha:g})",
        f"  {result.method}",
    )


def _print_distance_correlation(result: DistanceCorrelationResult) -> None:
    finding = "the columns depend on each other" if result.reject else "no dependence of the columns shown"
    shown = [
        f"Verdict: {finding} (p = {result.pvalue:.3g}, level {result.alpha:g})",
        f"  {result.method}",
        f"  squared distance covariance {result.distance_covariance_sqr:.4g}",
    ]
    if result.distance_correlation is not None and result.interval is not None:
        low, high = result.interval
        shown.append(f"  distance correlation {result.distance_correlation:.3f}, [{low:.3f}, {high:.3f}]")
    lines(*shown)


def _print_curated_distance(result: CuratedDistanceCorrelationResult) -> None:
    finding = "the columns depend on each other" if result.reject else "no dependence of the columns shown"
    low, high = result.covariance_interval
    shown = [
        f"Verdict: {finding} (level {result.alpha:g}; the decision has no p-value)",
        f"  {result.method}",
        f"  squared distance covariance {result.distance_covariance_sqr:.4g}, [{low:.4g}, {high:.4g}]",
    ]
    if result.distance_correlation is not None and result.interval is not None:
        low, high = result.interval
        shown.append(f"  distance correlation {result.distance_correlation:.3f}, [{low:.3f}, {high:.3f}]")
    lines(*shown)


def _print_peer(result: PeerResult) -> None:
    spent = ", ".join(f"{name} {epsilon:g}" for name, epsilon in result.spent.items())
    shown = [f"Done: {result.method}", f"  epsilon spent: {spent}; delta {result.delta:g} where any"]
    if result.distance_covariance_sqr is not None and result.interval is not None:
        low, high = result.interval
        value = result.distance_covariance_sqr
        shown.append(
            f"  squared distance covariance {value:.4g}, its noise's interval {low:.4g} to {high:.4g}"
        )
    lines(*shown)


def _print_two_sample(result: TwoSampleResult) -> None:
    decision = "DIFFERENT populations" if result.reject else "no difference shown"
    lines(
        f"Verdict: {decision} (p = {result.pvalue:.3g}, level {result.alpha:g})",
        f"  statistic {result.statistic:.5g}; {result.method}",
    )


def _variables(result: DecisionResult) -> tuple[str, ...]:
    """Name the variables of a test of independence; columns that count as one are in brackets."""
    variables = result.verdict.get("variables") or ()
    words = (names[0] if len(names) == 1 else f"({', '.join(names)})" for names in variables)
    return (f"  of {', '.join(words)}",) if variables else ()


def _print_estimates(result: TwoSampleResult) -> None:
    if result.estimate is not None:
        interval = result.interval
        between = "" if interval is None else f", interval {interval[0]:.4g} to {interval[1]:.4g}"
        lines(f"  squared MMD {result.estimate:.4g}{between}")
    # Of the pairs of columns only those whose dependence differs: there may be thousands.
    columns = [c for c in result.columns if len(c.names) == 1 or c.reject]
    for title, comparisons in (("Owners", result.pairs), ("Columns", columns)):
        if comparisons:
            rows = [
                (" and ".join(c.names), f"{c.pvalue:.3g}", "differ" if c.reject else "no difference shown")
                for c in comparisons
            ]
            table((title, "p (Holm)", ""), rows)
    lines(*(f"  {location}" for location in result.locations if location.reject))
    if len(columns) < len(result.columns):
        lines("No other pair of columns shows another dependence.")


def _comparison(comparison: Comparison) -> Mapping[str, Any]:
    return {"names": list(comparison.names), "pvalue": comparison.pvalue, "reject": comparison.reject}
