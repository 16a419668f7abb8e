"""Studies with made-up keys, tables in memory, their releases, and stand-ins for privacy noise."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.testing.neighbour_search import Codes, EncodedRows
from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn, Table
from tacit_protocol.messages.study import Owner, Party, Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import ProductBody, simulated_k_norm
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, check_release, planned

Rows = EncodedRows
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class SeededNoise:
    """Rounded normal noise and discrete Laplace noise with a seed, and a count of its draws."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.draws = 0

    def gaussian(self, values: Integers, scale: float) -> Integers:
        self.draws += 1
        return values + np.rint(scale * self._rng.standard_normal(values.shape)).astype(np.int64)

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.draws += 1
        drawn = self._rng.geometric(-math.expm1(-1 / scale), (2, len(values)))
        return np.asarray(values + drawn[0] - drawn[1])

    def k_norm(self, values: Integers, scale: float, body: ProductBody) -> Integers:
        return simulated_k_norm(values, scale, body, self._rng)


class NoNoise:
    """Adds nothing: what a release holds is then the exact sums."""

    def gaussian(self, values: Integers, scale: float) -> Integers:
        return values

    def laplace(self, values: Integers, scale: float) -> Integers:
        return values

    def k_norm(self, values: Integers, scale: float, body: ProductBody) -> Integers:
        return values


@dataclass(frozen=True)
class MemoryTable:
    """Encoded rows in memory, cut into chunks of ``cuts`` units; ``unit`` (rows,) numbers their units."""

    domain: Domain
    numeric: Floats
    categorical: Codes
    unit: Integers | None = None
    cuts: Sequence[int] = ()
    declared: int | None = None
    order: Integers | None = None

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


class Drawing(NoNoise):
    """Adds nothing and draws the likeliest candidate."""

    def choose(self, scores: Integers, scale: float) -> int:
        return int(np.argmax(scores))


def made_study(
    procedure: str,
    domain: Domain,
    parameters: Mapping[str, Any] | None = None,
    *,
    owners: int | Sequence[str | Owner] = 1,
    held: Sequence[Sequence[str] | None] | None = None,
    units: Sequence[int | None] | int | None = None,
    curated: bool = False,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seed: int = 0,
    **fields: Any,
) -> Study:
    """A study of owners owner-0, owner-1, ..., or of those names; ``held`` are their columns."""
    names = [f"owner-{i}" for i in range(owners)] if isinstance(owners, int) else list(owners)
    keys = [f"{i:064x}" for i in range(len(names))]
    planned = [units] * len(names) if units is None or isinstance(units, int) else list(units)
    columns = [own and tuple(own) for own in held or ()][: len(names)]
    parties = [
        name
        if isinstance(name, Owner)
        else Owner(name=name, key=key, data_set="data", units=count, columns=own)
        for name, key, count, own in zip_longest(names, keys, planned, columns)
    ]
    asked: dict[str, Any] = {
        "title": "test",
        "procedure": procedure,
        "parameters": dict(parameters or {}),
        "domain": domain,
        "owners": tuple(parties),
        "curator": Party(name="curator", key="c" * 64) if curated else None,
        "tester": Party(name="tester", key="d" * 64),
        "analyst": Party(name="analyst", key="e" * 64),
        "budget": Budget.of(epsilon, delta),
        "level": 0.05,
        "created_at": 0,
        "deadline": 1,
        "seed": f"{seed:032x}",
    }
    return Study(**(asked | fields))


@dataclass(frozen=True)
class PlacedTable:
    """Rows of units at ``places``, (units,), in the chunks that ``cuts`` makes of the units in ``order``."""

    domain: Domain
    numeric: Floats
    unit: Integers
    places: Integers
    order: Integers
    cuts: tuple[int, ...] = ()

    @property
    def units(self) -> int:
        return len(self.places)

    def chunks(self) -> Iterator[EncodedChunk]:
        for units in np.split(self.order, self.cuts):
            rows, names = np.flatnonzero(np.isin(self.unit, units)), np.sort(units)
            own, none = np.searchsorted(names, self.unit[rows]), np.zeros((len(rows), 0), np.int32)
            yield EncodedChunk(self.numeric[rows], none, own, len(names), self.places[names])


def uniform(domain: Domain, rows: int, seed: int) -> MemoryTable:
    """Uniform numbers, and every listed level as often as any other."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, column.categories - 2, rows) for column in domain.categorical]
    categorical = np.array(codes, np.int32).reshape(len(codes), rows).T
    return MemoryTable(domain, rng.random((rows, len(domain.numeric))), categorical)


def release_of(
    procedure: Procedure,
    study: Study,
    table: Table,
    noise: NoiseSource,
    order: np.random.Generator | None = None,
) -> Release:
    """What a sender releases of a table, as its tester takes it."""
    plan = planned(procedure, study)
    release = plan.privatise(plan.summarise(table, order), noise)
    check_release(procedure, study, release)
    return release


def releases_of(
    procedure: Procedure, study: Study, tables: Sequence[Table], noise: NoiseSource
) -> dict[str, Release]:
    """What each owner releases of its table."""
    owned = zip(study.owners, tables, strict=True)
    return {owner.name: release_of(procedure, study, table, noise) for owner, table in owned}


def rows_table(domain: Domain, values: Any, unit: Any = None, codes: Any = None, **more: Any) -> MemoryTable:
    """Numbers (rows, numeric columns), clipped to [0, 1], and ``codes`` (rows, categorical columns)."""
    numeric = np.clip(np.asarray(values, np.float64).reshape(len(values), -1), 0, 1)
    held = np.zeros((len(numeric), 0), np.int32) if codes is None else codes
    return MemoryTable(domain, numeric, held, unit, **more)
