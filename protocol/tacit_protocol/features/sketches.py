"""Sketches of distance covariances: signed sums of features over public buckets of aligned units.

Every unit has a public bucket and sign, the same at both owners; buckets hold equally many units, as many of
either sign, so that sums do not depend on the features' means. One unit touches one bucket, so replacing it
moves the sums by the features' diameter; a small share of the budget buys each owner's mean and second moment
(docs/mathematics/distance-correlation.md). The joint sketch of p columns has p such blocks over the same
buckets, whose squared sensitivities add up; of second moments every column's own is released
(docs/mathematics/screening.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import Table
from tacit_protocol.features.aligned_sums import sum_placed
from tacit_protocol.features.brownian import BrownianColumns, BrownianFeatures
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix
from tacit_protocol.features.moments import (
    DIAGONAL,
    MEAN,
    OFF_DIAGONAL,
    second_moment_sensitivity,
    sum_sensitivity,
    symmetric,
)
from tacit_protocol.privacy.exact_sums import ExactSum, grid_bits, sums_by_group, whole_steps
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.strict import StudyError

SKETCH = "sketch"

Integers = npt.NDArray[np.int64]

MEAN_SHARE, SECOND_SHARE = 0.01, 0.04
"""Parts of mu^2 for the mean and the second moment: distance variances to about 2 % at 20 000 units and
epsilon 1, for a loss of 2.5 % in the noise of the sketch."""

UNITS_SKETCHED_MAX = 2**27
"""Most units: the public design takes 8 bytes for each, 1 GiB here."""

BUCKETS_MIN = 16
"""Fewest buckets aimed at: their spread is what intervals are made of."""

BUCKET_UNITS_MIN = 2
"""Fewest units of a bucket: one of either sign."""


class DesignError(StudyError):
    """There are too few or too many units for a sketch. Says which; the number of units is public."""

    def __init__(self, message: str, *, few: bool) -> None:
        super().__init__(message)
        self.few = few


@dataclass(frozen=True)
class BucketDesign:
    """Which bucket and sign each unit has, by its place among the aligned units.

    ``bucket_units`` is even. The ``units`` - ``buckets`` * ``bucket_units`` units that are left over (fewer
    than one bucket holds), chosen at random like the rest, are left out.
    """

    units: int
    buckets: int
    bucket_units: int

    @classmethod
    def near(cls, units: int, buckets: float) -> "BucketDesign":
        """Return the design whose number of buckets lies nearest to the one wished for, as sizes allow.

        Raises DesignError where there are fewer than 2 * BUCKETS_MIN units, or too many.
        """
        if units < BUCKETS_MIN * BUCKET_UNITS_MIN:
            raise DesignError(f"a sketch needs at least {BUCKETS_MIN * BUCKET_UNITS_MIN} units", few=True)
        if units > UNITS_SKETCHED_MAX:
            raise DesignError(f"a sketch takes at most {UNITS_SKETCHED_MAX} units", few=False)
        size = max(2, min(2 * round(units / (2 * buckets)), 2 * (units // (2 * BUCKETS_MIN))))
        return cls(units, units // size, size)

    def assign(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return (units,) codes 2 * bucket + (1 for a plus sign), and -1 for a unit left out."""
        places = rng.permutation(self.units)[: self.buckets * self.bucket_units]
        codes = np.full(self.units, -1, dtype=np.int64)
        codes[places] = np.repeat(np.arange(2 * self.buckets), self.bucket_units // 2)
        return codes


@dataclass(frozen=True)
class SketchSums:
    """Integer sums: ``sketch`` (buckets * J,) in steps of 2**-bits, by bucket; of every block its moments."""

    design: BucketDesign
    sketch: Integers = field(repr=False)
    moments: tuple[ExactSum, ...]

    @property
    def units(self) -> int:
        """Number of units."""
        return self.design.units


@dataclass(frozen=True)
class Side:
    """What a tester reads of one block: rows over buckets, the noise on them, and the features' covariance.

    ``buckets`` (m, J), sums over the root of a bucket's units, has rows of covariance ``covariance`` +
    ``bucket_noise``^2 I. ``covariance`` (J, J) carries noise of standard deviation ``covariance_noise`` on
    isometric coordinates. ``norm`` bounds |f| and ``left_out`` the variance in features left out, its trace;
    ``units`` is n. ``mean`` (J,), whose square was subtracted, carries noise ``mean_noise`` on a coordinate.
    """

    buckets: FloatMatrix
    bucket_noise: float
    covariance: FloatMatrix
    covariance_noise: float
    norm: float
    left_out: float
    units: int
    mean: npt.NDArray[np.float64]
    mean_noise: float

    @property
    def bucket_covariance(self) -> FloatMatrix:
        """The covariance of a row of ``buckets``, (J, J)."""
        values, vectors = np.linalg.eigh(self.covariance)
        total: FloatMatrix = (vectors * (np.maximum(values, 0.0) + self.bucket_noise**2)) @ vectors.T
        return total


class BucketSums:
    """Signed sums by bucket, (buckets, J) in steps of 2**-bits, and the moments of blocks of coordinates.

    ``codes`` are :meth:`BucketDesign.assign`'s, by the units' places; ``blocks`` cut the J coordinates.
    """

    def __init__(
        self, buckets: int, codes: npt.NDArray[np.int64], bits: int, blocks: tuple[slice, ...]
    ) -> None:
        self._codes, self._bits, self._blocks = codes, bits, blocks
        self.sketch = np.zeros((buckets, blocks[-1].stop), dtype=np.int64)
        self.moments = tuple(ExactSum(block.stop - block.start, bits, products=True) for block in blocks)

    def add(self, rows: FloatMatrix, places: npt.NDArray[np.int64]) -> None:
        """Add contributions, (units, J), of the units at those places, (units,)."""
        for moments, block in zip(self.moments, self._blocks, strict=True):
            moments.add(rows[:, block])
        add_signed(self.sketch, whole_steps(rows, self._bits), self._codes[places])

    def merge(self, other: "BucketSums") -> None:
        """Add the sums over another part of the table."""
        self.sketch += other.sketch
        for moments, others in zip(self.moments, other.moments, strict=True):
            moments.merge(others)

    def __getstate__(self) -> dict[str, Any]:
        # The codes, eight bytes for each unit, are the reduction's: partial results travel without them.
        return self.__dict__ | {"_codes": self._codes[:0]}


def add_signed(sketch: npt.NDArray[np.int64], steps: FloatMatrix, codes: npt.NDArray[np.int64]) -> None:
    """Add rows of whole steps, (units, J), to their buckets; float64 holds the sums of a slice exactly."""
    used = np.flatnonzero(codes >= 0)
    bucket, sign = codes[used] >> 1, np.where(codes[used] & 1, 1.0, -1.0)
    steps = steps[used] if len(used) < len(steps) else steps
    if len(sketch) <= len(used):
        sketch += sums_by_group(steps, bucket, len(sketch), sign).astype(np.int64)
        return
    # More buckets than units: only those that are met.
    met, bucket = np.unique(bucket, return_inverse=True)
    sketch[met] += sums_by_group(steps, bucket, len(met), sign).astype(np.int64)


class SketchRelease:
    """How features, or columns by column, are sketched, laid out with their sensitivities, and read back."""

    def __init__(self, features: FeatureMap) -> None:
        self.features = features
        self.blocks: tuple[FeatureMap, ...] = (features,)
        self.places: tuple[slice, ...] = (slice(0, features.dimension),)
        if isinstance(features, BrownianColumns):
            self.blocks, self.places = features.blocks, features.places

    def numbers(self, buckets: int) -> int:
        """How many noisy numbers one owner sends."""
        own = sum(block.dimension * (block.dimension + 1) // 2 for block in self.blocks)
        return (buckets + 1) * self.features.dimension + own

    def sum(self, table: Table, design: BucketDesign, codes: Integers) -> SketchSums:
        """Sum the units' signed contributions by bucket, exactly, and their moments, in one pass.

        ``codes`` are by the units' places. Raises UnitCountError where units are not as many as declared.
        """
        bits = grid_bits(table.units, products=True)
        empty = partial(BucketSums, design.buckets, codes, bits, self.places)
        found = sum_placed(self.features, table, bits, empty)
        return SketchSums(design, found.sketch.ravel(), found.moments)

    def parts(self, design: BucketDesign, sums: SketchSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        bits, blocks = grid_bits(design.units, products=True), self.blocks
        moved = _root_of_squares([sum_sensitivity(block, bits) for block in blocks])
        second = _root_of_squares([second_moment_sensitivity(block, bits) for block in blocks])
        if sums is None:
            sketch = np.zeros(design.buckets * self.features.dimension, dtype=np.int64)
            moments = tuple(ExactSum(block.dimension, bits, products=True) for block in blocks)
        else:
            sketch, moments = sums.sketch, sums.moments
        diagonal = np.concatenate([np.diagonal(own.second) for own in moments])
        upper = np.concatenate([own.second[np.triu_indices(len(own.second), 1)] for own in moments])
        parts = (
            SumPart(SKETCH, sketch, -bits, moved, 1 - MEAN_SHARE - SECOND_SHARE),
            SumPart(MEAN, np.concatenate([own.total for own in moments]), -bits, moved, MEAN_SHARE),
            SumPart(DIAGONAL, diagonal, -2 * bits, second, SECOND_SHARE),
        )
        if not len(upper):
            return parts
        # Entries above the diagonal count twice in the Frobenius norm.
        return (*parts, SumPart(OFF_DIAGONAL, upper, -2 * bits, second, SECOND_SHARE, math.sqrt(0.5)))

    def read(self, vectors: Mapping[str, NoisyVector], design: BucketDesign) -> tuple[Side, ...]:
        """Return every block's buckets and covariance, with their noise."""
        root = math.sqrt(design.bucket_units)
        buckets = vectors[SKETCH].mean(1).reshape(design.buckets, -1) / root
        means, diagonal = vectors[MEAN].mean(design.units), vectors[DIAGONAL].mean(design.units)
        upper = vectors[OFF_DIAGONAL].mean(design.units) if OFF_DIAGONAL in vectors else np.zeros(0)
        mean_noise = vectors[MEAN].scale / design.units
        found, used = [], 0
        for block, place in zip(self.blocks, self.places, strict=True):
            mean, size = means[place], place.stop - place.start
            following = used + size * (size - 1) // 2
            second, used = symmetric(diagonal[place], upper[used:following]), following
            found.append(
                Side(
                    buckets[:, place],
                    vectors[SKETCH].scale / root,
                    second - np.outer(mean, mean) + mean_noise**2 * np.eye(size),
                    vectors[DIAGONAL].scale / design.units,
                    block.norm,
                    block.left_out if isinstance(block, BrownianFeatures) else 0.0,
                    design.units,
                    mean,
                    mean_noise,
                )
            )
        return tuple(found)


def _root_of_squares(values: list[float]) -> float:
    if len(values) == 1:
        return values[0]
    # Rounded up: a sum of p squares is off by p units in the last place at most.
    return math.sqrt(math.fsum(value**2 for value in values)) * (1 + 1e-12)
