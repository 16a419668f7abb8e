"""A curator in a real federation: hospitals pooled two by two, and joint independence, all through REST."""

import csv
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tacit.client.data_set import DataSetDescription
from tacit.client.tester import Client
from tacit.demo.hospitals import COLUMNS, HOSPITALS
from tacit.errors import ProblemError
from tacit.results import CuratedDistanceCorrelationResult, DecisionResult, TwoSampleResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import CuratedOwnerSetup, LocalCurator, LocalFederation, OwnerSetup

EPSILON, DELTA = 2.0, 1e-5
INDEPENDENCE_EPSILON = 8.0
SAMPLES = {"older": ["cleveland", "budapest"], "newer": ["zurich-basel", "long-beach"]}
SITES = ("site-a", "site-b")
HEALTH_COLUMNS: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "mdvis", "lower": 0.0, "upper": 20.0},
    {"kind": "numeric", "name": "lncoins", "lower": 0.0, "upper": 5.0},
    {"kind": "numeric", "name": "disea", "lower": 0.0, "upper": 60.0},
]
RAND = Path(__file__).parent / "data" / "randhie.csv"
PATIENCE_S = 300.0

LEAVER = "leaver"
"""An owner of the one test that deletes rows: no other needs them, whatever the order of the tests."""

Rows = list[dict[str, str]]


def read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def hospital(name: str) -> Rows:
    with resources.as_file(resources.files("tacit.demo.data") / f"{name}.csv") as path:
        return read(path)


def described(name: str, columns: list[dict[str, Any]], approval: str) -> DataSetDescription:
    policy = {
        "approval": approval,
        "epsilon_per_study_max": 10.0,
        "delta_per_study_max": DELTA,
        "analysts": ["*"],
    }
    fields = {"name": name, "columns": columns, "epsilon": 40.0, "delta": 1e-4, "policy": policy}
    return DataSetDescription.from_dict(fields)


def curated(folder: Path) -> list[CuratedOwnerSetup]:
    """The hospitals decide by hand; the sites of the health insurance experiment let their policy decide."""
    patients = described("patients", COLUMNS, "by-hand")
    years = described("years", HEALTH_COLUMNS, "automatic")
    rows = read(RAND)
    return [
        *(
            CuratedOwnerSetup(name, patients, write(folder / f"{name}.csv", hospital(name)))
            for name in HOSPITALS
        ),
        CuratedOwnerSetup(LEAVER, patients, write(folder / f"{LEAVER}.csv", hospital("zurich-basel"))),
        *(
            CuratedOwnerSetup(site, years, write(folder / f"{site}.csv", rows[index::2]))
            for index, site in enumerate(SITES)
        ),
    ]


def pooled_owners(folder: Path) -> list[OwnerSetup]:
    """Owners with agents, each holding what a sample of the curator's holds."""
    procedures = ["kernel_two_sample", "joint_independence"]
    columns = [column["name"] for column in COLUMNS]
    policy = PolicySetup("automatic", 4.0, DELTA, procedures=procedures, columns=columns)
    described_owners = []
    for name, hospitals in SAMPLES.items():
        file = write(folder / f"{name}.csv", [row for one in hospitals for row in hospital(one)])
        described_owners.append(OwnerSetup(name, DataSetSetup("patients", str(file), 10.0, DELTA), policy))
    return described_owners


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("curated")
    owners = pooled_owners(folder / "rows")
    with LocalFederation(folder / "federation", owners, curated(folder / "rows")) as federation:
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


# In 60 local runs of each of these two studies no p-value was above 2e-14: about seven standard deviations
# of the noise lie between the usual statistic and what .05 asks for.
@pytest.mark.long
def test_four_hospitals_pooled_two_by_two(curator: LocalCurator, analyst: Client, eventually: Any) -> None:
    draft = asked(curator, list(HOSPITALS), parameters={"samples": list(SAMPLES.values())})
    before = {name: debits(curator, name) for name in (*HOSPITALS, *SITES)}
    digest = analyst.create_study(draft)
    approve(curator, eventually, list(HOSPITALS), digest)
    verdict = analyst.wait_for_verdict(digest, PATIENCE_S)
    assert isinstance(verdict.result, TwoSampleResult)
    assert verdict.result.reject
    assert dict(verdict.result.n) == HOSPITALS
    assert list(verdict.message.releases) == ["curator"]

    verified = analyst.verify(digest)
    assert verified.verdict == verdict.message
    for name in HOSPITALS:
        assert debits(curator, name) == [*before[name], (digest, 2_000_000)]
    for site in SITES:
        assert debits(curator, site) == before[site]

    trusting_no_one = analyst.create_study(
        asked(curator, [])
        | {
            "procedure": "kernel_two_sample",
            "owners": [{"name": name, "data_set": "patients"} for name in SAMPLES],
            "curator": None,
        }
    )
    without = analyst.wait_for_verdict(trusting_no_one, PATIENCE_S).result
    assert isinstance(without, TwoSampleResult)
    assert without.reject
    assert (without.epsilon, without.delta) == (verdict.result.epsilon, verdict.result.delta)


# The observed statistic lies 45 noise scales above every one of 499 permuted ones: the chance that noise
# makes up for that is below 1e-11.
def test_a_permutation_test_of_two_hospitals_leaves_a_decision_alone(
    curator: LocalCurator, analyst: Client, eventually: Any
) -> None:
    names = ["budapest", "long-beach"]
    parameters = {"release": "permutation", "permutations": 499}
    digest = analyst.create_study(asked(curator, names, parameters=parameters, delta=0.0))
    wait_until_asked(curator, eventually, "budapest", digest)
    with curator.owner_client("budapest") as client:
        assert "What would leave: one decision, yes or no" in client.study(digest)["plain_words"]
    approve(curator, eventually, names, digest)
    result = analyst.wait_for_verdict(digest, PATIENCE_S).result
    assert isinstance(result, DecisionResult)
    assert result.reject
    release = analyst.verify(digest).releases["curator"]
    assert (release.vectors, release.decision) == ({}, True)
    assert release.units_by_owner == {name: HOSPITALS[name] for name in names}


