"""A curator's storage and owners' interface in one process, with two enrolled owners and a clock by hand."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import served
from fastapi import FastAPI
from sqlalchemy.engine import Engine

from tacit_protocol.signing import PrivateKey, issue_token
from tacit_services.curator.__main__ import create_curator_app, open_storage
from tacit_services.curator.data_sets import ConfiguredDataSet, DataSets, RegisteredDataSet
from tacit_services.curator.routes import CuratorAccess, CuratorContext, CuratorIdentity
from tacit_services.curator.store import RowStore, StorageKeys
from tacit_services.curator.uploads import CSV, UPLOAD_BYTES_MAX, UPLOADS_MAX, Uploads
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import Stopping

URL = "https://curator.example"
NOW = 1_800_000_000
STORAGE_KEY = "5a" * 32

COLUMNS: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "age", "lower": 0.0, "upper": 120.0},
    {"kind": "categorical", "name": "sex", "levels": ["f", "m"]},
]
POLICY: dict[str, Any] = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-6, "analysts": ["*"]}
REGISTRATION: dict[str, Any] = {
    "columns": COLUMNS,
    "unit_column": "patient",
    "epsilon": 3.0,
    "delta": 1e-5,
    "policy": POLICY,
}
ROWS = b"patient,age,sex,name\np1,40,f,Ada\np1,41,f,Ada\np2,n/a,m,Bob\np3,77,x,Cyd\n"


class CuratorWorld:
    """One curator; ``owners`` are enrolled."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        keys: str = STORAGE_KEY,
        upload_bytes_max: int = UPLOAD_BYTES_MAX,
        uploads_max: int = UPLOADS_MAX,
        configured: tuple[ConfiguredDataSet, ...] = (),
        owners: dict[str, PrivateKey] | None = None,
        operator: PrivateKey | None = None,
    ) -> None:
        self.now: float = NOW
        self.clock: Clock = lambda: self.now
        self.operator = operator or PrivateKey.generate()
        self.owners = owners or {name: PrivateKey.generate() for name in ("north", "south")}
        self.folder = folder / "rows"
        self.engine: Engine = create_engine(database_url)
        upgrade(self.engine, "curator")
        self.store = RowStore(self.folder, StorageKeys.parse(keys))
        self.data_sets = DataSets(self.store, configured)
        open_storage(self.engine, self.store, self.data_sets)
        self.stopping = Stopping()
        self.context = self._context(uploads_max)
        self.app: FastAPI = create_curator_app(self.context, upload_bytes_max=upload_bytes_max)
        if owners is None:
            for name in self.owners:
                assert self.enrol(name).status_code == 201

    def _context(self, uploads_max: int) -> CuratorContext:
        def clock() -> float:
            return self.clock()

        uploads = Uploads(
            self.engine,
            self.data_sets,
            self.store,
            clock=clock,
            stopping=self.stopping,
            uploads_max=uploads_max,
        )
        key = self.operator.public_hex
        return CuratorContext(
            engine=self.engine,
            identity=CuratorIdentity("curator", key, URL, "tacit test"),
            access=CuratorAccess(self.engine, key, BearerToken(URL, clock)),
            data_sets=self.data_sets,
            uploads=uploads,
            clock=clock,
        )

    def close(self) -> None:
        self.engine.dispose()
        self.store.release()

    async def send(self, method: str, path: str, key: PrivateKey | None, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if "content" in options:
            headers = {"content-type": "application/json"} | headers
        if key is not None:
            headers["authorization"] = f"Bearer {issue_token(key, URL, int(self.now))}"
        return await served.send(self.app, URL, method, path, headers=headers, **options)

    def call(self, method: str, path: str, key: PrivateKey | None, **options: Any) -> httpx.Response:
        return asyncio.run(self.send(method, path, key, **options))

    def enrol(self, name: str, key: PrivateKey | None = None) -> httpx.Response:
        key = key or self.owners[name]
        invited = self.call("POST", "/v1/invitations", self.operator, json={"name": name})
        body = {"invitation": invited.json()["invitation"], "name": name, "key": key.public_hex}
        return self.call("POST", "/v1/enrolments", key, json=body)

    def register(self, owner: str = "north", name: str = "patients", **changes: Any) -> httpx.Response:
        body = REGISTRATION | changes
        return self.call("PUT", f"/v1/data-sets/{owner}/{name}", self.owners[owner], json=body)

    def upload(
        self,
        content: bytes | Iterator[bytes] | AsyncIterator[bytes] = ROWS,
        media_type: str = CSV,
        owner: str = "north",
        name: str = "patients",
        **options: Any,
    ) -> httpx.Response:
        if not isinstance(content, bytes | AsyncIterator):
            content = _asynchronous(content)
        headers = {"content-type": media_type} | options.pop("headers", {})
        path = f"/v1/data-sets/{owner}/{name}/rows"
        return self.call("PUT", path, self.owners[owner], content=content, headers=headers, **options)

    def show(self, owner: str = "north", name: str = "patients") -> httpx.Response:
        return self.call("GET", f"/v1/data-sets/{owner}/{name}", self.owners[owner])

    def held(self, owner: str = "north", name: str = "patients") -> RegisteredDataSet:
        held = run_transaction(
            self.engine, lambda c: self.data_sets.held_data_set(c, owner, name), read_only=True
        )
        assert held is not None
        return held

    def files(self) -> set[str]:
        """The files of rows in the folder, and whatever else should not be there."""
        return {path.name for path in self.folder.iterdir()} - {"lock", "id"}


async def _asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
