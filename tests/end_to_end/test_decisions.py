"""Stewards decide by hand, through the command: one approves, or one declines."""

import csv
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

UNITS = 2000
Process = Callable[..., "subprocess.CompletedProcess[str]"]
Eventually = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def federation(
    tmp_path: Path, patients: Any, start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation]
) -> LocalFederation:
    owners = []
    for name, source in patients(tmp_path, {"north": 50.0, "south": 70.0}, UNITS, seed=3, spread=10):
        policy = PolicySetup(approval="by-hand", columns=("age", "sex"), catalogue=name == "north")
        owners.append(OwnerSetup(name, DataSetSetup("patients", source, 2.0, 1e-4), policy))
    return start_federation(owners)


@pytest.fixture
def digest(federation: LocalFederation) -> str:
    return create(federation, "Are the patients of north and south alike?")


def drafted(title: str) -> dict[str, Any]:
    return {
        "title": title,
        "purpose": "To compare our patients",
        "columns": [
            {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
            {"kind": "categorical", "name": "sex", "levels": ["F", "M"]},
        ],
        "owners": [{"name": name, "data_set": "patients", "units": UNITS} for name in ("north", "south")],
        "epsilon": 1.0,
        "delta": 1e-5,
    }


def create(federation: LocalFederation, title: str) -> str:
    with federation.analyst_client() as client:
        return client.create_study(StudyDraft.from_dict(drafted(title)))


def config(federation: LocalFederation, owner: str) -> tuple[str, str]:
    return "--config", str(federation.folder / owner / "agent.toml")


def spent(federation: LocalFederation, owner: str) -> int:
    with federation.agent_client(owner) as agent:
        data_set = agent.status()["data_sets"][0]
    return int(data_set["pure_spent_micro"]) + int(data_set["gaussian_spent_micro"])


def test_nothing_leaves_before_both_stewards_have_approved(
    federation: LocalFederation,
    digest: str,
    tacit_process: Process,
    tacit_json: Callable[..., Any],
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    for owner in ("north", "south"):
        asked = eventually(lambda owner=owner: tacit_json("agent", "studies", *config(federation, owner)))
        assert [study["digest"] for study in asked] == [digest]
        assert spent(federation, owner) == 0
    shown = tacit_process("agent", "show", digest[:8], *config(federation, "north"))
    assert "purpose: To compare our patients" in shown.stdout.replace("Purpose", "purpose")
    assert federation.tester_key in shown.stdout.replace("\n", "")
    unasked = tacit_process("agent", "approve", digest[:8], *config(federation, "north"))
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert spent(federation, "north") == 0
    approved = tacit_process("agent", "approve", digest[:8], "--yes", *config(federation, "north"))
    assert approved.returncode == 0, approved.stderr
    assert "What would leave" in approved.stdout
    eventually(lambda: spent(federation, "north") > 0)
    assert spent(federation, "south") == 0
    assert (
        tacit_process("agent", "approve", digest[:8], "--yes", *config(federation, "south")).returncode == 0
    )

    party = ("--party", str(federation.analyst.configuration))
    (published,) = eventually(lambda: tacit_json("study", "data-sets", *party))
    assert published["owner"] == "north"
    assert published["data_sets"][0]["other_columns"] == ["age", "sex"]
    assert tacit_json("study", "data-sets", "--compare", *party) == []
    with federation.analyst_client() as client:
        refused = client.prepare_study(drafted("Too much?") | {"epsilon": 1.5}).hopeless
    assert [reason for reason in refused if "north lets one study spend epsilon 1 at most" in reason]

    watched = tacit_json("study", "watch", digest[:8], *party)
    assert watched["outcome"] == "completed"
    assert watched["result"]["reject"] is True
    assert next(c["names"] for c in watched["result"]["columns"] if c["reject"]) == ["age"]

    transcript = tmp_path / "transcript.json"
    tacit_json("study", "transcript", digest, "--output", str(transcript), *party)
    assert tacit_json("verify", str(transcript), "--tester-key", federation.tester_key)["verified"]
    wrong = tacit_process("verify", str(transcript), "--tester-key", "0" * 64)
    assert wrong.returncode == 1
    with federation.analyst_client() as client:
        assert client.verify(digest).study_digest == digest

    exported = tmp_path / "ledger.csv"
    tacit_json("ledger", "export", "--output", str(exported), *config(federation, "north"))
    rows = list(csv.DictReader(exported.read_text().splitlines()))
    assert [row["epsilon_micro"] for row in rows if row["study"] == digest] == ["1000000"]
    again = tacit_process("agent", "decline", digest, *config(federation, "north"))
    assert again.returncode == 1
    assert "already" in again.stderr


@pytest.mark.long
def test_declined_and_cancelled_studies_end_and_spend_nothing(
    federation: LocalFederation,
    digest: str,
    tacit_process: Process,
    tacit_json: Callable[..., Any],
    eventually: Eventually,
) -> None:
    for owner in ("north", "south"):
        eventually(lambda owner=owner: tacit_json("agent", "studies", *config(federation, owner)))
        note = "a note that must stay here"
        tacit_json("agent", "decline", digest, "--reason", note, *config(federation, owner))
    party = ("--party", str(federation.analyst.configuration))
    watched = tacit_process("study", "watch", digest, *party)
    assert watched.returncode == 1
    assert "ended incomplete" in watched.stdout
    with federation.analyst_client() as client:
        assert set(client.wait_for_verdict(digest).missing) == {"north", "south"}
        assert b"a note" not in client.transcript(digest)
        assert client.verify(digest).result is None
    cancelled = create(federation, "And again?")
    assert tacit_json("study", "cancel", cancelled[:10], *party)["cancelled"]
    assert tacit_process("study", "watch", cancelled, *party).returncode == 1
    assert tacit_json("study", "list", *party)[0]["state"] == "cancelled"
    assert [spent(federation, owner) for owner in ("north", "south")] == [0, 0]

    # The doctor and the data check look at a real agent.
    findings = tacit_json("doctor", *config(federation, "north"))
    states = {finding["name"]: finding["state"] for finding in findings}
    assert states.pop("durable") != "failed"  # a warning where temporary files are in memory
    assert set(states.values()) == {"ok"}
    assert set(states) >= {"key", "database", "tester", "clock", "data"}
    report = tacit_json("data", "check", *config(federation, "north"))
    assert report["data_sets"][0]["units"] == UNITS
    Path(federation.folder.parent / "north.csv").unlink()
    assert tacit_process("doctor", *config(federation, "north")).returncode == 1
    assert tacit_process("data", "check", *config(federation, "north")).returncode == 1
