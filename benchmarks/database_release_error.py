"""The errors of released databases, from the counts, and how counts are named."""

import math

from benchmarks.database_population import p2_bandwidth
from benchmarks.resumable import Counts
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.exact_sums import grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import DISCRETISATION_SHARE

DELTA = 1e-6
DIMENSIONS = (2, 5)
EPSILONS = (0.1, 1.0, 4.0)
UNITS = (1_000, 10_000, 100_000, 1_000_000)
POINTS = (30, 100, 300, 1000)
OURS, P2 = "ours", "p2"
SPECTRUM_PARTS = ("missed", "spread", "unseen", "trace")
FITTED_POINTS = 100
FREQUENCIES = (50, 500)
LOCAL_CELL, LOCAL_UNITS, LOCAL_POINTS = "tacit.local", 10_000, 100
SWEPT_UNITS = 100_000
"""Units of the tables over epsilon: P2's own number."""

PLACEMENTS = {
    "own": "a published part",
    "uniform": "uniform over the bounds",
    "wide": "P2's N(0, 500²)",
    "wrong": "N(500, 150²)",
}


def p2_noise(n: int, epsilon: float) -> float:
    """Return the standard deviation of P2's noise on a coordinate."""
    return 2 / n * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def our_noise(columns: int, count: int, n: int, epsilon: float) -> float:
    """Return that of the procedure's (tested against it by the cells that run it)."""
    kernel = ProductKernel("gaussian", p2_bandwidth(columns))
    sensitivity = kernel.distance_max(columns, 0) + rounding_sensitivity(count, grid_bits(n, False))
    return sensitivity / (n * gaussian_mu(epsilon, DELTA * (1 - DISCRETISATION_SHARE)))


def question(placement: str, count: int, rest: str) -> str:
    """Name a figure of a placement."""
    return f"{placement} | {count} | {rest}"


def spectrum_cell(columns: int) -> str:
    """Name the cell of Algorithm 1's weights."""
    return f"spectrum D={columns}"


def fitted_cell(columns: int, n: int) -> str:
    """Name a cell of fitted weights."""
    return f"weights D={columns} n={n}"


def swept_cell(columns: int) -> str:
    """Name the cell of fitted weights over epsilon."""
    return f"epsilon D={columns} n={SWEPT_UNITS}"


def random_features(count: int) -> str:
    """Name random features of so many frequencies, as placements are named."""
    return f"random features, {count} frequencies"


def raw_error(
    counts: Counts, columns: int, placement: str, count: int, n: float, sigma: float, *, to_data: bool = False
) -> float | None:
    """Return the root mean square error of Algorithm 1's weights under noise of deviation ``sigma``."""
    cell = spectrum_cell(columns)
    found = [counts.rate(cell, question(placement, count, part)) for part in SPECTRUM_PARTS]
    if any(value is None for value in found):
        return None
    missed, spread, unseen, trace = (value or 0.0 for value in found)
    sampled = (unseen - missed) / n if to_data else spread / n
    return math.sqrt(missed + sampled + sigma**2 * trace)


def fitted_error(counts: Counts, cell: str, asked: str) -> float | None:
    """Return the root mean square error of fitted weights."""
    found = counts.rate(cell, asked)
    return None if found is None else math.sqrt(found)


def raw_ratio(
    counts: Counts, columns: int, placement: str, count: int, n: int, epsilon: float
) -> float | None:
    """Return P2's error over ours, of Algorithm 1's weights."""
    ours = raw_error(counts, columns, placement, count, n, our_noise(columns, count, n, epsilon))
    theirs = raw_error(counts, columns, placement, count, n, p2_noise(n, epsilon))
    return None if ours is None or theirs is None else theirs / ours
