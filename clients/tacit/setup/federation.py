"""A federation on this machine: a tester, agents and a curator as separate processes, in one folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tacit.client.agent import AgentClient
from tacit.client.curator import CuratorClient
from tacit.client.data_set import DataSetDescription
from tacit.client.http import HttpRequest
from tacit.client.tester import Client
from tacit.client.transport import HttpTransport
from tacit.errors import ServiceError, TransportError
from tacit.setup.configuration import (
    CuratorAddress,
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_curator,
    init_owner,
    init_party,
    init_tester,
)
from tacit.setup.keys import load_key
from tacit.setup.processes import (
    ServiceKind,
    ServiceProcess,
    free_ports,
    interruptions_deferred,
    service_command,
    stop_all,
)

CURATOR = "curator"
"""Folder and name of the curator of a federation on this machine."""


@dataclass(frozen=True)
class CuratedOwnerSetup:
    """An owner whose data a curator holds.

    ``rows`` is a .csv or .parquet file. Its data set's policy takes studies from the federation's analyst
    alone, whatever ``data_set`` says.
    """

    name: str
    data_set: DataSetDescription
    rows: Path


class LocalCurator:
    """A curator's files and its owners' files; the federation runs the process.

    Args:
        folder: the federation's folder.
        owners: who hands over what.
        tester: the federation's tester.
        analysts: whose studies the owners take.
        host: address that the curator listens on.
        port: port that the curator listens on.
    """

    def __init__(
        self,
        folder: Path,
        owners: Sequence[CuratedOwnerSetup],
        tester: TesterAddress,
        analysts: tuple[str, ...],
        *,
        host: str,
        port: int,
    ) -> None:
        self.url = f"http://{host}:{port}"
        self.configuration = init_curator(folder / CURATOR, CURATOR, tester, host=host, port=port)
        self.key = load_key(folder / CURATOR / "curator.pem").public_hex
        address = CuratorAddress(self.url, self.key)
        self.owners: Mapping[str, CuratedOwnerSetup] = {
            owner.name: replace(owner, data_set=_for_analysts(owner.data_set, analysts)) for owner in owners
        }
        self.owner_files = {name: init_owner(folder / name, name, address) for name in self.owners}

    def hand_over(self) -> None:
        """Enrol every owner at the running curator, register its data set and upload the rows."""
        with self.operator_client() as operator:
            invitations = {name: operator.invite(name).invitation for name in self.owners}
        for name, owner in self.owners.items():
            with self.owner_client(name) as client:
                client.enrol(invitations[name])
                client.register(owner.data_set)
                client.upload(owner.data_set.name, owner.rows)

    def operator_client(self) -> CuratorClient:
        """Return a client that uses the curator's own key."""
        return CuratorClient.of_operator(self.configuration)

    def owner_client(self, name: str) -> CuratorClient:
        """Return an owner's client."""
        return CuratorClient.of_owner(self.owner_files[name])

    def draft_owners(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what a study's draft says of these owners: names, data sets and their keys here."""
        return [
            {
                "name": name,
                "data_set": self.owners[name].data_set.name,
                "key": load_key(self.owner_files[name].parent / "owner.pem").public_hex,
            }
            for name in names
        ]


def _for_analysts(data_set: DataSetDescription, analysts: tuple[str, ...]) -> DataSetDescription:
    return data_set.model_copy(update={"policy": data_set.policy.model_copy(update={"analysts": analysts})})


HOST = "127.0.0.1"

READY_TIMEOUT_S = 300.0
"""How long the services may take to start: six Python processes on a slow machine."""

POLL_S = 0.05
"""Pause between two looks at a service that is starting."""

ANALYST = "analyst"


@dataclass(frozen=True)
class OwnerSetup:
    """An owner of a local federation. Its policy takes studies from the federation's analyst alone."""

    name: str
    data_set: DataSetSetup
    policy: PolicySetup


@dataclass(frozen=True)
class PartyFolder:
    """A party's folder, its configuration file and the URL it serves."""

    name: str
    configuration: Path
    url: str

    @property
    def folder(self) -> Path:
        """The party's folder."""
        return self.configuration.parent


class LocalFederation:
    """A tester, agents and an analyst, set up in ``folder``. Use it as a context manager to run it.

    Args:
        folder: where every party's files go.
        owners: owners with agents of their own.
        curated: owners who hand their data to a curator; there is one where there are any.

    Raises:
        ConfigurationError: the folder holds a federation already, or cannot be written.
    """

    def __init__(
        self, folder: Path, owners: Sequence[OwnerSetup], curated: Sequence[CuratedOwnerSetup] = ()
    ) -> None:
        self.folder = folder
        ports = free_ports(2 + len(owners))
        tester_url = f"http://{HOST}:{ports[0]}"
        tester_file = init_tester(folder / "tester", "tester", HOST, ports[0])
        self.tester = PartyFolder("tester", tester_file, tester_url)
        self.tester_key = load_key(tester_file.parent / "tester.pem").public_hex
        address = TesterAddress(tester_url, self.tester_key)
        self.analyst = PartyFolder(ANALYST, init_party(folder / ANALYST, ANALYST, address), "")
        analysts = (load_key(folder / ANALYST / "party.pem").public_hex,)
        self.agents = []
        for owner, port in zip(owners, ports[2:], strict=True):
            policy = replace(owner.policy, analysts=analysts)
            file = init_agent(
                folder / owner.name, owner.name, address, owner.data_set, policy, host=HOST, port=port
            )
            self.agents.append(PartyFolder(owner.name, file, f"http://{HOST}:{port}"))
        self.curator = (
            LocalCurator(folder, curated, address, analysts, host=HOST, port=ports[1]) if curated else None
        )
        self._services: list[ServiceProcess] = []

    def start(self) -> None:
        """Start every service at once."""
        self._start("tester", self.tester)
        for site in self.agents:
            self._start("agent", site)
        if self.curator is not None:
            self._start("curator", PartyFolder(CURATOR, self.curator.configuration, self.curator.url))

    def wait_until_ready(
        self, timeout_s: float = READY_TIMEOUT_S, on_ready: Callable[[str], None] | None = None
    ) -> None:
        """Wait until the tester, every agent and the curator are ready.

        Raises:
            ServiceError: a service ended, or was not ready in time; the message names its log.
        """
        ends_at = time.monotonic() + timeout_s
        sites = [self.tester, *self.agents]
        if self.curator is not None:
            sites.append(PartyFolder(CURATOR, self.curator.configuration, self.curator.url))
        for site in sites:
            self._wait_for(site, "/readyz" if site is self.tester else "/healthz", ends_at)
            if on_ready is not None:
                on_ready(site.name)

    def enrol_all(self) -> None:
        """Invite and enrol every owner, the curator and the analyst; the curator's owners hand over data."""
        with self.tester_client() as tester:
            for site in self.agents:
                invitation = tester.invite("owner", site.name).invitation
                with self._party_client(site.folder / "agent.pem") as client:
                    client.enrol(invitation, site.name, "owner")
            if self.curator is not None:
                invitation = tester.invite("curator", CURATOR).invitation
                with self._party_client(self.curator.configuration.parent / "curator.pem") as client:
                    client.enrol(invitation, CURATOR, "curator")
            invitation = tester.invite("analyst", ANALYST).invitation
            with self.analyst_client() as client:
                client.enrol(invitation, ANALYST, "analyst")
        if self.curator is not None:
            self.curator.hand_over()

    def tester_client(self) -> Client:
        """Return a client that uses the tester's own key."""
        return self._party_client(self.tester.folder / "tester.pem")

    def analyst_client(self) -> Client:
        """Return a client that uses the analyst's key."""
        return self._party_client(self.analyst.folder / "party.pem")

    def agent_client(self, name: str) -> AgentClient:
        """Return a client of one owner's agent."""
        site = next(site for site in self.agents if site.name == name)
        return AgentClient.from_configuration(site.configuration)

    def check_running(self) -> None:
        """Raise ServiceError where a service has ended."""
        for service in self._services:
            service.check_running()

    def stop(self) -> None:
        """Stop every service; an impatient second Ctrl-C does not leave one behind."""
        with interruptions_deferred():
            stop_all(self._services)
            self._services.clear()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, kind: ServiceKind, site: PartyFolder) -> None:
        command = service_command(kind, "serve", site.configuration)
        with interruptions_deferred():
            self._services.append(ServiceProcess.start(site.name, command, site.folder / f"{kind}.log"))

    def _party_client(self, key_file: Path) -> Client:
        return Client(self.tester.url, key_file, tester_key=self.tester_key)

    def _wait_for(self, site: PartyFolder, path: str, ends_at: float) -> None:
        transport = HttpTransport(site.url, sleep=lambda _: None)
        try:
            while True:
                self.check_running()
                try:
                    if transport.send(HttpRequest("GET", path, signed=False, timeout_s=1.0)).status == 200:
                        return
                except TransportError as error:
                    if time.monotonic() > ends_at:
                        log = site.folder
                        raise ServiceError(
                            f"{site.name} did not start in time; see the log in {log}"
                        ) from error
                if time.monotonic() > ends_at:
                    raise ServiceError(f"{site.name} is not ready; see the log in {site.folder}")
                time.sleep(POLL_S)
        finally:
            transport.close()
