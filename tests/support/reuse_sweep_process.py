"""Kills the tester with SIGKILL while it works on a study that only reads earlier releases again.

As kill_sweep_process.py, without an agent: nobody is asked, so the tester does everything by itself.
"""

import gc
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from fault_world import (
    NOW,
    PROCEDURE,
    SeededNoise,
    enrol,
    key_of,
    sealed,
    study_of,
)
from kill_sweep_process import HEADERS, IMPORTED_LATE, PATIENCE_S, Sweep

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.procedures import discovery
from tacit_protocol.signing.envelope import RELEASE_TYPE, digest, open_envelope, seal
from tacit_protocol.signing.tokens import issue_token
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.shared.database import create_engine, run_transaction
from tacit_services.shared.logging import configure_logging
from tacit_services.tester import studies
from tacit_services.tester.studies import transcript_of
from tacit_services.tester.tables import JOBS, RELEASES, REUSES, STUDIES, STUDY_OWNERS, VERDICTS

OWNERS = ("north", "south")


class ReuseSweep(Sweep):
    """A supervisor of a tester that holds a completed study, and is sent one that reuses its releases."""

    def make_study(self) -> Study:
        self.source, self.source_envelope = sealed(study_of(OWNERS, title="Earlier"))
        owners = [
            Owner(name=name, key=key_of(name).public_hex, data_set="patients", reuses=self.source)
            for name in OWNERS
        ]
        return study_of(OWNERS).model_copy(update={"owners": tuple(owners)})

    def make_releases(self) -> dict[str, bytes]:
        """Return the releases of the earlier study."""
        study, made = study_of(OWNERS), {}
        for place, name in enumerate(OWNERS):
            release = PROCEDURE.privatise(study, (60, (300 + place) << 20), SeededNoise(place))
            message = encode(ReleaseMessage(study=self.source, party=name, release=release))
            made[name] = seal(message, RELEASE_TYPE, key_of(name))
        return made

    def enrol(self, connection: sa.Connection) -> None:
        enrol(connection, OWNERS)
        connection.execute(
            STUDIES.insert().values(
                digest=self.source,
                envelope=self.source_envelope,
                title="Earlier",
                procedure=PROCEDURE.name,
                analyst_key=key_of("ada").public_hex,
                state="completed",
                created_at=NOW,
                deadline=NOW + 1,
            )
        )
        for place, (name, envelope) in enumerate(self.releases.items()):
            row = {"study": self.source, "owner": name}
            key = key_of(name).public_hex
            payload = open_envelope(envelope, RELEASE_TYPE, key)
            connection.execute(STUDY_OWNERS.insert().values(**row, position=place, key=key))
            connection.execute(
                RELEASES.insert().values(
                    **row, envelope=envelope, digest=digest(payload), units=60, received_at=NOW
                )
            )

    def _live(self) -> list[str]:
        until = time.monotonic() + PATIENCE_S
        self.shared.arm()
        self._fork("tester")
        path = f"/v1/studies/{self.study}"
        while not self._put(path, "ada", self.envelope):
            if time.monotonic() > until:
                return ["the tester took nothing"]
            self._restart_the_dead()
            self.pause()
        is_over = self.patience()
        while not self._has_verdict(f"{path}/verdict"):
            if is_over():
                return ["there is no verdict"]
            self._restart_the_dead()
            self.pause()
        return []

    def _has_verdict(self, path: str) -> bool:
        token = issue_token(key_of("ada"), self.url, int(self.shared.clock()))
        try:
            response = self.http.get(path, headers=HEADERS | {"authorization": f"Bearer {token}"})
        except httpx.TransportError:
            return False
        return response.status_code == 200

    def _be_tester(self) -> None:
        if self.planted == "never-queued":
            studies.queue_verdict = lambda *_: None
        if self.planted == "not-recorded":
            studies.record = lambda *_: None
        super()._be_tester()

    def _faults(self) -> list[str]:
        engine = create_engine(self.urls[1])
        try:
            return run_transaction(engine, self._faults_of_reuse, read_only=True)
        finally:
            engine.dispose()

    def _faults_of_reuse(self, connection: sa.Connection) -> list[str]:
        found = []
        if connection.execute(JOBS.select()).first() is not None:
            found.append("a job is left")
        rows = connection.execute(sa.select(REUSES.c.owner, REUSES.c.source).order_by(REUSES.c.owner)).all()
        if [tuple(row) for row in rows] != [(name, self.source) for name in OWNERS]:
            found.append("what is reused is recorded wrongly")
        kept = dict(connection.execute(sa.select(RELEASES.c.owner, RELEASES.c.envelope)).tuples().all())
        if {name: bytes(envelope) for name, envelope in kept.items()} != self.releases:
            found.append("the earlier releases are not as they were")
        if len(connection.execute(VERDICTS.select()).all()) != 1:
            found.append("there is not exactly one verdict")
        try:
            transcript = transcript_of(connection, self.study) or b""
            outcome = verify_transcript(transcript, key_of("tester").public_hex).verdict.outcome
        except VerificationError as error:
            return [*found, f"the transcript does not hold: {error}"]
        return found if outcome == "completed" else [*found, f"the study is {outcome}"]


def main(folder: str, party_url: str, tester_url: str) -> None:
    configure_logging("ERROR")
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    known: dict[str, Any] = discovery.PROCEDURES
    known[PROCEDURE.name] = PROCEDURE
    sweep = ReuseSweep(Path(folder), party_url, tester_url)
    gc.freeze()  # so that a child's collector does not copy every page
    for line in sys.stdin:
        case = json.loads(line)
        sys.stdout.write(json.dumps(sweep.run(case["plan"], case["planted"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
