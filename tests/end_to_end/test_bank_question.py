"""A question on real records, answered in a sentence: are emergency patients longer in hospital?"""

from pathlib import Path

import pytest

import tacit.local

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "diabetes130.csv.gz"


@pytest.mark.skipif(not FILE.is_file(), reason=f"{FILE.name}: looked for in ../shared/data, and not there")
def test_emergency_patients_are_compared_with_elective_ones_in_days() -> None:
    """Seven standard errors of noise and sampling: a false alarm below 1e-10."""
    pandas = pytest.importorskip("pandas")
    stays = pandas.read_csv(FILE)
    kinds = {
        "emergency": stays[stays.admission_type_id == 1],
        "elective": stays[stays.admission_type_id == 3],
    }
    result = tacit.local.kernel_two_sample(
        *kinds.values(),
        names=list(kinds),
        columns=["time_in_hospital"],
        units="patient_nbr",
        bounds={"time_in_hospital": (1, 14)},
        epsilon=1,
        delta=1e-5,
        seed=1,
    )
    assert result.reject
    exact = {name: rows.groupby("patient_nbr").time_in_hospital.mean().mean() for name, rows in kinds.items()}
    for summary in result.summaries:
        if summary.kind == "mean":
            error = (summary.upper - summary.lower) / (2 * 1.96)
            assert abs(summary.estimate - exact[summary.owner]) < 7 * error
    told = {effect.kind: effect for effect in result.effects}
    assert told["standard deviation difference"].estimate < 0
    assert "time_in_hospital: " in str(result)
    assert "than in elective" in str(result)
