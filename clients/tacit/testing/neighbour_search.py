"""Adversarial search for the neighbours that a feature map tells apart most.

Replacing one privacy unit replaces its contribution, the average of its rows' features. ``largest_change``
looks for the two units whose contributions lie farthest apart (or whose outer products do, or for the longest
contribution) over the whole domain. It is what stands between a wrong constant and a release: a bound that
the search passes is false.

The search is seeded and bounded in the number of rows it evaluates, so it gives the same answer on every run.
It starts from random rows, the domain's corners, its middle and rows handed in (test locations), takes the
pairs that lie farthest apart, and climbs: each numeric value over a grid, each category by enumeration, then
all numeric values together by L-BFGS-B with the map's derivatives by finite differences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Matrix = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Objective = Literal["movement", "absolute movement", "second moment", "norm"]

GRID = np.linspace(0.0, 1.0, 33)
"""Values tried for one numeric value at a time: both bounds, and steps finer than six cycles."""

STEP = 1e-6
"""Of finite differences: their error, about 1e-10, is far below what the climb needs."""


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows: numbers (rows, numeric columns) in [0, 1], and codes (rows, categorical columns)."""

    numeric: Matrix
    categorical: Codes

    def __len__(self) -> int:
        return len(self.numeric)

    def take(self, indices: npt.NDArray[np.int64] | slice) -> "EncodedRows":
        """Return some of the rows."""
        return EncodedRows(self.numeric[indices], self.categorical[indices])


Features = Callable[[EncodedRows], Matrix]


@dataclass(frozen=True)
class Space:
    """The domain: how many numeric columns, and how many categories each other column has."""

    numeric: int
    categories: tuple[int, ...] = ()

    def random(self, rng: np.random.Generator, count: int) -> EncodedRows:
        """Return random rows."""
        codes = [rng.integers(0, c, count, dtype=np.int32) for c in self.categories]
        return EncodedRows(rng.random((count, self.numeric)), _columns(codes, count))

    def corners(self, rng: np.random.Generator, count: int) -> EncodedRows:
        """Random corners, with the two extreme ones and the middle first."""
        rows = self.random(rng, count)
        numeric = rng.integers(0, 2, (count, self.numeric)).astype(np.float64)
        numeric[:3] = [[0.0], [1.0], [0.5]]
        return EncodedRows(numeric, rows.categorical)


@dataclass(frozen=True)
class Effort:
    """How hard to search. The default takes about half a second for a map of ten coordinates."""

    candidates: int = 400
    climbs: int = 6
    sweeps: int = 3


@dataclass(frozen=True)
class LargestChange:
    """The largest value found, with the two units (each a set of rows) that reach it."""

    value: float
    unit: EncodedRows
    other: EncodedRows


def largest_change(
    features: Features,
    space: Space,
    objective: Objective = "movement",
    *,
    seed: int = 0,
    rows_per_unit: int = 1,
    anchors: EncodedRows | None = None,
    effort: Effort | None = None,
) -> LargestChange:
    """Return the largest value of ``objective`` found over pairs of units of ``rows_per_unit`` rows.

    ``movement`` is |f - g|, ``absolute movement`` the same in L1 norm, ``second moment`` is |ff' - gg'| in
    Frobenius norm, ``norm`` is |f|, with f and g the averages of the features of the two units' rows.
    """
    effort = effort or Effort()
    rng = np.random.default_rng(seed)
    pool = _pool(space, rng, effort.candidates, anchors)
    best: LargestChange | None = None
    for rows in _starts(features, pool, objective, rng, climbs=effort.climbs, per_unit=rows_per_unit):
        found = _Climb(features, space, objective, rows, rows_per_unit).run(effort.sweeps)
        if best is None or found.value > best.value:
            best = found
    if best is None:
        raise ValueError("a search has at least one climb")
    return best


