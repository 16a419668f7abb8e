"""What a curated study can see at best: whether n and epsilon leave any hope, before anything is spent.

The difference that is asked for is a very large one: half of a sample's units moved across a column, or a
squared MMD of the squared norm of the features.
"""

import math

from scipy.special import ndtri

from tacit_protocol.features.curated_release import CuratedAdditiveRelease
from tacit_protocol.features.paired_release import PairedRelease
from tacit_protocol.statistics.curated_choice import Permuted, Vectors
from tacit_protocol.statistics.power import (
    DETECTABLE_MAX,
    POWER,
    detectable_difference,
    detectable_squared_mmd,
)
from tacit_protocol.statistics.private_statistic import RidgeRelease

Units = tuple[int, int]


def decision_hopes(statistic: Permuted, units: Units, xi: float, level: float) -> bool:
    """Say whether a private decision with that xi could reject with probability one half.

    Raising the observed statistic by M changes the density of its noise by exp(M / scale) at most.
    """
    scale = 2 * statistic.sensitivity(units) / xi
    return math.log(2 * level) + statistic.norm / scale >= 0


def vectors_hope(release: Vectors, units: Units, noise: float, level: float) -> bool:
    """Say whether noisy vectors could show the difference; ``noise`` is that on the first of them."""
    if isinstance(release, RidgeRelease):
        return _statistic_hopes(release, units, noise, level)
    if isinstance(release, PairedRelease):
        noise /= units[0]
    split = noise / math.sqrt(2), noise / math.sqrt(2)
    if isinstance(release, CuratedAdditiveRelease):
        block = release.features.column_wise
        weight = max(coordinate.scale for coordinate in block.coordinates)
        share = level * (1.0 - release.features.choice.pair_share) / block.dimension
        return detectable_difference(split, units, weight, share) < DETECTABLE_MAX
    features = release.features
    return detectable_squared_mmd(split, features.dimension, level) < features.norm**2


def _statistic_hopes(release: RidgeRelease, units: Units, noise: float, level: float) -> bool:
    energy, gamma = release.features.norm**2, release.regularisation
    eigenvalue = energy / release.features.dimension
    null = release.features.dimension * eigenvalue / (eigenvalue + gamma)
    seen = null + noise * float(ndtri(POWER) - ndtri(level))
    return units[0] * units[1] / sum(units) * energy / (energy / 2 + gamma) >= seen
