"""Databases of every method, however few units they are of: everything works or says why; nothing is NaN."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tacit.database.points import Estimate, WeightedDatabase
from tacit.database.released import ReleasedDatabase
from tacit.database.weights import Weighting
from tacit.errors import InputError, StudyRefusedError
from tacit.local.synthetic import release_database

BOUNDS = {"x": (0, 10), "y": (-1, 1), "kind": ["a", "b", "never seen"]}
TEN = {"n_points": 10}
METHODS: dict[str, dict[str, Any]] = {
    "histograms": TEN,
    "uniform": TEN | {"placement": "uniform"},
    "uniform, Laplace": TEN | {"placement": "uniform", "delta": 0.0},
    "random features": {"method": "random-features", "n_frequencies": 8},
    "random features, Laplace": {"method": "random-features", "n_frequencies": 8, "delta": 0.0},
    "exponential": {"method": "exponential", "n_points": 4, "candidate_rows": 2, "delta": 0.0},
}
WEIGHTS: tuple[Weighting, ...] = ("simplex", "regularised", "raw", "shrunk")


def table(units: int) -> Any:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(units)
    kinds = np.array(["a", "b", None], dtype=object)
    return pandas.DataFrame(
        {"x": rng.normal(5, 2, units), "y": rng.uniform(-1, 1, units), "kind": kinds[np.arange(units) % 3]}
    )


@cache
def released(method: str, units: int) -> ReleasedDatabase:
    chosen: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "bounds": BOUNDS,
        "seed": 1,
        "missing": "encode",
    }
    return release_database(table(units), **(chosen | METHODS[method]))


def numbers_of(found: Estimate) -> list[float]:
    return [float(found), found.noise, found.error, found.sampling, found.projection or 0.0]


def ask_everything(database: WeightedDatabase) -> None:
    """Ask every kind of question of a database with columns x, y and kind."""
    answers = [
        database.mean("x"),
        database.expectation(lambda c: c["x"] * c["y"]),
        database.probability(lambda c: c["y"] > 0),
        database.probability(lambda c: c["y"] > 2),
        database.probability_between("x", 4, 6),
        *(database.probability_level("kind", level) for level in ("a", "never seen", "(other)", None)),
    ]
    for answer in answers:
        assert np.all(np.isfinite(numbers_of(answer)))
        assert min(numbers_of(answer)[1:]) >= 0
    for answer in answers[2:]:
        assert 0 <= answer <= 1
    with suppress(InputError):  # weights without a positive sum, or a column that does not vary
        correlation = database.correlation("x", "y")
        assert -1 <= correlation <= 1
        assert np.all(np.isfinite(numbers_of(correlation)))
    rows = database.sample(5)
    assert [len(values) for values in rows.values()] == [5, 5, 5]
    assert np.all(np.isfinite(rows["x"]))
    picture = database.summary_svg()
    assert "nan" not in picture.lower()
    ElementTree.fromstring(picture)  # noqa: S314 (made here)
    assert np.all(np.isfinite(database.to_pandas()[["x", "y", "weight"]].to_numpy()))


@pytest.mark.filterwarnings("ignore::tacit.errors.DataWarning")
@pytest.mark.parametrize("units", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_a_few_units_get_finite_answers(method: str, units: int, tmp_path: Path) -> None:
    base = released(method, units)
    for weights in WEIGHTS:
        if base.chosen_weights is not None and weights != "simplex":
            with pytest.raises(InputError, match="drawn"):
                base.with_weights(weights)
            continue
        database = base.with_weights(weights, l1_max=2.0)
        ask_everything(database)
        assert np.isfinite(database.points_error)
        database.to_parquet(tmp_path / "database.parquet")
        again = ReleasedDatabase.load(tmp_path / "database.parquet")
        assert again.weights == pytest.approx(database.weights, abs=1e-9)
        assert again.mean("x") == pytest.approx(database.mean("x"))
        assert again.mean("x").noise == pytest.approx(database.mean("x").noise)
        squared = database.transform(lambda c: c["x"] ** 2, (0, 100), name="square")
        assert np.all(np.isfinite(numbers_of(squared.mean("square"))))


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_are_refused(method: str) -> None:
    with pytest.raises((InputError, StudyRefusedError)):
        released(method, 0)
