"""Distance covariance and both distance deviations of data in one place: exact, with their sensitivities.

The roots T = dCov, S_x = dVar_x and S_y = dVar_y are released (V-statistics of distances in [0, 1]): of n
units, replacing one moves each by at most 2 (n - 1)/n^2; but T, where neither side is a single numeric
column, by at most sqrt 6 (n - 1)/n^2. Proofs: docs/mathematics/curated-distance-correlation.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import ONE_WORKER, ColumnName, Workers
from tacit_protocol.features.brownian import BrownianFeatures, random_directions
from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX
from tacit_protocol.features.unit_gram import UnitGram, UnitRows, unit_features
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import STEPS_MAX, exact_distance_sums
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.procedures.aggregation import BLOCKS_MAX
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.independence.plan import require_all_columns
from tacit_protocol.procedures.permutation.statistic import (
    PermutableGram,
    evaluation_error,
    observed_sensitivity,
)
from tacit_protocol.strict import StrictModel

Floats = npt.NDArray[np.float64]
Progress = Callable[[float], None]

COVARIANCE, FIRST, SECOND = "covariance", "first_deviation", "second_deviation"
"""Names of the three released numbers."""

COVARIANCE_SHARE = 0.7
"""Of mu^2 for the covariance, the rest in halves: of a correlation R, the relative errors are in the ratio
2/R : 1 : 1, so this suits R = .45, and no R loses much."""

COLUMN_BITS, COLUMN_BITS_MIN = 20, 16
"""Columns are rounded to multiples of 2^-20 before anything else; coarser where millions of units ask for it.
A rounded column is a column: sensitivities do not notice, and estimates move by less than 1e-5."""

ROOT_BITS = 25
"""Bits of a released root beyond those of n: its sensitivity is then 2^24 steps at least, and noise wide."""

PAIRED_UNITS_MAX = 2**15
"""Most units whose pairs are all compared: 10^9 pairs take a minute or so."""

COLUMN_UNITS_MAX = STEPS_MAX >> (2 * COLUMN_BITS_MIN)
"""Most units of one column each, 2^28: sums are exact in 62 bits."""

BLOCK_ENTRIES = 2**16
"""Kernel values of one variable held at once: half a MiB, for the processor's cache."""

STRIP_ENTRIES = 2**23
"""Kernel values of one variable in an item of work: a tenth of a second."""


@dataclass(frozen=True)
class DistanceRoots:
    """T, S_x and S_y in steps of 2^-root_exponent(units), rounded. They never leave the holder."""

    units: int
    steps: tuple[int, int, int] = field(repr=False)


def root_exponent(units: int) -> int:
    """Return e such that roots of so many units are released in steps of 2^-e."""
    return ROOT_BITS + units.bit_length()


def deviation_sensitivity(units: int) -> float:
    """Bound |S - S'|, the root of a distance variance, by 2 (n - 1)/n^2, for ``units`` >= 2; it is reached.

    >>> deviation_sensitivity(100)
    0.0198
    """
    return 2 * (units - 1) / units**2


def covariance_sensitivity(units: int, line: bool) -> float:
    """Bound |T - T'|: as a deviation with a single numeric column (``line``), else by sqrt 6 (n - 1)/n^2.

    >>> round(covariance_sensitivity(100, False) / covariance_sensitivity(100, True), 3)
    1.225
    """
    return deviation_sensitivity(units) if line else observed_sensitivity(units, 2)


def release_parts(
    units: int, line: bool, kernel_error: float, roots: DistanceRoots | None = None
) -> tuple[SumPart, ...]:
    """Lay out the release of three roots; without ``roots`` the values are zeros.

    ``line`` is whether a side is a single numeric column; ``kernel_error`` bounds the error of a kernel value
    wherever pairs of units may have been compared in floating point.
    """
    step = math.ldexp(1.0, -root_exponent(units))
    slack = step
    if units <= PAIRED_UNITS_MAX:
        slack += 2 * evaluation_error(units, 2, kernel_error)
    deviation = deviation_sensitivity(units) + slack
    sensitivities = (covariance_sensitivity(units, line) + slack, deviation, deviation)
    shares = (COVARIANCE_SHARE, (1 - COVARIANCE_SHARE) / 2, (1 - COVARIANCE_SHARE) / 2)
    steps = (0, 0, 0) if roots is None else roots.steps
    return tuple(
        SumPart(name, np.array([value], dtype=np.int64), -root_exponent(units), sensitivity, share)
        for name, value, sensitivity, share in zip(
            (COVARIANCE, FIRST, SECOND), steps, sensitivities, shares, strict=True
        )
    )


