"""A job worker of its own, with a procedure that takes for ever: ``python worker_process.py CONFIG MARK``.

The file ``MARK`` appears once a verdict is being computed.
"""

import sys
import time
from pathlib import Path

from study_parties import MeanProcedure

from tacit_protocol.procedures import discovery
from tacit_services.tester.__main__ import main

FOR_EVER_S = 3600.0


def work_for_ever() -> None:
    Path(sys.argv[2]).touch()
    time.sleep(FOR_EVER_S)


if __name__ == "__main__":
    procedure = MeanProcedure()
    procedure.during_assembly = work_for_ever
    discovery.PROCEDURES["mean"] = procedure
    sys.exit(main(["work", "--config", sys.argv[1]]))
