"""Procedures that permute hand replicates and pairs of units to the table's workers: the same bits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, domain_of, study_of

from tacit_protocol.domain.table import PooledTable
from tacit_protocol.messages.study import Party
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.workers import ONE_WORKER, ItemT, ResultT, SharedT, ThreadWorkers, Workers

DOMAIN = domain_of(2)


class Recording(ThreadWorkers):
    """Threads, and the functions that they were handed."""

    def __init__(self) -> None:
        super().__init__(3)
        self.functions: list[str] = []

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        self.functions.append(function.__name__)
        return super().map(function, shared, items)


@dataclass(frozen=True)
class Shared(MemoryTable):
    """A table with workers."""

    workers: Workers = ONE_WORKER


def table_of(workers: Workers) -> PooledTable:
    rng = np.random.default_rng(1)

    def part(rows: int) -> Shared:
        unit = np.sort(np.concatenate([np.arange(rows - 5), np.arange(5)]))
        return Shared(DOMAIN, rng.random((rows, 2)), np.zeros((rows, 0), np.int32), unit, workers=workers)

    return PooledTable(DOMAIN, {"o0": part(40), "o1": part(55)})


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "parameters", "functions"),
    [
        ("joint_independence", {"permutations": 99}, {"_strip_matches", "_block"}),
        ("joint_independence", {"permutations": 99, "kernel": "laplacian"}, {"_row_means", "_block"}),
        ("curated_distance_correlation", {"permutations": 99}, {"_strip_sums", "_block"}),
        ("curated_two_sample", {"release": "permutation", "permutations": 99}, {"_chunk_sums"}),
        (
            "curated_two_sample",
            {"release": "permutation", "permutations": 99, "features": "kernel"},
            {"_block_row"},
        ),
    ],
)
def test_the_tables_workers_permute(name: str, parameters: dict[str, Any], functions: set[str]) -> None:
    study = study_of(DOMAIN, parameters).model_copy(
        update={
            "procedure": name,
            "curator": Party(name="curator", key="c" * 64),
            "unit_column": "person",
        }
    )
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
