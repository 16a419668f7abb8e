"""Feature screening: which of one owner's columns depend on an outcome that another owner holds.

Columns are found by randomised answers (answered.py). For a correlation matrix (``matrix``) each owner sends
one joint sketch of all its columns instead, under one budget; the tester estimates the distance covariance of
every pair of an outcome and a column, tests each pair at exactly its level, and controls the false discovery
rate (Benjamini and Yekutieli 2001). Named as a use of private distance correlation by P4, Vepakomma,
Pushpita and Raskar, who give no method for it. Derivations: docs/mathematics/screening.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.base import Procedure, QuestionTemplate, parse_parameters
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Dependence, Held, SimulationModel
from tacit_protocol.procedures.screening.answered import answered_screening
from tacit_protocol.procedures.screening.plan import ScreeningParameters, sketched_screening
from tacit_protocol.procedures.screening.verdict import AnsweredScreeningVerdict, ScreeningVerdict
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import DISTANCE, FALSE_DISCOVERIES, TWO_PARTIES, Citation


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

    def plan(self, study: Study) -> Plan:
        parameters = parse_parameters(ScreeningParameters, study)
        made = sketched_screening if parameters.matrix else answered_screening
        return made(study, parameters)
