"""The settings under deploy/ are ones that the services take."""

import re
import tomllib
from pathlib import Path

import pytest

from tacit_services.agent.policy import Policy
from tacit_services.agent.settings import AgentSettings
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.http_server import KEEP_ALIVE_S
from tacit_services.tester.inboxes import WAIT_S_MAX
from tacit_services.tester.pages import KEEP_ALIVE_LOOKS, STREAM_LOOK_S
from tacit_services.tester.settings import TesterSettings

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "deploy" / "settings"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
OURS = [path for path in UNITS if not path.stem.startswith("tacit-dask-")]
SETTINGS_OF = {"tester": TesterSettings, "agent": AgentSettings, "curator": CuratorSettings}


@pytest.fixture(autouse=True)
def _no_settings_from_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_CONFIG", raising=False)


def test_the_agent_takes_its_example_and_its_policy() -> None:
    settings = AgentSettings.load(SETTINGS / "agent.toml")
    policy = Policy.load(settings.policy_file)
    assert {data_set.name for data_set in settings.data_sets} == set(policy.data_sets)
    assert policy.approval == "by-hand"
    for data_set in settings.data_sets:
        assert policy.maximum.epsilon_micro <= data_set.caps.epsilon_micro
        assert policy.maximum.delta_pico <= data_set.caps.delta_pico


def unit(path: Path) -> dict[str, list[str]]:
    """Read a unit's [Service] section; a key may occur several times."""
    found: dict[str, list[str]] = {}
    section = path.read_text().partition("[Service]")[2].partition("[Install]")[0].replace("\\\n", " ")
    for line in section.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def confinement(path: Path) -> list[str]:
    """The lines that say what a service may not do, from the first one on."""
    lines = path.read_text().splitlines()
    return lines[lines.index("NoNewPrivileges=yes") : lines.index("[Install]")]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined_and_gets_its_keys_from_systemd(path: Path) -> None:
    service = unit(path)
    assert service["DynamicUser"] == ["yes"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["CapabilityBoundingSet"] == [""]
    assert service["ProtectSystem"] == ["strict"]
    assert confinement(path) == confinement(ROOT / "deploy" / "systemd" / "tacit-agent.service")
    handed = {f"%d/{credential.partition(':')[0]}" for credential in service["LoadCredential"]}
    named = {value for line in service["Environment"] if (value := line.partition("=")[2]).startswith("%d/")}
    assert handed == named
    assert re.fullmatch(r"[1-9]\d*G", *service["MemoryMax"])


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_unit_runs_its_service(path: Path) -> None:
    kind, _, worker = path.stem.removeprefix("tacit-").partition("-")
    service = unit(path)
    verb = "work" if worker else "serve"
    assert service["ExecStart"] == [f"/opt/tacit/bin/python -m tacit_services.{kind} {verb}"]
    known = {f"TACIT_{kind.upper()}_{name.upper()}" for name in SETTINGS_OF[kind].model_fields}
    named = {variable.partition("=")[0] for variable in service["Environment"]}
    assert {name.removesuffix("_FILE") for name in named - known} <= known | {"TACIT_CONFIG"}


def test_the_balancer_waits_longer_than_any_poll_and_asks_who_is_ready() -> None:
    text = (SETTINGS / "haproxy.cfg").read_text()
    for side in ("client", "server"):
        (seconds,) = re.findall(rf"timeout {side} (\d+)s", text)
        assert int(seconds) > WAIT_S_MAX + STREAM_LOOK_S * KEEP_ALIVE_LOOKS / 2
    (idle_s,) = re.findall(r"timeout http-keep-alive (\d+)s", text)
    assert int(idle_s) < KEEP_ALIVE_S
    assert "option httpchk GET /readyz" in text


def test_the_examples_hold_no_key() -> None:
    for name in ("agent.toml", "curator.toml"):
        assert set(tomllib.loads((SETTINGS / name).read_text())["tester_key"]) == {"0"}
