"""A real study whose sums are made on a real Dask cluster, of which a worker is killed while it reads."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agent_fakes import FakeTester, World
from dask_cluster import DaskCluster

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent import service
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work

ATTEMPTS = 50
ROWS, ROWS_OF_A_GROUP = 240_000, 20_000

DOMAIN = Domain(
    columns=(
        NumericColumn(name="x", lower=-4.0, upper=4.0),
        NumericColumn(name="y", lower=0.0, upper=1.0),
        CategoricalColumn(name="z", levels=("a", "b", "c")),
    )
)

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files in /proc"),
    pytest.mark.long,
]


class RecordingNoise:
    """Keeps what it is to be added to, the exact sums, and where; adds repeatable noise."""

    def __init__(self) -> None:
        self.drawn: list[tuple[int, bytes]] = []

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        self.drawn.append((os.getpid(), values.tobytes()))
        return values + np.rint(scale * np.random.default_rng(1).standard_normal(values.shape)).astype(
            np.int64
        )

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        raise NotImplementedError


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    (tmp_path / "dask").mkdir()
    cluster = DaskCluster(tmp_path / "dask")
    try:
        cluster.start_scheduler()
        for name in ("first", "second"):
            cluster.start_worker(name)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    columns = {
        "x": rng.standard_normal(ROWS),
        "y": rng.random(ROWS),
        "z": rng.choice(["a", "b", "c", "other"], ROWS),
    }
    path = tmp_path / "patients.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=ROWS_OF_A_GROUP)
    return path


def run(world: World, study: Study, data: Path, database: str) -> tuple[list[tuple[int, bytes]], FakeTester]:
    """Have an agent, made from its file and the environment, run the study; returns what it drew and sent."""
    noise, tester = RecordingNoise(), FakeTester()
    world.ask(tester, study)
    with tester.serving() as url:
        config = world.write(url, agent=f'database_url = "sqlite:///{database}.sqlite3"')
        config.write_text(config.read_text().replace("patients.csv", str(data)))
        policy = config.parent / "policy.toml"
        policy.write_text(policy.read_text().replace('["x", "absent"]', '["*"]'))
        agent = service.build(AgentSettings.load(config), PROCEDURES, threading.Event(), noise)
        try:
            Fetcher(agent).poll(0)
            work(agent)
        finally:
            agent.engine.dispose()
            agent.client.close()
    return noise.drawn, tester


def kill_first_reader(cluster: DaskCluster, data: Path, ended: threading.Event) -> Callable[[], str | None]:
    """Kill a worker as soon as it has the data open; the function that is returned says which one it was."""
    killed: list[str] = []

    def watch() -> None:
        while not killed and not ended.wait(0.001):
            for name, process in list(cluster.processes.items()):
                if not killed and reads(process.pid, data):
                    cluster.kill(name)
                    killed.append(name)

    thread = threading.Thread(target=watch)
    thread.start()

    def result() -> str | None:
        ended.set()
        thread.join()
        return killed[0] if killed else None

    return result


def reads(process: int, data: Path) -> bool:
    try:
        return any(os.readlink(link) == str(data) for link in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


def test_a_worker_killed_while_it_reads_changes_no_bit_of_the_release(
    cluster: DaskCluster, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    study = world.study(procedure="kernel_two_sample", domain=DOMAIN)
    monkeypatch.setenv("TACIT_WORKERS", "1")
    expected, here = run(world, study, data, "here")
    for name, value in (
        ("SCHEDULER", cluster.address),
        ("CA_FILE", cluster.certificates.authority),
        ("CERTIFICATE_FILE", cluster.certificates.certificate),
        ("KEY_FILE", cluster.certificates.key),
    ):
        monkeypatch.setenv(f"TACIT_DASK_{name}", str(value))
    killed = None
    for attempt in range(ATTEMPTS):  # on a busy machine a reader may not be seen
        watched = kill_first_reader(cluster, data, threading.Event())
        found, there = run(world, study, data, f"there-{attempt}")
        killed = watched()
        assert found == expected
        assert {process for process, _ in found} == {os.getpid()}
        assert there.received == here.received
        assert [kind for _, kind, _ in there.received] == ["releases"]
        if killed is not None:
            break
    assert killed in {"first", "second"}
