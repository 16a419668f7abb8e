"""The census: its test part against the published distribution of its train part, through a real agent."""

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.results import DecisionResult, IdentityResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TRAIN, TEST = DATA / "adult_train.csv.gz", DATA / "adult_test.csv.gz"
RACES = ["White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"]

Start = Callable[[Sequence[OwnerSetup]], LocalFederation]

pytestmark = [
    pytest.mark.skipif(
        not (TRAIN.is_file() and TEST.is_file()),
        reason=f"the census data are not here: {TRAIN.name} and {TEST.name} are looked for in ../shared/data",
    ),
    pytest.mark.long,
]


def races(path: Path) -> list[str]:
    with gzip.open(path, "rt", newline="") as file:
        return [row["race"] for row in csv.DictReader(file)]


def published() -> list[float]:
    train = races(TRAIN)
    return [train.count(race) / len(train) for race in RACES]


def draft(units: int, parameters: dict[str, Any], **changes: Any) -> StudyDraft:
    fields: dict[str, Any] = {
        "title": "Do the races follow the published distribution?",
        "procedure": "identity",
        "columns": [{"kind": "categorical", "name": "race", "levels": RACES}],
        "owners": [{"name": "census", "data_set": "people", "units": units}],
        "parameters": parameters,
        "epsilon": 1.0,
        "delta": 1e-6,
        "level": 0.01,
    }
    return StudyDraft.from_dict(fields | changes)


def test_the_test_part_of_the_census_against_its_train_part(tmp_path: Path, start_federation: Start) -> None:
    rows = races(TEST)
    (tmp_path / "census.csv").write_text("race\n" + "".join(f"{race}\n" for race in rows))
    setup = DataSetSetup("people", str(tmp_path / "census.csv"), 6.0, 1e-5)
    policy = PolicySetup(approval="automatic", columns=("race",), procedures=("identity",))
    federation = start_federation([OwnerSetup("census", setup, policy)])
    known, even = published(), [1 / len(RACES)] * len(RACES)
    with federation.analyst_client() as client:

        def ask(parameters: dict[str, Any], **changes: Any) -> Any:
            digest = client.create_study(draft(len(rows), parameters, **changes))
            verdict = client.wait_for_verdict(digest, timeout_s=300)
            client.verify(digest)
            assert verdict.outcome == "completed"
            return verdict.result

        # The parts are a random split; exactly, chi-square is 3.2 with 4 degrees. At level 1e-7 noise alone
        # rejects with about that probability.
        same = ask(
            {"method": "zcdp-gof", "rho": 0.01, "null": "chi-square", "probabilities": known}, level=1e-7
        )
        assert isinstance(same, IdentityResult)
        assert not same.reject
        assert same.n == {"census": len(rows)}
        assert same.rho == pytest.approx(0.01)
        for method in ("mcgof", "privit-laplace"):
            other = ask({"method": method, "probabilities": even})
            assert isinstance(other, IdentityResult)
            assert other.reject, "White is not a fifth of the census: thousands of noise scales away"
            assert other.pvalue > 0
        decided = ask({"method": "privit", "distance": 0.5, "probabilities": even}, level=0.3)
        assert isinstance(decided, DecisionResult)
        assert "Priv'IT" in decided.method
