"""Kill the tester at every step of a study that only reads earlier releases again, and start it again.

SIGKILL to real processes, on SQLite and PostgreSQL (support/kill_sweep_process.py). Afterwards: what is
reused is recorded, the earlier releases are as they were, and the one verdict's transcript verifies.
"""

from collections.abc import Iterator

import pytest
from sweeps import Sweep, on_postgresql, on_sqlite

from tacit_services.shared.failpoints import TesterStep

pytestmark = pytest.mark.long

STEPS = [step.value for step in TesterStep if not step.value.startswith("tester.release.")]
"""Nobody is asked, so no release is taken."""


@pytest.fixture(scope="module")
def sqlite_sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with on_sqlite("reuse", tmp_path_factory.mktemp("sweep")) as sweep:
        yield sweep


@pytest.fixture(scope="module")
def postgresql_sweep(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[Sweep]:
    with on_postgresql("reuse", tmp_path_factory.mktemp("sweep"), postgres_server) as sweep:
        yield sweep


@pytest.fixture
def sweep(request: pytest.FixtureRequest, engine: str) -> Sweep:
    found: Sweep = request.getfixturevalue(f"{engine}_sweep")
    return found


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(sweep: Sweep, step: str) -> None:
    assert sweep.run(step) == {"kills": 1, "faults": []}, sweep.log.read_text()


PLANTED = {"never-queued": "there is no verdict", "not-recorded": "what is reused is recorded wrongly"}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(sqlite_sweep: Sweep, mistake: str) -> None:
    assert PLANTED[mistake] in sqlite_sweep.run(planted=mistake)["faults"]
