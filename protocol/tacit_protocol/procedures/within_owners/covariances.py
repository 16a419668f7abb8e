"""Covariances within owners who mask, so that the sum of all alone can be read.

Of x in {0, 1} and a bounded number y an owner of n units has, exactly,

    C = sum of (x - mean x)(y - mean y),   A = sum of (x - mean x)^2,   M = max(V, R),
    V = A (sum of (y - mean y)^2)/(n - 1),   R = (n0/n)^2 S1 + (n1/n)^2 S0,

S the sum of squares about each group's own mean, and releases C, M and A with its share of the noise. Where x
does not go with y within owners, C has mean 0 and variance V given the numbers themselves; so have all
owners' sums, whatever owners differ in. R is C's variance where the groups differ in mean and spread.

**Sensitivity.** Replacing a unit, or counting one no longer, moves the vector of C by no more than the
diameter of y, M by the squared range of y, A by 1. Pairs of numbers are in association/release.py.
docs/mathematics/masked-sums.md#within-owners.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from tacit_protocol.domain import EncodedChunk, Table, reduce_table
from tacit_protocol.features.moments import UnitCountError
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.procedures.masking import MASKED_BITS
from tacit_protocol.procedures.within_owners.verdict import HIDDEN, told_spread
from tacit_protocol.strict import StudyError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

STEP_BITS = 15
"""Numbers are rounded to steps of 2^-15, so that sums of their squares are exact."""

STEPS = 1 << STEP_BITS

COVARIANCES, VARIANCES, SPREADS = "covariances", "variances", "spreads"
"""Names of a masked release's vectors."""

PAIR_SHARES = {COVARIANCES: 0.75, VARIANCES: 0.2, SPREADS: 0.05}
"""Of mu^2: the test reads covariances; what is known too little of a variance is added to it."""

VARIANCE_MOVEMENT, SPREAD_MOVEMENT = 1.0, 1.0
"""How far a replaced unit moves M, in squared ranges of y, and A."""


@dataclass
class PairSums:
    """Exact sums over an owner's units of 1, x, y, xy, yy, xyy, (6, pairs), or of scores' products.

    They never leave it.
    """

    held: Integers = field(repr=False)
    units: int = 0


