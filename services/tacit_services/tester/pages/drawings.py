"""The charts of a verdict: the null distribution with the statistic, p against the level, and intervals."""

import math
from typing import Any

import numpy as np

from tacit_protocol.messages.study import Study
from tacit_services.shared.pages.charts import Drawing, horizontal, path_of, vertical
from tacit_services.tester.pages.null_curve import POINTS, NullCurve, null_curve

PVALUE_DRAWN_MIN = 1e-30
"""Smaller p-values are drawn at the axis' end."""

ESTIMATES = {
    "squared_mmd": ("squared MMD", "lower", "upper"),
    "distance_correlation": ("distance correlation", "lower", "upper"),
    "distance_covariance_sqr": (
        "squared distance covariance",
        "covariance_lower",
        "covariance_upper",
    ),
    "cramers_v": ("Cramér's V", "lower", "upper"),
}
"""Estimates that verdicts state, and the fields of their intervals."""


def charts_of(study: Study, result: dict[str, Any]) -> dict[str, Any]:
    """Return what can be drawn of a verdict: ``null``, ``pvalue`` and ``estimates``, each of them or None."""
    statistic, pvalue = result.get("statistic"), result.get("pvalue")
    null = None
    if statistic is not None and (curve := null_curve(study, result)) is not None:
        null = _null(curve, float(statistic))
    return {
        "null": null,
        "pvalue": None if pvalue is None else _pvalue(float(pvalue), float(result["level"])),
        "estimates": _estimates(result),
    }


def _null(curve: NullCurve, statistic: float) -> dict[str, Any]:
    high = 1.05 * max(curve.high, statistic)
    # Near 0 some densities have no bound: the curve begins a step away from it.
    bulk = np.linspace(curve.high / POINTS, curve.high, POINTS)
    t = np.concatenate([bulk, np.linspace(curve.high, high, POINTS // 10)[1:]])
    density = curve.density(t)
    drawing = Drawing(horizontal(0, high), vertical(0, 1.08 * float(density.max())))
    points = [(drawing.x.at(float(a)), drawing.y.at(float(b))) for a, b in zip(t, density, strict=True)]
    mark = drawing.x.at(statistic)
    at_mark = drawing.y.at(float(curve.density(np.array([max(statistic, t[0])]))[0]))
    tail = [(mark, drawing.bottom), (mark, at_mark), *(p for p in points if p[0] > mark)]
    tail.append((drawing.right, drawing.bottom))
    return {
        "drawing": drawing,
        "line": path_of(points),
        "tail": path_of(tail),
        "mark": mark,
        "statistic": statistic,
        "words": curve.words,
    }


def _pvalue(pvalue: float, level: float) -> dict[str, Any]:
    decades = math.ceil(-math.log10(max(min(pvalue, level), PVALUE_DRAWN_MIN))) + 1
    axis = horizontal(-decades, 0)
    drawn = max(pvalue, 10.0**-decades)
    step = max(1, decades // 5)
    return {
        "drawing": Drawing(axis, vertical(0, 1)),
        "mark": axis.at(math.log10(drawn)),
        "limit": axis.at(math.log10(level)),
        "ticks": [(axis.at(-i), f"1e-{i}" if i else "1") for i in range(0, decades + 1, step)],
        "value": pvalue,
        "level": level,
    }


def _estimates(result: dict[str, Any]) -> list[dict[str, Any]]:
    shown = []
    for field, (words, lower_field, upper_field) in ESTIMATES.items():
        value, lower, upper = (result.get(name) for name in (field, lower_field, upper_field))
        if value is None or lower is None or upper is None:
            continue
        low, high = min(0.0, lower, value), max(0.0, upper, value)
        margin = 0.05 * (high - low or 1.0)
        axis = horizontal(low - margin, high + margin)
        shown.append(
            {
                "words": words,
                "value": value,
                "lower": lower,
                "upper": upper,
                "drawing": Drawing(axis, vertical(0, 1)),
                "at": [axis.at(each) for each in (lower, value, upper)],
                "zero": axis.at(0.0),
            }
        )
    return shown
