"""Mean-embedding (ME) features at public locations, whitened and raw, and smooth characteristic ones (SCF).

Whitened, psi(x) = (K_T + lambda I)^(-1/2) [k(x, T_1) ... k(x, T_J)]' has norm at most 1 and diameter sqrt(2 -
2 min k) <= sqrt 2, whatever J is. SCF, g(x) [sin(x'w_j), cos(x'w_j)]_j of numeric columns scaled by sqrt(2 /
J), have norm |g(x)| <= 1 and diameter 2, or what :func:`windowed_diameter` certifies: P0's sqrt J for the
unscaled map is too small by sqrt 2 (docs/mathematics/features.md).

Every procedure that compares means of features takes the same public parameters: they are here too, with the
maps that they stand for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field
from scipy.spatial.distance import pdist

from tacit_protocol.domain import Domain, encode
from tacit_protocol.features.kernels import (
    FeatureMap,
    FloatMatrix,
    InBall,
    ProductKernel,
    RandomFourier,
    Rows,
    row_products,
)
from tacit_protocol.features.moments import AdditiveChoice, AdditiveFeatures, default_choice
from tacit_protocol.numerics.sincos import wave
from tacit_protocol.strict import StrictModel

REGULARISATION_PER_LOCATION = 1e-8
"""lambda / J: only for conditioning; it can only shrink the features, never stretch them."""

Ridge = Literal["coarse", "fine"]

RIDGES: dict[Ridge, float] = {"coarse": REGULARISATION_PER_LOCATION, "fine": 1e-12}
"""lambda / J by name. What it loses are directions in which locations that lie close differ little."""

FINE_SLACK = 1e-5
"""Bound on what rounding adds to distances of features with the fine ridge, in parts of them: J^(3/2) 1e-10
at most, J up to 1000 (docs/mathematics/features.md). The coarse ridge itself covers it."""


@dataclass(frozen=True)
class Locations:
    """Public test locations: ``numeric`` (J, numeric columns) in [0, 1], ``categorical`` (J, columns)."""

    numeric: FloatMatrix
    categorical: np.typing.NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.numeric.shape[0])


class WhitenedMeanEmbedding:
    """Orthonormal coordinates of k(x, .) projected on the span of the kernels at the locations.

    The locations' Gram matrix is decomposed when features are first computed, or sent to other processes,
    which all compute with the same bits then: whoever only checks a study needs dimension and diameter alone.
    """

    def __init__(self, kernel: ProductKernel, locations: Locations, ridge: Ridge = "coarse") -> None:
        self._kernel = kernel
        self._locations = locations
        self._ridge: Ridge = ridge
        columns = locations.numeric.shape[1], locations.categorical.shape[1]
        stretch = 1 + FINE_SLACK if ridge == "fine" else 1.0
        self._diameter = stretch * kernel.distance_max(*columns)
        self._second_moment_diameter = stretch**2 * kernel.product_distance_max(*columns)

    @cached_property
    def _roots(self) -> tuple[FloatMatrix, FloatMatrix]:
        """(K_T + lambda I)^(-1/2) and its inverse, (J, J) each."""
        gram = self._kernel.gram(self._locations, self._locations)
        eigenvalues, vectors = np.linalg.eigh((gram + gram.T) / 2)
        roots = np.sqrt(np.maximum(eigenvalues, 0.0) + RIDGES[self._ridge] * len(self._locations))
        return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T

    def __getstate__(self) -> dict[str, Any]:
        self._roots  # noqa: B018 (what is sent must have it)
        return self.__dict__

    @property
    def whitener(self) -> FloatMatrix:
        """(K_T + lambda I)^(-1/2), (J, J)."""
        return self._roots[0]

    @property
    def ridge(self) -> Ridge:
        """The name of lambda / J."""
        return self._ridge

    @property
    def locations(self) -> Locations:
        """The test locations."""
        return self._locations

    @property
    def unwhitener(self) -> FloatMatrix:
        """(K_T + lambda I)^(1/2), (J, J): what turns a mean of psi back into means of k(x, T_j)."""
        return self._roots[1]

    @property
    def dimension(self) -> int:
        """Number of locations J."""
        return len(self._locations)

    @property
    def norm(self) -> float:
        """1: see the module's derivation."""
        return 1.0

    @property
    def diameter(self) -> float:
        """The square root of 2 - 2 min k, the minimum over the domain."""
        return self._diameter

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2 - 2 (min k)^2, the minimum over the domain."""
        return self._second_moment_diameter

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return psi, (rows, J)."""
        return row_products(self._kernel.gram(rows, self._locations), self.whitener)


