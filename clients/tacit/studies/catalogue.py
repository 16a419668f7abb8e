"""The questions that procedures answer, and the one that somebody's words point to."""

import re
from dataclasses import dataclass

from tacit_protocol.procedures.base import Holder, Procedure, Question
from tacit_protocol.procedures.discovery import PROCEDURES


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question, and the names of what answers it.

    Attributes:
        question: the question.
        agents: what answers it where every owner has an agent; "" where nothing does.
        curator: what answers it where a curator holds the data; "" where nothing does.
    """

    question: Question
    agents: str
    curator: str

    def by(self, holder: Holder) -> Procedure:
        """Return what answers it there, or else what answers it at all."""
        here, there = (self.agents, self.curator) if holder == "agents" else (self.curator, self.agents)
        return PROCEDURES[here or there]


def answered_questions() -> list[AnsweredQuestion]:
    """Return every question that a procedure answers, the special ones first."""
    found: dict[Question, dict[Holder, str]] = {}
    for name, procedure in PROCEDURES.items():
        if procedure.question is not None:
            found.setdefault(procedure.question, {}).update(dict.fromkeys(procedure.held_by, name))
    return [
        AnsweredQuestion(question, by.get("agents", ""), by.get("curator", ""))
        for question, by in sorted(found.items(), key=lambda item: item[0].rank)
    ]


def proposed_question(words: str) -> AnsweredQuestion:
    """Return the question that somebody's words point to; the most general one where they point nowhere."""
    asked = answered_questions()
    signs = ((one, one.question.signs) for one in asked)
    return next((one for one, sign in signs if sign and re.search(sign, words.lower())), asked[-1])
