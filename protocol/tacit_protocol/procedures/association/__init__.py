"""Association of columns within every owner, whom nobody needs to trust.

Every owner releases histograms of its columns, and sums of bounded scores of columns and of pairs of them.
The tester asks of every pair whether the columns go together *within* owners, so that what differs between
owners neither makes an association nor hides one; and how strongly, as Pearson's and as a rank correlation.
Or owners mask their covariances, and the sum of all is read.
Derivations: docs/mathematics/association.md.
"""

from typing import ClassVar

from pydantic import BaseModel

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.association.plan import (
    TEST_OF_RANKS,
    AssociationParameters,
    separate_plan,
)
from tacit_protocol.procedures.association.verdict import AssociationResult
from tacit_protocol.procedures.base import QuestionTemplate
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.within_owners.plan import WithinOwners
from tacit_protocol.procedures.within_owners.verdict import COCHRAN, FIELLER
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import Citation

GAUSSIAN = Citation(
    "dong2022gaussian",
    "article",
    ("Jinshuo Dong", "Aaron Roth", "Weijie J. Su"),
    "Gaussian Differential Privacy",
    "Journal of the Royal Statistical Society B 84(1)",
    2022,
)
SPEARMAN = Citation(
    "spearman1904proof",
    "article",
    ("Charles Spearman",),
    "The Proof and Measurement of Association between Two Things",
    "American Journal of Psychology 15(1)",
    1904,
)


class Association(WithinOwners):
    """See the module. Registered as ``association``."""

    name: ClassVar[str] = "association"
    title: ClassVar[str] = "Do columns go together, within every owner?"
    Parameters: ClassVar[type[BaseModel]] = AssociationParameters
    Verdict: ClassVar[type[BaseVerdict]] = AssociationResult
    released: ClassVar[str] = (
        "histograms of its columns, and sums of bounded scores of columns and their pairs"
    )
    cited: ClassVar[tuple[Citation, ...]] = (SPEARMAN, COCHRAN, FIELLER, GAUSSIAN)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How strongly are numbers correlated, within every owner?",
        r"within .*(correlat|associat)|(correlat|associat).*within|how strongly",
        "one or more",
        rank=5,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = Dependence

    separate = staticmethod(separate_plan)

    def test_of_ranks(self, study: Study) -> str | None:  # noqa: ARG002
        """Name Spearman's."""
        return TEST_OF_RANKS
