"""The base of tests that one distribution brings and no other: every unit contributes a bounded vector.

A subclass of :class:`SumTest` says what a row contributes, how far replacing a unit can move the sum, and
what the sums of all owners mean. Release, noise, checks, verdict, words, pages and plans follow. Everything
that a module of such a test needs is imported from here (docs/how-to/add-a-procedure.md).

Every owner releases the sum of its units' contributions: with Gaussian noise for the L2 sensitivity where
the study has a delta, otherwise with Laplace noise for the L1 sensitivity (docs/mathematics/privacy.md). A
unit of several rows contributes their average, which lies in the convex hull of what rows contribute.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from scipy.special import chdtrc, ndtri

from tacit_protocol.domain import Table
from tacit_protocol.features.kernels import Rows
from tacit_protocol.features.moments import FeatureSums, MomentRelease, MomentShares
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.exact_sums import rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import SumPart, gaussian_guarantee, mu_of
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee, sums_scale
from tacit_protocol.procedures.base import (
    HOPELESS,
    Procedure,
    QuestionTemplate,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    require_shared_columns,
)
from tacit_protocol.procedures.plan import Fields, Panel, Progress, Releases, SumPlan
from tacit_protocol.procedures.populations import Held, SimulationModel, draw_rows, with_effect
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, PvalueVerdict, estimate_shown
from tacit_protocol.verdicts.presentation import (
    Citation,
    Meaning,
    Null,
    Row,
    RowsPanel,
    chi_square,
    decision_sentence,
)

__all__ = [
    "Citation",
    "Fields",
    "Floats",
    "LastColumnShifted",
    "NoisySums",
    "QuestionTemplate",
    "Rows",
    "SimulationModel",
    "Study",
    "StudyError",
    "SumTest",
    "SumTestResult",
]

Floats = npt.NDArray[np.float64]


class NoParameters(StrictModel):
    """The parameters of a test without choices."""


class SumTestResult(PvalueVerdict):
    """An estimate with its interval, and the test of its being ``null_value``.

    Attributes:
        estimate: what was estimated, in the units that the procedure states.
        lower: lower end of its interval, at confidence 1 - level.
        upper: upper end of the interval.
    """

    estimate: Annotated[float, estimate_shown("estimate")]
    lower: float
    upper: float

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "estimate", "lower", "upper")


@dataclass(frozen=True)
class NoisySums:
    """What is read of all owners together.

    Attributes:
        total: the noisy sum of the units' contributions, (dimension,).
        noise: the variance of the noise in each of them, (dimension,).
        units: how many units contributed.
    """

    total: Floats
    noise: Floats
    units: int


class LastColumnShifted(SimulationModel):
    """Rows whose last numeric column is larger by so many standard deviations of its own."""

    medium: ClassVar[float] = 0.3

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        domain, last = self.study.domain, self.study.domain.numeric[-1]
        shift = {last.name: self.size * (last.upper - last.lower) / 6}
        drawn = [draw_rows(self.public, domain, size, rng) for size in sizes]
        return [with_effect(rows, self.public, domain, shift, 1.0) for rows in drawn]

    def words(self) -> str:
        return f"{self.study.domain.numeric[-1].name} larger by {self.size:.3g} standard deviations"


class SumTest(Procedure):
    """A test made of one sum: what a unit contributes, what the sums say, and how it is told."""

    dimension: ClassVar[int]
    """How many numbers a unit contributes."""
    l2: ClassVar[float]
    """The most by which replacing a unit moves the sum in Euclidean norm."""
    l1: ClassVar[float]
    """The most by which it moves the sum in absolute values added up."""
    null_value: ClassVar[float] = 0.0
    """What the estimate is where there is nothing to be found."""

    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = NoParameters
    Verdict: ClassVar[type[SumTestResult]] = SumTestResult
    population: ClassVar[type[SimulationModel] | None] = LastColumnShifted

    def check_columns(self, study: Study) -> None:
        """Raise StudyError, with words that say what to change, where the columns do not suit the test."""

    def contribution(self, study: Study, rows: Rows) -> Floats:
        """Return what rows contribute, (rows, dimension), each number within [-1, 1]."""
        raise NotImplementedError

    def estimate(self, study: Study, sums: NoisySums) -> tuple[float, float]:
        """Return the estimate, and its standard deviation with that of the noise; both finite."""
        raise NotImplementedError

    def sentences(self, study: Study, verdict: Fields) -> tuple[str, str]:
        """Return what is said where a difference was shown, and where none was; without a full stop."""
        raise NotImplementedError

    def plan(self, study: Study) -> "SumTestPlan":
        parse_parameters(self.Parameters, study)
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError(f"{self.name} is between owners' agents: leave the curator out")
        self.check_columns(study)
        return SumTestPlan(self, study)


@dataclass(frozen=True)
class _Contributions:
    """What units contribute, as a feature map."""

    test: SumTest
    study: Study
    second_moment_diameter: ClassVar[float] = 0.0

    @property
    def dimension(self) -> int:
        return self.test.dimension

    @property
    def norm(self) -> float:
        return math.sqrt(self.test.dimension)

    @property
    def diameter(self) -> float:
        return self.test.l2

    def __call__(self, rows: Rows) -> Floats:
        found = np.asarray(self.test.contribution(self.study, rows), dtype=np.float64)
        return np.clip(np.nan_to_num(found), -1.0, 1.0)


class SumTestPlan(SumPlan):
    """The plan of a study of a :class:`SumTest`."""

    def __init__(self, test: SumTest, study: Study) -> None:
        self.test, self.study = test, study
        budget = study.budget
        self.guarantee = gaussian_guarantee(budget) if budget.delta_pico else laplace_sum_guarantee(budget)
        self._release = MomentRelease(_Contributions(test, study), MomentShares(1.0, 0.0))

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out: the L1 sensitivity has the rounding's, at most sqrt J of its L2 norm."""
        (part,) = self._release.parts(units, sums)
        dimension = self.test.dimension
        rounding = math.sqrt(dimension) * rounding_sensitivity(dimension, -part.exponent)
        return (replace(part, l1=(self.test.l1 + rounding) * (1 + 1e-15)),)

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> FeatureSums:  # noqa: ARG002
        return self._release.sum(table)

    def _variance(self, part: SumPart) -> float:
        """Return the variance of the noise in each number of a release."""
        if self.gaussian:
            return part.scale(mu_of(self.guarantee)) ** 2
        return 2 * sums_scale(part, self.guarantee) ** 2

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise exceeds a quarter of what all units could contribute."""
        noise = math.sqrt(sum(self._variance(self.parts(count)[0]) for count in units.values()))
        if not units or sum(units.values()) >= 4 * noise:
            return ()
        return (f"{HOPELESS}most of what would be seen is noise; ask for more units or a larger epsilon",)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],
        progress: Progress | None = None,  # noqa: ARG002
    ) -> BaseVerdict:
        """Compare the estimate, squared in its standard deviations, with the chi-squared law."""
        read = [next(iter(release.vectors.values())) for release in releases.values()]
        factor = 1.0 if self.gaussian else 2.0
        total = np.sum([vector.mean(1) for vector in read], axis=0)
        noise = np.full(self.test.dimension, sum(factor * vector.scale**2 for vector in read))
        estimate, deviation = self.test.estimate(self.study, NoisySums(total, noise, sum(units.values())))
        statistic = ((estimate - self.test.null_value) / deviation) ** 2
        half = -float(ndtri(self.study.level / 2)) * deviation
        return self.test.Verdict(
            method="estimate from noisy sums, in standard deviations, squared, against chi-squared",
            **decided(self.study, float(statistic), float(chdtrc(1, statistic))),
            **common_fields(self.study, units),
            warnings=self.warnings(units),
            estimate=float(estimate),
            lower=float(estimate - half),
            upper=float(estimate + half),
        )

    def meaning(self, verdict: Fields) -> Meaning:
        return decision_sentence(self.study, verdict, *self.test.sentences(self.study, verdict))

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        return chi_square(1, float(verdict["statistic"]), self.study.level)

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[Panel]:  # noqa: ARG002
        """Return the estimate with its interval, by how far it is from the null value."""
        ends = [float(verdict[name]) - self.test.null_value for name in ("estimate", "lower", "upper")]
        unit = f"estimate less {self.test.null_value:g}" if self.test.null_value else "estimate"
        row = Row("all owners", ends[0], ends[1], ends[2], verdict["reject"])
        return (RowsPanel(self.test.title, unit, (row,)),)
