"""Kill the tester at every step of a study that only reads earlier releases again, and start it again.

SIGKILL to real processes, on SQLite and PostgreSQL (support/kill_sweep_process.py). Afterwards: what is
reused is recorded, the earlier releases are as they were, and the one verdict's transcript verifies.
"""

import pytest
from sweeps import Sweep

from tacit_services.shared.failpoints import TesterStep

SUPERVISOR = "reuse"

pytestmark = pytest.mark.long

STEPS = [step.value for step in TesterStep if not step.value.startswith("tester.release.")]
"""Nobody is asked, so no release is taken."""


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(sweep: Sweep, step: str) -> None:
    assert sweep.run(step) == {"kills": 1, "faults": []}, sweep.log.read_text()


PLANTED = {"never-queued": "there is no verdict", "not-recorded": "what is reused is recorded wrongly"}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(sqlite_sweep: Sweep, mistake: str) -> None:
    assert PLANTED[mistake] in sqlite_sweep.run(planted=mistake)["faults"]
