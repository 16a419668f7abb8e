"""Feature screening: which of one owner's columns depend on an outcome that another owner holds.

Columns are found by randomised answers (answered.py). For a correlation matrix (``matrix``) each owner sends
one joint sketch of all its columns instead, under one budget; the tester estimates the distance covariance of
every pair of an outcome and a column, tests each pair at exactly its level, and controls the false discovery
rate (Benjamini and Yekutieli 2001). Named as a use of private distance correlation by P4, Vepakomma,
Pushpita and Raskar, who give no method for it. Every pair of columns is a pair of :class:`Side` of the
sketched distance covariance. The same permutations serve all pairs: each p-value is exact by itself, and the
procedure that controls the false discovery rate does not mind how they depend on each other. Sensitivities:
``SketchRelease.parts`` in features/sketches.py. Derivations: docs/mathematics/screening.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field
from scipy.special import ndtri

from tacit_protocol.domain import Domain, Table
from tacit_protocol.features.brownian import BrownianColumns
from tacit_protocol.features.kernels import FloatMatrix
from tacit_protocol.features.sketches import (
    BUCKETS_MIN,
    BucketDesign,
    DesignError,
    Side,
    SketchRelease,
    SketchSums,
)
from tacit_protocol.messages.study import PartyName, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    gaussian_guarantee,
    mu_of,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    PRODUCTS,
    WORK_MAX,
    Fields,
    Procedure,
    Progress,
    PublicRuleError,
    QuestionTemplate,
    StudyError,
    common_fields,
    parse_parameters,
    planned_once,
    require_noise,
    require_work,
    row_warnings,
    step,
)
from tacit_protocol.procedures.distance_correlation.release import (
    both_releases,
    check_either_side,
    release_size,
)
from tacit_protocol.procedures.distance_correlation.statistic import (
    COVARIANCE_SQR_MAX,
    VARIANCE_FACTOR_MIN,
    CorrelationEstimate,
    CovarianceEstimate,
    Permutations,
    correlation_estimate,
    covariance_estimate,
    nested_sizes,
    resolution_caveat,
    truncation_bound,
    variance_estimate,
    whitened,
)
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.populations import Dependence, Held, SimulationModel
from tacit_protocol.procedures.randomised_answers.answers import (
    AnswersPlan,
    OwnUnits,
    answers_words,
    own_units,
    relay_of_answers,
)
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    NULL_STREAM,
    public_generator,
    require_same_units,
    require_two_sides,
    side_of,
)
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER
from tacit_protocol.procedures.screening.answered import (
    AnsweredScreening,
    answered_verdict,
    screening_answers,
)
from tacit_protocol.procedures.screening.verdict import (
    AnsweredScreeningVerdict,
    ScreenedColumn,
    ScreeningVerdict,
    SignedCorrelations,
    false_discovery_values,
    smallest_level,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, stated
from tacit_protocol.verdicts.presentation import (
    DISTANCE,
    FALSE_DISCOVERIES,
    NO_PROOF,
    TWO_PARTIES,
    Citation,
    Meaning,
    joined,
)

Floats = npt.NDArray[np.float64]

PILOT_PERMUTATIONS = 400
"""Permutations that standardise energies: means to 5 % of a standard deviation, at no cost in level."""

BATCH_BYTES = 2**20
"""Size of the covariances of permutations taken at once: it fits a processor's cache."""

TIE = 1e-9
"""Statistics of equal tables differ in the last digits: so near, relatively, they count as equal."""


@dataclass(frozen=True)
class ColumnSide:
    """One column's part of a sketch.

    ``ordered`` says whether its first feature rises with the value: then a correlation has a sign.
    """

    side: Side
    ordered: bool


@dataclass(frozen=True)
class PairEstimate:
    """Distance covariance and correlation of one pair; ``sign`` is 0 where a column has no order."""

    covariance: CovarianceEstimate
    correlation: CorrelationEstimate | None
    sign: int


def correlation_of(squared: float) -> float:
    """Return the root of a squared correlation, cut to [0, 1] first.

    >>> correlation_of(0.25), correlation_of(-0.1)
    (0.5, 0.0)
    """
    return math.sqrt(min(1.0, max(0.0, squared)))


