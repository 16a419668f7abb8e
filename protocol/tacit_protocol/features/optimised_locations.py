"""Test locations and bandwidth, or frequencies, that a private test sees most with, found on public rows.

Everything here is a function of rows that anyone may see: a public sample, or points of a database released
earlier, with their weights. Never use rows of the test itself: P0 optimises on a fifth of the private rows,
which then have no guarantee. L-BFGS-B with analytic gradients climbs from several seeded starts; rows are
split, so that the start that wins, and the power stated for it, come from rows that no gradient has seen.

With mean difference delta, V = Sigma_x / n_x + Sigma_y / n_y, features F = psi R, R R = G, and nu the
variance that the form counts, what is climbed is for the noise-aware form delta' (V + nu G)^-1 delta, and for
the MMD form |d|^2 / sqrt(2 |C|_F^2), d = R^-1 delta, C = R^-1 V R^-1 + nu I
(docs/mathematics/test-locations.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh

from tacit_protocol.features.base import CodeMatrix, FloatMatrix
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    FREQUENCY_MAX,
    REGULARISATION_PER_LOCATION,
    Locations,
    median_distance,
)

FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PublicRows:
    """Encoded public rows: ``numeric`` (rows, columns) in [0, 1], ``categorical`` (rows, columns) codes.

    ``weights`` (rows,) add up to 1; those of a released database may be of both signs.
    """

    numeric: FloatMatrix
    categorical: CodeMatrix
    weights: FloatVector

    @classmethod
    def of(
        cls, numeric: FloatMatrix, categorical: CodeMatrix, weights: FloatVector | None = None
    ) -> "PublicRows":
        """Build rows; equal weights by default, others are scaled to add up to 1.

        Raises ValueError where there are no rows, or weights do not fit or do not add up to more than 0.
        """
        if not len(numeric):
            raise ValueError("there are no public rows")
        chosen = np.ones(len(numeric)) if weights is None else np.asarray(weights, dtype=np.float64)
        if chosen.shape != (len(numeric),) or not np.all(np.isfinite(chosen)) or not chosen.sum() > 0:
            raise ValueError("weights must be finite, one for each row, and add up to more than 0")
        return cls(numeric, categorical, chosen / chosen.sum())

    @property
    def sample(self) -> bool:
        """Whether the rows are a plain sample, of which a part is a sample too.

        The weights of a released database were fitted together: its points stay together.
        """
        return bool(np.ptp(self.weights) == 0)

    def __len__(self) -> int:
        return len(self.numeric)

    def take(self, rows: npt.NDArray[np.int64]) -> "PublicRows":
        """Keep some rows. Raises ValueError where their weights add up to nothing."""
        return PublicRows.of(self.numeric[rows], self.categorical[rows], self.weights[rows])

    def draw(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw row numbers by weight, without repetition where there are enough rows."""
        shares = np.abs(self.weights) / np.abs(self.weights).sum()
        enough = int(np.count_nonzero(shares)) >= count
        return np.asarray(rng.choice(len(self), count, replace=not enough, p=shares))


