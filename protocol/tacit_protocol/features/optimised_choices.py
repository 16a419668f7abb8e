"""Locations with their bandwidth, and frequencies, as vectors that an optimiser moves, with gradients."""

import math
from dataclasses import dataclass

import numpy as np

from tacit_protocol.features.base import CodeMatrix, FloatMatrix
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import REGULARISATION_PER_LOCATION, Locations
from tacit_protocol.features.power_criterion import (
    CRITERIA,
    Contrast,
    FloatVector,
    PlannedTest,
    SampleMoments,
    Slopes,
)
from tacit_protocol.features.public_choices import FREQUENCY_MAX, median_distance
from tacit_protocol.features.public_rows import PublicRows

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
