"""Distance covariance and correlation of data in one place: at a curator, or at one owner that holds all.

Three roots leave in one Gaussian release, dCov, dVar X and dVar Y, with the sharpest sensitivities that are
proved here (P4, Vepakomma, Pushpita and Raskar, allows three times as much for a variance), and one private
decision of a permutation test of independence. Distances are over a public diameter.
Derivations: docs/mathematics/curated-distance-correlation.md. Methods ``aggregate`` and ``table`` test the
independence of X and Y alone: by blocks tested with distances, or by a table of cells.
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
    parse_parameters,
    require_shared_columns,
    units_declared,
)
from tacit_protocol.procedures.curated_distance_correlation.plan import pure_plan, roots_plan
from tacit_protocol.procedures.curated_distance_correlation.release import (
    CuratedDistanceCorrelationParameters,
)
from tacit_protocol.procedures.curated_distance_correlation.verdict import CuratedDistanceCorrelationResult
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import DISTANCE, PERMUTATION, TWO_PARTIES, Citation


class CuratedDistanceCorrelation(Procedure):
    """See the module. Registered as ``curated_distance_correlation``."""

    name: ClassVar[str] = "curated_distance_correlation"
    title: ClassVar[str] = "How strongly do columns that are in one place depend on each other?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = CuratedDistanceCorrelationParameters
    Verdict: ClassVar[type[BaseVerdict]] = CuratedDistanceCorrelationResult
    released: ClassVar[str] = (
        "the roots of the distance covariance and of both distance variances, "
        "and the decision of a permutation test"
    )
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, PERMUTATION, DISTANCE)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How strongly do columns in one place depend on each other?",
        r"how strong|strength",
        "one or more",
        rank=8,
        relates=True,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"curator"})
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = tuple(
        {"test_share": share} for share in (0.2, 0.5, 0.8)
    )
    pairwise: ClassVar[bool] = True

    def plan(self, study: Study) -> Plan:
        require_shared_columns(study)
        parameters = parse_parameters(CuratedDistanceCorrelationParameters, study)
        plan: Plan
        if parameters.method != "permutation":
            plan = pure_plan(study, parameters)
        elif parameters.blocks or parameters.categories:
            raise StudyError("parameters blocks and categories are of methods aggregate and table")
        elif study.curator is None and len(study.owners) != 1:
            raise StudyError("all columns must be in one place: name one owner, or a curator of several")
        else:
            plan = roots_plan(study, parameters)
        plan.check_units(units_declared(study))
        return plan
