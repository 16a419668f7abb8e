"""What a study has received, read again from the database: answers, and the releases its verdict reads."""

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.procedures.relay import OwnAnswer, read_answer, relay_of
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.reuse import reread_all
from tacit_services.tester.tables import RELEASES


@dataclass(frozen=True)
class Received:
    """Releases by owner as the study reads them, reused ones among them; and units by sender."""

    releases: dict[str, Release]
    units: dict[str, int]


def received(engine: Engine, study_digest: str, study: Study, parsed: Callable[[str], Study]) -> Received:
    """Read everything that a study whose senders have all answered rests on; ``parsed`` finds studies."""
    answers = _answers(engine, study_digest, study)
    releases = {name: answer.release for name, answer in answers.items() if answer.release is not None}
    units = {name: answer.units for name, answer in answers.items()}
    return Received(releases | reread_all(engine, study, parsed), units)


def _answers(engine: Engine, study_digest: str, study: Study) -> dict[str, OwnAnswer]:
    relay = relay_of(procedure_named(study.procedure), study)
    keys = {sender.name: sender.key for sender in study.senders}
    query = sa.select(RELEASES.c.owner, RELEASES.c.envelope).where(RELEASES.c.study == study_digest)
    rows = run_transaction(engine, lambda connection: connection.execute(query).all(), read_only=True)
    envelopes = {row.owner: bytes(row.envelope) for row in rows}
    if not rows and keys:
        raise ProblemError(
            "study-archived"
        )  # a moment ago: who asks for what was received has found the study
    return {name: read_answer(relay, envelopes[name], name, key) for name, key in keys.items()}
