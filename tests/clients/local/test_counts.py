"""Counts, tests on them and identity in one process, from every kind of input; mistakes told."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit.local
from tacit.errors import InputError, StudyRefusedError
from tacit.local import DecisionResult, IdentityResult, identity

LEVELS = ["a", "b", "c"]


def draw(seed: int, rows: int, weights: tuple[float, ...] = (0.5, 0.3, 0.2)) -> np.typing.NDArray[np.object_]:
    rng = np.random.default_rng(seed)
    return np.array(LEVELS, dtype=object)[rng.choice(3, rows, p=weights)]


def test_a_frame_has_a_row_for_each_cell_and_a_column_for_each_owner() -> None:
    frames = [
        pd.DataFrame({"c": draw(seed, 300), "x": np.linspace(0, 1, 300), "u": np.repeat(range(100), 3)})
        for seed in (1, 2)
    ]
    result = tacit.local.noisy_counts(
        *frames,
        epsilon=2,
        delta=1e-5,
        noise="gaussian",
        bounds={"c": LEVELS, "x": (0, 1)},
        cuts={"x": [0.5]},
        unlisted="last",
        units="u",
        names=["north", "south"],
    )
    frame = result.to_pandas()
    assert frame.shape == (6, 2)
    assert list(frame.columns) == ["north", "south"]
    assert frame.index.names == ["c", "x"]
    assert frame.loc[("c (and unlisted)", "[0.5, 1]"), "south"] == result.tables.counts["south"][2, 1]
    assert result.n == {"north": 100, "south": 100}


def test_homogeneity_of_samples_and_of_counts() -> None:
    same = tacit.local.homogeneity(draw(1, 5000), draw(2, 5000), epsilon=3, bounds=LEVELS, alpha=1e-3, seed=1)
    other = tacit.local.homogeneity(
        draw(1, 5000), draw(2, 5000, (0.3, 0.3, 0.4)), epsilon=3, bounds=LEVELS, seed=1
    )
    assert other.reject
    statistic, pvalue = other
    assert (statistic, pvalue) == (other.statistic, 1 / 2000)
    assert same.pvalue > other.pvalue or not same.reject
    counted = tacit.local.homogeneity([2500, 1500, 1000], [1500, 1500, 2000], epsilon=3, seed=1)
    assert counted.reject
    assert counted.tables.table.shape == (3,)


def test_independence_of_columns_and_of_a_table() -> None:
    first, second = draw(1, 4000), draw(2, 4000)
    second[:2000] = first[:2000]
    result = tacit.local.independence_table(
        pd.Series(first, name="u"), pd.Series(second, name="v"), epsilon=3, bounds=[LEVELS, LEVELS], seed=1
    )
    assert result.reject
    assert result.interval[0] <= result.cramers_v <= result.interval[1]
    assert result.pairs[0].names == ("u", "v")
    table = [[int(np.sum((first == a) & (second == b))) for b in LEVELS] for a in LEVELS]
    counted = tacit.local.independence_table(table, epsilon=3, seed=1)
    assert counted.reject
    # Noise of scale 2/3 exceeds 40 with probability e^-60.
    assert np.abs(counted.tables.table - table).max() < 40


@pytest.mark.filterwarnings("ignore::tacit.errors.DataWarning")
def test_unlisted_and_missing_values_are_in_the_release_and_in_no_finding() -> None:
    rng = np.random.default_rng(5)
    x, y = (np.where(rng.random(900) < 0.4, "no", rng.choice(["yes", "Yes"], 900)) for _ in range(2))
    levels = [["yes", "no"], ["yes", "no"]]
    table = tacit.local.independence_table(x, y, epsilon=3, bounds=levels, seed=1)
    assert table.tables is not None
    assert table.tables.table.shape == (4, 4)
    assert {label for cell in table.cells for label in cell.labels.values()} == {"yes", "no"}
    assert "2 x 2 cells" in table.method
    owners = tacit.local.homogeneity(x, y, epsilon=3, bounds=["yes", "no"], seed=1)
    assert {effect.level for effect in owners.effects} == {"yes", "no"}
    assert sum(effect.estimate or 0.0 for effect in owners.effects) == pytest.approx(0.0, abs=0.1)
    one = tacit.local.homogeneity(x, y, epsilon=3, bounds=["yes"], seed=1)
    assert {label for cell in one.cells for label in cell.labels.values()} == {"yes", "(other)"}


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(InputError, match="one table of counts"):
        tacit.local.independence_table(draw(1, 9), draw(2, 9), epsilon=1)
    with pytest.raises(StudyRefusedError, match="delta above 0"):
        tacit.local.noisy_counts(draw(1, 9), epsilon=1, noise="gaussian", bounds=LEVELS)
    with pytest.raises(StudyRefusedError, match="single cell holds every unit"):
        tacit.local.homogeneity([5], [6], epsilon=1)
    with pytest.raises(InputError, match="one shape"):
        tacit.local.homogeneity([1, 2], [1, 2, 3], epsilon=1)
    with pytest.raises(StudyRefusedError, match="would not be private"):
        identity([50, 50], [0.5, 0.5], 1.0, "privit")


SKEWED = [0.5, 0.3, 0.15, 0.05]
FAR = [500, 500, 500, 8500]


@pytest.mark.parametrize("method", ["mcgof", "zcdp-gof", "privit-laplace"])
def test_another_distribution_is_seen_with_a_pvalue(method: Any) -> None:
    result = identity(FAR, SKEWED, 1.0, method, delta=1e-6, seed=1)
    assert isinstance(result, IdentityResult)
    statistic, pvalue = result
    assert result.reject
    assert 0 < pvalue <= 0.001
    assert math.isfinite(statistic)
    assert (result.epsilon, dict(result.n), result.cells) == (1.0, {"owner": 10_000}, 4)
    assert "another distribution" in str(result)


@pytest.mark.parametrize("method", ["privit", "repetition"])
def test_decisions_have_nothing_finer(method: Any) -> None:
    # A blind coin accepts with probability at most .17: all of ten do below 1e-7.
    results = [identity(FAR, SKEWED, 4.0, method, alpha=0.33, distance=0.8, seed=1) for _ in range(10)]
    assert all(isinstance(result, DecisionResult) for result in results)
    assert any(result.reject for result in results)
    assert not {"statistic", "pvalue"} & set(results[0].verdict)


@pytest.mark.parametrize(
    ("counts", "q", "message"),
    [
        ([1, 2], [0.5, 0.25, 0.25], "one length"),
        ([1.5, 2], [0.5, 0.5], "whole numbers"),
        ([-1, 2], [0.5, 0.5], "none negative"),
        (["a", "b"], [0.5, 0.5], "finite numbers"),
        ([2**62, 2**62], [0.5, 0.5], "units at most"),
        (np.ones(40_000), np.full(40_000, 1 / 40_000), "fewer cells"),
        ([1, 2], [1.5, -0.5], "probabilities"),
    ],
)
def test_mistakes_are_told(counts: Any, q: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        identity(counts, q, 1.0)
