"""A tester with everyone enrolled, on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from study_parties import MeanProcedure, Parties
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
