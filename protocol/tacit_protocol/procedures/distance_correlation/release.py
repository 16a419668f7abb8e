"""What a study of distance correlation may choose, and its plans at a tester: sketches and projections.

Derivations: docs/mathematics/distance-correlation.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import CategoricalColumn, Domain, Table
from tacit_protocol.features.aligned_sums import (
    PROJECTIONS,
    ProjectedUnits,
    ProjectionRelease,
    RowProjections,
    deal_out,
)
from tacit_protocol.features.brownian import BrownianFeatures, crowded_half_width, random_directions
from tacit_protocol.features.private_cells import answered_categories
from tacit_protocol.features.sketches import BucketDesign, SketchRelease
from tacit_protocol.messages.study import PartyName, Release, Study
from tacit_protocol.numerics.distance_covariance import UNITS_MIN
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.procedures.base import (
    HOPELESS,
    PRODUCTS,
    Fields,
    Progress,
    PublicRuleError,
    Releases,
    StudyError,
    common_fields,
    decided,
    require_work,
    row_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.distance_correlation.verdict import DistanceCorrelationResult
from tacit_protocol.procedures.distance_covariance.statistic import (
    COVARIANCE_SQR_MAX,
    Found,
    NoisyProjections,
    Permutations,
    Report,
    correlation_estimate,
    correlation_of,
    covariance_estimate,
    permutation_test,
    projected_test,
    raw_correlation,
    read_side,
    resolution_caveat,
    truncation_bound,
    variance_estimate,
)
from tacit_protocol.procedures.distance_covariance.sums import OwnSide, SketchedSides, SumsOfSides
from tacit_protocol.procedures.randomised_answers.answers import CELLS_FIRST, PAIRS_MAX
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    DIRECTIONS_STREAM,
    NULL_STREAM,
    PERMUTATIONS_DEFAULT,
    dependence_meaning,
    few_permutations,
    public_generator,
    require_two_sides,
)
from tacit_protocol.procedures.randomised_answers.verdict import AnsweredCorrelation
from tacit_protocol.signing import SealError, require_certified
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, stated
from tacit_protocol.verdicts.presentation import WORK_MAX, Meaning, Null, from_draws

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


class DistanceTest(SumsOfSides):
    """A test of independence from sums of either owner, with estimates of the distance covariance."""

    study: Study
    parameters: DistanceCorrelationParameters
    guarantee: Guarantee

    @property
    def products(self) -> float:
        """How many products a permutation takes, at most: of all rows of one side with the other's."""
        raise NotImplementedError

    def find(self, own: Sequence[Release], report: Report) -> Found:
        """Estimate and test from both releases, in the study's order of owners."""
        raise NotImplementedError

    def require(self) -> None:
        """Raise StudyError where the owners' units, or the work of a verdict, are not what they can be."""
        self.require_same_units()
        require_work(PRODUCTS * self.products, self.parameters.permutations)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:  # noqa: ARG002
        return row_warnings(self.study) + few_permutations(self.study.level, self.parameters.permutations)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> BaseVerdict:
        own = self.checked(releases)
        found = self.find(own, step(progress, "permuting"))
        return self.verdict(found, {owner.name: own[0].units for owner in self.study.owners})

    def verdict(self, found: Found, units: Mapping[str, int]) -> DistanceCorrelationResult:
        """Return what was found as a verdict."""
        study = self.study
        # Noisy projections have no bounds, and so no largest covariance.
        largest = math.inf if found.covariance_interval[0] is None else COVARIANCE_SQR_MAX
        squared = (found.correlation_sqr, *(found.correlation_interval or (None, None)))
        correlation, lower, upper = (None if each is None else correlation_of(each) for each in squared)
        return DistanceCorrelationResult(
            method=found.method if study.alignment is None else f"{found.method}, aligned units",
            **decided(study, found.test.statistic, found.test.pvalue),
            **common_fields(study, units),
            distance_covariance_sqr=stated(found.covariance_sqr, (0.0, math.inf), largest).value,
            distance_covariance_sqr_unbiased=found.covariance_sqr,
            covariance_lower=found.covariance_interval[0],
            covariance_upper=found.covariance_interval[1],
            distance_correlation=correlation,
            lower=lower,
            upper=upper,
            truncation=found.truncation,
            attenuation=found.attenuation,
            buckets=found.buckets,
            aligned=study.alignment is not None,
            warnings=self.warnings(units) + found.caveats + self.matched,
        )

    def meaning(self, verdict: Fields) -> Meaning:
        return dependence_meaning(self.study, verdict)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        if any(owner.name not in releases for owner in self.study.owners):
            return None
        found = self.find([releases[owner.name] for owner in self.study.owners], step(None, "permuting"))
        words = f"the statistic at {self.parameters.permutations} random permutations"
        return from_draws(words, found.test.permuted, self.study.level)

    def permuting(self, report: Report, blocks: npt.NDArray[np.int64] | None = None) -> Permutations:
        """Return the study's permutations, within blocks of units where given."""
        rng = public_generator(self.study, NULL_STREAM)
        return Permutations(self.parameters.permutations, rng, blocks, report)


