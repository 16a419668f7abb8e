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

In pure epsilon the numbers are noisy cells of each group, weights of a unit that add up to 1 in every column
(release.py). N is a group's cells together and S contrasts of them, so that their noises are uncorrelated;
the law of the smallest p-value of a column's contrasts is simulated, with the Laplace noise as it is.

Where another owner holds the group, sums are by its randomised answers, whose numbers N_a are exact. Given
them the null hypothesis is tested as it is, with u = 0, and its law is simulated with the noise. Effects are
those of groups: sums times the inverse of the answers' known mixing, in the same products.
docs/mathematics/group-comparison.md; levels and coverage: docs/benchmarks/groups.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from tacit_protocol.numerics.inference import RARE_UNITS, Effects, Number, effects_of_numbers
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.privacy.randomised_response import unmixing
from tacit_protocol.procedures.within_owners.covariances import ReadPairs
from tacit_protocol.procedures.within_owners.verdict import told_spread

Floats = npt.NDArray[np.float64]

WEIGHTS = np.array([0.7, 0.2, 0.05, 0.05])
"""Of T1 to T4 in a column's weighted Bonferroni correction: most questions are about means."""

KNOWN_DEVIATIONS = 3.0
"""An owner's group tells of spreads where its size is so many standard deviations of the noise on it."""


@dataclass(frozen=True)
class OwnerGroupSums:
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

    @property
    def size_noise(self) -> CellNoise:
        """The noise on the sum of all groups' sizes."""
        return CellNoise("gaussian", math.sqrt(self.size_variance)).of_sums(len(self.sizes))


@dataclass(frozen=True)
class Compared:
    """A column's ``statistic``, that of its surest part, and its p-value for all its parts."""

    statistic: float
    pvalue: float


def compare(blocks: Sequence[OwnerGroupSums]) -> Compared:
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


def compare_masked(found: ReadPairs, places: range, *, numeric: bool) -> Compared:
    """Test whether two groups differ in a column within owners, by all owners' covariances at these places.

    Of a number they are those of T1 to T4, of a category those of its levels, of whom each counts alike.
    """
    weights = WEIGHTS if numeric else np.full(len(places), 1 / len(places))
    pvalues = [found.pvalue(place) / float(own) for place, own in zip(places, weights, strict=True)]
    best = int(np.argmin(pvalues))
    return Compared(found.statistic(places[best]), min(1.0, pvalues[best]))


def contrasts(size: int) -> Floats:
    """Return orthonormal contrasts of so many levels, (size - 1, size)."""
    basis, _ = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, : size - 1]]))
    return np.ascontiguousarray(basis[:, 1:].T)


def _score(blocks: Sequence[OwnerGroupSums], rows: Floats) -> tuple[float, int]:
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


def _unit_covariance(block: OwnerGroupSums, mean: Floats, size: float, rows: Floats) -> Floats:
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


def _weights(blocks: Sequence[OwnerGroupSums], spread: Floats, noise: Floats) -> Floats:
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
    def of(cls, blocks: Sequence[OwnerGroupSums], place: int) -> "_Group":
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


def deviation(blocks: Sequence[OwnerGroupSums]) -> tuple[float, bool]:
    """Return the standard deviation of T1 within groups and owners, as ``told_spread`` does."""
    groups = [_Group.of(blocks, place) for place in range(len(blocks[0].sizes))]
    squares = sum(float(own.squares.sum()) for own in groups)
    noise = sum(
        float(np.sum(own.sum_variances[:, 1] / 4 + 4 * own.mean**2 * own.sum_variances[:, 0]))
        for own in groups
    )
    return told_spread(squares, math.sqrt(noise), sum(float(block.sizes.sum()) for block in blocks))


def mean_difference(blocks: Sequence[OwnerGroupSums], first: int, second: int) -> Effects:
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


def variance_ratio(blocks: Sequence[OwnerGroupSums], first: int, second: int) -> Effects:
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


