"""Distance correlation between two owners who hold different columns of the same units.

P4 is Vepakomma, Pushpita and Raskar, *Private measurement of nonlinear correlations between data hosted
across multiple parties*. ``two-round`` and ``one-round`` set one owner's randomised answers beside the
other's cells, or answers. ``sketch`` sums Brownian features over public buckets of units; ``pnc`` and
``pnc-disjoint`` are P4's projections of every unit, calibrated to protect a whole unit, with noise at both
owners. The tester estimates the distance covariance and tests independence at exactly the level; in peer
mode one owner does, from the other's noisy projections and its own raw ones, for itself.
Derivations: docs/mathematics/distance-correlation.md.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.procedures.base import Procedure, QuestionTemplate, StudyError, parse_parameters
from tacit_protocol.procedures.distance_correlation.peer import PeerPlan, PeerResult
from tacit_protocol.procedures.distance_correlation.release import (
    ANSWERS,
    DistanceCorrelationParameters,
    DistanceTest,
    Method,
    ProjectionPlan,
    answers_plan,
    projections_of,
    require_mode,
    sketch_plan,
)
from tacit_protocol.procedures.distance_correlation.verdict import DistanceCorrelationResult
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.randomised_answers.answers import suits_answers
from tacit_protocol.procedures.randomised_answers.sides import require_two_sides
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import DISTANCE, TWO_PARTIES, Citation


class DistanceCorrelation(Procedure):
    """See the module. Registered as ``distance_correlation``."""

    name: ClassVar[str] = "distance_correlation"
    title: ClassVar[str] = "Do one owner's columns depend on another's?"
    plans_two_rounds: ClassVar[bool] = True
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    methods: ClassVar[Mapping[str, frozenset[Family]]] = {
        method: frozenset(("pure" if method in ANSWERS else "gaussian",)) for method in get_args(Method)
    }
    Parameters: ClassVar[type[BaseModel]] = DistanceCorrelationParameters
    Verdict: ClassVar[type[BaseVerdict]] = DistanceCorrelationResult
    released: ClassVar[str] = "bounded features of its columns, in sums over public buckets or projected"
    RelayedVerdict: ClassVar[type[BaseVerdict]] = PeerResult
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, DISTANCE)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do the columns of one owner depend on those that another owner holds of the same people?",
        r"(other|another|their|two) .*(depend|relate|correlat|associat)|same people",
        "two",
        rank=5,
        apart=True,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"method": "two-round", "categories": count} for count in (2, 3, 4)),
        {"method": "one-round", "categories": 2},
        *({"method": "sketch", "n_features": count} for count in (1, 2, 3, 5, 8)),
    )

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:  # noqa: ARG002
        """Ask for answers in two rounds where public numbers alone say that they suit; else as ever.

        A sketch's own parameters, peer mode or an earlier release ask for another method.
        """
        stated = study.parameters
        other = {"n_features", "n_projections", "publish"} & set(stated)
        other |= {"mode"} if stated.get("mode", "tester") != "tester" else set()
        apart = len(study.owners) == 2 and all(owner.columns for owner in study.owners)
        if other or not apart or study.curator is not None or study.reusing:
            return {}
        first, second = (study.domain_of(owner) for owner in study.owners)
        method = stated.get("method") or (
            "two-round" if suits_answers((first, second), study.budget) else None
        )
        if method not in ANSWERS:
            return {}
        return {"method": method}

    def plan(self, study: Study) -> Plan:
        parameters = parse_parameters(DistanceCorrelationParameters, study)
        if parameters.method in ANSWERS:
            return answers_plan(study, parameters)
        if parameters.categories is not None or parameters.cuts != "fitted":
            raise StudyError("parameters categories and cuts are for two-round and one-round; leave them out")
        require_two_sides(study)
        require_mode(study, parameters)
        guarantee = gaussian_guarantee(study.budget)
        plan: DistanceTest
        if parameters.method == "sketch":
            plan = sketch_plan(study, parameters, guarantee)
        else:
            kind = PeerPlan if parameters.mode == "peer" else ProjectionPlan
            plan = kind(study, parameters, guarantee, projections_of(study, parameters))
        plan.require()
        return plan
