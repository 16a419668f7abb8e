"""The eight data sets of P4's experiments, each cut into two owners' columns, with their exact values."""

import csv
import functools
import gzip
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

Floats = npt.NDArray[np.float64]

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Beside the project's folder; not part of it."""

MISSING = ("", "NA")

BOUND_PERCENTILES = (0.5, 99.5)
"""Columns are clipped to these percentiles, which stand in for the public bounds that these data lack."""

BLOCK_ROWS = 512


@dataclass(frozen=True)
class DataSet:
    """A file, and its columns that are no measurements."""

    file: str
    left_out: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the file is looked for."""
        return FOLDER / self.file


DATA_SETS = {
    "parkinsons": DataSet("parkinsons_telemonitoring.csv", ("subject",)),
    "wine": DataSet("wine_white.csv"),
    "boston": DataSet("boston_housing.csv"),
    "bike": DataSet("seoul_bike.csv", ("date", "season", "holiday", "functioning_day")),
    "skillcraft": DataSet("skillcraft1.csv", ("GameID",)),
    "naval": DataSet("naval_propulsion.csv.gz"),
    "music": DataSet("music_origin.csv.gz"),
    "madelon": DataSet("madelon.csv.gz", ("split", "label")),
}


@dataclass(frozen=True)
class Halves:
    """Two owners' columns, (n, p) and (n, q), in [0, 1]."""

    x: Floats
    y: Floats

    @property
    def units(self) -> int:
        """Number of rows, each taken as a unit."""
        return len(self.x)


@functools.cache
def read(name: str) -> Halves:
    """Read complete rows, scale every column to [0, 1], and cut the columns into halves.

    Raises FileNotFoundError where the data are not there.
    """
    data_set = DATA_SETS[name]
    raw = data_set.path.read_bytes()
    text = (gzip.decompress(raw) if data_set.path.suffix == ".gz" else raw).decode("ascii")
    header, *lines = csv.reader(text.splitlines())
    used = [place for place, column in enumerate(header) if column not in data_set.left_out]
    cells = [[row[place] for place in used] for row in lines]
    complete = [row for row in cells if not any(cell in MISSING for cell in row)]
    values = np.array(complete, dtype=np.float64)
    low, high = np.percentile(values, BOUND_PERCENTILES, axis=0)
    varies = high > low
    scaled = np.clip((values[:, varies] - low[varies]) / (high - low)[varies], 0.0, 1.0)
    middle = scaled.shape[1] // 2
    return Halves(scaled[:, :middle], scaled[:, middle:])


@dataclass(frozen=True)
class Exact:
    """Without privacy, of distances over the public diameter: unbiased and V-statistics, squared."""

    covariance: float
    variances: tuple[float, float]
    covariance_biased: float
    variances_biased: tuple[float, float]

    @property
    def correlation(self) -> float:
        """The distance correlation, from unbiased parts."""
        return _root(self.covariance, self.variances)

    @property
    def correlation_biased(self) -> float:
        """The distance correlation of Szekely, Rizzo and Bakirov, from V-statistics."""
        return _root(self.covariance_biased, self.variances_biased)


def _root(covariance: float, variances: tuple[float, float]) -> float:
    return math.sqrt(max(0.0, covariance) / math.sqrt(variances[0] * variances[1]))


def exact(halves: Halves) -> Exact:
    """Compare all pairs of rows, block by block: O(n^2 (p + q)) time, little memory."""
    x, y = (side / math.sqrt(side.shape[1]) for side in (halves.x, halves.y))
    n = len(x)
    rows = np.zeros((2, n))
    products = np.zeros(3)
    for start in range(0, n, BLOCK_ROWS):
        part = slice(start, min(start + BLOCK_ROWS, n))
        a, b = cdist(x[part], x), cdist(y[part], y)
        rows[0, part], rows[1, part] = a.sum(axis=1), b.sum(axis=1)
        products += np.array([np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)])
    pairs = ((0, 1), (0, 0), (1, 1))
    unbiased, biased = [], []
    for total, (first, second) in zip(products, pairs, strict=True):
        crossed, sums = float(rows[first] @ rows[second]), float(rows[first].sum() * rows[second].sum())
        unbiased.append((total - 2 * crossed / (n - 2) + sums / ((n - 1) * (n - 2))) / (n * (n - 3)))
        biased.append(total / n**2 - 2 * crossed / n**3 + sums / n**4)
    return Exact(
        float(unbiased[0]),
        (float(unbiased[1]), float(unbiased[2])),
        float(biased[0]),
        (float(biased[1]), float(biased[2])),
    )
