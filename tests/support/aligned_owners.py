"""Two owners of different columns of the same people: the agent under test, and a peer that makes files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from agent_fakes import World

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.alignment import NO_PROOF, AlignmentMessage, UnitKey, bucket_count, buckets_text
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.signing.envelope import ALIGNMENT_TYPE, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.agent.alignment import compare

IDS = tuple(f"p{i}" for i in range(60))
"""The ids that the world's data set holds."""

UNIT_COLUMN = 'unit_column = "id"'


@dataclass
class Peer:
    """The other owner: its name, its key, and what it shares with the agent under test."""

    folder: Path
    name: str = "south"
    data_set: str = "persons"
    key: PrivateKey = field(default_factory=PrivateKey.generate)
    shared: UnitKey = field(default_factory=lambda: UnitKey(bytes(range(32))))

    @property
    def key_file(self) -> Path:
        path = self.folder / "shared.key"
        path.write_text(self.shared.secret.hex() + "\n")
        path.chmod(0o600)
        return path

    def message(self, ids: Sequence[str] = IDS, **changes: Any) -> AlignmentMessage:
        """What the peer says of its units, proven with the shared key."""
        units = np.unique(self.shared.hashes(ids))
        fields: dict[str, Any] = {
            "owner": Party(name=self.name, key=self.key.public_hex),
            "data_set": self.data_set,
            "unit_column": "id",
            "key_fingerprint": self.shared.fingerprint,
            "units": len(units),
            "digest": self.shared.digest(units),
            "buckets": buckets_text(self.shared.bucket_digests(units, bucket_count(len(units)))),
        }
        message = AlignmentMessage(**{**fields, **changes, "proof": NO_PROOF})
        return message.model_copy(update={"proof": self.shared.proof(encode(message))})

    def sealed(self, message: AlignmentMessage | None = None, key: PrivateKey | None = None) -> bytes:
        return seal(encode(message or self.message()), ALIGNMENT_TYPE, key or self.key)

    def compared(self, config: Path, envelope: bytes | None = None, *, list_ids: bool = False) -> Any:
        """What the agent's owner is told of the peer's file."""
        path = self.folder / "theirs.json"
        path.write_bytes(self.sealed() if envelope is None else envelope)
        return compare(
            config, "patients", None, self.key_file, path, list_ids=list_ids, clock=lambda: 1_700_000_000
        )


def aligned_study(world: World, peer: Peer, **changes: Any) -> Study:
    """A study of the agent's column x and the peer's column z, by the digest of the world's own ids."""
    owners = (
        Owner(name="north", key=world.agent.public_hex, data_set="patients", columns=("x",)),
        Owner(name=peer.name, key=peer.key.public_hex, data_set=peer.data_set, columns=("z",)),
    )
    return world.study(
        **{
            "procedure": "distance_correlation",
            "domain": Domain(
                columns=tuple(NumericColumn(name=name, lower=0.0, upper=10.0) for name in ("x", "z"))
            ),
            "owners": owners,
            "unit_column": "id",
            "alignment": peer.message().digest,
            **changes,
        }
    )
