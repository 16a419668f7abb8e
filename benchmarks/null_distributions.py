"""Speed of exact p-values of weighted chi-squares plus a normal, and their reference values.

python -m benchmarks.null_distributions
"""

import time

import numpy as np

from tacit_protocol.numerics.quadratic_forms import survival, survival_many

REFERENCES = (
    (15.0, (1.0,) * 5, 2.0, 0.0142747464),
    (40.0, (1.8, 1.3, 1.1, 3.0, 5.0), 0.5, 0.0148977590),
    (40.0, (1.8, 1.3, 1.1, 3.0, 5.0), 0.0, 0.0148728185),
    (30.0, (6.0, 3.0, 1.0), 2.0, 0.0457063206),
)
"""(t, weights, sigma, P(sum of weighted chi-squares + N(0, sigma^2) > t) to ten digits)."""


def main() -> None:
    """Print the differences from the references, and the times."""
    for t, weights, sigma, reference in REFERENCES:
        value = survival(t, np.array(weights), sigma)
        off = abs(value - reference)
        print(f"t = {t:g}, weights {weights}, sigma {sigma:g}: {value:.12f}, off by {off:.1e}")
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=50)
    points = rng.uniform(20, 120, size=1000)
    started = time.perf_counter()
    together = survival_many(points, weights, 0.5)
    middle = time.perf_counter()
    singly = np.array([survival(float(t), weights, 0.5) for t in points])
    ended = time.perf_counter()
    print(f"1000 p-values, 50 weights: together {middle - started:.2f} s, one by one {ended - middle:.2f} s")
    print(f"largest relative difference between the two: {np.max(np.abs(together / singly - 1)):.1e}")


if __name__ == "__main__":
    main()