class RawMeanEmbedding:
    """P0's features [k(x, T_j)]_j with its own bounds: norm and diameter sqrt J (kappa = 1).

    Both are attained in the limit of a narrow bandwidth, by a row that sits at every location and one far
    from all. The second moment's diameter is J, because each of its J^2 entries lies in [0, 1] and so moves
    by at most 1.
    """

    def __init__(self, kernel: ProductKernel, locations: Locations) -> None:
        self._kernel = kernel
        self._locations = locations

    @property
    def locations(self) -> Locations:
        """The test locations."""
        return self._locations

    @property
    def unwhitener(self) -> FloatMatrix:
        """The identity, (J, J): these features are the values k(x, T_j) themselves."""
        return np.eye(self.dimension)

    @property
    def dimension(self) -> int:
        """Number of locations J."""
        return len(self._locations)

    @property
    def norm(self) -> float:
        """The square root of J."""
        return float(np.sqrt(self.dimension))

    @property
    def diameter(self) -> float:
        """The square root of J."""
        return float(np.sqrt(self.dimension))

    @property
    def second_moment_diameter(self) -> float:
        """J, the number of locations."""
        return float(self.dimension)

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return [k(x, T_j)], (rows, J)."""
        return self._kernel.gram(rows, self._locations)


WINDOW_CELLS = 512
"""Cells of each of the two distances from the middle over which the windowed diameter is searched."""

WINDOW_REACH = 8.0
"""Windows beyond which all distances are one cell: the window's height there is below 2e-14."""

WINDOW_ROUNDING = 1e-9
"""Allowance for the rounding of the bound itself, far above what it is."""


def windowed_diameter(frequencies: FloatMatrix, window: float) -> float:
    """Bound the distance of two rows' scaled SCF features under a window, at most 2.

    For rows at distances a and b from the middle, with windows' heights g(a) and g(b), the squared distance
    is (g(a) - g(b))^2 + 2 g(a) g(b) (1 - c), c the average cosine of w_j'(x - y). 1 - c is at most 1 - min c,
    and at most L (a + b)^2 / 2, L the largest eigenvalue of the average w w'. Both are bounded from above on
    every cell of a grid of (a, b), so that the maximum over cells holds everywhere
    (docs/mathematics/features.md).
    """
    count, columns = frequencies.shape
    largest = float(np.linalg.eigvalsh(frequencies.T @ frequencies / count)[-1])
    # Angles are rounded: what that moves a difference of two of them by, at most.
    rounding = (columns + 2) * 2.0**-51 * float(np.abs(frequencies).sum(axis=1).max())
    reach = math.sqrt(columns) / 2
    edges = np.append(np.linspace(0.0, min(reach, WINDOW_REACH * window), WINDOW_CELLS), reach)
    heights = np.exp(-(edges**2) / (2 * window**2))
    high, low = heights[:-1], heights[1:]
    apart = math.sqrt(max(0.0, largest)) * (edges[1:, None] + edges[None, 1:]) + rounding
    between = np.minimum(1 - RandomFourier(frequencies).smallest_product() + rounding, apart**2 / 2)
    lengths = np.maximum(high[:, None] - low[None, :], high[None, :] - low[:, None])
    squared = float(np.max(lengths**2 + 2 * high[:, None] * high[None, :] * between))
    return min(2.0, math.sqrt(squared) * (1 + WINDOW_ROUNDING))


