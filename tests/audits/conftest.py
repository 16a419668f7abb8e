"""The audits share modules that are not tests: searches, and the cases they are turned on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _one_thread_of_linear_algebra() -> Iterator[None]:
    """A search multiplies many small matrices: threads would spend longer waiting for each other."""
    with threadpool_limits(1):
        yield