# The observed statistic lies 29 noise scales above every one of 499 permuted ones: the chance that noise
# makes up for that is below 1e-11.
@pytest.mark.long
def test_columns_of_the_health_insurance_experiment_are_not_jointly_independent(
    curator: LocalCurator, analyst: Client
) -> None:
    before = {name: debits(curator, name) for name in SITES}
    digest = analyst.create_study(
        asked(curator, SITES)
        | {
            "title": "Are visits, coinsurance and chronic diseases jointly independent?",
            "procedure": "joint_independence",
            "columns": HEALTH_COLUMNS,
            "epsilon": INDEPENDENCE_EPSILON,
            "delta": 0.0,
            "parameters": {"permutations": 499},
        }
    )
    result = analyst.wait_for_verdict(digest, PATIENCE_S).result
    assert isinstance(result, DecisionResult)
    assert result.finding == "the columns are not jointly independent"
    assert dict(result.n) == {"site-a": 1010, "site-b": 1009}
    analyst.verify(digest)
    for site in SITES:
        assert debits(curator, site) == [*before[site], (digest, 8_000_000)]
    transcript = json.loads(analyst.transcript(digest))
    assert set(transcript["releases"]) == {"curator"}


# 19 noise scales lie between the statistic and every permuted one: the chance that noise makes up for what is
# left after the permuted ones' own is below 1e-7. The covariance's root is 20 standard deviations from 0.
@pytest.mark.long
def test_visits_depend_on_chronic_diseases_and_the_curator_says_how_strongly(
    curator: LocalCurator, analyst: Client
) -> None:
    before = {name: debits(curator, name) for name in SITES}
    digest = analyst.create_study(
        asked(curator, SITES)
        | {
            "title": "How strongly do visits depend on chronic diseases?",
            "procedure": "curated_distance_correlation",
            "columns": [column for column in HEALTH_COLUMNS if column["name"] != "lncoins"],
            "epsilon": INDEPENDENCE_EPSILON,
            "parameters": {"permutations": 499, "test_share": 0.6},
        }
    )
    result = analyst.wait_for_verdict(digest, PATIENCE_S).result
    assert isinstance(result, CuratedDistanceCorrelationResult)
    assert result.reject
    assert dict(result.n) == {"site-a": 1010, "site-b": 1009}
    # The units' own value, without privacy, is .2213; the standard deviation of 841 local runs was .02.
    assert result.held_interval is not None
    assert result.interval is not None
    assert result.distance_correlation == pytest.approx(0.2213, abs=0.15)
    release = analyst.verify(digest).releases["curator"]
    assert (len(release.vectors), release.decision) == (3, True)
    for site in SITES:
        assert debits(curator, site) == [*before[site], (digest, 8_000_000)]
    with curator.owner_client("site-a") as client:
        assert "3 numbers, each with random noise, and one decision" in client.study(digest)["plain_words"]


# 32 noise scales lie between the statistic and every permuted one.
@pytest.mark.long
def test_an_owner_that_holds_all_columns_tests_independence_at_its_own_agent(
    federation: LocalFederation, analyst: Client
) -> None:
    digest = analyst.create_study(
        {
            "title": "Are chest pain, electrocardiogram and disease jointly independent?",
            "procedure": "joint_independence",
            "columns": [column for column in COLUMNS if column["name"] in {"cp", "restecg", "num"}],
            "owners": [{"name": "older", "data_set": "patients"}],
            "epsilon": 4.0,
            "delta": 0.0,
            "open_for_hours": 1.0,
        }
    )
    verdict = analyst.wait_for_verdict(digest, PATIENCE_S)
    assert isinstance(verdict.result, DecisionResult)
    assert verdict.result.reject
    assert (list(verdict.message.releases), dict(verdict.result.n)) == (["older"], {"older": 597})
    analyst.verify(digest)
    with federation.agent_client("older") as agent:
        assert (digest, 4_000_000) in {(e["study"], e["epsilon_micro"]) for e in agent.ledger()}


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


def test_an_owner_sees_its_own_and_no_other_owners_data_sets(curator: LocalCurator) -> None:
    with curator.owner_client("cleveland") as client:
        assert [data_set.account for data_set in client.data_sets()] == ["cleveland/patients"]
        assert {entry["data_set"] for entry in client.ledger()} == {"cleveland/patients"}
        assert client.verify_ledger()["ok"]
        with pytest.raises(ProblemError):
            client.ledger("budapest/patients")
    with curator.owner_client(LEAVER) as client:
        left = {LEAVER} if client.data_sets() else set()
    with curator.operator_client() as operator:
        assert {data_set.owner for data_set in operator.data_sets()} == {*HOSPITALS, *SITES} | left
        assert {data_set.rows for data_set in operator.data_sets()} == {None}


def test_rows_that_an_owner_deletes_are_gone_for_studies(
    curator: LocalCurator, analyst: Client, eventually: Any
) -> None:
    with curator.owner_client(LEAVER) as client:
        client.delete("patients")
        assert client.data_sets() == []
        digest = analyst.create_study(asked(curator, ["cleveland", LEAVER]))
        verdict = analyst.wait_for_verdict(digest, PATIENCE_S)
        assert verdict.missing == ("curator",)
        spent = {study for study, _ in debits(curator, LEAVER)}
    assert digest not in spent
