"""Debits one account many times, as one of several processes: ``debit_process.py URL NAME DEBITS``.

Prints how many debits were granted. Costs add up, so that the tests know what may be granted in all.
"""

import sys

import sqlalchemy as sa

from tacit_protocol.privacy.guarantee import EPSILON_UNITS, ApproximateEvent, Budget, Guarantee
from tacit_protocol.signing.envelope import digest
from tacit_services.ledger.accounts import BudgetExceededError, debit
from tacit_services.shared.database import DatabaseUnavailableError, create_engine, run_transaction

DEBIT_MICRO = 10_000
PATIENCE = 100
COST = Guarantee(
    budget=Budget(epsilon_micro=DEBIT_MICRO, delta_pico=0),
    events=(ApproximateEvent(epsilon=DEBIT_MICRO / EPSILON_UNITS, delta=0.0),),
)


def debit_often(engine: sa.Engine, name: str, debits: int) -> int:
    """Try that many debits of different studies; returns how many were granted."""
    granted = 0
    for index in range(debits):
        study = digest(f"{name} {index}".encode())
        granted += debit_once(engine, study)
    return granted


def debit_once(engine: sa.Engine, study: str) -> bool:
    """Debit one study, however often conflicts get in the way; returns whether it was granted."""
    for _ in range(PATIENCE):
        try:
            run_transaction(engine, lambda c: debit(c, "patients", study, COST, at=0))
        except BudgetExceededError:
            return False
        except DatabaseUnavailableError:
            continue  # too many others wrote this account at once
        return True
    raise TimeoutError("the conflicts did not settle")


if __name__ == "__main__":
    database = create_engine(sys.argv[1])
    sys.stdout.write(str(debit_often(database, sys.argv[2], int(sys.argv[3]))))