def split_rows(
    count: int, share: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split row numbers at random in two, sorted: ``share`` of them, and the rest."""
    order = rng.permutation(count)
    cut = min(max(1, round(share * count)), count - 1)
    return np.sort(order[:cut]), np.sort(order[cut:])


def pool(x: PublicRows, y: PublicRows) -> PublicRows:
    """Put two samples together, each row with the size of its weight."""
    weights = np.abs(np.concatenate([x.weights, y.weights]))
    numeric = np.concatenate([x.numeric, y.numeric])
    return PublicRows.of(numeric, np.concatenate([x.categorical, y.categorical]), weights)


Form = Literal["mmd", "noise-aware"]

POWER_DRAWS = 4000
"""Simulated statistics behind a predicted power: a standard error of at most .008."""


@dataclass(frozen=True)
class PlannedTest:
    """The private test that is planned: its form, units, and noise, relative to the features' diameters.

    ``mean_noise`` is the standard deviation of the noise on a coordinate of the mean difference when the
    features' diameter is 1; ``moment_noise`` that on a diagonal entry of the pooled second moment when its
    diameter is 1 (the noise-aware form alone pays for it). ``whitened`` is false for P0's raw ME features.
    """

    form: Form
    units: tuple[int, int]
    mean_noise: float
    moment_noise: float
    whitened: bool = True

    def noise(self, diameter: float) -> float:
        """Return b, the variance of the noise on a coordinate of the mean difference."""
        return (self.mean_noise * diameter) ** 2

    def counted(
        self, dimension: int, diameter: float, moment_diameter: float
    ) -> tuple[float, tuple[float, float]]:
        """Return nu, the variance that the form counts, and its slopes by the two diameters."""
        variance, slope = self.noise(diameter), 2 * self.mean_noise**2 * diameter
        if self.form == "mmd":
            return variance, (slope, 0.0)
        # The noise-aware form adds the bound tau sqrt(2 J) on the noise's spectral norm to the covariance.
        inflation = (1 / self.units[0] + 1 / self.units[1]) * self.moment_noise * math.sqrt(2 * dimension)
        return variance + inflation * moment_diameter, (slope, inflation)


@dataclass(frozen=True)
class Contrast:
    """What separates two samples: delta (J,), V (J, J), G (J, J), nu, and b, as in the module."""

    difference: FloatVector
    sampling: FloatMatrix
    gram: FloatMatrix
    counted: float
    noise: float


@dataclass(frozen=True)
class Slopes:
    """A criterion's value and its derivatives: by delta (J,), V and G (J, J) symmetric, and nu."""

    value: float
    difference: FloatVector
    sampling: FloatMatrix
    gram: FloatMatrix
    counted: float


def hotelling(contrast: Contrast) -> Slopes:
    """Return delta' (V + nu G)^-1 delta and its slopes."""
    gram, counted = contrast.gram, contrast.counted
    u = cho_solve(cho_factor(contrast.sampling + counted * gram), contrast.difference)
    outer = np.outer(u, u)
    value = float(contrast.difference @ u)
    return Slopes(value, 2 * u, -outer, -counted * outer, float(-u @ gram @ u))


def mmd_shift(contrast: Contrast) -> Slopes:
    """Return delta' G^-1 delta / sqrt(2 |G^(-1/2) V G^(-1/2) + nu I|_F^2) and its slopes."""
    dimension, counted = len(contrast.gram), contrast.counted
    factor = cho_factor(contrast.gram)
    u = cho_solve(factor, contrast.difference)
    inverse = cho_solve(factor, np.eye(dimension))
    ratio = cho_solve(factor, contrast.sampling)
    trace = float(np.trace(ratio))
    energy = float(np.sum(ratio * ratio.T)) + 2 * counted * trace + counted**2 * dimension
    distance, scale = float(contrast.difference @ u), 1 / math.sqrt(2 * energy)
    by_energy = -distance / (2 * energy) * scale
    spread = ratio @ inverse
    by_sampling = by_energy * 2 * (spread + counted * inverse)
    by_gram = -scale * np.outer(u, u) - by_energy * 2 * (ratio @ spread + counted * spread)
    by_counted = by_energy * 2 * (trace + counted * dimension)
    return Slopes(distance * scale, 2 * scale * u, _symmetric(by_sampling), _symmetric(by_gram), by_counted)


CRITERIA: dict[Form, Callable[[Contrast], Slopes]] = {"mmd": mmd_shift, "noise-aware": hotelling}


def predicted_power(
    contrast: Contrast, form: Form, level: float, bias: FloatMatrix, rng: np.random.Generator
) -> float:
    """Return the chance that the test rejects, as if it knew its covariance, by simulation.

    ``bias`` (J, J) is the covariance of delta itself, which comes from finite public samples and is longer
    for it: what it adds to the statistic on average is taken off.
    """
    # In the basis of G^-1 V both V and G are diagonal: variances of psi's coordinates, and 1.
    variances, basis = eigh(contrast.sampling, contrast.gram)
    variances = np.maximum(variances, 0.0)
    weights = np.ones(len(variances)) if form == "mmd" else 1 / (variances + contrast.counted)
    shift = contrast.difference @ basis
    signal = float(weights @ shift**2)
    excess = float(weights @ np.einsum("ij,ik,kj->j", basis, bias, basis))
    shift = shift * math.sqrt(max(0.0, 1 - excess / signal)) if signal > 0 else shift
    draws = rng.standard_normal((POWER_DRAWS, len(variances))) * np.sqrt(variances + contrast.noise)
    critical = np.quantile(draws**2 @ weights, 1 - level)
    return float(np.mean((draws + shift) ** 2 @ weights > critical))


@dataclass(frozen=True)
class SampleMoments:
    """Weighted mean (J,) and covariance (J, J) of features, and how slopes by them become slopes by rows.

    Weights w add up to 1 and may be of both signs, as those of a released database are. The mean is sum w f;
    the covariance is that of the law |w| / sum |w|, so that it is never indefinite.
    """

    features: FloatMatrix
    weights: FloatVector

    @property
    def mean(self) -> FloatVector:
        """The weighted mean, (J,)."""
        return np.asarray(self.weights @ self.features)

    @property
    def covariance(self) -> FloatMatrix:
        """The covariance, (J, J)."""
        shares, centred = self._centred()
        return np.asarray((centred * shares[:, None]).T @ centred)

    def row_slopes(self, by_mean: FloatVector, by_covariance: FloatMatrix) -> FloatMatrix:
        """Return the slopes by every feature of every row, (rows, J)."""
        shares, centred = self._centred()
        slopes = np.outer(self.weights, by_mean)
        slopes += 2 * shares[:, None] * (centred @ by_covariance)
        return np.asarray(slopes)

    def _centred(self) -> tuple[FloatVector, FloatMatrix]:
        shares = np.abs(self.weights)
        shares = shares / shares.sum()
        return shares, self.features - shares @ self.features


def _symmetric(matrix: FloatMatrix) -> FloatMatrix:
    return np.asarray((matrix + matrix.T) / 2)


BANDWIDTH_FACTORS = (1.0, 0.5, 0.25, 0.125)
"""Starting bandwidths, as parts of the median distance, in turn: the criterion has an optimum at each scale
of the data's structure, and gradients do not cross from one to another."""

BANDWIDTH_RANGE = (0.01, 3.0)
"""Least and greatest bandwidth, times the root of the number of numeric columns: below, a kernel sees single
rows; above, it is linear over the whole domain."""

BANDWIDTH_ROWS = 200
"""Public rows behind a start's median distance."""

Pair = tuple[PublicRows, PublicRows]


@dataclass(frozen=True)
class LocationChoices:
    """ME features of the Gaussian kernel: choices are the locations' numeric values, then the log bandwidth.

    ``columns`` counts the numeric columns; ``categorical`` (J, columns) are the locations' categories, which
    gradients cannot move; ``similarity`` is the kernel's value at two different categories.
    """

    columns: int
    categorical: CodeMatrix
    similarity: float

    def split(self, choices: FloatVector) -> tuple[Locations, float]:
        """Return the locations and the bandwidth."""
        numeric = choices[:-1].reshape(len(self.categorical), self.columns)
        return Locations(numeric, self.categorical), math.exp(choices[-1])

    def start(self, rows: PublicRows, number: int, rng: np.random.Generator) -> FloatVector:
        """Draw public rows, and a part of the median distance."""
        numeric = rows.numeric[rows.draw(len(self.categorical), rng)]
        low, high = self.bounds()[-1]
        log_bandwidth = math.log(_bandwidth(rows, number, rng))
        return np.append(numeric.ravel(), min(max(log_bandwidth, low), high))

    def bounds(self) -> list[tuple[float, float]]:
        """Return the scaled domain for every location, and BANDWIDTH_RANGE."""
        root = math.sqrt(max(1, self.columns))
        width = (math.log(BANDWIDTH_RANGE[0] * root), math.log(BANDWIDTH_RANGE[1] * root))
        return [(0.0, 1.0)] * (self.columns * len(self.categorical)) + [width]

    def contrast(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> Contrast:
        """Return what separates the samples."""
        locations, kernel = self._kernel(choices)
        grams = [kernel.gram(one, locations) for one in rows]
        own = self._regularised(kernel, locations, test)
        counted, _, noise = self._noise(kernel, test)
        return _contrast(grams, rows, own, (counted, noise), test)

    def criterion(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> tuple[float, FloatVector]:
        """Return the criterion and its gradient."""
        locations, kernel = self._kernel(choices)
        grams = [kernel.gram(one, locations) for one in rows]
        own = self._regularised(kernel, locations, test)
        counted, counted_slope, noise = self._noise(kernel, test)
        slopes = CRITERIA[test.form](_contrast(grams, rows, own, (counted, noise), test))
        by_locations = np.zeros_like(locations.numeric)
        by_log_bandwidth = slopes.counted * counted_slope
        for one, gram, slope in zip(rows, grams, _row_slopes(slopes, grams, rows, test), strict=True):
            moved, scaled = _gaussian_slopes(slope * gram, one.numeric, locations.numeric, kernel.bandwidth)
            by_locations += moved
            by_log_bandwidth += scaled
        if test.whitened:
            # The regularisation sits on the diagonal, where the kernel is 1 wherever the location is.
            weighted = slopes.gram * own
            moved, scaled = _gaussian_slopes(weighted, locations.numeric, locations.numeric, kernel.bandwidth)
            # Both arguments of k(T_i, T_j) are locations, and the slope is symmetric: twice one of them.
            by_locations += 2 * moved
            by_log_bandwidth += scaled
        return slopes.value, np.append(by_locations.ravel(), by_log_bandwidth)

    def _kernel(self, choices: FloatVector) -> tuple[Locations, ProductKernel]:
        locations, bandwidth = self.split(choices)
        return locations, ProductKernel("gaussian", bandwidth, self.similarity)

    def _regularised(self, kernel: ProductKernel, locations: Locations, test: PlannedTest) -> FloatMatrix:
        count = len(locations)
        if not test.whitened:
            return np.eye(count)
        gram = kernel.gram(locations, locations)
        return np.asarray((gram + gram.T) / 2 + REGULARISATION_PER_LOCATION * count * np.eye(count))

    def _noise(self, kernel: ProductKernel, test: PlannedTest) -> tuple[float, float, float]:
        """Return nu, its slope by the log bandwidth, and b."""
        count = len(self.categorical)
        if not test.whitened:
            root = math.sqrt(count)
            return test.counted(count, root, float(count))[0], 0.0, test.noise(root)
        columns = self.columns, self.categorical.shape[1]
        diameter, moment = kernel.distance_max(*columns), kernel.product_distance_max(*columns)
        counted, (by_diameter, by_moment) = test.counted(count, diameter, moment)
        # diameter^2 = 2 - 2 m and moment^2 = 2 - 2 m^2, with m = exp(-columns / (2 h^2)) times a constant.
        minimum = kernel.minimum(*columns)
        by_log = minimum * self.columns / kernel.bandwidth**2
        slope = -by_log * (by_diameter / diameter + 2 * minimum * by_moment / moment)
        return counted, slope, test.noise(diameter)


@dataclass(frozen=True)
class FrequencyChoices:
    """SCF features: choices are the frequencies, (count, columns), in turns over the scaled columns.

    A bandwidth would act through its product with the frequencies alone, so that it is none of the choices.
    """

    columns: int
    count: int

    def split(self, choices: FloatVector) -> FloatMatrix:
        """Return the frequencies."""
        return choices.reshape(self.count, self.columns)

    def start(self, rows: PublicRows, number: int, rng: np.random.Generator) -> FloatVector:
        """Draw frequencies of a Gaussian kernel whose bandwidth is a part of the rows' median distance."""
        drawn = rng.standard_normal(self.count * self.columns) / (2 * np.pi * _bandwidth(rows, number, rng))
        return np.clip(drawn, -FREQUENCY_MAX, FREQUENCY_MAX)

    def bounds(self) -> list[tuple[float, float]]:
        """Return FREQUENCY_MAX on both sides of 0."""
        return [(-FREQUENCY_MAX, FREQUENCY_MAX)] * (self.columns * self.count)

    def contrast(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> Contrast:
        """Return what separates the samples."""
        return self._contrast(self._values(choices, rows), rows, test)

    def criterion(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> tuple[float, FloatVector]:
        """Return the criterion and its gradient."""
        values = self._values(choices, rows)
        slopes = CRITERIA[test.form](self._contrast(values, rows, test))
        gradient = np.zeros((self.count, self.columns))
        for one, value, slope in zip(rows, values, _row_slopes(slopes, values, rows, test), strict=True):
            sines, cosines = value[:, : self.count], value[:, self.count :]
            by_angle = slope[:, : self.count] * cosines - slope[:, self.count :] * sines
            gradient += 2 * np.pi * by_angle.T @ one.numeric
        return slopes.value, gradient.ravel()

    def _values(self, choices: FloatVector, rows: Pair) -> list[FloatMatrix]:
        turns, scale = self.split(choices), 1 / math.sqrt(self.count)
        angles = [2 * np.pi * one.numeric @ turns.T for one in rows]
        return [scale * np.concatenate([np.sin(a), np.cos(a)], axis=1) for a in angles]

    def _contrast(self, values: list[FloatMatrix], rows: Pair, test: PlannedTest) -> Contrast:
        # Raw features are longer than these by a factor that their noise shares.
        dimension = 2 * self.count
        counted, _ = test.counted(dimension, 2.0, math.sqrt(2.0))
        return _contrast(values, rows, np.eye(dimension), (counted, test.noise(2.0)), test)


Choices = LocationChoices | FrequencyChoices


def _bandwidth(rows: PublicRows, number: int, rng: np.random.Generator) -> float:
    some = rows.numeric[rows.draw(min(len(rows), BANDWIDTH_ROWS), rng)]
    return median_distance(some) * BANDWIDTH_FACTORS[number % len(BANDWIDTH_FACTORS)]


def _contrast(
    values: list[FloatMatrix], rows: Pair, gram: FloatMatrix, noise: tuple[float, float], test: PlannedTest
) -> Contrast:
    x, y = (SampleMoments(value, one.weights) for value, one in zip(values, rows, strict=True))
    sampling = x.covariance / test.units[0] + y.covariance / test.units[1]
    return Contrast(x.mean - y.mean, sampling, gram, *noise)


def _row_slopes(
    slopes: Slopes, values: list[FloatMatrix], rows: Pair, test: PlannedTest
) -> list[FloatMatrix]:
    """Return the criterion's slopes by every row's features, (rows, J) for each sample."""
    signs = (1.0, -1.0)
    return [
        SampleMoments(value, one.weights).row_slopes(sign * slopes.difference, slopes.sampling / units)
        for value, one, sign, units in zip(values, rows, signs, test.units, strict=True)
    ]


def _gaussian_slopes(
    weighted: FloatMatrix, rows: FloatMatrix, locations: FloatMatrix, bandwidth: float
) -> tuple[FloatMatrix, float]:
    """Return the slopes by locations and log bandwidth; ``weighted`` is slope times kernel, (rows, J)."""
    square = bandwidth**2
    column_sums = weighted.sum(axis=0)
    products = weighted.T @ rows
    moved = (products - column_sums[:, None] * locations) / square
    squares = np.sum(weighted.sum(axis=1) * np.sum(rows**2, axis=1))
    squares += np.sum(column_sums * np.sum(locations**2, axis=1)) - 2 * np.sum(products * locations)
    return np.asarray(moved), float(squares / square)


ITERATIONS_MAX = 200
"""Of L-BFGS-B, from each start: beyond it the criterion gains per mille."""

ROWS_MAX = 2000
"""Public rows of each sample behind one gradient: with more the optimum moves by less than tests can tell."""


CRITERION_MIN = 1e-200
"""A criterion that is not larger is 0: the features do not tell the two samples apart at all."""


class NoDifferenceError(ValueError):
    """The two public samples look the same to the features: there is nothing to optimise for."""


@dataclass(frozen=True)
class PublicPair:
    """Two public samples, or a sample and the same rows with an expected effect (``paired``).

    ``held_out`` rows choose among the starts, and give the predicted power. They are the rows of ``fit``
    where rows must stay together.
    """

    fit: Pair
    held_out: Pair
    paired: bool = False


@dataclass(frozen=True)
class Optimum:
    """The choices found; the criterion on the rows they were fitted to, and on rows held out.

    ``unoptimised`` is the criterion of the first start before any step, ``power`` the test's predicted power
    at ``choices``, both on the rows held out.
    """

    choices: FloatVector
    fitted: float
    held_out: float
    unoptimised: float
    power: float


def optimise(
    choices: Choices,
    public: PublicPair,
    test: PlannedTest,
    *,
    level: float,
    starts: int,
    rng: np.random.Generator,
    progress: Callable[[float], None] | None = None,
) -> Optimum:
    """Climb from every start on the rows to fit, and keep what is best on those held out.

    Raises NoDifferenceError where the two samples look the same to the features.
    """
    fit, held_out = _thin(public.fit, public.paired, rng), _thin(public.held_out, public.paired, rng)
    pooled = pool(*fit)
    unoptimised, ends = 0.0, []
    for number in range(starts):
        start = choices.start(pooled, number, rng)
        if number == 0:
            unoptimised = _value(choices, start, held_out, test)
        end, fitted = _climb(choices, start, fit, test)
        ends.append((_value(choices, end, held_out, test), fitted, end))
        if progress is not None:
            progress((number + 1) / starts)
    if max(fitted for _, fitted, _ in ends) <= 2 * CRITERION_MIN:
        raise NoDifferenceError("the two public samples look the same to these features")
    best, fitted, end = max(ends, key=lambda found: found[0])
    contrast = choices.contrast(end, held_out, test)
    # Of paired rows the difference has next to no sampling error: nothing is taken off for it.
    excess = 0.0 if public.paired else _sampling_ratio(held_out, test)
    power = predicted_power(contrast, test.form, level, contrast.sampling * excess, rng)
    return Optimum(end, fitted, best, unoptimised, power)


def _thin(pair: Pair, paired: bool, rng: np.random.Generator) -> Pair:
    if paired and pair[0].sample and len(pair[0]) > ROWS_MAX:
        rows = rng.choice(len(pair[0]), ROWS_MAX, replace=False)
        return pair[0].take(rows), pair[1].take(rows)
    x, y = (
        one.take(rng.choice(len(one), ROWS_MAX, replace=False)) if one.sample and len(one) > ROWS_MAX else one
        for one in pair
    )
    return x, y


def _value(choices: Choices, vector: FloatVector, rows: Pair, test: PlannedTest) -> float:
    return CRITERIA[test.form](choices.contrast(vector, rows, test)).value


def _sampling_ratio(rows: Pair, test: PlannedTest) -> float:
    """Return how much larger the public difference's covariance is than the test's will be, at most."""
    sizes = [1 / float(np.sum(one.weights**2)) for one in rows]
    return max(units / size for units, size in zip(test.units, sizes, strict=True))


def _climb(choices: Choices, start: FloatVector, fit: Pair, test: PlannedTest) -> tuple[FloatVector, float]:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    def descend(vector: FloatVector) -> tuple[float, FloatVector]:
        value, gradient = choices.criterion(vector, fit, test)
        if not value > CRITERION_MIN:
            # Far from all rows the kernel underflows: a step to turn back from.
            return -math.log(CRITERION_MIN), np.zeros_like(vector)
        # The logarithm: steps then do not depend on the scale of the criterion.
        return -math.log(value), -gradient / value

    bounds = choices.bounds()
    result = minimize(
        descend, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS_MAX}
    )
    return np.asarray(result.x), math.exp(-float(result.fun))