def contribution_change(f: Matrix, g: Matrix, objective: Objective) -> Matrix:
    """Return the objective for pairs of contributions, (..., J) each."""
    if objective == "norm":
        return np.asarray(np.linalg.norm(f, axis=-1) + 0 * g[..., 0])
    if objective == "movement":
        return np.asarray(np.linalg.norm(f - g, axis=-1))
    if objective == "absolute movement":
        return np.asarray(np.abs(f - g).sum(axis=-1))
    squared = (f * f).sum(-1) ** 2 + (g * g).sum(-1) ** 2 - 2 * (f * g).sum(-1) ** 2
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def _columns(codes: list[Codes], count: int) -> Codes:
    return np.stack(codes, axis=1) if codes else np.zeros((count, 0), dtype=np.int32)


def _pool(space: Space, rng: np.random.Generator, count: int, anchors: EncodedRows | None) -> EncodedRows:
    drawn = space.random(rng, count), space.corners(rng, count)
    parts = drawn if anchors is None else (anchors, *drawn)
    return EncodedRows(
        np.concatenate([p.numeric for p in parts]), np.concatenate([p.categorical for p in parts])
    )


def _starts(
    features: Features,
    pool: EncodedRows,
    objective: Objective,
    rng: np.random.Generator,
    *,
    climbs: int,
    per_unit: int,
) -> list[EncodedRows]:
    """Return pairs of units to climb from: the pool's farthest pairs, each row once, and a random one."""
    values = features(pool)
    changes = np.stack([contribution_change(values, value[None, :], objective) for value in values])
    starts, free = [], np.ones(len(pool), dtype=bool)
    for _ in range(climbs - 1):
        masked = np.where(free[:, None] & free[None, :], changes, -1.0)
        pair = np.unravel_index(int(np.argmax(masked)), masked.shape)
        free[list(pair)] = False
        starts.append(pool.take(np.repeat(np.array(pair), per_unit)))
    starts.append(pool.take(rng.integers(0, len(pool), 2 * per_unit)))
    if per_unit > 1:
        starts[1:] = [_loosened(start, pool, rng) for start in starts[1:]]
    return starts


def _loosened(start: EncodedRows, pool: EncodedRows, rng: np.random.Generator) -> EncodedRows:
    """Let every second row be another one: a climb could get stuck where a unit's rows are equal."""
    numeric, categorical = start.numeric.copy(), start.categorical.copy()
    other = pool.take(rng.integers(0, len(pool), len(start)))
    numeric[::2], categorical[::2] = other.numeric[::2], other.categorical[::2]
    return EncodedRows(numeric, categorical)


