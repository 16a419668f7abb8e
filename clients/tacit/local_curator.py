"""A curator on this machine and the owners who hand it their data, each in a folder of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.configuration import TesterAddress
from tacit.curator_client import CuratorClient
from tacit.curator_configuration import CuratorAddress, init_curator, init_owner
from tacit.data_set import DataSetDescription
from tacit.keys import load_key

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
