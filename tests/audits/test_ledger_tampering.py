"""A ledger that somebody edited is found out: in the database, through the agent, and by the commands."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import served
import sqlalchemy as sa
import structlog
from agent_fakes import FAKES, World
from debit_process import COST, DEBIT_MICRO
from planted import with_mistake

from tacit.client.agent import AgentClient
from tacit.client.http import HttpRequest, HttpResponse
from tacit.command import connect
from tacit.command.app import run as run_command
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.signing import issue_token
from tacit_services.agent.__main__ import main as agent_main
from tacit_services.agent.service import build
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.ledger import accounts, verification
from tacit_services.ledger.accounts import LedgerConflictError, debit, set_caps
from tacit_services.ledger.entries import ACCOUNTS, ENTRIES, FIRST_HASH, entry_of
from tacit_services.ledger.verification import Inspection, inspect
from tacit_services.shared.database import create_engine, run_transaction, upgrade

STUDIES = [letter * 64 for letter in "abcd"]
AT = ENTRIES.c.data_set == "patients"


def fill(engine: sa.Engine) -> None:
    """An account of five entries (its cap and four debits), and another of one."""
    upgrade(engine, "agent")
    guarantee = Guarantee(budget=Budget.of("0.5", "1e-6"), events=COST.events)

    def work(connection: sa.Connection) -> None:
        set_caps(connection, "staff", 10**6, 10**7, at=1)
        set_caps(connection, "patients", 10**8, 10**7, at=1)
        for study in STUDIES:
            debit(connection, "patients", study, guarantee, at=2)

    run_transaction(engine, work)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    fill(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    fill(engine)
    yield engine
    engine.dispose()


def inspected(engine: sa.Engine, kept: list[str] | None = None) -> Inspection:
    return run_transaction(engine, lambda c: inspect(c, kept_hashes=kept or []), read_only=True)


def after(
    engine: sa.Engine, tamper: Callable[[sa.Connection], Any], kept: Iterable[str] = (), check: Any = inspect
) -> Inspection:
    """What an inspection finds after tampering, which is then rolled back."""
    with engine.connect() as connection:
        tamper(connection)
        found: Inspection = check(connection, kept_hashes=kept)
        connection.rollback()
    return found


def head(engine: sa.Engine) -> str:
    return next(a.head_hash for a in inspected(engine).accounts if a.data_set == "patients")


def stored(connection: sa.Connection) -> list[dict[str, Any]]:
    """The account's rows, oldest first."""
    query = ENTRIES.select().where(AT).order_by(ENTRIES.c.sequence)
    return [dict(row._mapping) for row in connection.execute(query)]


