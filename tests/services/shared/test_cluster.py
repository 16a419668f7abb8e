"""A real scheduler and real workers: order, deaths, refusals, and logs that say nothing of what is computed.

Every process here costs a second, so the tests share them and start what the one before has killed.
"""

import gc
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import cluster_functions as functions
import numpy as np
import pytest
from cluster_functions import SECRET
from dask_cluster import DaskCluster, connections_closed_whole, write_certificates
from own_time import wait_until

from tacit_protocol.domain import DataError, ThreadWorkers, WorkersUnavailableError
from tacit_services.shared import cluster as cluster_module
from tacit_services.shared.cluster import (
    Certificates,
    ClusterWorkers,
    RetryPolicy,
    TaskFailedError,
    difference,
    versions,
)
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.workers import look_at_workers

pytestmark = pytest.mark.long

PATIENT = RetryPolicy(connect_s=60, reconnect_s=60, workers_s=120, look_s=0.2, pause_s=0.1, attempts=6)
"""For a busy machine: what is waited for does come."""

HASTY = RetryPolicy(connect_s=60, reconnect_s=0.5, workers_s=0.5, look_s=0.1, pause_s=0.1, attempts=1)
"""For what never comes."""


def what_is_wrong(workers: ClusterWorkers) -> str:
    try:
        workers.threads()
    except WorkersUnavailableError as error:
        return str(error)
    return ""


class Cluster:
    """The processes, and how many of them a test needs."""

    def __init__(self, folder: Path) -> None:
        self.processes = DaskCluster(folder)
        self.processes.start_scheduler()
        self._started = 0
        self._made: list[ClusterWorkers] = []

    @property
    def alive(self) -> list[str]:
        """Names of the workers that run."""
        return [name for name in self.processes.processes if name != "scheduler"]

    def start_worker(self) -> None:
        self._started += 1
        self.processes.start_worker(f"worker-{self._started}")

    def kill_process(self, number: int) -> None:
        (name,) = (name for name, process in self.processes.processes.items() if process.pid == number)
        self.processes.kill(name)

    def workers(self, count: int, patience: RetryPolicy = PATIENT) -> ClusterWorkers:
        """Workers of the cluster once it has at least so many."""
        for _ in range(count - len(self.alive)):
            self.start_worker()
        waiting = self.connect(PATIENT)
        wait_until(lambda: len(waiting.threads()) >= count, "too few workers joined")
        return waiting if patience is PATIENT else self.connect(patience)

    def connect(self, patience: RetryPolicy, certificates: Certificates | None = None) -> ClusterWorkers:
        made = ClusterWorkers(self.processes.address, certificates or self.processes.certificates, patience)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Let go of this test's connections."""
        for made in self._made:
            made.close()
        self._made.clear()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("dask"))
    for _ in range(2):
        cluster.start_worker()
    yield cluster
    cluster.processes.stop()


@pytest.fixture
def cluster(processes: Cluster) -> Iterator[Cluster]:
    """The processes, for one test; its connections are closed whole, however busy the machine is."""
    with connections_closed_whole():
        yield processes
        processes.close()


def test_results_come_in_order_whatever_is_shared_is_opened_once_in_each_worker(cluster: Cluster) -> None:
    workers = cluster.workers(2)
    assert workers.count == 2
    found = list(workers.map(functions.openings, functions.Counted(), range(12)))
    assert {opened for _, opened in found} == {1}
    rows = np.random.default_rng(3).random(1000)
    assert list(workers.map(functions.sum_of, rows, range(9))) == list(
        ThreadWorkers(1).map(functions.sum_of, rows, range(9))
    )
    assert list(workers.map(functions.square, 0, [])) == []


def test_a_look_at_the_cluster_says_what_computes_or_what_is_wrong(cluster: Cluster, tmp_path: Path) -> None:
    cluster.workers(2)
    own, other = cluster.processes.certificates, write_certificates(tmp_path / "other")
    settings = ComputeSettings(
        dask_scheduler=cluster.processes.address,
        dask_ca_file=own.authority,
        dask_certificate_file=own.certificate,
        dask_key_file=own.key,
    )
    looked = look_at_workers(settings)
    assert looked == {"text": "2 Dask workers, 2 threads, compute as this machine does", "error": None}
    strange = look_at_workers(settings.model_copy(update={"dask_ca_file": other.authority}))
    assert "certificates" in str(strange["error"])


