"""Runs a real agent with the fake procedure, as a process that the fault tests kill.

``python agent_process.py CONFIG [PLANTED]``: ``PLANTED`` names a mistake to put in, to show that the tests
catch it.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from agent_fakes import FAKES, FakeSum

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.signing import RELEASE_TYPE, sign_envelope
from tacit_services.agent.agent import Agent
from tacit_services.agent.service import run
from tacit_services.agent.study.intake import IntakeRefusedError, Job
from tacit_services.agent.study.releases import Releaser
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.ledger.accounts import AlreadyDebitedError, debit, debits_of
from tacit_services.ledger.entries import LedgerEntry
from tacit_services.shared.database import run_transaction

CLIENTS: list[TesterClient] = []


def debit_in_its_own_transaction(original: Any) -> Any:
    """Plant: the debit is committed before the release is stored."""

    def release(self: Any, job: Job, awaited: Any) -> dict[str, int] | None:
        try:
            run_transaction(
                self.uses.engine,
                lambda connection: debit(connection, job.parts[0].account, job.digest, job.cost, at=0),
            )
        except AlreadyDebitedError:
            raise IntakeRefusedError("internal-error", "debited already") from None
        return original(self, job, awaited)  # type: ignore[no-any-return]

    return release


def entry_of_earlier_debit(self: Any, connection: sa.Connection, job: Job, now: int) -> list[LedgerEntry]:
    return debits_of(connection, job.parts[0].account)[-1:]


def send_before_storing(self: Any, connection: sa.Connection, job: Job, summary: Any, awaited: Any) -> Any:
    """Plant: the release goes out before the transaction that stores it has ended."""
    release = job.procedure.privatise(job.study, summary, self.uses.noise)
    message = ReleaseMessage(study=job.digest, party=job.sender, release=release)
    # Of several agents in one process each has a client of its own.
    own = next(client for client in CLIENTS if client._key.public_hex == self.key.public_hex)
    own.put_release(job.digest, job.sender, sign_envelope(encode(message), RELEASE_TYPE, self.key))
    return ORIGINAL_SPEND(self, connection, job, summary, awaited)


ORIGINAL_SPEND = Releaser._spend


def approve_first() -> None:
    """Plant: an approval is acknowledged at once, and stored later."""
    genuine = Agent.approve

    def approve(self: Agent, digest: str, by: Any = None) -> None:
        later = threading.Timer(LATER_S, genuine, (self, digest, by))
        later.daemon = True
        later.start()

    Agent.approve = approve  # type: ignore[method-assign]


def fail(*_: Any) -> Any:
    """Plant: every study fails after rows were read."""
    raise ZeroDivisionError("private")


def kill(*_: Any) -> Any:
    """Plant: what is read ends the process, as the kernel does where memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


LATER_S = 600.0
"""When what was acknowledged is stored: later than anything is waited for."""


def plant(mistake: str) -> None:
    patched: Any = Releaser
    if mistake == "approve-first":
        approve_first()
        return
    if mistake in {"fails", "killed"}:
        FakeSum.summarise = fail if mistake == "fails" else kill  # type: ignore[method-assign]
        return
    if mistake == "debit-outside":
        patched.release = debit_in_its_own_transaction(Releaser.release)
        patched._debit = entry_of_earlier_debit
        return
    assert mistake == "send-before-storing"
    made = TesterClient.__init__

    def remember(self: TesterClient, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        CLIENTS.append(self)

    TesterClient.__init__ = remember  # type: ignore[method-assign]
    patched._spend = send_before_storing


if __name__ == "__main__":
    if len(sys.argv) > 2:
        plant(sys.argv[2])
    run(Path(sys.argv[1]), FAKES)
