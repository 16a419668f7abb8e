"""Private databases through real processes: made, used by a two-sample test, read out of one; paid once."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.client.data_set import DataSetDescription
from tacit.command.app import run
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import CuratedOwnerSetup, LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

pytestmark = pytest.mark.long

UNITS = 3000
MIDDLE = {"north": 0.35, "west": 0.65}
EPSILON, DELTA = 2.0, 1e-5
COLUMNS: list[dict[str, Any]] = [{"kind": "numeric", "name": "x", "lower": 0, "upper": 1}]
PUBLIC = [[0.1], [0.35], [0.65], [0.9]]


def values_of(folder: Path, name: str) -> Path:
    """Write an owner's file: values around a third at north, around two thirds at west."""
    rng = np.random.default_rng(len(name))
    values = np.clip(MIDDLE[name] + 0.05 * rng.standard_normal(UNITS), 0, 1)
    file = folder / f"{name}.csv"
    file.write_text("\n".join(["x", *(repr(float(v)) for v in values)]) + "\n")
    return file


def owner_of(folder: Path, name: str) -> OwnerSetup:
    # Enough, in either share, for the studies in which an owner is asked.
    return OwnerSetup(
        name,
        DataSetSetup("people", str(values_of(folder, name)), 2 * EPSILON + 1, 2 * DELTA),
        PolicySetup(approval="automatic", columns=("x",), epsilon_per_study_max=EPSILON, procedures=("*",)),
    )


def draft_of(procedure: str, owners: Sequence[str], reuses: dict[str, str], **changes: Any) -> StudyDraft:
    named = [
        {"name": name, "data_set": "people", "units": UNITS}
        | ({"reuses": reuses[name]} if name in reuses else {})
        for name in owners
    ]
    plain = {
        "title": "What do they look like?",
        "procedure": procedure,
        "columns": COLUMNS,
        "owners": named,
        "epsilon": EPSILON,
        "delta": DELTA,
    }
    return StudyDraft.from_dict(plain | changes)


def use_by_command(
    source: str, party: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run every command of `tacit release` on a study's digest or a transcript; read what they wrote."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")

    def answered(*arguments: str) -> dict[str, Any]:
        keep = () if arguments[0] == "compare" else ("--keep",)
        assert run(["release", *arguments, *keep, *party, "--json"]) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict)
        return found

    picture, rows, points = (str(folder / name) for name in ("summary.svg", "rows.csv", "points.parquet"))
    shown = answered("show", source, "--picture", picture)
    assert shown["units"] == UNITS
    assert [column["of"] for column in shown["columns"]] == ["mean of x"]
    assert Path(picture).read_text("utf-8").startswith("<svg")
    inside = answered("expect", source, "--column", "x", "--between", "0.2", "0.5")
    assert inside["estimate"] > 0.8
    answered("sample", source, "--rows", "40", "--output", rows)
    assert pandas.read_csv(rows)["x"].mean() == pytest.approx(MIDDLE["north"], abs=0.05)
    answered("export", source, "--output", points)
    weighted = polars.read_parquet(points)
    assert weighted["weight"].sum() == pytest.approx(1)
    assert answered("expect", points, "--column", "x")["estimate"] == pytest.approx(
        answered("expect", source, "--column", "x")["estimate"]
    )
    same = answered("compare", source, points)
    assert not same["reject"]
    west = answered("compare", source, str(folder / "west.csv"))
    assert west["reject"]
    assert 0 < west["interval"][0] < west["interval"][1]