class SmoothCharacteristic(InBall):
    """SCF with window g(x) = exp(-|x - 1/2|^2 / (2 window^2)); ``window`` is None for g = 1.

    ``frequencies`` is (J/2, numeric columns), in radians per unit of the scaled columns. ``raw`` leaves out
    the scaling by sqrt(2 / J), as P0 does, with the bounds that are right for it.
    """

    def __init__(self, frequencies: FloatMatrix, window: float | None = None, *, raw: bool = False) -> None:
        self._frequencies = frequencies
        self._turns = frequencies / (2 * np.pi)
        self._window = window
        self._scale = 1.0 if raw else float(1 / np.sqrt(len(frequencies)))

    @property
    def dimension(self) -> int:
        """J, twice the number of frequencies."""
        return 2 * len(self._frequencies)

    @property
    def norm(self) -> float:
        """1, or sqrt(J / 2) where raw."""
        return self._scale * float(np.sqrt(len(self._frequencies)))

    @cached_property
    def diameter(self) -> float:
        """Twice the norm; with a window what is certified, which is less."""
        if self._window is None:
            return 2 * self.norm
        return windowed_diameter(self._frequencies, self._window) * self.norm

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, J): all sines, then all cosines."""
        waves = wave(row_products(rows.numeric, self._turns.T))
        features = np.empty((len(rows.numeric), self.dimension))
        count = len(self._frequencies)
        np.multiply(waves.sines, self._scale, out=features[:, :count])
        np.multiply(waves.cosines, self._scale, out=features[:, count:])
        if self._window is not None:
            centred = np.ascontiguousarray(rows.numeric) - 0.5
            squared = np.einsum("ij,ij->i", centred, centred)
            features *= np.exp(-squared / (2 * self._window**2))[:, None]
        return features


LOCATION_SPREAD = 0.15
"""Standard deviation of drawn locations around the middle of the scaled bounds: public bounds are usually
set wider than the data, which gather in the middle."""

BANDWIDTH_POINTS = 100
"""Points drawn to find the default bandwidth of SCF features."""

FREQUENCY_MAX = 64.0
"""Most turns of an SCF frequency over a column's bounds: the same as of a column-wise one."""

UNLISTED = "(other)"
"""How a location's category that is none of the listed levels is written."""


def draw_locations(domain: Domain, count: int, rng: np.random.Generator) -> Locations:
    """Draw ``count`` locations: numeric columns normal around the middle, categories uniform."""
    numeric = np.clip(0.5 + LOCATION_SPREAD * rng.standard_normal((count, len(domain.numeric))), 0.0, 1.0)
    categorical = np.empty((count, len(domain.categorical)), dtype=np.int32)
    for index, column in enumerate(domain.categorical):
        categorical[:, index] = rng.integers(0, column.categories, count)
    return Locations(numeric, categorical)


def encode_locations(domain: Domain, rows: Sequence[Sequence[float | str | None]]) -> Locations:
    """Encode public rows, one value per column of the domain in its order, as locations.

    Raises ValueError where a row has not one value per column, or a numeric column's value is not a number.
    """
    if any(len(row) != len(domain.columns) for row in rows):
        raise ValueError("every location needs one value per column")
    columns = {}
    for index, column in enumerate(domain.columns):
        values = [row[index] for row in rows]
        if column.kind == "numeric":
            if any(isinstance(value, str) for value in values):
                raise ValueError("a location's value in a numeric column must be a number")
            columns[column.name] = np.array(values, dtype=np.float64)
        else:
            columns[column.name] = np.array(values, dtype=object)
    chunk = encode(domain, columns)
    return Locations(chunk.numeric, chunk.categorical)


def decode_locations(domain: Domain, locations: Locations) -> list[dict[str, float | str | None]]:
    """Return each location as a value by column, in the columns' own units and the domain's order.

    A missing category is None; a category that is not listed is ``UNLISTED``.
    """
    rows: list[dict[str, float | str | None]] = [{} for _ in range(len(locations))]
    numeric, categorical = iter(locations.numeric.T), iter(locations.categorical.T)
    for column in domain.columns:
        if column.kind == "numeric":
            values = column.lower + next(numeric) * (column.upper - column.lower)
            for row, value in zip(rows, values, strict=True):
                row[column.name] = float(value)
        else:
            names = (*column.levels, UNLISTED, None)
            for row, code in zip(rows, next(categorical), strict=True):
                row[column.name] = names[code]
    return rows


