"""Tests by aggregation: units are tested in blocks, and the noisy sum of the blocks' votes is released.

Every block's permutation test, ties broken by lot, rejects under the null hypothesis with a probability that
is known exactly. A block votes 1 where it rejects; or, of a test with a direction, 1 or -1 where it rejects
towards one side or the other. One unit is in one block and changes one vote, whatever is done inside a
block. The p-value is that of the sum of such votes with the noise. Where owners mask, the noise is Gaussian,
and their sums are read together alone.
Derivations: docs/mathematics/aggregated-tests.md.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, nbdtr, ndtr, xlogy

from tacit_protocol.features.unit_gram import UnitRows
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.inference import PVALUE_MIN
from tacit_protocol.privacy.gaussian_mechanism import (
    SCALE_TOLERANCE,
    SumPart,
    gaussian_guarantee,
    mu_of,
    release_sums,
    require_drawable,
    same_guarantee,
)
from tacit_protocol.privacy.guarantee import Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic, laplace_sum_guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.permutation_test import rank_max
from tacit_protocol.procedures.base import HOPELESS
from tacit_protocol.procedures.masking import (
    MASKED_BITS,
    TOGETHER,
    MaskedParameters,
    SharedNoise,
    shared_noise_in,
    total_of,
)
from tacit_protocol.procedures.plan import Plan, require_noise
from tacit_protocol.procedures.within_owners.verdict import WITHIN_ALONE
from tacit_protocol.strict import ReleaseError, StudyError
from tacit_protocol.verdicts.presentation import Critical, Null

__all__ = [
    "BLOCKS_MAX",
    "BLOCK_LEVEL",
    "BLOCK_PERMUTATIONS",
    "BLOCK_UNITS_MIN",
    "REJECTIONS",
    "Votes",
    "block_places",
    "drawn_law",
    "sum_of_votes",
]

Floats = npt.NDArray[np.float64]

BLOCK_LEVEL = 0.3
"""Level of each block's test. Few blocks that reject easily tell more through the noise than the reverse."""

BLOCK_PERMUTATIONS = 99
"""Permutations of each block's test: at a level of .3, more would change next to nothing."""

BLOCKS_ALWAYS, BLOCKS_PER_NOISE = 5, 12
"""Blocks by default: 5, and 12 for each unit of the noise's scale 1/epsilon."""

DIRECTED_BLOCKS_PER_SQUARE = 40
"""Blocks by default of a test with a direction: 5, and so many for each unit of the noise's squared scale. A
block's vote moves with the effect, not with its square, so that many small blocks lose little."""

BLOCKS_MAX = 1000
"""Most blocks of an owner."""

BLOCK_UNITS_MIN = 5
"""Fewest units of a block: owners of few units have fewer blocks."""

TIE_STEP = math.sqrt(2) * 1e-9
"""Squared statistics are compared on this grid: those that differ by rounding alone are ties. It is no
fraction, so that tables of counts do not lie on the border between two steps."""

WEIGHT_MIN = 1e-30
"""Numbers of blocks that are together less probable count as if they were always exceeded."""

DRAWN_POINTS = 200
"""Points of the null distribution's curve."""

EVALUATION = 1e-9
"""Relative slack for the rounding of logarithms of factorials."""


