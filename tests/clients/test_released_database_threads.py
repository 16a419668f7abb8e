"""Weights of released databases are fitted by one thread, whatever linear algebra would take."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tacit.database import weights as module
from tacit.database.weights import Weighting, WeightProblem


def threads() -> set[int]:
    return {int(library["num_threads"]) for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize(
    ("weighting", "computed_by"),
    [
        ("simplex", ["fit_simplex", "refit"]),
        ("regularised", ["fit_simplex", "fit_regularised", "refit_regularised"]),
        ("raw", ["fit_simplex", "solve"]),
    ],
)
def test_whatever_is_fitted_takes_one_thread(
    weighting: Weighting, computed_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, set[int]] = {}

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.setdefault(name, set()).update(threads())
            return function(*args, **kwargs)

        return call

    for name in computed_by:
        where = np.linalg if name == "solve" else module
        monkeypatch.setattr(where, name, recorded(name, getattr(where, name)))
    features = np.random.default_rng(5).standard_normal((12, 6))
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        problem = WeightProblem.of(
            features, features[:3].mean(axis=0), 0.1, law="gaussian", weighting=weighting, l1_max=2.0
        )
        problem.weights()
        problem.noise_map()
        problem.projection_map()
        assert threads() == {2}
    assert seen == {name: {1} for name in computed_by}
