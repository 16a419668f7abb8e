"""Many at once: fifty identical uploads leave one row and one answer, twenty processes never overspend."""

import asyncio
import json
from collections import Counter

import debit_process
import pytest
import sqlalchemy as sa
from debit_process import DEBIT_MICRO_MAX, account_name
from forked_python import forked_python
from long_runs import choose
from tester_federation import Federation

from tacit_services.ledger.accounts import MICRO, account_of, debits_of, set_caps
from tacit_services.ledger.entries import RESERVATIONS
from tacit_services.ledger.verification import verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester import answers
from tacit_services.tester.tables import JOBS, RELEASES

pytestmark = pytest.mark.both_databases

UPLOADS = 50
PROCESSES = 20
DEBITS = choose(20, 5000)
"""Debits that each process tries: 400 in all, and 100 000, of fifty accounts, in the long run."""

CAP_MICRO = 60 * DEBIT_MICRO_MAX // 2


def faults_of_uploads(federation: Federation) -> list[str]:
    """Upload one release fifty times at once, through two testers; say what is wrong with the outcome."""
    study = federation.create()
    for owner in ("south", "west"):
        assert federation.release(study, owner).status_code == 201
    envelope, owner = federation.parties.release(study, "north"), federation.parties.owners["north"]
    apps = [federation.app, federation.start_tester()]

    async def upload() -> list[tuple[int, bytes]]:
        path = f"/v1/studies/{study}/releases/north"
        calls = (
            federation.send("PUT", path, owner, apps[i % 2], content=envelope, headers={})
            for i in range(UPLOADS)
        )
        return [(response.status_code, response.content) for response in await asyncio.gather(*calls)]

    outcomes = Counter(asyncio.run(upload()))
    answer = json.dumps({"study": study}, separators=(",", ":")).encode()
    found = [] if outcomes == {(201, answer): 1, (200, answer): UPLOADS - 1} else [f"answers: {outcomes}"]
    for table, rows_wanted in ((RELEASES, 3), (JOBS, 1)):
        rows = run_transaction(federation.engine, lambda c, t=table: c.execute(t.select()).all())  # type: ignore[misc]
        if len(rows) != rows_wanted:
            found.append(f"{len(rows)} rows of {table.name}")
        if table is RELEASES and {bytes(row.envelope) for row in rows if row.owner == "north"} != {envelope}:
            found.append("other bytes are stored")
    return found


def test_fifty_identical_uploads_give_one_row_and_one_answer(federation: Federation) -> None:
    assert faults_of_uploads(federation) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_tester_that_does_not_look_before_it_stores_would_be_caught(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "is_stored", lambda *_: False)
    assert faults_of_uploads(federation) != []


def run_storm(url: str, processes: int, debits: int, *mode: str) -> dict[str, list[int]]:
    """Open accounts and debit them from many processes; returns the amounts that were granted, by account."""
    engine = create_engine(url)
    upgrade(engine, "agent")
    for account in sorted({account_name(index) for index in range(debits)}):
        run_transaction(engine, lambda c, account=account: set_caps(c, account, CAP_MICRO, 0, at=1))  # type: ignore[misc]
    engine.dispose()
    storm = ["storm", url, str(processes), str(debits), "1", *mode]
    done = forked_python().run([debit_process.__file__, *storm])
    assert done.returncode == 0, done.stderr
    granted: dict[str, list[int]] = json.loads(done.stdout)
    return granted


def faults_of_storm(url: str, granted: dict[str, list[int]]) -> list[str]:
    """Say what is wrong with the accounts, from their entries alone."""
    engine, found = create_engine(url), []

    def read(connection: sa.Connection, account: str) -> tuple[list[int], int, int]:
        debits, found = debits_of(connection, account), account_of(connection, account)
        return [entry.epsilon_micro for entry in debits], found.spent.pure_pico // MICRO, found.version

    for account, granted_micro in granted.items():
        amounts, spent, version = run_transaction(engine, lambda c, a=account: read(c, a), read_only=True)  # type: ignore[misc]
        if spent > CAP_MICRO:
            found.append(f"overspent by {spent - CAP_MICRO}")
        if sorted(amounts) != sorted(granted_micro) or version != len(granted_micro) + 1:
            found.append("the entries are not the debits that were granted")
    if not found:
        run_transaction(engine, verify, read_only=True)
    if run_transaction(engine, lambda c: c.execute(RESERVATIONS.select()).all(), read_only=True):
        found.append("something is still reserved")
    engine.dispose()
    return found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_processes_never_overspend(database_url: str) -> None:
    granted = run_storm(database_url, PROCESSES, DEBITS)
    assert faults_of_storm(database_url, granted) == []
    assert granted.keys() == {account_name(index) for index in range(DEBITS)}
    for micro in granted.values():
        assert sum(micro) > CAP_MICRO - DEBIT_MICRO_MAX, "what could be granted was"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_processes_that_reserve_first_never_overspend_nor_lose_what_they_reserved(
    database_url: str,
) -> None:
    granted = run_storm(database_url, PROCESSES, choose(5, 1000), "reserve")
    assert faults_of_storm(database_url, granted) == []
    assert all(granted.values())


@pytest.mark.long
def test_processes_that_do_not_see_what_others_reserved_would_be_caught(database_url: str) -> None:
    with pytest.raises(AssertionError, match="what was reserved was taken by others"):
        run_storm(database_url, 8, 60, "reserve-unseen")


@pytest.mark.long
def test_processes_that_read_first_and_write_later_would_be_caught(database_url: str) -> None:
    granted = run_storm(database_url, 4, 60, "read-then-write")
    assert any("overspent" in fault for fault in faults_of_storm(database_url, granted))
