"""Released databases: expectations, rows, errors, weights, transformations, files and pictures."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from played_releases import simulated_database, simulated_rows

from tacit.database.points import combined
from tacit.database.released import ReleasedDatabase
from tacit.database.weights import shrinkage
from tacit.errors import InputError
from tacit.local.synthetic import release_database
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.features.mean_embedding import Locations


@cache
def database() -> ReleasedDatabase:
    rng = np.random.default_rng(1)
    return simulated_database(simulated_rows(rng, 4000), 0.5, rng)


@cache
def mixed() -> ReleasedDatabase:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame(
        {"age": rng.normal(50, 12, 3000), "sex": rng.choice(["F", "M"], 3000, p=[0.7, 0.3])}
    )
    bounds = {"age": (0, 100), "sex": ["F", "M"]}
    return release_database(frame, epsilon=4, delta=1e-5, bounds=bounds, n_points=40, seed=3)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("weights", ["simplex", "regularised", "raw", "shrunk"])
def test_stated_errors_are_those_that_are_made(weights: Any) -> None:
    """Six releases: the errors are within twice of what is stated (root mean square), which is no more than
    fifty times too large. Of so few points the projection part is overstated for a smooth function."""
    rng, ratios = np.random.default_rng(3), []
    for _ in range(6):
        rows = simulated_rows(rng, 2000)
        found = simulated_database(rows, 0.5, rng, weighting=weights)
        mean = found.expectation(lambda c: c["x1"])
        ratios.append((float(mean) - rows[:, 0].mean()) / mean.error)
    assert 1 / 50 < float(np.sqrt(np.mean(np.square(ratios)))) < 2


def test_queries_say_what_is_wrong_with_them() -> None:
    base = mixed()
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: base.expectation(lambda c: c["agee"]), "no column 'agee'"),
        (lambda: base.probability_between("age", 200, 300), "outside"),
        (lambda: base.probability_between("age", 40, 30), "empty"),
        (lambda: base.probability_level("sex", "X"), "level"),
        (lambda: base.mean("sex"), "categories"),
        (lambda: base.expectation(lambda c: c["sex"]), "finite"),
        (lambda: base.expectation(lambda c: c["age"][:-1]), "finite numbers"),
        (lambda: base.probability(np.ones(3, dtype=bool)), "truth values"),
        (lambda: base.with_weights("magic"), "weights must be"),  # type: ignore[arg-type]
    ]
    for ask, message in wrong:
        with pytest.raises(InputError, match=message):
            ask()
    with pytest.raises(ValueError, match="read-only"):
        base.expectation(lambda c: c["age"].sort() or c["age"])


def test_events_that_no_point_resolves_are_not_stated_as_certain() -> None:
    """An interval between two neighbouring points: 0, give or take the largest weight."""
    x = np.sort(database().points["x1"])
    middle = (x[10] + x[11]) / 2
    found = database().probability_between("x1", middle, middle)
    assert found == 0
    assert found.projection >= database().weights.max()
    everything = database().probability(lambda c: c["x1"] >= 0)
    assert everything == pytest.approx(1)


def test_a_transformed_database_has_the_same_expectations_and_errors() -> None:
    base = database()
    squared = base.transform(lambda c: c["x1"] ** 2, (0, 1), name="square")
    direct = base.expectation(lambda c: c["x1"] ** 2)
    through = squared.mean("square")
    assert through == pytest.approx(direct)
    assert through.noise == pytest.approx(direct.noise)
    assert through.projection == pytest.approx(direct.projection)
    levels = base.transform(
        lambda c: {"side": np.where(c["x1"] > 0.5, "right", "left")}, {"side": ["left", "right"]}
    )
    assert levels.probability_level("side", "right") == pytest.approx(
        base.probability(lambda c: c["x1"] > 0.5)
    )
    assert len(squared.sample(7)["square"]) == 7
    with pytest.raises(InputError, match="widen its bounds"):
        base.transform(lambda c: 3 * c["x1"], (0, 1))
    with pytest.raises(InputError, match="one for each point"):
        base.transform(lambda c: c["x1"][:3], (0, 1))


@pytest.mark.parametrize("pairs", [10_000, 300])
def test_a_function_of_two_databases_has_the_products_expectation(pairs: int) -> None:
    """E XY = EX EY of independent X and Y; exactly with all pairs, and within a tenth when thinned."""
    rng = np.random.default_rng(6)
    one, other = database(), simulated_database(simulated_rows(rng, 3000, shift=0.1), 0.5, rng)
    both = combined(one, other, lambda a, b: a["x1"] * b["x1"], (0, 1), pairs_max=pairs)
    assert len(both) <= max(pairs, 1)
    wanted = float(one.mean("x1") * other.mean("x1"))
    assert both.mean("y") == pytest.approx(wanted, rel=1e-9 if pairs > 625 else 0.1)
    expected = np.hypot(one.mean("x1").noise * other.mean("x1"), other.mean("x1").noise * one.mean("x1"))
    if pairs > 625:
        assert both.mean("y").noise == pytest.approx(expected, rel=1e-6)
    assert both.probability_weights.sum() == pytest.approx(1)


def test_parquet_brings_the_whole_database_back(tmp_path: Path) -> None:
    path = tmp_path / "released.parquet"
    base = mixed().with_weights("regularised", l1_max=1.2)
    base.to_parquet(path)
    again = ReleasedDatabase.load(path)
    assert again.weights == pytest.approx(base.weights)
    assert base.to_pandas()["weight"].to_numpy() == pytest.approx(again.to_polars()["weight"].to_numpy())
    assert again.two_sample_test(mixed()).statistic == pytest.approx(0)
    assert (again.weighting, again.l1_max, again.units, again.epsilon) == ("regularised", 1.2, 3000, 4)


UNITS = 20_000


def sample() -> np.typing.NDArray[np.float64]:
    return np.random.default_rng(1).normal(3, 1, (UNITS, 1))


@cache
def released(shift: float = 0.0) -> ReleasedDatabase:
    return release_database(
        sample() + shift, epsilon=1, delta=1e-6, n_points=80, bounds=(-5, 10), seed=1, columns=["x"]
    )


def test_expectations_and_probabilities_are_near_the_datas() -> None:
    """In 40 releases the mean's error had a standard deviation of 0.0018, and its largest was 0.005; the two
    probabilities were below 0.002 and above 0.995. The bounds are twenty of these errors away and more."""
    x, database = sample()[:, 0], released()
    assert database.expectation(lambda c: c["x"]) == pytest.approx(x.mean(), abs=0.1)
    assert database.probability(lambda c: c["x"] > 8) < 0.1
    assert database.probability(lambda c: c["x"] > 0) > 0.9


@pytest.mark.parametrize(
    "points", [{"public": [[1.0], [3.0], [5.0]]}, {"placement": "uniform", "n_points": 3}]
)
def test_points_stay_where_they_do_not_match_unless_asked_to_move(points: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"epsilon": 50, "delta": 1e-6, "bounds": (-5, 10), "columns": ["x"], "seed": 1}
    asked |= points | {"bandwidth": 0.02}
    kept, moved = (release_database(sample(), move_points=move, **asked) for move in (False, True))
    default = release_database(sample(), **asked)
    assert any("do not match" in limit for limit in default.limits)
    assert np.array_equal(default.points["x"], kept.points["x"])
    assert not np.array_equal(default.points["x"], moved.points["x"])
    assert moved.points_error < default.points_error
    if "public" in points:
        assert default.points["x"] == pytest.approx([1, 3, 5])


def test_shrunk_weights_are_nearer_to_the_records_embedding_than_raw_ones() -> None:
    """Twenty releases whose noise is as large as most coordinates: the squared error is less than half of
    the raw weights'; and without noise nothing is shrunk, not even by the ridge of raw weights."""
    rng, squared = np.random.default_rng(11), {"raw": 0.0, "shrunk": 0.0}
    rows = simulated_rows(rng, 2000)
    features = simulated_database(rows, 1.0, rng, points=60, ridge="fine").features
    target = features(Locations(rows, np.empty((len(rows), 0), dtype=np.int32))).mean(axis=0)
    for _ in range(20):
        found = simulated_database(rows, 0.02, rng, points=60, weighting="raw", ridge="fine")
        for weighting in squared:
            weights = found.with_weights(weighting).weights  # type: ignore[arg-type]
            squared[weighting] += float(np.sum((found.features(found.locations).T @ weights - target) ** 2))
    assert squared["shrunk"] < 0.5 * squared["raw"]
    exact = simulated_database(rows, 1e6, rng, points=60, weighting="raw", ridge="fine")
    at_points = exact.features(exact.locations)

    def missed(database: ReleasedDatabase) -> float:
        return float(np.linalg.norm(at_points.T @ database.weights - exact.embedding))

    assert missed(exact.with_weights("shrunk")) < 1e-6 < missed(exact)


