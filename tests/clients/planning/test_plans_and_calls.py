"""What a plan simulates is what the call runs: the same effective parameters at the same public numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

import tacit.local
from tacit.local.synthetic import release_database
from tacit.planning import _read_question
from tacit.planning.simulation import Setting, sizes_of
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import parse_parameters
from tacit_protocol.procedures.discovery import PROCEDURES

NUMBERS: Mapping[str, Any] = {"x1": (0, 1), "x2": (0, 1)}
LEVELS: Mapping[str, Any] = {"x1": ["a", "b"], "x2": ["a", "b"]}
MIXED: Mapping[str, Any] = {"x1": ["a", "b"], "x2": (0, 1)}

Call = Callable[..., Any]


class ChosenError(Exception):
    """The call has chosen its study."""


def rows(bounds: Mapping[str, Any], n: int) -> pl.DataFrame:
    """Return rows of columns by their bounds or levels."""
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            name: rng.choice(own, n) if isinstance(own, list) else rng.uniform(*own, n)
            for name, own in bounds.items()
        }
    )


def samples(call: Call, owners: int) -> Call:
    """Return a call of a function that takes one sample for each owner."""
    return lambda n, bounds, **asked: call(*(rows(bounds, n) for _ in range(owners)), bounds=bounds, **asked)


def columns(call: Call) -> Call:
    """Return a call of a function that takes columns over the same rows."""
    return lambda n, bounds, **asked: call(
        *rows(bounds, n).get_columns(), bounds=list(bounds.values()), names=list(bounds), **asked
    )


def sides(call: Call) -> Call:
    """Return a call of a function that takes two owners' columns."""

    def asked_of(n: int, bounds: Mapping[str, Any], **asked: Any) -> Any:
        table = rows(bounds, n)
        return call(table["x1"], table["x2"], bounds=list(bounds.values()), names=list(bounds), **asked)

    return asked_of


TWO, GROUPS = samples(tacit.local.kernel_two_sample, 2), [["x1"], ["x2"]]

CASES: Mapping[str, tuple[str, Call, Mapping[str, Any], Mapping[str, Any]]] = {
    "two samples": ("kernel_two_sample", TWO, NUMBERS, {}),
    "two samples at a curator": ("curated_two_sample", TWO, NUMBERS, {"setting": "curator"}),
    "groups": ("group_comparison", samples(tacit.local.group_comparison, 2), MIXED, {"group": "x1"}),
    "association": ("association", samples(tacit.local.association, 2), NUMBERS, {}),
    "association of levels": ("association", samples(tacit.local.association, 2), LEVELS, {}),
    "homogeneity": ("homogeneity", samples(tacit.local.homogeneity, 2), LEVELS, {}),
    "counts": ("noisy_counts", samples(tacit.local.noisy_counts, 2), LEVELS, {}),
    "table": ("independence_table", columns(tacit.local.independence_table), LEVELS, {}),
    "strata": (
        "stratified_table",
        samples(tacit.local.stratified_table, 2),
        LEVELS,
        {"group": "x1", "outcome": "x2"},
    ),
    "joint": ("joint_independence", columns(tacit.local.joint_independence), NUMBERS, {}),
    "joint, permuted": (
        "joint_independence",
        columns(tacit.local.joint_independence),
        NUMBERS,
        {"method": "permutation"},
    ),
    "mutual": (
        "mutual_independence",
        columns(tacit.local.mutual_independence),
        {**NUMBERS, "x3": (0, 1)},
        {},
    ),
    "database": ("embedding_release", samples(release_database, 1), NUMBERS, {}),
}


def as_called(name: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Return the study that a call of the SDK runs."""
    found: list[Study] = []

    def chosen(_: Any, study: Study) -> None:
        found.append(study)
        raise ChosenError

    with monkeypatch.context() as patched:
        patched.setattr(type(PROCEDURES[name]), "check", chosen)
        with pytest.raises(ChosenError):
            call()
    return found[0]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("case", CASES)
def test_a_plan_simulates_the_study_that_the_call_runs(
    case: str, epsilon: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, call, bounds, given = CASES[case]
    budget = {"epsilon": epsilon} | ({} if name in EPSILON_ALONE else {"delta": delta})
    called = as_called(name, lambda: call(400, bounds, **budget, **given), monkeypatch)
    stated = {"groups": called.parameters["groups"]} if "groups" in called.parameters else {}
    question = _read_question({"procedure": name, "bounds": bounds, **stated, **given})
    found = question.question([400] * len(called.owners), epsilon, delta, 0.05)
    sizes = sizes_of([400] * len(found.study.owners), found)
    planned = Setting(sizes, epsilon, delta, 0.05).study(found, called.seed)
    model = PROCEDURES[name].Parameters
    assert parse_parameters(model, planned) == parse_parameters(model, called)
    assert [owner.units for owner in planned.owners] == [owner.units for owner in called.owners]


EPSILON_ALONE = {"mutual_independence"}
