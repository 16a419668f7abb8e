"""Levels of the MMD and noise-aware forms where values are rare, with and without the weight of two units.

    python -m benchmarks.rare_values --runs 10000 > /tmp/rare-values.md

Writes the rows of the table in docs/mathematics/kernel-two-sample.md. Features are one common vector and some
rare ones, all of length 1 and at right angles; counts are multinomial, noise is NumPy's, of epsilon = 20 and
delta = 1e-5 unless said. Both variants test the same draws; the noise-aware form has a fiftieth of the runs.
"""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks.harness import options, table
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.kernel_two_sample.release import MEAN_SHARE
from tacit_protocol.procedures.means import private_means
from tacit_protocol.procedures.means.private_means import (
    PrivateCovariance,
    PrivateMeans,
    noise_aware_test,
    pool_covariance,
)

Floats = npt.NDArray[np.float64]
Test = Callable[[PrivateMeans, PrivateCovariance], float]

LEVELS = (0.05, 0.01, 0.001)
REPLICATES = 199

WORLDS = (
    (5, 1, 0.004, (50, 5000), 20.0),
    (5, 1, 0.004, (200, 200), 20.0),
    (5, 4, 0.004, (50, 5000), 20.0),
    (5, 4, 0.004, (200, 200), 20.0),
    (5, 4, 0.02, (50, 5000), 20.0),
    (5, 1, 0.05, (50, 5000), 20.0),
    (40, 39, 0.001, (50, 5000), 20.0),
)
"""Features J, rare values, the probability of each, units of the two owners, epsilon."""


def draw(
    dimension: int, shares: Floats, units: tuple[int, ...], epsilon: float, rng: np.random.Generator
) -> tuple[PrivateMeans, PrivateCovariance]:
    """Draw two owners of one distribution, as kernel_two_sample would release them."""
    mu, sizes = gaussian_mu(epsilon, 1e-5), np.array(units, dtype=np.float64)
    noise = np.sqrt(2 / MEAN_SHARE) / (sizes * mu)
    moment_noise = np.sqrt(2 / (1 - MEAN_SHARE)) / (sizes * mu)
    found = np.zeros((2, dimension))
    moments = np.zeros((2, dimension, dimension))
    for owner, n in enumerate(units):
        found[owner, : len(shares)] = rng.multinomial(n, shares) / n
        # Symmetric noise, with the standard deviation stated on the diagonal and 1/sqrt 2 of it beside.
        drawn = rng.standard_normal((dimension, dimension)) * moment_noise[owner] / 2
        moments[owner] = np.diag(found[owner]) + drawn + drawn.T
    found += noise[:, None] * rng.standard_normal(found.shape)
    means = PrivateMeans(found, sizes, noise)
    return means, pool_covariance(means, moments, moment_noise)


def mmd(means: PrivateMeans, covariance: PrivateCovariance) -> float:
    """Return the MMD form's p-value."""
    return private_means.mmd_test(means, covariance)[1]


def mmd_before(means: PrivateMeans, covariance: PrivateCovariance) -> float:
    """Return the MMD form's p-value without the weight of rare units."""
    with patch.object(private_means, "rare_guard", lambda means, *_: np.zeros(means.owners)):
        return mmd(means, covariance)


def noise_aware(trace_max: float) -> Test:
    """Return the noise-aware form; a squared norm of 0 leaves the rare units without weight."""

    def pvalue(means: PrivateMeans, covariance: PrivateCovariance) -> float:
        seed = np.random.SeedSequence(int(means.means[0, 0] * 2**40) % 2**32)
        return noise_aware_test(means, covariance, REPLICATES, seed, trace_max=trace_max)[1]

    return pvalue


def main() -> None:
    """Measure, and print a table."""
    runs = options(__doc__, runs=10_000).runs
    rows: dict[str, dict[str, str]] = {}
    for dimension, rare, share, units, epsilon in WORLDS:
        shares = np.array([1 - rare * share, *[share] * rare])
        forms: list[tuple[str, int, tuple[Test, Test]]] = [("MMD", runs, (mmd_before, mmd))]
        if dimension == 5:
            forms.append(("noise-aware", runs // 50, (noise_aware(0.0), noise_aware(1.0))))
        for name, count, tests in forms:
            rng = np.random.default_rng([dimension, rare, *units])
            pairs = [draw(dimension, shares, units, epsilon, rng) for _ in range(count)]
            found = [np.array([test(*pair) for pair in pairs]) for test in tests]
            label = (
                f"{name}: {rare} of {share:g}, J = {dimension}, {units[0]} and {units[1]} units, {count} runs"
            )
            rows[label] = {
                f"level {level:g}": " → ".join(f"{np.mean(p <= level):.4f}" for p in found)
                for level in LEVELS
            }
    print(table(rows, "rare values"))


if __name__ == "__main__":
    main()
