"""Permuted statistics by threads and processes: the same bits as here, also where a process is killed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from made_studies import made_study
from process_workers import ProcessWorkers
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.domain.table import PooledTable
from tacit_protocol.features.additive import ColumnWise
from tacit_protocol.features.kernels import DistanceKernel, ProductKernel
from tacit_protocol.features.unit_gram import KernelMixture, UnitGram, UnitRows
from tacit_protocol.numerics.permutations import replicated
from tacit_protocol.procedures.curated_distance_correlation.release import paired_roots
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    PermutedFeatures,
    PermutedKernel,
    draw_choices,
)
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.joint_independence import statistic
from tacit_protocol.procedures.joint_independence.statistic import (
    PairStatistic,
    permuted_feature_statistics,
    permuted_statistics,
)
from tacit_protocol.workers import ONE_WORKER, ItemT, ResultT, SharedT, ThreadWorkers, Workers

SEED = np.random.SeedSequence(3)
LAPLACIAN = ProductKernel("laplacian", 0.1)
SEVERAL = KernelMixture((LAPLACIAN, ProductKernel("laplacian", 0.4)), (0.5, 0.5))
DOMAIN = domain_of(2, (3,))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessWorkers]:
    with ProcessWorkers(2) as workers:
        yield workers


def rows_of(units: int) -> UnitRows:
    rng = np.random.default_rng(0)
    return UnitRows(rng.random((units, 2)), np.zeros((units, 0), np.int32), np.arange(units + 1))


def grams_of(kernel: ProductKernel | KernelMixture | DistanceKernel, units: int = 200) -> list[UnitGram]:
    return [UnitGram(kernel, rows_of(units).columns([j], [])) for j in range(2)]


def samples() -> tuple[PooledTable, PooledTable]:
    rng = np.random.default_rng(1)

    def pooled(owner: str, rows: int) -> PooledTable:
        codes = rng.integers(0, 3, (rows, 1)).astype(np.int32)
        table = MemoryTable(DOMAIN, rng.random((rows, 2)), codes, cuts=(9, 30))
        return PooledTable(DOMAIN, {owner: table})

    return pooled("x", 70), pooled("y", 130)


def by_tensor(workers: Workers) -> np.ndarray:
    return permuted_statistics(grams_of(ProductKernel("gaussian", 0.3)), 30, SEED, workers=workers)


def by_pairs(held: bool) -> Callable[[Workers], np.ndarray]:
    def compute(workers: Workers) -> np.ndarray:
        statistic = PairStatistic(grams_of(SEVERAL if held else LAPLACIAN), held, workers)
        return replicated(statistic, 30, SEED, workers, lambda part: None)

    return compute


def by_given_features(workers: Workers) -> np.ndarray:
    rng = np.random.default_rng(2)
    return permuted_feature_statistics([rng.random((7, 90)), rng.random((5, 90))], 30, SEED, workers=workers)


def by_mean_features(workers: Workers) -> np.ndarray:
    features = PermutedFeatures(ColumnWise(2, (3,), (0.8125, 1.625), (1.0, 1.0)))
    return features.distances(samples(), draw_choices((70, 130), 20, SEED), workers=workers)


def by_mean_kernel(workers: Workers) -> np.ndarray:
    kernel = PermutedKernel(ProductKernel("gaussian", 0.3, 0.2), (2, 1))
    return kernel.distances(samples(), draw_choices((70, 130), 20, SEED), workers=workers)


def by_distances(workers: Workers) -> np.ndarray:
    return np.array(paired_roots(*grams_of(DistanceKernel()), workers).steps)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "compute",
    [
        by_tensor, by_pairs(held=True), by_pairs(held=False), by_given_features, by_mean_features,
        by_mean_kernel, by_distances,
    ],
    ids=["tensor", "held", "tiles", "given features", "means of features", "means in a kernel", "distances"],
)  # fmt: skip
def test_results_are_the_same_bits_here_and_in_other_processes(
    compute: Callable[[Workers], np.ndarray], processes: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_protocol.procedures.curated_two_sample.permuted_means.ROWS_AT_ONCE", 64)
    here = compute(ThreadWorkers(1))
    assert np.array_equal(here, compute(ThreadWorkers(3)))
    monkeypatch.undo()
    here = compute(ThreadWorkers(1))
    assert np.array_equal(here, compute(processes))
    assert len(np.unique(here)) > 2


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
    expected = permuted_statistics(grams_of(SEVERAL), 30, SEED)
    for most, replicates_travel in ((2 * 8 * 200**2, True), (2 * 8 * 200**2 - 1, False)):
        monkeypatch.setattr(statistic, "WORKER_BYTES_MAX", most)
        elsewhere = Recording(in_process=False)
        found = permuted_statistics(grams_of(SEVERAL), 30, SEED, workers=elsewhere)
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
        ("joint_independence", {}, {"_strip_matches", "_block"}),
        ("joint_independence", {"kernel": "laplacian"}, {"_row_means", "_block"}),
        ("curated_distance_correlation", {}, {"_strip_sums", "_block"}),
        ("curated_two_sample", {"release": "permutation"}, {"_chunk_sums"}),
        ("curated_two_sample", {"release": "permutation", "features": "kernel"}, {"_block_row"}),
    ],
)
def test_the_tables_workers_permute(name: str, parameters: dict[str, Any], functions: set[str]) -> None:
    asked = parameters | {"permutations": 99}
    study = made_study(name, NUMBERS, asked, owners=("o0", "o1"), curated=True, unit_column="person")
    workers, parts = Recording(), []

    def summary(workers: Workers, progress: Any = None) -> Any:
        order = np.random.default_rng(2)
        return PROCEDURES[name].summarise(study, table_of(workers), progress, order)

    found = summary(workers, lambda part, step: parts.append(part))
    assert functions <= set(workers.functions)
    alone = vars(summary(ONE_WORKER))
    assert vars(found).keys() == alone.keys()
    for field, value in vars(found).items():
        assert np.array_equal(value, alone[field]) if isinstance(value, np.ndarray) else value == alone[field]
    assert parts[-1] == pytest.approx(1)
