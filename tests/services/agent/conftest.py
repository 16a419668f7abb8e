"""An agent in this process, whose accesses to data are recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from agent_fakes import AttackedAgent, MakeAgent, World

from tacit_services.agent.data.source import Source
from tacit_services.agent.settings import DataSetSettings


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeAgent]:
    """Make an agent of a fresh world, in the test's own folder."""
    engines: list[sa.Engine] = []

    def build(**written: str) -> AttackedAgent:
        setup = AttackedAgent(tmp_path, World(tmp_path), **written)  # type: ignore[arg-type]
        engines.append(setup.agent.engine)
        original = DataSetSettings.open

        def recorded(self: DataSetSettings) -> Source:
            setup.opened.append(self.name)
            return original(self)

        monkeypatch.setattr(DataSetSettings, "open", recorded)
        return setup

    yield build
    for engine in engines:
        engine.dispose()