def column_roots(x: Floats, y: Floats) -> DistanceRoots:
    """Return the roots for one column each, (n,) in [0, 1], in O(n log n) and without any error but rounding.

    Raises ValueError where there are more than COLUMN_UNITS_MAX units, or fewer than two.
    """
    units = len(x)
    if not 2 <= units <= COLUMN_UNITS_MAX:
        raise ValueError("too few units, or too many")
    bits = min(COLUMN_BITS, (STEPS_MAX.bit_length() - 1 - (units - 1).bit_length()) // 2)
    first, second = (np.rint(np.ldexp(column, bits)).astype(np.int64) for column in (x, y))
    # A square root of integers, in steps: floor(floor(sqrt A) / n^2) = floor(sqrt(A) / n^2).
    shift = 2 * (root_exponent(units) - bits)
    one, two, three = (math.isqrt(total << shift) // units**2 for total in exact_distance_sums(first, second))
    return DistanceRoots(units, (one, two, three))


def paired_roots(
    first: PermutableGram,
    second: PermutableGram,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> DistanceRoots:
    """Return the roots from two matrices of induced kernels (features/kernels.py), a block of rows at a time.

    The same bits for any ``workers``. Raises ValueError where there are more than PAIRED_UNITS_MAX units, or
    fewer than two.
    """
    units = first.size
    if not 2 <= units <= PAIRED_UNITS_MAX:
        raise ValueError("too few units, or too many")
    step = max(1, STRIP_ENTRIES // units)
    strips = [(start, min(start + step, units)) for start in range(0, units, step)]
    products, means = [], np.empty((2, units))
    for (start, stop), found in zip(strips, workers.map(_strip_sums, (first, second), strips), strict=True):
        products.append(found.products)
        means[:, start:stop] = found.means
        if progress is not None:
            progress(stop / units)
    sums = [math.fsum(row) / units**2 for row in np.concatenate(products, axis=1).tolist()]
    one, two, three = (
        _root_steps(mean, means[a], means[b], units)
        for mean, (a, b) in zip(sums, ((0, 1), (0, 0), (1, 1)), strict=True)
    )
    return DistanceRoots(units, (one, two, three))


class _StripSums(NamedTuple):
    """Of a strip of rows the sums of products, (3, rows), and the means of both kernels, (2, rows)."""

    products: Floats
    means: Floats


def _strip_sums(grams: tuple[PermutableGram, PermutableGram], strip: tuple[int, int]) -> _StripSums:
    """Return a strip's sums; rows are in memory order, for numpy's pairwise summation along them."""
    units = grams[0].size
    step = max(1, BLOCK_ENTRIES // units)
    found = []
    for start in range(*strip, step):
        k, m = (gram.tile(start, min(start + step, strip[1]), 0, units) for gram in grams)
        products = [(one * other).sum(axis=1) for one, other in ((k, m), (k, k), (m, m))]
        found.append(np.array([*products, k.mean(axis=1), m.mean(axis=1)]))
    whole = np.concatenate(found, axis=1)
    return _StripSums(whole[:3], whole[3:])


def _root_steps(products: float, first: Floats, second: Floats, units: int) -> int:
    crossed, *means = (math.fsum(values.tolist()) / units for values in (first * second, first, second))
    squared = products - 2 * crossed + math.prod(means)
    return round(math.ldexp(math.sqrt(max(0.0, squared)), root_exponent(units)))


PERMUTATIONS_DEFAULT = 999

TEST_SHARE = 0.4
"""Of epsilon for the test's decision, and none of delta: the rest buys the estimates."""

FREQUENCIES_ONE, FREQUENCIES_MANY = 8, 4
"""Brownian frequencies of the test's features, of one column and of each projection of several: 99.7 and 99 %
of a uniform column's distance variance."""

DIRECTIONS_AIMED = 6
"""Projections aimed at where a side has several numeric columns; at least one for each."""

FEATURE_BYTES_MAX = 2**32
"""Memory for the test's features of all units."""

TEST_ERROR = 2e-8
"""Bound on what errors of 1e-9 in every unit's features move a permuted statistic by, with rounding."""

DIRECTIONS_STREAM, PERMUTATIONS_STREAM = 1, 3
"""Spawn keys under the study's seed."""

Group = Annotated[tuple[ColumnName, ...], Field(min_length=1)]


class CuratedDistanceCorrelationParameters(StrictModel):
    """What a study of this procedure may choose; every choice is public.

    Without a test, independence is rejected where the noisy covariance leaves no other choice, which takes
    much stronger dependence.
    """

    method: Literal["permutation", "aggregate", "table", "auto"] = Field(
        "permutation",
        description=(
            "Three noisy roots and a private decision on all units; or, as joint_independence has them, the "
            "noisy number of blocks of units that reject, with a p-value, or a noisy table of cells between "
            "private quantiles, with a p-value and estimates of the cells; auto takes one of these two."
        ),
    )
    blocks: Annotated[int, Field(ge=1, le=BLOCKS_MAX)] | None = Field(
        None, description="Blocks of each owner's units, of method aggregate; by default 5 + 12/epsilon."
    )
    categories: Annotated[int, Field(ge=2, le=QUANTILE_CELLS_MAX)] | None = Field(
        None, description="Cells of every numeric column, of method table; by default by the number of units."
    )
    groups: tuple[Group, Group] | None = Field(
        None, description="The columns of X and those of Y; by default the study's two columns."
    )
    test: bool = Field(True, description="Whether a part of epsilon buys the decision of a permutation test.")
    test_share: Annotated[float, Field(ge=0.05, le=0.95)] = Field(
        TEST_SHARE, description="That part of epsilon."
    )
    permutations: Annotated[int, Field(ge=99, le=9999)] = Field(
        PERMUTATIONS_DEFAULT, description="Permutations of the test; they cost no privacy."
    )


@dataclass(frozen=True)
class SideColumns:
    """The columns of X or Y, by name and by place among the study's numeric and categorical ones."""

    names: tuple[str, ...]
    numeric: tuple[int, ...]
    categorical: tuple[int, ...]
    features: BrownianFeatures

    @property
    def single(self) -> bool:
        """Whether it is one numeric column."""
        return len(self.numeric) == 1 and not self.categorical

    def gram(self, rows: UnitRows, several_rows: bool) -> UnitGram:
        """Return the units' matrix of induced kernel values."""
        own = rows.columns(self.numeric, self.categorical)
        return UnitGram(DistanceKernel(), own, several_rows=several_rows)

    def factor(self, rows: UnitRows) -> Floats:
        """Return features whose inner products approximate the induced kernel, (dimension, units)."""
        own = rows.columns(self.numeric, self.categorical)
        return np.ascontiguousarray(math.sqrt(2) * unit_features(self.features, own).T)


def groups_of(study: Study, groups: tuple[Group, Group] | None) -> tuple[Group, Group]:
    """Return the columns of X and those of Y."""
    names = [column.name for column in study.domain.columns]
    if groups is None:
        if len(names) != 2:
            raise StudyError("with more than two columns, share them out: groups = [[...], [...]]")
        return (names[0],), (names[1],)
    require_all_columns(study, groups)
    return groups


def side_of(study: Study, index: int, names: Group) -> SideColumns:
    """Return what is computed of the columns of X, or of Y."""
    numeric = tuple(i for i, column in enumerate(study.domain.numeric) if column.name in names)
    categorical = tuple(i for i, column in enumerate(study.domain.categorical) if column.name in names)
    categories = tuple(study.domain.categorical[i].categories for i in categorical)
    frequencies = FREQUENCIES_ONE if len(numeric) <= 1 else FREQUENCIES_MANY
    features = BrownianFeatures(_directions(study, index, len(numeric)), frequencies, categories)
    return SideColumns(names, numeric, categorical, features)


def _directions(study: Study, index: int, numeric: int) -> Floats:
    if numeric <= 1:
        return np.ones((numeric, numeric))
    count = numeric * max(1, round(DIRECTIONS_AIMED / numeric))
    seed = np.random.SeedSequence(int(study.seed, 16), spawn_key=(DIRECTIONS_STREAM, index))
    return random_directions(numeric, count, np.random.default_rng(seed))