class WithinPairs:
    """Pairs of bounded numbers of which an owner has covariances within itself: see the module.

    Attributes:
        weights: of each pair's covariance, (pairs,): noise on it is smaller the larger its weight is.
        movement: bound on the L2 movement of all weighted covariances when one unit is replaced.
        y_ranges: range of each pair's y, (pairs,).
        spread_of: of which of the sums of squares of x that are released each pair's is, (pairs,).
    """

    def __init__(
        self, weights: Floats, movement: float, y_ranges: Floats, spread_of: npt.NDArray[np.intp]
    ) -> None:
        self.weights, self.y_ranges, self.spread_of = weights, y_ranges, spread_of
        self.movement = movement

    @property
    def numbers(self) -> int:
        """How many noisy numbers an owner sends."""
        return 2 * len(self.weights) + self.spreads

    @property
    def spreads(self) -> int:
        """How many sums of squares of x there are."""
        return len(self._firsts)

    @property
    def bounds(self) -> tuple[float, float, float]:
        """How far, in L2, a replaced unit moves weighted covariances, their variances, and spreads."""
        variances = float(np.linalg.norm(self.weights**2 * self.y_ranges**2))
        return (
            self.movement,
            VARIANCE_MOVEMENT * variances,
            SPREAD_MOVEMENT * math.sqrt(self.spreads),
        )

    @property
    def _firsts(self) -> npt.NDArray[np.intp]:
        """The first pair of each sum of squares of x."""
        return np.unique(self.spread_of, return_index=True)[1]

    def steps(self, chunk: EncodedChunk) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
        """Return x, y in steps of 2^-15 and whether a unit counts, (rows, pairs) each."""
        raise NotImplementedError

    def start(self) -> PairSums:
        """Return the sums over no unit."""
        return PairSums(np.zeros((6, len(self.weights)), dtype=np.int64))

    def add(self, partial: PairSums, chunk: EncodedChunk) -> None:
        """Add a chunk's units, of one row each."""
        if chunk.unit is not None and chunk.rows != chunk.units:
            raise StudyError(ONE_ROW)
        x, y, counts = self.steps(chunk)
        x, y = np.where(counts, x, 0), np.where(counts, y, 0)
        xy = x * y
        powers = (counts, x, y, xy, y * y, xy * y)
        partial.held += np.stack([power.sum(axis=0, dtype=np.int64) for power in powers])
        partial.units += chunk.rows

    def merge(self, partial: PairSums, other: PairSums) -> None:
        """Add the sums over another part of the table."""
        partial.held += other.held
        partial.units += other.units

    def sum(self, table: Table) -> PairSums:
        """Sum an owner's units, exactly. Raises UnitCountError where they are not ``table.units``."""
        found = reduce_table(table, self)
        if found.units != table.units:
            raise UnitCountError("the data changed while they were read")
        return found

    def parts(self, sums: PairSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; zeros stand for what is not given."""
        vectors = [np.zeros(count, dtype=np.int64) for count in (*2 * (len(self.weights),), self.spreads)]
        if sums is not None:
            exact = self.exact(sums)
            vectors = [np.array([math.floor(own * 2**MASKED_BITS) for own in part]) for part in exact]
        # Each of two neighbours lies half a step, and a float's error, from its ideal.
        near = 2 * (0.5 + FEATURE_ERROR_STEPS) / STEPS * float(np.linalg.norm(self.weights))
        moved, *others = self.bounds
        bounds = (moved + near, *others)
        parts = []
        for (name, share), values, bound in zip(PAIR_SHARES.items(), vectors, bounds, strict=True):
            # Each of two neighbours' numbers is rounded down to the grid.
            sensitivity = bound + math.sqrt(len(values)) * 2.0**-MASKED_BITS
            parts.append(SumPart(name, values, -MASKED_BITS, sensitivity, share))
        return tuple(parts)

    def exact(self, sums: PairSums) -> tuple[Sequence[Fraction], Sequence[Fraction], Sequence[Fraction]]:
        """Return an owner's weighted covariances and variances, and spreads. They never leave it."""
        covariances, variances, spreads = [], [], []
        for place, weight in enumerate(Fraction(float(own)) for own in self.weights):
            n, x, y, xy, yy, xyy = (int(own) for own in sums.held[:, place])
            # Where all units have the same x, both variances are 0, by the same steps.
            spread, some = squares_about(x, x, n), max(n, 1)
            pooled = spread * squares_about(yy, y, n) / (STEPS**2 * max(n - 1, 1))
            inner, outer = (
                squares_about(*own) / STEPS**2 for own in ((xyy, xy, x), (yy - xyy, y - xy, n - x))
            )
            apart = Fraction(n - x, some) ** 2 * inner + Fraction(x, some) ** 2 * outer
            variance = max(pooled, apart)
            covariances.append(weight * Fraction(xy * n - x * y, max(n, 1) * STEPS))
            variances.append(weight**2 * variance)
            spreads.append(spread)
        return covariances, variances, [spreads[first] for first in self._firsts]


def squares_about(squares: int, total: int, count: int) -> Fraction:
    """Return the sum of squares about the mean; 0 of no number, whose sums are 0."""
    return Fraction(squares * count - total * total, max(count, 1))


ONE_ROW = 'covariances are of units of one row: ask for unit_rows "one"'


@dataclass(frozen=True)
class ReadPairs:
    """All owners' sums: weighted ``covariances`` and their ``variances``, (pairs,) each, ``spreads`` of x.

    ``spread_of`` says of which of the spreads each pair's x is, (pairs,).

    ``noise``, ``doubt`` and ``spread_noise`` are the standard deviations of the noise on each of them.
    """

    weights: Floats
    covariances: Floats
    variances: Floats
    spreads: Floats
    noise: float
    doubt: float
    spread_noise: float
    spread_of: npt.NDArray[np.intp]

    def statistic(self, place: int) -> float:
        """Return a pair's squared covariance over its variance, noise counted."""
        variance = max(float(self.variances[place]), 0.0) + self.noise**2
        return float(self.covariances[place]) ** 2 / variance

    def pvalue(self, place: int) -> float:
        """Return the probability of so large a covariance, averaged over what its variance may be."""
        points, weights = NORMAL
        variances = np.maximum(self.variances[place] + self.doubt * (points + CAUTION), 0.0) + self.noise**2
        found = 2 * ndtr(-abs(float(self.covariances[place])) / np.sqrt(variances))
        return float(min(1.0, found @ weights / weights.sum()))

    def deviation(self, place: int) -> tuple[float, bool]:
        """Return the standard deviation of a pair's y within owners, as ``told_spread`` does.

        M/C(x, x) is its variance: of all units, or of both groups where that of C is then larger.
        """
        square = float(self.weights[place]) ** 2
        units = float(self.spreads[self.spread_of[place]])
        if units <= HIDDEN * self.spread_noise:
            return 1.0, False
        return told_spread(float(self.variances[place]) / square, self.doubt / square, units)

    def slope(self, place: int) -> tuple[float, float, tuple[float, float, float]]:
        """Return C, C(x, x) and the variance of C - theta C(x, x) as a polynomial; its doubt is added."""
        weight = float(self.weights[place])
        variance = max(float(self.variances[place]), 0.0) + self.doubt + self.noise**2
        top = float(self.covariances[place]) / weight
        return (
            top,
            float(self.spreads[self.spread_of[place]]),
            (variance / weight**2, 0.0, self.spread_noise**2),
        )


NORMAL = np.polynomial.hermite_e.hermegauss(61)
"""Points and weights of the rule by which p-values are averaged over normal noise."""

CAUTION = 0.4
"""By how many standard deviations of its noise a variance is raised before that: then no level from .05 to
.001 is exceeded, whatever the variance is, where its noise is up to 20 times that of a squared covariance."""
