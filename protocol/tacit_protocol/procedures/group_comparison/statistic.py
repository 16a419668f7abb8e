"""Do groups differ in a column within owners, and by how much? Scores whose noises cancel on average.

At each owner group a has a noisy size N_a and noisy sums S_a of a column's features, with independent noises.
For every group C_a = sum over b of (S_a N_b - N_a S_b)/n, n the public number of units: products of
*different* groups, so that C has mean 0 where groups do not differ within the owner, however large the noise.
With q = N/N_+, P = diag q - q q', A = I - q 1', m = S_+/N_+, r = N_+/n, noise variances s of S and u of N,

    Cov C = r^2 (N_+ v P + (s + m^2 u) A A') + 2 s u/n^2 (G I - 1 1').

Owners are added up with the weights n v/(n v + G s), v of all owners together; t'V^-1 t is compared
with chi-squared. v comes from the same sums, rounded up by their noise and by RARE_UNITS units.

Effects are roots of U(theta) = sum of w (P - theta Q), P and Q products of two different groups' sums:

    mean or risk difference: S_a N_b - S_b N_a and N_a N_b;   variance ratio: V_a N_b and V_b N_a;
    odds ratio: E_a F_b and E_b F_a,

V_a a group's sum of squares about its mean, E and F its units with a level and with others. Var U is a
polynomial of degree 2 in theta, and the interval is Fieller's (1954), {theta: U^2 <= z^2 Var U}.
docs/mathematics/group-comparison.md; levels and coverage: docs/benchmarks/groups.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from tacit_protocol.numerics.inference import Effects, Number, effects_of_numbers
from tacit_protocol.procedures.means.private_means import RARE_UNITS

Floats = npt.NDArray[np.float64]

WEIGHTS = np.array([0.7, 0.2, 0.05, 0.05])
"""Of T1 to T4 in a column's weighted Bonferroni correction: most questions are about means."""

KNOWN_DEVIATIONS = 3.0
"""An owner's group tells of spreads where its size is so many standard deviations of the noise on it."""


@dataclass(frozen=True)
class Block:
    """One owner's noisy numbers of one column: sizes (G,) of groups and sums (G, width), with noises.

    Of a numeric column the sums are of T1 to T4; of a categorical one they are the units with each listed
    level, and sizes add them up.
    """

    units: int
    sizes: Floats
    sums: Floats
    size_variance: float
    sum_variances: Floats
    numeric: bool


@dataclass(frozen=True)
class Compared:
    """A column's ``statistic``, that of its surest part, and its p-value for all its parts."""

    statistic: float
    pvalue: float


def compare(blocks: Sequence[Block]) -> Compared:
    """Test whether groups differ in a column within any owner."""
    if blocks[0].numeric:
        width = blocks[0].sums.shape[1]
        parts = [(float(weight), row[None]) for weight, row in zip(WEIGHTS, np.eye(width), strict=True)]
    else:
        parts = [(1.0, contrasts(blocks[0].sums.shape[1]))]
    found = []
    for weight, rows in parts:
        statistic, freedom = _score(blocks, rows)
        found.append((min(1.0, float(chdtrc(freedom, statistic)) / weight), -statistic))
    pvalue, negative = min(found)
    return Compared(-negative, pvalue)


def contrasts(size: int) -> Floats:
    """Return orthonormal contrasts of so many levels, (size - 1, size)."""
    basis, _ = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, : size - 1]]))
    return np.ascontiguousarray(basis[:, 1:].T)


