"""Cramér's V of two columns from a noisy table, with an interval that counts sampling and noise.

V^2 = phi^2/(levels - 1), phi^2 = sum (p_i - m_i)^2/m_i, m the product of the margins; the levels are those of
the column with fewer, as listed in the study. The estimate subtracts what sampling and noise add to each
squared residual. The interval inverts tests: along the line of tables from independence through the table
itself and beyond, it keeps those whose simulated estimates do not put the one at hand into either tail of
level/2. So it needs no normal law, and knows that an estimate near 0 says "at most".
docs/mathematics/categorical.md; its coverage is measured in docs/benchmarks/categorical.md.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.contingency import margins_of, product, residuals, simulate
from tacit_protocol.statistics.noisy_tables import NoisyTable, onto_simplex

Floats = npt.NDArray[np.float64]

DRAWS = 399
"""Simulated estimates at each table of the line: tail probabilities to .01."""

LINE = np.concatenate([np.linspace(0, 1, 11), [1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0, 30.0, 100.0]])
"""Tables of the line: 0 is independence, 1 the projected table."""


@dataclass(frozen=True)
class Association:
    """Cramér's V in [0, 1], and an interval."""

    value: float
    lower: float
    upper: float


def cramers_v(
    table: NoisyTable,
    shape: tuple[int, ...],
    levels: int,
    level: float,
    seed: np.random.SeedSequence,
) -> Association:
    """Estimate Cramér's V of a table of two columns, with an interval of confidence 1 - level.

    ``levels`` is the smaller number of listed levels, at least 2.
    """
    shares = table.counts / table.units
    own = float(_phi_squared(shares, shape, table))
    line = _line(shares, shape)
    kept = []
    for (probabilities, value), child in zip(line, seed.spawn(len(line)), strict=True):
        rng = np.random.default_rng(child)
        drawn = _phi_squared(simulate(table, probabilities, rng, DRAWS), shape, table)
        below, above = 1 + int(np.sum(drawn <= own)), 1 + int(np.sum(drawn >= own))
        kept.append((value, 2 * min(below, above) > level * (DRAWS + 1), below > above))
    values = np.sqrt(np.array([value for value, _, _ in kept]) / (levels - 1))
    lower, upper = _ends(
        values, np.array([inside for _, inside, _ in kept]), [bool(strong) for _, _, strong in kept]
    )
    estimate = float(np.sqrt(min(1.0, max(0.0, own) / (levels - 1))))
    return Association(estimate, min(lower, estimate), max(upper, estimate))


def _phi_squared(shares: Floats, shape: tuple[int, ...], table: NoisyTable) -> Floats:
    """Estimate phi^2 of shares (..., k); a cell weighs at least a unit and a deviation of noise."""
    variance = table.noise_variance / table.units**2
    found = residuals(shares, shape, table.units, variance)
    floor = 1 / table.units + float(np.sqrt(variance))
    return np.asarray(np.sum((found.squared - found.explained) / np.maximum(found.fitted, floor), axis=-1))


def _line(shares: Floats, shape: tuple[int, ...]) -> list[tuple[Floats, float]]:
    """Return tables (k,) of growing dependence, each with its phi^2."""
    fitted = product(margins_of(shares, shape))
    direction = onto_simplex(shares) - fitted
    found = []
    for step in LINE:
        moved = np.maximum(fitted + step * direction, 0.0)
        moved /= moved.sum()
        found.append((moved, _exact_phi_squared(moved, shape)))
    return found


def _exact_phi_squared(probabilities: Floats, shape: tuple[int, ...]) -> float:
    rows = probabilities.reshape(shape)
    fitted = np.outer(rows.sum(axis=1), rows.sum(axis=0))
    return float(np.sum(np.divide((rows - fitted) ** 2, fitted, out=np.zeros(shape), where=fitted > 0)))


def _ends(values: Floats, inside: npt.NDArray[np.bool_], too_strong: list[bool]) -> tuple[float, float]:
    """Return the interval, reaching to the nearest tables that are outside on either side."""
    ordered = np.argsort(values, kind="stable")
    values, inside = values[ordered], inside[ordered]
    if not inside.any():
        # The estimate lies between two tables of the line: the last too weak one and the first too strong.
        strong = np.array(too_strong)[ordered]
        first = int(np.argmax(strong)) if strong.any() else len(values)
        return _at(values, first - 1, 0.0), _at(values, first, 1.0)
    first, last = int(np.argmax(inside)), len(inside) - 1 - int(np.argmax(inside[::-1]))
    lower = 0.0 if first == 0 else float(values[first - 1])
    return lower, _at(values, last + 1, 1.0)


def _at(values: Floats, place: int, beyond: float) -> float:
    return min(1.0, float(values[place])) if 0 <= place < len(values) else beyond
