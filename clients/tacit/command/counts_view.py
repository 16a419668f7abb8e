"""How results on noisy counts are shown."""

from dataclasses import asdict
from typing import Any

from tacit.command.output import lines, table
from tacit.results import HomogeneityResult, IndependenceTableResult, NoisyCountsResult, NoisyTables

ROWS_SHOWN = 60
"""Most cells of a table that are printed."""

CountsResult = NoisyCountsResult | HomogeneityResult | IndependenceTableResult


def counts_fields(result: CountsResult) -> dict[str, Any]:
    """Return what a result on noisy counts has besides the common fields, as plain values."""
    fields: dict[str, Any] = {"tables": None if result.tables is None else _plain(result.tables)}
    if isinstance(result, NoisyCountsResult):
        return fields | {
            "noise": result.noise,
            "scale": result.scale,
            "half_width": result.half_width,
            "half_width_all": result.half_width_all,
        }
    fields |= {
        "statistic": result.statistic,
        "pvalue": result.pvalue,
        "pairs": [asdict(pair) for pair in result.pairs],
        "cells": [asdict(cell) for cell in result.cells],
    }
    if isinstance(result, IndependenceTableResult):
        fields |= {"cramers_v": result.cramers_v, "interval": result.interval}
    return fields


def _plain(tables: NoisyTables) -> dict[str, Any]:
    return {
        "columns": list(tables.columns),
        "labels": [list(labels) for labels in tables.labels],
        "counts": {name: counts.tolist() for name, counts in tables.counts.items()},
    }


def print_counts(result: CountsResult) -> None:
    """Print a result on noisy counts for people."""
    if isinstance(result, NoisyCountsResult):
        lines(
            f"Noisy counts: {result.method}",
            f"  one count is within {result.half_width:.4g} of the noisy one, and all are within "
            f"{result.half_width_all:.4g}, at confidence {1 - result.alpha:g}",
        )
        _print_table(result.tables)
        return
    if isinstance(result, HomogeneityResult):
        finding = "the owners' distributions DIFFER" if result.reject else "no difference shown"
    else:
        finding = "the columns DEPEND on each other" if result.reject else "no dependence shown"
    lines(
        f"Verdict: {finding} (p = {result.pvalue:.3g}, level {result.alpha:g})",
        f"  statistic {result.statistic:.5g}; {result.method}",
    )
    if isinstance(result, IndependenceTableResult):
        rows = [
            (
                " and ".join(pair.names),
                f"{pair.pvalue:.3g}",
                f"{pair.cramers_v:.3f}, {pair.interval[0]:.3f} to {pair.interval[1]:.3f}",
            )
            for pair in result.pairs
        ]
        table(("Columns", "p (Holm)", "Cramér's V"), rows)
    elif len(result.pairs) > 1:
        found = [
            (
                " and ".join(pair.names),
                f"{pair.pvalue:.3g}",
                "differ" if pair.reject else "no difference shown",
            )
            for pair in result.pairs
        ]
        table(("Owners", "p (Holm)", ""), found)
    for cell in result.cells:
        if cell.reject:
            place = ", ".join(f"{name} {label}" for name, label in cell.labels.items())
            lines(f"  {place} stands out (p = {cell.pvalue:.3g})")


def _print_table(tables: NoisyTables) -> None:
    owners = list(tables.counts)
    cells = tables.to_rows()
    rows = [
        (", ".join(labels), *(f"{count:.1f}" for count in counts)) for labels, counts in cells[:ROWS_SHOWN]
    ]
    table((", ".join(tables.columns), *owners), rows)
    if len(cells) > ROWS_SHOWN:
        lines(f"  and {len(cells) - ROWS_SHOWN} more cells: --json shows all")
