"""A tester with everyone enrolled, on each database; and supervisors that kill processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from study_parties import MeanProcedure, Parties
from sweeps import Sweep, on_postgresql, on_sqlite
from tester_federation import Federation


@pytest.fixture
def federation(
    tmp_path: Path, database_url: str, parties: Parties, mean_procedure: MeanProcedure
) -> Iterator[Federation]:
    """A tester, an analyst and three owners, all enrolled."""
    federation = Federation(tmp_path, database_url, parties)
    federation.enrol_everyone()
    yield federation
    for engine in federation.engines:
        engine.dispose()


@pytest.fixture(scope="module")
def sqlite_sweep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """The processes of the module's ``SUPERVISOR``, on SQLite."""
    with on_sqlite(request.module.SUPERVISOR, tmp_path_factory.mktemp("sweep")) as sweep:
        yield sweep


@pytest.fixture(scope="module")
def postgresql_sweep(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: str
) -> Iterator[Sweep]:
    """The same on PostgreSQL."""
    folder = tmp_path_factory.mktemp("sweep")
    with on_postgresql(request.module.SUPERVISOR, folder, postgres_server) as sweep:
        yield sweep


@pytest.fixture
def sweep(request: pytest.FixtureRequest, engine: str) -> Sweep:
    """The processes on the engine that the test is about."""
    found: Sweep = request.getfixturevalue(f"{engine}_sweep")
    return found
