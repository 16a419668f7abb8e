"""What a study of distance correlation fixes before any data: parameters, releases, public draws.

Sensitivities of the sketch: ``SketchRelease.parts`` in features/sketches.py; derivations:
docs/mathematics/distance-correlation.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import CategoricalColumn, Domain
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections, deal_out
from tacit_protocol.features.brownian import BrownianFeatures, crowded_half_width, random_directions
from tacit_protocol.features.private_cells import (
    answered_categories,
)
from tacit_protocol.features.sketches import BucketDesign, DesignError, SketchRelease
from tacit_protocol.messages.study import PartyName, Release, Study
from tacit_protocol.numerics.distance_covariance import UNITS_MIN
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    check_layout,
    gaussian_guarantee,
    mu_of,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import (
    COORDINATES_MAX,
    Guarantee,
)
from tacit_protocol.procedures.base import (
    PublicRuleError,
    ReleaseError,
    StudyError,
    parse_parameters,
    planned_once,
    require_noise,
    units_declared,
)
from tacit_protocol.procedures.randomised_answers.answers import (
    CELLS_FIRST,
    PAIRS_MAX,
    AnswersPlan,
    require_small,
)
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    DIRECTIONS_STREAM,
    PERMUTATIONS_DEFAULT,
    public_generator,
    require_two_sides,
)
from tacit_protocol.signing import SealError, require_certified
from tacit_protocol.strict import StrictModel

FREQUENCIES = 4
"""Frequencies of one column, and of each projection of several: 99 % of a uniform column's distance variance,
and .73 to .92 of the distance covariance of seven real tables with 5 to 35 columns a side
(docs/benchmarks/p4-frequencies.md)."""

COORDINATES_AIMED = 188
"""Most coordinates by default, where there are several columns: their moments fill half of a release then."""

DIRECTIONS_AIMED = 6
"""Projections aimed at where an owner has several columns; at least one for each."""

PNC_DIRECTIONS = 8
"""P4's projections where an owner has several columns."""


BUCKET_DENSITY = 0.1
"""Buckets per unit and squared mu, times the root of the coordinates: at m = n mu^2 |V|/sqrt J the noise on a
bucket equals its spread, which is best, and |V| is near .1/sqrt p for p columns that fill their bounds
independently. The optimum is flat."""


Method = Literal["two-round", "one-round", "sketch", "pnc", "pnc-disjoint"]

ANSWERS: frozenset[Method] = frozenset(("two-round", "one-round"))
"""Methods by randomised answers: procedures/randomised_answers/answers.py."""


class DistanceCorrelationParameters(StrictModel):
    """What a study of this procedure may choose; every choice is public."""

    method: Method = Field(
        "sketch",
        description=(
            "two-round or one-round, randomised answers of one owner or of both; sketch; or pnc and "
            "pnc-disjoint, the published projections of every unit, for comparison."
        ),
    )
    mode: Literal["tester", "peer"] = Field(
        "tester",
        description="tester: both owners add noise. peer: one owner's release goes to the other alone (pnc).",
    )
    receiver: PartyName | None = Field(
        None,
        description=(
            "The owner that receives, in peer mode; in two rounds by default the one whose columns have more "
            "cells."
        ),
    )
    publish: bool = Field(
        False, description="Whether the receiver releases a private covariance, in peer mode."
    )
    n_projections: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="Public directions, for an owner of several numeric columns."
    )
    n_features: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="Frequencies of a numeric column; more see finer structure and blur the estimate."
    )
    permutations: Annotated[int, Field(ge=99, le=9999)] = Field(
        PERMUTATIONS_DEFAULT, description="Permutations of the test; they cost no privacy."
    )
    categories: Annotated[int, Field(ge=2, le=16)] | None = Field(
        None,
        description=(
            "Cells of a numeric column, of two-round and one-round: 2 to 4 with fitted cuts, 2 to 16 with "
            "even ones. Chosen by epsilon and the number of units where none is given."
        ),
    )
    cuts: Literal["fitted", "even"] = Field(
        "fitted",
        description=(
            "Where a numeric column's cells end: at quantiles bought with 3 to 15 % of epsilon, less the "
            "more units there are (fitted); or evenly within its bounds (two-round and one-round)."
        ),
    )


