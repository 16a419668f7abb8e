"""Debits accounts many times, from one of several processes or from many at once.

``debit_process.py URL NAME DEBITS`` debits one account and prints how many debits were granted. Costs add up,
so that the tests know what may be granted in all.

``debit_process.py storm URL PROCESSES DEBITS SEED [MODE]`` forks the processes, so that imports are paid
for once; each opens a database connection of its own. All turn to the next account after
``DEBITS_PER_ACCOUNT`` debits each: most debits of a full account are refused, and only those before it is
full compete. Amounts are random and add up. Prints the granted amounts in micro-epsilons, as JSON: for each
account those of all processes. In the mode ``reserve`` three studies are reserved first, and then debited or
given back; a reserved study that cannot be debited ends the process with an error. Planted mistakes are
``read-then-write``, where each process reads what is left and inserts in a second transaction, and
``reserve-unseen``, where nobody sees what others have reserved.
"""

import json
import multiprocessing
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Barrier

import sqlalchemy as sa

from tacit_protocol.messages.encoding import digest
from tacit_protocol.privacy.accounting import charge
from tacit_protocol.privacy.guarantee import EPSILON_UNITS, ApproximateEvent, Budget, Guarantee
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import BudgetExceededError, debit, give_back, reserve, standing_of
from tacit_services.shared.database import DatabaseUnavailableError, create_engine, run_transaction

DEBIT_MICRO = 10_000
DEBIT_MICRO_MAX = 20_000
DEBITS_PER_ACCOUNT = 100
"""Debits that each process tries on one account before it turns to the next."""

DEBITED_PART = 0.7
"""Part of the reserved studies that are debited; the others are given back."""

RESERVED_AT_ONCE = 3
"""Studies that each process has reserved before it debits the first of them."""

PATIENCE = 1000
"""Whole transactions, each with its own retries, before conflicts count as never settling."""


def guarantee(micro: int) -> Guarantee:
    event = ApproximateEvent(epsilon=micro / EPSILON_UNITS, delta=0.0)
    return Guarantee(budget=Budget(epsilon_micro=micro, delta_pico=0), events=(event,))


COST = guarantee(DEBIT_MICRO)


def account_name(index: int) -> str:
    """Return the data set that every process of a storm debits at its ``index``-th debit."""
    return f"patients-{index // DEBITS_PER_ACCOUNT}"


def debit_once(engine: sa.Engine, account: str, study: str, cost: Guarantee) -> bool:
    """Debit one study until the database has said yes or no; returns whether it was granted."""
    return settled(engine, lambda c: debit(c, account, study, cost, at=0))


def settled(engine: sa.Engine, work: Callable[[sa.Connection], object]) -> bool:
    """Run a transaction until the database has said yes or no; returns whether it was granted."""
    for _ in range(PATIENCE):
        try:
            run_transaction(engine, work)
        except BudgetExceededError:
            return False
        except DatabaseUnavailableError:
            continue  # too many others wrote this account at once
        return True
    raise TimeoutError("the conflicts did not settle")


def reserve_then_debit(
    engine: sa.Engine, account: str, costs: dict[str, Guarantee], amounts: random.Random
) -> list[int]:
    """Reserve studies, then debit each or give it back; returns the amounts that were debited.

    Raises:
        RuntimeError: what was reserved could not be debited, as others took it.
    """
    granted = []
    asked = {
        study: partial(reserve, data_set=account, study=study, guarantee=costs[study], at=0)
        for study in costs
    }
    for study in [study for study, work in asked.items() if settled(engine, work)]:
        if amounts.random() > DEBITED_PART:
            settled(engine, partial(give_back, studies=[study]))
        elif debit_once(engine, account, study, costs[study]):
            granted.append(costs[study].budget.epsilon_micro)
        else:
            raise RuntimeError("what was reserved was taken by others")
    return granted


def debit_after_reading(
    engine: sa.Engine, account: str, study: str, cost: Guarantee, together: Barrier
) -> bool:
    """Plant: what is left is read in one transaction, and the entry written in another."""
    left = run_transaction(engine, lambda c: standing_of(c, account), read_only=True).pure_left_micro
    together.wait(300)
    return cost.budget.epsilon_micro <= left and debit_once(engine, account, study, cost)


def storm_of_one(url: str, name: int, debits: int, seed: int, together: Barrier, mode: str, out: int) -> None:
    """One child: its debits one after the other, all children starting at once."""
    if mode == "reserve-unseen":
        accounts._reserved = lambda *_: {}
    if mode == "read-then-write":
        accounts._place = lambda account, cost: (account.share, charge(cost.events))
    engine, amounts = create_engine(url), random.Random(f"{seed} {name}")  # noqa: S311 (amounts)
    granted: dict[str, list[int]] = {}
    together.wait(300)
    for index in range(debits):
        account, micro = account_name(index), amounts.randint(1, DEBIT_MICRO_MAX)
        asked = engine, account, digest(f"{name} {index}".encode()), guarantee(micro)
        if mode in {"reserve", "reserve-unseen"}:
            costs = {f"{asked[2][:-1]}{part}": asked[3] for part in range(RESERVED_AT_ONCE)}
            debited = reserve_then_debit(engine, account, costs, amounts)
        else:
            done = debit_after_reading(*asked, together) if mode else debit_once(*asked)
            debited = [micro] if done else []
        if debited:
            granted.setdefault(account, []).extend(debited)
    engine.dispose()
    os.write(out, json.dumps(granted).encode() + b"\n")


def storm(url: str, processes: int, debits: int, seed: int, mode: str) -> None:
    forking = multiprocessing.get_context("fork")
    together, (reading, writing) = forking.Barrier(processes), os.pipe()
    children = [
        forking.Process(target=storm_of_one, args=(url, name, debits, seed, together, mode, writing))
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
    names = {account for one in granted for account in one}
    json.dump({a: [micro for one in granted for micro in one.get(a, [])] for a in names}, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1] == "storm":
        _, _, url, processes, debits, seed, *modes = sys.argv
        storm(url, int(processes), int(debits), int(seed), "".join(modes))
    else:
        _, url, name, debits = sys.argv
        engine = create_engine(url)
        studies = [digest(f"{name} {index}".encode()) for index in range(int(debits))]
        sys.stdout.write(str(sum(debit_once(engine, "patients", study, COST) for study in studies)))
