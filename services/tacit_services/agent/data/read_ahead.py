"""Read and encode the next chunk while a procedure computes on the last one."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the same items in the same order; one more is made in a thread of its own meanwhile.

    Everything that ``items`` does, its clean-up included, happens in that one thread, since a database's
    connection may belong to a thread. Its errors reach the caller at the item that failed.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as reader:
        try:
            upcoming = reader.submit(next, items, None)
            while (item := upcoming.result()) is not None:
                upcoming = reader.submit(next, items, None)
                yield item
        finally:
            reader.submit(items.close).result()
