"""The outcome, for everybody but the receiver, of a study whose result stays with one of its owners."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import common_fields
from tacit.results.distance import DistanceCorrelationResult
from tacit_protocol.messages.study import Study


@dataclass(frozen=True)
class PeerResult:
    """Outcome of a study in peer mode, as the tester states it. It cannot be unpacked: nothing is tested.

    Attributes:
        receiver: the owner with whom the result stays; its operator reads it with ``tacit agent result``.
        reject: always False: no decision is published.
        alpha: the level of ``interval``, in (0, 0.5).
        method: what was computed, in words.
        n: privacy units of each owner, by name.
        epsilon: what every owner that released something spent.
        delta: what every owner that released something spent.
        spent: epsilon that each owner spent, by name.
        warnings: what limits the result, in words.
        distance_covariance_sqr: what the receiver published, with its noise, or None.
        interval: covers it without the receiver's noise with probability 1 - alpha, or None.
        verdict: everything that the procedure reports.
    """

    receiver: str
    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    spent: Mapping[str, float]
    warnings: tuple[str, ...]
    distance_covariance_sqr: float | None
    interval: tuple[float, float] | None
    verdict: Mapping[str, Any]

    def __str__(self) -> str:
        published = ""
        if self.distance_covariance_sqr is not None:
            published = f", squared distance covariance {self.distance_covariance_sqr:.4g}"
        return f"{self.method}{published}, epsilon {self.epsilon:g}, delta {self.delta:g}"


def peer_result(study: Study, verdict: Mapping[str, Any]) -> PeerResult:
    """Build the typed result from a study and the verdict of a peer mode, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another's.
    """
    value, low, high = (
        verdict[name] for name in ("distance_covariance_sqr", "covariance_lower", "covariance_upper")
    )
    return PeerResult(
        receiver=str(verdict["receiver"]),
        spent={str(name): float(spent) for name, spent in verdict["spent"].items()},
        distance_covariance_sqr=None if value is None else float(value),
        interval=None if value is None else (float(low), float(high)),
        **common_fields(study, verdict),
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

    def __str__(self) -> str:
        return f"the receiver: {self.finding}; everybody: {self.stated}"