def estimate_pair(first: ColumnSide, second: ColumnSide, coverage: float) -> PairEstimate:
    """Estimate one pair of columns, of two owners."""
    covariance = covariance_estimate(first.side, second.side)
    variances = (variance_estimate(first.side), variance_estimate(second.side))
    correlation = correlation_estimate(covariance, variances, coverage)
    return PairEstimate(covariance, correlation, _sign(first, second))


def _sign(first: ColumnSide, second: ColumnSide) -> int:
    if not (first.ordered and second.ordered):
        return 0
    return 1 if float(first.side.buckets[:, 0] @ second.side.buckets[:, 0]) >= 0 else -1


@dataclass(frozen=True)
class ScreeningTests:
    """Of every pair (outcomes, columns): the statistic and its exact permutation p-value."""

    statistics: Floats
    pvalues: Floats


def screening_tests(
    outcomes: Sequence[Side],
    columns: Sequence[Side],
    permutations: Permutations,
    pilot: np.random.Generator,
) -> ScreeningTests:
    """Test every outcome against every column by permuting the outcomes' buckets.

    Statistics are those of :func:`permutation_test`: energies of the leading principal axes, standardised,
    the largest. Means and spreads come from permutations of their own (``pilot``). Those are independent of
    the order tested, given the buckets, so that under independence the order tested and the others stay
    exchangeable and every p-value is exact; at least 1 / (count + 1).
    """
    table = _Energies(columns)
    rows = [whitened(side) for side in outcomes]
    places = len(rows[0])
    first = islice(Permutations(PILOT_PERMUTATIONS, pilot).orders(places), 1, None)
    sample = np.concatenate([table.of(rows, orders) for orders in _batches(first, table.batch(rows))])
    spread = sample.std(axis=0)
    centre, scale = sample.mean(axis=0), np.where(spread > 0, spread, 1.0)
    observed: Floats | None = None
    reached = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for orders in _batches(permutations.orders(places), table.batch(rows)):
        scores = np.asarray(((table.of(rows, orders) - centre) / scale).max(axis=-1))
        if observed is None:
            observed, scores = scores[0], scores[1:]
        reached += np.sum(scores >= observed - TIE * (1 + np.abs(observed)), axis=0)
    if observed is None:
        raise ValueError("permutations begin with the order as it is")
    return ScreeningTests(observed, (1 + reached) / (permutations.count + 1))


