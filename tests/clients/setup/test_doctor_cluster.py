"""The doctor tells whether a real Dask cluster computes for an agent and for a curator, or what is wrong."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_cluster import DaskCluster, connections_closed_whole, write_certificates
from forked_python import commands_forked

from tacit.client.http import HttpRequest, HttpResponse
from tacit.errors import TransportError
from tacit.setup import doctor
from tacit.setup.configuration import DataSetSetup, PolicySetup, TesterAddress, init_agent, init_curator
from tacit.setup.diagnostics import Diagnostic
from tacit.setup.doctor import examine
from tacit_protocol.workers import WorkersUnavailableError
from tacit_services.shared.cluster import Certificates, ClusterWorkers, Patience
from tacit_services.shared.cluster_task import versions

pytestmark = pytest.mark.long

TESTER = TesterAddress("https://tester.example", "ab" * 32)

OTHER_NUMPY = """
from tacit_services.shared import cluster_task
told = cluster_task.versions() | {"numpy": "1.0"}
cluster_task.versions = lambda: told
"""
"""What makes a worker say that it has another version."""


class Away:
    """A tester that does not answer: this is not about it."""

    def send(self, request: HttpRequest) -> HttpResponse:
        raise TransportError(f"no answer to {request.path}")

    def close(self) -> None:
        pass


def agent_file(folder: Path) -> Path:
    (folder / "north.csv").write_text("age\n" + "70\n40\n" * 60)
    data = DataSetSetup("patients", str(folder / "north.csv"), 3.0, 3e-5)
    policy = PolicySetup(columns=["age"])
    return init_agent(folder / "north", "north", TESTER, data, policy, host="127.0.0.1", port=8711)


def curator_file(folder: Path) -> Path:
    return init_curator(folder / "registry", "registry", TESTER, host="127.0.0.1", port=8720)


@pytest.fixture(params=[agent_file, curator_file])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make: Callable[[Path], Path] = request.param
    return make(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    cluster = DaskCluster(tmp_path_factory.mktemp("dask"))
    try:
        cluster.start_scheduler()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    """What looks at the cluster begins with its imports done."""
    with commands_forked(doctor):
        yield


def compute(file: Path) -> Diagnostic:
    (found,) = (found for found in examine(file, transport=lambda _: Away()) if found.name == "compute")
    return found


def configure(file: Path, cluster: DaskCluster, certificates: Certificates) -> None:
    file.write_text(
        file.read_text() + f'[compute]\ndask_scheduler = "{cluster.address}"\n'
        f'dask_ca_file = "{certificates.authority}"\n'
        f'dask_certificate_file = "{certificates.certificate}"\n'
        f'dask_key_file = "{certificates.key}"\n'
    )


def wait_for_workers(cluster: DaskCluster, count: int) -> None:
    patience = Patience(connect_s=60, reconnect_s=60)
    workers = ClusterWorkers(cluster.address, cluster.certificates, patience)
    try:
        while True:
            try:
                found = len(workers.threads())
            except WorkersUnavailableError as error:
                assert "numpy 1.0" in str(error)  # noqa: PT017 (there is a worker, of another version)
                found = 1
            if found == count:
                return
            threading.Event().wait(0.05)
    finally:
        with connections_closed_whole():
            workers.close()


def test_the_cluster_that_a_file_names_is_looked_at(file: Path, cluster: DaskCluster) -> None:
    configure(file, cluster, cluster.certificates)
    none = compute(file)
    assert (none.state, none.text) == ("failed", "the Dask cluster has no worker: start workers")
    cluster.start_worker("one")
    try:
        wait_for_workers(cluster, 1)
        well = compute(file)
        assert (well.state, well.text) == ("ok", "1 Dask workers, 1 threads, compute as this machine does")
    finally:
        cluster.kill("one")
        wait_for_workers(cluster, 0)
    cluster.start_worker("other", first=OTHER_NUMPY)
    try:
        wait_for_workers(cluster, 1)
        other = compute(file)
        assert other.state == "failed"
        assert f"numpy 1.0 where this service has {versions()['numpy']}" in other.text
    finally:
        cluster.kill("other")
        wait_for_workers(cluster, 0)


def test_certificates_that_do_not_do_are_found(file: Path, cluster: DaskCluster, tmp_path: Path) -> None:
    other = write_certificates(tmp_path / "other")
    whole = file.read_text()
    configure(file, cluster, other)
    refused = compute(file)
    assert refused.state == "failed"
    assert "refuse each other's certificates" in refused.text
    file.write_text(whole)
    mixed = Certificates(cluster.certificates.authority, cluster.certificates.certificate, other.key)
    configure(file, cluster, mixed)
    unusable = compute(file)
    assert unusable.state == "failed"
    assert "look at dask_ca_file" in unusable.text
