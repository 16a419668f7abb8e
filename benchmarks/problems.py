"""Synthetic problems with public bounds: two samples, dependent pairs; and studies on rows in memory."""

import functools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from benchmarks.harness import Floats
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.mean_embedding import Locations
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.privacy.guarantee import Budget

DELTA, LEVEL = 1e-5, 0.01


def noise_of(rng: np.random.Generator) -> SimulatedNoise:
    """Return simulated noise, which protects nobody, with a seed of its own from a generator."""
    return SimulatedNoise(np.random.default_rng(int(rng.integers(2**63))))


def no_codes(rows: int) -> npt.NDArray[np.int32]:
    """Return the codes of no categorical column, (rows, 0)."""
    return np.zeros((rows, 0), dtype=np.int32)


def chunk_of(rows: Floats) -> EncodedChunk:
    """Return numeric rows in [0, 1], (n, D), as a table yields them; every row is a unit."""
    return EncodedChunk(rows, no_codes(len(rows)), None, len(rows))


def locations_of(rows: Floats) -> Locations:
    """Return numeric rows in [0, 1], (n, D), as kernels take them."""
    return Locations(rows, no_codes(len(rows)))


@dataclass(frozen=True)
class MemoryTable:
    """Encoded rows in memory, as a table."""

    domain: Domain
    chunk: EncodedChunk

    @property
    def units(self) -> int:
        """Number of units."""
        return self.chunk.units

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield all rows."""
        yield self.chunk


def numeric_domain(columns: int, bounds: tuple[float, float]) -> Domain:
    """Return so many numeric columns of the same bounds."""
    low, high = bounds
    return Domain(columns=tuple(NumericColumn(name=f"c{i}", lower=low, upper=high) for i in range(columns)))


def study_of(
    domain: Domain, parameters: Mapping[str, Any], *, epsilon: float, run: int, curated: bool = False
) -> Study:
    """Build the two-sample study of one run; its public seed is the run's number."""
    owners = tuple(
        Owner(name=name, key=digit * 64, data_set="rows") for name, digit in (("x", "0"), ("y", "1"))
    )
    return Study(
        title="benchmark",
        procedure="curated_two_sample" if curated else "kernel_two_sample",
        parameters=dict(parameters),
        domain=domain,
        owners=owners,
        curator=Party(name="curator", key="4" * 64) if curated else None,
        tester=Party(name="tester", key="2" * 64),
        analyst=Party(name="analyst", key="3" * 64),
        budget=Budget.of(epsilon, DELTA),
        level=LEVEL,
        created_at=0,
        deadline=1,
        seed=f"{run:032x}",
    )


def study_of_columns(
    columns: int, bounds: tuple[float, float], parameters: Mapping[str, Any], epsilon: float, run: int
) -> Study:
    """Build the study of one run on numeric columns."""
    return study_of(numeric_domain(columns, bounds), parameters, epsilon=epsilon, run=run)


@dataclass(frozen=True)
class Problem:
    """A pair of distributions with public bounds."""

    name: str
    bounds: tuple[float, float]
    columns: int

    @property
    def domain(self) -> Domain:
        """The study's columns."""
        if self.name != "Ties":
            return numeric_domain(self.columns, self.bounds)
        columns: list[Column] = [NumericColumn(name=f"c{i}", lower=0.0, upper=4.0) for i in range(3)]
        columns += [CategoricalColumn(name=f"l{i}", levels=("a", "b", "c")) for i in range(2)]
        return Domain(columns=tuple(columns))

    def draw(self, n: int, second: bool, rng: np.random.Generator) -> Floats:
        """Draw n rows of the first or the second distribution, (n, columns)."""
        if self.name == "Blobs":
            # 4 x 4 Gaussian blobs at distance 5; the second's have an eigenvalue 2 at 45 degrees.
            centres = 5.0 * rng.integers(0, 4, (n, 2))
            within = rng.standard_normal((n, 2))
            if second:
                within[:, 0] *= np.sqrt(2.0)
                within = within @ (np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2.0))
            return np.asarray(centres + within)
        if self.name == "Heavy":
            return rng.standard_t(2, (n, self.columns))
        x = rng.standard_normal((n, self.columns))
        if second and self.name.startswith("GMD"):
            x[:, 0] += 1.0
        elif second and self.name == "GVD":
            x[:, 0] *= np.sqrt(2.0)
        elif second and self.name.startswith("Interaction"):
            # The same marginals; columns 0 and 1 have correlation 0.7.
            x[:, 1] = 0.7 * x[:, 0] + np.sqrt(1 - 0.49) * x[:, 1]
        return x

    def table(self, n: int, second: bool, rng: np.random.Generator) -> MemoryTable:
        """Draw n encoded rows; of the second side of Unequal, ten times as many."""
        if self.name == "Unequal" and second:
            n = 10 * n
        if self.name == "Ties":
            counts = np.minimum(rng.poisson(1.0, (n, 3)), 4) / 4
            codes = rng.choice(3, (n, 2), p=(0.7, 0.2, 0.1)).astype(np.int32)
            return MemoryTable(self.domain, EncodedChunk(counts, codes, None, n))
        low, high = self.bounds
        rows = np.clip((self.draw(n, second, rng) - low) / (high - low), 0.0, 1.0)
        return MemoryTable(self.domain, chunk_of(rows))


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("SG", (-5.0, 5.0), 50),
        Problem("GMD", (-5.0, 5.0), 50),
        Problem("GVD", (-5.0, 5.0), 50),
        Problem("SG100", (-5.0, 5.0), 100),
        Problem("GMD100", (-5.0, 5.0), 100),
        Problem("Blobs", (-5.0, 20.0), 2),
        Problem("Interaction", (-5.0, 5.0), 5),
        Problem("Interaction50", (-5.0, 5.0), 50),
        Problem("Heavy", (-5.0, 5.0), 5),
        Problem("SG5", (-5.0, 5.0), 5),
        Problem("GMD5", (-5.0, 5.0), 5),
        Problem("Unequal", (-5.0, 5.0), 5),
        Problem("Ties", (0.0, 4.0), 3),
    )
}