class _Energies:
    """Energies of every column with every outcome: columns of one width are worked on together."""

    def __init__(self, columns: Sequence[Side]) -> None:
        self._columns = len(columns)
        widths = [side.buckets.shape[1] for side in columns]
        self._groups = {
            width: [index for index, own in enumerate(widths) if own == width]
            for width in sorted(set(widths))
        }
        self._whitened = {
            width: np.concatenate([whitened(columns[index]) for index in members], axis=1)
            for width, members in self._groups.items()
        }
        self._total: int = sum(widths)

    def batch(self, rows: Sequence[FloatMatrix]) -> int:
        """How many permutations to take at once."""
        widest: int = max(own.shape[1] for own in rows)
        return max(1, BATCH_BYTES // (8 * self._total * widest))

    def of(self, rows: Sequence[FloatMatrix], orders: npt.NDArray[np.int64]) -> Floats:
        """Return energies (orders, outcomes, columns, sizes), all axes' repeated where sizes are fewer."""
        widest = max(*self._groups, *(own.shape[1] for own in rows))
        energies = np.empty((len(orders), len(rows), self._columns, len(nested_sizes(widest))))
        for place, own in enumerate(rows):
            for width, members in self._groups.items():
                found = self._group(own[orders], width)
                energies[:, place, members, : found.shape[2]] = found
                energies[:, place, members, found.shape[2] :] = found[:, :, -1:]
        return energies

    def _group(self, permuted: Floats, width: int) -> Floats:
        count, places, axes = permuted.shape
        stacked = permuted.transpose(0, 2, 1).reshape(count * axes, places)
        squares = (stacked @ self._whitened[width]).reshape(count, axes, -1, width) ** 2
        sizes = nested_sizes(max(axes, width))
        return np.stack([squares[:, :k, :, :k].sum(axis=(1, 3)) for k in sizes], axis=2)


def _batches(orders: Iterator[npt.NDArray[np.int64]], size: int) -> Iterator[npt.NDArray[np.int64]]:
    while batch := list(islice(orders, size)):
        yield np.stack(batch)


def signed_correlations(columns: Sequence[ColumnSide]) -> Floats:
    """Return the signed distance correlations of all columns, (p, p), with unit diagonal.

    Of two columns of one owner too: noises on different coordinates are independent, so that the estimate of
    the covariance is as unbiased as for two owners. Without a sign they are positive; nan where a distance
    variance is lost in its noise.
    """
    scales = np.array([_scale(column) for column in columns])
    matrix = np.eye(len(columns))
    for i, first in enumerate(columns):
        for j in range(i):
            covariance_sqr = unbiased_covariance_sqr(first.side.buckets, columns[j].side.buckets)
            squared = covariance_sqr / math.sqrt(scales[i] * scales[j])
            value = correlation_of(squared) if math.isfinite(squared) else math.nan
            matrix[i, j] = matrix[j, i] = value * (_sign(first, columns[j]) or 1)
    return np.asarray(matrix + 0.0)  # no number below zero that is zero


def unbiased_covariance_sqr(a: FloatMatrix, b: FloatMatrix) -> float:
    """Return 4/(m (m - 1)) sum_{h != h'} (a_h'a_h') (b_h'b_h'), of buckets (m, p) and (m, q).

    Unbiased for the squared distance covariance where the noises of ``a`` and ``b`` are independent.
    """
    m = len(a)
    own = np.sum(a * a, axis=1) @ np.sum(b * b, axis=1)
    return 4 * (float(np.sum((a.T @ b) ** 2)) - float(own)) / (m * (m - 1))


def _scale(column: ColumnSide) -> float:
    variance = variance_estimate(column.side)
    return variance.value if variance.value > VARIANCE_FACTOR_MIN * math.sqrt(variance.variance) else math.nan


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

    @property
    def cuts(self) -> Literal["private"]:
        """How a numeric column's cells end: at quantiles bought with a part of epsilon."""
        return "private"


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
        """Number of permutations."""
        return _permutations(self.parameters, self.smallest, self.work)

    @property
    def work(self) -> float:
        """What a permutation takes at most, in simulated numbers: buckets times features are a release's."""
        return PRODUCTS * COORDINATES_MAX * min(sketch.features.dimension for sketch in self.sketches)

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
        """Lay out one owner's release of so many units; raises PublicRuleError where there can be none."""
        parts = self.sketches[side].parts(self.design(units))
        require_noise(lambda: require_drawable(parts, self.guarantee))
        return parts

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


def _permutations(parameters: ScreeningParameters, smallest: float, work: float) -> int:
    """Return the number of permutations, or simulations: as asked for, or enough for a single discovery.

    None are added that a verdict has no time for, where each takes ``work``.
    """
    if parameters.permutations is not None:
        return parameters.permutations
    wished = math.ceil((PERMUTATIONS_PER_LEVEL + 1) / smallest) - 1
    return min(PERMUTATIONS_MAX, int(WORK_MAX / work), max(PERMUTATIONS_MIN, wished))


@planned_once
def answered_plan(study: Study) -> AnsweredScreening | None:
    """Return what a study by randomised answers fixes; None of one for a correlation matrix.

    Raises:
        StudyError: it cannot be run as written.
    """
    parameters = parse_parameters(ScreeningParameters, study)
    if parameters.matrix:
        return None
    require_two_sides(study)
    first, second = (_names(study.domain_of(owner)) for owner in study.owners)
    _require_room(parameters, (first, second))
    outcome = _outcome(study, parameters, (first, second))
    smallest = smallest_level(study.level, len(first) * len(second), parameters.control)
    answers = screening_answers(study, parameters, outcome)
    answers = replace(answers, simulations=_permutations(parameters, smallest, answers.work))
    return AnsweredScreening(answers, outcome, parameters.control, smallest)


@planned_once
def screening_plan(study: Study) -> ScreeningPlan:
    """Return what a study for a correlation matrix fixes; raises StudyError where it cannot be run."""
    parameters = parse_parameters(ScreeningParameters, study)
    require_two_sides(study)
    guarantee = gaussian_guarantee(study.budget)
    if (parameters.method, parameters.categories) != ("two-round", None):
        raise StudyError(
            "a correlation matrix is made of sketches: leave parameters method and categories out"
        )
    first, second = (study.domain_of(owner) for owner in study.owners)
    names = (_names(first), _names(second))
    _require_room(parameters, names)
    sketches = (_sketch(first), _sketch(second))
    if min(_room(sketch) for sketch in sketches) < BUCKETS_MIN:
        raise StudyError(f"an owner would send over {COORDINATES_MAX} numbers; use fewer columns or levels")
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


def _sketch(domain: Domain) -> SketchRelease:
    count = FREQUENCIES_FEW if len(domain.columns) > COLUMNS_FEW else FREQUENCIES_MANY
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


PILOT_STREAM = 4
"""Spawn key under the study's seed: of the permutations that standardise."""


@dataclass(frozen=True)
class OwnColumns:
    """One owner's exact numbers and its place in the study. They never leave the owner."""

    side: int
    sums: SketchSums


class ScreenedDependence(Dependence):
    """Rows of which the outcome and one column depend on each other."""

    def answer(self, result: Any, held: Sequence[Held]) -> float:  # noqa: ARG002
        """Return 1 where that column was found, and 0 otherwise."""
        pair = set(self.pair)
        return float(any({found.column, found.outcome} == pair for found in result.found))


class Screening(Procedure):
    """See the module. Registered as ``screening``."""

    name: ClassVar[str] = "screening"
    title: ClassVar[str] = "Which of one owner's columns depend on another's outcome?"
    plans_two_rounds: ClassVar[bool] = True
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    methods: ClassVar[Mapping[str, frozenset[Family]]] = {
        "two-round": frozenset(("gaussian", "pure")),
        "one-round": frozenset(("pure",)),
    }
    Parameters: ClassVar[type[BaseModel]] = ScreeningParameters
    Verdict: ClassVar[type[BaseVerdict]] = ScreeningVerdict
    RelayedVerdict: ClassVar[type[BaseVerdict]] = AnsweredScreeningVerdict
    released: ClassVar[str] = "bounded features of all its columns, summed over public buckets of units"
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, DISTANCE, FALSE_DISCOVERIES)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Which of one owner's columns relate to the outcome that another owner holds?",
        r"which .*(column|variable|feature|factor|gene|marker|relate|associat|predict|matter)|screen",
        "two",
        rank=1,
        apart=True,
        outcome=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = ScreenedDependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"categories": count} for count in (2, 3, 4)),
    )

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        if (answered := answered_plan(study)) is not None:
            require_same_units(study, answered.answers)
            require_work(answered.answers.work, answered.answers.simulations)
            return
        plan = screening_plan(study)
        require_same_units(study, plan)
        require_work(plan.work, plan.permutations)

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where an owner's release of so many units cannot be laid out."""
        if (answered := answered_plan(study)) is not None:
            for count in units.values():
                answered.answers.layout(0, count)
            return
        plan = screening_plan(study)
        for count in units.values():
            for side in (0, 1):
                plan.layout(side, count)

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: one joint Gaussian release; or, of two, what counts beside answers.

        Whoever answers spends epsilon alone.
        """
        if (answered := answered_plan(study)) is not None:
            return answered.answers.guarantee_of(1 - answered.outcome)
        return screening_plan(study).guarantee

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends, at most: it depends on the number of units."""
        if (answered := answered_plan(study)) is not None:
            return answered.answers.numbers_sent(answered.outcome)
        return release_size(study, screening_plan(study))

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what the study could not find with so many permutations, or at these numbers of units."""
        answered = answered_plan(study)
        plan = answered or screening_plan(study)
        found = list(row_warnings(study)) if answered is None else []
        if answered is not None:
            found.extend(answered.warnings(units))
        elif units and (reason := screening_plan(study).hopeless(min(units.values()))) is not None:
            found.append(f"{HOPELESS}{reason}")
        if 1 / (plan.permutations + 1) > plan.smallest:
            found.append(
                "a single column cannot be found with so few permutations; ask for at least "
                f"{int(1 / plan.smallest)}, which cost no privacy"
            )
        return tuple(found)

    def record_of(self, study: Study, name: str) -> str:
        """Say what an owner's answers are, where both owners give them in one round."""
        answered = answered_plan(study)
        if answered is None or not answered.answers.one_round:
            return ""
        return answers_words(answered.answers, [owner.name for owner in study.owners].index(name))

    def what_is_released(self, study: Study) -> str:
        """Name the answers and the tables, or the sums."""
        if (answered := answered_plan(study)) is None:
            return self.released
        if answered.answers.one_round:
            return "one randomised answer of each unit, to which cell of a column it is in"
        outcomes, columns = (study.owners[place].name for place in (answered.outcome, 1 - answered.outcome))
        return (
            f"at {outcomes} one randomised answer of each unit, to which cell of an outcome it is in, and at "
            f"{columns} noisy counts of every column's cells beside these answers"
        )

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is, by its method."""
        return self.Verdict if answered_plan(study) is None else self.RelayedVerdict

    def relay(self, study: Study) -> Relay | None:
        """Return who sends answers to whom in two rounds."""
        answered = answered_plan(study)
        return None if answered is None else relay_of_answers(answered.answers)

    def check_received(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the answers have not the shape that the study fixes."""
        answers = _answers(study)
        answers.check_release(answers.first, release)

    def combine(self, study: Study, received: Release, table: Table) -> Combined:
        """Set the answers against the receiver's rows."""
        return Combined(summary=own_units(_answers(study), table, received))

    def conclude(
        self,
        study: Study,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        releases: Mapping[str, Release],
        progress: Progress | None = None,
    ) -> BaseVerdict:
        """Conclude from two rounds."""
        return self.assemble(study, releases, progress)

    def summarise(self, study: Study, table: Table) -> OwnColumns | OwnUnits:
        """Sum or read one owner's units, exactly; the table's columns tell which owner it is.

        Units have the places that the table gives them, the same at both owners.
        """
        if (answered := answered_plan(study)) is not None:
            return own_units(answered.answers, table)
        plan, side = screening_plan(study), side_of(study, table.domain)
        design = plan.design(table.units)
        codes = design.assign(public_generator(study, DESIGN_STREAM))
        return OwnColumns(side, plan.sketches[side].sum(table, design, codes))

    def privatise(self, study: Study, summary: OwnColumns | OwnUnits, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums; or draw answers."""
        if isinstance(summary, OwnUnits):
            return _answers(study).release(summary, noise)
        plan, sums = screening_plan(study), summary.sums
        vectors = release_sums(plan.sketches[summary.side].parts(sums.design, sums), plan.guarantee, noise)
        return Release(units=sums.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise of either owner's.

        In two rounds this is the receiver's: the tables.
        """
        if (answered := answered_plan(study)) is not None:
            answered.answers.check_answer(release)
            return
        check_either_side(screening_plan(study), release)

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say which columns are set against which outcomes."""
        plan = answered_plan(study) or screening_plan(study)
        names = [_names(study.domain_of(owner)) for owner in study.owners]
        outcomes, columns = names[plan.outcome], names[1 - plan.outcome]
        owners = study.owners[plan.outcome].name, study.owners[1 - plan.outcome].name
        return (
            f"{len(columns)} columns of {owners[1]} against {', '.join(outcomes)} of {owners[0]}; "
            f"false discovery rate at most {study.level:g}, {plan.permutations} "
            + ("permutations" if isinstance(plan, ScreeningPlan) else "simulations"),
        )

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        pairs = verdict["pairs"]
        found = [pair["column"] for pair in pairs if pair["reject"]]
        of = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of a column and an outcome"
        if not found:
            sentence = f"No dependence was found among {of} (false discovery rate {study.level:g})."
            return Meaning(sentence, NO_PROOF)
        named = joined(list(dict.fromkeys(found)), 6)
        assumed = ", if the tests are independent or agree" if study.parameters.get("control") == "bh" else ""
        return Meaning(
            f"The outcome depends on {named}: {len(found)} of {of} were found (false discovery rate "
            f"{study.level:g}).",
            f"Of the pairs found, the expected share of false ones is at most {study.level:g}{assumed}; of "
            "the others nothing was shown, which is no proof of their independence.",
        )

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> ScreeningVerdict | AnsweredScreeningVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        if (answered := answered_plan(study)) is not None:
            counted = {owner.name: releases[owner.name].units for owner in study.owners}
            warned = self.warnings(study, counted)
            warned += (MATCHED_BY_ORDER,) if study.alignment is None else ()
            return answered_verdict(answered, releases, warned, progress)
        plan = screening_plan(study)
        own = both_releases(plan, study, releases)
        columns = [_read(plan, side, release) for side, release in enumerate(own)]
        outcomes, others = columns[plan.outcome], columns[1 - plan.outcome]
        tests = screening_tests(
            [column.side for column in outcomes],
            [column.side for column in others],
            Permutations(
                plan.permutations,
                public_generator(study, NULL_STREAM),
                progress=step(progress, "permuting"),
            ),
            public_generator(study, PILOT_STREAM),
        )
        pairs = _pairs(plan, outcomes, others, tests)
        design, units = plan.design(own[0].units), {owner.name: own[0].units for owner in study.owners}
        unknown = any(pair.distance_correlation is None for pair in pairs)
        caveat = "no distance correlation is stated for a column whose own variance is zero, or lost in noise"
        return ScreeningVerdict(
            method=_method(plan, design.buckets, design.bucket_units),
            reject=any(pair.reject for pair in pairs),
            **common_fields(study, units),
            pairs=pairs,
            matrix=_matrix(plan, columns),
            buckets=design.buckets,
            aligned=study.alignment is not None,
            warnings=self.warnings(study, units)
            + (resolution_caveat(max(pair.truncation for pair in pairs), drawn=False),)
            + ((caveat,) if unknown else ())
            + ((MATCHED_BY_ORDER,) if study.alignment is None else ()),
        )


def _answers(study: Study) -> AnswersPlan:
    answered = answered_plan(study)
    if answered is None:
        raise StudyError("in this study nobody receives another's release")
    return answered.answers


def _method(plan: ScreeningPlan, buckets: int, bucket_units: int) -> str:
    name = {"by": "Benjamini and Yekutieli", "bh": "Benjamini and Hochberg"}[plan.parameters.control]
    return (
        f"sketched distance covariance of {plan.pairs} pairs of columns, {buckets} buckets of {bucket_units} "
        f"units, {plan.permutations} permutations, false discovery rate by {name}"
    )


def _read(plan: ScreeningPlan, side: int, release: Release) -> list[ColumnSide]:
    """Return every column's part; numeric ones, which have an order, come first."""
    sketch = plan.sketches[side]
    read = sketch.read(release.vectors, plan.design(release.units))
    numeric = sum(not getattr(block, "categories", ()) for block in sketch.blocks)
    return [ColumnSide(own, ordered=place < numeric) for place, own in enumerate(read)]


def _pairs(
    plan: ScreeningPlan, outcomes: list[ColumnSide], others: list[ColumnSide], tests: ScreeningTests
) -> tuple[ScreenedColumn, ...]:
    """Estimate every pair and rank them: by p-value, then by the estimate of the covariance."""
    qvalues = false_discovery_values(tests.pvalues, plan.parameters.control)
    found = []
    for i, outcome in enumerate(outcomes):
        for j, column in enumerate(others):
            estimate = estimate_pair(outcome, column, 1 - plan.level)
            interval = estimate.covariance.interval(1 - plan.level)
            covariance = stated(estimate.covariance.value, interval, COVARIANCE_SQR_MAX)
            correlation = estimate.correlation
            found.append(
                ScreenedColumn(
                    outcome=plan.names[plan.outcome][i],
                    column=plan.names[1 - plan.outcome][j],
                    distance_covariance_sqr=covariance.value,
                    distance_covariance_sqr_unbiased=covariance.unbiased,
                    covariance_lower=covariance.lower,
                    covariance_upper=covariance.upper,
                    distance_correlation=None if correlation is None else correlation_of(correlation.value),
                    lower=None if correlation is None else correlation_of(correlation.lower),
                    upper=None if correlation is None else correlation_of(correlation.upper),
                    sign=estimate.sign,
                    truncation=truncation_bound(outcome.side, column.side),
                    statistic=float(tests.statistics[i, j]),
                    pvalue=float(tests.pvalues[i, j]),
                    qvalue=float(qvalues[i, j]),
                    reject=bool(qvalues[i, j] <= plan.level),
                )
            )
    return tuple(sorted(found, key=lambda pair: (pair.pvalue, -pair.distance_covariance_sqr_unbiased)))


def _matrix(plan: ScreeningPlan, columns: list[list[ColumnSide]]) -> SignedCorrelations:
    correlations = signed_correlations([*columns[0], *columns[1]])
    below = correlations[np.tril_indices(len(correlations), -1)]
    return SignedCorrelations(
        columns=plan.names[0] + plan.names[1],
        correlations=tuple(float(value) if np.isfinite(value) else None for value in below),
    )
