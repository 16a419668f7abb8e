"""Group commit: what callers hand in while a commit waits for the disk is committed together by the next one.

A busy service then commits a few times for everyone rather than once for each, and its transactions do not
collide with one another. Nobody is answered before the commit that holds what it handed in.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlalchemy.engine import Connection, Engine

from tacit_services.shared.database import DatabaseError, run_transaction

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass
class _Piece(Generic[Item, Outcome]):
    """What one caller handed in, and what came of it."""

    item: Item
    turn: threading.Event = field(default_factory=threading.Event)
    """Set once there is an outcome, or once the piece is to lead the next group."""
    outcomes: Sequence[Outcome] = ()
    """One, once there is one."""
    error: BaseException | None = None


class GroupCommit(Generic[Item, Outcome]):
    """Stores items for callers in many threads, as many in one transaction as wait at once.

    A group is led by the thread of one of its pieces. It is no larger than the number of threads that serve
    requests, as each thread waits for its own piece.

    Args:
        engine: the database.
        store: stores items in a serializable transaction and returns the outcome of each. It may run several
            times for one item and must have no effect but on its connection.
    """

    def __init__(self, engine: Engine, store: Callable[[Connection, Sequence[Item]], list[Outcome]]) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._waiting: list[_Piece[Item, Outcome]] = []
        self._is_led = False

    def run(self, item: Item) -> Outcome:
        """Return the outcome of an item once it is committed.

        Where storing a group raises, nothing of it is kept, and each item is stored in a transaction of its
        own: what one caller sends never decides what another is answered.

        Raises:
            DatabaseError: as :func:`run_transaction`; the whole group gets it.
        """
        piece: _Piece[Item, Outcome] = _Piece(item)
        with self._lock:
            self._waiting.append(piece)
            leads, self._is_led = not self._is_led, True
        if not leads:
            piece.turn.wait()
        if piece.error is None and not piece.outcomes:
            self._lead()
        if piece.error is not None:
            raise piece.error
        return piece.outcomes[0]

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

    def _commit(self, group: list[_Piece[Item, Outcome]]) -> None:
        items = [piece.item for piece in group]
        try:
            outcomes = run_transaction(self._engine, lambda connection: self._store(connection, items))
            if len(outcomes) != len(items):
                raise RuntimeError("storing a group must give each item an outcome")
        except BaseException as error:  # whatever it is, those who wait must be told
            if len(group) > 1 and not isinstance(error, DatabaseError):
                for piece in group:
                    self._commit([piece])
                return
            for piece in group:
                piece.error = error
        else:
            for piece, outcome in zip(group, outcomes, strict=True):
                piece.outcomes = (outcome,)
