"""The kernel two-sample test at a trusted curator, who holds both samples and adds noise once.

Three releases (docs/mathematics/trusted-curator.md): ``mean-covariance``, the private difference of the
samples' mean features with what its null distribution needs (P0's TCMC, sharpened); ``statistic``, one noisy
statistic (P0's TCS with a sensitivity that holds), kept for history; ``permutation``, the private decision of
a permutation test (dpMMD of Kim and Schrab). P0 is Raj, Law, Sejdinovic and Park, *A differentially private
kernel two-sample test*. Replacing one individual replaces one unit of one sample.

``aggregate`` and ``table`` test whether the sample, a public column, is independent of the columns: by the
noisy number of blocks that reject, or by a noisy table of cells, both in pure epsilon.
"""

from collections.abc import Mapping, Sequence
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
from tacit_protocol.procedures.curated_two_sample.parameters import (
    JOINT_RELEASES,
    CuratedTwoSampleParameters,
    form_of,
    parameters_of,
    samples_of,
)
from tacit_protocol.procedures.curated_two_sample.plan import curated_plan, pure_plan
from tacit_protocol.procedures.curated_two_sample.verdict import CuratedTwoSampleResult
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Difference, SimulationModel
from tacit_protocol.procedures.two_sample.verdict import FEATURE_CHOICES, ONE_POPULATION
from tacit_protocol.verdicts.base import BaseVerdict


class SampleDifference(Difference):
    """Rows of owners of whom all of the second sample's are shifted, or spread otherwise."""

    @property
    def others(self) -> Sequence[int]:
        named = self.study.parameters.get("samples")
        if named is None:
            return super().others
        return [place for place, owner in enumerate(self.study.owners) if owner.name in named[1]]


class CuratedTwoSample(Procedure):
    """See the module. Registered as ``curated_two_sample``."""

    name: ClassVar[str] = "curated_two_sample"
    title: ClassVar[str] = "Do two samples that a curator holds come from one population?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = CuratedTwoSampleParameters
    Verdict: ClassVar[type[BaseVerdict]] = CuratedTwoSampleResult
    released: ClassVar[str] = "what the two-sample statistic needs of the features of both samples"
    question: ClassVar[QuestionTemplate | None] = ONE_POPULATION
    held_by: ClassVar[frozenset[Holder]] = frozenset({"curator"})
    population: ClassVar[type[SimulationModel] | None] = SampleDifference
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"release": "mean-covariance"} | dict(choice) for choice in FEATURE_CHOICES),
    )

    def plan(self, study: Study) -> Plan:
        require_shared_columns(study)
        if study.curator is None:
            raise StudyError("this procedure needs a curator; without one use kernel_two_sample")
        parameters = parameters_of(study)
        form, samples = form_of(parameters), samples_of(study, parameters)
        plan: Plan
        if form in JOINT_RELEASES:
            plan = pure_plan(study, parameters, samples)
        else:
            plan = curated_plan(study, parameters, samples, form)
        plan.check_units(units_declared(study))
        return plan