class _Climb:
    """Coordinate and gradient ascent from one pair of units, held as the 2 r rows of both."""

    def __init__(
        self, features: Features, space: Space, objective: Objective, rows: EncodedRows, per_unit: int
    ) -> None:
        self._features, self._space, self._objective = features, space, objective
        self._per_unit = per_unit
        self._numeric, self._categorical = rows.numeric.copy(), rows.categorical.copy()
        self._values = features(rows)

    def run(self, sweeps: int) -> LargestChange:
        before = -1.0
        for _ in range(sweeps):
            for row in range(2 * self._per_unit):
                self._climb_row(row)
            self._climb_together()
            if self.value <= before + 1e-9:
                break
            before = self.value
        r = self._per_unit
        rows = EncodedRows(self._numeric, self._categorical)
        return LargestChange(self.value, rows.take(slice(0, r)), rows.take(slice(r, 2 * r)))

    @property
    def value(self) -> float:
        return float(contribution_change(*self._units(self._values), self._objective))

    def _units(self, values: Matrix) -> tuple[Matrix, Matrix]:
        r = self._per_unit
        return values[:r].mean(axis=0), values[r:].mean(axis=0)

    def _climb_row(self, row: int) -> None:
        """Try every grid value and every category in each column of one row; keep what is better."""
        for column in range(self._space.numeric):
            numeric = np.repeat(self._numeric[row : row + 1], len(GRID), axis=0)
            numeric[:, column] = GRID
            self._keep_best(
                row, EncodedRows(numeric, np.repeat(self._categorical[row : row + 1], len(GRID), axis=0))
            )
        for column, categories in enumerate(self._space.categories):
            codes = np.repeat(self._categorical[row : row + 1], categories, axis=0)
            codes[:, column] = np.arange(categories)
            self._keep_best(
                row, EncodedRows(np.repeat(self._numeric[row : row + 1], categories, axis=0), codes)
            )

    def _keep_best(self, row: int, alternatives: EncodedRows) -> None:
        values = self._features(alternatives)
        f, g = self._units(self._values)
        moved = (values - self._values[row]) / self._per_unit
        if row < self._per_unit:
            changes = contribution_change(f + moved, g[None, :], self._objective)
        else:
            changes = contribution_change(f[None, :], g + moved, self._objective)
        best = int(np.argmax(changes))
        if changes[best] > self.value:
            self._numeric[row], self._categorical[row] = (
                alternatives.numeric[best],
                alternatives.categorical[best],
            )
            self._values[row] = values[best]

    def _climb_together(self) -> None:
        """L-BFGS-B over all numeric values of both units, from where the sweep ended."""
        if not self._space.numeric:
            return
        start = self._numeric.copy()
        result = minimize(
            self._loss_and_gradient,
            start.ravel(),
            jac=True,
            bounds=[(0.0, 1.0)] * start.size,
            method="L-BFGS-B",
            options={"maxiter": 40},
        )
        numeric = np.clip(result.x, 0.0, 1.0).reshape(start.shape)
        values = self._features(EncodedRows(numeric, self._categorical))
        if float(contribution_change(*self._units(values), self._objective)) > self.value:
            self._numeric, self._values = numeric, values

    def _loss_and_gradient(self, flat: Matrix) -> tuple[float, Matrix]:
        numeric = flat.reshape(self._numeric.shape)
        values, slopes = self._with_slopes(numeric)
        f, g = self._units(values)
        loss, towards_f, towards_g = _squared_loss(f, g, self._objective)
        r = self._per_unit
        gradient = np.concatenate([slopes[:r] @ towards_f, slopes[r:] @ towards_g]) / r
        return loss, gradient.ravel()

    def _with_slopes(self, numeric: Matrix) -> tuple[Matrix, Matrix]:
        """Features of the rows, (2 r, J), and their derivatives, (2 r, numeric columns, J)."""
        rows, columns = numeric.shape
        steps = np.where(numeric > 0.5, -STEP, STEP)
        moved = np.repeat(numeric[:, None, :], columns, axis=1)
        moved[:, np.arange(columns), np.arange(columns)] += steps
        every = np.concatenate([numeric, moved.reshape(-1, columns)])
        codes = np.concatenate([self._categorical, np.repeat(self._categorical, columns, axis=0)])
        values = self._features(EncodedRows(every, codes))
        here = values[:rows]
        slopes = (values[rows:].reshape(rows, columns, -1) - here[:, None, :]) / steps[:, :, None]
        return here, slopes


def _squared_loss(f: Matrix, g: Matrix, objective: Objective) -> tuple[float, Matrix, Matrix]:
    """Minus the squared objective, and its derivatives in f and g."""
    if objective == "norm":
        return -float(f @ f), -2 * f, 0 * g
    if objective == "movement":
        return -float((f - g) @ (f - g)), -2 * (f - g), 2 * (f - g)
    if objective == "absolute movement":
        return -float(np.abs(f - g).sum()), -np.sign(f - g), np.sign(f - g)
    loss = -float((f @ f) ** 2 + (g @ g) ** 2 - 2 * (f @ g) ** 2)
    return loss, -4 * (f @ f) * f + 4 * (f @ g) * g, -4 * (g @ g) * g + 4 * (f @ g) * f
