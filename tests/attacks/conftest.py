"""Worlds for the attacks: one agent whose data source records every access, and a tester with its parties."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from agent_fakes import AttackedAgent, MakeAgent
from study_parties import MeanProcedure, Parties
from tester_federation import Federation

from tacit_services.agent.data.source import Source
from tacit_services.agent.settings import DataSetSettings


@pytest.fixture
def make_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeAgent]:
    """Make an agent whose accesses to data are recorded."""
    engines: list[sa.Engine] = []

    def build(**options: object) -> AttackedAgent:
        folder = tmp_path / str(len(engines))
        folder.mkdir()
        attacked = AttackedAgent(folder, **options)  # type: ignore[arg-type]
        engines.append(attacked.agent.engine)
        original = DataSetSettings.open

        def recorded(self: DataSetSettings) -> Source:
            attacked.opened.append(self.name)
            return original(self)

        monkeypatch.setattr(DataSetSettings, "open", recorded)
        return attacked

    yield build
    for engine in engines:
        engine.dispose()


@pytest.fixture
def federation(tmp_path: Path, parties: Parties, mean_procedure: MeanProcedure) -> Iterator[Federation]:
    """A tester on SQLite, an analyst and three owners, all enrolled."""
    federation = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    federation.enrol_everyone()
    yield federation
    for engine in federation.engines:
        engine.dispose()
