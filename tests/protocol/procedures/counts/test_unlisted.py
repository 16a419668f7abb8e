"""Verdicts warn where released counts show codes that no level stands for, or missing values."""

import re
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, releases_of
from two_sample_cases import MemoryTable

from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn, encode
from tacit_protocol.procedures.discovery import procedure_named

EVENT = CategoricalColumn(name="event", levels=("0", "1"))
ARM = CategoricalColumn(name="arm", levels=("a", "b"))
TIME = NumericColumn(name="t", lower=0.0, upper=10.0)
CUTS = {"cuts": {"t": [2.0, 5.0]}}
UNITS = 5000

TOLD = re.compile(r"([\d.]+) % \(([\d.]+) to ([\d.]+) %\) of the units of owner-(\d)")


def verdict_of(asked: Any, codes: list[np.ndarray]) -> Any:
    """Return the verdict on owners whose events have these codes."""
    procedure, tables = procedure_named(asked.procedure), []
    for seed, own in enumerate(codes):
        rng = np.random.default_rng(seed)
        values = {
            "event": own,
            "arm": rng.choice(np.array(["a", "b"], dtype=object), len(own)),
            "t": rng.uniform(0, 10, len(own)),
        }
        chunk = encode(asked.domain, {c.name: values[c.name] for c in asked.domain.columns})
        tables.append(MemoryTable(asked.domain, chunk.numeric, chunk.categorical))
    procedure.check(asked)
    return procedure.assemble(
        asked, releases_of(procedure, asked, tables, SimulatedNoise(np.random.default_rng(1)))
    )


def codes(seed: int, *shares: tuple[str | None, float]) -> np.ndarray:
    found = np.array([code for code, _ in shares], dtype=object)
    return np.random.default_rng(seed).choice(found, UNITS, p=[share for _, share in shares])


CASES: dict[str, tuple[str, tuple[Column, ...], dict[str, Any], str]] = {
    "survival": ("survival", (TIME, EVENT, ARM), CUTS | {"group": "arm"}, "and took no part"),
    "stratified_table": ("stratified_table", (ARM, EVENT), {}, "and took no part"),
    "independence_table": ("independence_table", (ARM, EVENT), {}, "and in no effect"),
    "within owners": ("independence_table", (ARM, EVENT), {}, "and in no effect"),
    "homogeneity": ("homogeneity", (EVENT,), {}, "and in no effect"),
    "noisy_counts": ("noisy_counts", (EVENT,), {}, "in cells of their own"),
    "group of numbers": ("group_comparison", (TIME, EVENT), {"group": "event"}, "and took no part"),
    "pure": (
        "group_comparison",
        (TIME, EVENT),
        {"group": "event", "noise": "laplace"},
        "and took no part",
    ),
    "outcome": ("group_comparison", (TIME, ARM, EVENT), {"group": "arm"}, "and took no part"),
    "outcome alone": ("group_comparison", (ARM, EVENT), {"group": "arm"}, "and took no part"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_warns_first_of_codes_that_are_not_listed_and_says_their_share(case: str) -> None:
    """Intervals hold together with probability .999 at least: a false alarm in 1000 seeds for each case."""
    name, columns, parameters, then = CASES[case]
    delta = 1e-5 if name == "group_comparison" and "noise" not in parameters else 0.0
    asked = made_study(
        name, Domain(columns=columns), owners=2, delta=delta, level=0.001, parameters=parameters
    )
    wrong, right = codes(1, ("1", 0.7), ("2", 0.3)), codes(2, ("0", 0.6), ("1", 0.4))
    warned = verdict_of(asked, [right, wrong]).warnings
    found = TOLD.match(warned[0])
    assert found is not None, warned
    share, lower, upper, owner = (float(part) for part in found.groups())
    assert owner == 1
    assert lower <= 100 * float((wrong == "2").mean()) <= upper
    assert lower <= share <= upper < 45
    assert "none of the listed levels 0, 1" in warned[0]
    assert warned[0].endswith(then)
    # A few values that are mistyped are in most data.
    few = codes(3, ("0", 0.59), ("1", 0.4), ("9", 0.01))
    assert not any(TOLD.match(words) for words in verdict_of(asked, [right, few]).warnings)


def test_missing_values_are_told_apart_and_many_owners_are_one_warning() -> None:
    asked = made_study("homogeneity", Domain(columns=(EVENT,)), owners=3, level=0.001)
    gaps = [codes(seed, ("0", 0.5), ("1", 0.4), (None, 0.1)) for seed in (1, 2)]
    warned = verdict_of(asked, [*gaps, codes(3, ("0", 0.5), ("1", 0.5))]).warnings
    told = [words for words in warned if TOLD.match(words)]
    assert len(told) == 1
    assert "and some at 1 other owner, have no value of event" in told[0]
