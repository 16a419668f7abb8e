"""What computes: its settings, its threads, its rounding, and what a worker runs."""

import importlib.util
import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import cluster_functions as functions
import numpy as np
import pytest
from cluster_functions import SECRET
from dask_cluster import write_certificates
from threadpoolctl import threadpool_info

from tacit_protocol.domain import DataError
from tacit_services.agent.settings import AgentSettings
from tacit_services.shared import compute as module
from tacit_services.shared.cluster import (
    ClusterWorkers,
    Sealed,
    Task,
    TaskFailedError,
    TaskResult,
    difference,
    run,
    versions,
)
from tacit_services.shared.compute import (
    MEMORY_BYTES_MIN,
    ComputeSettings,
    arithmetic,
    cgroup_cores,
    probe,
)
from tacit_services.shared.settings import SettingsError
from tacit_services.shared.workers import make_workers

AGENT = f"""\
name = "north"
key_file = "agent.pem"
tester_url = "https://tester.example"
tester_key = "{"0" * 64}"
policy_file = "policy.toml"

[[data_sets]]
name = "heart"
source = "heart.csv"
epsilon = 1.0
delta = 1e-5
"""
NAMES = ("SCHEDULER", "CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")


@pytest.fixture(autouse=True)
def _nothing_from_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "WORKERS", "MEMORY_BYTES", *(f"DASK_{name}" for name in NAMES)):
        monkeypatch.delenv(f"TACIT_{name}", raising=False)


def load(folder: Path, table: str) -> ComputeSettings:
    (folder / "agent.toml").write_text(AGENT + table)
    return AgentSettings.load(folder / "agent.toml").compute


def test_the_environment_comes_before_the_file_and_an_empty_variable_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"[compute]\nworkers = 3\nmemory_bytes = {MEMORY_BYTES_MIN}\n"
    assert load(tmp_path, table).workers == 3
    monkeypatch.setenv("TACIT_WORKERS", "5")
    monkeypatch.setenv("TACIT_DASK_SCHEDULER", "")
    settings = load(tmp_path, table)
    assert (settings.workers, settings.memory_bytes) == (5, MEMORY_BYTES_MIN)
    assert settings.dask_scheduler is None