@dataclass(frozen=True)
class Vote:
    """How blocks vote: 1 where they reject; with a direction 1 or -1, where they reject towards a side.

    ``level`` is that of each block's test, of either side of a test with a direction: in (0, 0.5]. The votes
    are ``vector`` in a release.
    """

    level: float = BLOCK_LEVEL
    directed: bool = False
    vector: str = "votes"

    @property
    def rank(self) -> int:
        """Largest rank of the observed statistic, among all of them, at which a block rejects."""
        return rank_max(self.level, BLOCK_PERMUTATIONS + 1)

    @property
    def probability(self) -> float:
        """Probability with which a block rejects (towards one side) under the null hypothesis, exactly."""
        return self.rank / (BLOCK_PERMUTATIONS + 1)

    @property
    def sensitivity(self) -> float:
        """What one unit moves the sum of votes by: from 0 to 1, or from -1 to 1."""
        return 2.0 if self.directed else 1.0

    def of(self, statistics: Floats, lot: float) -> int:
        """Return the vote of a block with these statistics, (B + 1,), the observed one first; ties by lot.

        A statistic without any variation votes by lot alone, with the probabilities of the null hypothesis.
        """
        steps = np.rint(statistics / TIE_STEP)
        larger, ties = int(np.sum(steps[1:] > steps[0])), int(np.sum(steps[1:] == steps[0]))
        rank = 1 + larger + int(lot * (ties + 1))
        return int(rank <= self.rank) - int(self.directed and rank > len(statistics) - self.rank)

    def blocks(
        self, units: int, epsilon: float, asked: int | None = None, units_min: int = BLOCK_UNITS_MIN
    ) -> int:
        """Return in how many blocks an owner's units are tested: a function of public numbers.

        >>> Vote().blocks(1000, 1.0), Vote().blocks(1000, 0.3), Vote().blocks(60, 0.3)
        (17, 45, 12)
        >>> Vote(directed=True).blocks(1000, 1.0), Vote(directed=True).blocks(1000, 0.3)
        (45, 200)
        """
        more = DIRECTED_BLOCKS_PER_SQUARE / epsilon**2 if self.directed else BLOCKS_PER_NOISE / epsilon
        return max(1, min(asked or round(min(BLOCKS_MAX, BLOCKS_ALWAYS + more)), units // units_min))

    def released(self, blocks: int, guarantee: Guarantee) -> LaplaceStatistic | SumPart:
        """Return how the sum of so many votes is released: with Laplace noise, or Gaussian where masked."""
        event = guarantee.events[0]
        if isinstance(event, LaplaceEvent):
            return LaplaceStatistic(self.sensitivity, float(blocks), event.noise_multiplier)
        return SumPart(self.vector, np.zeros(1, dtype=np.int64), -MASKED_BITS, self.sensitivity, 1.0)

    def release(self, votes: int, blocks: int, guarantee: Guarantee, noise: NoiseSource) -> NoisyVector:
        """Add the noise to the sum of votes. Nothing else of them may leave.

        Raises:
            StudyError: so many blocks and so little noise fit no grid.
        """
        fixed = self.released(blocks, guarantee)
        if isinstance(fixed, LaplaceStatistic):
            return fixed.release(float(votes), noise)
        part = replace(fixed, sums=np.array([votes << MASKED_BITS], dtype=np.int64))
        return release_sums((part,), guarantee, noise)[part.name]

    def noise(self, blocks: int, guarantee: Guarantee) -> tuple[Literal["gaussian", "laplace"], float, int]:
        """Return the kind of the noise on the sum of so many votes, its scale, and the grid's exponent."""
        fixed = self.released(blocks, guarantee)
        if isinstance(fixed, LaplaceStatistic):
            return "laplace", fixed.scale, -fixed.bits
        return "gaussian", fixed.scale(mu_of(guarantee)), fixed.exponent

    def fits(self, vector: NoisyVector, blocks: int, guarantee: Guarantee) -> bool:
        """Say whether a vector is one sum with the grid and the noise that the study fixes."""
        kind, scale, exponent = self.noise(blocks, guarantee)
        same = vector.noise == kind and abs(vector.scale / scale - 1) <= SCALE_TOLERANCE
        return same and vector.exponent == exponent and len(vector.values) == 1

    def law(self, blocks: Sequence[int], guarantee: Guarantee) -> "VotesLaw":
        """Return the null law of senders' noisy sums, of so many blocks each, added up."""
        kinds, scales, exponents = zip(*(self.noise(count, guarantee) for count in blocks), strict=True)
        return VotesLaw(sum(blocks), len(blocks), max(scales), 2.0 ** max(exponents), self, kinds[0])


REJECTIONS = Vote(vector="rejecting_blocks")
"""The votes of a test without a direction: a block votes 1 where it rejects at BLOCK_LEVEL."""


def block_places(units: int, blocks: int) -> Iterator[slice]:
    """Yield the blocks' places, disjoint and all together those of all units, sizes one apart at most."""
    for block in range(blocks):
        yield slice(block * units // blocks, (block + 1) * units // blocks)


def laplace_sum_tail(values: Floats, terms: int) -> Floats:
    """Return P(X >= x) at each value, (m,), for a sum X of so many independent Laplace variables of scale 1.

    >>> laplace_sum_tail(np.array([0.0, 1.0, -1.0]), 1).round(4).tolist()
    [0.5, 0.1839, 0.8161]
    """
    size = np.abs(values)[:, None]
    index = np.arange(terms)
    poisson = np.exp(xlogy(index, size) - size - gammaln(index + 1))
    upper = poisson @ nbdtr(terms - 1 - index, terms, 0.5)
    return np.asarray(np.where(values >= 0, upper, 1 - upper))


@dataclass(frozen=True)
class VotesLaw:
    """The law, under the null hypothesis, of the sum of owners' noisy sums of votes.

    ``blocks`` are all owners' together, ``terms`` how many noises were added, of ``scale`` each on a grid of
    ``step``: that of a Laplace law, or the standard deviation of a normal one.
    """

    blocks: int
    terms: int
    scale: float
    step: float
    vote: Vote = REJECTIONS
    noise: Literal["gaussian", "laplace"] = "laplace"

    @property
    def mean(self) -> float:
        """Sum to be expected."""
        return 0.0 if self.vote.directed else self.blocks * self.vote.probability

    @property
    def deviation(self) -> float:
        """Standard deviation, noise and all."""
        each = self.vote.probability
        variance = 2 * each if self.vote.directed else each * (1 - each)
        return math.sqrt(self.blocks * variance + self.noise_variance)

    @property
    def noise_variance(self) -> float:
        """Variance of all noises together."""
        return self.terms * self.scale**2 * (2 if self.noise == "laplace" else 1)

    @cached_property
    def votes(self) -> tuple[Floats, Floats, float]:
        """Sums of votes and their probabilities, (s,) each, and a bound on that of all other sums."""
        if self.vote.directed:
            lowest, weights = _votes_sum(self.vote.probability, self.blocks)
            # Two ends of every halving, of which there are less than twice the blocks.
            sums = np.arange(lowest, lowest + len(weights), dtype=np.float64)
            return sums, weights, 4 * self.blocks * WEIGHT_MIN
        counts, probability = np.arange(self.blocks + 1, dtype=np.float64), self.vote.probability
        weights = np.exp(
            gammaln(self.blocks + 1)
            - gammaln(counts + 1)
            - gammaln(self.blocks - counts + 1)
            + counts * math.log(probability)
            + (self.blocks - counts) * math.log1p(-probability)
        )
        kept = weights > WEIGHT_MIN / len(weights)
        return counts[kept], weights[kept], float(weights[~kept].sum())

    def tail(self, value: float) -> float:
        """Return the probability of a sum of at least ``value``, never below the exact one.

        Laplace noise on a grid is less than a step for each term away from noise on the line, and tails of
        Gaussian noise on a grid are no larger than those of noise on the line a step below: the value is
        lowered by as much.
        """
        sums, weights, left_out = self.votes
        left = value - self.terms * self.step - sums
        if self.noise == "laplace":
            beyond = laplace_sum_tail(left / self.scale, self.terms)
        else:
            beyond = ndtr(-left / math.sqrt(self.noise_variance))
        found = float(weights @ beyond)
        return min(1.0, max(PVALUE_MIN, (found + left_out) * (1 + EVALUATION)))

    def pvalue(self, statistic: float) -> float:
        """Return the probability of a sum at least as large; with a direction, as far from 0 on any side."""
        return min(1.0, 2 * self.tail(abs(statistic))) if self.vote.directed else self.tail(statistic)

    def critical(self, level: float) -> float:
        """Return the smallest statistic, to a thousandth of its deviation, that is rejected at a level."""
        low, high = self.mean, self.blocks + self.scale * (self.terms + 60.0)
        while high - low > 1e-3 * self.deviation:
            middle = (low + high) / 2
            low, high = (low, middle) if self.pvalue(middle) <= level else (middle, high)
        return high


def _votes_sum(probability: float, blocks: int) -> tuple[int, Floats]:
    """Return the lowest sum of votes 1, 0 and -1 that is kept, and the probabilities from it upwards.

    Terms are positive, so that nothing cancels; ends that are together less probable than WEIGHT_MIN go.
    """
    if blocks == 1:
        return -1, np.array([probability, 1 - 2 * probability, probability])
    lowest, half = _votes_sum(probability, blocks // 2)
    lowest, weights = 2 * lowest, np.convolve(half, half)
    if blocks % 2:
        one = _votes_sum(probability, 1)[1]
        lowest, weights = lowest - 1, np.convolve(weights, one)
    # The law is symmetric: what is left out below is left out above.
    cut = int(np.searchsorted(np.cumsum(weights), WEIGHT_MIN, side="right"))
    return lowest + cut, weights[cut : len(weights) - cut]


def drawn_law(law: VotesLaw, level: float, statistic: float, words: str) -> Null:
    """Return the null distribution as it is drawn: of the sum, or of its distance from 0 with a direction."""
    critical = law.critical(level)
    reach = max(5 * law.deviation, abs(statistic - law.mean), critical - law.mean)
    low = 0.0 if law.vote.directed else law.mean - 5 * law.deviation
    edges = np.linspace(low, law.mean + 1.05 * reach, DRAWN_POINTS + 1)
    density = -np.diff([law.pvalue(edge) for edge in edges]) / np.diff(edges)
    return Null(words, (edges[1:] + edges[:-1]) / 2, np.maximum(density, 0.0), (Critical(critical),))


def sum_of_votes(releases: Mapping[str, Release], vote: Vote, shared: SharedNoise | None = None) -> float:
    """Add up the owners' noisy sums of votes; where they mask, their sum is all that can be read."""
    read = releases if shared is None else {TOGETHER: total_of(shared.masking, releases)}
    return math.fsum(float(release.vectors[vote.vector].mean(1)[0]) for release in read.values())


def shared_in_votes(study: Study, parameters: MaskedParameters, vote: Vote) -> SharedNoise | None:
    """Return the Gaussian noise that owners who mask their sums share; None where each is read by itself.

    Raises:
        StudyError: the study asks for masks that cannot be made, has no delta, or noise that fits no grid.
    """

    def claim() -> Guarantee:
        if study.budget.delta_pico == 0:
            raise StudyError(
                "shares of noise add up where it is Gaussian, which has no pure guarantee: with aggregation "
                "masked give a delta above 0, such as 1e-5, or leave aggregation out"
            )
        return gaussian_guarantee(study.budget)

    shared = shared_noise_in(study, parameters, "gaussian", claim)
    if shared is not None:
        part = vote.released(1, shared.own)
        if isinstance(part, SumPart):
            require_noise(lambda: require_drawable((part,), shared.own, len(study.owners)))
    return shared


@dataclass(frozen=True)
class Votes:
    """The exact sum of a sender's blocks' votes. It never leaves it; ``units_by_owner`` is a curator's."""

    units: int
    votes: int = field(repr=False)
    units_by_owner: Mapping[str, int] = field(default_factory=dict)


class VotePlan(Plan):
    """One noisy sum of the votes of a sender's blocks: with Laplace noise, or Gaussian where owners mask."""

    masked_numbers = "sums of votes"
    release_size = 1
    number: ClassVar[str] = "sum of votes"
    """What is released, in the singular."""

    def __init__(
        self, study: Study, parameters: MaskedParameters, vote: Vote, blocks: int | None, units_min: int
    ) -> None:
        self.study, self.vote, self.units_min = study, vote, units_min
        self.blocks_asked = blocks
        self.shared = shared_in_votes(study, parameters, vote)
        self.guarantee = laplace_sum_guarantee(study.budget) if self.shared is None else self.shared.own

    @property
    def counting(self) -> Vote:
        """The vote by which the default number of blocks is chosen."""
        return self.vote

    def blocks(self, units: int) -> int:
        """Return in how many blocks a sender's units are tested."""
        if isinstance(self.guarantee.events[0], LaplaceEvent):
            epsilon = self.guarantee.budget.epsilon
        else:
            # At which Laplace noise is as wide: the p-value asks how wide noise is, not of which law.
            epsilon = math.sqrt(2) * mu_of(self.guarantee)
        return self.counting.blocks(units, epsilon, self.blocks_asked, self.units_min)

    def law(self, units: Iterable[int]) -> VotesLaw:
        """Return the null law of the sum of senders' votes, of so many units each."""
        return self.vote.law([self.blocks(count) for count in units], self.guarantee)

    def voted(
        self,
        rows: UnitRows,
        order: np.random.Generator,
        statistics: Callable[[UnitRows, int], Floats],
        report: Callable[[float], None],
    ) -> int:
        """Return the sum of the votes of blocks of rows, which are in a secret random order.

        ``statistics`` are those of a block and its number, (B + 1,); nothing of a block may be asked of
        another. ``report`` is told the part done.
        """
        blocks, votes = self.blocks(rows.units), 0
        lots = order.random(blocks)
        for number, place in enumerate(block_places(rows.units, blocks)):
            tested = rows.reordered(np.arange(rows.units)[place])
            votes += self.vote.of(statistics(tested, number), lots[number])
            report((number + 1) / blocks)
        return votes

    def check_sender(self, release: Release) -> None:
        """Raise ReleaseError where a release states units that the study does not take."""
        raise NotImplementedError

    def hopes(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where, though every block voted alike, senders of so many units would miss it mostly."""
        few = [name for name, count in units.items() if count < self.units_min]
        if few:
            return (f"{HOPELESS}a block needs at least {self.units_min} units: {', '.join(few)} has fewer",)
        law = self.law(units.values())
        # The noise is symmetric: with every block rejecting, the sum is above their number half of the time.
        if law.pvalue(law.blocks) <= self.study.level:
            return ()
        return (
            f"{HOPELESS}even if every block rejected, it would be missed more often than not; ask for more "
            "units or a larger epsilon",
        )

    def privatise(self, summary: Votes, noise: NoiseSource) -> Release:
        vector = self.vote.release(summary.votes, self.blocks(summary.units), self.guarantee, noise)
        return Release(
            units=summary.units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=self.guarantee,
            vectors={self.vote.vector: vector},
        )

    def check_release(self, release: Release) -> None:
        if not same_guarantee(release.guarantee, self.guarantee):
            raise ReleaseError("the release states another guarantee than the study")
        self.check_sender(release)
        if set(release.vectors) != {self.vote.vector} or release.decision is not None:
            raise ReleaseError(f"the release must hold a {self.number} and nothing else")
        if not self.vote.fits(release.vectors[self.vote.vector], self.blocks(release.units), self.guarantee):
            raise ReleaseError(f"the {self.number} has not the grid and the noise that the study fixes")

    @property
    def masks_caveats(self) -> tuple[str, ...]:
        """What masks hide, where owners mask."""
        return () if self.shared is None else self.shared.caveats(self.masked_numbers, WITHIN_ALONE)

    def describe_request(self) -> tuple[str, ...]:
        if (shared := self.shared) is None:
            return ()
        # A sum that one unit moves by D: k times 2 (D/epsilon)^2 beside (D/mu)^2.
        owners = len(self.study.owners)
        separate = 2 * owners * (mu_of(shared.claim) / self.study.budget.epsilon) ** 2
        less = ", which is less" if separate < owners / shared.masking.honest else ""
        words = f"{separate:.3g} times{less}, in pure epsilon"
        return (shared.asked(self.masked_numbers, words),)
