"""Settings of what computes: from a table of the service's file, and from the environment first."""

import importlib.util
from pathlib import Path

import pytest
from dask_cluster import write_certificates

from tacit_services.agent.settings import AgentSettings
from tacit_services.shared.cluster import ClusterWorkers
from tacit_services.shared.compute import (
    MEMORY_BYTES_MIN,
    ComputeSettings,
    cgroup_cores,
    make_workers,
)
from tacit_services.shared.settings import SettingsError

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
