"""Variances of column-wise and pairwise coordinates, from the released means alone.

cos^2 a = (1 + cos 2a) / 2: where the doubled frequency was released too, the second moment of a coordinate
is known; an indicator is its own square; elsewhere the trace of a cosine and its sine bounds both. A product
of two columns' coordinates has a second moment at most the smaller of the two. Variances are rounded up by
the standard deviation of the noise in these means, and by the weight of two of an owner's own units, so that
rare categories do not look certain. For units that own several rows these are upper bounds (Jensen).
"""

import numpy as np

from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.features.column_wise import Coordinate
from tacit_protocol.statistics.private_means import RARE_UNITS, FloatMatrix, FloatVector, PrivateMeans


def additive_variances(features: AdditiveFeatures, means: PrivateMeans) -> FloatMatrix:
    """Bound the variance of every coordinate of one unit's additive features, for every owner, (k, J).

    ``means`` are all owners' (under the null hypothesis they share one distribution, so they are pooled).
    """
    shares = (1 - features.choice.pair_share, features.choice.pair_share)
    pooled, noise = means.pooled(), means.pooled_noise()
    block = features.column_wise
    scales = np.sqrt(shares[0]) * np.array([c.scale for c in block.coordinates])
    raw, moments = _column_moments(block.coordinates, pooled[: block.dimension] / scales, noise / scales)
    variances = [_variances(raw, moments, scales, noise, means)]
    if features.pairwise is not None:
        pair_scales, pair_moments = _pair_moments(features, moments)
        pair_scales = pair_scales * np.sqrt(shares[1] / len(features.pairwise.pairs))
        raw = pooled[block.dimension :] / pair_scales
        variances.append(_variances(raw, pair_moments, pair_scales, noise, means))
    return np.concatenate(variances, axis=1)


def _column_moments(
    coordinates: tuple[Coordinate, ...], raw: FloatVector, slack: FloatVector
) -> tuple[FloatVector, FloatVector]:
    index = {(c.column, c.part, c.cycles): i for i, c in enumerate(coordinates)}
    moments = np.ones(len(coordinates))
    for i, coordinate in enumerate(coordinates):
        if coordinate.part == "category":
            moments[i] = raw[i] + slack[i]
            continue
        doubled = index.get((coordinate.column, "cos", 2 * coordinate.cycles))
        if doubled is not None:
            sign = 1.0 if coordinate.part == "cos" else -1.0
            moments[i] = (1 + sign * raw[doubled] + slack[doubled]) / 2
        else:
            other = "sin" if coordinate.part == "cos" else "cos"
            partner = index[(coordinate.column, other, coordinate.cycles)]
            moments[i] = 1 - max(0.0, abs(raw[partner]) - slack[partner]) ** 2
    return raw, np.clip(moments, 0.0, 1.0)


def _pair_moments(features: AdditiveFeatures, moments: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Scales (before division by the root of the number of pairs) and moments of the pairwise coordinates."""
    assert features.pairwise is not None  # noqa: S101 (the caller checked; this tells the type checker)
    used = len(features.choice.pair_cycles)
    positions = [features.choice.cycles.index(cycle) for cycle in features.choice.pair_cycles]
    parts: list[tuple[FloatVector, FloatVector]] = []
    for column, (start, stop) in enumerate(features.column_groups):
        if column < features.numeric:
            picked = [start + 2 * position + part for position in positions for part in (0, 1)]
            parts.append((np.full(2 * used, 1 / np.sqrt(used)), moments[picked]))
        else:
            parts.append((np.ones(stop - start), moments[start:stop]))
    scales, bounds = [], []
    for a, b in features.pairwise.pairs:
        scales.append(np.multiply.outer(parts[a][0], parts[b][0]).ravel())
        bounds.append(np.minimum.outer(parts[a][1], parts[b][1]).ravel())
    return np.concatenate(scales), np.concatenate(bounds)


def _variances(
    raw: FloatVector, moments: FloatVector, scales: FloatVector, noise: float, means: PrivateMeans
) -> FloatMatrix:
    certain = np.maximum(0.0, np.abs(raw) - noise / scales)
    variances = np.clip(moments - certain**2, 0.0, 1.0)
    return np.asarray((variances + RARE_UNITS / means.units[:, None]) * scales**2)
