"""What the owners' routes work with."""

from dataclasses import dataclass

from sqlalchemy.engine import Engine

from tacit_services.curator.data_sets import DataSets
from tacit_services.curator.owners import Access
from tacit_services.curator.uploads import Uploads
from tacit_services.shared.clock import Clock


@dataclass(frozen=True)
class CuratorIdentity:
    """Who the curator is: what ``/v1/identity`` shows."""

    name: str
    key: str
    audience: str
    software: str


@dataclass(frozen=True)
class CuratorSurroundings:
    """The database, who may call, and where rows go."""

    engine: Engine
    identity: CuratorIdentity
    access: Access
    data_sets: DataSets
    uploads: Uploads
    clock: Clock

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self.clock())
