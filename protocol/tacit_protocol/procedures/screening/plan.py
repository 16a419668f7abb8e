"""What a study of screening may choose, what both its ways share, and the plan of one by sketches.

Sensitivities: ``SketchRelease.parts`` in features/sketches.py. Derivations: docs/mathematics/screening.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import Domain
from tacit_protocol.features.brownian import BrownianColumns
from tacit_protocol.features.sketches import BUCKETS_MIN, BucketDesign, SketchRelease
from tacit_protocol.messages.study import PartyName, Release, Study
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.procedures.base import (
    HOPELESS,
    PRODUCTS,
    WORK_MAX,
    Fields,
    Progress,
    Releases,
    StudyError,
    common_fields,
    require_work,
    row_warnings,
    step,
)
from tacit_protocol.procedures.distance_covariance.statistic import (
    COVARIANCE_SQR_MAX,
    Permutations,
    correlation_of,
    resolution_caveat,
    truncation_bound,
)
from tacit_protocol.procedures.distance_covariance.sums import SketchedSides
from tacit_protocol.procedures.randomised_answers.sides import (
    NULL_STREAM,
    ColumnsApart,
    public_generator,
    require_two_sides,
)
from tacit_protocol.procedures.screening.statistic import (
    ColumnSide,
    ScreeningTests,
    estimate_pair,
    screening_tests,
    signed_correlations,
)
from tacit_protocol.procedures.screening.verdict import (
    Control,
    ScreenedColumn,
    ScreeningVerdict,
    SignedCorrelations,
    false_discovery_values,
    smallest_level,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import stated
from tacit_protocol.verdicts.presentation import NO_PROOF, Meaning, joined

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

PILOT_STREAM = 4
"""Spawn key under the study's seed: of the permutations that standardise."""

CONTROLS: Mapping[Control, str] = {"by": "Benjamini and Yekutieli", "bh": "Benjamini and Hochberg"}
"""Who found the control of the false discovery rate."""

HIDDEN = "even a column equal to the outcome would hardly be found; ask for more units or fewer columns"
"""Said where a study is hopeless."""


class ScreeningParameters(StrictModel):
    """What a study may choose; of two owners with as many columns the first has the outcome."""

    outcome: PartyName | None = Field(
        None, description="The owner whose columns are the outcomes; by default the one with fewer columns."
    )
    control: Literal["by", "bh"] = Field(
        "by", description="Control of false discoveries: by holds always, bh assumes positive dependence."
    )
    matrix: bool = Field(
        False,
        description=(
            "Estimate the correlations of all columns with each other, from sketches, which find far fewer "
            "columns than answers."
        ),
    )
    permutations: Annotated[int, Field(ge=99, le=PERMUTATIONS_MAX)] | None = Field(
        None, description="Permutations of the test; they cost no privacy."
    )
    method: Literal["two-round", "one-round"] = Field(
        "two-round",
        description="Whose columns are randomised answers: the outcome's owner's, or both owners'.",
    )
    categories: Annotated[int, Field(ge=2, le=4)] | None = Field(
        None,
        description=(
            "Cells of a numeric column. Chosen by epsilon, columns and the number of units where none is "
            "given."
        ),
    )


class ScreeningTest(ColumnsApart):
    """Which of one owner's columns depend on another's outcomes, whatever is released.

    Attributes:
        outcome: the place, in the study, of the owner with the outcomes.
        control: how false discoveries are controlled.
        smallest: the p-value that a single discovery must not exceed.
        permutations: how many each test has.
        drawn: what they are called.
    """

    outcome: int
    control: Control
    smallest: float
    permutations: int
    drawn: ClassVar[str]

    @property
    def few(self) -> tuple[str, ...]:
        """What is said where so few permutations cannot find a single column."""
        if 1 / (self.permutations + 1) <= self.smallest:
            return ()
        return (
            "a single column cannot be found with so few permutations; ask for at least "
            f"{int(1 / self.smallest)}, which cost no privacy",
        )

    def describe_request(self) -> tuple[str, ...]:
        names = [names_of_features(self.study.domain_of(owner)) for owner in self.study.owners]
        outcomes, columns = names[self.outcome], names[1 - self.outcome]
        owners = self.study.owners[self.outcome].name, self.study.owners[1 - self.outcome].name
        return (
            f"{len(columns)} columns of {owners[1]} against {', '.join(outcomes)} of {owners[0]}; "
            f"false discovery rate at most {self.study.level:g}, {self.permutations} {self.drawn}",
        )

    def meaning(self, verdict: Fields) -> Meaning:
        pairs = verdict["pairs"]
        found = [pair["column"] for pair in pairs if pair["reject"]]
        of = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of a column and an outcome"
        if not found:
            sentence = f"No dependence was found among {of} (false discovery rate {self.study.level:g})."
            return Meaning(sentence, NO_PROOF)
        named = joined(list(dict.fromkeys(found)), 6)
        assumed = ", if the tests are independent or agree" if self.control == "bh" else ""
        return Meaning(
            f"The outcome depends on {named}: {len(found)} of {of} were found (false discovery rate "
            f"{self.study.level:g}).",
            f"Of the pairs found, the expected share of false ones is at most {self.study.level:g}{assumed}; "
            "of the others nothing was shown, which is no proof of their independence.",
        )


