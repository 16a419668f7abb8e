"""How an owner's exact mean embedding becomes a release: noise on its coordinates, or a drawn candidate.

On points drawn from the sender's own noisy histograms, these come first, for a share of the budget; then, for
the rest, the noisy mean on points that are a public function of them and of the seed. One unit moves the
histograms by sqrt(2 d) / n in L2 and the mean by sqrt 2 / n whatever the points are: mu^2 of Gaussian noise,
and epsilon of Laplace noise, add up though the second release depends on the first
(docs/mathematics/database-release.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from tacit_protocol.domain import Domain, Table
from tacit_protocol.features.column_histograms import ColumnHistograms, Integers
from tacit_protocol.features.kernels import FeatureMap, ProductKernel
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.features.moments import (
    MEAN,
    FeatureSums,
    MomentRelease,
    MomentShares,
    sum_features,
    sum_sensitivity,
)
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.exact_sums import grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    noise_scales,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import Budget, Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    ChoiceSource,
    ExponentialChoice,
    check_laplace_sums,
    of_event,
    release_laplace_sums,
    require_laplace,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import ReleaseError, StudyError, parse_parameters, planned_once
from tacit_protocol.procedures.embedding_release.plan import (
    CELLS_MAX,
    DISTANCE_ERROR,
    Candidates,
    EmbeddingPlan,
    EmbeddingReleaseParameters,
    draws_from_histograms,
    noise_of,
    plan_of,
    points_rng,
    refuse_idle_parameters,
    ridge_of,
)

DISTANCE_MAX = 2.125
"""Bound on the distance of two means of norm 1, the rounding of a sum to its grid included."""


@dataclass(frozen=True)
class NoisyMean:
    """The mean's coordinates with noise: Gaussian, or Laplace."""

    plan: EmbeddingPlan

    @property
    def guarantee(self) -> Guarantee:
        """What a sender spends."""
        return self.plan.guarantee

    @property
    def layout(self) -> MomentRelease:
        """The mean alone, with the whole budget."""
        return MomentRelease(self.plan.features, MomentShares(1.0, 0.0))

    @property
    def numbers(self) -> int:
        """How many noisy numbers a sender sends: one a coordinate."""
        return self.layout.numbers

    def sum(self, table: Table) -> FeatureSums:
        """Sum the units' features, exactly."""
        return self.layout.sum(table)

    def release(self, sums: FeatureSums, noise: NoiseSource) -> Release:
        """Add the noise. Raises SensitivityError where it would be too small for its grid."""
        plan, parts = self.plan, self.layout.parts(sums.units, sums)
        if plan.noise == "gaussian":
            vectors = release_sums(parts, plan.guarantee, noise)
        else:
            vectors = {MEAN: release_laplace_sums(parts[0], plan.guarantee, noise)}
        return Release(units=sums.units, guarantee=plan.guarantee, vectors=vectors)

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ValueError where the noise of so many units cannot be drawn."""
        plan, parts = self.plan, self.layout.parts(units)
        if plan.noise == "gaussian":
            owners = 1 if plan.shared is None else len(plan.shared.masking.names)
            require_drawable(parts, plan.guarantee, owners)
        else:
            require_laplace(parts[0], plan.guarantee)

    def check(self, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        plan = self.plan
        try:
            parts = self.layout.parts(release.units)
            if set(release.vectors) != {MEAN} or release.decision is not None or release.choice is not None:
                raise LayoutError("the release has not the vectors that the study asks for")
            if plan.noise == "gaussian":
                check_layout(release.vectors, release.guarantee, parts, plan.guarantee)
            else:
                check_laplace_sums(release.vectors[MEAN], release.guarantee, parts[0], plan.guarantee)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where a mean that is read again has not this study's coordinates."""
        vector = release.vectors.get(MEAN)
        if len(release.vectors) != 1 or vector is None or len(vector.values) != self.numbers:
            raise ReleaseError("the earlier mean has not one coordinate for each point")

    def deviation(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of the mean that is read."""
        (part,) = self.layout.parts(units)
        drawn = 1 if self.plan.shared is None else len(self.plan.shared.masking.names)
        return math.sqrt(drawn) * standard_deviation(self.plan, part) / units

    def noise_error(self, units: int) -> float:
        """Return the root mean square of the norm of the mean's noise."""
        return math.sqrt(self.numbers) * self.deviation(units)


@dataclass(frozen=True)
class DrawnCandidate:
    """One of the candidates, drawn by the exponential mechanism; its loss is its distance from the data."""

    plan: EmbeddingPlan
    candidates: Candidates

    numbers = 1
    """A choice counts as one number."""

    @property
    def guarantee(self) -> Guarantee:
        """What a sender spends."""
        return self.plan.guarantee

    def sum(self, table: Table) -> FeatureSums:
        """Sum the units' features, exactly."""
        return NoisyMean(self.plan).sum(table)

    def mechanism(self, units: int) -> ExponentialChoice:
        """Return how a candidate is drawn for so many units: all of it public."""
        moved = sum_sensitivity(self.plan.features, grid_bits(units, products=False)) / units
        epsilon = self.plan.guarantee.budget.epsilon
        return ExponentialChoice(moved * (1 + 1e-12) + 2 * DISTANCE_ERROR, DISTANCE_MAX, epsilon)

    def release(self, sums: FeatureSums, noise: NoiseSource) -> Release:
        """Draw a candidate. Raises StatisticError where no noise is narrow enough for so many units."""
        if not isinstance(noise, ChoiceSource):
            raise TypeError("this noise source draws numbers alone, and the study asks for a choice")
        points = self.plan.points
        if points is None:
            raise TypeError("candidates lie on points")
        mean = sums.total * 2.0**-sums.bits / sums.units
        losses = self.candidates.distances(self.plan.features(points), mean)
        choice = self.mechanism(sums.units).choose(losses, noise)
        return Release(units=sums.units, guarantee=self.plan.guarantee, choice=choice)

    def require_drawable(self, units: int) -> None:
        """Raise StatisticError or ValueError where no candidate can be drawn for so many units."""
        self.mechanism(units).scale  # noqa: B018 (raises where there is no grid)

    def check(self, release: Release) -> None:
        """Raise ReleaseError where the release is not one choice with the study's guarantee."""
        if release.guarantee != self.plan.guarantee:
            raise ReleaseError("the release states another guarantee than the study")
        self.check_reread(release)

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where the release is not one choice among the study's candidates."""
        if release.vectors or release.decision is not None or release.choice is None:
            raise ReleaseError("the release has not the one choice that the study asks for")
        if release.choice >= len(self.candidates):
            raise ReleaseError("the release chooses a candidate that the study does not have")

    def excess(self, units: int, level: float) -> float:
        """Bound how much farther than the nearest the drawn one is, but for a probability of ``level``."""
        return self.mechanism(units).excess(len(self.candidates), level)


def mechanism_of(plan: EmbeddingPlan) -> NoisyMean | DrawnCandidate:
    """Return how a study's release is made."""
    return NoisyMean(plan) if plan.candidates is None else DrawnCandidate(plan, plan.candidates)


def standard_deviation(plan: EmbeddingPlan, part: SumPart) -> float:
    """Return the standard deviation of the noise on a coordinate of the sums."""
    if plan.noise == "gaussian":
        return noise_scales((part,), plan.guarantee)[part.name]
    return math.sqrt(2) * sums_scale(part, plan.guarantee)


def deviation_of(vector: NoisyVector) -> float:
    """Return the standard deviation of the noise that a vector states."""
    return vector.scale * (math.sqrt(2) if vector.noise == "laplace" else 1.0)


HISTOGRAMS = "histograms"
"""Name of the histograms' vector in a release."""

POINTS_A_COLUMN, POINTS_DEFAULT = 100, 500
"""Points for each column, and in all, where the study names none: what two columns have to do with each other
takes few points, and weights of 500 take seconds."""

BINS_DEFAULT = 20
"""Equal bins of a numeric column."""

SHARE_DEFAULT = 0.25
"""Part of mu^2, or of epsilon, for the histograms."""

BANDWIDTH = 0.2
"""Of the kernel, times the square root of the number of numeric columns: half the median distance of points
that are uniform over the bounds. A function of the study alone, so that databases can be compared."""

DRAWS_KEPT = 4
"""Drawn points remembered: checking a release and reading it both ask for them, and whitening takes time."""


@dataclass(frozen=True)
class HistogramSums:
    """A sender's exact numbers. They never leave it; ``repr`` shows none.

    ``steps`` (K,) are the histograms' sums in steps of 2**-bits. ``noisy`` and ``mean`` are there as soon as
    the histograms' noise was drawn, for the mean depends on it; ``table`` is read again for it.
    """

    units: int
    bits: int
    steps: Integers = field(repr=False)
    table: Table = field(repr=False)
    noisy: NoisyVector | None = field(default=None, repr=False)
    mean: FeatureSums | None = field(default=None, repr=False)


@dataclass(frozen=True)
class HistogramsThenMean:
    """What a study of this placement fixes before any data, and how its release is made."""

    domain: Domain
    parameters: EmbeddingReleaseParameters
    seed: str
    noise: Literal["gaussian", "laplace"]
    guarantee: Guarantee
    count: int

    @property
    def histograms(self) -> ColumnHistograms:
        """The public cells."""
        chosen = self.parameters
        return ColumnHistograms(self.domain, chosen.n_bins or BINS_DEFAULT, chosen.whole_numbers or ())

    @property
    def kernel(self) -> ProductKernel:
        """The kernel: the same for every sender, whatever its points are."""
        bandwidth = BANDWIDTH * math.sqrt(len(self.domain.numeric)) or 1.0
        chosen = self.parameters
        return ProductKernel(chosen.kernel, chosen.bandwidth or bandwidth, chosen.category_similarity)

    @property
    def share(self) -> float:
        """Part of the budget that the histograms have."""
        return self.parameters.histogram_share or SHARE_DEFAULT

    @property
    def numbers(self) -> int:
        """How many noisy numbers a sender sends: one a cell, and one a point."""
        return self.histograms.size + self.count

    def sum(self, table: Table) -> HistogramSums:
        """Count the units by cell, exactly."""
        bits = grid_bits(table.units, products=False)
        return HistogramSums(table.units, bits, self.histograms.sum(table, bits), table)

    def adapt(self, sums: HistogramSums, noise: NoiseSource) -> HistogramSums:
        """Draw the histograms' noise, and sum the features on the points that follow from it.

        Raises SensitivityError where the noise would be too small for its grid.
        """
        parts = self.parts(sums.units, sums.steps)
        if self.noise == "gaussian":
            require_drawable(parts, self.guarantee)
            noisy = release_sums(parts[:1], self.guarantee, noise)[HISTOGRAMS]
        else:
            noisy = release_laplace_sums(parts[0], of_event(self.guarantee, 0), noise)
        features = self.drawn(noisy, sums.units).features
        mean = sum_features(features, sums.table, products=False, bits=sums.bits)
        return replace(sums, noisy=noisy, mean=mean)

    def release(self, sums: HistogramSums, noise: NoiseSource) -> Release:
        """Add the noise. Raises SensitivityError where it would be too small for its grid."""
        if sums.noisy is None or sums.mean is None:
            sums = self.adapt(sums, noise)
        if sums.noisy is None or sums.mean is None:
            raise TypeError("the histograms' noise comes before the mean's")
        parts = self.parts(sums.units, mean=sums.mean.total)
        vectors = {HISTOGRAMS: sums.noisy}
        if self.noise == "gaussian":
            vectors |= release_sums(parts[1:], self.guarantee, noise)
        else:
            vectors[MEAN] = release_laplace_sums(parts[1], of_event(self.guarantee, 1), noise)
        return Release(units=sums.units, guarantee=self.guarantee, vectors=vectors)

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ValueError where the noise of so many units cannot be drawn."""
        parts = self.parts(units)
        if self.noise == "gaussian":
            require_drawable(parts, self.guarantee)
            return
        for place, part in enumerate(parts):
            require_laplace(part, of_event(self.guarantee, place))

    def check(self, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        try:
            if release.decision is not None or release.choice is not None:
                raise LayoutError("the release has not the vectors that the study asks for")
            parts = self.parts(release.units)
            if self.noise == "gaussian":
                check_layout(release.vectors, release.guarantee, parts, self.guarantee)
                return
            if set(release.vectors) != {HISTOGRAMS, MEAN}:
                raise LayoutError("the release has not the vectors that the study asks for")
            if release.guarantee != self.guarantee:
                raise LayoutError("the release states another guarantee than the study")
            for place, part in enumerate(parts):
                paid = of_event(self.guarantee, place)
                check_laplace_sums(release.vectors[part.name], paid, part, paid)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where a release that is read again is not one of this study."""
        self.check(release)

    def drawn(self, noisy: NoisyVector, units: int) -> EmbeddingPlan:
        """Return the plan on the points that follow from noisy histograms: the same for everyone."""
        return _drawn(self, noisy.values, units, -noisy.exponent)

    def deviation(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of the mean."""
        part = self.parts(units)[1]
        if self.noise == "gaussian":
            return noise_scales((part,), self.guarantee)[MEAN] / units
        return math.sqrt(2) * sums_scale(part, of_event(self.guarantee, 1)) / units

    def noise_error(self, units: int) -> float:
        """Return the root mean square of the norm of the mean's noise."""
        return math.sqrt(self.count) * self.deviation(units)

    def parts(
        self, units: int, steps: Integers | None = None, mean: Integers | None = None
    ) -> tuple[SumPart, SumPart]:
        """Lay the release out: histograms, then mean; zeros stand for what is not given.

        Shapes and noise depend on the study and ``units`` alone.
        """
        bits, cells = grid_bits(units, products=False), self.histograms
        diameter = self.kernel.distance_max(len(self.domain.numeric), len(self.domain.categorical))
        return (
            SumPart(
                HISTOGRAMS,
                np.zeros(cells.size, dtype=np.int64) if steps is None else steps,
                -bits,
                cells.l2_sensitivity,
                self.share,
                l1=cells.l1_sensitivity,
            ),
            SumPart(
                MEAN,
                np.zeros(self.count, dtype=np.int64) if mean is None else mean,
                -bits,
                diameter + rounding_sensitivity(self.count, bits),
                1 - self.share,
            ),
        )


@planned_once
def histograms_then_mean(study: Study) -> HistogramsThenMean | None:
    """Return how a study of this placement is released; None where its points are public constants.

    Raises:
        StudyError: the study cannot be run as written.
    """
    parameters = parse_parameters(EmbeddingReleaseParameters, study)
    if not draws_from_histograms(parameters):
        return None
    refuse_idle_parameters(parameters)
    try:
        noise = noise_of(parameters, study.budget)
        guarantee = _guarantee(noise, study.budget, parameters.histogram_share or SHARE_DEFAULT)
    except ValueError as error:
        raise StudyError(str(error)) from None
    databases = 1 if study.curator is not None else len(study.owners)
    columns = len(study.domain.columns)
    room = CELLS_MAX // (columns * databases)
    count = parameters.n_points or max(1, min(POINTS_A_COLUMN * columns, POINTS_DEFAULT, room))
    if count > room:
        raise StudyError(
            f"all owners' points and columns make more than {CELLS_MAX} values; use fewer points"
        )
    how = HistogramsThenMean(study.domain, parameters, study.seed, noise, guarantee, count)
    how.histograms.columns  # noqa: B018 (raises where whole numbers do not fit the columns)
    return how


def _guarantee(noise: Literal["gaussian", "laplace"], budget: Budget, share: float) -> Guarantee:
    if noise == "gaussian":
        return gaussian_guarantee(budget)
    return shared_laplace_guarantee(budget, (share, 1 - share))


@lru_cache(DRAWS_KEPT)
def _drawn(how: HistogramsThenMean, values: tuple[int, ...], units: int, bits: int) -> EmbeddingPlan:
    points = how.histograms.draw(values, units << bits, how.count, points_rng(how.seed))
    features = WhitenedMeanEmbedding(how.kernel, points, ridge_of(how.parameters))
    return EmbeddingPlan("subspace", how.noise, features, how.kernel, how.guarantee, points)


def noisy_shares(how: HistogramsThenMean, vector: NoisyVector, units: int) -> Mapping[str, tuple[float, ...]]:
    """Return each column's noisy shares of the units, by cell."""
    shares = vector.mean(units)
    ends = np.cumsum([cells.size for cells in how.histograms.columns])[:-1]
    parts = np.split(shares, ends)
    return {
        cells.column.name: tuple(part.tolist())
        for cells, part in zip(how.histograms.columns, parts, strict=True)
    }


def features_of(study: Study, release: Release | None = None) -> FeatureMap:
    """Return the map whose mean, exact or noisy, a study releases: of J coordinates, and norm 1 at most.

    Args:
        study: a study of ``embedding_release``.
        release: a sender's release, from which points are drawn where the study's ``placement`` says so.

    Raises:
        StudyError: the study cannot be run as written, or its points are drawn from a release, and none of
            it is given.
    """
    how = histograms_then_mean(study)
    if how is None:
        return plan_of(study).features
    if release is None or HISTOGRAMS not in release.vectors:
        raise StudyError("the points of this study are drawn from each sender's release: give one")
    return how.drawn(release.vectors[HISTOGRAMS], release.units).features
