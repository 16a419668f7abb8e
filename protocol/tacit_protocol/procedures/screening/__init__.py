"""Feature screening: which of one owner's columns depend on an outcome that another owner holds.

Each owner sends one joint sketch of all its columns, under one budget; the tester estimates the distance
covariance of every pair of an outcome and a column, tests each pair at exactly its level, and controls the
false discovery rate (Benjamini and Yekutieli 2001). Named as a use of private distance correlation by P4,
Vepakomma, Pushpita and Raskar, who give no method for it.
Derivations: docs/mathematics/screening.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from tacit_protocol.domain.table import Table
from tacit_protocol.features.sketches import SketchSums
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import release_sums
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    Question,
    common_fields,
    row_warnings,
    step,
)
from tacit_protocol.procedures.distance_correlation.release import (
    DESIGN_STREAM,
    NULL_STREAM,
    both_releases,
    check_either_side,
    numbers_released,
    public_generator,
    require_same_units,
    side_of,
)
from tacit_protocol.procedures.distance_correlation.statistic import (
    COVARIANCE_SQR_MAX,
    Permutations,
    resolution_caveat,
    truncation_bound,
)
from tacit_protocol.procedures.populations import Dependence, Held, Population
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER
from tacit_protocol.procedures.screening.release import ScreeningParameters, ScreeningPlan, screening_plan
from tacit_protocol.procedures.screening.statistic import (
    ColumnSide,
    ScreeningTests,
    correlation_of,
    estimate_pair,
    false_discovery_values,
    screening_tests,
    signed_correlations,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, Interval, ShownTable, interval_of, stated
from tacit_protocol.verdicts.words import (
    DISTANCE,
    FALSE_DISCOVERIES,
    NO_PROOF,
    TWO_PARTIES,
    Meaning,
    Work,
    joined,
)

PILOT_STREAM = 4
"""Spawn key under the study's seed: of the permutations that standardise."""


class ScreenedColumn(StrictModel):
    """One column against one outcome. Intervals count noise and sampling, and cover each by itself.

    Attributes:
        outcome: the outcome's name.
        column: the column's name.
        distance_covariance_sqr: squared distance covariance, over public diameters, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased up to ``truncation``, and may be negative.
        covariance_interval: contains the one, and covers what both estimate with probability 1 - alpha in
            large samples, as far as the kept frequencies show it: ``truncation`` is not in it.
        distance_correlation: in [0, 1]; None where either column hardly varies.
        interval: covers the distance correlation of the kept frequencies with probability 1 - alpha in large
            samples; None with it.
        sign: of the covariance of the leading monotone features, 0 where a column has no order.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out.
        pvalue: of the test of independence of this pair alone; exact.
        qvalue: smallest level of the false discovery rate at which the pair is found.
        reject: whether it is found at the study's level.
    """

    outcome: str
    column: str
    distance_covariance_sqr: float
    distance_covariance_sqr_unbiased: float
    covariance_lower: float
    covariance_upper: float
    distance_correlation: float | None
    lower: float | None
    upper: float | None
    sign: int
    truncation: float
    statistic: float
    pvalue: float
    qvalue: float
    reject: bool

    @property
    def covariance_interval(self) -> Interval:
        """That of both squared distance covariances."""
        return self.covariance_lower, self.covariance_upper

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    def _correlation(self) -> str:
        if self.distance_correlation is None or self.interval is None:
            return "unknown"
        sign = {1: "+", -1: "-", 0: ""}[self.sign]
        return f"{sign}{self.distance_correlation:.2f}, {self.interval[0]:.2f} to {self.interval[1]:.2f}"

    def words(self) -> tuple[str, ...]:
        """Return its line in the command's table."""
        found = "found" if self.reject else ""
        pvalues = f"{self.pvalue:.2g}", f"{self.qvalue:.2g}"
        return self.column, self.outcome, self._correlation(), *pvalues, found


class CorrelationMatrix(StrictModel):
    """Signed distance correlations of all columns of both owners, row by row below the diagonal.

    None where a column hardly varies. Not a positive semidefinite matrix by itself.
    """

    columns: tuple[str, ...]
    correlations: tuple[float | None, ...]


NOT_FOUND_SHOWN = 10
"""Pairs that were not found and are shown all the same: the list may have a thousand."""


