"""Noisy sums of two owners' different columns of the same units: how they are laid out, made and checked.

Sensitivities of the sketch: ``SketchRelease.parts`` in features/sketches.py.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

from tacit_protocol.domain import Table
from tacit_protocol.features.aligned_sums import ProjectedUnits
from tacit_protocol.features.sketches import BucketDesign, DesignError, SketchRelease, SketchSums
from tacit_protocol.messages.study import Release
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    check_layout,
    mu_of,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    PublicRuleError,
    ReleaseError,
    StudyError,
    require_noise,
    units_declared,
)
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    ColumnsApart,
    public_generator,
    side_of,
)


@dataclass(frozen=True)
class OwnSide:
    """One owner's exact numbers and its place in the study. They never leave the owner."""

    side: int
    sums: SketchSums | ProjectedUnits = field(repr=False)


class SumsOfSides(ColumnsApart):
    """Two owners of different columns release noisy sums, or projections, of the same units."""

    def parts(self, side: int, units: int) -> tuple[SumPart, ...]:
        """Lay out one owner's release, without values; raises PublicRuleError where there can be none."""
        raise NotImplementedError

    def filled(self, own: OwnSide) -> tuple[SumPart, ...]:
        """Lay out one owner's release with its values."""
        raise NotImplementedError

    def sum(self, side: int, table: Table) -> SketchSums | ProjectedUnits:
        """Sum, or project, an owner's units, exactly."""
        raise NotImplementedError

    @property
    def mu(self) -> float:
        """The Gaussian privacy of one owner's whole release."""
        return mu_of(self.guarantee)

    def layout(self, side: int, units: int) -> tuple[SumPart, ...]:
        """Lay out one owner's release, whose noise can be drawn."""
        parts = self.parts(side, units)
        require_noise(lambda: require_drawable(parts, self.guarantee))
        return parts

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        """How many noisy numbers one owner sends, at most: it depends on the number of units."""
        known = list(units_declared(self.study).values())
        if not known:
            return COORDINATES_MAX
        return max(sum(len(part.sums) for part in self.layout(side, known[0])) for side in (0, 1))

    def summarise(self, table: Table, order: object = None) -> OwnSide:  # noqa: ARG002
        """Sum or project one owner's units; the table's columns tell which owner it is.

        Units have the places that the table gives them, the same at both owners.
        """
        side = side_of(self.study, table.domain)
        self.layout(side, table.units)
        return OwnSide(side, self.sum(side, table))

    def privatise(self, summary: OwnSide, noise: NoiseSource) -> Release:
        vectors = release_sums(self.filled(summary), self.guarantee, noise)
        return Release(units=summary.sums.units, guarantee=self.guarantee, vectors=vectors)

    def check_side(self, side: int, release: Release) -> None:
        try:
            layout = self.layout(side, release.units)
        except StudyError as error:
            raise ReleaseError(str(error)) from None
        check_layout(release.vectors, release.guarantee, layout, self.guarantee)

    def check_release(self, release: Release) -> None:
        try:
            self.check_side(0, release)
        except ReleaseError:
            self.check_side(1, release)


class SketchedSides(SumsOfSides):
    """Both owners sum bounded features of all their columns over public buckets of units."""

    sketches: tuple[SketchRelease, ...]

    def design(self, units: int) -> BucketDesign:
        """Return the buckets for so many units; raises PublicRuleError where no sketch serves them."""
        raise NotImplementedError

    def near(self, units: int, buckets: float) -> BucketDesign:
        """Return the buckets whose number is nearest to that one."""
        try:
            return BucketDesign.near(units, buckets)
        except DesignError as error:
            raise PublicRuleError("too-few-units" if error.few else "too-many-units", str(error)) from None

    def parts(self, side: int, units: int) -> tuple[SumPart, ...]:
        return self.sketches[side].parts(self.design(units))

    def filled(self, own: OwnSide) -> tuple[SumPart, ...]:
        if not isinstance(own.sums, SketchSums):
            raise TypeError("the summary is of another method than the study's")
        return self.sketches[own.side].parts(own.sums.design, own.sums)

    def sum(self, side: int, table: Table) -> SketchSums:
        design = self.design(table.units)
        codes = design.assign(public_generator(self.study, DESIGN_STREAM))
        return self.sketches[side].sum(table, design, codes)

    def spread(self, design: BucketDesign) -> float:
        """Return what noise alone does to the leading covariance: its standard deviation, about.

        A feature's variance is at most 1/4, of either column, and so is their covariance.
        """
        root = math.sqrt(design.bucket_units)
        noises = [sketch.parts(design)[0].scale(self.mu) / root for sketch in self.sketches]
        return math.prod(math.sqrt(0.25 + noise**2) for noise in noises) / math.sqrt(design.buckets)
