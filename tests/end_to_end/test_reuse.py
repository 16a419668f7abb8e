"""A release read again by real processes: a third owner joins later, and nobody pays twice."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.client.transcripts import verify_transcript_of
from tacit.errors import ProblemError, VerificationFailedError
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

pytestmark = pytest.mark.long

UNITS = 3000
SHIFT = {"north": 0.0, "south": 0.0, "west": 0.3}
EPSILON, DELTA = 2.0, 1e-5


def owner_of(folder: Path, name: str) -> OwnerSetup:
    """Write an owner's file; west's values are higher than the others'."""
    rng = np.random.default_rng(sorted(SHIFT).index(name))
    values = np.clip(0.35 + SHIFT[name] + 0.1 * rng.standard_normal(UNITS), 0, 1)
    (folder / f"{name}.csv").write_text("\n".join(["x", *(repr(float(v)) for v in values)]) + "\n")
    # Enough for one study: a second would be refused.
    return OwnerSetup(
        name,
        DataSetSetup("people", str(folder / f"{name}.csv"), EPSILON, DELTA),
        PolicySetup(approval="automatic", columns=("x",), epsilon_per_study_max=EPSILON, procedures=("*",)),
    )


def draft_of(owners: Sequence[str], reuses: dict[str, str], **changes: Any) -> StudyDraft:
    named = [
        {"name": name, "data_set": "people", "units": UNITS}
        | ({"reuses": reuses[name]} if name in reuses else {})
        for name in owners
    ]
    plain = {
        "title": "One population?",
        "procedure": "kernel_two_sample",
        "parameters": {"features": "me", "n_features": 8},
        "columns": [{"kind": "numeric", "name": "x", "lower": 0, "upper": 1}],
        "owners": named,
        "epsilon": EPSILON,
        "delta": DELTA,
    }
    return StudyDraft.from_dict(plain | changes)


def test_a_release_enters_a_second_study_and_its_owner_spends_once(
    tmp_path: Path,
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
    tacit_process: Callable[..., Any],
) -> None:
    federation = start_federation([owner_of(tmp_path, name) for name in SHIFT])
    with federation.analyst_client() as client:
        first = client.create_study(draft_of(["north", "south"], {}))
        assert client.wait_for_verdict(first, timeout_s=300).outcome == "completed"
        with federation.agent_client("north") as agent:
            before = agent.ledger()
        second = client.create_study(draft_of(["north", "west"], {"north": first}))
        verdict = client.wait_for_verdict(second, timeout_s=300)
        assert verdict.outcome == "completed"
        assert verdict.result is not None
        assert verdict.result.reject
        transcript = client.transcript(second)
        assert [(r.owner, r.study) for r in client.study(first).reused_by] == [("north", second)]

        # Both of them again, with nobody asked.
        third = client.create_study(
            draft_of(["north", "west"], {"north": first, "west": second}, title="Once more?")
        )
        assert client.wait_for_verdict(third, timeout_s=300).outcome == "completed"
        client.verify(third)
        with pytest.raises(ProblemError, match="name the study that its release was made for"):
            client.create_study(draft_of(["north", "west"], {"north": second, "west": second}))

    with federation.agent_client("north") as agent:
        assert agent.ledger() == before
        assert len([entry for entry in before if entry["kind"] == "debit"]) == 1
        assert agent.verify_ledger()["ok"]
        assert agent.reused_by(first) == [third, second]
        assert [study["digest"] for study in agent.studies()] == [first]

    federation.stop()  # what follows needs no service
    file = tmp_path / "transcript.json"
    file.write_bytes(transcript)
    done = tacit_process("study", "verify", str(file), "--tester-key", federation.tester_key)
    assert done.returncode == 0, done.stderr
    assert f"north spends nothing: its release for study {first[:12]} is read again" in done.stdout
    changed = json.loads(transcript)
    changed["reused"] = {"north": changed["releases"]["west"]}
    with pytest.raises(VerificationFailedError, match="reuse of north"):
        verify_transcript_of(json.dumps(changed).encode(), second, federation.tester_key)
