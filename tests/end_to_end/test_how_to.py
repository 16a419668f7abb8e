"""The how-tos for those who run services: their commands are run, and what they promise is true."""

import re
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.command.app import run as tacit
from tacit.setup.keys import load_key
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent import service
from tacit_services.agent.__main__ import main as agent_main
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.policy import Policy
from tacit_services.ledger.accounts import debit, standing_of
from tacit_services.shared.database import create_engine, run_transaction

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
COST = Guarantee(budget=Budget.of("0.5", "0"), events=(LaplaceEvent(noise_multiplier=2.0),))
KEY = "0" * 64


def blocks_of(page: str, language: str) -> list[str]:
    text = (HOW_TO / f"{page}.md").read_text("utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[list[str]]:
    lines = [line.strip() for block in blocks_of(page, "console") for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


@pytest.fixture
def north(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which `north` is an agent that has started once and spent half an epsilon."""
    monkeypatch.chdir(tmp_path)
    address = ["--tester-url", "http://127.0.0.1:8400", "--tester-key", KEY]
    data = ["--data-set", "patients", "--source", "north.csv", "--epsilon", "3", "--delta", "0"]
    assert tacit(["agent", "init", "--folder", "north", "--name", "north", *address, *data]) == 0
    start(tmp_path / "north" / "agent.toml")
    spend(tmp_path, "a" * 64)
    return tmp_path


def start(config: Path) -> None:
    """Do what an agent does when it starts: migrate, verify the ledger, open accounts."""
    service.build(AgentSettings.load(config), PROCEDURES, threading.Event()).engine.dispose()


def with_ledger(folder: Path, work: Callable[..., Any]) -> Any:
    engine = create_engine(AgentSettings.load(folder / "north" / "agent.toml").database_url)
    try:
        return run_transaction(engine, work)
    finally:
        engine.dispose()


def spend(folder: Path, study: str) -> None:
    with_ledger(folder, lambda c: debit(c, "patients", study, COST, at=5))


def head_of(printed: str) -> str:
    return re.findall(r"\b[0-9a-f]{64}\b", printed)[0]


class Operator:
    """Runs a page's `python -m tacit_services.agent` commands, with its words in capitals filled in."""

    def __init__(self, page: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.commands, self.capsys = commands_of(page), capsys
        assert all(command[:3] == ["python", "-m", "tacit_services.agent"] for command in self.commands)

    def run(self, number: int, **words: str) -> tuple[int, str]:
        arguments = [words.get(word, word) for word in self.commands[number][3:]]
        self.capsys.readouterr()
        code = agent_main(arguments)
        return code, "".join(self.capsys.readouterr())


def test_a_backup_that_is_put_back_shows_whether_it_has_forgotten_a_debit(
    north: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator("back-up-a-ledger", capsys)
    assert len(operator.commands) == 3
    assert operator.run(0)[0] == 0
    code, printed = operator.run(1)
    assert code == 0
    kept = head_of(printed)
    spend(north, "b" * 64)
    later = head_of(operator.run(1)[1])
    for old in (north / "north").glob("agent.sqlite3*"):
        old.unlink()
    (north / "backup.sqlite3").rename(north / "north" / "agent.sqlite3")
    assert operator.run(2, HEAD=kept) == (0, operator.run(1)[1])
    code, printed = operator.run(2, HEAD=later)
    assert code == 1
    said = "kept hashes are those of no entry"
    assert said in printed
    assert said in (HOW_TO / "back-up-a-ledger.md").read_text("utf-8")


def test_a_lowered_cap_keeps_what_a_restored_ledger_forgot_within_the_old_one(north: Path) -> None:
    config = north / "north" / "agent.toml"
    config.write_text(config.read_text().replace("epsilon = 3.0", "epsilon = 2.5"))
    start(config)
    assert with_ledger(north, lambda c: standing_of(c, "patients").pure_left_micro) == 2_000_000


def test_an_agent_moves_to_postgresql_with_its_ledger(
    north: Path, capsys: pytest.CaptureFixture[str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator("move-to-postgresql", capsys)
    assert len(operator.commands) == 3
    code, printed = operator.run(0)
    assert code == 0
    operator.commands[1][-1] = postgres_url
    assert operator.run(1)[0] == 0
    monkeypatch.setenv("TACIT_AGENT_DATABASE_URL", postgres_url)
    assert operator.run(2, HEAD=head_of(printed)) == (0, printed)
    start(north / "north" / "agent.toml")
    assert with_ledger(north, lambda c: standing_of(c, "patients").pure_left_micro) == 2_500_000


def test_an_owner_with_a_new_key_and_name_has_the_account_it_had(north: Path) -> None:
    config = north / "north" / "agent.toml"
    commands = [command[1:] for command in commands_of("rotate-keys") if command[1:3] == ["party", "init"]]
    for command in commands:
        assert tacit([KEY if word == "TESTER_KEY" else word for word in command]) == 0
    old = load_key(north / "north" / "agent.pem").public_hex
    text = config.read_text().replace('name = "north"', 'name = "north-2"', 1)
    config.write_text(text.replace('key_file = "agent.pem"', 'key_file = "../north-2/party.pem"'))
    agent = service.build(AgentSettings.load(config), PROCEDURES, threading.Event())
    agent.engine.dispose()
    assert agent.settings.name == "north-2"
    assert agent.key.public_hex == load_key(north / "north-2" / "party.pem").public_hex != old
    assert with_ledger(north, lambda c: standing_of(c, "patients").pure_left_micro) == 2_500_000


def test_every_policy_that_is_shown_is_one(tmp_path: Path) -> None:
    shown = blocks_of("write-a-policy", "toml")
    assert len(shown) == 2
    for text in shown:
        (tmp_path / "policy.toml").write_text(text)
        policy = Policy.load(tmp_path / "policy.toml")
        assert set(policy.procedures) <= set(PROCEDURES)
        assert policy.data_sets