class ScreeningVerdict(BaseVerdict):
    """Which columns depend on the outcomes. Iterating yields the ranked pairs, the surest first.

    Among the rejected pairs the expected share of independent ones is at most ``level``. ``reject`` says that
    there are any.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    listed: ClassVar[tuple[str, ...]] = ("aligned",)

    pairs: tuple[ScreenedColumn, ...]
    matrix: CorrelationMatrix | None
    buckets: int
    aligned: bool

    @property
    def ranking(self) -> tuple[ScreenedColumn, ...]:
        """Every pair of an outcome and a column, the surest first."""
        return self.pairs

    @property
    def found(self) -> tuple[ScreenedColumn, ...]:
        """The pairs found: among them the expected share of independent ones is at most ``alpha``."""
        return tuple(pair for pair in self.ranking if pair.reject)

    def __iter__(self) -> Iterator[ScreenedColumn]:  # type: ignore[override]
        return iter(self.ranking)

    def __len__(self) -> int:
        return len(self.ranking)

    def __str__(self) -> str:
        names = ", ".join(pair.column for pair in self.found) or "none"
        return self._told(
            f"{len(self.found)} of {len(self.ranking)} pairs found at false discovery rate {self.alpha:g}: "
            f"{names}"
        )

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-values of all pairs."""
        return {f"{pair.column} – {pair.outcome}": pair.pvalue for pair in self.ranking}

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            "ranking": [{name: getattr(pair, name) for name in LISTED} for pair in self.ranking],
            "matrix": None if self.matrix is None else self.matrix.model_dump(),
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: the columns found, then the best of the others."""
        found = len(self.found)
        shown = self.ranking[: found + NOT_FOUND_SHOWN]
        left = len(self.ranking) - len(shown)
        return (
            f"Verdict: {found} of {len(self.ranking)} pairs of columns depend on each other "
            f"(false discovery rate at most {self.alpha:g})",
            f"  {self.method}",
            ShownTable(
                ("Column", "Outcome", "Distance correlation", "p", "q", ""),
                tuple(pair.words() for pair in shown),
            ),
            *((f"  {left} more were not found: --json lists them",) if left else ()),
        )


LISTED = (
    "outcome",
    "column",
    "distance_covariance_sqr",
    "distance_covariance_sqr_unbiased",
    "covariance_interval",
    "distance_correlation",
    "interval",
    "sign",
    "pvalue",
    "qvalue",
    "reject",
)
"""What the command lists of every pair."""


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
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = ScreeningParameters
    Verdict: ClassVar[type[BaseVerdict]] = ScreeningVerdict
    released: ClassVar[str] = "bounded features of all its columns, summed over public buckets of units"
    cited: ClassVar[tuple[Work, ...]] = (TWO_PARTIES, DISTANCE, FALSE_DISCOVERIES)
    question: ClassVar[Question | None] = Question(
        "Which of one owner's columns relate to the outcome that another owner holds?",
        r"which .*(column|variable|feature|factor|gene|marker|relate|associat|predict|matter)|screen",
        "two",
        rank=1,
        apart=True,
        outcome=True,
        relates=True,
    )
    population: ClassVar[type[Population] | None] = ScreenedDependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"n_features": count} for count in (1, 2, 3, 5)),
    )

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_same_units(study, screening_plan(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where no sketch serves an owner's number of units."""
        plan = screening_plan(study)
        for count in units.values():
            plan.design(count)

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one joint Gaussian release."""
        return screening_plan(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends, at most: it depends on the number of units."""
        return numbers_released(study, screening_plan(study))

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what the study could not find with so many permutations, or at these numbers of units."""
        plan, found = screening_plan(study), list(row_warnings(study))
        if units and (reason := plan.hopeless(min(units.values()))) is not None:
            found.append(f"{HOPELESS}{reason}")
        if 1 / (plan.permutations + 1) > plan.smallest:
            found.append(
                "a single column cannot be found with so few permutations; ask for at least "
                f"{int(1 / plan.smallest)}, which cost no privacy"
            )
        return tuple(found)

    def summarise(self, study: Study, table: Table) -> OwnColumns:
        """Sum one owner's units, exactly; the table's columns tell which owner it is.

        Units have the places that the table gives them, the same at both owners.
        """
        plan, side = screening_plan(study), side_of(study, table.domain)
        design = plan.design(table.units)
        codes = design.assign(public_generator(study, DESIGN_STREAM))
        return OwnColumns(side, plan.sketches[side].sum(table, design, codes))

    def privatise(self, study: Study, summary: OwnColumns, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums."""
        plan, sums = screening_plan(study), summary.sums
        vectors = release_sums(plan.sketches[summary.side].parts(sums.design, sums), plan.guarantee, noise)
        return Release(units=sums.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise of either owner's."""
        check_either_side(screening_plan(study), release)

    def asks(self, study: Study) -> tuple[str, ...]:
        """Say which columns are set against which outcomes."""
        plan = screening_plan(study)
        outcomes, columns = plan.names[plan.outcome], plan.names[1 - plan.outcome]
        owners = study.owners[plan.outcome].name, study.owners[1 - plan.outcome].name
        return (
            f"{len(columns)} columns of {owners[1]} against {', '.join(outcomes)} of {owners[0]}; "
            f"false discovery rate at most {study.level:g}, {plan.permutations} permutations",
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
    ) -> ScreeningVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
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
            matrix=_matrix(plan, columns) if plan.parameters.matrix else None,
            buckets=design.buckets,
            aligned=study.alignment is not None,
            warnings=self.warnings(study, units)
            + (resolution_caveat(max(pair.truncation for pair in pairs), drawn=False),)
            + ((caveat,) if unknown else ())
            + ((MATCHED_BY_ORDER,) if study.alignment is None else ()),
        )


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


def _matrix(plan: ScreeningPlan, columns: list[list[ColumnSide]]) -> CorrelationMatrix:
    correlations = signed_correlations([*columns[0], *columns[1]])
    below = correlations[np.tril_indices(len(correlations), -1)]
    return CorrelationMatrix(
        columns=plan.names[0] + plan.names[1],
        correlations=tuple(float(value) if np.isfinite(value) else None for value in below),
    )
