"""Comparison of two to eight groups that exist within every owner, whom nobody needs to trust.

Every owner releases sums of bounded features over the units of each group, in one joint Gaussian release; or,
in pure epsilon, sums of fewer features in Laplace noise. The tester asks of every column whether groups
differ *within* owners, so that what differs between owners neither makes a difference nor hides one; and by
how much, in the column's own units.

Where one owner holds the group and another the outcomes of the same units, the first releases one randomised
answer a unit, the other noisy sums by answer: effects are of groups, with the answers' noise taken out.
Derivations: docs/mathematics/group-comparison.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import QuestionTemplate
from tacit_protocol.procedures.group_comparison.plan import (
    GroupComparisonParameters,
    answered_plan,
    group_columns,
    ranks_test,
    separate_plan,
)
from tacit_protocol.procedures.group_comparison.verdict import AnsweredGroupsResult, GroupComparisonResult
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import (
    Columns,
    Difference,
    Held,
    SimulationModel,
    draw_rows,
    with_effect,
    with_standard_effect,
)
from tacit_protocol.procedures.within_owners.plan import WithinOwners
from tacit_protocol.procedures.within_owners.verdict import COCHRAN, FIELLER
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import Citation


class GroupShift(Difference):
    """Rows of owners in all of whose groups but the first the first outcome is larger, or those named are."""

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw every owner's rows: groups, and apart from them what is compared."""
        return [self._rows(size, rng) for size in sizes]

    def words(self) -> str:
        plan = group_columns(self.study)
        where = f"in other groups than {plan.group.levels[0]}"
        if self._moves:
            return f"{super().words()} {where}"
        return f"{plan.outcomes[0].name} larger by {self.size:.3g} standard deviations {where}"

    def _rows(self, size: int, rng: np.random.Generator) -> Columns:
        plan, domain = group_columns(self.study), self.study.domain
        outcomes = domain.model_copy(update={"columns": plan.outcomes})
        rows = dict(draw_rows(self.public, domain, size, rng))
        group = draw_rows(self.public, domain, size, rng)[plan.group.name]
        if self._moves:
            moved = with_effect(rows, self.public, outcomes, self._shift, self._scale)
        else:
            moved = with_standard_effect(rows, self.public, outcomes, self.size, rng)
        other = np.array([str(value) != plan.group.levels[0] for value in group])
        found = {
            column.name: np.where(other, moved[column.name], rows[column.name]) for column in plan.outcomes
        }
        return rows | found | {plan.group.name: group}


class GroupComparison(WithinOwners):
    """See the module. Registered as ``group_comparison``."""

    name: ClassVar[str] = "group_comparison"
    title: ClassVar[str] = "Do groups differ in numbers and categories, within every owner?"
    Parameters: ClassVar[type[BaseModel]] = GroupComparisonParameters
    Verdict: ClassVar[type[BaseVerdict]] = GroupComparisonResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = AnsweredGroupsResult
    released: ClassVar[str] = "sums of bounded features over its units of each group"
    cited: ClassVar[tuple[Citation, ...]] = (COCHRAN, FIELLER)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do groups (men and women, cases and controls) differ in numbers, within every owner?",
        r"groups|men and women|women and men|cases and controls|mean difference|average",
        "one or more",
        rank=6,
    )
    population: ClassVar[type[SimulationModel] | None] = GroupShift

    separate = staticmethod(separate_plan)

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return none beside another owner's answers, which are pure."""
        return {} if study.columns_apart else super().defaults(study, units)

    def plan(self, study: Study) -> Plan:
        """Return the plan in the study's noise, with masks, or beside another owner's answers."""
        return answered_plan(study) if study.columns_apart else super().plan(study)

    def test_of_ranks(self, study: Study) -> str | None:
        """Name that of two groups, or of more; None where another owner holds the group."""
        return None if study.columns_apart else ranks_test(group_columns(study).group)