@dataclass(frozen=True)
class DistanceCorrelationPlan:
    """What a study fixes before any data: both owners' releases, in the study's order, and the guarantee.

    ``columns`` is the number of columns of either owner.
    """

    parameters: DistanceCorrelationParameters
    columns: tuple[int, ...]
    sketches: tuple[SketchRelease, ...]
    projections: tuple[ProjectionRelease, ...]
    guarantee: Guarantee

    def products(self, study: Study) -> float:
        """Return how many products a permutation takes, at most: of all rows of one side with the other's."""
        if self.sketches:
            # Buckets times features are one release's numbers.
            return COORDINATES_MAX * min(sketch.features.dimension for sketch in self.sketches)
        width = FREQUENCIES * (self.parameters.n_projections or PNC_DIRECTIONS)
        units = max(units_declared(study).values(), default=COORDINATES_MAX)
        if self.parameters.method == "pnc-disjoint":
            return min(units, COORDINATES_MAX) * width**2
        return COORDINATES_MAX * FREQUENCIES * width

    def design(self, units: int) -> BucketDesign:
        """Return the buckets for so many units; raises PublicRuleError where no sketch serves them."""
        sizes = [
            sketch.features.dimension * columns
            for sketch, columns in zip(self.sketches, self.columns, strict=True)
        ]
        # Of the two sides' roots of J and p, the geometric mean.
        wished = BUCKET_DENSITY * units * self.mu**2 / math.prod(sizes) ** 0.25
        room = [
            (COORDINATES_MAX - sketch.numbers(0)) // sketch.features.dimension for sketch in self.sketches
        ]
        try:
            design = BucketDesign.near(units, max(1.0, min(wished, *room)))
        except DesignError as error:
            raise PublicRuleError("too-few-units" if error.few else "too-many-units", str(error)) from None
        if design.buckets > min(room):
            # Rounding to a size made too many: the next larger size makes fewer.
            size = design.bucket_units + 2
            design = BucketDesign(units, units // size, size)
        return design

    def layout(self, side: int, units: int) -> tuple[SumPart, ...]:
        """Lay out one owner's release of so many units, without values.

        Raises PublicRuleError where so many units cannot be answered for: too few, or too many, or their
        noise cannot be drawn.
        """
        parts = self._parts(side, units)
        require_noise(lambda: require_drawable(parts, self.guarantee))
        return parts

    def _parts(self, side: int, units: int) -> tuple[SumPart, ...]:
        if self.sketches:
            return self.sketches[side].parts(self.design(units))
        blocks = self.directions if self.parameters.method == "pnc-disjoint" else 1
        if units // blocks < UNITS_MIN:
            raise PublicRuleError(
                "too-few-units",
                f"{self.parameters.method} needs {UNITS_MIN} units or more for every projection, "
                f"{UNITS_MIN * blocks} in all: ask for fewer projections, or more units",
            )
        if self.projections[side].numbers(units) > COORDINATES_MAX:
            raise PublicRuleError("too-many-numbers", self._too_many(side, units))
        return self.projections[side].parts(units)

    def _too_many(self, side: int, units: int) -> str:
        """Say how many projections so many units would leave room for: public numbers alone decide."""
        release, fitting = self.projections[side], COORDINATES_MAX // units
        instead = ["the sketch"] if self.parameters.mode == "tester" else []
        if fitting:
            instead = [f"n_projections = {fitting} or fewer", "pnc-disjoint", *instead]
        advice = "there are too many units for peer mode"
        if instead:
            advice = f"ask for {', or '.join(instead)}"
        return (
            f"{self.parameters.method} sends {release.numbers(units)} numbers of {units} units, and a "
            f"release holds {COORDINATES_MAX} at any epsilon: {advice}"
        )

    @property
    def mu(self) -> float:
        """The Gaussian privacy of one owner's whole release."""
        return mu_of(self.guarantee)

    @property
    def directions(self) -> int:
        """P4's K: the largest number of directions of either owner."""
        return max(release.features.dimension for release in self.projections)


@planned_once
def plan_of(study: Study) -> DistanceCorrelationPlan:
    """Return what the study fixes; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(DistanceCorrelationParameters, study)
    if parameters.categories is not None or parameters.cuts != "fitted":
        raise StudyError("parameters categories and cuts are for two-round and one-round; leave them out")
    require_two_sides(study)
    _require_mode(study, parameters)
    guarantee = gaussian_guarantee(study.budget)
    domains = [(side, owner, study.domain_of(owner)) for side, owner in enumerate(study.owners)]
    columns = tuple(len(domain.columns) for _, _, domain in domains)
    if parameters.method != "sketch":
        if parameters.n_features is not None:
            raise StudyError("parameter n_features has no effect with pnc; leave it out")
        projections = tuple(_projection(study, parameters, side, domain) for side, _, domain in domains)
        return DistanceCorrelationPlan(parameters, columns, (), projections, guarantee)
    sketches = tuple(SketchRelease(_features(study, parameters, side, domain)) for side, _, domain in domains)
    for sketch in sketches:
        if sketch.numbers(2) > COORDINATES_MAX:
            raise StudyError("the study asks for too many numbers; use fewer columns, levels or projections")
    return DistanceCorrelationPlan(parameters, columns, sketches, (), guarantee)


def _require_mode(study: Study, parameters: DistanceCorrelationParameters) -> None:
    if parameters.mode == "tester":
        if parameters.receiver is not None or parameters.publish:
            raise StudyError("parameters receiver and publish belong to peer mode; leave them out")
        return
    if parameters.method == "sketch":
        raise StudyError("peer mode is for pnc and pnc-disjoint; the sketch goes to the tester")
    if study.reusing:
        raise StudyError("in peer mode a release is sealed for its own study; leave reuses out")
    receiver = next((owner for owner in study.owners if owner.name == parameters.receiver), None)
    if receiver is None:
        raise StudyError("say in parameter receiver which of the two owners receives the other's release")
    if receiver.sealing is None:
        raise StudyError("the receiver's sealing certificate is missing: its agent's status shows it")
    try:
        require_certified(receiver.sealing, receiver.key)
    except SealError:
        raise StudyError("the receiver's sealing key is not certified with the receiver's own key") from None


class SidedPlan(Protocol):
    """What a study between two owners of different columns fixes."""

    @property
    def guarantee(self) -> Guarantee:
        """What each owner spends."""

    def layout(self, side: int, units: int) -> tuple[SumPart, ...]:
        """Lay out one owner's release of so many units; raises StudyError where there can be none."""


def release_size(study: Study, plan: SidedPlan) -> int:
    """Return how many noisy numbers one owner sends, at most: it depends on the number of units."""
    known = [owner.units for owner in study.owners if owner.units is not None]
    if not known:
        return COORDINATES_MAX
    return max(sum(len(part.sums) for part in plan.layout(side, known[0])) for side in (0, 1))


def check_side(plan: SidedPlan, side: int, release: Release) -> None:
    """Raise ReleaseError where a release has not the shape and the noise of one owner's."""
    try:
        layout = plan.layout(side, release.units)
    except StudyError as error:
        raise ReleaseError(str(error)) from None
    check_layout(release.vectors, release.guarantee, layout, plan.guarantee)


def check_either_side(plan: SidedPlan, release: Release) -> None:
    """Raise ReleaseError where a release has not the shape and the noise of either owner's."""
    try:
        check_side(plan, 0, release)
    except ReleaseError:
        check_side(plan, 1, release)


def both_releases(plan: SidedPlan, study: Study, releases: Mapping[str, Release]) -> list[Release]:
    """Return the owners' releases in their order; raises ReleaseError where they do not fit each other."""
    own = [releases[owner.name] for owner in study.owners]
    for side, release in enumerate(own):
        check_side(plan, side, release)
    if own[0].units != own[1].units:
        raise ReleaseError("the owners counted different numbers of units: their rows are not aligned")
    return own


def aimed(numeric: int) -> int:
    """Return how many projections the sketch has by default of so many numeric columns."""
    return numeric * max(1, round(DIRECTIONS_AIMED / numeric)) if numeric > 1 else numeric


def _features(
    study: Study, parameters: DistanceCorrelationParameters, side: int, domain: Domain
) -> BrownianFeatures:
    numeric = len(domain.numeric)
    count = aimed(numeric) if parameters.n_projections is None or numeric <= 1 else parameters.n_projections
    directions = _directions(study, side, numeric, count)
    categories = tuple(column.categories for column in domain.categorical)
    # One column has many places at its ends; projections of several have few.
    half_width = crowded_half_width(numeric) if numeric > 1 else None
    fitting = (COORDINATES_AIMED - sum(categories)) // count if numeric > 1 else FREQUENCIES
    kept = parameters.n_features or max(1, min(FREQUENCIES, fitting))
    try:
        return BrownianFeatures(directions, kept, categories, half_width)
    except ValueError as error:
        raise StudyError(str(error)) from None


def _projection(
    study: Study, parameters: DistanceCorrelationParameters, side: int, domain: Domain
) -> ProjectionRelease:
    if domain.categorical:
        raise StudyError("pnc takes numeric columns alone; use the sketch for categories")
    numeric = len(domain.numeric)
    count = (parameters.n_projections or PNC_DIRECTIONS) if numeric > 1 else 1
    features = RowProjections(_directions(study, side, numeric, count))
    return ProjectionRelease(features, parameters.method == "pnc-disjoint")


def _directions(study: Study, side: int, numeric: int, count: int) -> npt.NDArray[np.float64]:
    """One column has the direction 1; several have ``count`` public random ones."""
    if numeric == 0:
        return np.zeros((0, 0))
    if numeric == 1:
        return np.ones((1, 1))
    return random_directions(numeric, count, public_generator(study, DIRECTIONS_STREAM, side))


def blocks_of(plan: DistanceCorrelationPlan, study: Study, units: int) -> npt.NDArray[np.int64]:
    """Return each unit's direction for ``pnc-disjoint``, (units,), by its place among the aligned units."""
    return deal_out(units, plan.directions, public_generator(study, DESIGN_STREAM))


@planned_once
def answers_plan(study: Study, parameters: DistanceCorrelationParameters) -> AnswersPlan:
    """Return what the study fixes; raises StudyError where it cannot be run as written."""
    require_two_sides(study)
    if parameters.mode != "tester" or parameters.publish:
        raise StudyError("parameters mode and publish are for pnc; leave them out")
    if parameters.n_features is not None or parameters.n_projections is not None:
        raise StudyError("parameters n_features and n_projections have no effect on answers; leave them out")
    if study.reusing:
        raise StudyError("answers are made for their own study here; leave reuses out")
    first, second = (study.domain_of(owner) for owner in study.owners)
    place = _first(study, parameters, (first, second))
    plan = AnswersPlan(study, parameters, (first, second), place, parameters.permutations)
    if len(plan.pairs) > PAIRS_MAX:
        raise StudyError(f"answers are for at most {PAIRS_MAX} pairs of columns: leave some out, or sketch")
    require_small(plan)
    return plan


def _first(study: Study, parameters: DistanceCorrelationParameters, domains: tuple[Domain, Domain]) -> int:
    """Return who answers first: the other than the receiver, or else whose columns have fewer cells."""
    if parameters.method == "one-round":
        if parameters.receiver is not None:
            raise StudyError("in one round nobody receives anything; leave receiver out")
        return 0
    if parameters.receiver is None:
        numeric = parameters.categories or CELLS_FIRST
        sizes = [
            max(
                answered_categories(c) if isinstance(c, CategoricalColumn) else numeric
                for c in domain.columns
            )
            for domain in domains
        ]
        return int(sizes[1] < sizes[0])
    names = [owner.name for owner in study.owners]
    if parameters.receiver not in names:
        raise StudyError("say in parameter receiver which of the two owners receives the other's answers")
    return 1 - names.index(parameters.receiver)
