"""Two-sample tests in one process, between owners and at a curator: samples, choices, mistakes told."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit.errors import InputError
from tacit.local import TwoSampleResult, kernel_two_sample

BOUNDS = {"age": (0, 120), "sex": ["F", "M"]}
SPEND = {"epsilon": 4.0, "delta": 1e-5}


def patients(mean_age: float, n: int = 4000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"age": rng.normal(mean_age, 10, n), "sex": rng.choice(["F", "M"], n)}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_of_every_kind(make: Any) -> None:
    result = kernel_two_sample(make(patients(50)), make(patients(75, seed=2)), bounds=BOUNDS, **SPEND)
    statistic, pvalue = result
    # Far apart: the chance of missing a shift of 25 years at n = 4000 is far below 1e-6.
    assert result.reject
    assert pvalue < 1e-6
    assert statistic == result.statistic
    assert dict(result.n) == {"sample-1": 4000, "sample-2": 4000}
    assert {column.names for column in result.columns if column.reject} >= {("age",)}
    assert (result.epsilon, result.delta, result.alpha) == (4.0, 1e-5, 0.05)
    assert result.interval[0] <= result.estimate <= result.interval[1]


def test_a_public_sample_gives_locations_and_bandwidth() -> None:
    x, y = pd.DataFrame(patients(50)), pd.DataFrame(patients(75, seed=2))
    public = pd.DataFrame(patients(60, n=30, seed=9))
    result = kernel_two_sample(x, y, bounds=BOUNDS, features="me", public=public, **SPEND)
    assert result.reject
    narrow = {"bounds": (0, 120), "features": "scf", "columns": ["age"], "public": public}
    assert kernel_two_sample(x, y, **narrow, **SPEND).reject
    with pytest.raises(InputError, match="public sample serves"):
        kernel_two_sample(x, y, bounds=BOUNDS, public=public, **SPEND)


def test_rows_of_one_unit_count_once() -> None:
    frame = pd.DataFrame(patients(50))
    frame["patient"] = np.arange(len(frame)) // 4
    by_column = kernel_two_sample(frame, frame, bounds=BOUNDS, units="patient", **SPEND)
    assert dict(by_column.n) == {"sample-1": 1000, "sample-2": 1000}
    bare = frame.drop(columns="patient")
    by_array = kernel_two_sample(bare, bare, bounds=BOUNDS, units=[frame["patient"]] * 2, **SPEND)
    assert dict(by_array.n) == dict(by_column.n)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bounds": (0, math.nan)}, "must be finite"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"names": ["a", "a"]}, "distinct"),
        ({"units": "patient"}, "no column 'patient'"),
        ({"units": [np.zeros(5)]}, "units holds 1 arrays for 2"),
        ({"columns": ["a", "b", "c"]}, "names 3"),
    ],
)
def test_a_mistake_in_the_input_is_told(changed: dict[str, Any], message: str) -> None:
    x = np.zeros((5, 2))
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(InputError, match=message):
        kernel_two_sample(x, x, **arguments)


# A shift of two standard deviations at n = 2000 is hundreds of noise scales: missing it has a chance far
# below 1e-6 with every release here.
CURATED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "bounds": (-5, 5), "setting": "curator", "seed": 1}


def samples(shift: float = 2.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return rng.normal(0, 1, (2000, 2)), rng.normal([shift, 0], 1, (2000, 2))


@pytest.mark.parametrize(
    "choice",
    [
        {"release": "mean-covariance"},
        {"release": "mean-covariance", "features": "columns"},
    ],
)
def test_releases_of_figures_unpack(choice: dict[str, Any]) -> None:
    result = kernel_two_sample(*samples(), **CURATED, **choice)
    assert isinstance(result, TwoSampleResult)
    statistic, pvalue = result
    assert result.reject
    assert pvalue < 0.05
    assert statistic == result.statistic
    assert dict(result.n) == {"sample-1": 2000, "sample-2": 2000}