def _score(blocks: Sequence[Block], rows: Floats) -> tuple[float, int]:
    """Return t' V^-1 t of the features' combinations ``rows`` (r, width), and its degrees of freedom."""
    groups, freedom = len(blocks[0].sizes), (len(blocks[0].sizes) - 1) * len(rows)
    sizes = [max(float(block.sizes.sum()), RARE_UNITS) for block in blocks]
    means = [
        np.clip(block.sums.sum(axis=0) / size, -1.0, 1.0) for block, size in zip(blocks, sizes, strict=True)
    ]
    sampled = [
        size * _unit_covariance(block, mean, size, rows) + RARE_UNITS * np.eye(len(rows))
        for block, mean, size in zip(blocks, means, sizes, strict=True)
    ]
    # One variance for all owners' weights: a weight that goes with its owner's noise would bias the score.
    unit = sum(float(np.trace(own)) for own in sampled) / sum(block.units for block in blocks)
    total, covariance = np.zeros(freedom), np.zeros((freedom, freedom))
    for block, size, mean, own in zip(blocks, sizes, means, sampled, strict=True):
        noise, level = (rows * block.sum_variances) @ rows.T, rows @ mean
        moved = noise + block.size_variance * np.outer(level, level)
        sums = block.sums @ rows.T
        away = (block.sizes.sum() * sums - block.sizes[:, None] * sums.sum(axis=0)) / block.units
        shares = np.maximum(block.sizes, RARE_UNITS)
        shares = shares / shares.sum()
        between = np.diag(shares) - np.outer(shares, shares)
        mixing = np.eye(groups) - np.outer(shares, np.ones(groups))
        both = 2 * block.size_variance / block.units**2 * (groups * np.eye(groups) - 1)
        first = np.kron(between, own) + np.kron(mixing @ mixing.T, moved)
        each = (size / block.units) ** 2 * first + np.kron(both, noise)
        weight = block.units * unit / (block.units * unit + groups * float(np.trace(noise)))
        total += weight * away[1:].ravel()
        covariance += weight**2 * each[len(rows) :, len(rows) :]
    return float(total @ np.linalg.solve(covariance, total)), freedom


def _unit_covariance(block: Block, mean: Floats, size: float, rows: Floats) -> Floats:
    """Bound one unit's covariance of combinations of features from above, with their noise, (r, r)."""
    deviations = np.sqrt(len(block.sizes) * block.sum_variances) / size
    if not block.numeric:
        shares = np.clip(mean, 0.0, 1.0)
        shares = (shares + deviations) / (shares + deviations).sum()
        return np.asarray((rows * shares) @ rows.T - np.outer(rows @ shares, rows @ shares))
    place = int(np.argmax(rows[0]))
    own = max(mean[place] ** 2 - deviations[place] ** 2, 0.0)
    most = 1 - own
    doubled = 2 * place + 1  # of T1, T2; of T2, T4
    if doubled < len(mean):
        spread = (deviations[doubled] / 2) ** 2 + 4 * mean[place] ** 2 * deviations[place] ** 2
        most = min(most, max((1 + mean[doubled]) / 2 - own + math.sqrt(spread), 0.0))
    return np.array([[most]])


def _weights(blocks: Sequence[Block], spread: Floats, noise: Floats) -> Floats:
    """Return 1/(n v + 4 noise), v of all owners' sums of squares together: no owner's own noise is in it."""
    units = np.array([float(block.units) for block in blocks])
    average = float(np.clip(spread.sum() / units.sum(), 1e-3, 1.0))
    return np.asarray(1 / (units * average + 4 * noise))


