"""What joint independence concludes: a decision, or how many blocks reject."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from tacit_protocol.verdicts.base import DecisionResult, PvalueVerdict, ShownTable
from tacit_protocol.verdicts.presentation import Shown


class JointIndependenceDecision(DecisionResult):
    """Whether the variables were found dependent. Nothing finer is private, so nothing finer is here."""

    if_rejected: ClassVar[str] = "the columns are not jointly independent"
    if_not_rejected: ClassVar[str] = "no dependence of the columns shown"

    variables: tuple[tuple[str, ...], ...] = ()
    """Columns that count as one stand together."""

    def _of(self) -> Sequence[str]:
        words = (names[0] if len(names) == 1 else f"({', '.join(names)})" for names in self.variables)
        return (f"  of {', '.join(words)}",) if self.variables else ()


class JointIndependenceResult(PvalueVerdict):
    """Whether the variables were found dependent, from noisy numbers of blocks of units that reject.

    Attributes:
        statistic: the owners' noisy numbers of rejecting blocks, added up.
        pvalue: probability under the null hypothesis of a sum at least as large, exactly.
        variables: the variables; columns that count as one stand together.
        blocks: how many blocks were tested, all owners together.
        expected: rejecting blocks to be expected under the null hypothesis.
        deviation: standard deviation of the statistic under the null hypothesis, noise and all.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "blocks", "expected", "deviation")
    if_rejected: ClassVar[str] = "the columns are not jointly independent"

    variables: tuple[tuple[str, ...], ...]
    blocks: int
    expected: Annotated[float, Shown("rejecting blocks expected under the null hypothesis", "test")]
    deviation: Annotated[float, Shown("their standard deviation", "test")]

    def __str__(self) -> str:
        return self._told(self._decided("dependent" if self.reject else "no dependence shown"))

    def summary(self) -> Sequence[str | ShownTable]:
        found = self.if_rejected if self.reject else "no dependence shown"
        return (
            self._finding(found),
            f"  {self.statistic:.4g} of {self.blocks} blocks reject, noise included; {self.expected:.4g} are "
            f"expected, with standard deviation {self.deviation:.3g}",
            f"  {self.method}",
        )
