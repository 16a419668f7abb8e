"""Studies of aligned units at an agent: answered where the alignment holds, else refused and unspent."""

from pathlib import Path
from typing import Any

import pytest
from agent_fakes import IDS, UNIT_COLUMN, AttackedAgent, Peer, World, aligned_study

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.alignment import AlignmentRefusedError, alignments, make, read_unit_key
from tacit_services.agent.data.source import DataError
from tacit_services.agent.intake import ALIGNED_OTHERWISE, NEVER_ALIGNED, Part
from tacit_services.agent.schema import State
from tacit_services.agent.studies import StudyRow
from tacit_services.shared.database import run_transaction
from tacit_services.shared.settings import SettingsError


class Owners:
    """The agent of one owner, and the peer that it aligns with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent = AttackedAgent(folder, World(folder), PROCEDURES, data_set=UNIT_COLUMN)
        self.config = folder / "agent.toml"
        self.peer = Peer(folder)

    def write(self, ids: list[str]) -> None:
        rows = "".join(f"{i % 10},{i},{name}\n" for i, name in enumerate(ids))
        finished = self.folder / "new.csv"
        finished.write_text("x,y,id\n" + rows)
        finished.replace(self.folder / "patients.csv")

    def asked(self, **changes: Any) -> StudyRow:
        """What became of an aligned study."""
        study: Study = aligned_study(self.agent.world, self.peer, **changes)
        digest = self.agent.world.ask(self.agent.tester, study)
        self.agent.turn()
        return self.agent.row(digest)

    def recorded(self) -> int:
        return len(run_transaction(self.agent.agent.engine, alignments, read_only=True))

    def require_unspent(self) -> None:
        assert self.agent.debits() == []
        assert self.agent.spent() == 0


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def test_an_aligned_study_is_answered(owners: Owners) -> None:
    report = owners.peer.compared(owners.config)
    assert report["ok"]
    assert report["digest"] == owners.peer.message().digest
    assert report["peer"] == {"name": "south", "key": owners.peer.key.public_hex, "data_set": "persons"}
    assert owners.asked().state is State.SENT
    assert len(owners.agent.debits()) == 1


def test_neither_the_order_of_rows_nor_their_number_matters(owners: Owners) -> None:
    owners.peer.compared(owners.config)
    owners.write([*reversed(IDS), " p7", "p7 "])
    assert owners.asked().state is State.SENT


def test_a_study_without_a_recorded_alignment_is_refused(owners: Owners) -> None:
    row = owners.asked()
    assert (row.state, row.problem, row.reason) == (State.REFUSED, "not-aligned", NEVER_ALIGNED)
    owners.require_unspent()


def test_a_unit_column_without_an_alignment_is_refused(owners: Owners) -> None:
    row = owners.asked(alignment=None)
    assert (row.state, row.problem) == (State.REFUSED, "study-refused")
    row = owners.asked(alignment=None, unit_column=None)
    assert (row.state, row.problem) == (State.REFUSED, "policy-refused")
    owners.require_unspent()


@pytest.mark.parametrize("ids", [[*IDS[1:], "p99"], [*IDS, "p99"], list(IDS[1:]), [*IDS[1:], "P0"]])
def test_data_that_changed_since_are_refused(owners: Owners, ids: list[str]) -> None:
    owners.peer.compared(owners.config)
    owners.write(ids)
    row = owners.asked()
    assert (row.state, row.problem, row.reason) == (State.REFUSED, "not-aligned", ALIGNED_OTHERWISE)
    owners.require_unspent()


def test_a_row_that_lost_its_id_is_refused(owners: Owners) -> None:
    owners.peer.compared(owners.config)
    owners.write([*IDS, ""])
    row = owners.asked()
    assert (row.state, row.problem) == (State.REFUSED, "data-unreadable")
    owners.require_unspent()


def test_an_agent_that_did_not_look_again_would_be_caught(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners.peer.compared(owners.config)
    owners.write([*IDS[1:], "p99"])
    monkeypatch.setattr(Part, "require_aligned", lambda *_: None)
    assert owners.asked().state is State.SENT


def test_different_data_are_not_recorded_and_a_study_is_refused(owners: Owners) -> None:
    report = owners.peer.compared(owners.config, owners.peer.sealed(owners.peer.message(IDS[1:])))
    assert (report["ok"], report["units_of_peer"]) == (False, 59)
    assert owners.recorded() == 0
    assert owners.asked().problem == "not-aligned"
    owners.require_unspent()


def test_a_file_made_here_is_what_a_peer_makes(owners: Owners) -> None:
    out = owners.folder / "ours.json"
    made = make(owners.config, "patients", "id", owners.peer.key_file, out)
    assert (made["units"], made["digest"]) == (60, owners.peer.message().digest)
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AlignmentRefusedError, match="your own file"):
        owners.peer.compared(owners.config, out.read_bytes())


def test_the_privacy_unit_of_the_data_set_is_the_column(owners: Owners) -> None:
    key, out = owners.peer.key_file, owners.folder / "ours.json"
    for data_set, column, message in (("patients", "y", "unit_column"), ("absent", "id", "no data set")):
        with pytest.raises(AlignmentRefusedError, match=message):
            make(owners.config, data_set, column, key, out)
    owners.write([*IDS, ""])
    with pytest.raises(DataError, match="has no id"):
        make(owners.config, "patients", None, key, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [("0" * 64, 0o644, "others may read"), ("0" * 63, 0o600, "shared key"), ("Z" * 64, 0o600, "shared key")],
)
def test_a_shared_key_is_a_secret_of_its_form(tmp_path: Path, content: str, mode: int, message: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(SettingsError, match=message):
        read_unit_key(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_unit_key(tmp_path / "absent")
