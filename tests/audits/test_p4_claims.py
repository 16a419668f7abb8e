"""P4's noise for one attribute, attacked: it does not keep its epsilon for a person (docs/errata.md)."""

import numpy as np
from lower_bound import epsilon_of_mu, exceeds

from tacit_protocol.features.aligned_sums import RowProjections
from tacit_protocol.features.brownian import operator_norm, random_directions
from tacit_protocol.privacy.accounting import gaussian_mu

EPSILON, DELTA = 1.0, 1e-5
PROJECTIONS, COLUMNS = 8, 20

Floats = np.typing.NDArray[np.float64]


class ProjectedPerson:
    """P4's release of one person, at either of the two rows of the unit ball that are farthest apart."""

    def __init__(self, directions: Floats, noise: float) -> None:
        _, _, right = np.linalg.svd(directions)
        self._rows, self._directions, self._noise = (-right[0], right[0]), directions, noise
        self._rng = np.random.default_rng(6)

    @property
    def moved(self) -> float:
        """How far the exact projections of the two neighbours lie apart."""
        return float(np.linalg.norm(self._directions @ (self._rows[1] - self._rows[0])))

    def scores(self, other: bool, runs: int) -> Floats:
        released = self._directions @ self._rows[other]
        noisy = released + self._noise * self._rng.standard_normal((runs, len(released)))
        return np.asarray(noisy @ (self._directions @ (self._rows[1] - self._rows[0])))


def projections() -> Floats:
    """Directions as P4 draws them: uniform on the sphere, independent."""
    rng = np.random.default_rng(5)
    return np.concatenate([random_directions(COLUMNS, 1, rng) for _ in range(PROJECTIONS)])


def test_noise_for_one_attribute_breaks_its_epsilon_for_a_person() -> None:
    """The data and the seed are fixed; right noise would be called wrong with probability below 1e-9."""
    directions = projections()
    attribute = float(np.linalg.norm(directions, axis=0).max())
    person = ProjectedPerson(directions, attribute / gaussian_mu(EPSILON, DELTA))
    assert 2 * operator_norm(directions) * (1 - 1e-6) < person.moved <= 2 * operator_norm(directions)
    # What the noise is worth for a person, by the exact curve; and what an attacker proves of it.
    true = epsilon_of_mu(gaussian_mu(EPSILON, DELTA) * person.moved / attribute, DELTA)
    assert true > 3 * EPSILON
    assert exceeds(person, runs=200_000, pilot=200_000, delta=DELTA, epsilon=1.5 * EPSILON, mu=None)


def test_noise_for_a_whole_row_keeps_it() -> None:
    directions = projections()
    person = ProjectedPerson(directions, RowProjections(directions).diameter / gaussian_mu(EPSILON, DELTA))
    assert not exceeds(
        person, runs=20_000, pilot=5000, delta=DELTA, epsilon=EPSILON, mu=gaussian_mu(EPSILON, DELTA)
    )
