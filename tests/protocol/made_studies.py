"""Studies with made-up keys, tables in memory and their releases, for the tests of every procedure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
from two_sample_cases import Floats, MemoryTable, NoNoise

from tacit_protocol.domain import Domain, EncodedChunk, Table
from tacit_protocol.messages.study import Owner, Party, Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, check_release

Integers = npt.NDArray[np.int64]


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
    keys = [f"{i:064x}" for i in range(len(names) + 3)]
    planned = [units] * len(names) if units is None or isinstance(units, int) else list(units)
    columns = [own and tuple(own) for own in held or ()][: len(names)]
    parties = [
        name
        if isinstance(name, Owner)
        else Owner(name=name, key=key, data_set="data", units=count, columns=own)
        for name, key, count, own in zip_longest(names, keys[: len(names)], planned, columns)
    ]
    asked: dict[str, Any] = {
        "title": "test",
        "procedure": procedure,
        "parameters": dict(parameters or {}),
        "domain": domain,
        "owners": tuple(parties),
        "curator": Party(name="curator", key=keys[-3]) if curated else None,
        "tester": Party(name="tester", key=keys[-2]),
        "analyst": Party(name="analyst", key=keys[-1]),
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


def release_of(procedure: Procedure, study: Study, table: Table, noise: NoiseSource, **given: Any) -> Release:
    """What a sender releases of a table, as its tester takes it."""
    release = procedure.privatise(study, procedure.summarise(study, table, **given), noise)
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
