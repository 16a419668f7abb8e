"""Questions within owners, asked by the command, of a CSV file and of a database: from draft to report."""

import csv
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup

pytestmark = pytest.mark.long

UNITS, EPSILON = 2000, 8.0

COLUMNS: dict[str, str] = {
    "arm": 'kind = "categorical"\nlevels = ["old", "new"]',
    "ill": 'kind = "categorical"\nlevels = ["no", "yes"]',
    "age": 'kind = "numeric"\nlower = 20.0\nupper = 90.0',
    "days": 'kind = "numeric"\nlower = 0.0\nupper = 100.0',
}

HEADINGS = {"independence_table": "<html", "aggregated_test": "Votes of a block"}
"""What a report has where it has no effects: of one table, nothing that is looked for."""

Tacit = Callable[..., Any]


def patients(folder: Path, name: str, treated: float, risk: float, *, in_database: bool) -> OwnerSetup:
    """Write rows in which the new arm is ill more rarely by .15, older by 6 years, and twice as late."""
    rng = np.random.default_rng(len(name))
    new = rng.random(UNITS) < treated
    ill = rng.random(UNITS) < risk - 0.15 * new
    age = np.clip(rng.normal(50 + 6 * new, 8), 20, 90)
    days = np.minimum(rng.exponential(np.where(new, 80.0, 40.0)), 100.0)
    arms, illnesses = np.where(new, "new", "old").tolist(), np.where(ill, "yes", "no").tolist()
    rows = list(zip(arms, illnesses, age.round(3).tolist(), days.round(3).tolist(), strict=True))
    place, query = str(folder / f"{name}.csv"), None
    if in_database:
        place, query = f"sqlite:///{folder / name}.sqlite3", "SELECT * FROM patients"
        with sqlite3.connect(folder / f"{name}.sqlite3") as database:
            database.execute("CREATE TABLE patients (arm TEXT, ill TEXT, age REAL, days REAL)")
            database.executemany("INSERT INTO patients VALUES (?, ?, ?, ?)", rows)
        database.close()
    else:
        with Path(place).open("w", newline="") as opened:
            csv.writer(opened).writerows([tuple(COLUMNS), *rows])
    policy = PolicySetup(
        approval="automatic",
        columns=tuple(COLUMNS),
        procedures=("*",),
        epsilon_per_study_max=EPSILON,
        delta_per_study_max=1e-5,
    )
    source = DataSetSetup("patients", place, 12 * EPSILON, 1e-4, query=query)
    return OwnerSetup(name, source, policy)


@pytest.fixture
def federation(
    tmp_path: Path, start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation]
) -> LocalFederation:
    """The new arm is rare where few are ill, and common where most are: together it looks harmful."""
    north = patients(tmp_path, "north", 0.15, 0.35, in_database=False)
    return start_federation([north, patients(tmp_path, "south-east", 0.85, 0.9, in_database=True)])


def write_draft(
    file: Path, procedure: str, columns: Sequence[str], delta: float, parameters: str = "", reuses: str = ""
) -> str:
    """Write a draft of both owners; returns its path."""
    parts = [
        f'title = "Is the new arm better?"\nprocedure = "{procedure}"\nepsilon = {EPSILON}\ndelta = {delta}'
    ]
    parts += [f"[parameters]\n{parameters}"] if parameters else []
    parts += [f'[[columns]]\nname = "{name}"\n{COLUMNS[name]}' for name in columns]
    again = f'reuses = "{reuses}"\n' if reuses else ""
    parts += [
        f'[[owners]]\nname = "{name}"\ndata_set = "patients"\nunits = {UNITS}\n{again}'
        for name in ("north", "south-east")
    ]
    file.write_text("\n".join(parts), "utf-8")
    return str(file)


