"""Histories of studies in two rounds: both owners reserve what a study costs, the second decides by hand.

A study may read north's answers to an earlier study again: north is not asked, and spends nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fault_world import check_account, key_of, sealed
from peer_world import CAP, RECEIVER, SENDER
from relay_simulation import RelaySimulation
from simulation import Simulation
from two_round_world import make_two_round_agent, two_round_study

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget, LaplaceEvent
from tacit_protocol.signing import RELEASE_TYPE, open_envelope
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.agent import AlreadyDecidedError
from tacit_services.agent.schema import OUTBOX, STUDIES, State
from tacit_services.ledger.accounts import BudgetExceededError
from tacit_services.ledger.entries import RESERVATIONS
from tacit_services.ledger.verification import verify
from tacit_services.tester.studies import transcript_of

EPSILONS = ("3", "8", "15")
"""The first study of a history costs the last of them, beside which the cap of 20 has room for the first."""


class TwoRoundSimulation(RelaySimulation):
    """One history of two owners, of whom the receiver decides by hand."""

    def __init__(self, folder: Path, templates: Path, seed: int = 0) -> None:
        self.bodies, self.change = [], lambda content: content
        Simulation.__init__(self, folder, templates, seed)

    def make_agent(self, owner: str, **uses: Any) -> Any:
        return make_two_round_agent(self.folder, owner, by_hand=owner == RECEIVER, **uses)

    def create(self, owners: Sequence[str], epsilon: str, deadline_in_s: int) -> str:
        """Ask both owners."""
        return self.ask_again(None, epsilon, deadline_in_s)

    def ask_again(self, earlier: str | None, epsilon: str, deadline_in_s: int) -> str:
        """Ask both owners, or the receiver alone about what the sender has answered before."""
        study = two_round_study(
            reuses=earlier,
            title=f"study {len(self.studies)}",
            budget=Budget.of(epsilon, "0"),
            deadline=int(self.now) + deadline_in_s,
        )
        name, envelope = sealed(study)
        self.studies[name] = study
        self.put_as_analyst(f"/v1/studies/{name}", envelope)
        return name

    def decide(self, name: str, approve: bool) -> None:
        agent = self.agents[RECEIVER]
        with suppress(AlreadyDecidedError, BudgetExceededError):
            if approve:
                agent.approve(name)
            else:
                agent.decline(name, None)

    def _check_owner(self, connection: sa.Connection, owner: str) -> None:
        debits = check_account(connection, "people")
        verify(connection)
        rows = connection.execute(OUTBOX.select()).all()
        releases = {row.study: bytes(row.envelope) for row in rows if row.kind == "release"}
        states = {row.digest: row.state for row in connection.execute(STUDIES.select())}
        closed = {study for study, state in states.items() if state == State.CLOSED}
        spent_on = [str(entry.study) for entry in debits]
        assert sorted(spent_on) == sorted({*releases, *closed}), (
            "debits differ from releases and closed studies"
        )
        for study in self.studies:
            sent = self.network.bodies[f"/v1/studies/{study}/releases/{owner}", "PUT"]
            assert sent <= {releases.get(study, b"")}, "another release than the stored one was sent"
            is_asked = owner == RECEIVER or self.studies[study].owners[0].reuses is None
            assert is_asked or study not in releases, "a release was made again of who reads one again"
        approved = {study for study, state in states.items() if state == State.APPROVED}
        reserved = {row.study for row in connection.execute(RESERVATIONS.select())}
        assert reserved == approved, "what is reserved is not what is approved"
        spent = sum((self._cost_of(owner, envelope) for envelope in releases.values()), Fraction(0))
        assert spent <= Fraction(CAP.epsilon_micro, 10**6), "what was released passes the cap"

    @staticmethod
    def _cost_of(owner: str, envelope: bytes) -> Fraction:
        """The epsilon of a release by what it says itself: the noise of its numbers."""
        payload = open_envelope(envelope, RELEASE_TYPE, key_of(owner).public_hex)
        events = decode(ReleaseMessage, payload).release.guarantee.events
        assert all(isinstance(event, LaplaceEvent) for event in events)
        return sum(
            (1 / Fraction(e.noise_multiplier) for e in events if isinstance(e, LaplaceEvent)), Fraction(0)
        )

    def _check_ends(self) -> None:
        for name, state in self._states().items():
            assert state in {"completed", "incomplete", "cancelled"}, f"a study is left {state}"
            transcript = self.read("tester", lambda c, n=name: transcript_of(c, n))  # type: ignore[misc]
            assert transcript is not None
            try:
                verified = verify_transcript(transcript, key_of("tester").public_hex)
            except VerificationError as error:
                raise AssertionError(f"the transcript does not hold: {error}") from None
            assert verified.verdict.outcome == state
        for owner in (SENDER, RECEIVER):
            rows = self.rows(owner, RESERVATIONS)
            known = {row.digest: row.state for row in self.rows(owner, STUDIES)}
            late = [row.study for row in rows if known[row.study] != State.APPROVED]
            assert not late, "a reservation has outlived its study"
