"""A curator in a real federation: hospitals pooled two by two, an owner that declines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tacit.demo
from tacit.client.data_set import DataSetDescription
from tacit.client.tester import Client
from tacit.demo.hospitals import COLUMNS, HOSPITALS
from tacit.results import TwoSampleResult
from tacit.setup.federation import CuratedOwnerSetup, LocalCurator, LocalFederation

EPSILON, DELTA = 2.0, 1e-5
SAMPLES = {"older": ["cleveland", "budapest"], "newer": ["zurich-basel", "long-beach"]}
PATIENCE_S = 300.0


def curated() -> list[CuratedOwnerSetup]:
    """The hospitals of the demo, each of which decides by hand."""
    policy = {
        "approval": "by-hand",
        "epsilon_per_study_max": 10.0,
        "delta_per_study_max": DELTA,
        "analysts": ["*"],
    }
    fields = {"name": "patients", "columns": COLUMNS, "epsilon": 40.0, "delta": 1e-4, "policy": policy}
    patients, data = DataSetDescription.from_dict(fields), Path(tacit.demo.__file__).parent / "data"
    return [CuratedOwnerSetup(name, patients, data / f"{name}.csv") for name in HOSPITALS]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    with LocalFederation(tmp_path_factory.mktemp("curated") / "federation", [], curated()) as federation:
        federation.wait_until_ready()
        federation.enrol_all()
        yield federation


@pytest.fixture
def curator(federation: LocalFederation) -> LocalCurator:
    assert federation.curator is not None
    return federation.curator


@pytest.fixture
def analyst(federation: LocalFederation) -> Iterator[Client]:
    with federation.analyst_client() as client:
        yield client


def asked(curator: LocalCurator, names: Sequence[str], **changed: Any) -> dict[str, Any]:
    return {
        "title": "Do these patients come from one population?",
        "procedure": "curated_two_sample",
        "columns": COLUMNS,
        "owners": curator.draft_owners(names),
        "curator": "curator",
        "epsilon": EPSILON,
        "delta": DELTA,
        "open_for_hours": 1.0,
    } | changed


def debits(curator: LocalCurator, name: str) -> list[tuple[str, int]]:
    with curator.owner_client(name) as client:
        return [
            (entry["study"], entry["epsilon_micro"])
            for entry in client.ledger()
            if entry["study"] is not None
        ]


def wait_until_asked(curator: LocalCurator, eventually: Any, name: str, digest: str) -> None:
    with curator.owner_client(name) as client:
        eventually(lambda: digest in {study["digest"] for study in client.studies()})


def approve(curator: LocalCurator, eventually: Any, names: Sequence[str], digest: str) -> None:
    for name in names:
        wait_until_asked(curator, eventually, name, digest)
        with curator.owner_client(name) as client:
            client.approve(digest)


# In 60 local runs no p-value was above 2e-14: about seven standard deviations of the noise lie between the
# usual statistic and what .05 asks for.
@pytest.mark.long
def test_four_hospitals_pooled_two_by_two(curator: LocalCurator, analyst: Client, eventually: Any) -> None:
    draft = asked(
        curator, list(HOSPITALS), parameters={"samples": list(SAMPLES.values()), "release": "mean-covariance"}
    )
    before = {name: debits(curator, name) for name in HOSPITALS}
    digest = analyst.create_study(draft)
    approve(curator, eventually, list(HOSPITALS), digest)
    verdict = analyst.wait_for_verdict(digest, PATIENCE_S)
    assert isinstance(verdict.result, TwoSampleResult)
    assert verdict.result.reject
    assert dict(verdict.result.n) == HOSPITALS
    assert list(verdict.message.releases) == ["curator"]
    assert analyst.verify(digest).verdict == verdict.message
    for name in HOSPITALS:
        assert debits(curator, name) == [*before[name], (digest, 2_000_000)]


def test_one_owner_that_declines_ends_the_study_for_all_and_nobody_spends(
    curator: LocalCurator, analyst: Client, eventually: Any
) -> None:
    names = ["cleveland", "budapest"]
    before = {name: debits(curator, name) for name in names}
    digest = analyst.create_study(asked(curator, names))
    approve(curator, eventually, ["cleveland"], digest)
    wait_until_asked(curator, eventually, "budapest", digest)
    with curator.owner_client("budapest") as client:
        seen = client.study(digest)
        client.decline(digest, "not this one")
    assert {owner["owner"]: owner["decision"] for owner in seen["owners"]} == {
        "cleveland": "approved",
        "budapest": "waiting",
    }
    verdict = analyst.wait_for_verdict(digest, PATIENCE_S)
    assert (verdict.outcome, verdict.missing, verdict.result) == ("incomplete", ("curator",), None)
    assert {name: debits(curator, name) for name in names} == before
