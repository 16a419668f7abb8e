"""A ledger of an older release becomes one of shares: nothing spent is forgotten, old hashes still hold."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.privacy.accounting import Amounts, charge
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, Guarantee, MechanismEvent
from tacit_protocol.privacy.permutation_test import decision_guarantee
from tacit_protocol.procedures.counts.release import laplace_count_guarantee
from tacit_services.agent.check import verify_ledger
from tacit_services.ledger.accounts import (
    BudgetExceededError,
    LedgerDamagedError,
    account_of,
    debit,
    set_caps,
    standing,
)
from tacit_services.ledger.entries import FIRST_HASH
from tacit_services.ledger.verification import export, inspect, verify
from tacit_services.shared import database
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.settings import SettingsError

BEFORE = {"agent": "a0005", "curator": "c0003"}
"""The last migration of each service before the shares."""

CAP_MICRO, DELTA_PICO = 2_000_000, 10_000_000
GAUSSIAN = gaussian_guarantee(Budget.of("0.5", "1e-6"))
PURE = laplace_count_guarantee(Budget.of("0.7", "0"))
DECISION = decision_guarantee(Budget.of("0.2", "1e-6"))


def upgrade_to(engine: sa.Engine, component: str, revision: str) -> None:
    """Migrate a database as far as an older release did."""
    root = Path(database.__file__).parents[1]
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection, "version_table": f"alembic_{component}"})
        config.set_main_option("script_location", str(root / "shared" / "alembic"))
        config.set_main_option("version_locations", str(root / component / "migrations"))
        config.set_main_option("path_separator", "newline")
        command.upgrade(config, revision)


def write_as_before(engine: sa.Engine, account: str, guarantees: list[Guarantee]) -> list[str]:
    """Write an account as the older release did, with its hashes; returns them."""
    tables = sa.MetaData()
    tables.reflect(engine, only=["ledger_accounts", "ledger_entries"])
    previous, hashes = FIRST_HASH, []
    with engine.begin() as connection:
        summary = {"data_set": account, "epsilon_cap_micro": CAP_MICRO, "delta_cap_pico": DELTA_PICO}
        accounts, entries = tables.tables["ledger_accounts"], tables.tables["ledger_entries"]
        connection.execute(accounts.insert().values(**summary, version=0, head_hash=FIRST_HASH))
        for sequence, guarantee in enumerate([None, *guarantees], start=1):
            events: tuple[MechanismEvent, ...] = () if guarantee is None else guarantee.events
            row: dict[str, Any] = {
                "data_set": account,
                "sequence": sequence,
                "kind": "cap" if guarantee is None else "debit",
                "study": None if guarantee is None else f"{sequence:064x}",
                "events": encode_json([event.model_dump() for event in events]).decode(),
                "epsilon_micro": CAP_MICRO if guarantee is None else guarantee.budget.epsilon_micro,
                "delta_pico": DELTA_PICO if guarantee is None else guarantee.budget.delta_pico,
                "at": sequence,
                "spent_after_micro": 1000 * sequence,
                "previous_hash": previous,
            }
            previous = hashlib.sha256(encode_json(row)).hexdigest()
            connection.execute(entries.insert().values(**row, entry_hash=previous))
            hashes.append(previous)
        changed = accounts.update().where(accounts.c.data_set == account)
        connection.execute(changed.values(version=len(hashes), head_hash=previous))
    return hashes


@pytest.fixture(params=["agent", "curator"])
def component(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(database_url: str, component: str) -> Iterator[sa.Engine]:
    engine = create_engine(database_url)
    upgrade_to(engine, component, BEFORE[component])
    yield engine
    engine.dispose()


def test_what_was_spent_is_kept_in_its_shares_and_old_hashes_hold(engine: sa.Engine, component: str) -> None:
    guarantees = [GAUSSIAN, PURE, DECISION]
    hashes = write_as_before(engine, "patients", guarantees)
    upgrade(engine, component)
    account = run_transaction(engine, lambda c: account_of(c, "patients"), read_only=True)
    spent = sum((charge(guarantee.events) for guarantee in guarantees), Amounts())
    assert (account.spent, account.share, account.promised) == (spent, spent, spent)
    assert account.debits == 3
    assert run_transaction(engine, verify, read_only=True) == 4
    assert run_transaction(engine, lambda c: inspect(c, kept_hashes=hashes), read_only=True).faults == ()
    entries = run_transaction(engine, export, read_only=True)
    assert [entry["entry_hash"] for entry in entries] == hashes
    assert [entry["paid_by"] for entry in entries] == [None, "gaussian", "pure", "pure"]
    json.dumps(entries)


def test_verifying_a_ledger_that_was_not_migrated_says_so(
    engine: sa.Engine, database_url: str, component: str
) -> None:
    write_as_before(engine, "patients", [PURE])
    with pytest.raises(SettingsError, match="start the service on it once"):
        verify_ledger(database_url)
    upgrade(engine, component)
    assert verify_ledger(database_url)["ok"]


def test_nothing_is_left_until_the_service_divides_the_cap(engine: sa.Engine, component: str) -> None:
    write_as_before(engine, "patients", [GAUSSIAN, PURE])
    upgrade(engine, component)
    cost = laplace_count_guarantee(Budget.of("0.1", "0"))
    with pytest.raises(BudgetExceededError):
        run_transaction(engine, lambda c: debit(c, "patients", "f" * 64, cost, at=9))
    run_transaction(engine, lambda c: set_caps(c, "patients", CAP_MICRO, DELTA_PICO, at=9))
    found = standing(run_transaction(engine, lambda c: account_of(c, "patients"), read_only=True))
    assert (found.pure_share_micro, found.pure_spent_micro) == (1_000_000, 700_000)
    assert 0 < (found.gaussian_spent_micro or 0) < (found.gaussian_share_micro or 0)
    assert found.promised_micro <= CAP_MICRO
    run_transaction(engine, lambda c: debit(c, "patients", "f" * 64, cost, at=9))
    assert run_transaction(engine, verify, read_only=True) == 5


def test_an_account_that_is_over_in_a_share_refuses_that_share(engine: sa.Engine, component: str) -> None:
    """The older rule let both kinds fill the cap together: 1.4 of pure epsilon, and Gaussian noise of 1."""
    write_as_before(engine, "patients", [PURE, PURE, gaussian_guarantee(Budget.of("1", "1e-6"))])
    upgrade(engine, component)
    run_transaction(engine, lambda c: set_caps(c, "patients", CAP_MICRO, DELTA_PICO, at=9))
    account = run_transaction(engine, lambda c: account_of(c, "patients"), read_only=True)
    assert not account.cap.covers(account.promised), "more was spent than the cap has"
    for cost in (
        laplace_count_guarantee(Budget.of("0.001", "0")),
        gaussian_guarantee(Budget.of("0.01", "1e-9")),
    ):
        with pytest.raises(BudgetExceededError):
            run_transaction(engine, lambda c, cost=cost: debit(c, "patients", "f" * 64, cost, at=9))
    run_transaction(engine, verify, read_only=True)


def test_an_entry_that_cannot_be_read_stops_the_migration(engine: sa.Engine, component: str) -> None:
    write_as_before(engine, "patients", [PURE])
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE ledger_entries SET events = '[{]' WHERE sequence = 2"))
    with pytest.raises(LedgerDamagedError):
        upgrade(engine, component)


def test_an_old_entry_that_was_changed_is_found_after_the_migration(
    engine: sa.Engine, component: str
) -> None:
    write_as_before(engine, "patients", [PURE, GAUSSIAN])
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE ledger_entries SET spent_after_micro = 1 WHERE sequence = 2"))
    upgrade(engine, component)
    with pytest.raises(LedgerDamagedError):
        run_transaction(engine, verify, read_only=True)