def risk_effects(
    blocks: Sequence[OwnerGroupSums], first: int, second: int, level: int
) -> tuple[Effects, Effects]:
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


CELL_CONTRASTS = np.array(
    [[-1, -0.5, 0, 0, 0.5, 1], [0, -0.5, -1, 1, 0.5, 0], [0.5, 0, -0.5, -0.5, 0, 0.5]], dtype=np.float64
)
"""Of a number's cells: t, its sign less t, |t| - 1/2. The first tells means; the second tells them best where
noise is large, for values about the middle of the bounds; the third tells spreads."""

CELL_WEIGHTS = np.array([0.3, 0.6, 0.1])
"""Of these contrasts: the smallest p-value over its weight counts."""

SQUARES_OF_CELLS = np.array([1.0, 0, 0, 0, 0, 1.0])
"""Of a number's cells: t^2."""

FEW_CONTRASTS = np.array([[-1, 0, 0, 1], [-0.5, -1, 1, 0.5], [0.5, -0.5, -0.5, 0.5]])
"""Of a number's four cells: t, its sign less t/2, |t| - 1/2."""

SQUARES_OF_FEW = np.array([1.0, 0, 0, 1.0])
"""Of a number's four cells: |t|, which t^2 does not exceed."""

CELL_DRAWS = 9999
"""Simulated null statistics of a column: p-values down to 1e-4."""


@dataclass(frozen=True)
class NoisyCells:
    """One owner's noisy cells (G, K) of a column, with the Laplace ``scale`` of the noise on each.

    Of a numeric column they are soft cells (release.py), of a categorical one units with each listed level.
    """

    units: int
    cells: Floats
    scale: float
    numeric: bool

    @property
    def contrasts(self) -> Floats:
        """What is compared, (r, K): rows that add up to 0."""
        if not self.numeric:
            return contrasts(self.cells.shape[1])
        return FEW_CONTRASTS if self.few else CELL_CONTRASTS

    @property
    def few(self) -> bool:
        """Whether a number has four cells."""
        return self.numeric and self.cells.shape[1] == len(SQUARES_OF_FEW)

    @property
    def sizes(self) -> Floats:
        """The noisy sizes of the groups, (G,)."""
        return np.asarray(self.cells.sum(axis=1))

    @property
    def size_noise(self) -> CellNoise:
        """The noise on the sum of all groups' sizes."""
        return CellNoise("laplace", self.scale).of_sums(self.cells.size)

    def block(self, widening: float) -> OwnerGroupSums:
        """Return sums for estimates: of T1 and T2, or of levels; noise variances are ``widening`` larger."""
        rows = np.eye(self.cells.shape[1])
        if self.numeric:
            squares = SQUARES_OF_FEW if self.few else SQUARES_OF_CELLS
            rows = np.stack([self.contrasts[0], 2 * squares - 1])
        each = 2 * self.scale**2 * widening
        noise, width = each * (rows**2).sum(axis=1), self.cells.shape[1]
        return OwnerGroupSums(self.units, self.sizes, self.cells @ rows.T, width * each, noise, self.numeric)

    def unit_covariance(self) -> Floats:
        """Bound one unit's covariance of the contrasts from above, with its noise, (r, r)."""
        size = max(float(self.sizes.sum()), RARE_UNITS)
        shares = np.clip(self.cells.sum(axis=0) / size, 0.0, 1.0)
        deviation = math.sqrt(2 * len(self.cells)) * self.scale / size
        rows = self.contrasts
        if not self.numeric:
            shares = (shares + deviation) / (shares + deviation).sum()
            return np.asarray((rows * shares) @ rows.T - np.outer(rows @ shares, rows @ shares))
        t, over, away = rows @ shares
        away += 0.5
        # Four cells do not tell t^2: as if every |t| were 0 or 1, which no variance exceeds.
        part, square, signed = 0.5, away, t
        if not self.few:
            part, square, signed = 1.0, float(SQUARES_OF_CELLS @ shares), float(shares[-1] - shares[0])
            square = min(max(square, t**2, away**2), away)
        both, other = away - part * square - t * over, t - part * signed - over * away
        found = np.array(
            [
                [square - t * t, both, signed - t * away],
                [both, 1 - 2 * part * away + part**2 * square - over**2, other],
                [signed - t * away, other, square - away**2],
            ]
        )
        values, vectors = np.linalg.eigh(found)
        found = (vectors * np.maximum(values, 0.0)) @ vectors.T + 2 * deviation * np.eye(3)
        least = np.sqrt(np.minimum(1.0, CELL_VARIANCES / np.diag(found)))
        return np.asarray(found * np.outer(least, least))


