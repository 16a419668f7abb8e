"""Priv'IT (Cai, Daskalakis and Kamath 2017): Algorithm 1, its practical form, and a majority by repetition.

*Algorithm 1.* Of k cells with probabilities q those with q_i >= c1 alpha/k count. Poisson(m) units are drawn,
N_i in cell i, and Laplace noise of scale 2/(c2 epsilon) for each; where one |Y_i| >= T a fair coin is the
answer, where a noisy count is T + max(4 sqrt(m q_i log k), log k) or more from m q_i p differs from q, else
it is Bernoulli(clip(Z)),

    Z = 2/(m alpha^2) sum ((N_i - m q_i)^2 - N_i)/(m q_i).

*Practical form* (section 6): one noisy statistic Z = sum w_i (x_i^2 - x_i - n q_i), x_i = clip(N_i - n q_i,
+-B_i), so that the guarantee never depends on having passed the filter. Published weights are 1/(n q_i),
balanced ones min(1/(n q_i), c/(2 B_i + 1)); ``filter`` clips at 2T + M_i, M_i = max(4 sqrt(n q_i log k), log
k), ``tight`` at M_i, without a filter.

*Repetition* (theorem 2): reject with probability c/2 + (1 - c) R/K, R of K disjoint blocks rejecting; K
(e^epsilon - 1) >= 2 (1 - c)/c makes it epsilon-private. Proofs, for the replacement of one unit:
docs/mathematics/identity.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, pdtr, pdtrc

from tacit_protocol.privacy.noise import NoiseSource, private_coin
from tacit_protocol.strict import StudyError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

C1, C2, C3 = 0.25, 0.075, 0.1
"""Which cells count, the share of epsilon, the probability of a blind coin (C2 in the paper)."""

GRID_BITS = 16
"""Counts and noise are in steps of 2**-16."""

STEP = 1 << GRID_BITS

EVALUATION_SLACK = 1e-9
"""Relative part added to the Lipschitz constant for the float evaluation of Z, which is good to 1e-12."""

OVERDRAW_MAX = 1e-9
"""Largest probability that more units are drawn than there are."""

SAMPLES_MAX = 2.0**40
"""Largest m: counts in grid steps then stay below 2**57."""

UNITS_MAX = 10**9 - 1
"""Most units to draw from: numpy's hypergeometric draws take no more."""

PRIVIT_BLOCKS_MAX = 99
"""Most blocks: a hundred tests of a hundredth of the data see less than any other method."""


class PrivitRefusedError(StudyError):
    """The instance is not private, or does not keep the level. The message says what to change."""


