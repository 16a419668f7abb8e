"""Group commit: pieces of work that wait at the same time share one transaction, and so one durable commit.

A commit waits for the disk. While one group's commit does, the pieces that arrive form the next group, so a
busy service commits a few times a second for everyone rather than once for each. Nobody is answered before
the commit that holds its work.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy.engine import Connection, Engine

from tacit_services.shared.database import DatabaseError, run_transaction

Result = TypeVar("Result")


@dataclass
class _Piece:
    """One caller's work, and how it came out."""

    work: Callable[[Connection], Any]
    turn: threading.Event = field(default_factory=threading.Event)
    """Set once the piece has come out, or is to lead the next group."""
    is_out: bool = False
    result: Any = None
    error: BaseException | None = None


class GroupCommit:
    """Runs transactions for callers in many threads, as many at once as wait at once.

    A group is led by the thread of one of its pieces. It is no larger than the number of threads that serve
    requests, as each waits for its own piece.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: list[_Piece] = []
        self._is_led = False

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a serializable transaction, after and before others' work, and commit it.

        As with :func:`run_transaction`, ``work`` may run several times and must have no effect but on its
        connection. Where a piece of a group raises, nothing of the group is kept, and each is run in a
        transaction of its own: what one caller sends never decides what another is answered.

        Raises:
            DatabaseError: as :func:`run_transaction`; the whole group gets it.
        """
        piece = _Piece(work)
        with self._lock:
            self._waiting.append(piece)
            leads, self._is_led = not self._is_led, True
        if not leads:
            piece.turn.wait()
        if not piece.is_out:
            self._lead()
        if piece.error is not None:
            raise piece.error
        result: Result = piece.result
        return result

    def _lead(self) -> None:
        """Commit the group that waits now, then wake it and the leader of the next."""
        with self._lock:
            group, self._waiting = self._waiting, []
        self._commit(group)
        with self._lock:
            next_leader = self._waiting[:1]
            self._is_led = bool(next_leader)
        for piece in (*next_leader, *group):
            piece.turn.set()

    def _commit(self, group: list[_Piece]) -> None:
        try:
            results = run_transaction(self._engine, lambda connection: [p.work(connection) for p in group])
        except BaseException as error:  # whatever it is, those who wait must be told
            if len(group) > 1 and not isinstance(error, DatabaseError):
                for piece in group:
                    self._commit([piece])
                return
            for piece in group:
                piece.is_out, piece.error = True, error
        else:
            for piece, result in zip(group, results, strict=True):
                piece.is_out, piece.result = True, result