def median_distance(points: FloatMatrix) -> float:
    """Median distance between public points, (points, columns): the usual bandwidth. 1 where it is 0."""
    if len(points) < 2 or not points.shape[1]:
        return 1.0
    median = float(np.sqrt(np.median(pdist(points, "sqeuclidean"), overwrite_input=True)))
    return median if median > 1e-3 else 1.0


def draw_frequencies(columns: int, count: int, bandwidth: float, rng: np.random.Generator) -> FloatMatrix:
    """Draw frequencies, (count, columns), of the Gaussian kernel of that bandwidth (radians per unit)."""
    return np.asarray(rng.standard_normal((count, columns)) / bandwidth)


PAIR_SHARE = 0.3
"""Squared weight of the pairwise block in the default features, and its part of the level."""

FEATURES_DEFAULT = 40
"""Number of locations of the ME features, and coordinates of the SCF ones, where the study names none."""

FEATURES_MAX = 200
"""Most ME or SCF coordinates: a second moment then has 20 100 entries."""

Frequency = Annotated[float, Field(ge=-FREQUENCY_MAX, le=FREQUENCY_MAX)]
LocationRow = Annotated[tuple[float | str | None, ...], Field(min_length=1, max_length=1000)]
FrequencyRow = Annotated[tuple[Frequency, ...], Field(min_length=1, max_length=1000)]


SHARE_MIN, SHARE_MAX = 0.01, 0.99
"""Of a part of the budget: what has less of it, or leaves less to the rest, drowns in ten times the noise."""

Share = Annotated[float, Field(ge=SHARE_MIN, le=SHARE_MAX)]


def _none_or_share(value: float) -> float:
    if 0 < value < SHARE_MIN:
        raise ValueError(f"0, or {SHARE_MIN} to {SHARE_MAX}")
    return value