def test_a_database_is_paid_for_once_whatever_is_made_of_it(
    tmp_path: Path,
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
    tacit_process: Callable[..., "subprocess.CompletedProcess[str]"],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The owners' means are six standard deviations apart, thousands of standard errors: a test that missed
    them would be broken. North's units lie at the second candidate, by dozens of the mechanism's scales."""
    federation = start_federation([owner_of(tmp_path, name) for name in MIDDLE])
    subspace = {"points": PUBLIC, "bandwidth": 0.2}
    me = {"features": "me", "locations": PUBLIC, "bandwidth": 0.2}
    with federation.analyst_client() as client:

        def verdict_of(draft: StudyDraft) -> tuple[str, dict[str, Any]]:
            digest = client.create_study(draft)
            found = client.wait_for_verdict(digest, timeout_s=300)
            assert found.outcome == "completed"
            assert found.result is not None
            client.verify(digest)
            return digest, dict(found.result.verdict)

        made, database = verdict_of(draft_of("embedding_release", ["north"], {}, parameters=subspace))
        assert len(database["embedding"]["north"]) == len(PUBLIC)
        compared, test = verdict_of(
            draft_of("kernel_two_sample", ["north", "west"], {"north": made}, parameters=me)
        )
        assert test["reject"]
        assert [(r.owner, r.study) for r in client.study(made).reused_by] == [("north", compared)]
        _, read = verdict_of(
            draft_of(
                "embedding_release", ["north", "west"], {"north": made, "west": compared}, parameters=subspace
            )
        )
        assert read["embedding"]["north"] == database["embedding"]["north"]
        assert any("read again" in warning for warning in read["warnings"])

        chosen = {
            "parameters": {
                "method": "exponential",
                "candidates": [[row] for row in PUBLIC],
                "bandwidth": 0.2,
            },
            "epsilon": 0.5,
            "delta": 0.0,
        }
        digest, choice = verdict_of(draft_of("embedding_release", ["north"], {}, **chosen))
        assert choice["points"][choice["weights"]["north"].index(1.0)] == [0.35]
        transcript = tmp_path / "transcript.json"
        transcript.write_bytes(client.transcript(made))

        # Points from histograms: every step (owner, tester, verifier) draws the same ones.
        half = {"parameters": {"n_points": 20}, "epsilon": 0.5, "delta": DELTA}
        _, drawn = verdict_of(draft_of("embedding_release", ["west"], {}, **half))
        shares = drawn["histograms"]["west"]["x"]
        assert sum(shares[10:16]) > 0.8, "of 3000 units nearly all are there; a share's noise is below .01"
        assert len(drawn["drawn_points"]["west"]) == len(drawn["embedding"]["west"]) == 20

    party = str(federation.analyst.configuration)
    use_by_command(made, ("--party", party), tmp_path, capsys)
    use_by_command(str(transcript), (), tmp_path, capsys)
    process = tacit_process("release", "expect", made, "--column", "x", "--keep", "--party", party, "--json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["estimate"] == pytest.approx(MIDDLE["north"], abs=0.05)

    for name, debits in (("north", 2), ("west", 2)):
        with federation.agent_client(name) as agent:
            assert len([entry for entry in agent.ledger() if entry["kind"] == "debit"]) == debits
            assert agent.verify_ledger()["ok"]
    with federation.agent_client("north") as agent:
        assert "the name of one of 4 public candidates" in agent.study(digest)["plain_words"]


@pytest.fixture
def curated(tmp_path: Path) -> Iterator[LocalFederation]:
    """The same two owners, who have handed their rows to a curator."""
    policy = {"approval": "automatic", "epsilon_per_study_max": EPSILON, "analysts": ["*"]}
    described = {"name": "people", "columns": COLUMNS, "epsilon": EPSILON, "delta": DELTA}
    people = DataSetDescription.from_dict(described | {"policy": policy | {"delta_per_study_max": DELTA}})
    owners = [CuratedOwnerSetup(name, people, values_of(tmp_path, name)) for name in MIDDLE]
    with LocalFederation(tmp_path / "federation", [], owners) as federation:
        federation.wait_until_ready()
        federation.enrol_all()
        yield federation


def test_a_curator_releases_one_database_of_all_its_owners_units(curated: LocalFederation) -> None:
    """Half of the units lie around either owner's middle: the middle of all, .5, is nobody's."""
    assert curated.curator is not None
    draft = {
        "title": "What do all of them look like?",
        "procedure": "embedding_release",
        "parameters": {"points": PUBLIC, "bandwidth": 0.2},
        "columns": COLUMNS,
        "owners": curated.curator.draft_owners(list(MIDDLE)),
        "curator": "curator",
        "epsilon": EPSILON,
        "delta": DELTA,
    }
    with curated.analyst_client() as client:
        digest = client.create_study(draft)
        found = client.wait_for_verdict(digest, timeout_s=300)
        assert found.outcome == "completed"
        client.verify(digest)
    assert found.result is not None
    verdict = dict(found.result.verdict)
    assert verdict["units"] == {"curator": len(MIDDLE) * UNITS}
    assert list(verdict["embedding"]) == ["curator"]
    for name in MIDDLE:
        with curated.curator.owner_client(name) as client:
            spent = [entry for entry in client.ledger() if entry["study"] is not None]
            assert [entry["epsilon_micro"] for entry in spent] == [int(EPSILON * 1e6)]
