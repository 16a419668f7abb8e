"""What verdicts on two samples at a curator say."""

from typing import ClassVar

from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult
from tacit_protocol.verdicts.base import DecisionResult


class CuratedTwoSampleDecision(DecisionResult):
    """Whether the two samples were found to differ: what the permutation release says, and nothing finer."""

    if_rejected: ClassVar[str] = "the owners' records differ"
    if_not_rejected: ClassVar[str] = "no difference between the owners' records shown"


class CuratedTwoSampleBlocks(JointIndependenceResult):
    """Whether the two samples differ, from the noisy number of blocks of units that reject."""

    if_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_rejected


class CuratedTwoSampleTable(CellsTableResult):
    """Whether the two samples differ, from a noisy table of the sample and the columns' cells.

    ``pairs`` says of every column how strongly its cells depend on the sample: a positive correlation means
    larger values in the second one.
    """

    if_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_rejected
    if_not_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_not_rejected


class CuratedTwoSampleResult(TwoSampleResult):
    """Whether the two samples come from one distribution and, as far as the release tells, by how much.

    A field that the release does not allow is absent: ``statistic`` has none below ``warnings`` but
    ``statistic`` and ``pvalue``.
    """