def test_questions_within_owners_are_asked_answered_verified_and_reported(
    federation: LocalFederation, tmp_path: Path, tacit_json: Tacit, tacit_process: Tacit
) -> None:
    """Every end of an interval is six of its standard errors and more from what it is compared with: 1e-8."""
    party = ("--party", str(federation.analyst.configuration))

    def ask(name: str, procedure: str, *wanted: Any, **chosen: Any) -> tuple[str, Any]:
        draft = write_draft(tmp_path / f"{name}.toml", procedure, *wanted, **chosen)
        digest = str(tacit_json("study", "create", draft, *party)["digest"])
        told = tacit_json("study", "watch", digest, *party)
        assert told["outcome"] == "completed", name
        transcript, report = tmp_path / f"{name}.json", tmp_path / f"{name}.html"
        tacit_json("study", "transcript", digest, "--output", str(transcript), *party)
        assert tacit_json("verify", str(transcript), "--tester-key", federation.tester_key)["verified"]
        tacit_json("study", "report", digest, "--output", str(report), *party)
        assert HEADINGS.get(procedure, "Effects") in report.read_text("utf-8")
        return digest, told["result"]

    pair = ("arm", "ill")
    draft = write_draft(tmp_path / "checked.toml", "independence_table", pair, 0.0)
    checked = tacit_process("study", "create", draft, "--dry-run", *party)
    assert "stratified_table asks within owners" in " ".join(checked.stdout.split()) + checked.stderr
    first, table = ask("table", "independence_table", pair, 0.0)
    assert table["reject"]
    assert any("another direction" in warning for warning in table["warnings"])

    again = 'group = "arm"\noutcome = "ill"'
    _, strata = ask("strata", "stratified_table", pair, 0.0, parameters=again, reuses=first)
    differences = [e for e in strata["effects"] if e["kind"] == "risk difference"]
    assert differences[0]["upper"] < 0  # within owners the new arm is ill more rarely

    _, groups = ask("groups", "group_comparison", ("arm", "age"), 1e-5, parameters='group = "arm"')
    years = next(e for e in groups["effects"] if e["kind"] == "mean difference")
    error = (years["upper"] - years["lower"]) / (2 * 1.96)
    assert abs(years["estimate"] - 6.0) < 6 * error < 6.0
    assert years["unit"] == "units of age"

    _, ties = ask("ties", "association", ("arm", "age"), 1e-5)
    assert ties["reject"]
    assert ties["effects"][0]["estimate"] > 0

    cuts = 'group = "arm"\ntime = "days"\nevent = "ill"\n[parameters.cuts]\ndays = [10.0, 20.0, 40.0, 70.0]'
    _, times = ask("times", "survival", ("arm", "ill", "days"), 0.0, parameters=cuts)
    assert times["effects"][0]["upper"] < 1  # rarer, and later

    _, few = ask("few", "group_comparison", ("arm", "age"), 0.0, parameters='group = "arm"')
    assert "Laplace" in few["method"], "without delta a new study has soft cells by itself"
    years = next(e for e in few["effects"] if e["kind"] == "mean difference")
    error = (years["upper"] - years["lower"]) / (2 * 1.96)
    assert abs(years["estimate"] - 6.0) < 6 * error < 6.0

    _, alike = ask("alike", "kernel_two_sample", ("age",), 0.0)
    older = next(e for e in alike["effects"] if e["kind"] == "mean difference")
    assert older["upper"] < 0  # the new arm is older, and rare in the north
    assert "K-norm" in alike["method"], "without delta a new study has K-norm noise by itself"
    _, votes = ask("votes", "aggregated_test", ("arm", "age"), 0.0, parameters='test = "mann_whitney"')
    assert (votes["reject"], votes["direction"]) == (True, "up")
    assert set(votes["votes_by_owner"]) == {"north", "south-east"}
    assert "age is larger in new than in old" in (tmp_path / "votes.html").read_text("utf-8")

    for site in federation.agents:
        entries = tacit_json("ledger", "show", "--config", str(site.configuration))
        spent = [entry for entry in entries if entry["study"]]
        assert len(spent) == 7, "the table's release was read again for nothing"
