"""Map and reduce over a table's chunks: the same result however rows are cut, shared out and ordered."""

from typing import Protocol, TypeVar, runtime_checkable

from tacit_protocol.domain.table import EncodedChunk, PooledTable, Table

PartialT = TypeVar("PartialT")


class Reduction(Protocol[PartialT]):
    """What is summed over a table. It is picklable, and so are its partial results.

    Partial results are exact (whole numbers, or float64 that holds them), so that adding and merging them is
    associative and commutative to the last bit.
    """

    def start(self) -> PartialT:
        """Return the partial result of no chunk."""

    def add(self, partial: PartialT, chunk: EncodedChunk) -> None:
        """Add a chunk to a partial result, in place."""

    def merge(self, partial: PartialT, other: PartialT) -> None:
        """Add another partial result to one, in place; ``other`` is not used again."""


@runtime_checkable
class Reduces(Protocol):
    """A table that reduces itself, several parts of it at once."""

    def reduce(self, reduction: Reduction[PartialT]) -> PartialT:
        """Return the reduction of all chunks."""


def reduce_table(table: Table, reduction: Reduction[PartialT]) -> PartialT:
    """Return a table's reduction: by the table itself where it can, otherwise chunk after chunk."""
    if isinstance(table, PooledTable):
        pooled = reduction.start()
        for part in table.parts.values():
            reduction.merge(pooled, reduce_table(part, reduction))
        return pooled
    if isinstance(table, Reduces):
        return table.reduce(reduction)
    partial = reduction.start()
    for chunk in table.chunks():
        reduction.add(partial, chunk)
    return partial
