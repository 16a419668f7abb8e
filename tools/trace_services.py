"""Count the files of the products that a row and a release pass in the services.

    python tools/trace_services.py [--list]

Two owners' agents and a tester run in this process, without a network. Counted are the files in which a
function is called: at an agent, from the moment at which it may read the rows of its CSV file until its
release is signed; at the tester, from the last release's upload until the verdict is stored. A first study
makes sure that nothing is imported any more; the second is counted. Prints JSON.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import canonical
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import STUDY_TYPE, PrivateKey, issue_token, sign_envelope
from tacit_services.agent.agent import Agent
from tacit_services.agent.service import build
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.tester_client import CarriedStudy
from tacit_services.shared import failpoints
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.shared.failpoints import AgentStep
from tacit_services.shared.logging import configure_logging
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings

ROOT = Path(__file__).resolve().parent.parent
PRODUCTS = tuple(str(ROOT / name) + "/" for name in ("protocol", "services", "clients"))
URL = "https://tester.example"
PROCEDURE = "kernel_two_sample"
OWNERS = ("north", "south")
ROWS = 200


class Trace:
    """The files in which functions were called while it was on."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()
        self.at_step: Callable[[object], None] = lambda _: None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, as :func:`sys.setprofile` tells it."""
        if event != "call":
            return
        code = frame.f_code
        if code is failpoints.reached.__code__:
            self.at_step(frame.f_locals["step"])
        elif self.on and code.co_name != "<module>" and code.co_filename.startswith(PRODUCTS):
            self.files.add(code.co_filename.removeprefix(f"{ROOT}/"))


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace this thread, and those that it starts."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class World:
    """The parties of a small federation, their files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.keys = {name: PrivateKey.generate() for name in (*OWNERS, "tester", "ann")}
        self.agents = {name: self._settings(folder / name, name) for name in OWNERS}
        key_file = folder / "tester.pem"
        key_file.write_bytes(self.keys["tester"].to_pem())
        settings = TesterSettings(
            name="tester", url=URL, key_file=key_file, database_url=f"sqlite:///{folder}/tester.sqlite3"
        )
        engine = create_engine(settings.database_url)
        upgrade(engine, "tester")
        self.app: FastAPI = create_tester(settings, engine, time.time)
        for name in ("ann", *OWNERS):
            role = "analyst" if name == "ann" else "owner"
            made = self.call("POST", "/v1/invitations", "tester", json={"role": role, "name": name})
            answer = {"invitation": made["invitation"], "name": name, "role": role}
            self.call("POST", "/v1/enrolments", name, json=answer | {"key": self.keys[name].public_hex})

    def _settings(self, folder: Path, name: str) -> AgentSettings:
        folder.mkdir()
        rows = np.random.default_rng(1).normal(50, 9, ROWS)
        (folder / "patients.csv").write_text("age\n" + "".join(f"{row:.3f}\n" for row in rows))
        (folder / "agent.pem").write_bytes(self.keys[name].to_pem())
        (folder / "policy.toml").write_text(
            'approval = "automatic"\nepsilon_per_study_max = 1\ndelta_per_study_max = 1e-5\n'
            f'analysts = ["*"]\nrespond_after_s_min = 0\nprocedures = ["{PROCEDURE}"]\n'
            '[data_sets.patients]\ncolumns = ["age"]\n'
        )
        (folder / "agent.toml").write_text(
            f'name = "{name}"\nkey_file = "agent.pem"\npolicy_file = "policy.toml"\ntester_url = "{URL}"\n'
            f'tester_key = "{self.keys["tester"].public_hex}"\n'
            '[[data_sets]]\nname = "patients"\nsource = "patients.csv"\nepsilon = 4\ndelta = 1e-5\n'
        )
        return AgentSettings.load(folder / "agent.toml")

    def call(self, method: str, path: str, caller: str, **sent: Any) -> Any:
        """Ask the tester; returns its answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            token = issue_token(self.keys[caller], URL, int(time.time()))
            headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
                return await client.request(method, path, headers=headers, **sent)

        return asyncio.run(send()).raise_for_status().json()

    def study(self, title: str) -> bytes:
        """Return a signed study."""
        parties = {name: key.public_hex for name, key in self.keys.items()}
        study = Study(
            title=title,
            procedure=PROCEDURE,
            parameters={},
            domain=Domain(columns=(NumericColumn(name="age", lower=0.0, upper=120.0),)),
            owners=tuple(Owner(name=name, key=parties[name], data_set="patients") for name in OWNERS),
            tester=Party(name="tester", key=parties["tester"]),
            analyst=Party(name="ann", key=parties["ann"]),
            budget=Budget.of("1", "1e-6"),
            level=0.05,
            created_at=int(time.time()),
            deadline=int(time.time()) + 3600,
            respond_after_s=0,
            seed="0" * 32,
        )
        payload = encode(canonical(PROCEDURES[PROCEDURE], study))
        return sign_envelope(payload, STUDY_TYPE, self.keys["ann"])

    def release_of(self, owner: str, envelope: bytes) -> bytes:
        """Let an owner's agent answer a study; returns its release."""
        carried = CarriedStudy(envelope)
        agent: Agent = build(self.agents[owner], PROCEDURES, threading.Event(), client=carried)
        Fetcher(agent).poll(0)
        work(agent)
        agent.engine.dispose()
        return carried.answer


def run_study(world: World, title: str) -> dict[str, set[str]]:
    """Run a study, and return the files that were passed, by what passed them."""
    envelope = world.study(title)
    name = CarriedStudy(envelope).item.digest
    world.call("PUT", f"/v1/studies/{name}", "ann", content=envelope)
    with traced() as row:

        def at_step(step: object) -> None:
            row.on = row.on or step is AgentStep.READING_BEGUN
            row.on = row.on and step is not AgentStep.RELEASE_SIGNED

        row.at_step = at_step
        first = world.release_of(OWNERS[0], envelope)
    last = world.release_of(OWNERS[1], envelope)
    world.call("PUT", f"/v1/studies/{name}/releases/{OWNERS[0]}", OWNERS[0], content=first)
    with traced() as release:
        release.on = True
        world.call("PUT", f"/v1/studies/{name}/releases/{OWNERS[1]}", OWNERS[1], content=last)
        world.app.state.worker.run_once()
        release.on = False
    state = world.call("GET", f"/v1/studies/{name}", "ann")["state"]
    if state != "completed":
        raise SystemExit(f"the study is {state}")
    return {"row": row.files, "release": release.files}


def main() -> None:
    """Print the figures, or with ``--list`` the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files")
    named = parser.parse_args().list
    configure_logging("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        run_study(world, "first")
        found = run_study(world, "second")
    print(
        json.dumps({what: sorted(files) if named else len(files) for what, files in found.items()}, indent=1)
    )


if __name__ == "__main__":
    main()
