"""A tester in memory with the parties around it, and a clock that a test turns by hand."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import served
from fastapi import FastAPI
from sqlalchemy.engine import Engine
from study_parties import MeanProcedure, Parties

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import VerdictMessage
from tacit_protocol.signing import VERDICT_TYPE, PrivateKey, issue_token, open_envelope
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings

URL = "https://tester.example"


class Federation:
    """A tester's app, the parties around it, and requests that they make."""

    def __init__(self, directory: Path, database_url: str, parties: Parties, url: str = URL) -> None:
        self.parties, self.url = parties, url
        self.now: float = parties.now
        self._database_url = database_url
        self._key_file = directory / "tester.pem"
        self._key_file.write_bytes(parties.tester.to_pem())
        self.engines: list[Engine] = []
        self.app = self.start_tester()

    def start_tester(self) -> FastAPI:
        """Start a tester process, as far as the database can tell."""
        engine = create_engine(self._database_url)
        self.engines.append(engine)
        upgrade(engine, "tester")
        settings = TesterSettings(
            name="tester", url=self.url, key_file=self._key_file, database_url=self._database_url
        )
        return create_tester(settings, engine, lambda: self.now)

    @property
    def engine(self) -> Engine:
        return self.engines[0]

    async def send(
        self, method: str, path: str, key: PrivateKey | None, app: FastAPI | None = None, **options: Any
    ) -> httpx.Response:
        headers = {"content-type": "application/json"} | options.pop("headers", {})
        if key is not None:
            headers["authorization"] = f"Bearer {issue_token(key, self.url, int(self.now))}"
        return await served.send(app or self.app, self.url, method, path, headers=headers, **options)

    def call(self, method: str, path: str, key: PrivateKey | None, **options: Any) -> httpx.Response:
        return asyncio.run(self.send(method, path, key, **options))

    def get(self, path: str, key: PrivateKey | None = None) -> httpx.Response:
        return self.call("GET", path, key or self.parties.tester)

    def put(self, path: str, key: PrivateKey, content: bytes) -> httpx.Response:
        return self.call("PUT", path, key, content=content)

    def enrol(self, name: str, role: str, key: PrivateKey) -> httpx.Response:
        request = {"role": role, "name": name}
        invited = self.call("POST", "/v1/invitations", self.parties.tester, json=request)
        body = {"invitation": invited.json()["invitation"], "name": name, "key": key.public_hex, "role": role}
        return self.call("POST", "/v1/enrolments", key, json=body)

    def enrol_everyone(self) -> None:
        assert self.enrol("analyst", "analyst", self.parties.analyst).status_code == 201
        for name, key in self.parties.owners.items():
            assert self.enrol(name, "owner", key).status_code == 201

    def create(self, **changes: Any) -> str:
        """Create a study; returns its digest."""
        study, envelope = self.parties.sealed_study(**changes)
        response = self.put(f"/v1/studies/{study}", self.parties.analyst, envelope)
        assert response.status_code == 201, response.text
        return str(study)

    def release(self, study: str, owner: str, **options: Any) -> httpx.Response:
        envelope = options.pop("envelope", None) or self.parties.release(study, owner, **options)
        return self.put(f"/v1/studies/{study}/releases/{owner}", self.parties.owners[owner], envelope)

    def decline(self, study: str, owner: str) -> httpx.Response:
        envelope = self.parties.decline(study, owner)
        return self.put(f"/v1/studies/{study}/declines/{owner}", self.parties.owners[owner], envelope)

    def release_all(self, study: str) -> None:
        for owner in self.parties.owners:
            assert self.release(study, owner).status_code == 201

    def state(self, study: str) -> str:
        return str(self.get(f"/v1/studies/{study}").json()["state"])

    def verdict(self, study: str) -> VerdictMessage:
        response = self.get(f"/v1/studies/{study}/verdict")
        assert response.status_code == 200, response.text
        payload = open_envelope(response.content, VERDICT_TYPE, self.parties.tester.public_hex)
        return decode(VerdictMessage, payload)

    def work(self) -> bool:
        """Let the worker do what is due."""
        return bool(self.app.state.worker.run_once())


def enrolled(folder: Path, database_url: str, parties: Parties) -> Iterator[Federation]:
    """Yield a tester, an analyst and three owners, all enrolled."""
    found = Federation(folder, database_url, parties)
    found.enrol_everyone()
    yield found
    for engine in found.engines:
        engine.dispose()


@pytest.fixture
def federation(
    tmp_path: Path, database_url: str, parties: Parties, mean_procedure: MeanProcedure
) -> Iterator[Federation]:
    """A tester, an analyst and three owners, all enrolled, on each database."""
    yield from enrolled(tmp_path, database_url, parties)


@pytest.fixture
def lone_federation(tmp_path: Path, parties: Parties, mean_procedure: MeanProcedure) -> Iterator[Federation]:
    """The same on SQLite, where the database makes no difference."""
    yield from enrolled(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
