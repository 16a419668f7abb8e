"""Reading ahead changes neither items, nor order, nor errors, and cleans up in the thread that read."""

import threading
from collections.abc import Generator

from tacit_services.agent.data.table import read_ahead


def test_the_same_items_in_the_same_order() -> None:
    assert list(read_ahead(item for item in range(100))) == list(range(100))
    assert list(read_ahead(item for item in ())) == []


def test_leaving_early_cleans_up_in_the_reading_thread() -> None:
    threads = []

    def watched() -> Generator[int, None, None]:
        try:
            for item in range(100):
                threads.append(threading.get_ident())
                yield item
        finally:
            threads.append(threading.get_ident())

    ahead = read_ahead(watched())
    assert next(ahead) == 0
    ahead.close()
    assert len(threads) <= 3  # the item taken, at most one more, and the clean-up
    assert set(threads) == {threads[0]}
    assert threads[0] != threading.get_ident()
