"""`tacit release`: questions to a released database from the command line."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv, parquet

from tacit.command.app import run
from tacit.database.points import Estimate
from tacit.database.released import ReleasedDatabase
from tacit.local.synthetic import release_database


@cache
def database() -> ReleasedDatabase:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame(
        {"age": rng.normal(50, 12, 3000), "sex": rng.choice(["F", "M"], 3000, p=[0.7, 0.3])}
    )
    bounds = {"age": (0, 100), "sex": ["F", "M"]}
    return release_database(frame, epsilon=4, delta=1e-5, bounds=bounds, n_points=40, seed=3)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "released.parquet"
    database().to_parquet(path)
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:  # type: ignore[type-arg]
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (["--column", "age"], lambda: database().mean("age")),
        (["--column", "sex", "--level", "F"], lambda: database().probability_level("sex", "F")),
        (["--column", "age", "--between", "40", "60"], lambda: database().probability_between("age", 40, 60)),
    ],
)
def test_questions_get_the_databases_answers(
    file: str, question: list[str], answer: Callable[[], Estimate], capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, "release", "expect", file, *question, "--keep")
    assert (found["estimate"], found["noise"]) == pytest.approx((float(answer()), answer().noise))


def test_show_draws_and_lists(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "summary.svg"
    assert run(["release", "show", file, "--picture", str(picture), "--keep"]) == 0
    shown = capsys.readouterr().out
    assert "3000 units" in shown
    assert "mean of age" in shown
    assert picture.read_text("utf-8").startswith("<svg")
    assert {"points", "columns", "noise_error"} <= set(asked(capsys, "release", "show", file, "--keep"))


def test_samples_and_exports_are_tables(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, points = tmp_path / "rows.csv", tmp_path / "points.parquet"
    asked(capsys, "release", "sample", file, "--rows", "50", "--output", str(rows), "--keep")
    assert csv.read_csv(rows).shape == (50, 2)
    asked(capsys, "release", "export", file, "--output", str(points), "--keep")
    assert parquet.read_table(points).column_names == ["age", "sex", "weight"]
    assert run(["release", "export", file, "--output", str(tmp_path / "points.xlsx")]) == 2
    assert run(["release", "show", str(tmp_path / "absent.json")]) == 2
    assert run(["release", "show", str(rows)]) == 1
    assert "transcript does not hold" in capsys.readouterr().err


def test_compare_takes_a_release_or_a_table(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A release does not differ from itself; from a table of other ages it does, far beyond noise."""
    same = asked(capsys, "release", "compare", file, file)
    assert same["pvalue"] == pytest.approx(1)
    table = tmp_path / "mine.csv"
    table.write_text("age,sex\n" + "\n".join(f"{80 + i % 9},F" for i in range(300)))
    assert asked(capsys, "release", "compare", file, str(table))["reject"]