Pair = tuple[Floats, Floats]

GRID = 1000
"""Quantiles of each of the two uniform numbers that a law is made of, for its exact distance covariance."""


def dependent(law: str, x: Floats, z: Floats, spread: float | None = None) -> Floats:
    """Return y in [0, 1], (n,), which depends on x, of a normal z: its noise has the deviation ``spread``.

    By default that of linear and quadratic gives the distance covariances of the methods reference's table,
    .0340 and .0109.
    """
    middle, default = (x, 0.17) if law == "linear" else ((2 * x - 1) ** 2, 0.03)
    return np.clip(middle + (spread or default) * z, 0, 1)


def pair_of(law: str, u: Floats, v: Floats) -> Pair:
    """Return two columns, of two independent uniform numbers, (n,) each."""
    if law == "independent":
        return u, v
    if law == "circular":
        y = 0.5 + 0.5 * np.sin(2 * np.pi * u) + 0.05 * ndtri(v)
        return 0.5 + 0.5 * np.cos(2 * np.pi * u), np.clip(y, 0, 1)
    return u, dependent(law, u, ndtri(v))


def generator(name: str, n: int, run: int) -> np.random.Generator:
    """Return the generator of a run's data: the same for every method."""
    return np.random.default_rng([run, n, zlib.crc32(name.encode())])


def draw(law: str, n: int, run: int) -> Pair:
    """Draw n rows."""
    rng = generator(law, n, run)
    return pair_of(law, rng.random(n), 1 - rng.random(n))


def quantiles(count: int) -> Pair:
    """Return quantiles of two independent uniform numbers, every pair of them."""
    middles = (np.arange(count) + 0.5) / count
    return np.repeat(middles, count), np.tile(middles, count)


@functools.cache
def population_value(law: str) -> float:
    """Return the law's squared distance covariance, to about 1e-5: that of a grid of its quantiles."""
    return 0.0 if law == "independent" else distance_covariance_sqr(*pair_of(law, *quantiles(GRID)), "biased")


def kept_covariance_sqr(x: Floats, y: Floats, per_direction: int) -> float:
    """Return the unbiased squared distance covariance of two columns in [0, 1] in the leading frequencies.

    4 times the unbiased HSIC with the kernels f'f, f the Brownian features: what the sketch estimates on
    these rows. O(n r^2).
    """
    features = BrownianFeatures(np.ones((1, 1)), per_direction)
    f, g = (features(chunk_of(column[:, None])) for column in (x, y))
    n = len(x)
    own_f, own_g = np.sum(f * f, axis=1), np.sum(g * g, axis=1)
    rows_f, rows_g = f @ f.sum(axis=0) - own_f, g @ g.sum(axis=0) - own_g
    products = float(np.sum((f.T @ g) ** 2) - own_f @ own_g)
    totals = float(rows_f.sum() * rows_g.sum()) / ((n - 1) * (n - 2))
    return 4 * (products + totals - 2 * float(rows_f @ rows_g) / (n - 2)) / (n * (n - 3))


def without_dependence(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any, list[Any]]:
    """Return two owners' independent columns, and their public bounds."""
    if kind == "uniform":
        return rng.random(n), rng.random(n), [(0, 1), (0, 1)]
    if kind == "skewed":
        return rng.beta(0.3, 4, n), rng.beta(0.3, 4, n), [(0, 1), (0, 1)]
    if kind == "ties":
        counts = np.minimum(rng.poisson(1.0, (2, n)), 4).astype(np.float64)
        return counts[0], counts[1], [(0, 4), (0, 4)]
    if kind == "vectors":
        # Correlated within each owner, and heavy-tailed.
        x, y = (rng.standard_t(3, (n, columns)) + rng.standard_t(3, (n, 1)) for columns in (3, 2))
        return np.clip(x, -8, 8), np.clip(y, -8, 8), [(-8, 8), (-8, 8)]
    levels = ["a", "b", "c"]
    labels = np.array(levels, dtype=object)[rng.choice(3, n, p=(0.7, 0.25, 0.05))]
    return labels, rng.random(n), [levels, (0, 1)]


KINDS = ("uniform", "skewed", "ties", "vectors", "categories")
