"""Debits accounts from many processes at once: ``debit_storm.py URL PROCESSES DEBITS SEED [PLANTED]``.

Forked from one parent, so that imports are paid for once; every child opens a database connection of its own.
All turn to the next account after ``DEBITS_PER_ACCOUNT`` debits each: most debits of a full account are
refused, and only those before it is full compete. Amounts are random and add up. Prints the granted amounts
in micro-epsilons, as JSON: for each account those of all processes.
With ``PLANTED`` each process first reads what is spent, and inserts in a second transaction.
"""

import json
import multiprocessing
import os
import random
import sys
from multiprocessing.synchronize import Barrier

import sqlalchemy as sa

from tacit_protocol.privacy.accounting import charge
from tacit_protocol.privacy.guarantee import EPSILON_UNITS, ApproximateEvent, Budget, Guarantee
from tacit_protocol.signing.envelope import digest
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import BudgetExceededError, debit, standing_of
from tacit_services.shared.database import DatabaseUnavailableError, create_engine, run_transaction

DEBIT_MICRO_MAX = 20_000
DEBITS_PER_ACCOUNT = 100
"""Debits that each process tries on one account before it turns to the next."""

PATIENCE = 1000
"""Whole transactions, each with its own retries, before conflicts count as never settling."""


def guarantee(micro: int) -> Guarantee:
    event = ApproximateEvent(epsilon=micro / EPSILON_UNITS, delta=0.0)
    return Guarantee(budget=Budget(epsilon_micro=micro, delta_pico=0), events=(event,))


def account_name(index: int) -> str:
    """Return the data set that every process debits at its ``index``-th debit."""
    return f"patients-{index // DEBITS_PER_ACCOUNT}"


def debit_once(engine: sa.Engine, account: str, study: str, micro: int) -> bool:
    """Debit until the database has said yes or no."""
    for _ in range(PATIENCE):
        try:
            run_transaction(engine, lambda c: debit(c, account, study, guarantee(micro), at=0))
        except BudgetExceededError:
            return False
        except DatabaseUnavailableError:
            continue  # too many others wrote this account at once
        return True
    raise TimeoutError("the conflicts did not settle")


def debit_after_reading(engine: sa.Engine, account: str, study: str, micro: int, together: Barrier) -> bool:
    """Plant: what is left is read in one transaction, and the entry written in another."""
    left = run_transaction(engine, lambda c: standing_of(c, account), read_only=True).pure_left_micro
    together.wait(300)
    if micro > left:
        return False

    for _ in range(PATIENCE):
        try:
            run_transaction(engine, lambda c: debit(c, account, study, guarantee(micro), at=0))
        except DatabaseUnavailableError:
            continue
        return True
    raise TimeoutError("the conflicts did not settle")


def storm(url: str, name: int, debits: int, seed: int, together: Barrier, planted: bool, out: int) -> None:
    """One child: its debits one after the other, all children starting at once."""
    if planted:
        accounts._place = lambda account, cost: (account.share, charge(cost.events))
    engine, amounts = create_engine(url), random.Random(f"{seed} {name}")  # noqa: S311 (amounts)
    granted: dict[str, list[int]] = {}
    together.wait(300)
    for index in range(debits):
        account = account_name(index)
        study, micro = digest(f"{name} {index}".encode()), amounts.randint(1, DEBIT_MICRO_MAX)
        if planted:
            accepted = debit_after_reading(engine, account, study, micro, together)
        else:
            accepted = debit_once(engine, account, study, micro)
        if accepted:
            granted.setdefault(account, []).append(micro)
    engine.dispose()
    os.write(out, json.dumps(granted).encode() + b"\n")


def main(url: str, processes: int, debits: int, seed: int, planted: bool) -> None:
    forking = multiprocessing.get_context("fork")
    together, (reading, writing) = forking.Barrier(processes), os.pipe()
    children = [
        forking.Process(target=storm, args=(url, name, debits, seed, together, planted, writing))
        for name in range(processes)
    ]
    for child in children:
        child.start()
    os.close(writing)
    with os.fdopen(reading) as answers:  # read while they run: a pipe holds little
        granted = [json.loads(line) for line in answers]
    for child in children:
        child.join()
    assert len(granted) == processes, "a process failed"
    accounts = {account for one in granted for account in one}
    json.dump({a: [micro for one in granted for micro in one.get(a, [])] for a in accounts}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), len(sys.argv) > 5)
