"""Permuted statistics by threads and processes: the same bits as here."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from made_studies import made_study
from process_workers import ProcessWorkers
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.domain import ONE_WORKER, ItemT, PooledTable, ResultT, SharedT, ThreadWorkers, Workers
from tacit_protocol.features.kernels import KernelMixture, ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.base import planned
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.permutation import statistic
from tacit_protocol.procedures.permutation.statistic import permuted_statistics

SEED = np.random.SeedSequence(3)
KERNEL = KernelMixture((ProductKernel("laplacian", 0.1), ProductKernel("laplacian", 0.4)), (0.5, 0.5))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessWorkers]:
    with ProcessWorkers(2) as workers:
        yield workers


def grams() -> list[UnitGram]:
    """Two columns of 200 units."""
    values = np.random.default_rng(0).random((200, 2))
    rows = UnitRows(values, np.zeros((200, 0), np.int32), np.arange(201))
    return [UnitGram(KERNEL, rows.columns([j], [])) for j in range(2)]


class Recording(ThreadWorkers):
    """Threads, and the functions that they were handed."""

    def __init__(self, in_process: bool = True) -> None:
        super().__init__(3)
        self.in_process = in_process
        self.functions: list[str] = []

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        self.functions.append(function.__name__)
        return super().map(function, shared, items)


def test_matrices_too_large_for_workers_elsewhere_are_held_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their entries come from the workers, replicates from this process: the same bits."""
    monkeypatch.setattr(statistic, "holding_pays", lambda _: True)
    expected = permuted_statistics(grams(), 30, SEED)
    for most, replicates_travel in ((2 * 8 * 200**2, True), (2 * 8 * 200**2 - 1, False)):
        monkeypatch.setattr(statistic, "WORKER_BYTES_MAX", most)
        elsewhere = Recording(in_process=False)
        found = permuted_statistics(grams(), 30, SEED, workers=elsewhere)
        assert np.array_equal(found, expected)
        assert ("_block" in elsewhere.functions) is replicates_travel
        assert ("_rows" in elsewhere.functions) is not replicates_travel


NUMBERS = domain_of(2)


@dataclass(frozen=True)
class Shared(MemoryTable):
    """A table with workers."""

    workers: Workers = ONE_WORKER


def table_of(workers: Workers) -> PooledTable:
    rng = np.random.default_rng(1)

    def part(rows: int) -> Shared:
        unit = np.sort(np.concatenate([np.arange(rows - 5), np.arange(5)]))
        return Shared(NUMBERS, rng.random((rows, 2)), np.zeros((rows, 0), np.int32), unit, workers=workers)

    return PooledTable(NUMBERS, {"o0": part(40), "o1": part(55)})


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "parameters", "functions"),
    [
        ("joint_independence", {"method": "permutation"}, {"_block"}),
        ("joint_independence", {"kernel": "laplacian"}, {"_row_means", "_block"}),
        ("curated_distance_correlation", {}, {"_strip_sums", "_block"}),
        ("curated_two_sample", {"release": "permutation"}, {"_chunk_sums"}),
        ("curated_two_sample", {"release": "permutation", "features": "kernel"}, {"_block_row"}),
    ],
)
def test_the_tables_workers_permute(
    name: str, parameters: dict[str, Any], functions: set[str], processes: ProcessWorkers
) -> None:
    asked = parameters | {"permutations": 99}
    study = made_study(name, NUMBERS, asked, owners=("o0", "o1"), curated=True, unit_column="person")
    workers, parts = Recording(), []

    def summary(workers: Workers, progress: Any = None) -> Any:
        order = np.random.default_rng(2)
        plan: Any = planned(PROCEDURES[name], study)
        return plan.summarise(table_of(workers), order, progress)

    found = summary(workers, lambda part, step: parts.append(part))
    assert functions <= set(workers.functions)
    alone = vars(summary(ONE_WORKER))
    for made in (vars(found), vars(summary(processes))):
        assert made.keys() == alone.keys()
        assert all(np.array_equal(value, alone[field]) for field, value in made.items())
    assert parts[-1] == pytest.approx(1)
