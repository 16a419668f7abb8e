"""Runs a real tester with the stand-in procedure: ``python tester_process.py CONFIG [PLANTED]``.

``work-for-ever MARK`` in place of ``PLANTED`` runs a job worker of its own whose verdict takes for ever; the
file ``MARK`` appears once it is being computed, and names the process that does. ``work-briefly`` runs one
whose verdicts have LIMIT_S; studies called STUCK stay in one call of NumPy.
``tester_process.py archive DATABASE-URL FOLDER NOW`` archives every study that has ended.

``answer-first`` plants a tester that answers an upload at once and stores it later, ``endless-check`` one
whose forty-first study is checked for ten minutes.
"""

import itertools
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from study_parties import MeanProcedure, MeanVerdict

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.base import Progress
from tacit_services.shared.database import create_engine
from tacit_services.tester import studies, verdicts
from tacit_services.tester.__main__ import main
from tacit_services.tester.archive.archiving import ENDED, Archiver
from tacit_services.tester.archive.folder import open_folder

ENDLESS_AFTER = 40

LATER_S = 600.0
"""When what was acknowledged is stored: longer than anything is waited for."""


LIMIT_S = 3.0

STUCK = "never ends"


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


class StuckProcedure(MeanProcedure):
    """Stays in one call of NumPy where a study is called STUCK."""

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> MeanVerdict:
        if study.title == STUCK:
            np.add.reduce(np.broadcast_to(1.0, 2**58))
        return super().assemble(study, releases, progress)


def compute(planted: str, mark: str, descriptor: str) -> None:
    """Be the process that computes a worker's verdicts."""
    procedure = discovery.PROCEDURES["mean"] = StuckProcedure()
    if planted == "work-for-ever":

        def work_for_ever() -> None:
            Path(f"{mark}.part").write_text(str(os.getpid()), "ascii")
            Path(f"{mark}.part").rename(mark)
            time.sleep(LATER_S)

        procedure.during_assembly = work_for_ever
    verdicts.main(int(descriptor))


def archive(database_url: str, folder: Path, now: float) -> None:
    with open_folder(folder) as opened:
        archiver = Archiver(create_engine(database_url), opened, lambda: now, delete=True)
        archiver.run(dict.fromkeys(ENDED, int(now) + 1))


def serve(config: str, planted: str = "", mark: str = "") -> int:
    procedure = EndlessCheck() if planted == "endless-check" else MeanProcedure()
    discovery.PROCEDURES["mean"] = procedure
    verdicts.COMMAND = (sys.executable, __file__, "compute", planted, mark)
    if planted == "work-briefly":
        verdicts.VERDICT_LIMIT_S = LIMIT_S
    if planted in {"work-for-ever", "work-briefly"}:
        return main(["work", "--config", config])
    if planted == "answer-first":
        answer_first()
    return main(["serve", "--config", config])


if __name__ == "__main__":
    if sys.argv[1] == "compute":
        compute(*sys.argv[2:])
    elif sys.argv[1] == "archive":
        discovery.PROCEDURES["mean"] = MeanProcedure()
        archive(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
    else:
        sys.exit(serve(*sys.argv[1:]))
