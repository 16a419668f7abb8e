"""How many frequencies, on which interval, for several columns a side: error and power of the sketch.

    python -m benchmarks.p4_frequencies

Laws are real data sets or drawn rows, of which every covariance of features is known; the error is that of
the law of the estimate's variance, and of what is left out; power is of the procedure's test on normal
buckets and on covariances with their noise. Nothing is private here.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import options, table, write_page
from benchmarks.p4_data import Floats, Halves, exact, read
from benchmarks.problems import chunk_of
from tacit_protocol.features.brownian import BrownianFeatures, crowded_half_width, random_directions
from tacit_protocol.features.moments import DIAGONAL
from tacit_protocol.features.sketches import SKETCH, SketchRelease
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.distance_correlation.release import (
    DistanceCorrelationParameters,
    DistanceCorrelationPlan,
    aimed,
)
from tacit_protocol.procedures.distance_correlation.statistic import Permutations, Side, permutation_test

DELTA, LEVEL = 1e-5, 0.05
ROWS, DRAWS, RUNS, PERMUTATIONS = 3000, 4, 60, 99
"""Rows of a law at most, draws of directions, runs of a power and permutations of each."""

SETTINGS = (
    (100, 10.0),
    (1000, 1.0),
    (1000, 10.0),
    (5000, 1.0),
    (5000, 10.0),
    (20_000, 1.0),
    (20_000, 10.0),
)
POWER_SETTINGS = ((100, 10.0), (1000, 10.0), (5000, 1.0), (5000, 10.0), (20_000, 1.0))
"""At the others every choice has power near the level, or near 1."""

CHOICES = (("whole", 2), ("whole", 4), ("crowded", 1), ("crowded", 2), ("crowded", 4), ("crowded", 8))
REAL = ("parkinsons", "wine", "boston", "bike", "skillcraft", "naval", "music")
DRAWN = (1, 2, 3, 5)
NOISE = 0.5
"""Deviation of what is added to every drawn column."""


@dataclass(frozen=True)
class Moments:
    """Covariances of one choice's features, and how both sides release them."""

    columns: tuple[int, int]
    sketches: tuple[SketchRelease, SketchRelease]
    own: tuple[Floats, Floats]
    cross: Floats

    @property
    def kept(self) -> float:
        """The squared distance covariance in the frequencies kept."""
        return 4 * float(np.sum(self.cross**2))


@functools.cache
def law(name: str) -> Halves:
    """Read or draw a law's rows."""
    rng = np.random.default_rng(1)
    if name in REAL:
        halves = read(name)
        chosen = rng.permutation(halves.units)[:ROWS]
        return Halves(halves.x[chosen], halves.y[chosen])
    x = rng.random((ROWS, int(name.rsplit(maxsplit=1)[-1])))
    return Halves(x, np.clip(x + NOISE * rng.standard_normal(x.shape), 0, 1))


@functools.cache
def exact_of(name: str) -> float:
    """Return the law's squared distance covariance."""
    return exact(law(name)).covariance


@functools.cache
def moments(name: str, placement: str, count: int, draw: int) -> Moments:
    """Compute the covariances of features; directions of one draw are the same for every choice."""
    rng, sketches, values = np.random.default_rng([2, draw]), [], []
    for side in (law(name).x, law(name).y):
        columns = side.shape[1]
        directions = np.ones((1, 1)) if columns == 1 else random_directions(columns, aimed(columns), rng)
        half_width = crowded_half_width(columns) if placement == "crowded" else None
        features = BrownianFeatures(directions, count, half_width=half_width)
        found = features(chunk_of(side))
        sketches.append(SketchRelease(features))
        values.append(found - found.mean(axis=0))
    f, g = values
    own = (f.T @ f / len(f), g.T @ g / len(g))
    columns = (law(name).x.shape[1], law(name).y.shape[1])
    return Moments(columns, (sketches[0], sketches[1]), own, f.T @ g / len(f))


