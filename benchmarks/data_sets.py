"""The data sets of P0's experiments, and pure interactions; all with the public bounds a user would state."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Sample = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A pair of distributions: ``draw(n, second, rng)`` gives (n, columns) of the first or the second."""

    name: str
    bounds: tuple[float, float]
    columns: int

    def draw(self, n: int, second: bool, rng: np.random.Generator) -> Sample:
        """Draw n rows."""
        return _DRAWS[self.name](n, self.columns, second, rng)


def _same_gaussian(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    return rng.standard_normal((n, columns))


def _mean_difference(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    x = rng.standard_normal((n, columns))
    x[:, 0] += 1.0 if second else 0.0
    return x


def _variance_difference(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    x = rng.standard_normal((n, columns))
    x[:, 0] *= np.sqrt(2.0) if second else 1.0
    return x


def _blobs(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    """4 x 4 Gaussian blobs at distance 5; the second's have an eigenvalue 2 at 45 degrees."""
    centres = 5.0 * rng.integers(0, 4, (n, 2))
    within = rng.standard_normal((n, 2))
    if second:
        within[:, 0] *= np.sqrt(2.0)
        within = within @ (np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2.0))
    return np.asarray(centres + within)


def _interaction(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    """Draw standard normal columns; in the second, columns 0 and 1 have correlation 0.7. Same marginals."""
    x = rng.standard_normal((n, columns))
    if second:
        x[:, 1] = 0.7 * x[:, 0] + np.sqrt(1 - 0.49) * x[:, 1]
    return x


def _heavy_tails(n: int, columns: int, second: bool, rng: np.random.Generator) -> Sample:
    """Student t with 2 degrees, equal in both: for the level."""
    return rng.standard_t(2, (n, columns))


_DRAWS = {
    "SG": _same_gaussian,
    "GMD": _mean_difference,
    "GVD": _variance_difference,
    "Blobs": _blobs,
    "Interaction": _interaction,
    "Interaction50": _interaction,
    "Heavy": _heavy_tails,
}

PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("SG", (-5.0, 5.0), 50),
        Problem("GMD", (-5.0, 5.0), 50),
        Problem("GVD", (-5.0, 5.0), 50),
        Problem("Blobs", (-5.0, 20.0), 2),
        Problem("Interaction", (-5.0, 5.0), 5),
        Problem("Interaction50", (-5.0, 5.0), 50),
        Problem("Heavy", (-5.0, 5.0), 5),
    )
}
