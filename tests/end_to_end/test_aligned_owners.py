"""Two owners whose records stand in different orders: aligned past the tester, through real processes."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.results import StudyVerdict
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import create_unit_key
from tacit.studies.draft import StudyDraft
from tacit_protocol.messages.alignment import AlignmentMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.signing import ALIGNMENT_TYPE, open_envelope, peek_key_id
from tacit_services.agent.__main__ import main

pytestmark = pytest.mark.long

UNITS = 3000
FIRST_ID = 870_000_000_000_000
"""Ids are long enough that no other number in the tester's files looks like one."""

COLUMNS = {"north": "dose", "south": "response"}


class Owners:
    """The federation, both owners' files, and the commands that they run."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], federation: LocalFederation) -> None:
        self.folder, self.capsys, self.federation = folder, capsys, federation
        self.key = folder / "shared.key"

    def align(self, step: str, owner: str, *more: str) -> Any:
        """What `tacit data align` runs for one owner; returns its exit code and its report."""
        config = self.federation.folder / owner / "agent.toml"
        of = ("--data-set", "people", "--key", str(self.key), "--config", str(config))
        code = main(["align", step, *of, *more, "--json"])
        return code, json.loads(self.capsys.readouterr().out)

    def make(self, owner: str) -> Path:
        out = self.folder / f"from-{owner}.json"
        assert self.align("make", owner, "--out", str(out))[0] == 0
        return out

    def align_both(self) -> list[tuple[int, Any]]:
        """Both make files and compare with the other's."""
        files = {owner: self.make(owner) for owner in COLUMNS}
        pairs = (("north", "south"), ("south", "north"))
        return [self.align("compare", owner, "--with", str(files[other])) for owner, other in pairs]

    def verdict(self, alignment: str, asked: Callable[..., dict[str, Any]] | None = None) -> StudyVerdict:
        with self.federation.analyst_client() as client:
            digest = client.create_study(StudyDraft.from_dict((asked or draft)(alignment)))
            verdict = client.wait_for_verdict(digest, timeout_s=300)
            if verdict.result is not None:
                client.verify(digest)
                (self.folder / "transcript.json").write_bytes(client.transcript(digest))
            return verdict

    def problem(self, owner: str, digest: str) -> Any:
        with self.federation.agent_client(owner) as agent:
            return agent.study(digest)["problem"]

    def debits(self, owner: str) -> int:
        with self.federation.agent_client(owner) as agent:
            return sum(entry["kind"] == "debit" for entry in agent.ledger("people"))


def draft(alignment: str) -> dict[str, Any]:
    return {
        "title": "Does the response depend on the dose?",
        "procedure": "distance_correlation",
        "unit_column": "person",
        "alignment": alignment,
        "columns": [{"kind": "numeric", "name": name, "lower": 0, "upper": 1} for name in COLUMNS.values()],
        "owners": [
            {"name": owner, "data_set": "people", "units": UNITS, "columns": [column]}
            for owner, column in COLUMNS.items()
        ],
        "epsilon": 4.0,
        "delta": 1e-5,
        "level": 0.01,
    }


def arms(alignment: str, reuses: str | None = None, epsilon: float = 1.0) -> dict[str, Any]:
    """North knows who was treated, south the response; or what north said of it is read again."""
    owners = draft(alignment)["owners"]
    return draft(alignment) | {
        "title": "Is the response larger in those who were treated?",
        "procedure": "group_comparison",
        "columns": [
            {"kind": "categorical", "name": "arm", "levels": ["usual", "new"]},
            {"kind": "numeric", "name": "response", "lower": 0, "upper": 1},
        ],
        "owners": [owners[0] | {"columns": ["arm"]} | ({"reuses": reuses} if reuses else {}), owners[1]],
        "epsilon": epsilon,
        "delta": 0.0,
    }


def write_owners(folder: Path, *, others: int) -> None:
    """North: a CSV file with a row for each person, treated where the dose is above a half.

    South: a Parquet file in another order, with some twice.

    The first ``others`` persons of south are not those of north.
    """
    rng = np.random.default_rng(7)
    ids, dose = FIRST_ID + np.arange(UNITS), rng.random(UNITS)
    response = np.clip(dose + 0.1 * rng.standard_normal(UNITS), 0, 1)
    north = rng.permutation(UNITS)
    treated = np.where(dose > 0.5, "new", "usual")
    lines = ["person,dose,arm", *(f"{ids[i]},{float(dose[i])!r},{treated[i]}" for i in north)]
    replace(folder / "north.csv", lambda path: path.write_text("\n".join(lines) + "\n"))
    held = np.where(np.arange(UNITS) < others, ids + UNITS, ids)
    south = rng.permutation(np.append(np.arange(UNITS), np.arange(500)))
    table = pa.table({"person": held[south], "response": response[south]})
    replace(folder / "south.parquet", lambda path: pq.write_table(table, path))


