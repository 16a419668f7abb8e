"""The doctor finds what is wrong, and only that."""

import email.utils
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.configuration import TesterAddress, init_party, init_tester
from tacit.curator_configuration import CuratorAddress, init_curator, init_owner
from tacit.doctor import Finding, examine
from tacit.errors import TransportError
from tacit.http import HttpRequest, HttpResponse

NOW = 1_700_000_000.0
KEY = "ab" * 32

Examine = Callable[..., dict[str, Finding]]


class Tester:
    """Says who it is, and what time it has."""

    def __init__(self, key: str = KEY, now: float = NOW, body: bytes | None = None, up: bool = True):
        self.key, self.now, self.body, self.up = key, now, body, up

    def send(self, request: HttpRequest) -> HttpResponse:
        assert not request.signed
        if not self.up:
            raise TransportError("no answer")
        headers = {"date": email.utils.formatdate(self.now, usegmt=True)}
        return HttpResponse(200, headers, self.body or json.dumps({"key": self.key}).encode())

    def close(self) -> None:
        pass


@pytest.fixture
def party_file(tmp_path: Path) -> Path:
    return init_party(tmp_path / "ann", "ann", TesterAddress("https://tester.example", KEY))


def look(file: Path, tester: Tester) -> dict[str, Finding]:
    found = examine(file, clock=lambda: NOW, transport=lambda _: tester)
    return {finding.name: finding for finding in found}


def states(found: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.state for name, finding in found.items()}


def test_all_is_well(party_file: Path) -> None:
    assert states(look(party_file, Tester())) == {
        "configuration": "ok",
        "key": "ok",
        "tester": "ok",
        "clock": "ok",
    }


def test_a_key_that_others_may_read_is_found(party_file: Path) -> None:
    (party_file.parent / "party.pem").chmod(0o640)
    found = look(party_file, Tester())
    assert found["key"].state == "failed"
    assert "chmod 600" in found["key"].text


def test_a_missing_key_is_found(party_file: Path) -> None:
    (party_file.parent / "party.pem").unlink()
    assert look(party_file, Tester())["key"].state == "failed"


def test_another_tester_behind_the_address_is_found(party_file: Path) -> None:
    assert states(look(party_file, Tester(key="cd" * 32)))["tester"] == "failed"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"3"])
def test_what_is_no_tester_is_found(party_file: Path, body: bytes) -> None:
    assert states(look(party_file, Tester(body=body)))["tester"] == "failed"


def test_a_tester_that_is_down_is_found(party_file: Path) -> None:
    found = states(look(party_file, Tester(up=False)))
    assert (found["tester"], found["clock"]) == ("failed", "skipped")


@pytest.mark.parametrize(("skew_s", "state"), [(29, "ok"), (-29, "ok"), (31, "failed"), (-31, "failed")])
def test_a_clock_that_tokens_would_not_survive_is_found(party_file: Path, skew_s: int, state: str) -> None:
    assert look(party_file, Tester(now=NOW + skew_s))["clock"].state == state


def test_a_database_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    file = init_tester(tmp_path / "tester", "tester", "127.0.0.1", 8400)
    assert look(file, Tester())["database"].state == "ok"
    assert not (tmp_path / "tester" / "tester.sqlite3").exists()
    file.write_text(file.read_text().replace("sqlite:///tester", "sqlite:///nowhere/tester"))
    assert look(file, Tester())["database"].state == "failed"


def test_a_curators_storage_key_is_looked_at(tmp_path: Path) -> None:
    tester = TesterAddress("https://tester.example", KEY)
    file = init_curator(tmp_path / "registry", "registry", tester, host="127.0.0.1", port=8720)
    wanted = ("configuration", "key", "storage key", "database", "tester", "clock")
    assert states(look(file, Tester())) == dict.fromkeys(wanted, "ok")
    storage_key = file.parent / "storage.key"
    storage_key.chmod(0o644)
    assert "chmod 600" in look(file, Tester())["storage key"].text
    storage_key.chmod(0o600)
    storage_key.write_text("too short")
    assert "64 hexadecimal" in look(file, Tester())["storage key"].text
    storage_key.unlink()
    assert look(file, Tester())["storage key"].state == "failed"


def test_an_owner_is_told_of_another_curator_behind_the_address(tmp_path: Path) -> None:
    file = init_owner(tmp_path / "north", "north", CuratorAddress("https://c.example", KEY))
    wanted = ("configuration", "key", "curator", "clock")
    assert states(look(file, Tester())) == dict.fromkeys(wanted, "ok")
    found = look(file, Tester(key="cd" * 32))
    assert found["curator"].text == "the curator has another key than curator_key: ask its operator"


def test_a_missing_configuration_is_found(tmp_path: Path) -> None:
    assert states(look(tmp_path / "agent.toml", Tester())) == {"configuration": "failed"}
