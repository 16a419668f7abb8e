"""The kernel two-sample test between 2..k owners who trust no one.

P0 is Raj, Law, Sejdinovic and Park, *A differentially private kernel two-sample test*; what is corrected and
sharpened is derived in docs/mathematics/features.md and docs/mathematics/kernel-two-sample.md.

Every owner releases the noisy mean of bounded features of its units (and, for the ME and SCF features, their
noisy second moment) in one joint Gaussian release; the tester asks whether one distribution explains all.
By default it asks by the max form (means/max_form.py: chi-squared laws and Sidak's correction); the others
are in means/private_means.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.base import (
    Procedure,
    QuestionTemplate,
    StudyError,
    require_noise,
    require_shared_columns,
)
from tacit_protocol.procedures.kernel_two_sample.defaults import defaults_of
from tacit_protocol.procedures.kernel_two_sample.plan import (
    ColumnMeans,
    KernelMeans,
    NoiseAwareForm,
    two_sample_plan,
)
from tacit_protocol.procedures.populations import Difference, SimulationModel
from tacit_protocol.procedures.two_sample.release import KernelTwoSampleParameters
from tacit_protocol.procedures.two_sample.verdict import FEATURE_CHOICES, ONE_POPULATION, TwoSampleResult
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import KERNEL, Citation


class KernelTwoSample(Procedure):
    """See the module. Registered as ``kernel_two_sample``."""

    name: ClassVar[str] = "kernel_two_sample"
    title: ClassVar[str] = "Do the owners' records come from one population?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = KernelTwoSampleParameters
    Verdict: ClassVar[type[BaseVerdict]] = TwoSampleResult
    released: ClassVar[str] = "the mean of bounded features of its units"
    cited: ClassVar[tuple[Citation, ...]] = (KERNEL,)
    question: ClassVar[QuestionTemplate | None] = ONE_POPULATION
    population: ClassVar[type[SimulationModel] | None] = Difference
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = FEATURE_CHOICES

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise and features that suit numbers of units, where the study leaves both."""
        return defaults_of(study, units)

    def plan(self, study: Study) -> ColumnMeans | KernelMeans:
        """Return the plan of a study: means of columns, of cells, or of kernel features in one form."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; with a curator use curated_two_sample")
        if len(study.owners) < 2:
            raise StudyError("a two-sample test needs at least two owners")
        plan = two_sample_plan(study)
        if isinstance(plan, NoiseAwareForm):
            plan.require_work()
        # Noise is widest, in grid steps, of the fewest units: their grid is the finest.
        require_noise(lambda: plan.require_drawable(1))
        return plan