def test_the_factors_of_shrunk_weights_have_the_least_estimated_error_of_all_that_fall() -> None:
    """Stein's estimate sum (1 - g)^2 (z^2 - s^2) + g^2 s^2 of falling g, beside ridges and cut-offs."""
    rng = np.random.default_rng(12)
    problem = simulated_database(simulated_rows(rng, 500), 0.3, rng, points=30, weighting="shrunk").problem
    _, singular, right = np.linalg.svd(problem.matched, full_matrices=False)
    z, noise = right @ problem.target, problem.noise[0]

    def estimated(kept: Any) -> float:
        return float(np.sum((1 - kept) ** 2 * (z**2 - noise**2) + kept**2 * noise**2))

    kept = shrinkage(z, float(noise))
    told = singular**2 > 1e-4
    read = (right @ problem.matched.T @ problem.weights())[told] / z[told]
    assert read == pytest.approx(kept[told], abs=1e-3)
    assert np.all(np.diff(kept) <= 0)
    assert kept.min() >= 0
    assert kept.max() <= 1
    rivals = [singular**2 / (singular**2 + ridge) for ridge in np.geomspace(1e-8, 1e2, 40)]
    rivals += [(np.arange(30) < last).astype(float) for last in range(31)]
    assert all(estimated(kept) <= estimated(rival) + 1e-9 for rival in rivals)


def test_a_databases_representation_is_short() -> None:
    base = mixed()
    names = ", ".join(column.name for column in base.domain.columns)
    spent = f"epsilon {base.epsilon:g}, delta {base.delta:g}"
    assert repr(base) == f"<ReleasedDatabase: {len(base)} points of {names} for {base.units} units; {spent}>"
    wide = replace(
        base, domain=Domain(columns=tuple(NumericColumn(name=f"c{i}", lower=0, upper=1) for i in range(60)))
    )
    assert ", c5, 54 more for " in repr(wide)
    assert repr(base.transform(lambda c: c["age"] ** 2, (0, 10_000), name="square")) == (
        f"<TransformedDatabase: {len(base)} points of square>"
    )
