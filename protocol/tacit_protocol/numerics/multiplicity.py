"""Corrections for asking several questions of one release."""

import numpy as np
import numpy.typing as npt

PVALUE_MIN = float(np.finfo(np.float64).tiny)
"""p-values are never 0: the smallest normal float64 stands for anything below it."""


def holm(pvalues: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (m,): valid whatever the dependence."""
    order = np.argsort(pvalues)
    steps = pvalues[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def sidak(smallest: float, comparisons: int) -> float:
    """P(the smallest of as many independent p-values <= ``smallest``): 1 - (1 - p)^m, without cancellation.

    For Gaussian vectors with any correlation it is an upper bound: the events |z_j| <= c, and ellipsoids in
    groups of coordinates, are symmetric convex sets, and the Gaussian correlation inequality (Royen 2014)
    gives P(all) >= product of P(each).
    """
    if smallest >= 1.0:
        return 1.0
    return max(PVALUE_MIN, float(-np.expm1(comparisons * np.log1p(-smallest))))
