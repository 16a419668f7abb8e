"""The doctor finds what is wrong, and only that."""

import email.utils
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from agent_fakes import FAKES, AttackedAgent
from forked_python import commands_forked, forked_python

from tacit.client.http import HttpRequest, HttpResponse
from tacit.command.app import run
from tacit.errors import TransportError
from tacit.setup import doctor
from tacit.setup.configuration import (
    CuratorAddress,
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_curator,
    init_owner,
    init_party,
    init_tester,
    read_toml,
)
from tacit.setup.doctor import Diagnostic, database_findings, examine, file_system_of, revisions, run_check
from tacit.setup.keys import load_key
from tacit_protocol.messages.problems import MEDIA_TYPE, problem_document

NOW = 1_700_000_000.0
KEY = "ab" * 32


class Tester:
    """Says who it is, and what time it has."""

    def __init__(self, key: str = KEY, now: float = NOW, body: bytes | None = None, up: bool = True):
        self.key, self.now, self.body, self.up = key, now, body, up
        self.parties: list[dict[str, str]] | None = None

    def send(self, request: HttpRequest) -> HttpResponse:
        if not self.up:
            raise TransportError("no answer")
        if request.path == "/v1/parties":
            assert request.signed
            return self._parties()
        assert not request.signed
        headers = {"date": email.utils.formatdate(self.now, usegmt=True)}
        return HttpResponse(200, headers, self.body or json.dumps({"key": self.key}).encode())

    def _parties(self) -> HttpResponse:
        if self.parties is None:
            content = problem_document("unknown-party")
            return HttpResponse(401, {"content-type": MEDIA_TYPE}, json.dumps(content).encode())
        page = {"items": self.parties, "next": None}
        return HttpResponse(200, {"content-type": "application/json"}, json.dumps(page).encode())

    def close(self) -> None:
        pass


def enrolled(file: Path, name: str, role: str) -> Tester:
    """A tester that knows the configuration's key."""
    tester = Tester()
    key = load_key(file.parent / read_toml(file)["key_file"]).public_hex
    tester.parties = [{"name": name, "key": key, "role": role}]
    return tester


@pytest.fixture
def party_file(tmp_path: Path) -> Path:
    return init_party(tmp_path / "ann", "ann", TesterAddress("https://tester.example", KEY))


@pytest.fixture(autouse=True)
def mounts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one local disk, whatever this one has."""
    file = tmp_path_factory.mktemp("proc") / "mounts"
    file.write_text("/dev/sda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(doctor, "MOUNTS", file)
    return file


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    """The services' own checks begin with their imports done."""
    with commands_forked(doctor):
        yield


def look(file: Path, tester: Tester) -> dict[str, Diagnostic]:
    found = examine(file, clock=lambda: NOW, transport=lambda _: tester)
    return {finding.name: finding for finding in found}


def states(found: dict[str, Diagnostic]) -> dict[str, str]:
    return {name: finding.state for name, finding in found.items()}


def test_a_key_that_others_may_read_is_found(party_file: Path) -> None:
    (party_file.parent / "party.pem").chmod(0o640)
    found = look(party_file, Tester())
    assert found["key"].state == "failed"
    assert "chmod 600" in found["key"].text


@pytest.mark.parametrize(
    "tester",
    [Tester(key="cd" * 32), Tester(up=False), *(Tester(body=body) for body in (b"<html>", b"[]", b"{}"))],
)
def test_what_is_not_the_tester_or_does_not_answer_is_found(party_file: Path, tester: Tester) -> None:
    assert states(look(party_file, tester))["tester"] == "failed"


@pytest.mark.parametrize(("skew_s", "state"), [(29, "ok"), (-29, "ok"), (31, "failed"), (-31, "failed")])
def test_a_clock_that_tokens_would_not_survive_is_found(party_file: Path, skew_s: int, state: str) -> None:
    assert look(party_file, Tester(now=NOW + skew_s))["clock"].state == state


def test_a_database_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    file = init_tester(tmp_path / "tester", "tester", "127.0.0.1", 8400)
    assert look(file, Tester())["database"].state == "ok"
    assert not (tmp_path / "tester" / "tester.sqlite3").exists()
    file.write_text(file.read_text().replace("sqlite:///tester", "sqlite:///nowhere/tester"))
    assert look(file, Tester())["database"].state == "failed"


