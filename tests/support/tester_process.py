"""Runs a real tester with the stand-in procedure: ``python tester_process.py CONFIG [PLANTED]``.

``answer-first`` plants a tester that answers an upload at once and stores it later, ``endless-check`` one
whose forty-first study is checked for ten minutes.
"""

import itertools
import sys
import threading
import time
from typing import Any

from study_parties import MeanProcedure

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures import discovery
from tacit_services.tester import studies
from tacit_services.tester.__main__ import main

ENDLESS_AFTER = 40

LATER_S = 600.0
"""When what was acknowledged is stored, and how long a check takes: longer than any is waited for."""


def answer_first() -> None:
    genuine: Any = studies.Studies.create

    def create(self: studies.Studies, *arguments: Any) -> bool:
        def store() -> None:
            time.sleep(LATER_S)
            genuine(self, *arguments)

        threading.Thread(target=store, daemon=True).start()
        return True

    studies.Studies.create = create  # type: ignore[method-assign]


class EndlessCheck(MeanProcedure):
    """Checks forty studies at once, and each that follows for longer than anybody waits."""

    def __init__(self) -> None:
        super().__init__()
        self._checked = itertools.count(1)

    def check(self, study: Study) -> None:
        if next(self._checked) > ENDLESS_AFTER:
            time.sleep(LATER_S)


if __name__ == "__main__":
    discovery.PROCEDURES["mean"] = EndlessCheck() if sys.argv[2:] == ["endless-check"] else MeanProcedure()
    if sys.argv[2:] == ["answer-first"]:
        answer_first()
    sys.exit(main(["serve", "--config", sys.argv[1]]))