@dataclass(frozen=True)
class _Group:
    """One group at k owners: sizes (k,), sums (k, width), the variances of their noises likewise."""

    sizes: Floats
    sums: Floats
    size_variance: Floats
    sum_variances: Floats

    @classmethod
    def of(cls, blocks: Sequence[Block], place: int) -> "_Group":
        return cls(
            np.array([block.sizes[place] for block in blocks]),
            np.stack([block.sums[place] for block in blocks]),
            np.array([block.size_variance for block in blocks]),
            np.stack([block.sum_variances for block in blocks]),
        )

    @property
    def mean(self) -> Floats:
        """The mean of T1, in [-1, 1]."""
        return np.clip(self.sums[:, 0] / np.maximum(self.sizes, 1.0), -1.0, 1.0)

    @property
    def squares(self) -> Floats:
        """The sum of squares of T1 about its mean, less what the noise of the mean adds to it."""
        sizes = np.maximum(self.sizes, 1.0)
        noise = self.sum_variances[:, 0] + self.mean**2 * self.size_variance
        return np.asarray((self.sizes + self.sums[:, 1]) / 2 - self.sizes * self.mean**2 + noise / sizes)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether the group is large beside its noises: of one that is not, the sum of squares is biased."""
        noise = np.maximum(self.sum_variances[:, 0], self.size_variance)
        return np.asarray(self.sizes > KNOWN_DEVIATIONS * np.sqrt(noise))

    @property
    def spread(self) -> Floats:
        """The same where it bounds a variance: within [0, n]."""
        return np.clip(self.squares, 0.0, np.maximum(self.sizes, 0.0))

    @property
    def spread_of_squares(self) -> Floats:
        """The variance of the sum of squared deviations about the mean, within [0, 4 n]."""
        sizes, mean = np.maximum(self.sizes, 1.0), self.mean
        one, two, three, four = np.clip(self.sums / sizes[:, None], -1.0, 1.0).T
        square, cube, fourth = (1 + two) / 2, (three + 3 * one) / 4, (four + 4 * two + 3) / 8
        central = fourth - 4 * mean * cube + 6 * mean**2 * square - 3 * mean**4
        found = sizes * (central - (self.spread / sizes) ** 2)
        return np.asarray(np.clip(found, 0.0, 4 * np.maximum(self.sizes, 0.0)))


def mean_difference(blocks: Sequence[Block], first: int, second: int) -> Effects:
    """Return the difference of two groups' means of T1."""
    a, b = (_Group.of(blocks, place) for place in (first, second))
    x, y, noise = a.sums[:, 0], b.sums[:, 0], a.sum_variances[:, 0]
    numbers = [
        Number(b.sizes, 0.0, noise + a.spread),
        Number(-a.sizes, 0.0, noise + b.spread),
        Number(-y, -b.sizes, a.size_variance),
        Number(x, -a.sizes, b.size_variance),
    ]
    top, bottom = x * b.sizes - y * a.sizes, a.sizes * b.sizes
    return effects_of_numbers(top, bottom, numbers, _weights(blocks, a.spread + b.spread, noise))


def variance_ratio(blocks: Sequence[Block], first: int, second: int) -> Effects:
    """Return the ratio of two groups' variances of T1, of the owners where both are large enough."""
    a, b = (_Group.of(blocks, place) for place in (first, second))
    v, w, n, m = a.squares, b.squares, a.sizes, b.sizes
    one, two = a.sum_variances[:, 0], a.sum_variances[:, 1]
    numbers = [
        Number(m * (0.5 + a.mean**2), -w, a.size_variance),
        Number(-2 * a.mean * m, 0.0, one),
        Number(m, 0.0, two / 4 + a.spread_of_squares),
        Number(v, -n * (0.5 + b.mean**2), b.size_variance),
        Number(0.0, 2 * b.mean * n, one),
        Number(0.0, -n, two / 4 + b.spread_of_squares),
    ]
    weights = _weights(blocks, a.spread + b.spread, one + two / 4)
    return effects_of_numbers(v * m, w * n, numbers, weights * (a.known & b.known))


def risk_effects(blocks: Sequence[Block], first: int, second: int, level: int) -> tuple[Effects, Effects]:
    """Return the difference of two groups' shares of a level among the listed ones, and their odds ratio."""
    a, b = (_Group.of(blocks, place) for place in (first, second))
    noise = a.sum_variances[:, level]
    e, g = a.sums[:, level], b.sums[:, level]
    f, h = a.sizes - e, b.sizes - g
    rest = a.size_variance - noise
    spreads = [
        np.maximum(event, 0) * np.maximum(other, 0) / np.maximum(event + other, 1.0)
        for event, other in ((e, f), (g, h))
    ]
    weights = _weights(blocks, spreads[0] + spreads[1], noise)

    def of(
        top: Floats, bottom: Floats, gradients: Sequence[tuple[Floats | float, Floats | float]]
    ) -> Effects:
        """Take gradients in a's events and others, and b's; sampling moves a unit from one to the other."""
        numbers = [Number(*gradient, own) for gradient, own in zip(gradients, (noise, rest) * 2, strict=True)]
        for group, spread in enumerate(spreads):
            event, other = gradients[2 * group : 2 * group + 2]
            numbers.append(Number(event[0] - other[0], event[1] - other[1], spread))
        return effects_of_numbers(top, bottom, numbers, weights)

    difference = of(
        e * h - f * g,
        a.sizes * b.sizes,
        [(h, -b.sizes), (-g, -b.sizes), (-f, -a.sizes), (e, -a.sizes)],
    )
    odds = of(e * h, f * g, [(h, 0.0), (0.0, -g), (0.0, -f), (e, 0.0)])
    return difference, odds
