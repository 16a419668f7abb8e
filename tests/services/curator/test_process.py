"""A curator as a process: it takes data and a study, sends one release, and stops when asked."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_fakes import FakeTester
from curated_world import CURATOR, curated_study_of
from forked_python import ForkedProcess, forked_python, process_of
from own_time import PATIENCE_S, require_a_stop_in_time, stop, wait_until
from world import key_of, sealed

from tacit.setup.processes import free_ports
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.signing import RELEASE_TYPE, issue_token, open_envelope
from tacit_services.ledger.command import verify_ledger

COMMAND = ("-m", "tacit_services.curator", "serve", "--config")
CANARY = "7.3182450917"
"""More digits than the time of a line of the log has."""

OWNERS = ("north", "west")


@dataclass
class Running:
    """A curator's process, and requests to it."""

    process: ForkedProcess
    url: str

    def call(self, method: str, path: str, party: str, **options: Any) -> httpx.Response:
        token = issue_token(key_of(party), self.url, int(time.time()))
        headers = {"authorization": f"Bearer {token}"} | options.pop("headers", {})
        return httpx.request(
            method, self.url + path, headers=headers, trust_env=False, timeout=PATIENCE_S, **options
        )

    def is_ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def add_owner(self, name: str) -> None:
        invited = self.call("POST", "/v1/invitations", CURATOR, json={"name": name}).json()
        body = {"invitation": invited["invitation"], "name": name, "key": key_of(name).public_hex}
        assert self.call("POST", "/v1/enrolments", name, json=body).status_code == 201
        columns = [{"kind": "numeric", "name": column, "lower": 0.0, "upper": 10.0} for column in ("x", "y")]
        policy = {
            "approval": "automatic",
            "epsilon_per_study_max": 1.0,
            "delta_per_study_max": 1e-5,
            "respond_after_s_min": 0,
            "analysts": ["*"],
        }
        registration = {"columns": columns, "epsilon": 2.0, "delta": 1e-5, "policy": policy}
        path = f"/v1/data-sets/{name}/patients"
        assert self.call("PUT", path, name, json=registration).status_code == 201
        rows = "x,y\n" + "".join(f"{CANARY},{i % 10}\n" for i in range(60))
        sent = self.call("PUT", path + "/rows", name, content=rows, headers={"content-type": "text/csv"})
        assert sent.status_code == 201, sent.text


def write_settings(folder: Path, url: str, tester_url: str) -> Path:
    (folder / "curator.pem").write_bytes(key_of(CURATOR).to_pem())
    (folder / "storage.key").write_text("3b" * 32)
    config = folder / "curator.toml"
    config.write_text(
        f'name = "{CURATOR}"\nurl = "{url}"\nport = {url.rpartition(":")[2]}\nkey_file = "curator.pem"\n'
        f'storage_folder = "rows"\nstorage_keys_file = "storage.key"\ntester_url = "{tester_url}"\n'
        f'tester_key = "{key_of("tester").public_hex}"\npoll_wait_s = 0\nrespond_after_s_min = 0\n'
    )
    return config


@contextmanager
def running(folder: Path, url: str, tester_url: str) -> Iterator[Running]:
    config = write_settings(folder, url, tester_url)
    with process_of(folder / "log", *COMMAND, str(config)) as process:
        curator = Running(process, url)
        wait_until(curator.is_ready)
        yield curator


@pytest.mark.long
@pytest.mark.slow
def test_a_curator_answers_a_study_and_stops_with_status_zero(tmp_path: Path) -> None:
    tester, url = FakeTester(), f"http://127.0.0.1:{free_ports(1)[0]}"
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=10.0) for name in ("x", "y"))
    study = curated_study_of(
        OWNERS,
        procedure="joint_independence",
        parameters={"method": "permutation"},
        domain=Domain(columns=columns),
        deadline=int(time.time()) + 3600,
        created_at=int(time.time()) - 10,
        budget=Budget.of("0.5", "0"),
    )
    with tester.serving() as tester_url:
        name, envelope = sealed(study)

        def stopped_s() -> float:
            with running(tmp_path, url, tester_url) as curator:
                if not tester.studies:
                    for owner in OWNERS:
                        curator.add_owner(owner)
                    tester.add(envelope, name, study.deadline)
                wait_until(lambda: name in tester.releases or name in tester.declines)
                code, seconds = stop(curator.process)
            assert code == 0
            return seconds

        require_a_stop_in_time(stopped_s)
        message = decode(
            ReleaseMessage, open_envelope(tester.releases[name], RELEASE_TYPE, key_of(CURATOR).public_hex)
        )
        assert message.release.units_by_owner == dict.fromkeys(OWNERS, 60)
        assert message.release.decision is not None
        assert message.release.vectors == {}
        report = verify_ledger(f"sqlite:///{tmp_path / 'curator.sqlite3'}")
        assert report["ok"]
        assert {item["data_set"]: item["entries"] for item in report["accounts"]} == {
            "north/patients": 2,
            "west/patients": 2,
        }
    log_text = (tmp_path / "log").read_text()
    assert "Traceback" not in log_text
    assert "eyJ" not in log_text  # how every token begins
    assert CANARY not in log_text


@pytest.mark.long
def test_a_curator_without_its_storage_key_does_not_start(tmp_path: Path) -> None:
    config = write_settings(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    (tmp_path / "storage.key").write_text("not a key")
    ended = forked_python().run([*COMMAND, str(config)], timeout_s=PATIENCE_S)
    assert ended.returncode == 1
    assert "storage_keys_file" in ended.stderr
    assert "not a key" not in ended.stderr
