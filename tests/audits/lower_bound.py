"""Black-box lower bounds on epsilon and mu: what an attacker with many runs can prove about a mechanism.

The attacker tells two neighbours apart by an event {log-likelihood ratio above a threshold}. It chooses the
event on pilot runs, counts it on fresh ones, and bounds both probabilities by Clopper and Pearson (1934).
Then epsilon >= log((p - delta) / q), the definition of (epsilon, delta), and mu >= Phi^-1(p) - Phi^-1(q), the
trade-off curve of mu-Gaussian differential privacy (Dong, Roth and Su 2022, section 2.3).
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv, ndtri

from tacit_protocol.privacy.accounting import gaussian_delta

Floats = npt.NDArray[np.float64]

ERROR = 1e-3
"""Probability that any of an audit's four one-sided intervals misses: joint confidence 99.9 %."""

INTERVALS = 4

ATTEMPTS = 3
"""An excess counts once so many independent audits in a row have found it: false alarms are below 1e-9."""

THRESHOLDS = 49
"""Quantiles of the pilot runs that are tried as thresholds."""

DISTINCT_MAX = 500
"""Where pilot runs have no more distinct scores, as those of choices and decisions, each is a threshold: one
rare score may be all that tells the neighbours apart."""

CHOICE_ERROR = 1e-12
"""Of the intervals that choose the event: wide ones, so that a rare event is not chosen for a lucky count."""


class Scored(Protocol):
    """Independent runs on either of two neighbours, told by a score that is larger on the other."""

    def scores(self, other: bool, runs: int) -> Floats:
        """Scores of fresh runs, (runs,)."""


@dataclass(frozen=True)
class Audited:
    """What ``runs`` runs per neighbour prove: epsilon at the delta asked for, and mu. Jointly 99.9 % sure."""

    runs: int
    epsilon: float
    mu: float


@dataclass(frozen=True)
class _Event:
    """A score above the threshold (``above``, likelier on the other neighbour) or at most it."""

    threshold: float
    above: bool

    def count(self, scores: Floats) -> int:
        return int(np.sum((scores > self.threshold) == self.above))


def clopper_pearson(count: int, runs: int, error: float) -> tuple[float, float]:
    """Lower and upper bound on a probability, each wrong with probability at most ``error``."""
    lower = 0.0 if count == 0 else float(betaincinv(count, runs - count + 1, error))
    upper = 1.0 if count == runs else float(betainccinv(count + 1, runs - count, error))
    return lower, upper


def audit(scored: Scored, delta: float, *, runs: int, pilot: int) -> Audited:
    """Audit with ``pilot`` runs per neighbour to choose two events, and ``runs`` others to count them."""
    ones, others = scored.scores(False, pilot), scored.scores(True, pilot)
    thresholds, choice_error = _thresholds(np.concatenate([ones, others]))
    events = [_Event(float(threshold), above) for threshold in thresholds for above in (True, False)]

    def probabilities(event: _Event, error: float) -> tuple[float, float]:
        """A lower bound where the event is likelier, an upper bound where it is not."""
        likelier, other = (others, ones) if event.above else (ones, others)
        return (
            clopper_pearson(event.count(likelier), len(likelier), error)[0],
            clopper_pearson(event.count(other), len(other), error)[1],
        )

    by_epsilon = max(events, key=lambda event: epsilon_bound(*probabilities(event, choice_error), delta))
    by_mu = max(events, key=lambda event: mu_bound(*probabilities(event, choice_error)))
    ones, others = scored.scores(False, runs), scored.scores(True, runs)
    error = ERROR / INTERVALS
    return Audited(
        runs, epsilon_bound(*probabilities(by_epsilon, error), delta), mu_bound(*probabilities(by_mu, error))
    )


def _thresholds(scores: Floats) -> tuple[Floats, float]:
    """Scores of pilot runs at which events are cut, and the error of the intervals that choose among them."""
    distinct = np.unique(scores)
    if 1 < len(distinct) <= DISTINCT_MAX:
        return distinct[:-1], ERROR
    return np.asarray(np.quantile(scores, np.linspace(0, 1, THRESHOLDS + 2)[1:-1])), CHOICE_ERROR


def epsilon_bound(p: float, q: float, delta: float) -> float:
    """The smallest epsilon with p <= exp(epsilon) q + delta; 0 where any will do."""
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def mu_bound(p: float, q: float) -> float:
    """The smallest mu under which an event may have these two probabilities."""
    if p == 0 or q == 1:
        return 0.0
    return max(0.0, float(ndtri(p) - ndtri(q)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The smallest epsilon for which mu-Gaussian differential privacy implies (epsilon, delta)."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(middle, mu) <= delta else (middle, high)
    return high


def exceeds(scored: Scored, *, runs: int, pilot: int, delta: float, epsilon: float, mu: float | None) -> bool:
    """Say whether every one of three independent audits proves more than is claimed."""
    for _ in range(ATTEMPTS):
        found = audit(scored, delta, runs=runs, pilot=pilot)
        if found.epsilon <= epsilon and (mu is None or found.mu <= mu):
            return False
    return True
