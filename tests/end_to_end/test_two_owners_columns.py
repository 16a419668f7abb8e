"""Two owners with different columns of the same people: distance correlation through the federation."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

pytestmark = pytest.mark.long

UNITS = 4000
COLUMNS = {"north": "dose", "south": "response"}


def write_columns(folder: Path) -> None:
    """Write one column for each owner, of the same people in the same order."""
    rng = np.random.default_rng(7)
    dose = rng.random(UNITS)
    values = {"north": dose, "south": np.clip(dose + 0.1 * rng.standard_normal(UNITS), 0, 1)}
    for owner, column in COLUMNS.items():
        lines = [column, *(repr(float(value)) for value in values[owner])]
        (folder / f"{owner}.csv").write_text("\n".join(lines) + "\n")


def test_each_owner_is_asked_for_its_own_columns_alone(
    tmp_path: Path, start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation]
) -> None:
    write_columns(tmp_path)
    # Neither file nor policy knows the other owner's column.
    federation = start_federation(
        [
            OwnerSetup(
                owner,
                DataSetSetup("people", str(tmp_path / f"{owner}.csv"), 4.0, 1e-5),
                PolicySetup(
                    approval="automatic", columns=(column,), epsilon_per_study_max=4.0, procedures=("*",)
                ),
            )
            for owner, column in COLUMNS.items()
        ]
    )
    draft = {
        "title": "Does the response depend on the dose?",
        "procedure": "distance_correlation",
        "columns": [{"kind": "numeric", "name": name, "lower": 0, "upper": 1} for name in COLUMNS.values()],
        "owners": [
            {"name": owner, "data_set": "people", "units": UNITS, "columns": [column]}
            for owner, column in COLUMNS.items()
        ],
        "epsilon": 4.0,
        "delta": 1e-5,
        "level": 0.01,
    }
    with federation.analyst_client() as client:
        digest = client.create_study(StudyDraft.from_dict(draft))
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        client.verify(digest)
    assert verdict.outcome == "completed"
    assert verdict.result is not None
    assert verdict.result.reject
    assert any("order" in warning for warning in verdict.result.warnings)
