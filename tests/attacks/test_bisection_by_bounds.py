"""Bounds that are bisected on whether a release is made, and on what it took to make it, read nothing.

The analyst chooses bounds, and a column all of whose units are clipped to one of them, or lie in the middle
between them, has a kernel matrix of zeros. Were any of that declined, or done in another way, the answer
would be exact: the largest value of a column, in as many studies as it has bits.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_studies import SeededNoise, made_study, release_of

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.permutation import statistic
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.table import SourceTable

LARGEST = 73.519204
"""What the attack is after."""

STUDIES = 28
"""Halvings of 0 to 1000: the largest value to six digits."""

Told = Callable[[Study], object]
"""What an analyst sees of a study, beside a decision that is all noise."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ages of 60 people, and weights."""
    rng = np.random.default_rng(4)
    ages, weights = rng.uniform(20, 70, 60), rng.uniform(50, 90, 60)
    ages[17] = LARGEST
    lines = [f"{age!r},{weight!r}" for age, weight in zip(ages.tolist(), weights.tolist(), strict=True)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age,weight", *lines]) + "\n")
    return path


def study_of(lower: float, upper: float, kernel: str, method: str) -> Study:
    columns = (
        NumericColumn(name="age", lower=lower, upper=upper),
        NumericColumn(name="weight", lower=0.0, upper=200.0),
    )
    asked: dict[str, Any] = {"kernel": kernel, "method": method}
    if method == "permutation":
        asked["permutations"] = 99
    return made_study("joint_independence", Domain(columns=columns), asked, epsilon=1e-3, delta=0.0)


def declines(path: Path, taken: list[str]) -> Told:
    """Tell whether a release is made, and by which statistic."""

    def told(study: Study) -> object:
        taken.clear()
        table = SourceTable(CsvSource(path), study.domain)
        try:
            release = release_of(PROCEDURES[study.procedure], study, table, SeededNoise(1))
        except Exception as error:  # a decline, of whatever kind
            return type(error).__name__
        shape = {name: len(vector.values) for name, vector in release.vectors.items()}
        return release.units, repr(shape), repr(release.guarantee), release.decision is None, *taken

    return told


def bisect(told: Told, of: Callable[[float], Study]) -> tuple[float, float]:
    """Search where the answer changes, as far as 28 studies lead; all of 0 to 1000 where it never does."""
    low, high = 0.0, 1000.0
    below = told(of(low))
    if told(of(high)) == below:
        return low, high
    for _ in range(STUDIES):
        middle = (low + high) / 2
        low, high = (middle, high) if told(of(middle)) == below else (low, middle)
    return low, high


ATTACKS: dict[str, Callable[[float, str], Study]] = {
    "all at the lower bound": lambda at, method: study_of(at, at + 2000.0, "linear", method),
    "all at the lower bound, distances": lambda at, method: study_of(at, at + 2000.0, "distance", method),
    "all at the lower bound, gaussian": lambda at, method: study_of(at, at + 2000.0, "gaussian", method),
    "all at the upper bound": lambda at, method: study_of(at - 2000.0, at, "linear", method),
    "all in the middle": lambda at, method: study_of(at - 1e300, at + 1e300, "distance", method),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the statistics that were computed: what time might tell."""
    found: list[str] = []
    chosen = statistic._statistic

    def watched(*given: Any) -> Any:
        made = chosen(*given)
        found.append(type(made).__name__)
        return made

    monkeypatch.setattr(statistic, "_statistic", watched)
    return found


@pytest.mark.parametrize("method", ["permutation", "aggregate"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_bisection_of_bounds_reads_nothing(name: str, method: str, file: Path, taken: list[str]) -> None:
    told = declines(file, taken)
    assert isinstance(told(ATTACKS[name](0.0, method)), tuple)
    assert bisect(told, lambda at: ATTACKS[name](at, method)) == (0.0, 1000.0)
    # Nor do studies on both sides of what it is after differ, however close.
    around = [LARGEST * (1 + step * 10.0**-power) for step in (-1, 0, 1) for power in (1, 4, 9)]
    assert len({told(ATTACKS[name](at, method)) for at in around}) == 1


@pytest.mark.parametrize("kind", ["declined", "another way"])
def test_a_bisection_would_read_the_largest_value(
    kind: str, file: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rank of 0 divides, or a way is chosen by it: to six digits in 28 studies."""
    watched = statistic._statistic

    def planted(grams: Any, workers: Any, report: Any) -> Any:
        rank = int(np.linalg.matrix_rank(grams[0].rows(0, grams[0].size)))
        if kind == "declined":
            assert math.isfinite(1 / rank)
        elif not rank:
            taken.append("nothing")
        return watched(grams, workers, report)

    monkeypatch.setattr(statistic, "_statistic", planted)
    low, high = bisect(declines(file, taken), lambda at: ATTACKS["all at the lower bound"](at, "permutation"))
    assert low <= LARGEST <= high + 1e-5
    assert high - low < 1e-5