def replace(path: Path, write: Callable[[Path], Any]) -> None:
    finished = path.with_suffix(".new")
    write(finished)
    finished.replace(path)


@pytest.fixture
def owners(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
) -> Owners:
    write_owners(tmp_path, others=0)
    files = {"north": "north.csv", "south": "south.parquet"}
    federation = start_federation(
        [
            OwnerSetup(
                owner,
                DataSetSetup("people", str(tmp_path / files[owner]), 24.0, 1e-4, unit_column="person"),
                PolicySetup(
                    approval="automatic",
                    columns=(column, "arm"),
                    epsilon_per_study_max=4.0,
                    procedures=("*",),
                ),
            )
            for owner, column in COLUMNS.items()
        ]
    )
    made = Owners(tmp_path, capsys, federation)
    create_unit_key(made.key)
    return made


def test_two_owners_align_are_asked_and_change_their_data(owners: Owners) -> None:
    # The same persons, in orders and files that have nothing in common.
    (north, report), (south, other) = owners.align_both()
    assert (north, south) == (0, 0)
    assert report["digest"] == other["digest"] == read_message(owners.make("north")).digest
    found = owners.verdict(report["digest"])
    assert found.result.reject, "by the order of their rows these columns are independent"
    assert "aligned units" in found.result.method
    assert not any("order" in warning for warning in found.result.warnings)
    assert found.result.n == dict.fromkeys(COLUMNS, UNITS)
    assert [owners.debits(owner) for owner in COLUMNS] == [1, 1]

    # One owner's data change afterwards: that owner refuses, and spends nothing.
    write_owners(owners.folder, others=1)
    changed = owners.verdict(report["digest"])
    assert changed.result is None
    assert owners.problem("south", changed.digest) == "not-aligned"
    assert owners.debits("south") == 1
    for code, report in owners.align_both():
        assert (code, report["ok"], "digest" in report) == (1, False, False)

    require_nothing_known_elsewhere(owners)


def test_a_group_known_here_is_compared_in_what_is_known_there(owners: Owners) -> None:
    """Answers go past the tester; a later study reads them again, of which north is asked nothing."""
    (_, report), _ = owners.align_both()
    first = owners.verdict(report["digest"], arms)
    assert first.result.reject
    (effect,) = first.result.effects
    # In truth the mean is larger by about a half; the interval is half a tenth wide.
    assert effect.groups == ("new", "usual")
    assert effect.interval is not None
    assert abs(effect.estimate - 0.49) < 0.2
    assert not any("order" in warning for warning in first.result.warnings)
    assert [owners.debits(owner) for owner in COLUMNS] == [1, 1]

    again = owners.verdict(report["digest"], lambda alignment: arms(alignment, first.digest, 2.0))
    assert again.result.retention == first.result.retention
    assert [owners.debits(owner) for owner in COLUMNS] == [1, 2]
    require_nothing_known_elsewhere(owners)


def read_message(path: Path) -> AlignmentMessage:
    envelope = path.read_bytes()
    return decode(AlignmentMessage, open_envelope(envelope, ALIGNMENT_TYPE, peek_key_id(envelope)))


def require_nothing_known_elsewhere(owners: Owners) -> None:
    """Tester, analyst, transcript and both agents' logs: no id, no key, no digest of a bucket."""
    message = read_message(owners.folder / "from-north.json")
    shared = bytes.fromhex(owners.key.read_text().strip())
    buckets = base64.b64decode(message.buckets)
    secrets = [str(FIRST_ID + i).encode() for i in range(0, 2 * UNITS, 7)]
    secrets += [shared, shared.hex().encode(), base64.b64encode(shared)[:40]]
    secrets += [message.key_fingerprint.encode(), message.proof.encode(), message.buckets[:64].encode()]
    for start in range(0, len(buckets), 8):
        part = buckets[start : start + 8]
        secrets += [part, part.hex().encode()]
    folder = owners.federation.folder
    files = [path for party in ("tester", "analyst") for path in (folder / party).iterdir()]
    files += [folder / owner / "agent.log" for owner in COLUMNS] + [owners.folder / "transcript.json"]
    assert len(files) > 6
    for path in files:
        content = content_of(path)
        assert not [secret for secret in secrets if secret in content], path
    # The search would find them: the owners' own files hold what it looks for.
    assert shared in b"".join(map(content_of, (folder / "north").glob("agent.sqlite3*")))
    assert secrets[0] in (owners.folder / "north.csv").read_bytes()


def content_of(path: Path) -> bytes:
    """What is in a file of a service that runs, which may just have removed its database's log."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
