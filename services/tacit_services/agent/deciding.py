"""A steward's decision, as the interface and the pages carry it out."""

from collections.abc import Callable

from tacit_services.agent.agent import Agent
from tacit_services.agent.participant import AlreadyDecidedError
from tacit_services.agent.schema import State
from tacit_services.agent.studies import StudyRow, study_row
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError


def require_row(agent: Agent, digest: str) -> StudyRow:
    """Return what is recorded of a study; raises the problem ``unknown-study``."""
    row = run_transaction(agent.engine, lambda connection: study_row(connection, digest), read_only=True)
    if row is None:
        raise ProblemError("unknown-study")
    return row


def decide(agent: Agent, digest: str, decision: Callable[[], None]) -> StudyRow:
    """Carry a decision out; returns what the study is then.

    Raises:
        ProblemError: ``unknown-study``, ``study-expired`` or ``already-decided``.
    """
    require_row(agent, digest)
    try:
        decision()
    except AlreadyDecidedError:
        expired = require_row(agent, digest).state is State.EXPIRED
        raise ProblemError("study-expired" if expired else "already-decided") from None
    return require_row(agent, digest)
