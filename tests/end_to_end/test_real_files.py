"""Peer mode, reuse and all of P4's data sets, on real files through federations of real processes.

Columns are clipped to percentiles of these public files, which stand in for public bounds; a study takes its
bounds from elsewhere. Every row counts as a unit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tacit.client.agent import AgentClient, finding_result
from tacit.errors import StudyRefusedError
from tacit.results import (
    AnsweredScreeningResult,
    DistanceCorrelationResult,
    MutualIndependenceResult,
    PeerResult,
)
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit.studies.draft import StudyDraft
from tacit_protocol.signing import certify

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"

P4: dict[str, tuple[str, tuple[str, ...]]] = {
    "parkinsons": ("parkinsons_telemonitoring.csv", ("subject",)),
    "wine": ("wine_white.csv", ()),
    "boston": ("boston_housing.csv", ()),
    "bike": ("seoul_bike.csv", ("date", "season", "holiday", "functioning_day")),
    "skillcraft": ("skillcraft1.csv", ("GameID",)),
    "naval": ("naval_propulsion.csv.gz", ()),
    "music": ("music_origin.csv.gz", ()),
    "madelon": ("madelon.csv.gz", ("split", "label")),
}
"""A file, and its columns that are no measurements."""

FILES = (*(file for file, _ in P4.values()), "wine_red.csv")

ABSENT = [file for file in FILES if not (FOLDER / file).is_file()]

EPSILON, DELTA = 20.0, 1e-5

SIDES = ("north", "south")

pytestmark = [
    pytest.mark.skipif(
        bool(ABSENT), reason=f"{', '.join(ABSENT)}: looked for in ../shared/data, and not there"
    ),
    pytest.mark.long,
]

StartFederation = Callable[[Sequence[OwnerSetup]], LocalFederation]


@dataclass(frozen=True)
class Halves:
    """A data set whose first half of the columns one owner holds, and the second half another."""

    name: str
    units: int
    columns: tuple[tuple[dict[str, Any], ...], ...]

    def owner(self, side: int) -> str:
        """Return the name of the owner of a half."""
        return f"{self.name}-{SIDES[side]}"

    def setups(self, folder: Path) -> list[OwnerSetup]:
        """Return both owners, who have enough for one study."""
        return [
            owner_of(folder, self.owner(side), [column["name"] for column in columns])
            for side, columns in enumerate(self.columns)
        ]

    def draft(self, parameters: dict[str, Any], **south: Any) -> StudyDraft:
        """Return a study of both halves; the second owner has what else is given."""
        owners = [
            {
                "name": self.owner(side),
                "data_set": "rows",
                "units": self.units,
                "columns": [column["name"] for column in columns],
            }
            for side, columns in enumerate(self.columns)
        ]
        fields = {
            "title": f"Do the halves of {self.name} depend on each other?",
            "procedure": "distance_correlation",
            "parameters": parameters,
            "columns": [column for columns in self.columns for column in columns],
            "owners": [owners[0], owners[1] | south],
            "epsilon": EPSILON,
            "delta": DELTA,
        }
        return StudyDraft.from_dict(fields)


def owner_of(folder: Path, name: str, columns: Sequence[str]) -> OwnerSetup:
    """Return an owner of the file of that name, with enough for one study."""
    return OwnerSetup(
        name,
        DataSetSetup("rows", str(folder / f"{name}.csv"), EPSILON, DELTA),
        PolicySetup(
            approval="automatic",
            columns=tuple(columns),
            epsilon_per_study_max=EPSILON,
            procedures=("*",),
        ),
    )


def read(file: str, left_out: Sequence[str] = ()) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Return complete rows, and their columns with bounds, named c0, c1, ..."""
    frame = pl.read_csv(
        FOLDER / file, null_values=["", "NA"], infer_schema_length=None, separator=separator_of(file)
    )
    frame = frame.drop(left_out).drop_nulls()
    frame = frame.rename({old: f"c{place}" for place, old in enumerate(frame.columns)})
    low, high = np.percentile(frame.to_numpy().astype(np.float64), (0.5, 99.5), axis=0)
    columns = [
        {"kind": "numeric", "name": column, "lower": float(low[place]), "upper": float(high[place])}
        for place, column in enumerate(frame.columns)
        if high[place] > low[place]
    ]
    return frame, columns


def separator_of(file: str) -> str:
    """Return what stands between a file's values."""
    if file.endswith(".gz"):
        return ","
    return ";" if ";" in (FOLDER / file).read_text("utf-8").splitlines()[0] else ","


