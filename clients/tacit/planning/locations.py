"""Test locations and bandwidth, or frequencies, that a private test would see most with; nothing is spent.

Everything here is a function of rows that anyone may see: a public sample, or points of a database released
earlier, with their weights. They get no protection. Never use rows of the test itself: P0 optimises on a
fifth of the private rows, which then have no guarantee. L-BFGS-B with analytic gradients climbs from several
seeded starts; rows are split, so that the start that wins, and the power stated for it, come from rows that
no gradient has seen.

With mean difference delta, V = Sigma_x / n_x + Sigma_y / n_y, features F = psi R, R R = G, and nu the
variance that the form counts, what is climbed is for the noise-aware form delta' (V + nu G)^-1 delta, and for
the MMD form |d|^2 / sqrt(2 |C|_F^2), d = R^-1 delta, C = R^-1 V R^-1 + nu I
(docs/mathematics/test-locations.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh

from tacit.errors import InputError
from tacit.in_process.runner import Setting
from tacit.in_process.samples import ArrayTable, Sample, domain_of, read_samples
from tacit_protocol.domain import Domain
from tacit_protocol.features.kernels import CodeMatrix, FloatMatrix, ProductKernel
from tacit_protocol.features.mean_embedding import (
    FREQUENCY_MAX,
    REGULARISATION_PER_LOCATION,
    Locations,
    decode_locations,
    median_distance,
)
from tacit_protocol.messages.study import LEVEL_MIN, UNITS_MAX
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError, gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent
from tacit_protocol.procedures.curated_two_sample import parameters as curated
from tacit_protocol.procedures.curated_two_sample.release import MOMENT_CENTRE_SHARE, balance
from tacit_protocol.procedures.populations import Amounts as Effect
from tacit_protocol.procedures.populations import EffectError, with_effect
from tacit_protocol.procedures.two_sample import release

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
class SampleContrast:
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


def hotelling(contrast: SampleContrast) -> Slopes:
    """Return delta' (V + nu G)^-1 delta and its slopes."""
    gram, counted = contrast.gram, contrast.counted
    u = cho_solve(cho_factor(contrast.sampling + counted * gram), contrast.difference)
    outer = np.outer(u, u)
    value = float(contrast.difference @ u)
    return Slopes(value, 2 * u, -outer, -counted * outer, float(-u @ gram @ u))


def mmd_shift(contrast: SampleContrast) -> Slopes:
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


CRITERIA: dict[Form, Callable[[SampleContrast], Slopes]] = {"mmd": mmd_shift, "noise-aware": hotelling}