class FeatureParameters(StrictModel):
    """What a study may choose of mean embeddings (me), smooth characteristics (scf) and columns."""

    kernel: Literal["gaussian", "laplacian"] = Field(
        "gaussian", description="The kernel's shape, of me; laplacian sees finer structure."
    )
    n_features: Annotated[int, Field(ge=1, le=FEATURES_MAX)] | None = Field(
        None, description="Number of features of me and scf."
    )
    bandwidth: Annotated[float, Field(gt=1e-3, le=1e3)] | None = Field(
        None,
        description=(
            "Of me and scf, in units of the scaled columns; by default the locations' median distance."
        ),
    )
    category_similarity: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="Kernel value of two rows that differ in one category."
    )
    locations: Annotated[tuple[LocationRow, ...], Field(min_length=1, max_length=FEATURES_MAX)] | None = (
        Field(
            None,
            description="Public rows, one value per column in its own units, in place of drawn ones (me).",
        )
    )
    frequencies: (
        Annotated[tuple[FrequencyRow, ...], Field(min_length=1, max_length=FEATURES_MAX // 2)] | None
    ) = Field(None, description="Public frequencies, one value per column, in place of drawn ones (scf).")
    window: Annotated[float, Field(ge=1e-2, le=1e3)] | None = Field(
        None,
        description=(
            "Standard deviation of the Gaussian window around the middle of the scaled columns; none by "
            "default (scf)."
        ),
    )
    cycles: (
        Annotated[tuple[Annotated[float, Field(gt=0, le=64)], ...], Field(min_length=1, max_length=16)] | None
    ) = Field(
        None,
        description=(
            "Frequencies in turns over a column's bounds (auto and columns), in place of the default ones "
            "and of means and squares: the verdict then states no effects of numeric columns."
        ),
    )
    pair_share: Annotated[float, Field(ge=0, le=SHARE_MAX), AfterValidator(_none_or_share)] = Field(
        PAIR_SHARE, description="Part of the level and of the weight that goes to pairs of columns (auto)."
    )


def acting_parameters(features: str, parameters: FeatureParameters) -> dict[str, bool]:
    """Say of every parameter of the features whether it acts on features of that name."""
    kernel = features in ("me", "scf")
    return {
        "cycles": features in ("auto", "columns"),
        "pair_share": features == "auto",
        "kernel": features == "me",
        "category_similarity": features == "me",
        "locations": features == "me",
        "frequencies": features == "scf",
        "window": features == "scf",
        "n_features": kernel and parameters.frequencies is None,
        "bandwidth": kernel and parameters.frequencies is None,
    }


def idle_parameter(parameters: StrictModel, acting: dict[str, bool]) -> str | None:
    """Return the first parameter that is set although it does not act: whoever sets it expects it to."""
    fields = type(parameters).model_fields
    return next(
        (
            name
            for name, acts in acting.items()
            if not acts and getattr(parameters, name) != fields[name].default
        ),
        None,
    )


def additive_features(domain: Domain, parameters: FeatureParameters, *, pairs: bool) -> AdditiveFeatures:
    """Build the column-wise features and, where ``pairs``, the pairwise ones.

    Numeric columns have their means and squares in place of the lowest cycle, unless the study states cycles.
    """
    numeric = len(domain.numeric)
    categories = tuple(column.categories for column in domain.categorical)
    choice = default_choice(
        numeric,
        categories,
        parameters.pair_share if pairs else 0.0,
        moments=numeric > 0 and parameters.cycles is None,
    )
    if parameters.cycles is not None:
        weights = (1.0,) * len(parameters.cycles)
        choice = AdditiveChoice(parameters.cycles, weights, parameters.cycles[:1], choice.pair_share)
    return AdditiveFeatures(numeric, categories, choice)


def kernel_features(
    domain: Domain,
    parameters: FeatureParameters,
    name: Literal["me", "scf"],
    rng: np.random.Generator,
    *,
    raw: bool,
) -> FeatureMap:
    """Build ME or SCF features; ``rng`` draws locations or frequencies that the parameters do not give.

    ``raw`` leaves out whitening and scaling, as P0 does. Raises ValueError where the parameters do not fit
    the domain.
    """
    build = mean_embedding if name == "me" else smooth_characteristic
    return build(domain, parameters, rng, raw=raw)


def mean_embedding(
    domain: Domain, parameters: FeatureParameters, rng: np.random.Generator, *, raw: bool
) -> FeatureMap:
    """Build ME features. Raises ValueError where the locations do not fit the domain."""
    if parameters.locations is None:
        locations = draw_locations(domain, parameters.n_features or FEATURES_DEFAULT, rng)
    else:
        locations = encode_locations(domain, parameters.locations)
    bandwidth = parameters.bandwidth or median_distance(locations.numeric)
    kernel = ProductKernel(parameters.kernel, bandwidth, parameters.category_similarity)
    return RawMeanEmbedding(kernel, locations) if raw else WhitenedMeanEmbedding(kernel, locations)


def smooth_characteristic(
    domain: Domain, parameters: FeatureParameters, rng: np.random.Generator, *, raw: bool
) -> FeatureMap:
    """Build SCF features, their coordinates in pairs.

    Raises ValueError for categorical columns, and where a frequency has not one value per column.
    """
    if domain.categorical:
        raise ValueError("smooth characteristic features take numeric columns alone")
    if parameters.frequencies is not None:
        if any(len(row) != len(domain.numeric) for row in parameters.frequencies):
            raise ValueError("every frequency needs one value per column")
        turns = np.array(parameters.frequencies, dtype=np.float64)
        return SmoothCharacteristic(2 * np.pi * turns, parameters.window, raw=raw)
    points = draw_locations(domain, BANDWIDTH_POINTS, rng).numeric
    bandwidth = parameters.bandwidth or median_distance(points)
    pairs = max(1, (parameters.n_features or FEATURES_DEFAULT) // 2)
    frequencies = draw_frequencies(len(domain.numeric), pairs, bandwidth, rng)
    return SmoothCharacteristic(frequencies, parameters.window, raw=raw)
