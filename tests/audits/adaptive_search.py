"""The best that an analyst can do who chooses every study by the privacy loss so far, found exactly.

An analyst who knows which of two neighbours to expect computes the loss L = log P/Q of what was released, and
chooses the next study by it, or stops. What it reaches is delta(epsilon) = E_P (1 - exp(epsilon - L))+, and
the best strategy follows by backward induction: the value of a state at loss l is the largest, over the
studies that the account still accepts, of the expected value after it. Losses are put on a grid of step h.
Counted at the lower ends of their cells they give a strategy's delta from below. Counted at the upper ends
they are too large by at most h for each event, so that what the best strategy reaches at epsilon + (number of
events) h is at most its delta at epsilon.

The events are the worst of their kind: the normal pair, the Laplace pair, and randomised response that with
probability delta reveals everything.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve
from scipy.special import ndtr

from tacit_protocol.privacy.guarantee import GaussianEvent, LaplaceEvent, MechanismEvent

Floats = npt.NDArray[np.float64]
Events = tuple[MechanismEvent, ...]

GAUSSIAN_TAIL = 8.5
"""Standard deviations of a Gaussian loss that are followed; beyond lies a mass of 2e-17."""

ATOMS_FEW = 4
"""Losses of so few values are added up rather than transformed."""

TRANSFORM_ERROR = 1e-13
"""Bound on what the Fourier transforms and cut tails of a search add to a delta; measured below 1e-15."""

StateT = TypeVar("StateT", bound=Hashable)
MoveT = TypeVar("MoveT")


@dataclass(frozen=True)
class Losses:
    """Probabilities ``mass[k]`` of a loss of ``(first + k) * step``, and of one that reveals everything."""

    first: int
    mass: Floats
    revealed: float = 0.0


@dataclass(frozen=True)
class Grid:
    """Losses from -reach to reach, on multiples of ``step``; cells counted at their upper ends, or lower."""

    step: float
    reach: float
    upper: bool

    @property
    def points(self) -> Floats:
        """The losses of the grid, (2 reach / step + 1,)."""
        half = round(self.reach / self.step)
        return self.step * np.arange(-half, half + 1)

    def value_of_stopping(self, epsilon: float) -> Floats:
        """Return (1 - exp(epsilon - l))+ at every loss."""
        return np.maximum(0.0, -np.expm1(np.minimum(epsilon - self.points, 0.0)))

    def expected(self, value: Floats, losses: Losses) -> Floats:
        """Return the mean of ``value``, which grows with the loss, after losses that are added."""
        if np.count_nonzero(losses.mass) <= ATOMS_FEW:
            return self._expected_of_atoms(value, losses)
        last = losses.first + len(losses.mass) - 1
        below, above = max(0, -losses.first), max(0, last)
        beyond = (value[0], 1.0) if self.upper else (0.0, value[-1])
        padded = np.concatenate([np.full(below, beyond[0]), value, np.full(above, beyond[1])])
        moved = fftconvolve(padded, losses.mass[::-1], mode="valid")
        start = below + losses.first
        kept = moved[start : start + len(value)]
        return np.asarray(losses.revealed + (1 - losses.revealed) * np.clip(kept, 0.0, 1.0))

    def _expected_of_atoms(self, value: Floats, losses: Losses) -> Floats:
        """The same, added up shift by shift."""
        below, above = (value[0], 1.0) if self.upper else (0.0, value[-1])
        places = np.arange(len(value))
        total = np.zeros(len(value))
        for offset in np.flatnonzero(losses.mass):
            place = places + losses.first + offset
            moved = value[np.clip(place, 0, len(value) - 1)]
            moved = np.where(place < 0, below, np.where(place >= len(value), above, moved))
            total += losses.mass[offset] * moved
        return np.asarray(losses.revealed + (1 - losses.revealed) * total)

    def cells(self, below: Callable[[Floats], Floats], low: float, high: float) -> Losses:
        """Return losses in [low, high] whose distribution function is ``below``."""
        first, last = math.floor(low / self.step) - 1, math.ceil(high / self.step)
        edges = self.step * np.arange(first, last + 1)
        return Losses(first + (1 if self.upper else 0), np.diff(below(edges)))


@lru_cache(4096)
def losses_of(event: MechanismEvent, grid: Grid) -> Losses:
    """Return the losses of the worst mechanism of an event, under the first of two neighbours."""
    if isinstance(event, GaussianEvent):
        mu = 1 / event.noise_multiplier
        mean, reach = mu * mu / 2, GAUSSIAN_TAIL * mu
        return grid.cells(lambda loss: np.asarray(ndtr((loss - mean) / mu)), mean - reach, mean + reach)
    if isinstance(event, LaplaceEvent):
        epsilon = 1 / event.noise_multiplier

        def laplace(loss: Floats) -> Floats:
            inside = np.exp((np.minimum(loss, epsilon) - epsilon) / 2) / 2
            return np.where(loss >= epsilon, 1.0, np.where(loss < -epsilon, 0.0, inside))

        return grid.cells(laplace, -epsilon, epsilon)
    epsilon = event.epsilon
    wrong = 1 / (1 + math.exp(epsilon))

    def response(loss: Floats) -> Floats:
        return np.where(loss >= epsilon, 1.0, np.where(loss < -epsilon, 0.0, wrong))

    found = grid.cells(response, -epsilon, epsilon)
    return Losses(found.first, found.mass, event.delta)


@dataclass
class Search(Generic[StateT, MoveT]):
    """The best strategy against a rule: ``accept`` returns the state after a move, None where it refuses.

    ``menu`` gives the moves that are tried in a state, and ``events`` what a move releases: nothing, where it
    only reserves. ``depth`` moves at most.
    """

    epsilon: float
    accept: Callable[[StateT, MoveT], StateT | None]
    menu: Callable[[StateT], Iterable[MoveT]]
    events: Callable[[MoveT], Events]
    grid: Grid
    _found: dict[tuple[StateT, int], Floats] = field(default_factory=dict)

    def delta(self, start: StateT, depth: int) -> float:
        """Return the largest delta that can be reached from ``start``, where nothing was released."""
        value = self._value(start, depth)
        return float(value[len(value) // 2])

    def _value(self, state: StateT, depth: int) -> Floats:
        known = self._found.get((state, depth))
        if known is not None:
            return known
        value = self.grid.value_of_stopping(self.epsilon)
        if depth:
            for move in self.menu(state):
                after = self.accept(state, move)
                if after is not None:
                    later = self._expected(self._value(after, depth - 1), self.events(move))
                    value = np.maximum(value, later)
        self._found[state, depth] = value
        return value

    def _expected(self, value: Floats, events: Sequence[MechanismEvent]) -> Floats:
        for event in events:
            value = self.grid.expected(value, losses_of(event, self.grid))
        return value


def largest(accepts: Callable[[float], bool], high: float, steps: int = 20) -> float | None:
    """Return the largest amount in (0, high] that a rule accepts, to within high / 2**steps; None: none."""
    low = 0.0
    if accepts(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low or None