@dataclass(eq=False)
class SketchPlan(DistanceTest, SketchedSides):
    """``sketch``: sums of Brownian features over public buckets of units.

    ``columns`` is the number of columns of either owner, ``sketches`` their releases, in the study's order.
    """

    study: Study
    parameters: DistanceCorrelationParameters
    guarantee: Guarantee
    columns: tuple[int, ...]
    sketches: tuple[SketchRelease, ...]

    @property
    def products(self) -> float:
        """Buckets times features, which are one release's numbers, with the other's features."""
        return COORDINATES_MAX * min(sketch.features.dimension for sketch in self.sketches)

    def design(self, units: int) -> BucketDesign:
        sizes = [
            sketch.features.dimension * columns
            for sketch, columns in zip(self.sketches, self.columns, strict=True)
        ]
        # Of the two sides' roots of J and p, the geometric mean.
        wished = BUCKET_DENSITY * units * self.mu**2 / math.prod(sizes) ** 0.25
        room = [
            (COORDINATES_MAX - sketch.numbers(0)) // sketch.features.dimension for sketch in self.sketches
        ]
        design = self.near(units, max(1.0, min(wished, *room)))
        if design.buckets > min(room):
            # Rounding to a size made too many: the next larger size makes fewer.
            size = design.bucket_units + 2
            design = BucketDesign(units, units // size, size)
        return design

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Compare what noise alone does to the leading covariance with the most that it can be, 1/4."""
        found = super().warnings(units)
        if not units:
            return found
        try:
            spread = self.spread(self.design(min(units.values())))
        except StudyError as error:
            return (*found, f"{HOPELESS}{error}")
        if spread > 0.25 / 2:
            hidden = "even equal columns would hardly be told from independent ones; ask for more units"
            return (*found, f"{HOPELESS}{hidden}")
        return found

    def find(self, own: Sequence[Release], report: Report) -> Found:
        design, count = self.design(own[0].units), self.parameters.permutations
        level = self.study.level
        first, second = (
            read_side(sketch, design, each) for sketch, each in zip(self.sketches, own, strict=True)
        )
        covariance = covariance_estimate(first, second)
        shown = stated(covariance.value, covariance.interval(1 - level), COVARIANCE_SQR_MAX)
        variances = (variance_estimate(first), variance_estimate(second))
        correlation = correlation_estimate(covariance, variances, 1 - level)
        truncation = truncation_bound(first, second)
        drawn = any(count > 1 for count in self.columns)
        caveats = [resolution_caveat(truncation, drawn=drawn)]
        if correlation is None:
            caveats.append(
                "no distance correlation is stated: a side's own variance is zero, or lost in its noise"
            )
        return Found(
            method=f"sketched distance covariance, {design.buckets} buckets of {design.bucket_units} units, "
            f"{count} permutations",
            test=permutation_test(first, second, self.permuting(report)),
            covariance_sqr=covariance.value,
            correlation_sqr=None if correlation is None else correlation.value,
            covariance_interval=(shown.lower, shown.upper),
            correlation_interval=None if correlation is None else (correlation.lower, correlation.upper),
            truncation=truncation,
            buckets=design.buckets,
            caveats=tuple(caveats),
        )


@dataclass(eq=False)
class ProjectionPlan(DistanceTest):
    """``pnc`` and ``pnc-disjoint``: the published projections of every unit."""

    study: Study
    parameters: DistanceCorrelationParameters
    guarantee: Guarantee
    projections: tuple[ProjectionRelease, ...]

    @property
    def directions(self) -> int:
        """P4's K: the largest number of directions of either owner."""
        return max(release.features.dimension for release in self.projections)

    @property
    def disjoint(self) -> bool:
        """Whether every unit has one of the directions alone."""
        return self.parameters.method == "pnc-disjoint"

    @property
    def products(self) -> float:
        """Of sines of all rows' projections."""
        width = FREQUENCIES * (self.parameters.n_projections or PNC_DIRECTIONS)
        units = max(units_declared(self.study).values(), default=COORDINATES_MAX)
        if self.disjoint:
            return min(units, COORDINATES_MAX) * width**2
        return COORDINATES_MAX * FREQUENCIES * width

    def blocks(self, units: int) -> npt.NDArray[np.int64]:
        """Return each unit's direction for ``pnc-disjoint``, (units,), by its place among aligned units."""
        return deal_out(units, self.directions, public_generator(self.study, DESIGN_STREAM))

    def parts(self, side: int, units: int) -> tuple[SumPart, ...]:
        blocks = self.directions if self.disjoint else 1
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

    def filled(self, own: OwnSide) -> tuple[SumPart, ...]:
        if not isinstance(own.sums, ProjectedUnits):
            raise TypeError("the summary is of another method than the study's")
        return self.projections[own.side].parts(own.sums.units, own.sums)

    def sum(self, side: int, table: Table) -> ProjectedUnits:
        return self.projections[side].project(table, self.blocks(table.units))

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        weak = ("pnc adds noise to every unit, and sees less than the sketch",) if units else ()
        return super().warnings(units) + weak

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        numbers = sum(len(vector.values) for own in releases.values() for vector in own.vectors.values())
        return None if numbers * self.parameters.permutations > WORK_MAX else super().null(verdict, releases)

    def find(self, own: Sequence[Release], report: Report) -> Found:
        first, second = (self.read(side, release) for side, release in enumerate(own))
        return self.find_between(first, second, report)

    def read(self, side: int, release: Release) -> NoisyProjections:
        """Read one owner's noisy projections as statistics take them."""
        vector = release.vectors[PROJECTIONS]
        values = self.projections[side].read(vector, release.units)
        columns = len(self.study.domain_of(self.study.owners[side]).columns)
        return NoisyProjections(values, vector.scale / 2, columns)

    def find_between(self, first: NoisyProjections, second: NoisyProjections, report: Report) -> Found:
        """Estimate and test from two owners' projections; the second one's rows are permuted."""
        blocks = self.blocks(len(first.values)) if self.disjoint else None
        raw = raw_correlation(first, second, blocks)
        method, count = self.parameters.method, self.parameters.permutations
        return Found(
            method=f"{method}, {self.directions} projections, {count} permutations",
            test=projected_test(first, second, self.permuting(report, blocks)),
            covariance_sqr=raw.covariance_sqr,
            correlation_sqr=raw.correlation_sqr,
            attenuation=raw.attenuation,
            caveats=(
                "the distance covariance and correlation are those of the noisy projections, far smaller "
                "than the data's: see attenuation",
            ),
        )


def require_mode(study: Study, parameters: DistanceCorrelationParameters) -> None:
    """Raise StudyError where parameters of peer mode do not fit each other, the method and the owners."""
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


def sketch_plan(study: Study, parameters: DistanceCorrelationParameters, guarantee: Guarantee) -> SketchPlan:
    """Return what a sketch fixes; raises StudyError where it would have too many numbers."""
    domains = [study.domain_of(owner) for owner in study.owners]
    sketches = tuple(
        SketchRelease(_features(study, parameters, side, domain)) for side, domain in enumerate(domains)
    )
    for sketch in sketches:
        if sketch.numbers(2) > COORDINATES_MAX:
            raise StudyError("the study asks for too many numbers; use fewer columns, levels or projections")
    columns = tuple(len(domain.columns) for domain in domains)
    return SketchPlan(study, parameters, guarantee, columns, sketches)


def projections_of(study: Study, parameters: DistanceCorrelationParameters) -> tuple[ProjectionRelease, ...]:
    """Return both owners' projections."""
    if parameters.n_features is not None:
        raise StudyError("parameter n_features has no effect with pnc; leave it out")
    domains = enumerate(study.domain_of(owner) for owner in study.owners)
    return tuple(_projection(study, parameters, side, domain) for side, domain in domains)


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


def answers_plan(study: Study, parameters: DistanceCorrelationParameters) -> AnsweredCorrelation:
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
    plan = AnsweredCorrelation(
        study,
        (first, second),
        place,
        None if parameters.method == "one-round" else 1 - place,
        parameters.permutations,
        parameters.categories,
        parameters.cuts == "even",
    )
    if len(plan.pairs) > PAIRS_MAX:
        raise StudyError(f"answers are for at most {PAIRS_MAX} pairs of columns: leave some out, or sketch")
    plan.require_small()
    plan.require_same_units()
    require_work(plan.work, plan.simulations)
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