@dataclass(frozen=True)
class PrivitInstance:
    """One instance (q, m, epsilon, alpha) of the algorithm.

    ``probabilities`` is (k,), k >= 2, adding to 1; ``samples`` is m, ``distance`` is alpha, the total
    variation distance to be seen.
    """

    probabilities: Floats
    samples: float
    epsilon: float
    distance: float

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= SAMPLES_MAX:
            raise PrivitRefusedError("Priv'IT draws 1 to 2**40 units")
        if len(self.probabilities) < 2 or not 0 < self.distance <= 1 or not self.epsilon > 0:
            raise PrivitRefusedError("Priv'IT needs two cells, a distance in (0, 1] and a positive epsilon")

    @cached_property
    def cells(self) -> Integers:
        """The cells that count, (a,)."""
        return np.flatnonzero(self.probabilities >= C1 * self.distance / len(self.probabilities))

    @property
    def scale(self) -> float:
        """Scale of the noise on counts, in grid steps."""
        return math.nextafter(2 * STEP / (C2 * self.epsilon), math.inf)

    @cached_property
    def reach(self) -> int:
        """T in grid steps, rounded up: noise of at least that much makes the answer a coin."""
        apart = -math.expm1(math.log1p(-C3) / len(self.cells))
        return math.ceil(self.scale * -math.log(apart))

    @cached_property
    def blind(self) -> float:
        """Probability of the blind coin: c3, but for the rounding of T."""
        return -math.expm1(len(self.cells) * math.log1p(-self.tail(self.reach)))

    def tail(self, steps: int) -> float:
        """Return the probability that the noise is at least so many steps (1 or more) from 0."""
        return 2 * math.exp(-steps / self.scale) / (1 + math.exp(-1 / self.scale))

    @cached_property
    def expected(self) -> Floats:
        """Expected counts m q_i of the cells that count, (a,)."""
        return np.asarray(self.samples * self.probabilities[self.cells])

    @cached_property
    def window(self) -> tuple[Integers, Integers]:
        """The smallest and largest noisy count in grid steps that passes the filter, (a,) each."""
        log_k = math.log(len(self.probabilities))
        width = self.reach + STEP * np.maximum(4 * np.sqrt(self.expected * log_k), log_k)
        centre = self.expected * STEP
        return (
            np.floor(centre - width).astype(np.int64) + 1,
            np.ceil(centre + width).astype(np.int64) - 1,
        )

    @cached_property
    def passing(self) -> tuple[Integers, Integers]:
        """The smallest and largest whole count that passes with some noise, (a,) each."""
        low, high = self.window
        lowest = -((-(low - self.reach + 1)) // STEP)
        return np.maximum(lowest, 0), (high + self.reach - 1) // STEP

    @cached_property
    def steps(self) -> Floats:
        """The most that one more unit in a cell moves Z, among counts that pass the filter, (a,): exact."""
        low, high = self.passing
        largest = np.maximum(np.abs(high - 1 - self.expected), np.abs(low - self.expected))
        moved = 4 * largest / (self.samples * self.distance**2 * self.expected)
        return np.asarray(np.where(high > low, moved, 0.0) * (1 + EVALUATION_SLACK))

    @property
    def lipschitz(self) -> float:
        """The exact Lipschitz constant of Z in the counts that pass the filter."""
        return float(self.steps.max())

    @property
    def sketched_lipschitz(self) -> float:
        """What the paper's proof sketch bounds: the constant without the factor 2 of Z."""
        return self.lipschitz / 2

    @property
    def move(self) -> float:
        """The most that replacing one unit moves Z: one unit fewer in a cell, one more in another."""
        return float(np.sort(self.steps)[-2:].sum())

    @property
    def proved_epsilon(self) -> float:
        """The epsilon that is proved for the replacement of one unit (docs/mathematics/identity.md)."""
        shifted = math.exp(2 * STEP / self.scale)
        sliver = self.tail(max(self.reach - STEP, 1)) - self.tail(self.reach)
        floor = self.blind / 2
        extra = floor * (1 - shifted) + (1 - self.blind) * shifted * self.move + sliver
        return math.log(max(shifted + extra / floor, shifted + extra / (1 - floor)))

    def require_private(self) -> None:
        """Raise PrivitRefusedError where the instance is not proved to be epsilon-private."""
        if self.reach <= STEP:
            raise PrivitRefusedError("Priv'IT's noise is narrower than a unit: ask for a smaller epsilon")
        allowed = C2 * self.epsilon / 4
        if self.lipschitz > allowed:
            raise PrivitRefusedError(
                f"Priv'IT would not be private: one unit moves its statistic by up to {self.lipschitz:.3g}, "
                f"and c2 epsilon/4 = {allowed:.3g} is allowed; draw more units, or ask for a larger distance"
            )
        if not self.proved_epsilon <= self.epsilon:
            raise PrivitRefusedError("Priv'IT is not proved to be private at so large an epsilon")

    @property
    def null_error(self) -> float:
        """A bound on the probability to reject where p = q: Poisson tails, and the spread of Z."""
        low, high = self.window
        safe_low = -((-(low + self.reach - 1)) // STEP)
        safe_high = (high - self.reach + 1) // STEP
        above = pdtrc(safe_high, self.expected)
        below = np.where(safe_low > 0, pdtr(np.maximum(safe_low - 1, 0), self.expected), 0.0)
        spread = math.sqrt(8 * len(self.cells)) / (self.samples * self.distance**2)
        stopped = float(np.sum(above + below))
        return min(1.0, self.blind / 2 + (1 - self.blind) * (spread / 2 + stopped))

    def statistic(self, counts: Integers) -> float:
        """Return Z of whole counts, (k,), rounded once: cells do not disturb each other's rounding."""
        kept = counts[self.cells]
        parts = ((kept - self.expected) ** 2 - kept) / self.expected
        return 2 / (self.samples * self.distance**2) * math.fsum(parts.tolist())

    def acceptance(self, counts: Integers) -> float:
        """Return the probability to accept that p = q, exactly, for whole counts (k,)."""
        low, high = self.window
        steps = counts[self.cells] * STEP
        first = np.maximum(low - steps, 1 - self.reach)
        last = np.minimum(high - steps, self.reach - 1)
        passing = np.where(first <= last, self._below(last) - self._below(first - 1), 0.0)
        rejected = min(1.0, max(0.0, self.statistic(counts)))
        return self.blind / 2 + float(np.prod(passing)) * (1 - rejected)

    def _below(self, steps: Integers) -> Floats:
        """Return the probability that the noise is at most so many steps, (a,)."""
        whole = 1 + math.exp(-1 / self.scale)
        up = np.exp(-(np.maximum(steps, 0) + 1) / self.scale) / whole
        return np.asarray(np.where(steps >= 0, 1 - up, np.exp(np.minimum(steps, 0) / self.scale) / whole))

    def decide(self, counts: Integers, noise: NoiseSource) -> bool:
        """Return whether to reject that p = q, privately, from whole counts (k,) of Poisson(m) units.

        No noisy count, and no reason for the answer, may leave the owner. Both coins are drawn whichever
        counts, so that what is done tells no reason either.
        """
        steps = counts[self.cells] * STEP
        noisy = noise.laplace(steps, self.scale)
        low, high = self.window
        is_blind = bool(np.any(np.abs(noisy - steps) >= self.reach))
        is_outside = bool(np.any((noisy < low) | (noisy > high)))
        blind = private_coin(0.5, noise)
        rejects = private_coin(min(1.0, max(0.0, self.statistic(counts))), noise)
        return blind if is_blind else is_outside or rejects


@dataclass(frozen=True)
class PrivitPlan:
    """Disjoint blocks of an instance, and the majority of their decisions."""

    instance: PrivitInstance
    blocks: int

    @property
    def level(self) -> float:
        """A bound on the probability to reject where p = q."""
        return majority_error(self.blocks, self.instance.null_error) + OVERDRAW_MAX

    def draw(self, counts: Integers, rng: np.random.Generator) -> Integers | None:
        """Draw the blocks from the whole counts (k,) of all units; returns their counts, (blocks, k).

        ``rng`` must be fresh, so that it does not matter in which order units are counted. None where more
        units would be drawn than there are, which depends on public numbers and on ``rng`` alone.
        """
        sizes = rng.poisson(self.instance.samples, self.blocks)
        if int(sizes.sum()) > int(counts.sum()):
            return None
        return draw_blocks(counts, sizes, rng)

    def decide(self, drawn: Integers | None, noise: NoiseSource) -> bool:
        """Return whether to reject, from what ``draw`` drew; a coin decides where that is None."""
        if drawn is None:
            return private_coin(0.5, noise)
        rejections = sum(self.instance.decide(block, noise) for block in drawn)
        return 2 * rejections > self.blocks


def draw_blocks(counts: Integers, sizes: Integers, rng: np.random.Generator) -> Integers:
    """Deal disjoint sets of units out, every deal as likely; returns their counts, (sets, k).

    ``counts`` is (k,), of fewer than 10**9 units; ``sizes`` is (sets,), adding to no more than them.
    """
    left, drawn = counts.copy(), []
    for size in sizes:
        drawn.append(rng.multivariate_hypergeometric(left, int(size), method="marginals"))
        left -= drawn[-1]
    return np.array(drawn, dtype=np.int64)


def samples_max(units: int) -> float:
    """Return the largest m at which Poisson(m) exceeds ``units`` with probability below 1e-9."""
    if not 1 <= units <= UNITS_MAX:
        raise PrivitRefusedError(f"Priv'IT draws from 1 to {UNITS_MAX} units")
    low, high = 0.0, float(units)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if pdtrc(units, middle) < OVERDRAW_MAX / 2 else (low, middle)
    return low


def majority_error(blocks: int, error: float) -> float:
    """Return the probability that most of ``blocks`` (odd) independent answers are wrong."""
    return float(bdtrc(blocks // 2, blocks, error)) if error < 1 else 1.0


def plan_privit(
    probabilities: Floats,
    units: int,
    epsilon: float,
    distance: float,
    level: float,
    *,
    samples: float | None = None,
    blocks: int | None = None,
) -> PrivitPlan:
    """Return the fewest blocks that keep the level, each as large as the units allow: public things alone.

    Raises PrivitRefusedError where no plan is private and keeps the level, or ``samples`` and ``blocks`` ask
    for more units than there are.
    """
    most = samples_max(units)
    refusal = PrivitRefusedError("no number of blocks keeps the level: ask for a larger level or distance")
    for number in range(1, PRIVIT_BLOCKS_MAX + 1, 2) if blocks is None else (blocks,):
        drawn = most / number if samples is None else samples
        if drawn * number > most:
            raise PrivitRefusedError("Priv'IT would draw more units than there are: ask for fewer")
        plan = PrivitPlan(PrivitInstance(probabilities, drawn, epsilon, distance), number)
        # More blocks are smaller, and smaller ones less private: the first refusal is the last.
        plan.instance.require_private()
        if plan.level <= level:
            return plan
    raise refusal


UNIT_ROUNDOFF = 2.0**-53

CAPS = 49
"""Caps of weights that are tried, evenly spaced in logarithm from no cap to one that binds everywhere."""

CAP_GAIN = 1 + 1e-6
"""A smaller cap has to be so much better than a larger one: rounding never decides."""


@dataclass(frozen=True)
class ClippedIdentity:
    """The statistic of counts of ``units`` units against ``probabilities`` (k,), k >= 2.

    ``distance`` is alpha, which decides the cells that count. ``filter_scale`` is the scale of the Laplace
    noise of the filter's counts, in units; None where there is no filter and clipping is tight.
    ``multiplier`` is the scale of the statistic's own noise in units of its sensitivity, for which weights
    are balanced; None leaves the published weights.
    """

    probabilities: Floats
    units: int
    distance: float
    filter_scale: float | None
    multiplier: float | None = None

    @cached_property
    def cells(self) -> npt.NDArray[np.int64]:
        """The cells that count, (a,): those with q_i >= c1 alpha/k."""
        return np.flatnonzero(self.probabilities >= C1 * self.distance / len(self.probabilities))

    @cached_property
    def expected(self) -> Floats:
        """Expected counts n q_i of the cells that count, (a,)."""
        return np.asarray(self.units * self.probabilities[self.cells])

    @cached_property
    def usual(self) -> Floats:
        """M_i: how far a count strays from its expected value where p = q, with hardly an exception, (a,)."""
        log_k = math.log(len(self.probabilities))
        return np.asarray(np.maximum(4 * np.sqrt(self.expected * log_k), log_k))

    @cached_property
    def reach(self) -> float:
        """T: how far the filter's noise strays in any cell, but for a probability of c3; 0 without filter."""
        if self.filter_scale is None:
            return 0.0
        return self.filter_scale * -math.log(-math.expm1(math.log1p(-C3) / len(self.cells)))

    @cached_property
    def bounds(self) -> Floats:
        """B_i: where deviations are clipped, (a,)."""
        return np.asarray(2 * self.reach + self.usual)

    @cached_property
    def weights(self) -> Floats:
        """w_i, (a,): public, as everything here but counts is."""
        published = 1 / self.expected
        if self.multiplier is None:
            return np.asarray(published)
        each = 2 * self.bounds + 1
        moves = each * published
        if moves.max() <= moves.min() * CAP_GAIN:
            return np.asarray(published)
        caps = np.geomspace(float(moves.max()), float(moves.min()), CAPS)
        best, found = 0.0, published
        for cap in caps:
            weights = np.minimum(published, cap / each)
            worth = self._worth(weights)
            if worth > best * CAP_GAIN:
                best, found = worth, weights
        return np.asarray(found)

    def _worth(self, weights: Floats) -> float:
        """Return the squared signal over the variance, where deviations of one L1 norm show least.

        The signal sum w d^2 with sum |d| = 1 is smallest for d in proportion to 1/w: 1/sum(1/w). The variance
        is that of counting, 2 sum (w n q)^2, and of the noise.
        """
        noise = float(np.sort(weights * (2 * self.bounds + 1))[-2:].sum()) * (self.multiplier or 0.0)
        variance = 2 * float(np.sum((weights * self.expected) ** 2)) + 2 * noise**2
        return float(1 / np.sum(1 / weights)) ** 2 / variance

    @cached_property
    def sensitivity(self) -> float:
        """The most that the replacement of one unit moves the statistic as it is computed, whatever the data.

        A unit may be spread over several cells, as long as its parts are not negative and add up to 1.
        """
        moves = float(np.sort(self.weights * (2 * self.bounds + 1))[-2:].sum())
        return (moves + self.rounding) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def rounding(self) -> float:
        """A bound on what rounding adds to a difference of two statistics.

        A summand has at most 8 roundings, and a sum of a numbers in any order a - 1: each of at most 2**-53
        of the summands' absolute sum.
        """
        return 2 * (len(self.cells) + 8) * UNIT_ROUNDOFF * self.largest

    @cached_property
    def largest(self) -> float:
        """A bound on the summands' absolute sum, and so on the statistic's, whatever the data."""
        parts = self.weights * (self.bounds**2 + self.bounds + self.expected)
        return float(parts.sum()) * (1 + 1e-9) + 1

    def statistic(self, counts: Floats) -> Floats:
        """Return Z of exact counts, (..., k): (...) float64."""
        apart = np.clip(counts[..., self.cells] - self.expected, -self.bounds, self.bounds)
        return np.asarray(((apart**2 - apart - self.expected) * self.weights).sum(axis=-1))

    def stopped(self, noisy: Floats) -> npt.NDArray[np.bool_]:
        """Say whether the filter stops noisy counts, (..., k): some are further off than T + M_i."""
        apart = np.abs(noisy[..., self.cells] - self.expected)
        return np.asarray(np.any(apart >= self.reach + self.usual, axis=-1))

    def scores(self, statistic: npt.ArrayLike, noisy: Floats | None) -> Floats:
        """Return what is compared with its simulations: Z with noise, or infinity where the filter stops."""
        if noisy is None:
            return np.asarray(statistic, dtype=np.float64)
        return np.where(self.stopped(noisy), np.inf, statistic)

    def simulate(self, rng: np.random.Generator, scale: float, draws: int, p: Floats | None = None) -> Floats:
        """Draw scores of data and of all the noise, (draws,).

        The data follow ``p``, by default the probabilities; ``scale`` is that of the statistic's noise.
        """
        counts = rng.multinomial(self.units, self.probabilities if p is None else p, size=draws)
        values = self.statistic(counts.astype(np.float64)) + rng.laplace(0.0, scale, draws)
        if self.filter_scale is None:
            return self.scores(values, None)
        return self.scores(values, counts + rng.laplace(0.0, self.filter_scale, counts.shape))

    def pvalue(
        self,
        observed: float,
        scale: float,
        draws: int,
        seed: np.random.SeedSequence,
        progress: Callable[[float], None] | None = None,
    ) -> float:
        """Return (1 + number of simulated scores at least as large) / (draws + 1); one seed a draw."""
        larger = 0
        for number, child in enumerate(seed.spawn(draws), 1):
            larger += int(self.simulate(np.random.default_rng(child), scale, 1)[0] >= observed)
            if progress is not None and (number == draws or number % 64 == 0):
                progress(number / draws)
        return (1 + larger) / (draws + 1)


REPETITION_BLOCKS_MAX = 1000
"""Most blocks: their counts are held at once, 300 MiB of the largest grid."""

EPSILON_SLACK = 1e-12
"""Relative part of epsilon given away for the rounding of the answer's probability."""


class RepetitionRefusedError(StudyError):
    """There are too few units for the blocks that the budget needs. The message says what to change."""


def block_level(level: float) -> float:
    """Return the level of each block's test: the coin rejects with the other half of ``level``."""
    return level / 2 / (1 - level)


def replicates_needed(level: float) -> int:
    """Return the fewest simulations by which a block can reject: 1/(replicates + 1) is its least p-value.

    >>> replicates_needed(0.05), replicates_needed(0.001)
    (37, 1997)
    """
    return math.ceil(1 / block_level(level) * (1 - 1e-12)) - 1


@dataclass(frozen=True)
class Repetition:
    """The blocks of a chi-square test without noise, at ``level`` in all.

    The coin has probability c = ``level``, half of which rejects; each block's test has the rest of it.
    """

    probabilities: Floats
    epsilon: float
    level: float

    @property
    def blocks(self) -> int:
        """K, the fewest blocks that are private."""
        return math.ceil(2 * (1 - self.level) / (self.level * math.expm1(self.epsilon * (1 - EPSILON_SLACK))))

    @property
    def block_level(self) -> float:
        """Level of each block's test."""
        return block_level(self.level)

    def block_units(self, units: int) -> int:
        """Return how many units a block has. Raises RepetitionRefusedError where that is none."""
        if self.blocks > REPETITION_BLOCKS_MAX or units < self.blocks or units > UNITS_MAX:
            raise RepetitionRefusedError(
                f"repetition needs {self.blocks} blocks of a unit or more, takes "
                f"{REPETITION_BLOCKS_MAX} blocks and {UNITS_MAX} units at most: "
                "ask for more units, a larger epsilon, or another method"
            )
        return units // self.blocks

    def draw(self, counts: Integers, rng: np.random.Generator) -> Integers:
        """Deal the units out; returns the blocks' counts, (blocks, k). ``rng`` must be fresh."""
        size = self.block_units(int(counts.sum()))
        return draw_blocks(counts, np.full(self.blocks, size, dtype=np.int64), rng)

    def statistic(self, counts: Integers) -> Floats:
        """Return Pearson's chi-square of counts, (..., k); infinite where an impossible cell is occupied."""
        expected = counts.sum(axis=-1, keepdims=True) * self.probabilities
        possible = self.probabilities > 0
        apart = (counts - expected)[..., possible] ** 2 / expected[..., possible]
        return np.where(counts[..., ~possible].any(axis=-1), np.inf, apart.sum(axis=-1))

    def rejections(self, blocks: Integers, draws: int, seed: np.random.SeedSequence) -> int:
        """Return how many blocks reject, R, each by a simulated p-value of its own level."""
        size = int(blocks[0].sum())
        simulated = np.array(
            [
                np.random.default_rng(child).multinomial(size, self.probabilities)
                for child in seed.spawn(draws)
            ]
        )
        null = np.sort(self.statistic(simulated))
        larger = draws - np.searchsorted(null, self.statistic(blocks), side="left")
        return int(np.count_nonzero((1 + larger) / (draws + 1) <= self.block_level))

    def rejection(self, rejections: int) -> float:
        """Return the probability to reject where so many blocks do."""
        return self.level / 2 + (1 - self.level) * rejections / self.blocks

    def decide(self, rejections: int, noise: NoiseSource) -> bool:
        """Return whether to reject, privately."""
        return private_coin(self.rejection(rejections), noise)
