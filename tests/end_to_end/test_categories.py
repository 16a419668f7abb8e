"""Counts of categories on real data through the federation, and one table that answers three questions."""

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.results import HomogeneityResult, IndependenceTableResult, NoisyCountsResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

pytestmark = pytest.mark.long

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ADULT, DIABETES = DATA / "adult_train.csv.gz", DATA / "diabetes130.csv.gz"

EDUCATION = [
    "Preschool",
    "1st-4th",
    "5th-6th",
    "7th-8th",
    "9th",
    "10th",
    "11th",
    "12th",
    "HS-grad",
    "Some-college",
    "Assoc-voc",
    "Assoc-acdm",
    "Bachelors",
    "Masters",
    "Prof-school",
    "Doctorate",
]
SEX = ["Female", "Male"]
RACE = ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"]
AGES = [f"[{start}-{start + 10})" for start in range(0, 100, 10)]
ADMISSIONS = {"emergency": "1", "elective": "3"}
PROCEDURES = ("noisy_counts", "homogeneity", "independence_table")

Start = Callable[[Sequence[OwnerSetup]], LocalFederation]


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def owner(name: str, source: Path, columns: Sequence[str], unit_column: str | None = None) -> OwnerSetup:
    return OwnerSetup(
        name,
        DataSetSetup("people", str(source), 1.0, 1e-5, unit_column=unit_column),
        PolicySetup(approval="automatic", columns=tuple(columns), procedures=PROCEDURES),
    )


def categorical(name: str, levels: Sequence[str]) -> dict[str, Any]:
    return {"kind": "categorical", "name": name, "levels": list(levels)}


@pytest.mark.skipif(
    not ADULT.is_file(), reason=f"the census data are not here: {ADULT.name} is looked for in ../shared/data"
)
def test_education_depends_on_sex_in_the_census(tmp_path: Path, start_federation: Start) -> None:
    rows = rows_of(ADULT)
    names = ("education", "sex")
    with (tmp_path / "census.csv").open("w", newline="") as output:
        writer = csv.DictWriter(output, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    federation = start_federation([owner("census", tmp_path / "census.csv", names)])
    draft = {
        "title": "Does education depend on sex?",
        "procedure": "independence_table",
        "columns": [categorical("education", EDUCATION), categorical("sex", SEX)],
        "owners": [{"name": "census", "data_set": "people", "units": len(rows)}],
        "parameters": {"unlisted": "last"},
        "epsilon": 1.0,
        "delta": 0.0,
        "level": 0.01,
    }
    with federation.analyst_client() as client:
        digest = client.create_study(StudyDraft.from_dict(draft))
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        client.verify(digest)
    result = verdict.result
    assert isinstance(result, IndependenceTableResult)
    assert result.reject
    assert result.interval is not None
    assert result.cramers_v is not None
    # Noise of scale 2 on counts of thousands: V is known to two digits whatever the noise, but for 1e-9.
    assert result.cramers_v == pytest.approx(association(rows), abs=0.02)
    assert result.n == {"census": len(rows)}
    assert result.tables is not None
    # All 32 cells lie within 60 with probability 1 - 3e-12.
    assert np.abs(result.tables.table - table_of(rows)).max() < 60


def table_of(rows: Sequence[dict[str, str]]) -> np.typing.NDArray[np.float64]:
    counts = np.zeros((len(EDUCATION), len(SEX)))
    for row in rows:
        counts[EDUCATION.index(row["education"]), SEX.index(row["sex"])] += 1
    return counts


def association(rows: Sequence[dict[str, str]]) -> float:
    """Return Cramér's V of the exact table."""
    shares = table_of(rows) / len(rows)
    fitted = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    return float(np.sqrt(np.sum((shares - fitted) ** 2 / fitted)))


@pytest.mark.skipif(
    not DIABETES.is_file(),
    reason=f"the diabetes data are not here: {DIABETES.name} is looked for in ../shared/data",
)
def test_one_table_of_two_owners_answers_three_questions(tmp_path: Path, start_federation: Start) -> None:
    """Race and age are counted once, by patient; each column's homogeneity is then asked for nothing."""
    names = ("race", "age")
    patients: dict[str, int] = {}
    owners = []
    for name, admission in ADMISSIONS.items():
        rows = [row for row in rows_of(DIABETES) if row["admission_type_id"] == admission]
        patients[name] = len({row["patient_nbr"] for row in rows})
        with (tmp_path / f"{name}.csv").open("w", newline="") as output:
            writer = csv.DictWriter(
                output, ("patient_nbr", *names), extrasaction="ignore", lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(rows)
        owners.append(owner(name, tmp_path / f"{name}.csv", names, "patient_nbr"))
    federation = start_federation(owners)
    columns = {"race": categorical("race", RACE), "age": categorical("age", AGES)}
    common = {"unit_column": "patient_nbr", "epsilon": 1.0, "delta": 0.0, "level": 0.01}
    asked = [{"name": name, "data_set": "people", "units": units} for name, units in patients.items()]
    with federation.analyst_client() as client:

        def ask(procedure: str, names: Sequence[str], reuses: str | None = None) -> tuple[str, Any]:
            chosen = asked if reuses is None else [one | {"reuses": reuses} for one in asked]
            draft = common | {
                "title": "Are emergency and elective patients alike?",
                "procedure": procedure,
                "columns": [columns[name] for name in names],
                "owners": chosen,
            }
            digest = client.create_study(StudyDraft.from_dict(draft))
            verdict = client.wait_for_verdict(digest, timeout_s=300)
            client.verify(digest)
            return digest, verdict.result

        # The whole of each data set's budget goes here: whatever follows must be free.
        digest, counted = ask("noisy_counts", names)
        _, race = ask("homogeneity", ["race"], digest)
        _, age = ask("homogeneity", ["age"], digest)
        _, together = ask("independence_table", names, digest)
    assert isinstance(counted, NoisyCountsResult)
    assert counted.n == patients
    assert isinstance(race, HomogeneityResult)
    assert isinstance(age, HomogeneityResult)
    assert race.reject
    assert age.reject
    assert race.tables is not None
    margin = counted.tables.counts["elective"].sum(axis=1)
    assert np.allclose(race.tables.counts["elective"], margin, atol=0.1)
    assert isinstance(together, IndependenceTableResult)
    assert together.reject
