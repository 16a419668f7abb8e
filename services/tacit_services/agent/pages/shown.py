"""What the owner's pages show, as plain values for their templates."""

from typing import Any

from tacit_services.agent import views
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import State
from tacit_services.agent.studies import StudyRow, newest_studies, studies_in
from tacit_services.ledger.accounts import account_of
from tacit_services.shared.database import run_transaction

OTHERS_MAX = 100
"""Studies listed that wait for no decision, the newest; the command lists all."""


def inbox(agent: Agent) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the studies that wait for a decision, oldest first, and the newest others."""
    waiting = run_transaction(agent.engine, lambda c: studies_in(c, [State.WAITING]), read_only=True)
    rest = set(State) - {State.WAITING}
    others = run_transaction(agent.engine, lambda c: newest_studies(c, rest, OTHERS_MAX), read_only=True)
    shown = [{**views.summary(agent, row), "payment": payment(agent, row)} for row in waiting]
    return shown, [views.summary(agent, row) for row in others]


def payment(agent: Agent, row: StudyRow) -> str | None:
    """Return in words which share of its account would pay for a study, or None where none would."""
    return run_transaction(agent.engine, lambda c: views.payment(c, agent, row, row.data_set), read_only=True)


def accounts(agent: Agent) -> list[dict[str, Any]]:
    """Return every data set: what its account holds, and what settings and policy say of it."""
    status = {data_set["name"]: data_set for data_set in views.status(agent)["data_sets"]}
    shown = []
    for data_set in agent.settings.data_sets:
        account = run_transaction(agent.engine, lambda c, n=data_set.name: account_of(c, n), read_only=True)  # type: ignore[misc]
        shown.append(
            {
                **status[data_set.name],
                "head_hash": account.head_hash,
                "unit_column": data_set.unit_column,
                "columns": [column.model_dump() for column in data_set.columns],
                "allowed": agent.policy.columns_of(data_set.name),
            }
        )
    return shown


def policy(agent: Agent) -> dict[str, Any]:
    """Return the policy as it was read when the agent started."""
    return agent.policy.model_dump(mode="json")