def test_a_curators_storage_key_and_settings_are_looked_at(tmp_path: Path) -> None:
    tester = TesterAddress("https://tester.example", KEY)
    file = init_curator(tmp_path / "registry", "registry", tester, host="127.0.0.1", port=8720)
    wanted = (
        *("configuration", "key", "files", "storage key", "database", "durable", "tester", "clock"),
        *("enrolment", "settings", "compute"),
    )
    assert states(look(file, enrolled(file, "registry", "curator"))) == dict.fromkeys(wanted, "ok")
    storage_key = file.parent / "storage.key"
    storage_key.chmod(0o644)
    assert "chmod 600" in look(file, Tester())["storage key"].text
    storage_key.chmod(0o600)
    storage_key.write_text("too short")
    assert "64 hexadecimal" in look(file, Tester())["storage key"].text
    storage_key.unlink()
    assert look(file, Tester())["storage key"].state == "failed"
    # What keeps a curator from starting.
    file.write_text(file.read_text() + '[compute]\ndask_scheduler = "tls://compute.north.example:8786"\n')
    found = look(file, Tester())
    assert "tls:// needs dask_ca_file" in found["settings"].text
    assert "compute" not in found


def test_an_owner_is_told_of_another_curator_behind_the_address(tmp_path: Path) -> None:
    file = init_owner(tmp_path / "north", "north", CuratorAddress("https://c.example", KEY))
    wanted = ("configuration", "key", "files", "curator", "clock")
    assert states(look(file, Tester())) == dict.fromkeys(wanted, "ok")
    found = look(file, Tester(key="cd" * 32))
    assert found["curator"].text == "the curator has another key than curator_key: ask its operator"


def test_a_key_that_the_tester_does_not_know_by_this_name_is_found(party_file: Path) -> None:
    as_another = look(party_file, enrolled(party_file, "bob", "analyst"))["enrolment"]
    assert (as_another.state, "knows this key as bob" in as_another.text) == ("failed", True)
    tester = enrolled(party_file, "ann", "analyst")
    wanted = ("configuration", "files", "key", "tester", "clock", "enrolment")
    assert states(look(party_file, tester)) == dict.fromkeys(wanted, "ok")
    tester.parties[0]["key"] = "cd" * 32
    assert "does not list this key yet" in look(party_file, tester)["enrolment"].text
    tester.parties = None
    refused = look(party_file, tester)["enrolment"]
    # Nothing is wrong before the invitation is used.
    assert refused.state == "warning"
    assert "enrol with an invitation" in refused.text


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [
        ("nfs4", "failed", "network file system"),
        ("fuse.sshfs", "failed", "PostgreSQL"),
        ("tmpfs", "warning", "a restart forgets the ledger"),
        ("xfs", "ok", "fsync"),
    ],
)
def test_a_database_on_what_is_no_local_disk_is_found(
    tmp_path: Path, mounts: Path, kind: str, state: str, words: str
) -> None:
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n/dev/b /other nfs rw 0 0\n"
    )
    file = init_tester(tmp_path / "tester", "tester", "127.0.0.1", 8400)
    found = look(file, Tester())["durable"]
    assert found.state == state
    assert words in found.text
    assert file_system_of(tmp_path / "tester") == kind


def database(path: Path, *statements: str) -> dict[str, Diagnostic]:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return {found.name: found for found in database_findings(path.parent, f"sqlite:///{path.name}", "agent")}


def at_version(version: str) -> str:
    return f"INSERT INTO alembic_agent VALUES ('{version}')"  # noqa: S608 (no input of anybody's)


def test_tables_of_other_versions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert revisions("agent") == ["a0001"]
    folder = tmp_path / "software" / "agent" / "migrations"
    folder.mkdir(parents=True)
    known = ["a0001", "a0002", "a0003"]
    for before, revision in zip([None, *known], known, strict=False):
        text = f"revision = {json.dumps(revision)}\ndown_revision = {json.dumps(before)}\n"
        (folder / f"{revision}.py").write_text(text.replace("null", "None"))
    software = ModuleSpec("tacit_services", None, is_package=True)
    software.submodule_search_locations = [str(folder.parents[1])]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: software)
    assert revisions("agent") == known
    made = "CREATE TABLE alembic_agent (version_num TEXT)"
    wal = "PRAGMA journal_mode=WAL"
    newest = database(tmp_path / "a", wal, made, at_version(known[-1]))
    assert {found.state for found in newest.values()} == {"ok"}
    old = database(tmp_path / "b", wal, made, at_version(known[0]))["tables"]
    assert (old.state, known[-1] in old.text) == ("warning", True)
    strange = database(tmp_path / "c", wal, made, at_version("zzz"))["tables"]
    assert (strange.state, "newer" in strange.text) == ("failed", True)
    without = database(tmp_path / "d", made, at_version(known[-1]))
    assert (without["durable"].state, "write-ahead" in without["durable"].text) == ("warning", True)


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text("age,sex\n" + "70,F\n40,M\n" * 60 + "300,X\n")
    file = init_agent(
        tmp_path / "north",
        "north",
        TesterAddress("https://tester.example", KEY),
        DataSetSetup("patients", str(tmp_path / "north.csv"), 3.0, 3e-5),
        PolicySetup(columns=["age"]),
        host="127.0.0.1",
        port=8711,
    )
    bounds = (
        'columns = [{ kind = "numeric", name = "age", lower = 0, upper = 120 }, '
        '{ kind = "categorical", name = "sex", levels = ["F", "M"] }]\n'
    )
    file.write_text(file.read_text() + bounds)
    return file


