"""Worlds for the attacks: one agent whose data source records every access, and a tester with its parties."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from agent_fakes import MakeAgent, recorded_agents
from tester_federation import lone_federation as federation

__all__ = ["federation"]


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Make agents whose accesses to data are recorded, each in a folder of its own."""

    def folders() -> Iterator[Path]:
        for number in count():
            (tmp_path / str(number)).mkdir()
            yield tmp_path / str(number)

    with recorded_agents(folders()) as make:
        yield make
