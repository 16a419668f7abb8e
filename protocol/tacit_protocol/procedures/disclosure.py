"""What a study would do with an owner's data, in words that agents, curators and analysts all show."""

from collections.abc import Mapping
from dataclasses import dataclass

from tacit_protocol.domain import CategoricalColumn, Column, Domain
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import (
    DELTA_UNITS,
    EPSILON_UNITS,
    ApproximateEvent,
    GaussianEvent,
    Guarantee,
)
from tacit_protocol.procedures.base import Procedure, candidates_of, claim_of, masking_of, planned
from tacit_protocol.procedures.masking import masks_words
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import cost_for, numbers_released_by, relay_of
from tacit_protocol.verdicts.presentation import joined

COLUMNS_LISTED_MAX = 30
"""Columns that are listed by name; of more, the number is given."""


MASKED = ", under masks that cancel in the sum of all owners"
"""How numbers leave where only the sum of all owners' can be read."""

RECEIPT = "a receipt, which depends on no data"
"""What leaves an owner that keeps what it finds with another's release."""


@dataclass(frozen=True)
class RelayPart:
    """Whose words: the owner of that name, in a study where one owner's release goes to another.

    ``costs`` is what each owner that releases something spends, by name.
    """

    relay: Relay
    name: str
    costs: Mapping[str, Guarantee]

    def what_leaves(self, numbers: str) -> str:
        """Say what would leave, to whom, and where the result stays."""
        if not self.relay.sealed:
            return self._in_the_open(numbers)
        sender, receiver = self.relay.sender.name, self.relay.receiver.name
        if self.name == sender:
            end = (
                f"{receiver} then releases {self._answers}, with random noise for its own units."
                if self.relay.publishes
                else f"What {receiver} finds stays with {receiver}."
            )
            return (
                f"What would leave: {self.relay.sends or numbers}, sealed to {receiver}, and the number of "
                f"units. The tester carries them and cannot read them; {receiver} reads them and sets them "
                f"against its own exact rows. {end}"
            )
        found = (
            f"{sender} sends {self.relay.sends or 'its numbers, with random noise'}, sealed to this agent, "
            "which sets them against the exact rows here. The result is kept in this agent's own database. "
            f"It is private for {sender} alone, and exact for the people in this data set: do not pass it on."
        )
        leaves = numbers if self.relay.publishes else RECEIPT
        return f"{found} What would leave: {leaves}, and the number of units."

    def _in_the_open(self, numbers: str) -> str:
        """Say both rounds, whichever owner is asked: the one approval is for its own, and it sees both."""
        relay, own = self.relay, self.name
        names = [owner.name for owner in relay.senders]
        sender, receiver = joined(names, len(names)), relay.receiver.name
        sending = relay.is_sender(own)
        sends = relay.sends or (numbers if sending else "its numbers, each with random noise")
        if sending:
            others = [owner.name for owner in relay.senders if owner.name != own]
            beside = f", as {joined(others, len(others))} would" if others else ""
            first = f"What would leave, in the first of two rounds{beside}: {sends}, and the number of units."
        elif relay.sender.reuses is not None:
            first = f"{sender} released for an earlier study, in the open: {sends}. It is asked for no other."
        elif relay.more:
            first = f"In the first of two rounds {sender} each release, in the open: {sends}."
        else:
            first = f"In the first of two rounds {sender} releases, in the open: {sends}."
        seen = (
            f"The tester, {receiver} and everyone who reads the study's transcript see it, for good, and "
            f"later studies may read it again. {receiver} knows whose it is: it sets it against its own "
            "exact rows of the same people."
        )
        answer = self._answers if sending else numbers
        if not relay.publishes:
            answer = RECEIPT
        second = (
            f"In the second round {receiver} releases {answer}, for everyone to see."
            if sending
            else f"What would leave, in the second round: {answer}, and the number of units, for everyone "
            f"to see. Nothing is computed or spent here before {sender}'s release has come, and its "
            "signature and form hold."
        )
        return " ".join((first, seen, second, self._spent_by_round()))

    def _spent_by_round(self) -> str:
        relay = self.relay
        rounds = []
        owners = [*(("round one", owner) for owner in relay.senders), ("round two", relay.receiver)]
        for words, owner in owners:
            budget = None if owner.reuses else self.costs.get(owner.name)
            amounts = "nothing" if budget is None else _amounts(budget)
            rounds.append(f"{words} spends {amounts} of {owner.name}'s {owner.data_set}")
        return (
            f"Each owner approves once, before both: {', '.join(rounds)}. A round that fails spends nothing."
        )

    @property
    def _answers(self) -> str:
        if not self.relay.sends and self.relay.sealed:
            return "a covariance"
        count = self.relay.numbers
        return "1 number" if count == 1 else f"{count} numbers"

    @property
    def leaves_a_record(self) -> bool:
        """Whether what leaves is, in its own words, other than noisy numbers: an answer about each person."""
        return bool(self.relay.sends) and self.relay.is_sender(self.name)

    @property
    def leaves_a_receipt(self) -> bool:
        """Whether nothing leaves that depends on data."""
        return self.name == self.relay.receiver.name and not self.relay.publishes


