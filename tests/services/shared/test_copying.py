"""A database is copied whole, into an empty one alone, and what uses the copy goes on where it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent
from tacit_services.agent.__main__ import main as agent_main
from tacit_services.ledger.accounts import AlreadyDebitedError, debit, set_caps, standing_of
from tacit_services.ledger.verification import inspect
from tacit_services.shared.database import CopyError, copy_database, create_engine, run_transaction, upgrade
from tacit_services.tester.tables import STUDIES

COST = Guarantee(budget=Budget.of("0.5", "0"), events=(LaplaceEvent(noise_multiplier=2.0),))
LEFT_MICRO = 1_000_000
"""Of a cap of 2, after both debits."""


@pytest.fixture
def source_url(tmp_path: Path) -> Iterator[str]:
    """An agent's database on SQLite with two debits of one data set."""
    url = f"sqlite:///{tmp_path / 'agent.sqlite3'}"
    engine = create_engine(url)
    upgrade(engine, "agent")
    run_transaction(engine, lambda c: set_caps(c, "patients", 2_000_000, 0, at=1))
    for study in ("a" * 64, "b" * 64):
        run_transaction(engine, lambda c, study=study: debit(c, "patients", study, COST, at=2))
    engine.dispose()
    return url


def heads(url: str) -> tuple[list[tuple[str, int, str]], tuple[str, ...]]:
    engine = create_engine(url)
    found = run_transaction(engine, inspect, read_only=True)
    engine.dispose()
    return [(a.data_set, a.entries, a.head_hash) for a in found.accounts], found.faults


def test_a_ledger_arrives_whole_and_forgets_no_debit(source_url: str, database_url: str) -> None:
    counts = copy_database(source_url, database_url, "agent")
    assert (counts["ledger_accounts"], counts["ledger_entries"]) == (1, 3)
    assert heads(database_url) == heads(source_url)
    assert heads(database_url)[1] == ()
    engine = create_engine(database_url)
    standing = run_transaction(engine, lambda c: standing_of(c, "patients"), read_only=True)
    assert standing.pure_left_micro == LEFT_MICRO
    with pytest.raises(AlreadyDebitedError):
        run_transaction(engine, lambda c: debit(c, "patients", "a" * 64, COST, at=3))
    run_transaction(engine, lambda c: debit(c, "patients", "c" * 64, COST, at=3))
    engine.dispose()


def test_studies_are_numbered_on_and_envelopes_are_the_same_bytes(tmp_path: Path, database_url: str) -> None:
    source_url = f"sqlite:///{tmp_path / 'tester.sqlite3'}"
    source = create_engine(source_url)
    upgrade(source, "tester")

    def study(number: int) -> dict[str, object]:
        fields = {"title": "t", "procedure": "p", "analyst_key": "k", "state": "completed"}
        times = {"created_at": 1, "deadline": 2}
        return {"digest": f"{number:064x}", "envelope": bytes(range(number, 256)), **fields, **times}

    many = [study(number) for number in range(1, 4)]
    run_transaction(source, lambda c: c.execute(STUDIES.insert(), many))
    source.dispose()
    assert copy_database(source_url, database_url, "tester")["studies"] == 3
    target = create_engine(database_url)
    run_transaction(target, lambda c: c.execute(STUDIES.insert().values(study(9))))
    query = sa.select(STUDIES.c.sequence, STUDIES.c.envelope).order_by(STUDIES.c.sequence)
    found = run_transaction(target, lambda c: c.execute(query).all(), read_only=True)
    target.dispose()
    assert [(row.sequence, bytes(row.envelope)[0]) for row in found] == [(1, 1), (2, 2), (3, 3), (4, 9)]


def test_nothing_and_an_older_release_are_not_copied(source_url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'copy.sqlite3'}"
    missing = tmp_path / "missing.sqlite3"
    with pytest.raises(CopyError, match="no database"):
        copy_database(f"sqlite:///{missing}", target, "agent")
    assert not missing.exists()
    with pytest.raises(CopyError, match="no database"):
        copy_database(source_url, target, "tester")
    engine = create_engine(source_url)
    run_transaction(engine, lambda c: c.execute(sa.text("UPDATE alembic_agent SET version_num = 'a0001'")))
    engine.dispose()
    with pytest.raises(CopyError, match="older release"):
        copy_database(source_url, target, "agent")


def test_the_command_copies_and_says_what_is_wrong(
    source_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_AGENT_DATABASE_URL", source_url)
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "agent.toml").write_text(
        'name = "north"\nkey_file = "agent.pem"\ntester_url = "http://tester"\npolicy_file = "policy.toml"\n'
        f'tester_key = "{"0" * 64}"\n[[data_sets]]\nname = "patients"\nsource = "p.csv"\n'
        "epsilon = 2.0\ndelta = 0.0\n"
    )
    command = ["copy", "--config", str(tmp_path / "agent.toml"), "--to"]
    target = f"sqlite:///{tmp_path / 'backup.sqlite3'}"
    assert agent_main([*command, target]) == 0
    assert "ledger_entries: 3 rows" in capsys.readouterr().out
    assert (tmp_path / "backup.sqlite3").stat().st_mode & 0o777 == 0o600
    assert agent_main([*command, f"sqlite:///{tmp_path / 'nowhere' / 'backup.sqlite3'}"]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert agent_main([*command, target]) == 1
    assert "not empty" in capsys.readouterr().err
    assert agent_main([*command, "mysql://somewhere"]) == 1
    assert "--to must be" in capsys.readouterr().err
