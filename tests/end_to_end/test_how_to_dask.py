"""What docs/how-to/dask.md says to type works, and starts what docker-compose.yml starts."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

from tacit_services.agent.settings import AgentSettings
from tacit_services.shared.cluster import Certificates

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "dask.md").read_text("utf-8")
COMMANDS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def documented(role: str) -> list[str]:
    """The command line of the page that starts a scheduler or a worker."""
    (line,) = re.findall(rf"^python (-m distributed\.cli\.dask_{role}(?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    return shlex.split(line.replace("\\\n", " "))


def composed(role: str) -> list[str]:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return list(compose["services"][f"dask-{role}"]["command"][1:])


def installed(name: str) -> dict[str, list[str]]:
    """The settings of a unit's service, each with its values."""
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


UNITS = {"scheduler": "tacit-dask-scheduler", "worker": "tacit-dask-worker@"}


def names_of(command: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in command if word.startswith("--")}


def test_the_commands_make_certificates_by_which_both_sides_accept_each_other(tmp_path: Path) -> None:
    subprocess.run(["bash", "-euc", blocks("sh")[0]], cwd=tmp_path, check=True, capture_output=True)
    made = tmp_path / "dask-authority"
    for role in ("scheduler", "worker", "client"):
        Certificates(made / "ca.pem", made / f"{role}.pem", made / f"{role}.key").require_usable()
        check = ["openssl", "verify", "-CAfile", str(made / "ca.pem"), str(made / f"{role}.pem")]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    assert {path.name for path in made.iterdir()} == {
        *(f"{name}.{kind}" for name in ("ca", "scheduler", "worker", "client") for kind in ("key", "pem")),
        "ca.srl",
    }
    assert {path.stat().st_mode & 0o077 for path in made.glob("*.key")} == {0}


@pytest.mark.parametrize("role", COMMANDS)
def test_every_option_exists_since_dask_ignores_those_it_does_not_know(role: str) -> None:
    known = {name for option in COMMANDS[role].params for name in (*option.opts, *option.secondary_opts)}
    assert names_of(documented(role)) == names_of(composed(role)) <= known
    (unit,) = installed(UNITS[role])["ExecStart"]
    assert names_of(shlex.split(unit)) == names_of(composed(role))
    assert "--no-dashboard" in composed(role)


def test_the_agent_takes_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TACIT_CONFIG", "TACIT_DASK_SCHEDULER"):
        monkeypatch.delenv(name, raising=False)
    example = (ROOT / "deploy" / "settings" / "agent.toml").read_text()
    (tmp_path / "agent.toml").write_text(example + blocks("toml")[0])
    compute = AgentSettings.load(tmp_path / "agent.toml").compute
    assert compute.dask_scheduler == "tls://compute.north.example:8786"
    assert compute.dask_key_file == tmp_path / "dask" / "client.key"