def test_files_of_certificates_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    table = """\
[compute]
dask_scheduler = "tls://compute.north.example:8786"
dask_ca_file = "dask/ca.pem"
dask_certificate_file = "dask/client.pem"
dask_key_file = "/etc/dask/client.key"
"""
    settings = load(tmp_path, table)
    assert settings.dask_ca_file == tmp_path / "dask" / "ca.pem"
    assert settings.dask_certificate_file == tmp_path / "dask" / "client.pem"
    assert settings.dask_key_file == Path("/etc/dask/client.key")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("dask_scheduler = 'tcp://10.0.0.7:8786'", r"compute\.dask_scheduler: .*use tls://"),
        ("dask_scheduler = 'tcp://localhost.evil.example:8786'", "this machine alone"),
        ("dask_scheduler = 'tcp://127.0.0.1.evil.example:8786'", "this machine alone"),
        ("dask_scheduler = '10.0.0.7:8786'", "tls://host:port"),
        ("dask_scheduler = 'ucx://10.0.0.7:8786'", "tls://host:port"),
        ("dask_scheduler = 'tls://10.0.0.7'", "tls://host:port"),
        (
            "dask_scheduler = 'tls://10.0.0.7:8786'\ndask_key_file = 'k'",
            "dask_ca_file, dask_certificate_file",
        ),
        ("workers = 0", r"compute\.workers"),
        ("memory_bytes = 1000", r"compute\.memory_bytes"),
        ("threads = 2", r"compute\.threads"),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_do(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(tmp_path, f"[compute]\n{table}\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_without_tls_a_scheduler_may_be_on_this_machine(tmp_path: Path, host: str) -> None:
    settings = load(tmp_path, f"[compute]\ndask_scheduler = 'tcp://{host}:8786'\n")
    workers = make_workers(settings)
    assert isinstance(workers, ClusterWorkers)  # and nothing has been connected to
    assert not workers.in_process


def test_without_the_extra_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(tmp_path, "[compute]\ndask_scheduler = 'tcp://127.0.0.1:8786'\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r'pip install "tacit\[dask\]"'):
        make_workers(settings)


def test_certificates_that_cannot_be_used_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificates(tmp_path / "one")
    other = write_certificates(tmp_path / "two")
    monkeypatch.setenv("TACIT_DASK_SCHEDULER", "tls://127.0.0.1:1")
    monkeypatch.setenv("TACIT_DASK_CA_FILE", str(files.authority))
    monkeypatch.setenv("TACIT_DASK_CERTIFICATE_FILE", str(files.certificate))
    for key, accepted in ((files.key, True), (other.key, False), (tmp_path / "none", False)):
        monkeypatch.setenv("TACIT_DASK_KEY_FILE", str(key))
        if accepted:
            make_workers(load(tmp_path, ""))
            continue
        with pytest.raises(SettingsError, match="certificates of the Dask cluster cannot be used"):
            make_workers(load(tmp_path, ""))


def test_a_quota_of_any_group_above_limits_the_cores(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "sys"
    inner = root / "system.slice" / "tacit.service"
    inner.mkdir(parents=True)
    own.write_text("0::/system.slice/tacit.service\n")
    assert cgroup_cores(root, own) is None
    (inner / "cpu.max").write_text("max 100000\n")
    (root / "system.slice" / "cpu.max").write_text("250000 100000\n")
    assert cgroup_cores(root, own) == 2.5
    (inner / "cpu.max").write_text("50000 100000\n")
    assert cgroup_cores(root, own) == 0.5
    own.write_text("1:cpu:/old\n")
    assert cgroup_cores(root, own) is None
    assert cgroup_cores(root, tmp_path / "absent") is None


CHILD = """
import ctypes, resource, sys
import numpy as np
from tacit_services.shared.compute import prepare_to_compute
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, each of which is one fault
if sys.argv[1] == "prepared":
    prepare_to_compute()
def slices():
    for _ in range(50):
        np.ones(2**18)  # 2 MiB, as a slice of features
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    slices()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
slices()
print(min(faults() for _ in range(5)))  # the kernel may have faults of its own now and then
"""


def faults(state: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", CHILD, state]
    run = subprocess.run(command, env=kept | environment, check=True, capture_output=True, text=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rule is glibc's")
def test_slices_are_made_again_from_memory_that_the_process_has() -> None:
    assert faults("prepared") < 100
    # What it would be where every slice's 512 pages came from the kernel: the same child, with that set.
    assert faults("not", MALLOC_MMAP_THRESHOLD_="131072") > 50 * 500


def test_linear_algebra_has_one_thread() -> None:
    code = "from tacit_services.shared.compute import prepare_to_compute; prepare_to_compute();"
    code += "from threadpoolctl import threadpool_info;"
    code += "print({i['num_threads'] for i in threadpool_info() if i['user_api'] == 'blas'})"
    assert any(pool["user_api"] == "blas" for pool in threadpool_info()), "there is something to limit"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert run.stdout.decode().strip() == "{1}"


def test_two_processes_of_one_machine_compute_alike() -> None:
    command = "from tacit_services.shared.compute import probe; print(probe())"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == probe() == arithmetic()["rounding probe"]


@pytest.mark.parametrize("name", ["cos", "sin", "exp", "log1p"])
def test_one_last_bit_in_one_number_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    genuine, before = getattr(np, name), probe()

    def off(values: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
        found = genuine(values)
        found[17] = np.nextafter(found[17], np.inf)
        return np.asarray(found)

    monkeypatch.setattr(module.np, name, off)
    assert probe() != before


class AwkwardError(DataError):
    """One of Tacit's own whose copy cannot be made."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


AwkwardError.__module__ = "tacit_services.awkward"


def raise_awkward(shared: object, item: object) -> None:
    raise AwkwardError(SECRET, SECRET)


def travelled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 (made in the line itself)


def outcome_of(function: Any, shared: object, item: object) -> TaskResult:
    sent = travelled((Sealed(versions()), Sealed(Task(function, shared)), Sealed(item)))
    answer = run(*sent)
    assert isinstance(answer, Sealed)
    assert SECRET not in repr((*sent, answer))
    assert SECRET not in str(answer)
    opened = travelled(answer).open()
    assert isinstance(opened, TaskResult)
    return opened


def test_an_exception_of_tacit_comes_back_itself_and_any_other_without_its_message() -> None:
    own = outcome_of(functions.fail_of_data, SECRET, SECRET).error
    assert type(own) is DataError
    assert str(own) == "the data set has no column 'age'"
    other = outcome_of(functions.fail, SECRET, SECRET).error
    assert type(other) is TaskFailedError
    assert "builtins.ValueError at" in str(other)
    assert "cluster_functions.py" in str(other)
    assert SECRET not in str(other)


@pytest.mark.parametrize("function", [functions.unpicklable, raise_awkward, functions.leave])
def test_what_cannot_travel_or_would_end_the_worker_is_described(function: Any) -> None:
    error = outcome_of(function, None, None).error
    assert type(error) is TaskFailedError
    assert SECRET not in str(error)


def test_arrays_come_aligned_and_writable_and_read_only_ones_stay_so() -> None:
    rows = np.arange(7.0)[1::2]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    for given, writable in ((np.arange(5.0), True), (rows, True), (frozen, False)):
        for padding in range(9):  # so that its bytes begin anywhere in what travels
            _, found = travelled(Sealed(("x" * padding, given))).open()
            assert found.flags["ALIGNED"]
            assert found.flags["WRITEABLE"] is writable
            assert found.tobytes() == given.tobytes()


def test_differences_are_told_where_they_are_short() -> None:
    ours = versions()
    assert difference(ours, dict(ours)) is None
    said = difference(ours, ours | {"numpy": "1.0", "instructions of NumPy": "SSE " * 50})
    assert said == f"numpy 1.0 where this service has {ours['numpy']}, other instructions of NumPy"
    assert difference(ours, {}) is not None
