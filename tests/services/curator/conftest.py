"""A curator on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from curator_world import CuratorWorld


@pytest.fixture
def curator(tmp_path: Path, database_url: str) -> Iterator[CuratorWorld]:
    """A curator with two enrolled owners, on SQLite and on PostgreSQL."""
    world = CuratorWorld(tmp_path, database_url)
    yield world
    world.close()


@pytest.fixture
def lone_curator(tmp_path: Path) -> Iterator[CuratorWorld]:
    """A curator with two enrolled owners, on SQLite, where the database makes no difference."""
    world = CuratorWorld(tmp_path, f"sqlite:///{tmp_path / 'curator.sqlite3'}")
    yield world
    world.close()
