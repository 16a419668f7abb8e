"""An agent in this process, whose accesses to data are recorded."""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
from agent_fakes import MakeAgent, recorded_agents


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeAgent]:
    """Make an agent of a fresh world, in the test's own folder."""
    with recorded_agents(repeat(tmp_path)) as make:
        yield make