def predicted_power(
    contrast: SampleContrast, form: Form, level: float, bias: FloatMatrix, rng: np.random.Generator
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

    def contrast(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> SampleContrast:
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

    def contrast(self, choices: FloatVector, rows: Pair, test: PlannedTest) -> SampleContrast:
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

    def _contrast(self, values: list[FloatMatrix], rows: Pair, test: PlannedTest) -> SampleContrast:
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
) -> SampleContrast:
    x, y = (SampleMoments(value, one.weights) for value, one in zip(values, rows, strict=True))
    sampling = x.covariance / test.units[0] + y.covariance / test.units[1]
    return SampleContrast(x.mean - y.mean, sampling, gram, *noise)


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


NUMBERS_TRIED: Mapping[str, tuple[int, ...]] = {"me": (1, 3, 10), "scf": (2, 6, 20)}
"""Numbers of features tried where none is given: noise grows with their number, as what they see does."""

STARTS: Mapping[str, int] = {"me": 8, "scf": 32}
"""Starts of the ascent; a frequency's gradient does not lead from one peak of the spectrum to another."""

CATEGORY_SIMILARITY = 0.5
"""The procedures' default."""

Features = Literal["me", "scf"]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OptimisedLocations:
    """Locations and bandwidth, or frequencies, and what they promise.

    Attributes:
        parameters: a study's parameters: pass them as ``kernel_two_sample(..., **parameters)``, or under
            ``[parameters]`` of a draft. Locations are in the columns' own units, frequencies in turns over
            their bounds.
        power: predicted power of the planned test, on the rows held out; optimistic by what the test does
            not know of its own covariance.
        criterion: what was maximised, on the rows held out: the test's shift in standard deviations (form
            "mmd") or the noncentrality ("noise-aware").
        unoptimised: the same where the ascent began.
        n_features: number of features J.
        n: units of the planned test.
        epsilon: budget of the planned test.
        delta: budget of the planned test.
        alpha: level of the planned test.
        held_out_rows: row numbers of the first and the second sample that the ascent did not use.
    """

    parameters: Mapping[str, Any]
    power: float
    criterion: float
    unoptimised: float
    n_features: int
    n: tuple[int, int]
    epsilon: float
    delta: float
    alpha: float
    held_out_rows: tuple[Rows, Rows]


def optimise_locations(
    public_x: Any,
    public_y: Any = None,
    *,
    epsilon: float,
    delta: float,
    n: int | Sequence[int],
    bounds: Any,
    effect: Effect | None = None,
    scale: Effect = 1.0,
    features: Features = "me",
    n_features: int | None = None,
    statistic: Form = "mmd",
    setting: Setting = "owners",
    alpha: float = 0.05,
    columns: Sequence[str] | None = None,
    weights: Sequence[npt.ArrayLike] | None = None,
    training_share: float = 0.5,
    starts: int | None = None,
    seed: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> OptimisedLocations:
    """Find where to look: by gradient ascent on the power of the private test that is planned.

    The criterion is that of Jitkrittum et al. (2016) with the privacy noise in it, so that the optimum is
    the private test's. Never pass rows of the test: they would have no guarantee. Rows are split: the ascent
    uses a part, and the best of several starts is chosen on the rest, whose numbers are returned.

    Args:
        public_x: a public sample like the first owner's data, or points of a released database.
        public_y: the same for the second owner; without it ``effect`` or ``scale`` must say what is expected.
        delta: greater than 0.
        effect: amount added to numeric columns in the second sample, in their own units; one number or by
            column.
        scale: factor of their spread; one number or by column.
        features: "me" (locations and bandwidth; categorical columns too) or "scf" (frequencies; numeric
            columns alone).
        n_features: number of features J, or None to choose among several by the predicted power.
        statistic: form of the planned test.
        setting: "owners" or "curator": whose noise.
        weights: of the rows of each sample, (rows,), of either sign; weighted rows are not split.
        training_share: part of the rows that the ascent uses, in (0, 1).
        starts: how often to start.
        seed: fixes starts and splits.

    Other arguments: :mod:`tacit.local`.
    """
    if setting not in ("owners", "curator") or statistic not in CRITERIA:
        raise InputError('setting must be "owners" or "curator", and statistic "mmd" or "noise-aware"')
    if features not in NUMBERS_TRIED or not 0 < training_share < 1 or not LEVEL_MIN <= alpha < 0.5:
        raise InputError('features must be "me" or "scf", training_share in (0, 1) and alpha in (0, 0.5)')
    rng = np.random.default_rng(seed)
    samples, domain = _samples(public_x, public_y, columns=columns, bounds=bounds, effect=effect, scale=scale)
    if features == "scf" and domain.categorical:
        raise InputError("scf features take numeric columns alone: choose them, or use features='me'")
    public, held_out_rows = _public_pair(
        samples, domain, weights, share=training_share, paired=public_y is None, rng=rng
    )
    planned = _planned_test(epsilon, delta, _sizes(n), statistic, setting)
    numbers = NUMBERS_TRIED[features] if n_features is None else (n_features,)
    found: list[tuple[Optimum, dict[str, Any]]] = []
    for index, number in enumerate(numbers):
        choices = _choices(features, number, public, domain, rng)

        def report(part: float, index: int = index, number: int = number) -> None:
            if progress is not None:
                progress((index + part) / len(numbers), f"optimising {number} features")

        try:
            optimum = optimise(
                choices,
                public,
                planned,
                level=alpha,
                starts=starts or STARTS[features],
                rng=rng,
                progress=report,
            )
        except NoDifferenceError as error:
            raise InputError(f"{error}: pass samples that differ, or an effect") from error
        found.append((optimum, _parameters(choices, optimum, domain, statistic)))
    best, parameters = max(found, key=lambda one: one[0].power)
    return OptimisedLocations(
        parameters=parameters,
        power=best.power,
        criterion=best.held_out,
        unoptimised=best.unoptimised,
        n_features=len(parameters["locations"]) if features == "me" else 2 * len(parameters["frequencies"]),
        n=planned.units,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        held_out_rows=held_out_rows,
    )


def _sizes(n: int | Sequence[int]) -> tuple[int, int]:
    sizes = (n, n) if isinstance(n, int) else tuple(n)
    if len(sizes) != 2 or not 1 <= min(sizes) <= max(sizes) <= UNITS_MAX:
        raise InputError(f"n must be one positive number, or two, of {UNITS_MAX} at most")
    return sizes[0], sizes[1]


def _samples(
    public_x: Any,
    public_y: Any,
    *,
    columns: Sequence[str] | None,
    bounds: Any,
    effect: Effect | None,
    scale: Effect,
) -> tuple[tuple[Sample, Sample], Domain]:
    if public_y is not None and (effect is not None or scale != 1.0):
        raise InputError("pass a second public sample, or an effect or a scale on the first; not both")
    if public_y is None and effect is None and scale == 1.0:
        raise InputError("say what is expected: a second public sample, effect= or scale=")
    read = read_samples([public_x] if public_y is None else [public_x, public_y], columns)
    domain = domain_of(bounds, list(read[0].columns))
    if public_y is not None:
        return (read[0], read[1]), domain
    rows = read[0].within(domain)
    try:
        shifted = with_effect(rows, rows, domain, 0.0 if effect is None else effect, scale)
    except EffectError as error:
        raise InputError(str(error)) from None
    return (read[0], Sample(shifted)), domain


def _public_pair(
    samples: tuple[Sample, Sample],
    domain: Domain,
    weights: Sequence[npt.ArrayLike] | None,
    *,
    share: float,
    paired: bool,
    rng: np.random.Generator,
) -> tuple[PublicPair, tuple[Rows, Rows]]:
    if weights is not None and (len(weights) != 2 or paired):
        raise InputError("weights must be two arrays, one for each of two samples")
    given = (None, None) if weights is None else weights
    try:
        x, y = (_encoded(one, domain, weight) for one, weight in zip(samples, given, strict=True))
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if not (x.sample and y.sample):
        every = np.arange(len(x)), np.arange(len(y))
        return PublicPair((x, y), (x, y)), (every[0][:0], every[1][:0])
    if min(len(x), len(y)) < 4:
        raise InputError("a public sample needs at least four rows")
    fit_x, held_x = split_rows(len(x), share, rng)
    fit_y, held_y = (fit_x, held_x) if paired else split_rows(len(y), share, rng)
    fit, held = (x.take(fit_x), y.take(fit_y)), (x.take(held_x), y.take(held_y))
    return PublicPair(fit, held, paired), (held_x, held_y)


def _encoded(sample: Sample, domain: Domain, weights: npt.ArrayLike | None) -> PublicRows:
    chunks = list(ArrayTable.of(sample, domain).chunks())
    numeric = np.ascontiguousarray(np.concatenate([chunk.numeric for chunk in chunks]))
    codes = np.concatenate([chunk.categorical for chunk in chunks])
    return PublicRows.of(numeric, codes, None if weights is None else np.asarray(weights, dtype=np.float64))


def _planned_test(
    epsilon: float, delta: float, sizes: tuple[int, int], form: Form, setting: Setting
) -> PlannedTest:
    try:
        guarantee = gaussian_guarantee(Budget.of(epsilon, delta))
    except (SensitivityError, ValueError, ArithmeticError) as error:
        raise InputError(f"epsilon and delta: {error}") from error
    multiplier = next(e.noise_multiplier for e in guarantee.events if isinstance(e, GaussianEvent))
    x, y = sizes
    share = curated.MEAN_SHARE if setting == "curator" else release.MEAN_SHARE
    mean, moment = multiplier / math.sqrt(share), multiplier / math.sqrt(1 - share)
    if setting == "curator":
        # One draw on the difference, and one on the second moment of both samples together.
        difference = balance(sizes, MOMENT_CENTRE_SHARE).difference
        return PlannedTest(form, sizes, mean * difference, moment / (x + y))
    # Weighted by units, the owners' second moments carry sqrt(2) / (n_x + n_y) of the noise.
    return PlannedTest(form, sizes, mean * math.hypot(1 / x, 1 / y), moment * math.sqrt(2) / (x + y))


def _choices(
    features: Features, number: int, public: PublicPair, domain: Domain, rng: np.random.Generator
) -> LocationChoices | FrequencyChoices:
    if number < 1:
        raise InputError("n_features must be at least 1")
    columns = len(domain.numeric)
    if features == "scf":
        return FrequencyChoices(columns, max(1, number // 2))
    pooled = pool(*public.fit)
    return LocationChoices(columns, pooled.categorical[pooled.draw(number, rng)], CATEGORY_SIMILARITY)


def _parameters(
    choices: LocationChoices | FrequencyChoices, optimum: Optimum, domain: Domain, statistic: Form
) -> dict[str, Any]:
    form = {} if statistic == "mmd" else {"statistic": statistic}
    if isinstance(choices, FrequencyChoices):
        return {"features": "scf", "frequencies": choices.split(optimum.choices).tolist(), **form}
    locations, bandwidth = choices.split(optimum.choices)
    rows = [list(row.values()) for row in decode_locations(domain, locations)]
    return {"features": "me", "locations": rows, "bandwidth": bandwidth, **form}
