"""Distance correlation in peer mode through the federation: the result stays with one of the owners."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.client.agent import AgentClient, finding_result
from tacit.errors import ProblemError
from tacit.results import DistanceCorrelationResult, PeerResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit.studies.draft import StudyDraft
from tacit_protocol.signing.sealing import certify

pytestmark = pytest.mark.long

UNITS = 400
COLUMNS = {"north": "dose", "south": "response"}


def write_columns(folder: Path) -> None:
    """Write one column for each owner, of the same people in the same order."""
    rng = np.random.default_rng(7)
    dose = rng.random(UNITS)
    values = {"north": dose, "south": np.clip(dose + 0.1 * rng.standard_normal(UNITS), 0, 1)}
    for owner, column in COLUMNS.items():
        lines = [column, *(repr(float(value)) for value in values[owner])]
        (folder / f"{owner}.csv").write_text("\n".join(lines) + "\n")


def draft_of(federation: LocalFederation, *, publish: bool) -> StudyDraft:
    site = next(site for site in federation.agents if site.name == "south")
    certificate = certify(load_key(site.folder / "agent.pem"))
    fields: dict[str, Any] = {
        "title": "Does the response depend on the dose?",
        "procedure": "distance_correlation",
        "parameters": {"method": "pnc", "mode": "peer", "receiver": "south", "publish": publish},
        "columns": [{"kind": "numeric", "name": name, "lower": 0, "upper": 1} for name in COLUMNS.values()],
        "owners": [
            {"name": "north", "data_set": "people", "units": UNITS, "columns": ["dose"]},
            {
                "name": "south",
                "data_set": "people",
                "units": UNITS,
                "columns": ["response"],
                "sealing": certificate.model_dump(),
            },
        ],
        "epsilon": 20.0,
        "delta": 1e-5,
    }
    return StudyDraft.from_dict(fields)


def agent_of(federation: LocalFederation, name: str) -> AgentClient:
    site = next(site for site in federation.agents if site.name == name)
    return AgentClient.from_configuration(site.configuration)


def test_the_result_stays_with_the_receiver_unless_it_pays(
    tmp_path: Path,
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
    tacit_process: Callable[..., "subprocess.CompletedProcess[str]"],
    tacit_json: Callable[..., Any],
) -> None:
    write_columns(tmp_path)
    federation = start_federation(
        [
            OwnerSetup(
                owner,
                DataSetSetup("people", str(tmp_path / f"{owner}.csv"), 60.0, 1e-3),
                PolicySetup(
                    approval="automatic",
                    columns=(column,),
                    epsilon_per_study_max=20.0,
                    procedures=("*",),
                ),
            )
            for owner, column in COLUMNS.items()
        ]
    )
    spent = {}
    for publish in (False, True):
        with federation.analyst_client() as client:
            digest = client.create_study(draft_of(federation, publish=publish))
            verdict = client.wait_for_verdict(digest, timeout_s=300)
            client.verify(digest)
        assert verdict.outcome == "completed"
        assert isinstance(verdict.result, PeerResult)
        assert (verdict.result.distance_covariance_sqr is None) == (not publish)
        assert verdict.result.spent == {"north": 20.0, "south": 20.0 if publish else 0.0}
        with agent_of(federation, "south") as south:
            found = finding_result(south.finding(digest))
            spent[publish] = south.status()["data_sets"][0]["gaussian_spent_micro"]
        assert isinstance(found, DistanceCorrelationResult)
        assert found.reject
        with agent_of(federation, "north") as north, pytest.raises(ProblemError, match="nothing"):
            north.finding(digest)
    config = str(next(site for site in federation.agents if site.name == "south").configuration)
    shown = tacit_process("agent", "result", digest[:12], "--config", config)
    assert shown.returncode == 0, shown.stderr
    assert "the columns depend on each other" in shown.stdout
    assert "exact in this owner's" in shown.stdout
    printed = tacit_json("agent", "certificate", "--config", config)
    with agent_of(federation, "south") as south:
        assert printed == south.status()["sealing"]
    assert spent[False] == 0
    assert spent[True] > 0
