"""Studies that release numbers and test nothing, played in this process: noisy counts, and databases."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.database.released import ReleasedDatabase
from tacit.database.weights import columns_of
from tacit.in_process.runner import local_study, run
from tacit.in_process.samples import ArrayTable, domain_of, read_samples
from tacit.results import Result
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, Ridge, WhitenedMeanEmbedding
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named

BOUNDS = {"age": (0, 120), "ward": ["a", "b", "c"]}
UNITS = 2000


def patients(units: int = UNITS, seed: int = 1) -> dict[str, Any]:
    """Return made-up columns: a tenth of the ages are below their bound, and three wards."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(55, 15, units), 1, 119)
    age[: units // 10] = -1
    return {"age": age, "ward": rng.choice(["a", "b", "c"], units, p=[0.6, 0.3, 0.1])}


def played(
    procedure: str,
    samples: Mapping[str, Mapping[str, Any]],
    bounds: Mapping[str, Any] = BOUNDS,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    **parameters: Any,
) -> Result:
    """Play a study of ``samples`` by owner, and return its result with the releases."""
    import pandas as pd  # noqa: PLC0415 (slow to import)

    domain = domain_of(bounds, list(bounds))
    study = local_study(
        procedure, domain, list(samples), parameters, epsilon=epsilon, delta=delta, alpha=0.05, seed="0" * 32
    )
    tables = [
        ArrayTable.of(read_samples([pd.DataFrame(dict(sample))[list(bounds)]], None)[0], domain)
        for sample in samples.values()
    ]
    return run(procedure_named(procedure), study, tables, OpenDPNoise())


# Released databases with simulated noise, so that errors and levels can be measured with fixed seeds.

Floats = npt.NDArray[np.float64]

DOMAIN = Domain(columns=tuple(NumericColumn(name=f"x{i}", lower=0, upper=1) for i in (1, 2)))
POINTS = 25


def simulated_rows(rng: np.random.Generator, units: int, shift: float = 0.0) -> Floats:
    """Rows (units, 2) in the unit square, around its middle."""
    return np.asarray(np.clip(rng.normal(0.5 + shift, 0.15, (units, 2)), 0, 1))


@cache
def _features(points: int, seed: int, ridge: Ridge) -> WhitenedMeanEmbedding:
    numeric = np.random.default_rng(seed).random((points, 2))
    kernel = ProductKernel("gaussian", 0.3)
    return WhitenedMeanEmbedding(kernel, Locations(numeric, np.empty((points, 0), dtype=np.int32)), ridge)


def simulated_database(
    rows: Floats,
    mu: float,
    rng: np.random.Generator,
    *,
    seed: int = 1,
    points: int = POINTS,
    law: Literal["gaussian", "laplace"] = "gaussian",
    ridge: Ridge = "coarse",
    **fields: Any,
) -> ReleasedDatabase:
    """Release rows (units, 2) with noise of standard deviation sqrt 2 / (units mu), drawn from ``rng``."""
    features = _features(points, seed, ridge)
    kernel = ProductKernel("gaussian", 0.3)
    codes = np.empty((len(rows), 0), dtype=np.int32)
    noise = float(np.sqrt(2)) / (len(rows) * mu)
    drawn = rng.standard_normal(points) if law == "gaussian" else rng.laplace(0, np.sqrt(0.5), points)
    return ReleasedDatabase(
        domain=DOMAIN,
        points=columns_of(DOMAIN, features.locations),
        kernel=kernel,
        embedding=features(Locations(rows, codes)).mean(axis=0) + noise * drawn,
        noise=noise,
        noise_error=noise * float(np.sqrt(points)),
        units=len(rows),
        epsilon=1.0,
        delta=1e-6,
        method="simulated",
        warnings=(),
        noise_law=law,
        ridge=ridge,
        **fields,
    )