@dataclass(eq=False)
class SketchedScreening(ScreeningTest, SketchedSides):
    """For a correlation matrix: one joint sketch of all columns of either owner."""

    study: Study
    parameters: ScreeningParameters
    guarantee: Guarantee
    sketches: tuple[SketchRelease, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    outcome: int
    drawn: ClassVar[str] = "permutations"

    @property
    def control(self) -> Control:  # type: ignore[override]
        """As asked for."""
        return self.parameters.control

    @property
    def pairs(self) -> int:
        """Number of pairs tested."""
        return len(self.names[0]) * len(self.names[1])

    @property
    def smallest(self) -> float:  # type: ignore[override]
        """By the study's level."""
        return smallest_level(self.study.level, self.pairs, self.control)

    @property
    def permutations(self) -> int:  # type: ignore[override]
        """As asked for, or as many as needed."""
        return permutations_of(self.parameters, self.smallest, self.work)

    @property
    def work(self) -> float:
        """What a permutation takes at most, in simulated numbers: buckets times features are a release's."""
        return PRODUCTS * COORDINATES_MAX * min(sketch.features.dimension for sketch in self.sketches)

    def check_units(self, units: Mapping[str, int]) -> None:
        """Lay out both owners' releases: either number of units is both's."""
        for count in units.values():
            for side in (0, 1):
                self.layout(side, count)

    def design(self, units: int) -> BucketDesign:
        """Return the buckets for so many units; raises PublicRuleError where no sketch serves them.

        The best number is the geometric mean of both owners': n times what a column gets of mu squared.
        """
        wished = BUCKET_DENSITY * units * self.mu**2 / math.sqrt(self.pairs)
        design = self.near(units, max(wished, BUCKETS_AIMED_MIN))
        room = min(_room(sketch) for sketch in self.sketches)
        if design.buckets <= room:
            return design
        size = 2 * math.ceil(units / (2 * (room + 1)))
        while units // size > room:
            size += 2
        return BucketDesign(units, units // size, size)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        found = row_warnings(self.study)
        if units:
            try:
                spread = self.spread(self.design(min(units.values())))
            except StudyError as error:
                found = (*found, f"{HOPELESS}{error}")
            else:
                if float(-ndtri(self.smallest / 2)) * spread >= 0.25:
                    found = (*found, f"{HOPELESS}{HIDDEN}")
        return found + self.few

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> ScreeningVerdict:
        study, own = self.study, self.checked(releases)
        columns = [self._read(side, release) for side, release in enumerate(own)]
        outcomes, others = columns[self.outcome], columns[1 - self.outcome]
        permuting = Permutations(
            self.permutations, public_generator(study, NULL_STREAM), progress=step(progress, "permuting")
        )
        tests = screening_tests(
            [column.side for column in outcomes],
            [column.side for column in others],
            permuting,
            public_generator(study, PILOT_STREAM),
        )
        pairs = self._pairs(outcomes, others, tests)
        design, counted = self.design(own[0].units), {owner.name: own[0].units for owner in study.owners}
        unknown = any(pair.distance_correlation is None for pair in pairs)
        caveat = "no distance correlation is stated for a column whose own variance is zero, or lost in noise"
        return ScreeningVerdict(
            method=(
                f"sketched distance covariance of {self.pairs} pairs of columns, {design.buckets} buckets of "
                f"{design.bucket_units} units, {self.permutations} permutations, false discovery rate by "
                f"{CONTROLS[self.control]}"
            ),
            reject=any(pair.reject for pair in pairs),
            **common_fields(study, counted),
            pairs=pairs,
            matrix=self._matrix(columns),
            buckets=design.buckets,
            aligned=study.alignment is not None,
            warnings=self.warnings(counted)
            + (resolution_caveat(max(pair.truncation for pair in pairs), drawn=False),)
            + ((caveat,) if unknown else ())
            + self.matched,
        )

    def _read(self, side: int, release: Release) -> list[ColumnSide]:
        """Return every column's part; numeric ones, which have an order, come first."""
        sketch = self.sketches[side]
        read = sketch.read(release.vectors, self.design(release.units))
        numeric = sum(not getattr(block, "categories", ()) for block in sketch.blocks)
        return [ColumnSide(own, ordered=place < numeric) for place, own in enumerate(read)]

    def _pairs(
        self, outcomes: Sequence[ColumnSide], others: Sequence[ColumnSide], tests: ScreeningTests
    ) -> tuple[ScreenedColumn, ...]:
        """Estimate every pair and rank them: by p-value, then by the estimate of the covariance."""
        level = self.study.level
        qvalues = false_discovery_values(tests.pvalues, self.control)
        found = []
        for i, outcome in enumerate(outcomes):
            for j, column in enumerate(others):
                estimate = estimate_pair(outcome, column, 1 - level)
                interval = estimate.covariance.interval(1 - level)
                covariance = stated(estimate.covariance.value, interval, COVARIANCE_SQR_MAX)
                known = estimate.correlation
                ends = () if known is None else (known.value, known.lower, known.upper)
                correlation, lower, upper = map(correlation_of, ends) if ends else (None, None, None)
                found.append(
                    ScreenedColumn(
                        outcome=self.names[self.outcome][i],
                        column=self.names[1 - self.outcome][j],
                        distance_covariance_sqr=covariance.value,
                        distance_covariance_sqr_unbiased=covariance.unbiased,
                        covariance_lower=covariance.lower,
                        covariance_upper=covariance.upper,
                        distance_correlation=correlation,
                        lower=lower,
                        upper=upper,
                        sign=estimate.sign,
                        truncation=truncation_bound(outcome.side, column.side),
                        statistic=float(tests.statistics[i, j]),
                        pvalue=float(tests.pvalues[i, j]),
                        qvalue=float(qvalues[i, j]),
                        reject=bool(qvalues[i, j] <= level),
                    )
                )
        return tuple(sorted(found, key=lambda pair: (pair.pvalue, -pair.distance_covariance_sqr_unbiased)))

    def _matrix(self, columns: Sequence[Sequence[ColumnSide]]) -> SignedCorrelations:
        correlations = signed_correlations([*columns[0], *columns[1]])
        below = correlations[np.tril_indices(len(correlations), -1)]
        return SignedCorrelations(
            columns=self.names[0] + self.names[1],
            correlations=tuple(float(value) if np.isfinite(value) else None for value in below),
        )


def sketched_screening(study: Study, parameters: ScreeningParameters) -> SketchedScreening:
    """Return the plan of a study for a correlation matrix; raises StudyError where it cannot be run."""
    require_two_sides(study)
    guarantee = gaussian_guarantee(study.budget)
    if (parameters.method, parameters.categories) != ("two-round", None):
        raise StudyError(
            "a correlation matrix is made of sketches: leave parameters method and categories out"
        )
    first, second = (study.domain_of(owner) for owner in study.owners)
    names = (names_of_features(first), names_of_features(second))
    require_room(parameters, names)
    sketches = (_sketch(first), _sketch(second))
    if min(_room(sketch) for sketch in sketches) < BUCKETS_MIN:
        raise StudyError(f"an owner would send over {COORDINATES_MAX} numbers; use fewer columns or levels")
    outcome = outcome_of(study, parameters, names)
    plan = SketchedScreening(study, parameters, guarantee, sketches, names, outcome)
    plan.require_same_units()
    require_work(plan.work, plan.permutations)
    return plan


def permutations_of(parameters: ScreeningParameters, smallest: float, work: float) -> int:
    """Return the number of permutations, or simulations: as asked for, or enough for a single discovery.

    None are added that a verdict has no time for, where each takes ``work``.
    """
    if parameters.permutations is not None:
        return parameters.permutations
    wished = math.ceil((PERMUTATIONS_PER_LEVEL + 1) / smallest) - 1
    return min(PERMUTATIONS_MAX, int(WORK_MAX / work), max(PERMUTATIONS_MIN, wished))


def names_of_features(domain: Domain) -> tuple[str, ...]:
    """Name the columns in the order of their features: numeric ones first."""
    return tuple(c.name for c in domain.numeric) + tuple(c.name for c in domain.categorical)


def require_room(parameters: ScreeningParameters, names: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """Raise StudyError where there are too many pairs, or columns of a matrix."""
    if len(names[0]) * len(names[1]) > PAIRS_MAX:
        raise StudyError(f"a study screens at most {PAIRS_MAX} pairs of columns; leave some out")
    if parameters.matrix and len(names[0]) + len(names[1]) > MATRIX_COLUMNS_MAX:
        raise StudyError(f"a correlation matrix takes at most {MATRIX_COLUMNS_MAX} columns; leave some out")


def _sketch(domain: Domain) -> SketchRelease:
    count = FREQUENCIES_FEW if len(domain.columns) > COLUMNS_FEW else FREQUENCIES_MANY
    categories = tuple(column.categories for column in domain.categorical)
    return SketchRelease(BrownianColumns(len(domain.numeric), count, categories))


def _room(sketch: SketchRelease) -> int:
    """Return how many buckets a release has room for."""
    return (COORDINATES_MAX - sketch.numbers(0)) // sketch.features.dimension


def outcome_of(
    study: Study, parameters: ScreeningParameters, names: tuple[tuple[str, ...], tuple[str, ...]]
) -> int:
    """Return the place of the owner with the outcomes."""
    if parameters.outcome is None:
        return int(len(names[1]) < len(names[0]))
    for side, owner in enumerate(study.owners):
        if owner.name == parameters.outcome:
            return side
    raise StudyError("parameter outcome: name one of the two owners")