CELL_VARIANCES = np.array([1.0, 1.0, 0.25])
"""Largest variances of a number's contrasts."""


def compare_cells(
    blocks: Sequence[NoisyCells], seed: np.random.SeedSequence, draws: int | None = None
) -> Compared:
    """Test whether groups differ in a column within any owner; the null's law is simulated with the noise.

    By ``draws`` draws, CELL_DRAWS of them by default.
    """
    draws = CELL_DRAWS if draws is None else draws
    rng, rows = np.random.default_rng(seed), blocks[0].contrasts
    groups, count = len(blocks[0].cells), len(rows)
    sampled = [own.units * own.unit_covariance() + RARE_UNITS * np.eye(count) for own in blocks]
    squares = (rows**2).sum(axis=1)
    unit: Floats = np.sum([np.diag(own) for own in sampled], axis=0) / sum(own.units for own in blocks)
    if not blocks[0].numeric:  # one weight for all contrasts of levels
        unit, squares = np.full(count, unit.mean()), np.full(count, squares.mean())
    total = np.zeros((groups, count))
    drawn = np.zeros((draws, groups, count))
    for own, spread in zip(blocks, sampled, strict=True):
        # One variance for all owners: a weight that goes with its owner's noise would bias the score.
        weights = own.units * unit / (own.units * unit + 2 * groups * own.scale**2 * squares)
        total += weights * _away(own.cells, rows, own.units)
        drawn += weights * _away_of_null(own, spread / own.units, draws, rng)
    # The last group's score follows from the others'.
    total, drawn = total[1:], drawn[:, 1:]
    if blocks[0].numeric:
        parts = [(weight, [place]) for place, weight in enumerate(CELL_WEIGHTS)]
    else:
        parts = [(1.0, [*range(count)])]
    smallest, of_null, surest = np.inf, np.full(draws, np.inf), 0.0
    for weight, kept in parts:
        own_total, own_drawn = total[:, kept].ravel(), drawn[:, :, kept].reshape(draws, -1)
        covariance = own_drawn.T @ own_drawn / draws
        whole = np.linalg.cholesky(covariance)
        statistic = float(np.sum(np.linalg.solve(whole, own_total) ** 2))
        simulated = np.sum(np.linalg.solve(whole, own_drawn.T) ** 2, axis=0)
        pvalue = float(chdtrc(len(own_total), statistic)) / weight
        if pvalue < smallest:
            smallest, surest = pvalue, statistic
        of_null = np.minimum(of_null, chdtrc(len(own_total), simulated) / weight)
    return Compared(surest, float((1 + np.sum(of_null <= smallest)) / (draws + 1)))


def _away(cells: Floats, rows: Floats, units: int) -> Floats:
    """Return C (..., G, r) of noisy cells (..., G, K)."""
    sums, sizes = cells @ rows.T, cells.sum(axis=-1)[..., None]
    both = sizes.sum(axis=-2, keepdims=True) * sums - sizes * sums.sum(axis=-2, keepdims=True)
    return np.asarray(both / units)


