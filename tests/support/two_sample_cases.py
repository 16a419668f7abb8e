"""Studies, tables in memory and a seeded stand-in for privacy noise, for tests of two-sample statistics."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn
from tacit_protocol.messages.study import Owner, Party, Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import ProductBody, simulated_k_norm
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample, TwoSampleResult

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


class SeededNoise:
    """Rounded normal noise and discrete Laplace noise with a seed: repeatable, so for tests alone."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return values + np.rint(scale * self._rng.standard_normal(values.shape)).astype(np.int64)

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        drawn = self._rng.geometric(-math.expm1(-1 / scale), (2, len(values)))
        return np.asarray(values + drawn[0] - drawn[1])

    def k_norm(self, values: npt.NDArray[np.int64], scale: float, body: ProductBody) -> npt.NDArray[np.int64]:
        return simulated_k_norm(values, scale, body, self._rng)


class NoNoise:
    """Adds nothing: what a release holds is then the exact sums."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return values

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return values

    def k_norm(
        self,
        values: npt.NDArray[np.int64],
        scale: float,
        body: ProductBody,
    ) -> npt.NDArray[np.int64]:
        return values


@dataclass(frozen=True)
class MemoryTable:
    """Encoded rows in memory, cut into chunks of ``cuts`` units; ``unit`` (rows,) numbers their units."""

    domain: Domain
    numeric: Floats
    categorical: Codes
    unit: npt.NDArray[np.int64] | None = None
    cuts: Sequence[int] = ()
    declared: int | None = None
    order: npt.NDArray[np.int64] | None = None

    @property
    def units(self) -> int:
        if self.declared is not None:
            return self.declared
        return len(self.numeric) if self.unit is None else len(np.unique(self.unit))

    def chunks(self) -> Iterator[EncodedChunk]:
        unit = np.arange(len(self.numeric)) if self.unit is None else self.unit
        names = np.unique(unit)
        ends = [*self.cuts, len(names)]
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            rows = np.flatnonzero(np.isin(unit, names[start:stop]))
            if self.order is not None:
                rows = self.order[np.isin(self.order, rows)]
            owners = None if self.unit is None else np.searchsorted(names[start:stop], unit[rows])
            yield EncodedChunk(self.numeric[rows], self.categorical[rows], owners, stop - start)


def domain_of(numeric: int, categories: Sequence[int] = ()) -> Domain:
    """Numeric columns n0, n1, ... on [0, 1] and categorical ones c0, c1, ... with so many categories."""
    columns: list[Column] = [NumericColumn(name=f"n{i}", lower=0.0, upper=1.0) for i in range(numeric)]
    columns += [
        CategoricalColumn(name=f"c{i}", levels=tuple(f"l{j}" for j in range(count - 2)))
        for i, count in enumerate(categories)
    ]
    return Domain(columns=tuple(columns))


def study_of(
    domain: Domain,
    parameters: dict[str, Any],
    *,
    owners: int = 2,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    level: float = 0.01,
    seed: int = 1,
) -> Study:
    """A study of owners o0, o1, ..., with made-up keys."""
    return Study(
        title="One population?",
        procedure="kernel_two_sample",
        parameters=parameters,
        domain=domain,
        owners=tuple(Owner(name=f"o{i}", key=f"{i:064x}", data_set="rows") for i in range(owners)),
        tester=Party(name="tester", key="a" * 64),
        analyst=Party(name="analyst", key="b" * 64),
        budget=Budget.of(epsilon, delta),
        level=level,
        created_at=0,
        deadline=1,
        seed=f"{seed:032x}",
    )


def releases_of(study: Study, tables: Sequence[MemoryTable], noise: Any) -> dict[str, Release]:
    """Every owner's checked release."""
    procedure = KernelTwoSample()
    releases = {}
    for owner, table in zip(study.owners, tables, strict=True):
        release = procedure.privatise(study, procedure.summarise(study, table), noise)
        procedure.check_release(study, release)
        releases[owner.name] = release
    return releases


def verdict_of(study: Study, tables: Sequence[MemoryTable], noise: Any) -> TwoSampleResult:
    """The verdict on tables in memory."""
    return KernelTwoSample().assemble(study, releases_of(study, tables, noise))


def numbers(domain: Domain, numeric: npt.ArrayLike) -> MemoryTable:
    """A table of numeric columns; values are clipped to [0, 1]."""
    values = np.clip(np.asarray(numeric, dtype=np.float64), 0.0, 1.0)
    return MemoryTable(domain, values, np.zeros((len(values), 0), dtype=np.int32))
