"""Units that own several rows, numeric and categorical columns, on real data, through the federation."""

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "data" / "diabetes130.csv.gz"

UNIT = "patient_nbr"
AGES = [f"[{start}-{start + 10})" for start in range(0, 100, 10)]
COLUMNS = [
    {"kind": "categorical", "name": "age", "levels": AGES},
    {"kind": "categorical", "name": "gender", "levels": ["Female", "Male"]},
    {"kind": "categorical", "name": "readmitted", "levels": ["NO", ">30", "<30"]},
    {"kind": "numeric", "name": "time_in_hospital", "lower": 0, "upper": 14},
    {"kind": "numeric", "name": "num_medications", "lower": 0, "upper": 60},
]
OWNERS = {"emergency": "1", "elective": "3"}

pytestmark = [
    pytest.mark.skipif(
        not SOURCE.is_file(),
        reason=f"the diabetes data are not here: {SOURCE.name} is looked for in ../shared/data",
    ),
    pytest.mark.long,
]


def split(folder: Path) -> dict[str, int]:
    """Write one file for each admission type; returns how many patients each holds."""
    with gzip.open(SOURCE, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [UNIT, *(column["name"] for column in COLUMNS)]
    patients = {}
    for owner, admission in OWNERS.items():
        chosen = [row for row in rows if row["admission_type_id"] == admission]
        patients[owner] = len({row[UNIT] for row in chosen})
        with (folder / f"{owner}.csv").open("w", newline="") as output:
            writer = csv.DictWriter(output, names, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(chosen)
    return patients


def test_admission_types_are_compared_by_patient(
    tmp_path: Path, start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation]
) -> None:
    patients = split(tmp_path)
    names = tuple(str(column["name"]) for column in COLUMNS)
    federation = start_federation(
        [
            OwnerSetup(
                owner,
                DataSetSetup("stays", str(tmp_path / f"{owner}.csv"), 1.0, 1e-5, unit_column=UNIT),
                PolicySetup(approval="automatic", columns=names),
            )
            for owner in OWNERS
        ]
    )
    draft = {
        "title": "Are emergency and elective patients alike?",
        "columns": COLUMNS,
        "unit_column": UNIT,
        "owners": [{"name": n, "data_set": "stays", "units": units} for n, units in patients.items()],
        "epsilon": 1.0,
        "delta": 1e-5,
        "level": 0.01,
    }
    with federation.analyst_client() as client:
        digest = client.create_study(StudyDraft.from_dict(draft))
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        client.verify(digest)
    assert verdict.outcome == "completed"
    assert verdict.result is not None
    # Every patient counts once, however many stays it has.
    assert verdict.result.n == patients
    assert verdict.result.reject
    differing = {column.names for column in verdict.result.columns if column.reject}
    assert ("num_medications",) in differing
