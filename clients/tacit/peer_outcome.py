"""Both results of a study in peer mode that was played in one process."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from tacit_protocol.procedures.distance_correlation.peer import PeerResult
    from tacit_protocol.procedures.distance_correlation.verdict import DistanceCorrelationResult


@dataclass(frozen=True)
class PeerOutcome:
    """Both results of a peer mode played in one process. Unpacks into the finding's ``statistic, pvalue``.

    Attributes:
        finding: what the receiver finds; private for the sender's data alone, and never published.
        stated: what everybody learns.
    """

    finding: "DistanceCorrelationResult"
    stated: "PeerResult"

    def __iter__(self) -> Iterator[float]:
        yield from self.finding

    def to_svg(self) -> str:
        """Return the finding's picture as SVG text; it is the receiver's alone."""
        return self.finding.to_svg()

    def plot(self) -> Any:
        """Draw the finding with matplotlib; raises PlottingError where it is not installed."""
        return self.finding.plot()

    def to_pandas(self) -> "pd.DataFrame":
        """Return the finding as a data frame of one row; it is the receiver's alone."""
        found: pd.DataFrame = self.finding.to_pandas()
        return found

    def _repr_html_(self) -> str:
        return self.finding._repr_html_()

    def __str__(self) -> str:
        return f"the receiver: {self.finding}; everybody: {self.stated}"