def _away_of_null(own: NoisyCells, spread: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Draw C (draws, G, r) where groups do not differ, of sizes and means as they were seen."""
    sizes = np.maximum(own.sizes, RARE_UNITS)
    mean = np.clip(own.cells.sum(axis=0) / sizes.sum(), 0.0, 1.0)
    cells = sizes[:, None] * (mean / max(float(mean.sum()), 1e-9))
    shape = (draws, *own.cells.shape)
    noise = rng.laplace(0.0, own.scale, shape)
    drawn = rng.standard_normal((*shape[:2], len(spread))) @ np.linalg.cholesky(spread).T
    sums = np.sqrt(sizes)[:, None] * drawn + (cells + noise) @ own.contrasts.T
    counted = (sizes + noise.sum(axis=-1))[..., None]
    both = counted.sum(axis=-2, keepdims=True) * sums - counted * sums.sum(axis=-2, keepdims=True)
    return np.asarray(both / own.units)


ANSWERED_WEIGHTS = (0.8, 0.2)
"""Of T1 and T2 in a column's weighted Bonferroni correction, where sums are by answer."""

ANSWERED_DRAWS = 9999
"""Simulated null statistics: p-values down to 1e-4."""


@dataclass(frozen=True)
class AnsweredBlock:
    """Exact numbers of answers (k,), and noisy sums by answer (k, width) with Laplace scales (width,).

    Of a numeric column the sums are of T1 and T2, of a categorical one the units with each listed level.
    """

    sizes: npt.NDArray[np.int64]
    sums: Floats
    scales: Floats
    kept: float
    numeric: bool

    @property
    def variances(self) -> Floats:
        """The noise's variances, (width,)."""
        return 2 * self.scales**2

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.sizes.sum())

    def deviation(self) -> tuple[float, bool]:
        """Return the standard deviation of all units' T1, as ``told_spread`` does."""
        first, second = len(self.sizes) * self.variances
        one, two = (float(own) for own in self.sums.sum(axis=0))
        squares = (self.units + two) / 2 - (one**2 - first) / self.units
        noise = second / 4 + 4 * (one / self.units) ** 2 * first
        return told_spread(squares, math.sqrt(noise), self.units)


def compare_answered(block: AnsweredBlock, seed: np.random.SeedSequence) -> Compared:
    """Test whether a column goes with the answers; of its law the variance alone is estimated."""
    if block.numeric:
        parts = [(weight, row[None]) for weight, row in zip(ANSWERED_WEIGHTS, np.eye(2), strict=True)]
    else:
        parts = [(1.0, contrasts(block.sums.shape[1]))]
    rng, found = np.random.default_rng(seed), []
    for weight, rows in parts:
        statistic, pvalue = _answered_score(block, rows, rng)
        found.append((min(1.0, pvalue / weight), -statistic))
    pvalue, negative = min(found)
    return Compared(-negative, pvalue)


