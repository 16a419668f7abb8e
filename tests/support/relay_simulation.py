"""A tester and two agents in memory, one of whom is handed the other's release."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from fault_world import URL, enrol, key_of, sealed
from peer_world import RECEIVER, SENDER, make_peer_agent, peer_study
from simulation import Simulation

from tacit_protocol.messages.study import Study
from tacit_protocol.signing import issue_token
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import OUTBOX, STUDIES
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work

PARTIES = (SENDER, RECEIVER, "west")


def problem(response: httpx.Response) -> str:
    """Return the slug of the problem that the tester answered with."""
    return str(response.json()["type"]).rpartition(":")[2]


class RelaySimulation(Simulation):
    """A tester and both agents in memory, and every byte that went between them.

    ``make`` puts an agent together, ``new_study`` returns what is asked where nothing else is said.
    """

    make: Callable[..., Agent] = staticmethod(make_peer_agent)
    new_study: Callable[..., Study] = staticmethod(peer_study)

    parties = (SENDER, RECEIVER)

    def __init__(self, folder: Path) -> None:
        self.bodies: list[bytes] = []
        self.change: Callable[[bytes], bytes] = lambda content: content
        """What the tester does to the sender's answer before it hands it out."""
        self.make_templates(folder)
        super().__init__(folder, folder)

    @staticmethod
    def fill_tester(connection: sa.Connection) -> None:
        enrol(connection, PARTIES)

    def make_agent(self, owner: str, **uses: Any) -> Agent:
        return self.make(self.folder, owner, **uses)

    def carry(self, request: httpx.Request) -> httpx.Response:
        response = self.network.carry(request)
        content = response.read()
        self.bodies += [request.content, content]
        if "/sealed/" in request.url.path and response.status_code == 200:
            content = self.change(content)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return httpx.Response(response.status_code, headers=headers, stream=httpx.ByteStream(content))

    def call(self, method: str, path: str, party: str | None, content: bytes | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if party is not None:
            headers["authorization"] = f"Bearer {issue_token(key_of(party), URL, int(self.now))}"
        response = self.network.deliver(httpx.Request(method, URL + path, headers=headers, content=content))
        response.read()
        return response

    def ask(self, study: Study | None = None) -> str:
        name, envelope = sealed(study or self.new_study())
        response = self.call("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert response.status_code == 201, response.text
        return name

    def accept(self) -> None:
        """Let the receiver take the study in, and say that it accepts."""
        Fetcher(self.agents[RECEIVER]).poll(0)
        Delivery(self.agents[RECEIVER]).deliver()

    def send(self) -> None:
        """Let the receiver accept, and the sender answer."""
        self.accept()
        Fetcher(self.agents[SENDER]).poll(0)
        work(self.agents[SENDER])

    def receive(self) -> None:
        Fetcher(self.agents[RECEIVER]).poll(0)
        work(self.agents[RECEIVER])

    def finish(self) -> None:
        self.send()
        self.receive()
        self.work_at_tester()
        Fetcher(self.agents[RECEIVER]).fetch_verdicts()

    def rows(self, name: str, table: sa.Table) -> list[Any]:
        return self.read(name, lambda c: list(c.execute(table.select())))

    def state(self, study: str) -> str:
        return {row.digest: row.state for row in self.rows(RECEIVER, STUDIES)}[study]

    def package(self) -> bytes:
        """Return what the sender stored to be sent."""
        return bytes(self.rows(SENDER, OUTBOX)[-1].envelope)
