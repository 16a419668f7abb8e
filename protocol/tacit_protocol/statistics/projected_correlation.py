"""What a tester makes of P4's noisy projections: an exact test, and raw values with their attenuation.

The noise shrinks everything: P4's decomposition as an equality is false, and the raw value is no estimate of
the data's own distance correlation. For weak dependence of jointly normal variables the squared correlation
shrinks by t^2/(t^2 + s^2) at either side, t^2 the variance of the data and s^2 that of the noise.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix
from tacit_protocol.features.brownian import frequencies
from tacit_protocol.statistics.distance_covariance import (
    distance_covariance_sqr,
    distance_variance_sqr,
    projection_constant,
)
from tacit_protocol.statistics.sketched_covariance import (
    IndependenceTest,
    Permutations,
    Side,
    permutation_test,
)

FREQUENCIES = 3
"""Sines of every released column that the test looks at; the noise hides finer structure."""

Blocks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NoisyProjections:
    """One owner's projections, (n, K) or (n, 1), of p columns, with noise of that deviation, or of 0."""

    values: FloatMatrix
    noise: float
    columns: int


@dataclass(frozen=True)
class RawCorrelation:
    """Squared distance covariance (unbiased) and correlation of noisy projections, and their attenuation."""

    covariance_sqr: float
    correlation_sqr: float
    attenuation: float


def raw_correlation(
    first: NoisyProjections, second: NoisyProjections, blocks: Blocks | None
) -> RawCorrelation:
    """Average over directions, (C_p C_q / K) sum_k Omega_n; ``blocks`` (n,) deals the units out, one each."""
    pairs = list(_pairs(first, second, blocks))
    constants = [projection_constant(side.columns) for side in (first, second)]
    covariance = (
        constants[0] * constants[1] * float(np.mean([distance_covariance_sqr(x, y) for x, y in pairs]))
    )
    variances = [
        constant**2 * float(np.mean([distance_variance_sqr(pair[index]) for pair in pairs]))
        for index, constant in enumerate(constants)
    ]
    scale = float(np.sqrt(max(0.0, variances[0]) * max(0.0, variances[1])))
    kept = [_kept(side) for side in (first, second)]
    return RawCorrelation(covariance, covariance / scale if scale > 0 else 0.0, kept[0] * kept[1])


def projected_test(
    first: NoisyProjections, second: NoisyProjections, permutations: Permutations
) -> IndependenceTest:
    """Permute one side's released rows, within blocks where these have directions of their own. Exact."""
    sides = [_side(each, permutations.blocks) for each in (first, second)]
    return permutation_test(sides[0], sides[1], permutations)


def _pairs(
    first: NoisyProjections, second: NoisyProjections, blocks: Blocks | None
) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    if blocks is not None:
        own = [np.flatnonzero(blocks == block) for block in range(int(blocks.max()) + 1)]
        return [(first.values[rows, 0], second.values[rows, 0]) for rows in own]
    count = max(first.values.shape[1], second.values.shape[1])
    # One column has one projection, whatever the other side has.
    columns = [np.broadcast_to(side.values, (len(side.values), count)) for side in (first, second)]
    return list(zip(columns[0].T, columns[1].T, strict=True))


def _kept(side: NoisyProjections) -> float:
    if side.noise == 0:
        return 1.0
    spread = float(np.mean(np.var(side.values, axis=0)))
    return max(0.0, 1 - side.noise**2 / spread)


def _side(released: NoisyProjections, blocks: Blocks | None) -> Side:
    """Sines of the released columns over their own range, in columns of their own for every block."""
    values = released.values
    low, reach = values.min(axis=0), np.ptp(values, axis=0)
    waves = frequencies(FREQUENCIES)
    places = ((values - low) / np.where(reach > 0, reach, 1.0))[:, :, None]
    features = (np.sin(places * waves) / waves).reshape(len(values), -1)
    if blocks is not None:
        own = np.arange(int(blocks.max()) + 1) == blocks[:, None]
        sums = own.T.astype(np.float64) @ features
        features = features - (sums / own.sum(axis=0)[:, None])[blocks]
        features = (own[:, :, None] * features[:, None, :]).reshape(len(values), -1)
    centred = features - features.mean(axis=0)
    covariance = centred.T @ centred / len(values)
    floor = 1e-6 * float(np.sqrt(np.trace(covariance)))
    # A constant column has covariance 0 with everything: the floor keeps that from being 0/0.
    noise, none = max(floor, 1e-150), np.zeros(len(covariance))
    return Side(centred, noise, covariance, 0.0, 1.0, 0.0, len(values), none, 0.0)
