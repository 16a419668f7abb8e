"""The time of a reduce by N workers: the formula of docs/mathematics/scaling.md, and a simulation of it.

The simulation hands out tasks as ``tacit_protocol.workers.in_order`` does: one after another, at most AHEAD
for each worker before the first has come back, whose result is taken in first. All times are in seconds.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.workers import AHEAD
from tacit_services.agent.data.table import PARTS_PER_WORKER

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Overhead:
    """What a task costs whoever waits for all of them: handing it out, and taking its result in."""

    hand_out_s: float = 0.0
    take_in_s: float = 0.0


def makespan(times: Sequence[float] | Floats, workers: int, overhead: Overhead, ahead: int = AHEAD) -> float:
    """Return when the last result has been taken in, of tasks that take ``times`` at a worker."""
    window, now = ahead * workers, 0.0
    free, done = [0.0] * workers, list[float]()
    for number, time in enumerate(times):
        if number >= window:
            now = max(now, done[number - window])
        now += overhead.hand_out_s
        end = max(now, heapq.heappop(free)) + time
        heapq.heappush(free, end)
        done.append(end)
        if number >= window:
            now += overhead.take_in_s
    for end in done[-window:]:
        now = max(now, end) + overhead.take_in_s
    return now


def largest_normal(count: int) -> float:
    """Return about the expected largest of so many standard normal numbers (Blom, 1958)."""
    return float(ndtri((count - 0.375) / (count + 0.25))) if count > 1 else 0.0


@dataclass(frozen=True)
class Reduce:
    """A reduce over ``groups`` that cannot be cut: row groups of a file, or blocks of replicates.

    A group takes ``mean_s`` on average, with standard deviation ``deviation_s``; ``start_s`` is what is done
    once, and ``part_s`` what every part costs beside its groups. ``cut`` says whether groups are put together
    to PARTS_PER_WORKER parts for each worker.
    """

    groups: int
    mean_s: float
    deviation_s: float
    part_s: float = 0.0
    start_s: float = 0.0
    overhead: Overhead = Overhead()
    cut: bool = True

    def parts(self, workers: int) -> int:
        """Return how many parts so many workers share out."""
        return min(self.groups, PARTS_PER_WORKER * workers) if self.cut else self.groups

    def predicted(self, workers: int) -> float:
        """Return T(N) by the formula."""
        parts, own = self.parts(workers), self.overhead
        groups = self.groups / parts
        each_s = self.part_s + groups * self.mean_s
        # Groups are not cut: some parts have one more than others.
        uneven = (groups % 1) * (1 - groups % 1)
        spread_s = math.sqrt(groups * self.deviation_s**2 + uneven * self.mean_s**2)
        rounds = math.ceil(parts / workers)
        working_s = rounds * each_s + straggler_s(rounds, parts, min(workers, parts), each_s, spread_s)
        serial_s = parts * (own.hand_out_s + own.take_in_s)
        first_s = min(workers, parts) * own.hand_out_s
        return self.start_s + max(first_s + working_s + own.take_in_s, serial_s + each_s)

    def simulated(self, workers: int, groups_s: Floats, rng: np.random.Generator) -> float:
        """Return T(N) of one simulation; groups' times are drawn from ``groups_s``, measured ones."""
        drawn = rng.choice(groups_s, size=self.groups)
        places = np.arange(self.groups) * self.parts(workers) // self.groups
        times = self.part_s + np.bincount(places, weights=drawn)
        return self.start_s + makespan(times, workers, self.overhead)


def straggler_s(rounds: int, parts: int, workers: int, each_s: float, spread_s: float) -> float:
    """Return how much later the last worker ends than all would on average.

    Where all workers do as many parts, the largest of their sums; where a slow one leaves parts to others, no
    more than Graham's bound, the longest part.
    """
    sums_s = spread_s * math.sqrt(rounds) * largest_normal(workers)
    longest_s = (1 - 1 / workers) * (each_s + spread_s * largest_normal(parts))
    return min(sums_s, longest_s)
