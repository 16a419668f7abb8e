"""Studies of the kernel two-sample test and their verdicts, on tables in memory."""

from collections.abc import Sequence
from typing import Any

import made_studies
import numpy as np
import numpy.typing as npt
from made_studies import Codes, Floats, MemoryTable, NoNoise, SeededNoise, domain_of, made_study

from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult

__all__ = [
    "Codes",
    "Floats",
    "MemoryTable",
    "NoNoise",
    "SeededNoise",
    "domain_of",
    "numbers",
    "releases_of",
    "study_of",
    "verdict_of",
]


def study_of(
    domain: Domain,
    parameters: dict[str, Any],
    *,
    owners: int = 2,
    level: float = 0.01,
    seed: int = 1,
    **fields: Any,
) -> Study:
    """A study of owners o0, o1, ..., with made-up keys."""
    names = [f"o{i}" for i in range(owners)]
    return made_study("kernel_two_sample", domain, parameters, owners=names, level=level, seed=seed, **fields)


def releases_of(study: Study, tables: Sequence[MemoryTable], noise: Any) -> dict[str, Release]:
    """Every owner's checked release."""
    return made_studies.releases_of(KernelTwoSample(), study, tables, noise)


def verdict_of(study: Study, tables: Sequence[MemoryTable], noise: Any) -> TwoSampleResult:
    """The verdict on tables in memory."""
    return KernelTwoSample().assemble(study, releases_of(study, tables, noise))


def numbers(domain: Domain, numeric: npt.ArrayLike) -> MemoryTable:
    """A table of numeric columns; values are clipped to [0, 1]."""
    values = np.clip(np.asarray(numeric, dtype=np.float64), 0.0, 1.0)
    return MemoryTable(domain, values, np.zeros((len(values), 0), dtype=np.int32))
