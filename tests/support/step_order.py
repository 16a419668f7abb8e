"""Lets a tester's threads pass the steps of a study in their order.

A job is there for its worker before the upload's request comes to ``ANSWERING``, and a verdict can be read
before its worker comes to ``VERDICT_STORED``. On a busy machine one thread then overtakes the other, and a
plan of kills waits for a step that has been passed.
"""

import threading
from collections.abc import Callable

from tacit_services.shared.failpoints import TesterRelayStep, TesterStep

WAIT_S_MAX = 60.0
"""How long a thread waits for the other; one that failed never comes."""

UPLOADED = {TesterStep.STUDY_INSERTED, TesterStep.RELEASE_INSERTED, TesterRelayStep.SEALED_INSERTED}


class StepOrder:
    """Stands in for ``failpoint`` in a tester: holds whoever overtakes, then calls it."""

    def __init__(self, failpoint: Callable[[str], None]) -> None:
        self._failpoint = failpoint
        self._answered, self._stored = threading.Event(), threading.Event()
        self._answered.set()
        self._stored.set()

    def __call__(self, step: str) -> None:
        if step in UPLOADED:
            self._answered.clear()
        elif step == TesterStep.VERDICT_INSERTED:
            self._stored.clear()
        elif step == TesterStep.JOB_LEASED:
            self._answered.wait(WAIT_S_MAX)
        elif step == TesterStep.VERDICT_SERVED:
            self._stored.wait(WAIT_S_MAX)
        self._failpoint(step)
        if step == TesterStep.ANSWERING:
            self._answered.set()
        elif step == TesterStep.VERDICT_STORED:
            self._stored.set()