def halves_of(folder: Path, name: str, most: int | None = None) -> Halves:
    """Write both owners' files; at most so many columns a side."""
    frame, columns = read(*P4[name])
    middle = len(columns) // 2
    halves = Halves(name, frame.height, (tuple(columns[:middle][:most]), tuple(columns[middle:][:most])))
    for side, own in enumerate(halves.columns):
        frame.select([column["name"] for column in own]).write_csv(folder / f"{halves.owner(side)}.csv")
    return halves


def test_all_eight_of_p4s_data_sets_are_studied_in_one_federation(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """Sixteen owners, eight studies that run at once, two of which see what is there.

    naval's distance correlation is .957 and bike's .636: at epsilon 10 the sketch's errors are .04 and .05
    (docs/benchmarks/p4-data-sets.md), a sixth of what is allowed here at epsilon 20.
    """
    data = [halves_of(tmp_path, name) for name in P4]
    federation = start_federation([setup for halves in data for setup in halves.setups(tmp_path)])
    found = {}
    with federation.analyst_client() as client:
        digests = {halves.name: client.create_study(halves.draft({})) for halves in data}
        for halves in data:
            verdict = client.wait_for_verdict(digests[halves.name], timeout_s=600)
            client.verify(digests[halves.name])
            assert verdict.outcome == "completed", halves.name
            assert isinstance(verdict.result, DistanceCorrelationResult)
            assert verdict.result.units == {halves.owner(side): halves.units for side in (0, 1)}
            found[halves.name] = verdict.result
    for name, exact in (("naval", 0.957), ("bike", 0.636)):
        assert found[name].reject
        assert found[name].distance_correlation == pytest.approx(exact, abs=0.3)


def test_a_screening_of_real_rows_asks_one_owner_for_answers_and_the_other_for_tables(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """What of 4898 white wines' ten measurements goes with their quality, at epsilon 2 and without a delta?

    Quality's rank correlation with alcohol is .44, with density -.35: each is some ten standard errors away.
    """
    frame, columns = read(*P4["wine"])
    *measured, quality = columns
    setups = []
    for name, own in (("laboratory", measured), ("tasters", [quality])):
        frame.select([column["name"] for column in own]).write_csv(tmp_path / f"{name}.csv")
        setups.append(owner_of(tmp_path, name, [column["name"] for column in own]))
    draft = StudyDraft.from_dict(
        {
            "title": "What goes with a wine's quality?",
            "procedure": "screening",
            "columns": columns,
            "owners": [
                {
                    "name": name,
                    "data_set": "rows",
                    "units": frame.height,
                    "columns": [column["name"] for column in own],
                }
                for name, own in (("laboratory", measured), ("tasters", [quality]))
            ],
            "epsilon": 2.0,
            "delta": 0.0,
        }
    )
    federation = start_federation(setups)
    with federation.analyst_client() as client:
        digest = client.create_study(draft)
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        assert verdict.outcome == "completed"
        source = client.verify(digest).releases
    assert isinstance(verdict.result, AnsweredScreeningResult)
    found = {pair.column: pair for pair in verdict.result.pairs if pair.reject}
    assert found["c10"].sign == 1  # alcohol
    assert found["c7"].sign == -1  # density
    assert set(source["tasters"].answers) == {quality["name"]}
    assert not source["tasters"].vectors
    assert not source["laboratory"].answers


def test_three_owners_of_real_columns_learn_which_of_them_depend(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """Of white wines density goes with alcohol (rank correlation -.82), pH with neither beyond .15."""
    frame, columns = read(*P4["wine"])
    held = {"brewers": columns[10], "chemists": columns[8], "physicists": columns[7]}
    setups = []
    for name, column in held.items():
        frame.select([column["name"]]).write_csv(tmp_path / f"{name}.csv")
        setups.append(owner_of(tmp_path, name, [column["name"]]))
    draft = StudyDraft.from_dict(
        {
            "title": "Do alcohol, pH and density depend on each other?",
            "procedure": "mutual_independence",
            "columns": list(held.values()),
            "owners": [
                {"name": name, "data_set": "rows", "units": frame.height, "columns": [column["name"]]}
                for name, column in held.items()
            ],
            "epsilon": 2.0,
            "delta": 0.0,
        }
    )
    federation = start_federation(setups)
    with federation.analyst_client() as client:
        digest = client.create_study(draft)
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        assert verdict.outcome == "completed"
        releases = client.verify(digest).releases
    assert isinstance(verdict.result, MutualIndependenceResult)
    assert verdict.result.reject
    best = verdict.result.pairs[0]
    assert {best.first, best.second} == {"c10", "c7"}
    assert best.correlation is not None
    assert best.correlation < -0.5
    # At epsilon 2 these units are dealt into halves of three cells and of two.
    assert [sorted(releases[name].answers) for name in held] == [
        ["c10", "c10, halves"],
        ["c8", "c8, halves"],
        [],
    ]
    assert set(releases["physicists"].vectors) == {"counts", "counts, halves"}


def test_a_public_rule_names_why_k_8_is_too_many_of_real_rows(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """P4's K = 8 of wine's 4898 rows: refused when declared, and otherwise declined by its public rule."""
    wine = halves_of(tmp_path, "wine")
    federation = start_federation(wine.setups(tmp_path))
    draft = wine.draft({"method": "pnc", "n_projections": 8})
    undeclared = draft.model_copy(
        update={"owners": tuple(owner.model_copy(update={"units": None}) for owner in draft.owners)}
    )
    with federation.analyst_client() as client:
        with pytest.raises(StudyRefusedError, match="n_projections = 7 or fewer"):
            client.create_study(draft)
        digest = client.create_study(undeclared)
        assert client.wait_for_verdict(digest, timeout_s=300).outcome == "incomplete"
        assert client.verify(digest).rules == dict.fromkeys(
            (wine.owner(0), wine.owner(1)), "too-many-numbers"
        )
        fitting = client.create_study(wine.draft({"method": "pnc", "n_projections": 7}))
        assert client.wait_for_verdict(fitting, timeout_s=300).outcome == "completed"


def test_in_peer_mode_what_is_found_of_real_rows_stays_with_the_receiver(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """naval, three columns a side and the three projections that 11 934 rows leave room for."""
    naval = halves_of(tmp_path, "naval", 3)
    federation = start_federation(naval.setups(tmp_path))
    sites = {site.name: site for site in federation.agents}
    receiver = sites[naval.owner(1)]
    certificate = certify(load_key(receiver.folder / "agent.pem"))
    peer = {"method": "pnc", "mode": "peer", "receiver": receiver.name, "n_projections": 3}
    with federation.analyst_client() as client:
        digest = client.create_study(naval.draft(peer, sealing=certificate.model_dump()))
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        client.verify(digest)
    assert verdict.outcome == "completed"
    assert isinstance(verdict.result, PeerResult)
    assert verdict.result.distance_covariance_sqr is None
    with AgentClient.from_configuration(receiver.configuration) as agent:
        found = finding_result(agent.finding(digest))
    assert isinstance(found, DistanceCorrelationResult)
    assert found.units == {naval.owner(side): naval.units for side in (0, 1)}


def test_a_release_of_real_rows_is_read_again_and_paid_for_once(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """Two halves of the white wines, then one of them beside the red ones: its owner has enough for one."""
    white, columns = read("wine_white.csv")
    red, _ = read("wine_red.csv")
    tables = {"white-even": white.gather_every(2), "white-odd": white.gather_every(2, 1), "red": red}
    names = [column["name"] for column in columns]
    for owner, table in tables.items():
        table.select(names).write_csv(tmp_path / f"{owner}.csv")
    federation = start_federation([owner_of(tmp_path, owner, names) for owner in tables])

    def draft(*owners: str, **reuses: str) -> StudyDraft:
        named = [
            {"name": name, "data_set": "rows", "units": tables[name].height}
            | ({"reuses": reuses["again"]} if reuses and name == owners[0] else {})
            for name in owners
        ]
        fields = {
            "title": "One population?",
            "procedure": "kernel_two_sample",
            "columns": columns,
            "owners": named,
            "epsilon": EPSILON,
            "delta": DELTA,
        }
        return StudyDraft.from_dict(fields)

    with federation.analyst_client() as client:
        first = client.create_study(draft("white-even", "white-odd"))
        assert client.wait_for_verdict(first, timeout_s=300).outcome == "completed"
        second = client.create_study(draft("white-even", "red", again=first))
        verdict = client.wait_for_verdict(second, timeout_s=300)
        client.verify(second)
    assert verdict.outcome == "completed"
    assert verdict.result.reject
    with federation.agent_client("white-even") as agent:
        assert len([entry for entry in agent.ledger() if entry["kind"] == "debit"]) == 1
        assert agent.reused_by(first) == [second]
