"""Memory of agents that wait at a tester process, by the benchmark's own measure, at a small size."""

from pathlib import Path

import pytest
from benchmarks.long_polls import SPARE, measure

pytestmark = pytest.mark.long

AGENTS = 300

KIB_EACH_MAX = 160.0
"""Twice the goal of ten thousand agents: here the tester's own first steps count for a good part of each."""


def test_agents_wait_for_little_memory_and_no_thread_and_are_all_woken(tmp_path: Path) -> None:
    found = measure(tmp_path, AGENTS, rounds=2)
    assert found.kib_each < KIB_EACH_MAX
    assert found.growth_kib_each < KIB_EACH_MAX / 2
    assert found.threads < AGENTS / 3, "forty that serve requests, and a few of the service's own"
    assert SPARE <= found.refused < 2 * SPARE
