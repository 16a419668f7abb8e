"""What a screening study fixes before any data: parameters, both owners' sketches, buckets, permutations.

Sensitivities of the sketches: ``SketchRelease.parts`` in features/sketches.py; derivations:
docs/mathematics/screening.md.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import Domain
from tacit_protocol.features.brownian import BrownianColumns
from tacit_protocol.features.sketches import BUCKETS_MIN, BucketDesign, DesignError, SketchRelease
from tacit_protocol.messages.study import PartyName, Study
from tacit_protocol.privacy.gaussian_mechanism import SumPart, gaussian_guarantee, mu_of
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.procedures.base import PublicRuleError, StudyError, parse_parameters
from tacit_protocol.procedures.distance_correlation.release import require_two_sides
from tacit_protocol.procedures.screening.statistic import smallest_level
from tacit_protocol.strict import StrictModel

FREQUENCIES_MANY, FREQUENCIES_FEW = 4, 2
"""Frequencies of a column, 99 and 95 % of a uniform column's distance variance; few for more than
COLUMNS_FEW columns, so that the release has room for buckets."""

COLUMNS_FEW = 64
"""Most columns of one owner with many frequencies: 16 buckets of them then take a tenth of a release."""

PAIRS_MAX = 1000
"""Most pairs of a study: they bound the size of a verdict, and the permutations that its levels ask for."""

MATRIX_COLUMNS_MAX = 128
"""Most columns, of both owners, with a correlation matrix: 8128 numbers in the verdict."""

PERMUTATIONS_MIN, PERMUTATIONS_MAX = 999, 999_999
"""Fewest by default; and most: a thousand columns then take the tester a minute or two."""

PERMUTATIONS_PER_LEVEL = 3
"""By default as many permutations as that a single discovery may be passed by this many, and no more."""

BUCKET_DENSITY = 0.13
"""Buckets per unit and squared mu of a column: the noise on a bucket then equals the spread of the leading
feature of a column that fills its bounds. More than the estimate alone would ask for: the small levels of
many pairs need many buckets, and the optimum is flat."""

BUCKETS_AIMED_MIN = 32
"""Fewest buckets aimed at, where units allow: of fewer a coordinate that stands out decides too much."""


class ScreeningParameters(StrictModel):
    """What a study may choose; of two owners with as many columns the first has the outcome."""

    outcome: PartyName | None = Field(
        None, description="The owner whose columns are the outcomes; by default the one with fewer columns."
    )
    control: Literal["by", "bh"] = Field(
        "by", description="Control of false discoveries: by holds always, bh assumes positive dependence."
    )
    matrix: bool = Field(False, description="Also estimate the correlations of all columns with each other.")
    n_features: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="Frequencies of a numeric column; more see finer structure and blur the estimate."
    )
    permutations: Annotated[int, Field(ge=99, le=PERMUTATIONS_MAX)] | None = Field(
        None, description="Permutations of the test; they cost no privacy."
    )


@dataclass(frozen=True)
class ScreeningPlan:
    """What a study fixes. ``outcome`` is the place, in the study, of the owner with the outcomes."""

    parameters: ScreeningParameters
    sketches: tuple[SketchRelease, SketchRelease]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    outcome: int
    level: float
    guarantee: Guarantee

    @property
    def pairs(self) -> int:
        """Number of pairs tested."""
        return len(self.names[0]) * len(self.names[1])

    @property
    def smallest(self) -> float:
        """The p-value that a single discovery must not exceed."""
        return smallest_level(self.level, self.pairs, self.parameters.control)

    @property
    def permutations(self) -> int:
        """Number of permutations: those asked for, or enough for a single discovery."""
        if self.parameters.permutations is not None:
            return self.parameters.permutations
        wished = math.ceil((PERMUTATIONS_PER_LEVEL + 1) / self.smallest) - 1
        return min(PERMUTATIONS_MAX, max(PERMUTATIONS_MIN, wished))

    @property
    def mu(self) -> float:
        """The Gaussian privacy of one owner's whole release."""
        return mu_of(self.guarantee)

    def design(self, units: int) -> BucketDesign:
        """Return the buckets for so many units; raises PublicRuleError where no sketch serves them.

        The best number is the geometric mean of both owners': n times what a column gets of mu squared.
        """
        wished = BUCKET_DENSITY * units * self.mu**2 / math.sqrt(self.pairs)
        try:
            design = BucketDesign.near(units, max(wished, BUCKETS_AIMED_MIN))
        except DesignError as error:
            raise PublicRuleError("too-few-units" if error.few else "too-many-units", str(error)) from None
        room = min(_room(sketch) for sketch in self.sketches)
        if design.buckets <= room:
            return design
        size = 2 * math.ceil(units / (2 * (room + 1)))
        while units // size > room:
            size += 2
        return BucketDesign(units, units // size, size)

    def layout(self, side: int, units: int) -> tuple[SumPart, ...]:
        """Lay out one owner's release of so many units; raises StudyError where no sketch serves them."""
        return self.sketches[side].parts(self.design(units))

    def hopeless(self, units: int) -> str | None:
        """Say why even a column equal to the outcome would hardly be found among so many units, or None."""
        try:
            design = self.design(units)
        except StudyError as error:
            return str(error)
        root = math.sqrt(design.bucket_units)
        noises = [sketch.parts(design)[0].scale(self.mu) / root for sketch in self.sketches]
        # A feature's variance is at most 1/4, of either column, and so is their covariance.
        spread = math.prod(math.sqrt(0.25 + noise**2) for noise in noises) / math.sqrt(design.buckets)
        if float(-ndtri(self.smallest / 2)) * spread < 0.25:
            return None
        return "even a column equal to the outcome would hardly be found; ask for more units or fewer columns"


def screening_plan(study: Study) -> ScreeningPlan:
    """Return what the study fixes; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(ScreeningParameters, study)
    require_two_sides(study)
    guarantee = gaussian_guarantee(study.budget)
    first, second = (study.domain_of(owner) for owner in study.owners)
    names = (_names(first), _names(second))
    _require_room(parameters, names)
    sketches = (_sketch(parameters, first), _sketch(parameters, second))
    if min(_room(sketch) for sketch in sketches) < BUCKETS_MIN:
        raise StudyError(
            f"an owner would send over {COORDINATES_MAX} numbers; use fewer columns, levels or n_features"
        )
    return ScreeningPlan(
        parameters, sketches, names, _outcome(study, parameters, names), study.level, guarantee
    )


def _names(domain: Domain) -> tuple[str, ...]:
    """Name the columns in the order of their features: numeric ones first."""
    return tuple(c.name for c in domain.numeric) + tuple(c.name for c in domain.categorical)


def _require_room(parameters: ScreeningParameters, names: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    if len(names[0]) * len(names[1]) > PAIRS_MAX:
        raise StudyError(f"a study screens at most {PAIRS_MAX} pairs of columns; leave some out")
    if parameters.matrix and len(names[0]) + len(names[1]) > MATRIX_COLUMNS_MAX:
        raise StudyError(f"a correlation matrix takes at most {MATRIX_COLUMNS_MAX} columns; leave some out")


def _sketch(parameters: ScreeningParameters, domain: Domain) -> SketchRelease:
    few = len(domain.columns) > COLUMNS_FEW
    count = parameters.n_features or (FREQUENCIES_FEW if few else FREQUENCIES_MANY)
    categories = tuple(column.categories for column in domain.categorical)
    return SketchRelease(BrownianColumns(len(domain.numeric), count, categories))


def _room(sketch: SketchRelease) -> int:
    """Return how many buckets a release has room for."""
    return (COORDINATES_MAX - sketch.numbers(0)) // sketch.features.dimension


def _outcome(
    study: Study, parameters: ScreeningParameters, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> int:
    if parameters.outcome is None:
        return int(len(names[1]) < len(names[0]))
    for side, owner in enumerate(study.owners):
        if owner.name == parameters.outcome:
            return side
    raise StudyError("parameter outcome: name one of the two owners")
