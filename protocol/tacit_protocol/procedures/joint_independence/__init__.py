"""Are several variables, or groups of columns, jointly independent? A private decision, or a count of blocks.

``permutation`` (dpdHSIC): *Differentially private joint independence test* on Kim and Schrab, *Differentially
private permutation tests* (2023), with sharper sensitivities: docs/mathematics/joint-independence.md and
permutation-tests.md. The rows must be in one place: at one owner's agent, or at a curator, which pools the
units of its owners. The statistic of the data is compared with those of permuted data, with noise on all; one
bit leaves.

``aggregate``: every owner, or the curator, tests blocks of its units and releases the noisy number of those
that reject: pure epsilon and an exact p-value, and owners' counts add up (aggregation.py). It may test the
residuals of a causal graph in the place of columns (additive_noise.py).

``table``: every owner, or the curator, releases one noisy table of the columns' cells, between private
quantiles: pure epsilon, a p-value and estimates with intervals; several owners are strata
(procedures/quantile_tables, docs/mathematics/quantile-tables.md).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.base import (
    Holder,
    Procedure,
    QuestionTemplate,
    StudyError,
    require_shared_columns,
    units_declared,
)
from tacit_protocol.procedures.independence.plan import JointPlan
from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
from tacit_protocol.procedures.joint_independence.plan import (
    JointIndependenceParameters,
    PermutedDecision,
    joint_plan,
)
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import JOINT, PERMUTATION, Citation


class JointIndependence(Procedure):
    """See the module. Registered as ``joint_independence``."""

    name: ClassVar[str] = "joint_independence"
    title: ClassVar[str] = "Are these columns, or groups of columns, independent of each other?"
    families: ClassVar[frozenset[Family]] = frozenset(("pure", "approximate", "gaussian"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = JointIndependenceParameters
    Verdict: ClassVar[type[BaseVerdict]] = JointIndependenceResult
    released: ClassVar[str] = "the decision of a permutation test of the d-variable Hilbert-Schmidt criterion"
    cited: ClassVar[tuple[Citation, ...]] = (JOINT, PERMUTATION)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do these columns depend on each other?",
        r"depend|relat|correlat|associat|link|connect|effect of|influence",
        "one",
        rank=9,
        pure=True,
        relates=True,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"agents", "curator"})
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"method": "permutation"},
        *({"bandwidth": width} for width in (0.03, 0.1, 0.3, 1.0)),
        {"kernel": "distance"},
        {"method": "aggregate"},
    )
    pairwise: ClassVar[bool] = True

    def plan(self, study: Study) -> JointPlan:
        require_shared_columns(study)
        plan = joint_plan(study)
        if study.curator is None and len(study.owners) != 1 and isinstance(plan, PermutedDecision):
            raise StudyError(
                "all columns must be in one place: name one owner, or a curator of several, or ask for "
                "method aggregate or table"
            )
        plan.check_units(units_declared(study))
        return plan
