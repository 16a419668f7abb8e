"""What the curator's interface shows of studies and ledger: to the operator all, to an owner its own.

An owner sees who has approved a study that uses its data, and no other owner's budget, note or reason.
"""

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from tacit_services.agent import views as agent_views
from tacit_services.agent.studies import StudyRow
from tacit_services.curator.curator import Curator
from tacit_services.curator.decisions import Decision, OwnerDecision
from tacit_services.ledger.accounts import standing_of
from tacit_services.ledger.schema import ACCOUNTS
from tacit_services.ledger.verification import Inspection, export


def summary(
    curator: Curator, row: StudyRow, decisions: list[OwnerDecision], owner: str | None
) -> dict[str, Any]:
    """Return one line of the list of studies."""
    return agent_views.summary(curator, row) | _shared(decisions, owner)


def detail(
    connection: sa.Connection,
    curator: Curator,
    row: StudyRow,
    decisions: list[OwnerDecision],
    owner: str | None,
) -> dict[str, Any]:
    """Return everything about one study, for the owner who decides on its own data, or for the operator."""
    own = [item for item in decisions if owner in {None, item.owner}]
    asked = ", ".join(item.account for item in own) or None
    accounts = [
        {
            "account": item.account,
            **asdict(standing_of(connection, item.account)),
            "payment": agent_views.payment(connection, curator, row, item.account),
        }
        for item in own
    ]
    shown = agent_views.detail(curator, row, asked) | _shared(decisions, owner)
    return shown | {"accounts": accounts}


def _shared(decisions: list[OwnerDecision], owner: str | None) -> dict[str, Any]:
    owners = [
        {
            "owner": item.owner,
            "account": item.account,
            "decision": item.decision.value,
            "decided_by": item.decided_by,
            "decided_at": item.decided_at,
        }
        for item in decisions
    ]
    own_word = any(item.owner == owner and item.decision is Decision.DECLINED for item in decisions)
    may_see_why = owner is None or own_word or {item.owner for item in decisions} == {owner}
    return {"owners": owners} if may_see_why else {"owners": owners, "problem": None, "reason": None}


def accounts_of(connection: sa.Connection, owner: str | None) -> list[str]:
    """Return the names of an owner's accounts, of deleted data sets too; or of all accounts."""
    query = sa.select(ACCOUNTS.c.data_set).order_by(ACCOUNTS.c.data_set)
    names = connection.execute(query).scalars()
    return [name for name in names if owner is None or name.startswith(f"{owner}/")]


def ledger(connection: sa.Connection, accounts: list[str]) -> list[dict[str, Any]]:
    """Return the entries of these accounts, oldest first within each."""
    return [entry for account in accounts for entry in export(connection, account)]


def ledger_verification(inspection: Inspection, accounts: list[str]) -> dict[str, Any]:
    """Return whether the ledger is whole as far as these accounts go, and their head hashes."""
    seen = set(accounts)
    part = Inspection(
        tuple(account for account in inspection.accounts if account.data_set in seen), inspection.other_faults
    )
    return agent_views.ledger_verification(part)
