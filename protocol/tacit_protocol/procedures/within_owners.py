"""What procedures share that ask about units within owners, whom nobody needs to trust.

Their verdicts; and covariances within owners where owners mask, so that the sum of all alone can be read. Of
x in {0, 1} and a bounded number y an owner of n units has, exactly,

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from tacit_protocol.domain import EncodedChunk, NumericColumn, Table, reduce_table
from tacit_protocol.features.moments import UnitCountError
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SumPart,
    check_layout,
    noise_scales,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import Guarantee, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.masking import (
    MASKED_BITS,
    MaskedParameters,
    SharedNoise,
    shared_noise_in,
    total_of,
)
from tacit_protocol.procedures.means.private_means import RARE_UNITS
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    EFFECTS,
    EFFECTS_BY_OWNER,
    HETEROGENEITY,
    PVALUE,
    REJECTED,
    Effect,
    PvalueVerdict,
    ShownTable,
    effects_table,
    parts_frame,
)
from tacit_protocol.verdicts.presentation import Citation

STATED_MAX = 60
"""Most comparisons, or pairs of columns, whose effects a verdict states; those with the smallest p-values."""

BY_OWNER_MAX = 240
"""Most of them times owners: of many owners fewer are stated owner by owner."""

TOLD = 4
"""Most effects that a sentence tells."""

WIDE = 16.0
"""Bounds are much wider than values of which they are more standard deviations wide than this: twice as wide
as four to either side of the mean, within which procedures are measured."""

POWER = 0.8
"""With which probability an effect is found that is said to be large enough to be seen."""


def visible(half: float, level: float) -> float:
    """Return the effect that is found with probability POWER where intervals reach so far to either side."""
    z = -float(ndtri(level / 2))
    return half * (z + float(ndtri(POWER))) / z


HIDDEN = 2.0
"""Up to how many standard deviations of its noise a sum of squares may be none."""


def told_spread(squares: float, noise: float, units: float) -> tuple[float, bool]:
    """Return the standard deviation of so many units' values in [-1, 1]; or, and False, the most it may be.

    ``squares`` is the noisy sum of squares about their mean, or means, ``noise`` its noise's standard
    deviation, which hides the former where it is large.
    """
    told = squares > HIDDEN * noise
    most = squares if told else max(squares, 0.0) + HIDDEN * noise
    return min(1.0, math.sqrt(most / max(units, RARE_UNITS))), told


def bounds_warning(
    column: NumericColumn, spread: tuple[float, bool], unseen: str, test: str | None, *, large: bool = True
) -> str | None:
    """Say what could not be seen within a column's bounds, and what to do; None where nothing is amiss.

    ``spread`` is that of ``told_spread``. ``large`` says that what is unseen is no less than that. ``test``
    is that of blocks to ask for instead; None where none can be.
    """
    most, told = spread
    if told and not large:
        return None
    bounds = f"{column.name} ({column.lower:g} to {column.upper:g})"
    size = (
        f"standard deviation {'about' if told else 'at most'} {most * (column.upper - column.lower) / 2:.2g}"
    )
    if most * WIDE < 2:
        found = f"the bounds of {bounds} are much wider than its values are spread ({size})"
    elif told:
        found = f"noise is larger than what values of {bounds} differ by ({size})"
    else:
        found = f"noise hides how far values are spread within the bounds of {bounds}"
    advice = f"{found}: {unseen} could not be seen; ask again, at new cost, with narrower public bounds"
    if test is None:
        return advice
    return f'{advice}, or with ranks in blocks, which need no narrow ones (aggregated_test, test "{test}")'


FIELLER = Citation(
    "fieller1954",
    "article",
    ("E. C. Fieller",),
    "Some Problems in Interval Estimation",
    "Journal of the Royal Statistical Society B 16(2)",
    1954,
)
COCHRAN = Citation(
    "cochran1954combination",
    "article",
    ("William G. Cochran",),
    "The Combination of Estimates from Different Experiments",
    "Biometrics 10(1)",
    1954,
)


class TestedPart(StrictModel):
    """What was found of one column, or pair of columns, within owners.

    Attributes:
        statistic: of the part of it that is surest.
        pvalue: adjusted for its parts and for all columns or pairs (Holm).
        reject: whether the null hypothesis is rejected at the study's level.
        heterogeneity_pvalue: that owners have its effects in common, the smallest one, adjusted for how many
            there are; None of one owner, or where the noisy numbers cannot tell.
    """

    statistic: float
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]
    heterogeneity_pvalue: Annotated[float | None, HETEROGENEITY]

    @property
    def named(self) -> str:
        """What it is of."""
        raise NotImplementedError


class WithinOwnersVerdict(PvalueVerdict):
    """A test within owners, with effects. Unpacks into ``statistic, pvalue``.

    Attributes:
        effects: what owners have in common.
        effects_by_owner: every owner's own.
        heterogeneity_pvalue: that owners have all effects in common: the smallest of the parts', adjusted for
            their number; None of one owner.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "heterogeneity_pvalue")
    parted: ClassVar[str]
    """The field that holds the parts."""
    found: ClassVar[tuple[str, str]]
    """What the command says where it was shown, and where it was not."""
    found_of_part: ClassVar[tuple[str, str]]
    """The same of one part."""
    in_common: ClassVar[str]
    """What owners may have in common."""

    effects: Annotated[tuple[Effect, ...], EFFECTS]
    effects_by_owner: Annotated[tuple[Effect, ...], EFFECTS_BY_OWNER]
    heterogeneity_pvalue: Annotated[float | None, HETEROGENEITY]

    @property
    def tested(self) -> Sequence[TestedPart]:
        """The parts."""
        return tuple(getattr(self, self.parted))

    def to_pandas(self) -> Any:
        """Return the effects as a pandas frame: one row each, those of all owners first."""
        return parts_frame((*self.effects, *self.effects_by_owner), self.source.drawn_by.frame)

    def hypotheses(self) -> dict[str, float]:
        """Return every part's p-value."""
        return {part.named: part.pvalue for part in self.tested}

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            name: [part.model_dump() for part in getattr(self, name)]
            for name in (self.parted, "effects", "effects_by_owner")
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        common = self.heterogeneity_pvalue
        rows = tuple(
            (own.named, f"{own.pvalue:.3g}", self.found_of_part[0 if own.reject else 1])
            for own in self.tested
        )
        return (
            self._finding(self.found[0 if self.reject else 1]),
            f"  statistic {self.statistic:.5g}; {self.method}",
            ShownTable((self.parted.removesuffix("s").capitalize(), "p (Holm)", ""), rows),
            effects_table(self.effects),
            *(() if common is None else (f"  the same {self.in_common} everywhere: p = {common:.3g}",)),
        )

    def details(self) -> Sequence[str | ShownTable]:
        """Return what the command shows after the cost."""
        return (effects_table(self.effects_by_owner),) if len(self.units) > 1 else ()


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