@dataclass(frozen=True)
class Released:
    """The law of what a tester reads at so many units: buckets' covariances, and the noise on moments."""

    buckets: int
    units: int
    noises: tuple[float, float]
    moment_noises: tuple[float, float]
    own: tuple[Floats, Floats]
    cross: Floats

    @classmethod
    def of(cls, found: Moments, units: int, epsilon: float) -> "Released":
        """Lay both releases out as the procedure does."""
        plan = DistanceCorrelationPlan(
            DistanceCorrelationParameters(),
            found.columns,
            found.sketches,
            (),
            gaussian_guarantee(Budget.of(epsilon, DELTA)),
        )
        design, noises, moment_noises = plan.design(units), [], []
        for side in (0, 1):
            scales = {part.name: part.scale(plan.mu) for part in plan.layout(side, units)}
            noises.append(scales[SKETCH] / math.sqrt(design.bucket_units))
            moment_noises.append(scales[DIAGONAL] / units)
        return cls(
            design.buckets,
            units,
            (noises[0], noises[1]),
            (moment_noises[0], moment_noises[1]),
            found.own,
            found.cross,
        )

    def spreads(self) -> list[Floats]:
        """Return both covariances of a bucket."""
        return [own + noise**2 * np.eye(len(own)) for own, noise in zip(self.own, self.noises, strict=True)]

    def deviation(self) -> float:
        """Return the standard deviation of the estimate, by the law of its variance."""
        a, b = self.spreads()
        pair = float(np.sum(a * a) * np.sum(b * b))
        single = float(np.sum((a @ self.cross @ b) * self.cross) + np.sum((self.cross.T @ self.cross) ** 2))
        return 4 * math.sqrt(4 * single / self.buckets + 2 * pair / self.buckets**2)

    def power(self, runs: int) -> float:
        """Return how often the test rejects."""
        a, b = self.spreads()
        joint, rejected = np.block([[a, self.cross], [self.cross.T, b]]), 0
        values, vectors = np.linalg.eigh(joint)
        root = vectors * np.sqrt(np.maximum(values, 0))
        for run in range(runs):
            rng = np.random.default_rng(run)
            drawn = rng.standard_normal((self.buckets, len(joint))) @ root.T
            sides = [
                Side(
                    *(part, noise, own + _symmetric(len(own), scale, rng), scale),
                    *(1.0, 0.0, self.units, np.zeros(len(own)), 0.0),
                )
                for part, noise, own, scale in zip(
                    (drawn[:, : len(a)], drawn[:, len(a) :]),
                    self.noises,
                    self.own,
                    self.moment_noises,
                    strict=True,
                )
            ]
            rejected += permutation_test(sides[0], sides[1], Permutations(PERMUTATIONS, rng)).pvalue <= LEVEL
        return rejected / runs


def _symmetric(size: int, scale: float, rng: np.random.Generator) -> Floats:
    """Draw noise on a second moment: entries above the diagonal have half the variance."""
    noise = np.triu(rng.standard_normal((size, size)) * scale / math.sqrt(2), 1)
    return np.asarray(noise + noise.T + np.diag(rng.standard_normal(size) * scale))


def parts() -> dict[str, str]:
    """Compute everything and write the tables of the page."""
    names = [*REAL, *(f"drawn, {columns}" for columns in DRAWN)]
    kept: dict[str, dict[str, str]] = {}
    errors: dict[str, dict[str, str]] = {}
    powers: dict[str, dict[str, str]] = {}
    for name in names:
        for choice in CHOICES:
            label = "{}, {}".format(*choice)
            draws = [moments(name, *choice, draw) for draw in range(DRAWS)]
            parts = np.array([found.kept for found in draws]) / exact_of(name)
            kept.setdefault(name, {})[label] = f"{parts.mean():.2f} ({parts.std(ddof=1):.2f})"
            for units, epsilon in SETTINGS:
                row = f"{name}, n={units}, ε={epsilon:g}"
                laws = [Released.of(found, units, epsilon) for found in draws]
                spread = np.array([found.deviation() for found in laws]) / exact_of(name)
                errors.setdefault(row, {})[label] = f"{math.sqrt(np.mean(spread**2 + (parts - 1) ** 2)):.2g}"
                if name not in REAL and (units, epsilon) in POWER_SETTINGS:
                    powers.setdefault(row, {})[label] = f"{laws[0].power(RUNS):.2f}"
        print(name, flush=True)
    return {
        "kept": table(kept, "law"),
        "error": table(errors, "law, units, epsilon"),
        "power": table(powers, "law, units, epsilon"),
    }


if __name__ == "__main__":
    write_page("p4-frequencies", parts(), options(__doc__).folder)
