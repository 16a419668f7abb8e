"""Cramér's V of two columns from a noisy table, with an interval that counts sampling and noise.

V^2 = phi^2/(levels - 1), phi^2 = sum (p_i - m_i)^2/m_i, p the distribution of the units whose values in both
columns are listed, m the product of its margins; the levels are those of the column with fewer. Cells for
unlisted and missing values, which are often nearly empty, would add noise over tiny margins and nothing else.
The estimate subtracts what sampling and noise add to each squared residual. The interval inverts tests: along
lines of tables from independence through the table itself and beyond, it keeps those whose simulated
estimates do not put the one at hand into either tail of level/2, and looks closer for where they end. So it
needs no normal law, and knows that an estimate near 0 says "at most".

Margins are known through noise alone, and a rare level's may be projected to nothing: there is a line with
the projected margins, and one with margins of a deviation of their noise at least. A table's own phi^2 makes
much of noise in its rarest cells, and phi^2 with floored denominators misses what truly rare ones hold: the
lower end is the smaller of the two, the upper end the larger.
docs/mathematics/categorical.md; its coverage is measured in docs/benchmarks/categorical.md.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.contingency import margins_of, product, residuals
from tacit_protocol.statistics.noisy_tables import NoisyTable, onto_simplex

Floats = npt.NDArray[np.float64]

DRAWS = 399
"""Simulated estimates at each table of a line: tail probabilities to .01."""

LINE = (*np.linspace(0, 1, 11).tolist(), 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Tables of a line: 0 is independence, 1 the projected table."""

HALVINGS = 4
"""How often the step of the line in which the interval ends is halved, at either end."""

TABLES_MAX = 2 * (len(LINE) + 2 * HALVINGS)
"""Most tables at which estimates are simulated."""


@dataclass(frozen=True)
class Association:
    """Cramér's V in [0, 1], and an interval."""

    value: float
    lower: float
    upper: float


def cramers_v(
    table: NoisyTable,
    shape: tuple[int, int],
    listed: tuple[int, int],
    level: float,
    seed: np.random.SeedSequence,
) -> Association:
    """Estimate Cramér's V of a table of two columns, with an interval of confidence 1 - level.

    ``listed`` is how many of each column's cells count, the first ones; where a column lists fewer than two
    levels, all cells of both do.
    """
    listed = listed if min(listed) > 1 else shape
    own = _ListedCells(table, shape, listed)
    estimate = float(own.phi_squared(own.shares))
    ends = [
        _ends(own, margins, estimate, level, np.random.default_rng(child))
        for margins, child in zip(own.margins, seed.spawn(2), strict=True)
    ]
    value, lower, upper = (
        math.sqrt(min(1.0, max(0.0, squared) / (min(listed) - 1)))
        for squared in (estimate, min(low for low, _ in ends), max(high for _, high in ends))
    )
    return Association(value, min(lower, value), max(upper, value))


class _ListedCells:
    """The listed cells of a noisy table: estimates of phi^2, and tables like it.

    ``shares`` (k,) are noisy shares of all units.
    """

    def __init__(self, table: NoisyTable, shape: tuple[int, int], listed: tuple[int, int]) -> None:
        self._table, self.shape = table, listed
        places = np.indices(shape).reshape(2, -1)
        self._kept = (places[0] < listed[0]) & (places[1] < listed[1])
        self.shares = table.counts[self._kept] / table.units
        self._variance = table.noise_variance / table.units**2
        self._least = 1 / table.units + math.sqrt(self.shares.size * self._variance)
        part = max(float(self.shares.sum()), self._least)
        self._part, within = min(part, 1.0), self.shares / part
        self._direction = onto_simplex(within) - product(margins_of(within, listed))
        self._floor = (1 / table.units + math.sqrt(self._variance)) / self._part

    @property
    def margins(self) -> tuple[list[Floats], list[Floats]]:
        """The projected margins, and the same with a deviation of their noise at least."""
        found = margins_of(self.shares / max(float(self.shares.sum()), self._least), self.shape)
        spread = [math.sqrt(self._variance * size) / self._part for size in reversed(self.shape)]
        raised = [np.maximum(margin, least) for margin, least in zip(found, spread, strict=True)]
        return found, [margin / margin.sum() for margin in raised]

    def phi_squared(self, shares: Floats) -> Floats:
        """Estimate phi^2 of the listed units from shares (..., k) of all units.

        A cell weighs at least a unit and a deviation of noise.
        """
        part = np.maximum(shares.sum(axis=-1, keepdims=True), self._least)
        units, variance = self._table.units * part, self._variance / part**2
        found = residuals(shares / part, self.shape, units, variance)
        floor = 1 / units + np.sqrt(variance)
        return np.asarray(
            np.sum((found.squared - found.explained) / np.maximum(found.fitted, floor), axis=-1)
        )

    def at(self, margins: list[Floats], step: float) -> Floats:
        """Return the table so far along the line from independence with these margins, (k,)."""
        moved = np.maximum(product(margins) + step * self._direction, 0.0)
        return np.asarray(moved / moved.sum())

    def labels(self, probabilities: Floats) -> tuple[float, float]:
        """Return a table's phi^2, with floored denominators and as it is."""
        rows = probabilities.reshape(self.shape)
        fitted = np.outer(rows.sum(axis=1), rows.sum(axis=0))
        squared = (rows - fitted) ** 2
        exact = np.divide(squared, fitted, out=np.zeros_like(fitted), where=fitted > 0)
        return float(np.sum(squared / np.maximum(fitted, self._floor))), float(np.sum(exact))

    def simulate(self, probabilities: Floats, rng: np.random.Generator) -> Floats:
        """Draw noisy shares of as many units, (DRAWS, k), of which as many are listed as here."""
        everything = np.append(probabilities * self._part, max(0.0, 1 - self._part))
        drawn = rng.multinomial(self._table.units, everything / everything.sum(), size=DRAWS)[:, :-1]
        noise = self._table.draw_noise(rng, DRAWS)[:, self._kept]
        return np.asarray((drawn + noise) / self._table.units)


def _ends(
    own: _ListedCells, margins: list[Floats], estimate: float, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the smallest and the largest phi^2 that one line's tests do not reject."""

    def tail(step: float) -> tuple[bool, bool]:
        """Say whether a table is kept, and whether it is too strong where it is not."""
        drawn = own.phi_squared(own.simulate(own.at(margins, step), rng))
        below, above = 1 + int(np.sum(drawn <= estimate)), 1 + int(np.sum(drawn >= estimate))
        return 2 * min(below, above) > level * (DRAWS + 1), below < above

    def outside(inner: float, outer: float) -> float:
        """Return a step that is not kept, nearer to one that is."""
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if tail(middle)[0] else (inner, middle)
        return outer

    found = [tail(step) for step in LINE]
    kept = [place for place, (inside, _) in enumerate(found) if inside]
    if kept:
        first, last = kept[0], kept[-1]
        low = LINE[first] if first == 0 else outside(LINE[first], LINE[first - 1])
        high = None if last + 1 == len(LINE) else outside(LINE[last], LINE[last + 1])
    else:
        # The estimate lies between two tables of the line: the last too weak one and the first too strong.
        strong = next((place for place, (_, strong) in enumerate(found) if strong), len(LINE))
        low = LINE[max(0, strong - 1)]
        high = LINE[strong] if strong < len(LINE) else None
    largest = math.inf if high is None else max(own.labels(own.at(margins, high)))
    # Independence itself has phi^2 = 0, whatever its computed margins say.
    return 0.0 if low == 0 else min(own.labels(own.at(margins, low))), largest
