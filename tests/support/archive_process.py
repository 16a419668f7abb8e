"""Archives every study that has ended: ``archive_process.py DATABASE-URL FOLDER NOW``."""

import sys
from pathlib import Path

from study_parties import MeanProcedure

from tacit_protocol.procedures import discovery
from tacit_services.shared.database import create_engine
from tacit_services.tester.archive import open_folder
from tacit_services.tester.archiving import ENDED, Archiver


def main(database_url: str, folder: Path, now: float) -> None:
    discovery.PROCEDURES["mean"] = MeanProcedure()
    with open_folder(folder) as opened:
        archiver = Archiver(create_engine(database_url), opened, lambda: now, delete=True)
        archiver.run(dict.fromkeys(ENDED, int(now) + 1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