def test_items_are_drawn_as_results_are_taken_and_arrays_may_be_written_to(cluster: Cluster) -> None:
    workers, drawn = cluster.workers(2), []

    def items() -> Iterator[int]:
        for item in range(1000):
            drawn.append(item)
            yield item

    results = workers.map(functions.square, 0, items())
    assert next(results) == 0
    assert len(drawn) <= 4
    results.close()
    array = np.arange(1001.0)[1:]
    assert list(workers.map(functions.layout, array, [array])) == [[True] * 4]


def test_exceptions_come_back_and_neither_they_nor_arguments_nor_results_are_in_any_log(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = cluster.workers(2)
    with pytest.raises(DataError, match="no column 'age'"):
        list(workers.map(functions.fail_of_data, SECRET, [SECRET]))
    for function in (functions.fail, functions.unpicklable, functions.leave):
        with pytest.raises(TaskFailedError) as caught:
            list(workers.map(function, SECRET, [SECRET] * 3))
        assert SECRET not in str(caught.value)
    assert list(workers.map(functions.echo, SECRET, [SECRET])) == [SECRET]
    assert len(cluster.alive) == 2
    assert "Registered to" in cluster.processes.logs()
    assert SECRET not in cluster.processes.logs()
    # Planted: without the wrapper, what Dask logs holds the exception's text.
    monkeypatch.setattr(cluster_module, "run", functions.unwrapped)
    with pytest.raises(WorkersUnavailableError):
        list(workers.map(functions.fail, "planted-secret", ["here"]))
    assert "planted-secret here" in cluster.processes.logs()


def test_a_worker_killed_in_mid_run_changes_no_result(cluster: Cluster, tmp_path: Path) -> None:
    workers = cluster.workers(2)
    results = workers.map(functions.trace, tmp_path, range(30))
    found = [next(results) for _ in range(4)]
    (first,) = (path.name.split("-")[1] for path in tmp_path.glob("0-*"))
    cluster.kill_process(int(first))
    found += list(results)
    assert found == [item**2 for item in range(30)]
    traces = [path.name.split("-") for path in tmp_path.iterdir()]
    assert len({process for _, process in traces}) == 2
    wait_until(lambda: workers.count == 1, "the scheduler still counts the worker that was killed")


def test_what_all_share_is_sent_anew_to_a_worker_that_joins_after_all_have_died(
    cluster: Cluster, tmp_path: Path
) -> None:
    results = cluster.workers(1).map(functions.trace, tmp_path, range(10))
    found = [next(results)]
    for name in cluster.alive:
        cluster.processes.kill(name)
    cluster.start_worker()
    assert found + list(results) == [item**2 for item in range(10)]


def test_a_connection_that_dask_has_given_up_is_made_anew_in_mid_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As it does with a scheduler that stays away for some time while nobody asks for the next result."""
    workers = cluster.workers(1)
    results = workers.map(functions.trace, tmp_path, range(10))
    found = [next(results)]
    client = workers._cluster._client

    async def give_up() -> None:
        await client.close()

    workers._call(give_up())
    assert found + list(results) == [item**2 for item in range(10)]


# Dask forgets the socket of a connection that broke while it shook hands; the collector closes it.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_a_scheduler_that_is_killed_is_waited_for_and_found_again(cluster: Cluster, tmp_path: Path) -> None:
    workers = cluster.workers(1, HASTY)
    results = workers.map(functions.trace, tmp_path, range(10))
    next(results)
    for name in list(cluster.processes.processes):
        cluster.processes.kill(name)
    # It may have been asked, for its workers, when it was killed.
    with pytest.raises(WorkersUnavailableError, match=r"cannot be reached|does not answer"):
        list(results)
    wait_until(lambda: "cannot be reached" in what_is_wrong(workers), "it does not say so")
    assert workers.count == 1
    cluster.processes.start_scheduler()
    cluster.workers(1)
    workers._cluster.patience = PATIENT
    assert list(workers.map(functions.square, 0, range(5))) == [0, 1, 4, 9, 16]
    gc.collect()


def test_a_worker_of_other_versions_is_refused_when_met_and_when_it_joins_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = cluster.workers(1)
    ours = versions() | {"numpy": "1.0"}
    said = rf"numpy {versions()['numpy']} where this service has 1\.0"
    with monkeypatch.context() as patched:
        patched.setattr(cluster_module, "versions", lambda: ours)
        with pytest.raises(WorkersUnavailableError, match=said):
            list(workers.map(functions.square, 0, [1]))
    monkeypatch.setattr(cluster_module, "difference", lambda _, theirs: difference(ours, theirs))
    with pytest.raises(WorkersUnavailableError, match=said):
        cluster.connect(PATIENT).threads()


def test_a_scheduler_that_does_not_answer_holds_nobody_up(cluster: Cluster) -> None:
    workers = cluster.workers(1)
    workers._cluster.patience = RetryPolicy(connect_s=0.3)
    scheduler = cluster.processes.processes["scheduler"]
    scheduler.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{scheduler.pid}/stat")
    try:
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it does not stop")
        with pytest.raises(WorkersUnavailableError, match="does not answer"):
            workers.threads()
        assert workers.count == 1
    finally:
        scheduler.send_signal(signal.SIGCONT)


def test_certificates_of_another_authority_are_refused_by_both_sides(
    cluster: Cluster, tmp_path: Path
) -> None:
    other, own = write_certificates(tmp_path / "other"), cluster.processes.certificates
    for authority, certificate, key in (
        (other.authority, other.certificate, other.key),
        (own.authority, other.certificate, other.key),
        (other.authority, own.certificate, own.key),
    ):
        stranger = cluster.connect(RetryPolicy(connect_s=1), Certificates(authority, certificate, key))
        with pytest.raises(
            WorkersUnavailableError, match=r"refuse each other's certificates|cannot be reached"
        ):
            stranger.threads()
    cluster.connect(PATIENT).threads()  # and its own are taken


def test_without_a_certificate_nobody_is_let_in(cluster: Cluster) -> None:
    host, port = cluster.processes.address.removeprefix("tls://").split(":")
    context = ssl.create_default_context(cafile=cluster.processes.certificates.authority)
    context.check_hostname = False
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        refused = pytest.raises((ssl.SSLError, ConnectionError))
        with refused, context.wrap_socket(plain) as wrapped:  # in TLS 1.3 it is told after the handshake
            wrapped.recv(1000)


def test_a_map_that_is_under_way_ends_when_the_connection_is_closed(cluster: Cluster, tmp_path: Path) -> None:
    workers = cluster.workers(1)
    results = workers.map(functions.wait_for, tmp_path, ["", "never-before-the-end"])
    assert next(results) == ""
    closing = threading.Timer(0.2, workers.close)
    closing.start()
    with pytest.raises(WorkersUnavailableError, match="was closed"):
        list(results)
    closing.join()
    with pytest.raises(WorkersUnavailableError, match="was closed"):
        list(workers.map(functions.square, 0, [1]))
    assert workers.count == 1
    (tmp_path / "never-before-the-end").touch()


def test_an_item_that_ends_every_worker_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    workers = cluster.workers(2, HASTY)
    with pytest.raises(WorkersUnavailableError, match=r"died again and again|no worker for"):
        list(workers.map(functions.kill_worker, tmp_path, range(2)))
    assert 2 <= len(list(tmp_path.iterdir())) <= 4
    for name in cluster.alive:
        cluster.processes.kill(name)
    wait_until(lambda: not workers.threads(), "the scheduler still counts workers that have died")
    with pytest.raises(WorkersUnavailableError, match=r"no worker for 0\.5 s: start workers"):
        list(workers.map(functions.square, 0, range(2)))