WITHIN_ALONE = "nor whether an effect is the same at all; what owners differ in neither makes nor hides one"
"""What masks hide of what is computed within owners, and what they do not."""

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


@dataclass(frozen=True)
class MaskedPairs:
    """Pairs whose covariances leave masked, with the noise that owners share."""

    pairs: WithinPairs
    shared: SharedNoise

    def require_drawable(self) -> None:
        """Raise SensitivityError where the owners' noises cannot be drawn, whatever the sums."""
        require_drawable(self.pairs.parts(), self.shared.own, len(self.shared.masking.names))

    def release(self, sums: PairSums, noise: NoiseSource) -> Release:
        """Add an owner's share of the noise. Raises SensitivityError where it cannot be drawn."""
        own = self.shared.own
        vectors = release_sums(self.pairs.parts(sums), own, noise)
        return Release(units=sums.units, guarantee=own, vectors=vectors)

    def check(self, release: Release) -> None:
        """Raise ReleaseError where an owner's release has not the shape and the noise that a study fixes."""
        if release.decision is not None or release.choice is not None:
            raise ReleaseError("the release has not the vectors that the study asks for")
        try:
            check_layout(release.vectors, release.guarantee, self.pairs.parts(), self.shared.own)
        except (LayoutError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    @property
    def noises(self) -> tuple[float, float, float]:
        """The standard deviations of the noise on the sums: covariances, variances, spreads."""
        drawn = math.sqrt(len(self.shared.masking.names))
        scales = noise_scales(self.pairs.parts(), self.shared.own)
        return drawn * scales[COVARIANCES], drawn * scales[VARIANCES], drawn * scales[SPREADS]

    def read(self, releases: Mapping[str, Release]) -> ReadPairs:
        """Return all owners' sums. Raises ReleaseError where a release is missing, or has another layout."""
        return self.read_total(total_of(self.shared.masking, releases).vectors)

    def read_total(self, vectors: Mapping[str, NoisyVector]) -> ReadPairs:
        """Return all owners' sums, of vectors that have them and the noise of all."""
        covariances, variances, spreads = (vectors[name].mean(1) for name in PAIR_SHARES)
        pairs = self.pairs
        return ReadPairs(
            pairs.weights, covariances, variances, spreads, *self.noises, spread_of=pairs.spread_of
        )

    def least_noise(self) -> float:
        """Return the least noise on a covariance, in parts of what one unit can add to it."""
        return float((self.noises[0] / self.pairs.weights / self.pairs.y_ranges).min())


def shared_within(
    study: Study, parameters: MaskedParameters, noise: str, claim: Callable[[], Guarantee]
) -> SharedNoise | None:
    """Return the noise that owners share whose covariances within themselves are masked; None elsewhere.

    ``noise`` is the kind that the study asks for, ``claim`` what it guarantees of sums that are not masked.

    Raises:
        StudyError: the study asks for masks that cannot be made, or for averages of a unit's rows.
    """
    if parameters.aggregation == "separate" and parameters.colluders is None:
        return None
    shared = shared_noise_in(study, parameters, noise, claim)
    if shared is not None and study.averages_rows:
        raise StudyError(ONE_ROW)
    return shared


def smallest(pvalues: Sequence[float | None]) -> float | None:
    """Return the smallest of p-values, adjusted for their number; None where there are none."""
    known = [pvalue for pvalue in pvalues if pvalue is not None]
    return min(1.0, min(known) * len(known)) if known else None
