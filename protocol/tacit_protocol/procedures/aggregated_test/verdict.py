"""What a test by aggregation concludes."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from tacit_protocol.verdicts.base import PvalueVerdict, ShownTable
from tacit_protocol.verdicts.presentation import Shown


class AggregatedTestResult(PvalueVerdict):
    """Whether blocks of units reject more often than they would by chance, and towards which side.

    Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the owners' noisy sums of votes, added up; of a test with a direction how far from 0.
        pvalue: probability under the null hypothesis of a statistic at least as large; of a test with a
            direction, of both sides.
        test: which test blocks took.
        votes: the sum itself: with a direction, blocks that reject upwards less those that reject downwards.
        direction: "up" or "down", where the test has a direction and rejects; else None.
        finding: what was shown, or that nothing was, in words.
        blocks: how many blocks were tested, all owners together.
        expected: the sum to be expected under the null hypothesis.
        deviation: its standard deviation under the null hypothesis, noise and all.
        votes_by_owner: every owner's noisy sum; nobody's where they were masked.
        blocks_by_owner: every owner's number of blocks.
    """

    listed: ClassVar[tuple[str, ...]] = (
        "statistic",
        "pvalue",
        "votes",
        "direction",
        "blocks",
        "expected",
        "deviation",
        "votes_by_owner",
    )

    test: str
    votes: Annotated[float, Shown("votes of blocks", "test")]
    direction: Annotated[Literal["up", "down"] | None, Shown("direction", "effects")]
    finding: Annotated[str, Shown("finding", "effects")]
    blocks: int
    expected: Annotated[float, Shown("votes expected under the null hypothesis", "test")]
    deviation: Annotated[float, Shown("their standard deviation", "test")]
    votes_by_owner: dict[str, float]
    blocks_by_owner: dict[str, int]

    def __str__(self) -> str:
        return self._told(self._decided(self.finding))

    def summary(self) -> Sequence[str | ShownTable]:
        rows = tuple(
            (name, f"{votes:.4g}", str(self.blocks_by_owner[name]))
            for name, votes in self.votes_by_owner.items()
        )
        return (
            self._finding(self.finding),
            f"  votes {self.votes:.4g} of {self.blocks} blocks, noise included; {self.expected:.4g} are "
            f"expected, with standard deviation {self.deviation:.3g}",
            f"  {self.method}",
            *([ShownTable(("Owner", "Votes", "Blocks"), rows)] if len(rows) > 1 else []),
        )
