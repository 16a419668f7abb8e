"""A curator as its settings make it and a tester, both in memory, with the owners' requests."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import served
from curated_world import CURATOR, PROCEDURES, curated_study_of, enrol_at_tester
from fault_world import NOW, key_of, make_tester, sealed
from fault_world import URL as TESTER_URL
from made_studies import SeededNoise
from simulation import Network

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.signing import issue_token
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import Loops, work
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.curator.__main__ import CuratorSettings, make_app, make_curator, open_foundation
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.studies import transcript_of

URL = "https://curator.example"
OPERATOR = CURATOR
COLUMNS = ({"kind": "numeric", "name": "x", "lower": 0.0, "upper": 10.0},)
CSV = b"x\n" + b"".join(b"%d\n" % (i % 10) for i in range(60))


def registration(approval: str, columns: tuple[dict[str, Any], ...] = COLUMNS) -> dict[str, Any]:
    """Return what an owner registers."""
    policy = {
        "approval": approval,
        "epsilon_per_study_max": 1.0,
        "delta_per_study_max": 1e-5,
        "respond_after_s_min": 0,
        "analysts": ["*"],
    }
    return {"columns": list(columns), "epsilon": 2.0, "delta": 1e-5, "policy": policy}


class CuratorFederation:
    """A curator's app, a tester's, and requests to both."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        procedures: Mapping[str, Procedure] = PROCEDURES,
        noise: NoiseSource | None = None,
        url: str = URL,
    ) -> None:
        self.url = url
        self.now: float = NOW
        (folder / "curator.pem").write_bytes(key_of(CURATOR).to_pem())
        (folder / "storage.key").write_text("3b" * 32)
        self.settings = CuratorSettings(
            name=CURATOR,
            url=url,
            key_file=folder / "curator.pem",
            database_url=f"sqlite:///{folder / 'curator.sqlite3'}",
            storage_folder=folder / "rows",
            storage_keys_file=folder / "storage.key",
            tester_url=TESTER_URL,
            tester_key=key_of("tester").public_hex,
            respond_after_s_min=0,
        )
        self.network = network
        self.tester_engine = create_engine(f"sqlite:///{folder / 'tester.sqlite3'}")
        upgrade(self.tester_engine, "tester")
        run_transaction(self.tester_engine, enrol_at_tester)
        network.app = make_tester(folder, TESTER_URL, self.tester_engine, lambda: self.now)
        self.base = open_foundation(self.settings, lambda: self.now)
        stop = threading.Event()
        self.curator = make_curator(self.base, procedures, stop, noise or SeededNoise(1))
        self.app = make_app(self.base, self.curator, Loops(self.curator, stop, 0), Stopping())

    def close(self) -> None:
        self.curator.client.close()
        self.base.store.release()
        self.base.engine.dispose()
        self.tester_engine.dispose()
        self.network.close()

    def call(self, method: str, path: str, party: str, **options: Any) -> httpx.Response:
        """Send a request to the curator."""
        headers = {"authorization": f"Bearer {issue_token(key_of(party), self.url, int(self.now))}"}
        headers |= options.pop("headers", {})
        return served.call(self.app, self.url, method, path, raises=False, headers=headers, **options)

    def call_tester(self, method: str, path: str, party: str, content: bytes = b"") -> httpx.Response:
        """Send a request to the tester."""
        headers = {
            "authorization": f"Bearer {issue_token(key_of(party), TESTER_URL, int(self.now))}",
            "content-type": "application/json",
        }
        response = self.network.deliver(
            httpx.Request(method, TESTER_URL + path, headers=headers, content=content)
        )
        response.read()
        return response

    def add_owner(
        self, name: str, approval: str, registered: dict[str, Any] | None = None, rows: bytes = CSV
    ) -> None:
        invited = self.call("POST", "/v1/invitations", OPERATOR, json={"name": name}).json()
        body = {"invitation": invited["invitation"], "name": name, "key": key_of(name).public_hex}
        assert self.call("POST", "/v1/enrolments", name, json=body).status_code == 201
        path = f"/v1/data-sets/{name}/patients"
        response = self.call("PUT", path, name, json=registered or registration(approval))
        assert response.status_code == 201, response.text
        response = self.call("PUT", path + "/rows", name, content=rows, headers={"content-type": "text/csv"})
        assert response.status_code == 201, response.text

    def ask(self, *owners: str) -> str:
        """Put a study of these owners, and let the curator take it in."""
        return self.put_study(curated_study_of(owners))

    def put_study(self, study: Study) -> str:
        name = self.put_study_unheard(study)
        self.turn()
        return name

    def put_study_unheard(self, study: Study) -> str:
        """Put a study that the curator has not yet asked for."""
        name, envelope = sealed(study)
        response = self.call_tester("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert response.status_code == 201, response.text
        return name

    def turn(self) -> None:
        Fetcher(self.curator).poll(0)
        work(self.curator)

    def end(self, study: str) -> bytes:
        """Let the tester compute and the curator read the verdict; returns the transcript."""
        self.network.app.state.worker.run_once()
        Fetcher(self.curator).fetch_verdicts()
        transcript = run_transaction(self.tester_engine, lambda c: transcript_of(c, study), read_only=True)
        assert transcript is not None
        return transcript


@contextmanager
def curator_federation(
    folder: Path,
    procedures: Mapping[str, Procedure] = PROCEDURES,
    noise: NoiseSource | None = None,
    url: str = URL,
) -> Iterator[CuratorFederation]:
    """Run a curator, at that address, and a tester in memory, with these procedures registered."""
    network = Network()
    with pytest.MonkeyPatch.context() as patch:
        reaching = partial(TesterClient, transport=httpx.MockTransport(network.carry))
        patch.setattr("tacit_services.agent.service.TesterClient", reaching)
        for name, procedure in procedures.items():
            patch.setitem(discovery.PROCEDURES, name, procedure)
        federation = CuratorFederation(folder, network, procedures, noise, url)
        try:
            yield federation
        finally:
            federation.close()
