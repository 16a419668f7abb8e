"""The loops of a running agent or curator: each does its part over and over, until it is stopped.

Whatever the tester sees is done apart from the computing, in loops that never wait for it: when they speak
says nothing about data, and answers wait for their moment (releases.py).
"""

import random
import threading
from collections.abc import Callable

import structlog

from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.tester_client import TesterError
from tacit_services.shared.database import DatabaseError
from tacit_services.shared.logging import describe_exception

log = structlog.get_logger()

PUBLISH_PAUSE_S = 10.0
"""Pause before a catalogue is offered again that the tester did not take; one that it took is not."""

KNOWN_PAUSE_S = 2.0
"""Pause after an inbox with nothing new: the tester answers at once while a study waits for a steward."""

WORK_PAUSE_S = 5.0
"""Longest time between two looks at what is to be run, when nobody rings, and at verdicts."""

SEND_PAUSE_S = 0.5
"""Time between two looks at what is to be sent; two short queries of the agent's own database."""

NOTICE_PAUSE_S = 15.0
"""Time between two looks at what stewards are to be told."""

END_S = 2.0
"""How long the loops together may take to end."""

FAILURE_PAUSE_S = (1.0, 10.0)
"""First and longest pause after a failure; doubled each time, with a random part so that agents spread. Once
a database or a tester is back after an outage, however long, nobody waits longer than the second."""


def work(participant: Participant) -> None:
    """Do once, one after the other, what :class:`Loops` does in threads of their own with studies taken in.

    Raises:
        TesterError: the tester could not be reached; what is left stays for the next time.
    """
    fetcher = Fetcher(participant)
    try:
        fetcher.confirm()
        fetcher.collect()
    finally:  # neither other studies nor the outbox wait for one that the tester cannot be asked about
        participant.close_ended()
        participant.run_approved()
        Delivery(participant).deliver()
        participant.overwrite()


class Loops:
    """Runs an agent or a curator until it is stopped; the tester may hold a poll for ``poll_wait_s``."""

    def __init__(
        self,
        participant: Participant,
        stop: threading.Event,
        poll_wait_s: float,
        notify: Callable[[], None] | None = None,
    ):
        self._participant = participant
        self._fetcher, self._delivery = Fetcher(participant), Delivery(participant)
        self._stop, self._poll_wait_s, self._notify_stewards = stop, poll_wait_s, notify
        self._bell, self._catalogue_bell = threading.Event(), threading.Event()
        steps = [self._poll, self._work, self._send, self._fetch, self._publish]
        self._threads = [
            threading.Thread(target=self._forever, args=(step,), name=step.__name__, daemon=True)
            for step in (steps if notify is None else [*steps, self._notify])
        ]

    def start(self) -> None:
        """Start the loops. They are daemons: an agent may be killed at any point, and so may be left."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ask the loops to end and give them a moment; a long poll under way ends with the process."""
        self._stop.set()
        self.ring()
        self.republish()
        for thread in self._threads:
            thread.join(END_S / len(self._threads))

    def alive(self) -> bool:
        """Return whether every loop runs."""
        return all(thread.is_alive() for thread in self._threads)

    def ring(self) -> None:
        """Wake the loop that works."""
        self._bell.set()

    def republish(self) -> None:
        """Have what is published handed to the tester again."""
        self._catalogue_bell.set()

    def _poll(self) -> None:
        if self._fetcher.poll(self._poll_wait_s):
            self.ring()
        else:
            self._stop.wait(KNOWN_PAUSE_S)

    def _work(self) -> None:
        self._bell.clear()
        self._participant.run_approved()
        self._bell.wait(WORK_PAUSE_S)

    def _send(self) -> None:
        if self._fetcher.confirm():
            self.ring()
        self._delivery.deliver()
        self._participant.overwrite()
        self._stop.wait(SEND_PAUSE_S)

    def _fetch(self) -> None:
        self._participant.close_ended()
        try:
            if self._fetcher.collect():
                self.ring()
        finally:  # verdicts do not wait for a release that the tester cannot be asked for
            self._fetcher.fetch_verdicts()
        self._stop.wait(WORK_PAUSE_S)

    def _publish(self) -> None:
        self._catalogue_bell.clear()
        is_done = self._participant.publish()
        if not self._stop.is_set():
            self._catalogue_bell.wait(None if is_done else PUBLISH_PAUSE_S)

    def _notify(self) -> None:
        if self._notify_stewards is not None:
            self._notify_stewards()
        self._stop.wait(NOTICE_PAUSE_S)

    def _forever(self, step: Callable[[], None]) -> None:
        shortest, longest = FAILURE_PAUSE_S
        pause_s = shortest
        while not self._stop.is_set():
            try:
                step()
                pause_s = shortest
                continue
            except (TesterError, DatabaseError) as error:
                log.warning("waiting", loop=step.__name__, kind=type(error).__name__, reason=str(error))
            except Exception as error:
                log.error("loop_failed", loop=step.__name__, fault=describe_exception(error))
            self._stop.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (a pause, not a secret)
            pause_s = min(longest, 2 * pause_s)