@dataclass(frozen=True)
class StudyTerms:
    """What a study asks of one who answers: what it costs, and its part where releases are relayed.

    ``release_size`` counts noisy numbers, ``candidates`` the public ones of which one would be named.
    ``record`` says what would leave where that is something about each person, ``masks`` where only the sum
    of all owners can be read, and towards whom it protects how well.
    """

    cost: Guarantee
    release_size: int
    part: RelayPart | None
    candidates: int
    record: str = ""
    masks: str = ""

    @classmethod
    def of(cls, procedure: Procedure, study: Study, cost: Guarantee, name: str) -> "StudyTerms":
        """Return what is asked of the sender of that name; ``cost`` is what it spends.

        Raises:
            StudyError: the study cannot be run as written.
        """
        relay = relay_of(procedure, study)
        part = None
        if relay is not None:
            spending = [owner.name for owner in study.owners if relay.spends(owner.name)]
            part = RelayPart(relay, name, {owner: cost_for(procedure, study, owner) for owner in spending})
        numbers = numbers_released_by(procedure, study, name)
        record = planned(procedure, study).record_of(name) if relay is None else ""
        masking = masking_of(procedure, study)
        masks = "" if masking is None else masks_words(masking, claim_of(procedure, study))
        return cls(cost, numbers, part, candidates_of(procedure, study), record, masks)

    @property
    def spends(self) -> bool:
        """Whether the study's budget is spent."""
        return self.part is None or self.part.relay.spends(self.part.name)

    @property
    def what_leaves(self) -> str:
        """What would be sent, in a few words, beside the number of units."""
        if self.part is not None and self.part.leaves_a_receipt:
            return RECEIPT
        if self.part is not None and self.part.leaves_a_record:
            return self.part.relay.sends
        found = self.record or _what_leaves(self.release_size, self.cost, self.candidates)
        return f"{found}{MASKED}" if self.masks else found

    def plain_words(self, study: Study, owner: Owner | None, data_set: str) -> str:
        """Return a few sentences: what is asked of ``data_set``, what would leave, what it costs, what stays.

        It is that of one owner, or, where ``owner`` is None, of all columns.
        """
        domain = study.domain if owner is None else study.domain_of(owner)
        encoders = study.encoders if owner is None else study.encoders_of(owner)
        numbers = _what_leaves(self.release_size, self.cost, self.candidates)
        unit = (
            "One unit of privacy is one row."
            if study.unit_column is None
            else f"One unit of privacy is all rows that share a value of {study.unit_column}; "
            + ("they count as one." if study.averages_rows else "one of them, drawn by lot, counts.")
        )
        others = len(study.owners) - 1
        sentences = [
            f"The study '{study.title}' ({study.procedure}) asks about {_columns(domain)} of {data_set},",
            f"together with the data of {others} other owner{'s' if others > 1 else ''}."
            if others
            else "and of nobody else.",
            *(encoder.words() for encoder in encoders),
            f"Of {', '.join(owner.name for owner in study.reusing)} an earlier release is read again: "
            "nothing is asked of them, and they spend nothing."
            if study.reusing
            else "",
            ""
            if study.procedure_origin is None
            else f"The procedure is not Tacit's own: {study.procedure_origin} brings it, installed here.",
            unit,
            "These units were found to be the same as the other owner's, and stand in the same order; "
            "nothing is sent if they have changed since."
            if study.alignment is not None
            else "",
            f"What would leave: {self.record or numbers}{MASKED if self.masks else ''}, "
            "and the number of units."
            if self.part is None
            else self.part.what_leaves(numbers),
            self.masks,
            f"The curator {study.curator.name} computes it from all owners' rows together."
            if study.curator is not None
            else "",
            "No row, no value and no exact figure leaves."
            if not (self.record or (self.part is not None and self.part.leaves_a_record))
            else "No exact row, value or figure leaves; each answer is random, and is still about a person.",
            f"It spends {_amounts(self.cost)} of the data set's budget, once, and this cannot be taken back."
            if self.spends
            else "It spends nothing of the data set's budget.",
            "A person who is in several owners' data is protected by the sum of what they spend.",
        ]
        return " ".join(sentence for sentence in sentences if sentence)


def _amounts(cost: Guarantee) -> str:
    budget = cost.budget
    return f"epsilon {budget.epsilon_micro / EPSILON_UNITS:g} and delta {budget.delta_pico / DELTA_UNITS:g}"


def _what_leaves(release_size: int, cost: Guarantee, candidates: int) -> str:
    if candidates:
        return f"the name of one of {candidates} public candidates, drawn at random, the nearer ones likelier"
    # A decision counts as one number; it has no noise of its own, only a guarantee.
    if release_size == 1 and all(isinstance(event, ApproximateEvent) for event in cost.events):
        return "one decision, yes or no, drawn with random noise"
    decides = any(isinstance(event, ApproximateEvent) and event.epsilon > 0 for event in cost.events)
    if decides and any(isinstance(event, GaussianEvent) for event in cost.events):
        return f"{release_size - 1} numbers, each with random noise, and one decision"
    if release_size == 1:
        return "1 number, with random noise"
    return f"{release_size} numbers, each with random noise"


def _columns(domain: Domain) -> str:
    columns = domain.columns
    if len(columns) > COLUMNS_LISTED_MAX:
        return f"{len(columns)} columns"
    return ", ".join(_column(column) for column in columns)


def _column(column: Column) -> str:
    if isinstance(column, CategoricalColumn):
        return f"{column.name} ({len(column.levels)} levels)"
    return f"{column.name} ({column.lower:g} to {column.upper:g})"
