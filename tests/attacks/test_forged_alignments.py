"""Alignment files by others than the other owner: every one is refused, and nothing is recorded."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import IDS, UNIT_COLUMN, AttackedAgent, Peer, World, aligned_study

from tacit_protocol.messages.alignment import NO_PROOF, AlignmentMessage, UnitKey
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Party
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import ALIGNMENT_TYPE, ENVELOPE_BYTES_MAX, STUDY_TYPE, PrivateKey, sign_envelope
from tacit_services.agent import alignment
from tacit_services.agent.alignment import AlignmentRefusedError, alignments
from tacit_services.shared.database import run_transaction

MALLORY = PrivateKey.generate()


class Victim:
    """An owner who is handed files, and the peer who should have made them."""

    def __init__(self, folder: Path) -> None:
        self.attacked = AttackedAgent(folder, World(folder), PROCEDURES, data_set=UNIT_COLUMN)
        self.config, self.peer = folder / "agent.toml", Peer(folder)

    def recorded(self) -> int:
        return len(run_transaction(self.attacked.agent.engine, alignments, read_only=True))

    def refuses(self, envelope: bytes) -> str:
        """What the owner is told; nothing of the file is in it."""
        with pytest.raises(AlignmentRefusedError) as refused:
            self.peer.compared(self.config, envelope)
        assert self.recorded() == 0
        return str(refused.value)


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


def test_the_genuine_file_is_taken(victim: Victim) -> None:
    assert victim.peer.compared(victim.config)["ok"]
    assert victim.recorded() == 1


def without_the_key(message: AlignmentMessage, **changes: Any) -> AlignmentMessage:
    """A message as somebody makes it who has seen another one, and has not the shared key."""
    changed = message.model_copy(update={**changes, "proof": NO_PROOF})
    return changed.model_copy(update={"proof": UnitKey(bytes(32)).proof(encode(changed))})


def mallorys(peer: Peer) -> Party:
    return Party(name=peer.name, key=MALLORY.public_hex)


FORGERIES: dict[str, Callable[[Peer], bytes]] = {
    "signed by another": lambda peer: peer.sealed(key=MALLORY),
    "re-signed in the peer's name": lambda peer: peer.sealed(
        peer.message().model_copy(update={"owner": mallorys(peer)}), MALLORY
    ),
    "re-signed, with a proof by another key": lambda peer: peer.sealed(
        without_the_key(peer.message(), owner=mallorys(peer)), MALLORY
    ),
    "for another data set": lambda peer: peer.sealed(without_the_key(peer.message(), data_set="others")),
    "of fewer units": lambda peer: peer.sealed(without_the_key(peer.message(), units=59)),
    "by another shared key": lambda peer: Peer(peer.folder, key=peer.key, shared=UnitKey(bytes(32))).sealed(),
    "of another column": lambda peer: peer.sealed(peer.message(unit_column="person")),
    "another type of message": lambda peer: sign_envelope(encode(peer.message()), STUDY_TYPE, peer.key),
    "no message": lambda peer: sign_envelope(b"{}", ALIGNMENT_TYPE, peer.key),
    "not JSON": lambda _: b"\x00" * 1000,
    "empty": lambda _: b"",
    "huge": lambda _: b" " * (ENVELOPE_BYTES_MAX + 1),
    "the owner's name with a key of its own": lambda peer: Peer(peer.folder, name="north").sealed(),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused(victim: Victim, name: str) -> None:
    told = victim.refuses(FORGERIES[name](victim.peer))
    assert not any(text in told for text in (*IDS, "others", "person", victim.peer.shared.secret.hex()))


def test_a_file_in_the_owners_own_key_is_refused(victim: Victim) -> None:
    own = Peer(victim.peer.folder, key=victim.attacked.world.agent)
    assert "your own" in victim.refuses(own.sealed())


def test_every_flipped_bit_and_every_cut_is_refused(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flip in every 29th byte and a cut at every 97th: the file has some 1300. The data are read once."""
    genuine = victim.peer.sealed()
    own = alignment._own_side(victim.config, "patients", None, victim.peer.key_file)
    monkeypatch.setattr(alignment, "_own_side", lambda *_: own)
    for place in range(0, len(genuine), 29):
        flipped = bytearray(genuine)
        flipped[place] ^= 1 << (place % 8)
        victim.refuses(bytes(flipped))
    for length in range(1, len(genuine), 97):
        victim.refuses(genuine[:length])
    assert victim.peer.compared(victim.config, genuine)["ok"]


@pytest.mark.parametrize("part", ["signature", "proof"])
def test_a_check_left_out_would_be_caught(victim: Victim, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Without the proof, whoever saw a file could sign its content; without the signature, change it."""
    if part == "proof":
        monkeypatch.setattr(UnitKey, "proves", lambda *_: True)
        forged = FORGERIES["re-signed, with a proof by another key"](victim.peer)
    else:
        monkeypatch.setattr(
            alignment,
            "open_envelope",
            lambda envelope, *_: base64.b64decode(json.loads(envelope)["payload"]),
        )
        fields = json.loads(victim.peer.sealed())
        fields["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
        forged = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert victim.peer.compared(victim.config, forged)["ok"]


def test_a_genuine_file_of_another_data_set_serves_no_study_of_this_one(victim: Victim) -> None:
    other = victim.peer.sealed(victim.peer.message(data_set="others"))
    assert victim.peer.compared(victim.config, other)["ok"]
    attacked = victim.attacked
    digest = attacked.world.ask(attacked.tester, aligned_study(attacked.world, victim.peer))
    attacked.turn()
    assert attacked.row(digest).problem == "not-aligned"
    assert attacked.debits() == []


def test_a_signer_who_has_the_key_is_known_by_its_own_key(victim: Victim) -> None:
    """Whoever both owners gave the key to can pass for the peer here, but not in the peer's studies."""
    pretender = Peer(victim.peer.folder, key=MALLORY)
    assert victim.peer.compared(victim.config, pretender.sealed())["ok"]
    attacked = victim.attacked
    digest = attacked.world.ask(attacked.tester, aligned_study(attacked.world, victim.peer))
    attacked.turn()
    assert attacked.row(digest).problem == "not-aligned"