def put(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    connection.execute(ENTRIES.delete().where(AT))
    for row in rows:
        connection.execute(ENTRIES.insert().values(**row))


def rechain(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    """Store rows with their numbers, hashes and the account's head computed anew: a thorough forger."""
    previous = FIRST_HASH
    for sequence, row in enumerate(rows, start=1):
        row |= {"sequence": sequence, "previous_hash": previous}
        row["entry_hash"] = previous = entry_of(SimpleNamespace(**row)).entry_hash
    put(connection, rows)
    connection.execute(
        ACCOUNTS.update()
        .where(ACCOUNTS.c.data_set == "patients")
        .values(
            version=len(rows),
            head_hash=previous,
            debits=len(rows) - 1,
            pure_spent_pico=sum(row["pure_pico"] for row in rows[1:]),
        )
    )


def edited(column: str, value: Any) -> Callable[[sa.Connection], None]:
    def tamper(connection: sa.Connection) -> None:
        connection.execute(ENTRIES.update().where(AT, ENTRIES.c.sequence == 3).values({column: value}))

    return tamper


def deleted(connection: sa.Connection) -> None:
    connection.execute(ENTRIES.delete().where(AT, ENTRIES.c.sequence == 3))


def deleted_and_renumbered(connection: sa.Connection) -> None:
    rows = stored(connection)
    del rows[2]
    put(connection, [row | {"sequence": number} for number, row in enumerate(rows, start=1)])
    connection.execute(ACCOUNTS.update().where(ACCOUNTS.c.data_set == "patients").values(version=4))


def deleted_newest(connection: sa.Connection) -> None:
    connection.execute(ENTRIES.delete().where(AT, ENTRIES.c.sequence == 5))


def reordered(connection: sa.Connection) -> None:
    rows = stored(connection)
    rows[2], rows[3] = rows[3] | {"sequence": 3}, rows[2] | {"sequence": 4}
    for row in rows[2:4]:  # each entry's own hash is computed anew, the chain is not
        row["entry_hash"] = entry_of(SimpleNamespace(**row)).entry_hash
    put(connection, rows)


def inserted(connection: sa.Connection) -> None:
    rows = stored(connection)
    twin = rows[3] | {"study": "e" * 64}
    rows.insert(3, twin)
    put(connection, [row | {"sequence": number} for number, row in enumerate(rows, start=1)])
    connection.execute(ACCOUNTS.update().where(ACCOUNTS.c.data_set == "patients").values(version=6))


def account_edited(**values: int) -> Callable[[sa.Connection], None]:
    """The entries are as they were, and the account says something else."""
    return lambda connection: connection.execute(ACCOUNTS.update().values(values)) and None


def rechained_with_less_spent(connection: sa.Connection) -> None:
    """All hashes hold, but the amounts are no longer those of the events."""
    rows = stored(connection)
    halved = [row | {"pure_pico": row["pure_pico"] // 2} if row["kind"] == "debit" else row for row in rows]
    rechain(connection, halved)


TAMPERINGS: dict[str, tuple[Callable[[sa.Connection], None], str]] = {
    "an epsilon edited": (edited("epsilon_micro", 1), "changed after it was written (entry 3)"),
    "a study edited": (edited("study", "f" * 64), "changed after it was written (entry 3)"),
    "events edited": (edited("events", "[]"), "changed after it was written (entry 3)"),
    "events spoilt": (edited("events", "[{]"), "changed after it was written (entry 3)"),
    "a time edited": (edited("at", 3), "changed after it was written (entry 3)"),
    "a hash edited": (edited("entry_hash", "0" * 64), "changed after it was written (entry 3)"),
    "an entry deleted": (deleted, "an entry is missing (entry 3)"),
    "an entry deleted, the rest renumbered": (deleted_and_renumbered, "(entry 3)"),
    "the newest entry deleted": (deleted_newest, "newest entries are missing"),
    "two entries reordered": (reordered, "does not follow the one before it (entry 3)"),
    "an entry inserted": (inserted, "(entry 4)"),
    "a cap raised": (account_edited(epsilon_cap_micro=10**9), "caps were changed"),
    "amounts halved and all hashes computed anew": (
        rechained_with_less_spent,
        "not what its events cost",
    ),
    "a sum lowered": (account_edited(pure_spent_pico=0), "sums are not those of its debits"),
    "a promise raised": (account_edited(pure_promised_pico=10**15), "high-water marks were changed"),
    "a share raised": (account_edited(gaussian_share_femto=10**16), "shares were changed"),
}


def test_a_ledger_that_nobody_touched_is_whole(engine: sa.Engine) -> None:
    found = inspected(engine, [head(engine)])
    assert found.faults == ()
    assert {(a.data_set, a.entries) for a in found.accounts} == {("patients", 5), ("staff", 1)}
    newest = run_transaction(engine, stored, read_only=True)[-1]
    (patients,) = (a for a in found.accounts if a.data_set == "patients")
    assert patients.head_hash == newest["entry_hash"]
    assert patients.standing.pure_spent_micro == 4 * DEBIT_MICRO


def test_tampering_is_found_and_named(engine: sa.Engine) -> None:
    missed = {}
    for name, (tamper, words) in TAMPERINGS.items():
        faults = after(engine, tamper).faults
        if not any(fault.startswith("data set patients: ") and words in fault for fault in faults):
            missed[name] = faults
    assert missed == {}
    assert inspected(engine).faults == (), "every attempt was rolled back"


def test_events_spelled_otherwise_are_found(sqlite: sa.Engine) -> None:
    """The same events with a space: the hash is of the entry, so the row may have one spelling alone."""

    def spell(connection: sa.Connection) -> None:
        rows = stored(connection)
        rows[2]["events"] = json.dumps(json.loads(rows[2]["events"]))
        put(connection, rows)

    assert "(entry 3)" in after(sqlite, spell).faults[0]


def test_a_value_of_another_type_is_found(sqlite: sa.Engine) -> None:
    """SQLite keeps bytes in a column of integers."""

    def store_bytes(connection: sa.Connection) -> None:
        connection.exec_driver_sql("UPDATE ledger_entries SET at = x'00ff' WHERE sequence = 3")

    assert "(entry 3)" in after(sqlite, store_bytes).faults[0]


def cut_off(connection: sa.Connection) -> None:
    """Remove the newest entry, and all that the account says of it."""
    rechain(connection, stored(connection)[:-1])


def put_an_entry_out(connection: sa.Connection) -> None:
    """Remove a debit from the middle, and compute every amount and hash anew."""
    rows = stored(connection)
    del rows[2]
    rechain(connection, rows)


def test_what_the_entries_cannot_show_a_kept_head_hash_shows(engine: sa.Engine) -> None:
    """The documented limit, and its remedy."""
    kept = head(engine)
    for forge in (cut_off, put_an_entry_out):
        assert after(engine, forge).faults == (), "consistent, so that the entries alone show nothing"
        assert "1 kept hashes are those of no entry" in after(engine, forge, [kept]).faults[0]


def test_a_head_hash_kept_long_ago_is_still_there(engine: sa.Engine) -> None:
    kept = head(engine)
    guarantee = Guarantee(budget=Budget.of("0.5", "1e-6"), events=COST.events)
    run_transaction(engine, lambda c: debit(c, "patients", "9" * 64, guarantee, at=3))
    assert head(engine) != kept
    assert inspected(engine, [kept]).faults == ()


def test_a_debit_is_refused_where_another_wrote_the_account_after_it_was_read(
    sqlite: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the account's version, whatever the database's isolation."""
    guarantee = Guarantee(budget=Budget.of("0.5", "1e-6"), events=COST.events)
    with sqlite.connect() as connection:
        read = accounts.account_of(connection, "patients")
        debit(connection, "patients", "8" * 64, guarantee, at=3)
        monkeypatch.setattr(accounts, "account_of", lambda *_: read)
        with pytest.raises(LedgerConflictError):
            debit(connection, "patients", "9" * 64, guarantee, at=3)
        connection.rollback()


BLIND_SPOTS = {
    "an epsilon edited": ("entry.row() == dict(row._mapping)", "True"),
    "two entries reordered": ("entry.previous_hash == previous", "True"),
    "an entry deleted": ("entry.sequence == sequence", "True"),
    "the newest entry deleted": ("account.version == len(rows)", "True"),
    "amounts halved and all hashes computed anew": ("entry.amounts == converted", "True"),
    "a sum lowered": ("(account.spent, account.debits) == (spent, debits)", "True"),
    "a promise raised": ("account.promised == promised", "True"),
    "a share raised": ("account.share == share", "True"),
}


@pytest.mark.parametrize("name", BLIND_SPOTS)
def test_a_verification_that_looks_away_is_noticed(sqlite: sa.Engine, name: str) -> None:
    """Each check is needed: without it the tampering is not found, or not named for what it is."""
    careless = with_mistake(verification, *BLIND_SPOTS[name])
    tamper, words = TAMPERINGS[name]
    assert not any(words in fault for fault in after(sqlite, tamper, check=careless.inspect).faults)


class AppTransport:
    """Carries the command's requests to an agent's app in this process."""

    def __init__(self, app: Any, world: World) -> None:
        self._app, self._world = app, world

    def send(self, request: HttpRequest) -> HttpResponse:
        token = issue_token(self._world.agent, "agent:north", int(time.time()))
        sent = {"params": dict(request.query), "headers": {"authorization": f"Bearer {token}"}}
        with structlog.testing.capture_logs():  # standard output is the command's
            answer = served.call(self._app, "http://localhost", request.method, request.path, **sent)
        return HttpResponse(answer.status_code, dict(answer.headers), answer.content)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def agent_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, sa.Engine]]:
    """An agent's configuration and database with a filled ledger; ``tacit`` leads to the agent."""
    world = World(tmp_path)
    config = world.write("https://tester")
    agent = build(AgentSettings.load(config), FAKES, threading.Event())
    guarantee = Guarantee(budget=Budget.of("0.001", "1e-9"), events=COST.events)
    for study in STUDIES:
        run_transaction(agent.engine, lambda c, study=study: debit(c, "patients", study, guarantee, at=2))
    app = create_agent_app(agent, Runtime("0", lambda: True, lambda: None))
    transport = AppTransport(app, world)
    monkeypatch.setattr(
        connect,
        "agent_client",
        lambda _: AgentClient("http://127.0.0.1:8710", "north", world.agent, transport=transport),
    )
    yield config, agent.engine
    agent.engine.dispose()


def run_both(config: Path, capsys: pytest.CaptureFixture[str], *kept: str) -> tuple[int, dict[str, Any]]:
    """Ask the running agent, and the database alone: both must say the same."""
    capsys.readouterr()
    options = [word for one in kept for word in ("--kept", one)] + ["--config", str(config), "--json"]
    code = run_command(["ledger", "verify", *options])
    online = json.loads(capsys.readouterr().out)
    assert agent_main(["verify", *options]) == code
    assert json.loads(capsys.readouterr().out) == online
    return code, online


def test_the_commands_say_that_a_ledger_is_whole_and_where_its_head_is(
    agent_ledger: tuple[Path, sa.Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    config, engine = agent_ledger
    code, report = run_both(config, capsys, head(engine))
    assert (code, report["ok"], report["faults"]) == (0, True, [])
    assert [a["head_hash"] for a in report["accounts"]] == [head(engine)]
    assert run_command(["ledger", "verify", "--config", str(config)]) == 0
    assert head(engine) in capsys.readouterr().out
    assert agent_main(["verify", "--config", str(config)]) == 0
    assert head(engine) in capsys.readouterr().out


def test_the_commands_find_an_edited_row_and_a_lost_head(
    agent_ledger: tuple[Path, sa.Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    config, engine = agent_ledger
    assert run_both(config, capsys, "0" * 64)[0] == 1
    run_transaction(engine, edited("epsilon_micro", 1))
    code, report = run_both(config, capsys)
    assert (code, report["ok"]) == (1, False)
    assert "entry 3" in report["faults"][0]
    assert run_command(["ledger", "verify", "--config", str(config)]) == 1
    assert "Damaged: data set patients" in capsys.readouterr().out
    assert run_command(["ledger", "verify", "--kept", "no hash", "--config", str(config)]) == 2


def test_verifying_offline_before_there_is_a_ledger_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = World(tmp_path).write("https://tester")
    before = sorted(tmp_path.iterdir())
    assert agent_main(["verify", "--config", str(config)]) == 1
    assert "there is no ledger yet" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