def test_an_agents_budget_bounds_and_policy_are_looked_at_here_alone(
    agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = look(agent_file, enrolled(agent_file, "north", "owner"))
    assert states(found) == {
        **dict.fromkeys(("configuration", "key", "files", "database", "durable", "tester", "clock"), "ok"),
        **dict.fromkeys(("enrolment", "data", "policy", "compute", "budget"), "ok"),
        "columns": "ok",
    }
    assert found["budget"].text == "patients: 100 % of epsilon 3 is left"
    columns = found["columns"].text
    assert "age: 100 % can be read as numbers; 99.2 % lies within 0 to 120; 0 % is missing" in columns
    assert "sex: 99.2 % is listed" in columns
    assert "for your eyes alone" in columns
    assert "because that leaks them" in columns
    assert not {"300", "X", "121"} & set(columns.replace(",", " ").split())  # shares, and no value


def test_doctor_data_check_and_the_agents_own_check_say_the_same(
    agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column of which most are decimal commas: all three fail, and name the cause."""
    rows = "".join(f'"{60 + place % 30},2",F\n' if place % 5 < 3 else "70,M\n" for place in range(200))
    (agent_file.parent.parent / "north.csv").write_text("age,sex\n" + rows)
    found = look(agent_file, enrolled(agent_file, "north", "owner"))
    assert (found["data"].state, found["columns"].state) == ("failed", "failed")
    checked = run_check("agent", agent_file)
    assert not checked.passed
    assert run(["data", "check", "--config", str(agent_file)]) == 1
    command = capsys.readouterr().out
    own = forked_python().run(
        ["-m", "tacit_services.agent", "check", "--config", str(agent_file)], timeout_s=300
    )
    assert own.returncode == 1
    assert " ".join(own.stdout.split()) == " ".join(command.split())
    words = (
        "age: 40 % can be read as numbers; 100 % lies within 0 to 120; they have decimal commas: write them "
        "with points; 0 % is missing"
    )
    for said in (found["data"].text, found["columns"].text, checked.report["text"], command):
        assert words in " ".join(said.split())
    assert "not ready" in command


@pytest.mark.long
def test_a_blank_bound_a_cluster_away_and_an_unreadable_policy_are_found(agent_file: Path) -> None:
    tester = enrolled(agent_file, "north", "owner")
    whole = agent_file.read_text()
    agent_file.write_text(whole.replace("upper = 120", 'upper = ""'))
    assert "column 1, upper" in look(agent_file, tester)["data"].text
    agent_file.write_text(whole + '[compute]\ndask_scheduler = "tcp://127.0.0.1:1"\n')
    assert "tcp://127.0.0.1:1 cannot be reached" in look(agent_file, tester)["compute"].text
    policy = agent_file.parent / "policy.toml"
    policy.write_text(policy.read_text() + "units_mn = 5\n")
    found = look(agent_file, tester)["data"]
    assert found.state == "failed"
    assert "policy" in found.text


FULL = """
import resource, signal, sys
from pathlib import Path
from tacit.setup.doctor import database_findings
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
found = next(database_findings(Path(sys.argv[1]), "sqlite:///tester.sqlite3", "tester"))
sys.exit(f"{found.state}: {found.text}")
"""


def test_a_locked_data_set_is_mentioned_with_what_failed_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AttackedAgent(tmp_path)
    study = agent.world.ask(agent.tester, agent.world.study())

    def told() -> list[Diagnostic]:
        found = examine(tmp_path / "agent.toml", transport=lambda _: Tester())
        return [one for one in found if one.name == "lock"]

    def fail(*_: object) -> object:
        raise ZeroDivisionError("private")

    with monkeypatch.context() as failing:
        failing.setattr(FAKES["fake_sum"], "summarise", fail, raising=False)
        agent.turn()
    (lock,) = told()
    assert lock.state == "warning"
    for words in (study[:12], "ZeroDivisionError in tacit_", "`tacit agent unlock patients`"):
        assert words in lock.text
    assert "private" not in lock.text
    agent.agent.unlock("patients")
    assert told() == []
    agent.agent.engine.dispose()


def test_a_disk_without_room_is_no_disk_that_can_be_written(tmp_path: Path) -> None:
    """The room that a process may write ends, as on a full disk."""
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.stderr.startswith("failed: no room beside"), found.stderr