def _answered_score(block: AnsweredBlock, rows: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Return t' V^-1 t of the features' combinations ``rows`` (r, width), and its simulated p-value.

    Given the answers, units are exchangeable under the null hypothesis: C = S - q S_+ has mean 0 and the
    covariance n/(n - 1) n P v, whatever the column's law is, and the noise of S passes as it is.
    """
    n, count = block.units, len(block.sizes)
    shares = block.sizes / n
    centring = np.eye(count) - np.outer(shares, np.ones(count))
    mean = np.clip(block.sums.sum(axis=0) / n, -1.0, 1.0)
    own = OwnerGroupSums(n, shares, block.sums, 0.0, block.variances, numeric=block.numeric)
    unit = _unit_covariance(own, mean, float(n), rows) + RARE_UNITS / n * np.eye(len(rows))
    between = n * n / (n - 1) * (np.diag(shares) - np.outer(shares, shares))
    # One answer that nobody gave, or the last one, follows from the others.
    free = np.flatnonzero(block.sizes > 0)[1:]
    if not len(free):
        return 0.0, 1.0
    sampled = np.kron(between[np.ix_(free, free)], unit)
    noise = np.kron((centring @ centring.T)[np.ix_(free, free)], (rows * block.variances) @ rows.T)
    total = (centring @ block.sums @ rows.T)[free].ravel()
    whole = np.linalg.cholesky(sampled + noise)
    statistic = float(np.sum(np.linalg.solve(whole, total) ** 2))
    drawn = rng.standard_normal((ANSWERED_DRAWS, len(total))) @ np.linalg.cholesky(sampled).T
    added = rng.laplace(0.0, 1.0, (ANSWERED_DRAWS, *block.sums.shape)) * block.scales
    drawn += (centring @ added @ rows.T)[:, free].reshape(ANSWERED_DRAWS, -1)
    simulated = np.sum(np.linalg.solve(whole, drawn.T) ** 2, axis=0)
    return statistic, float((1 + np.sum(simulated >= statistic)) / (ANSWERED_DRAWS + 1))


def _debiased(
    first: Floats, second: Floats, covariance: Floats, kept: float, pair: tuple[int, int]
) -> Floats:
    """Return two groups' own sums of two kinds, (4,), and the covariance of their errors, (5, 4) together.

    ``first`` and ``second`` are (k,) by answer, ``covariance`` (2k, 2k) of one after the other: in it every
    answer counts RARE_UNITS more units, like those of all answers together, for a rare value missed.
    """
    count = len(first)
    inverse = unmixing(count, kept)[list(pair)]
    places = np.zeros((4, 2 * count))
    places[0::2, :count] = inverse
    places[1::2, count:] = inverse
    sums = places @ np.concatenate([first, second])
    return np.vstack([sums, places @ covariance @ places.T])


def _quadratic(
    top: float, bottom: float, up: Sequence[float], down: Sequence[float], covariance: Floats
) -> Effects:
    """Return an effect top/bottom of four numbers whose gradients in both are ``up`` and ``down``."""
    u, d = np.array(up), np.array(down)
    variance = (float(u @ covariance @ u), -2 * float(u @ covariance @ d), float(d @ covariance @ d))
    return Effects.single(top, bottom, variance)


def answered_mean_difference(block: AnsweredBlock, first: int, second: int) -> Effects:
    """Return the difference of two groups' means of T1, by the inverse of the answers' mixing."""
    n, sizes, sums = block.units, block.sizes.astype(np.float64), block.sums[:, 0]
    least = np.minimum(sums**2 / np.maximum(sizes, 1.0), sizes)
    squares = np.clip((sizes + block.sums[:, 1]) / 2, least, sizes)
    whole = np.concatenate([sums, sizes])
    squares, seen, units = (own + RARE_UNITS * own.sum() / n for own in (squares, sums, sizes))
    each = np.block([[np.diag(squares), np.diag(seen)], [np.diag(seen), np.diag(units)]])
    covariance = each - np.outer(whole, whole) / n
    covariance[range(len(sizes)), range(len(sizes))] += block.variances[0]
    found = _debiased(sums, sizes, covariance, block.kept, (first, second))
    (s, a, t, b), errors = found[0], found[1:]
    return _quadratic(s * b - t * a, a * b, (b, -t, -a, s), (0.0, b, 0.0, a), errors)


def answered_risk_effects(
    block: AnsweredBlock, first: int, second: int, level: int
) -> tuple[Effects, Effects]:
    """Return the difference of two groups' shares of a level among the listed ones, and their odds ratio."""
    events, rest = block.sums[:, level], np.delete(block.sums, level, axis=1).sum(axis=1)
    whole = np.maximum(np.concatenate([events, rest]), 0.0)
    rare = RARE_UNITS / block.units * np.repeat(whole.reshape(2, -1).sum(axis=1), len(events))
    covariance = np.diag(whole + rare) - np.outer(whole, whole) / block.units
    others = block.variances.sum() - block.variances[level]
    covariance += np.diag(np.repeat([block.variances[level], others], len(events)))
    found = _debiased(events, rest, covariance, block.kept, (first, second))
    (e, f, g, h), errors = found[0], found[1:]
    a, b = e + f, g + h
    difference = _quadratic(e * h - f * g, a * b, (h, -g, -f, e), (b, b, a, a), errors)
    return difference, _quadratic(e * h, f * g, (h, 0.0, 0.0, e), (0.0, g, f, 0.0), errors)
