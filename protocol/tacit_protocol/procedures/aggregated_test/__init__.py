"""Tests that people know, made private by aggregation: blocks of units vote, and their noisy sum is released.

Every owner puts its units into a secret random order, cuts it into disjoint blocks, and lets a test of a
closed public list (:mod:`~tacit_protocol.procedures.aggregated_test.statistic`) reject in each at a level
that is the same for all: towards one side or the other where the test has a direction. One unit changes one
vote, whatever the test does inside a block, so that any test is private so, in pure epsilon; sums of several
owners add up with no curator, and what differs between owners makes no difference.
Derivations: docs/mathematics/aggregated-tests.md.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.domain import Column, Domain
from tacit_protocol.messages.study import Study
from tacit_protocol.names import folded
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.aggregated_test.plan import (
    SAMPLE_AND_AGGREGATE,
    WANTED,
    AggregatedTestParameters,
    AggregatedTestPlan,
    TestName,
    aggregated_plan,
    roles_of,
)
from tacit_protocol.procedures.aggregated_test.statistic import TESTS, BlockTest
from tacit_protocol.procedures.aggregated_test.verdict import AggregatedTestResult
from tacit_protocol.procedures.base import (
    Procedure,
    QuestionTemplate,
    RequiredParameter,
    StudyError,
    require_shared_columns,
    units_declared,
)
from tacit_protocol.procedures.populations import (
    HAZARD_RATIO_MEDIUM,
    Columns,
    EffectError,
    Held,
    SimulationModel,
    dependent_rows,
    draw_rows,
    require_hazard_ratio,
    rows_of,
    values_of,
    with_standard_effect,
)
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import Citation

__all__ = ["WANTED", "AggregatedTest", "AggregatedTestResult", "TestName"]


class TestedEffect(SimulationModel):
    """Rows of owners in all of whom a test should find its effect, of a size that fits what it takes."""

    medium: ClassVar[float] = 0.5

    @cached_property
    def plan(self) -> AggregatedTestPlan:
        """The study's plan."""
        try:
            return aggregated_plan(self.study)
        except StudyError as error:
            raise EffectError(str(error)) from None

    @property
    def size(self) -> float:
        """The effect's size: by default .5, of correlations .3, of shares .2, of hazards a ratio of 1.5."""
        if self.effect.size is not None:
            return self.effect.size
        medium = {"pair": 0.3, "given": 0.3, "table": 0.2, "times": HAZARD_RATIO_MEDIUM}
        return medium.get(self.plan.test.takes, self.medium)

    def check(self) -> None:
        super().check()
        takes = self.plan.test.takes
        if takes in ("pair", "given", "table") and not abs(self.size) <= 1:
            raise EffectError("a correlation, or a difference of shares, lies between -1 and 1")
        if takes == "times":
            require_hazard_ratio(self.size)

    def words(self) -> str:
        roles, size = self.plan.roles, f"{self.size:.3g}"
        first, second = roles.first.name, roles.second.name
        levels = getattr(roles.second, "levels", ("", ""))
        return {
            "groups": f"{first} larger by {size} standard deviations in {levels[-1]} than in {levels[0]}",
            "paired": f"{second} larger than {first} by {size} standard deviations",
            "pair": f"a correlation of {size} between {first} and {second}",
            "given": f"a correlation of {size} between {first} and {second}, the others independent of both",
            "table": f"a difference of {size} in the share of {first} between {levels[-1]} and {levels[0]}",
            "times": f"a hazard ratio of {size} of {levels[-1]} to {levels[0]}",
        }[self.plan.test.takes]

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        return [self._rows(size, rng) for size in sizes]

    def _rows(self, size: int, rng: np.random.Generator) -> Columns:
        plan, domain = self.plan, self.study.domain
        first, second = plan.roles.first, plan.roles.second
        if plan.test.takes in ("pair", "given"):
            pair = (first.name, second.name)
            asked: dict[str, Any] = {"pair": pair, "correlation": self.size, "shape": "linear"}
            return dependent_rows(self.public, domain, size, rng, **asked)
        # Every column by itself: in a public sample they may depend on each other.
        names = [column.name for column in domain.columns]
        rows = {name: draw_rows(self.public, domain, size, rng)[name] for name in names}
        if plan.test.takes == "paired":
            only = Domain(columns=(second,))
            return with_standard_effect(rows, self.public, only, self.size, rng)
        levels: Sequence[str] = getattr(second, "levels", ())
        place = {level: code / (len(levels) - 1) for code, level in enumerate(levels)}
        along = np.array([place.get(str(value), 0.0) for value in rows[second.name]])
        if plan.test.takes == "table":
            return rows | {first.name: self._shares(first, rows[first.name], along, rng)}
        if plan.test.takes == "times":
            left = rng.random(rows_of(rows)) ** (1 / self.size**along)
            return rows | {first.name: values_of(self.public, first, -ndtri(left))}
        moved = with_standard_effect(rows, self.public, Domain(columns=(first,)), 1.0, rng)[first.name]
        return rows | {first.name: rows[first.name] + self.size * along * (moved - rows[first.name])}

    def _shares(self, column: Column, values: Any, along: Any, rng: np.random.Generator) -> Any:
        """Return the outcome with its last level's share changed by so much, along the groups."""
        levels: Sequence[str] = getattr(column, "levels", ())
        last = np.array([str(value) == levels[-1] for value in values])
        share = float(last.mean())
        room = max(1 - share if self.size > 0 else share, 1e-9)
        changed = rng.random(len(last)) < np.abs(self.size) * along / room
        found = np.asarray(values, dtype=object).copy()
        found[changed & (last != (self.size > 0))] = levels[-1] if self.size > 0 else levels[0]
        return found


