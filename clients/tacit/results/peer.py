"""The outcome, for everybody but the receiver, of a study whose result stays with one of its owners."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.results.common import Source, StudyResult, common_fields, optional_number
from tacit.results.distance import DistanceCorrelationResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PeerResult(StudyResult):
    """Outcome of a study in peer mode, as the tester states it. It cannot be unpacked: nothing is tested.

    Attributes:
        receiver: the owner with whom the result stays; its operator reads it with ``tacit agent result``.
        spent: epsilon that each owner spent, by name.
        distance_covariance_sqr: what the receiver published, with its noise, or None.
        interval: covers it without the receiver's noise with probability 1 - alpha, or None.
    """

    receiver: str
    spent: Mapping[str, float]
    distance_covariance_sqr: float | None
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        published = ""
        if self.distance_covariance_sqr is not None:
            published = f", squared distance covariance {self.distance_covariance_sqr:.4g}"
        return f"{self.method}{published}, epsilon {self.epsilon:g}, delta {self.delta:g}"


def peer_result(source: Source, verdict: Mapping[str, Any]) -> PeerResult:
    """Build the typed result from a study and the verdict of a peer mode, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another's.
    """
    value, low, high = (
        verdict[name] for name in ("distance_covariance_sqr", "covariance_lower", "covariance_upper")
    )
    return PeerResult(
        receiver=str(verdict["receiver"]),
        spent={str(name): float(spent) for name, spent in verdict["spent"].items()},
        distance_covariance_sqr=optional_number(value),
        interval=None if value is None else (float(low), float(high)),
        **common_fields(source, verdict),
    )


@dataclass(frozen=True)
class PeerOutcome:
    """Both results of a peer mode played in one process. Unpacks into the finding's ``statistic, pvalue``.

    Attributes:
        finding: what the receiver finds; private for the sender's data alone, and never published.
        stated: what everybody learns.
    """

    finding: DistanceCorrelationResult
    stated: PeerResult

    def __iter__(self) -> Iterator[float]:
        yield from self.finding

    def to_svg(self) -> str:
        """Return the finding's picture as SVG text; it is the receiver's alone."""
        return self.finding.to_svg()

    def plot(self) -> "Figure":
        """Draw the finding with matplotlib; raises PlottingError where it is not installed."""
        return self.finding.plot()

    def _repr_html_(self) -> str:
        return self.finding._repr_html_()

    def __str__(self) -> str:
        return f"the receiver: {self.finding}; everybody: {self.stated}"
