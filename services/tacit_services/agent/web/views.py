"""Views of studies, data sets and ledger, for the owner's interface."""

import json
from typing import Any

import sqlalchemy as sa

from tacit_protocol.messages.encoding import MessageError, decode
from tacit_protocol.messages.study import Study, VerdictMessage
from tacit_protocol.procedures.base import Procedure, warnings_of
from tacit_protocol.procedures.disclosure import StudyTerms
from tacit_protocol.signing import VERDICT_TYPE, EnvelopeError, certify, open_envelope
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import State
from tacit_services.agent.settings import DataSetSettings
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.readings import lock_of
from tacit_services.agent.study.studies import StudyRow, count_by_state, decisions_of
from tacit_services.ledger.accounts import account_of, debits_of_study, paid_words, payment_words, standing_of
from tacit_services.shared.database import read_from
from tacit_services.shared.people import PeopleTables


def status(agent: Agent) -> dict[str, Any]:
    """Return who the agent is, what its accounts hold, and how many studies are in each state."""

    def read(connection: sa.Connection) -> dict[str, Any]:
        data_sets = [_data_set(connection, agent, item) for item in agent.settings.data_sets]
        return {"data_sets": data_sets, "studies": count_by_state(connection)}

    return {
        "party": {"name": agent.settings.name, "key": agent.key.public_hex},
        "sealing": certify(agent.key).model_dump(mode="json"),
        "tester": {"url": agent.settings.tester_url, "key": agent.settings.tester_key},
        "last_poll_at": agent.last_poll_at,
        **read_from(agent.engine, read),
    }


def _data_set(connection: sa.Connection, agent: Agent, data_set: DataSetSettings) -> dict[str, Any]:
    name, account = data_set.name, data_set.account
    lock = lock_of(connection, account)
    return {
        "name": name,
        "account": account,
        "units": agent.units.get(name),
        "locked": None if lock is None else lock.view(),
        **standing_of(connection, account).model_dump(),
    }


def payment(connection: sa.Connection, agent: Participant, row: StudyRow, account: str | None) -> str | None:
    """Say what a study would take of an account, or has taken; None where it takes nothing of it.

    None too of one that is approved and not paid: what waits for another owner has its cost reserved.
    """
    if account is None:
        return None
    for entry in debits_of_study(connection, row.digest):
        if entry.data_set == account:
            return paid_words(account_of(connection, account), entry)
    if row.state is not State.WAITING:
        return None if row.state is State.APPROVED else "spent nothing"
    study = _study(agent, row)
    priced = None if study is None else _asked(agent, study)
    if priced is None or not priced[1].spends:
        return None
    return payment_words(account_of(connection, account), priced[1].cost)


def summary(agent: Participant, row: StudyRow) -> dict[str, Any]:
    """Return one line of the list of studies; what cannot be known of a refused study is None."""
    study = _study(agent, row)
    priced = None if study is None else _asked(agent, study)
    asked = None if priced is None else priced[1]
    return {
        "digest": row.digest,
        "title": None if study is None else study.title,
        "procedure": None if study is None else study.procedure,
        "state": row.state.value,
        "data_set": row.data_set,
        "epsilon_micro": None if asked is None else asked.cost.budget.epsilon_micro * asked.spends,
        "delta_pico": None if asked is None else asked.cost.budget.delta_pico * asked.spends,
        "release_size": None if asked is None else asked.release_size,
        "what_leaves": None if asked is None else asked.what_leaves,
        "deadline": row.deadline,
        "received_at": row.received_at,
        "changed_at": row.changed_at,
        "analyst": None if study is None else study.analyst.model_dump(),
        "problem": row.problem,
        "reason": row.reason,
    }


def detail(
    agent: Participant,
    row: StudyRow,
    people: PeopleTables,
    owner: str | None = None,
    data_set: str | None = None,
) -> dict[str, Any]:
    """Return everything about one study, for the people of ``owner``, who decide on it and on ``data_set``.

    Without an owner it is for a curator's operator, who is told of no person's decision.
    """
    study = _study(agent, row)
    priced = None if study is None else _asked(agent, study)
    words: str | None = None
    warnings: tuple[str, ...] = ()
    if study is not None and priced is not None:
        procedure, asked = priced
        own = next((owner for owner in study.owners if owner.key == agent.key.public_hex), None)
        words = asked.plain_words(study, own, data_set or row.data_set or "no data set")
        warnings = warnings_of(procedure, study, agent.units_of(study))
    return {
        **summary(agent, row),
        "plain_words": words,
        "warnings": list(warnings),
        "stated_purpose": [] if study is None else [list(said) for said in study.stated_purpose],
        "study": None if study is None else study.model_dump(mode="json"),
        "verdict": _verdict(agent, row),
        "approvals_needed": None if owner is None else agent.approvals_needed(row, owner),
        "decisions": [] if owner is None else read_from(agent.engine, _said, row, owner, people),
    }


def _said(connection: sa.Connection, row: StudyRow, owner: str, people: PeopleTables) -> list[dict[str, Any]]:
    counted = people if row.state is State.WAITING else None
    return [dict(said._mapping) for said in decisions_of(connection, row.digest, owner, counted)]


def _study(agent: Participant, row: StudyRow) -> Study | None:
    if row.envelope is None:
        return None
    try:
        return agent.intake.read(row.digest, row.envelope)
    except IntakeRefusedError:
        return None  # shown as what it is: a study that could not be read


def finding(agent: Participant, row: StudyRow, found: bytes, found_at: int) -> dict[str, Any]:
    """Return what was found with another owner's release, and the study that asked."""
    study = _study(agent, row)
    return {
        "digest": row.digest,
        "study": None if study is None else study.model_dump(mode="json"),
        "finding": json.loads(found),
        "found_at": found_at,
    }


def _asked(agent: Participant, study: Study) -> tuple[Procedure, StudyTerms] | None:
    try:
        procedure, cost = agent.intake.price(study, agent.name)
    except IntakeRefusedError:
        return None  # the row's own reason says why
    return procedure, StudyTerms.of(procedure, study, cost, agent.name)


def _verdict(agent: Participant, row: StudyRow) -> dict[str, Any] | None:
    if row.verdict is None:
        return None
    try:
        payload = open_envelope(row.verdict, VERDICT_TYPE, agent.tester_key)
        return decode(VerdictMessage, payload).model_dump(mode="json")
    except (EnvelopeError, MessageError):
        return None  # it was signed by a tester that is no longer the one configured
