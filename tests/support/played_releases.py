"""Studies that release numbers and test nothing, played in this process: noisy counts, and databases."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.in_process.runner import local_study, run
from tacit.in_process.samples import ArrayTable, domain_of, read_samples
from tacit.results import Result
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
