"""How an owner's exact mean embedding becomes a release: noise on its coordinates, or a drawn candidate."""

import math
from dataclasses import dataclass

from tacit_protocol.domain.table import Table
from tacit_protocol.features.moment_release import MEAN, MomentRelease, MomentShares
from tacit_protocol.features.sums import FeatureSums, sum_sensitivity
from tacit_protocol.messages.release import Release
from tacit_protocol.privacy.dyadic import grid_bits
from tacit_protocol.privacy.exponential_choice import ChoiceSource, ExponentialChoice
from tacit_protocol.privacy.gaussian_sums import (
    LayoutError,
    SumPart,
    check_layout,
    noise_scales,
    release_sums,
)
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.laplace_sums import check_laplace_sums, laplace_scale, release_laplace_sums
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.vector import NoisyVector
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.embedding_release_plan import EmbeddingPlan
from tacit_protocol.statistics.candidates import DISTANCE_ERROR, Candidates

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
        except (LayoutError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where a mean that is read again has not this study's coordinates."""
        vector = release.vectors.get(MEAN)
        if len(release.vectors) != 1 or vector is None or len(vector.values) != self.numbers:
            raise ReleaseError("the earlier mean has not one coordinate for each point")

    def deviation(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of the mean."""
        (part,) = self.layout.parts(units)
        return standard_deviation(self.plan, part) / units

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
    return math.sqrt(2) * laplace_scale(part, plan.guarantee)


def deviation_of(vector: NoisyVector) -> float:
    """Return the standard deviation of the noise that a vector states."""
    return vector.scale * (math.sqrt(2) if vector.noise == "laplace" else 1.0)