class AggregatedTest(Procedure):
    """See the module. Registered as ``aggregated_test``."""

    name: ClassVar[str] = "aggregated_test"
    title: ClassVar[str] = "Does a test that you know reject, within every owner?"
    families: ClassVar[frozenset[Family]] = frozenset(("pure", "gaussian"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("pure",))
    Parameters: ClassVar[type[BaseModel]] = AggregatedTestParameters
    Verdict: ClassVar[type[BaseVerdict]] = AggregatedTestResult
    released: ClassVar[str] = "the sum of the votes of blocks of its units, each of which takes the test"
    cited: ClassVar[tuple[Citation, ...]] = (SAMPLE_AND_AGGREGATE,)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Does a test that I know (t, Mann-Whitney, Wilcoxon, Kendall, log-rank and more) reject?",
        r"t.test|mann.whitney|wilcoxon|kruskal|kolmogorov|jonckheere|kendall|spearman|fisher|conditional",
        "one or more",
        rank=2,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = TestedEffect
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"blocks": blocks} for blocks in (10, 20, 50, 100, 200)),
        {"block_level": 0.2},
        {"block_level": 0.5},
    )

    def needs(self, columns: Sequence[Column]) -> tuple[RequiredParameter, ...]:
        """Return how the test is asked for: of those that take such columns."""
        names = [name for name, test in TESTS.items() if _takes(name, test, columns)] or list(TESTS)
        return (
            RequiredParameter("test", "which test", f"The test ({', '.join(names)})", _test_named, names[0]),
        )

    def plan(self, study: Study) -> AggregatedTestPlan:
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        if study.averages_rows:
            raise StudyError('tests are of units of one row: ask for unit_rows "one"')
        plan = aggregated_plan(study)
        plan.check_units(units_declared(study))
        return plan


def _takes(name: str, test: BlockTest, columns: Sequence[Column]) -> bool:
    """Say whether a test takes such columns."""
    try:
        parameters = AggregatedTestParameters.model_validate({"test": name})
        roles_of(parameters, test, Domain(columns=tuple(columns)))
    except (StudyError, ValueError):
        return False
    return True


def _test_named(answer: str) -> str:
    """Read a test's name; raises ValueError where there is none of it."""
    name = folded(answer.strip()).replace("-", "_").replace(" ", "_")
    if name not in TESTS:
        raise ValueError(f"no such test; known: {', '.join(TESTS)}")
    return name
