"""The null distribution of a verdict's statistic, where study and verdict alone say what it is.

The max form of the kernel two-sample test: the largest of J chi-squared statistics with k - 1 degrees each,
one for every coordinate of the features; Sidak's formula makes the curve an upper bound of every tail under
any correlation. The published statistic with its asymptotic null: chi-squared with J degrees. Other nulls
are simulated, or depend on the releases: their verdicts show where the p-value stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.kernel_two_sample_plan import plan_of

Floats = npt.NDArray[np.float64]

POINTS = 200
"""Points of a drawn curve."""

TAIL_MIN = 1e-3
"""The curve is drawn at least as far as its upper quantile of this probability."""


@dataclass(frozen=True)
class NullCurve:
    """A density and its upper tail, in words, and how far it is worth drawing."""

    words: str
    density: Callable[[Floats], Floats]
    high: float


def null_curve(study: Study, result: dict[str, Any]) -> NullCurve | None:
    """Return the null distribution of a verdict's statistic, or None where it is not known from these."""
    if study.procedure != KernelTwoSample.name:
        return None
    plan = plan_of(study)
    dimension, degrees = plan.release.features.dimension, len(result["units"]) - 1
    if plan.form == "max":
        return largest_of(dimension, degrees)
    if plan.form == "asymptotic":
        law = chi2(dimension)
        words = f"chi-squared with {dimension} degrees of freedom"
        return NullCurve(words, lambda t: np.asarray(law.pdf(t)), float(law.isf(TAIL_MIN)))
    return None


def largest_of(count: int, degrees: int) -> NullCurve:
    """Return the law of the largest of ``count`` independent chi-squares with ``degrees`` degrees."""
    law = chi2(degrees)

    def density(t: Floats) -> Floats:
        return np.asarray(count * law.pdf(t) * law.cdf(t) ** (count - 1))

    high = float(law.isf(-np.expm1(np.log1p(-TAIL_MIN) / count)))
    noun = "degree" if degrees == 1 else "degrees"
    return NullCurve(
        f"the largest of {count} chi-squared values with {degrees} {noun} of freedom each", density, high
    )
