"""Every estimate that a verdict states lies in its own interval, where nothing is to be seen too."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from local_noise import seeded_noise

from tacit.local import (
    distance_correlation,
    independence_table,
    kernel_two_sample,
    release_database,
    screening,
)
from tacit_protocol.procedures.discovery import PROCEDURES

INTERVALS = {
    ("lower", "upper"): ("squared_mmd", "cramers_v", "distance_correlation"),
    ("held_lower", "held_upper"): ("distance_correlation",),
    ("covariance_lower", "covariance_upper"): ("distance_covariance_sqr",),
}
"""The fields of every interval in a verdict, and the estimates that it may be of."""

SPEND: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-5}


def noise(seed: int, n: int = 150) -> Any:
    """Two independent columns in [0, 1], (2, n)."""
    return np.random.default_rng(seed).random((2, n))


def two_samples(seed: int, alpha: float) -> Any:
    groups = [noise(seed + 100 * place).T for place in range(3)]
    return kernel_two_sample(*groups, bounds=(0, 1), alpha=alpha, seed=seed, **SPEND)


def two_samples_by_place(seed: int, alpha: float) -> Any:
    groups = [noise(seed + 100 * place).T for place in range(2)]
    return kernel_two_sample(*groups, bounds=(0, 1), alpha=alpha, seed=seed, features="me", **SPEND)


def curated_samples(seed: int, alpha: float) -> Any:
    groups = [noise(seed + 100 * place).T for place in range(2)]
    return kernel_two_sample(*groups, bounds=(0, 1), alpha=alpha, seed=seed, setting="curator", **SPEND)


def correlation(seed: int, alpha: float, **chosen: Any) -> Any:
    x, y = noise(seed, 2000)
    asked: dict[str, Any] = {"bounds": [(0, 1), (0, 1)], "n_permutations": 99, **SPEND}
    return distance_correlation(x, y, alpha=alpha, seed=seed, **asked | chosen)


def screened(seed: int, alpha: float) -> Any:
    x, y = noise(seed, 2000)
    more = np.stack([x, noise(seed + 9, 2000)[0]], axis=1)
    asked: dict[str, Any] = {"bounds": [(0, 1)] * 3, "n_permutations": 199, **SPEND}
    return screening(more, y, alpha=max(alpha, 0.05), seed=seed, **asked)


def table(seed: int, alpha: float) -> Any:
    x, y = (noise(seed) * 3).astype(int).astype(str)
    levels = ["0", "1", "2"]
    return independence_table(x, y, bounds=[levels, levels], epsilon=0.5, alpha=alpha, seed=seed)


CASES: dict[str, tuple[str, Callable[[int, float], Any]]] = {
    "three samples": ("kernel_two_sample", two_samples),
    "two samples, mean embeddings": ("kernel_two_sample", two_samples_by_place),
    "two samples at a curator": ("curated_two_sample", curated_samples),
    "sketches": ("distance_correlation", correlation),
    "projections": ("distance_correlation", lambda s, a: correlation(s, a, method="pnc", n_projections=1)),
    "at a curator, little noise": (
        "curated_distance_correlation",
        lambda s, a: correlation(s, a, mode="curator", epsilon=20.0),
    ),
    "at a curator": ("curated_distance_correlation", lambda s, a: correlation(s, a, mode="curator")),
    "screening": ("screening", screened),
    "table": ("independence_table", table),
}
"""Studies by name: their procedure, and what runs one by seed and level."""


def stated(verdict: Any) -> Iterator[tuple[str, float, float, float]]:
    """Yield every estimate with its interval, wherever in a verdict they are."""
    if isinstance(verdict, Mapping):
        for ends, names in INTERVALS.items():
            low, high = (verdict.get(end) for end in ends)
            found = [verdict[name] for name in names if verdict.get(name) is not None]
            if low is not None and high is not None:
                assert len(found) == 1, "an interval without an estimate"
                yield names[0], low, found[0], high
    parts = verdict.values() if isinstance(verdict, Mapping) else verdict
    for part in parts if isinstance(verdict, Mapping | list | tuple) else ():
        yield from stated(part)


def test_every_procedure_with_an_interval_is_looked_at() -> None:
    verdicts = {name: p.Verdict for name, p in PROCEDURES.items() if name != "quick"}  # of these tests alone
    named = {name for name, verdict in verdicts.items() if "'upper'" in str(verdict.model_json_schema())}
    assert named == {procedure for procedure, _ in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_an_estimate_lies_in_its_interval(name: str) -> None:
    run, looked = CASES[name][1], 0
    for seed in range(6):
        with seeded_noise(seed):
            result = run(seed, (0.05, 0.4)[seed % 2])
        for what, low, value, high in stated(result.verdict):
            assert 0 <= low <= value <= high, (what, seed)
            looked += 1
    assert looked > 0 or name == "projections"


def test_a_comparison_of_databases_states_an_estimate_in_its_interval() -> None:
    for seed in range(3):
        with seeded_noise(seed):
            one, other = (
                release_database(
                    noise(seed + 50 * place, 300).T,
                    bounds=(0, 1),
                    public=[[a / 4, b / 4] for a in range(4) for b in range(4)][:10],
                    seed=seed,
                    **SPEND,
                )
                for place in range(2)
            )
        for null in ("bound", "normal", "points"):
            found = one.two_sample_test(other, 0.05, null=null)
            assert 0 <= found.interval[0] <= found.estimate <= found.interval[1]
            assert found.estimate == max(0.0, found.estimate_unbiased)
