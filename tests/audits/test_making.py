"""Whether a release can be made, and by which steps, never depends on what a table holds."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from long_runs import choose
from making import MadeCase, asked, calls, forms, refusal, tables_of, tried

from tacit_protocol.domain import Table
from tacit_protocol.features.cell_counts import CellCounts
from tacit_protocol.privacy.noise import NoiseError, OpenDPNoise
from tacit_protocol.procedures.counts.release import CountPlan
from tacit_protocol.procedures.discovery import PROCEDURES

CASES, BLOCK = choose(500, 30_000), 500

of_blocks = pytest.mark.parametrize("block", range(CASES // BLOCK))


@of_blocks
def test_a_release_is_made_or_the_study_refused_whatever_the_tables_hold(block: int) -> None:
    """With a fixed seed; of noise alone nothing here fails but with probability below e**-60 a case."""
    found = tried(range(block * BLOCK, (block + 1) * BLOCK), OpenDPNoise())
    assert found.failed == []
    if block == 0:
        # It is no empty claim: studies of every procedure are made, and others of it refused.
        assert all(found.made[name] for name in PROCEDURES), found.made
        assert all(found.refused[name] for name in PROCEDURES), found.refused


def numbers_of(procedure: str, count: int) -> list[int]:
    """Return the first cases of a procedure."""
    every = range(count * len(forms()))
    return [number for number in every if forms()[number % len(forms())].startswith(procedure)][:count]


class GuardedNoise(OpenDPNoise):
    """The planted mistake: it refuses by the values, as the noise source once did by their size."""

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        self._guard(values)
        return super().laplace(values, scale)

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        self._guard(values)
        return super().gaussian(values, scale)

    def _guard(self, values: npt.NDArray[np.int64]) -> None:
        if np.abs(values).max() >= 50 * 2**20:
            raise NoiseError("the values need too many bits")


@pytest.mark.parametrize("procedure", ["noisy_counts", "kernel_two_sample", "association"])
def test_a_guard_that_looks_at_values_is_found(procedure: str) -> None:
    failed = tried(numbers_of(procedure, 40), GuardedNoise()).failed
    assert failed
    assert all("too many bits" in words for words in failed)


def test_a_division_by_what_a_degenerate_column_has_none_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CountPlan.summarise

    def standardised(self: CountPlan, table: Table, _: object = None) -> CellCounts:
        counts = whole(self, table)
        1 / int(np.count_nonzero(counts.steps) - 1)  # the planted mistake: all units in one cell
        return counts

    monkeypatch.setattr(CountPlan, "summarise", standardised)
    failed = tried(numbers_of("noisy_counts", 40), OpenDPNoise()).failed
    assert failed
    assert all("ZeroDivisionError" in words for words in failed)


# By which steps: functions that are called, counted and not timed.

BLACK_BOXES = ("aggregated_test",)
"""Tests of blocks are statistical libraries', with branches of their own: what they do is not counted."""

UNITS = {"screening": 200, "distance": 200, "mutual": 200, "identity": 3000, "stratified": 200}
"""Units that a form of that name needs for its release; 60 of any other."""

FIRST = {next(form for form in forms() if form.startswith(name)) for name in PROCEDURES}

COUNTED = [
    pytest.param(form, marks=() if form in FIRST else pytest.mark.long)
    for form in forms()
    if not form.startswith(BLACK_BOXES)
]


def case_for(form: str) -> MadeCase:
    study = asked(form)
    assert study is not None
    units = next((count for name, count in UNITS.items() if form.startswith(name)), 60)
    case = MadeCase(form, study, units, tables_of(study, units, np.random.default_rng(1), "uniform"))
    assert refusal(case) is None
    return case


def differing(case: MadeCase, kinds: Sequence[str | None]) -> dict[str, set[int]]:
    """Return the functions that are not called equally often with tables of every kind."""
    rng = np.random.default_rng(2)
    calls(case, case.tables)  # what is loaded or worked out once is done
    counts = [calls(case, tables_of(case.study, case.units, rng, kind)) for kind in kinds]
    names = set().union(*counts)
    return {name: seen for name in names if len(seen := {count[name] for count in counts}) > 1}


@pytest.mark.parametrize("form", COUNTED)
def test_the_steps_taken_do_not_depend_on_what_a_table_holds(form: str) -> None:
    kinds = choose(("uniform", "degenerate", None), ("uniform", *4 * ("degenerate", None)))
    assert differing(case_for(form), kinds) == {}


def test_a_branch_that_looks_at_values_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CountPlan.summarise

    def shortened(self: CountPlan, table: Table, _: object = None) -> CellCounts:
        counts = whole(self, table)
        if np.count_nonzero(counts.steps) > 1:  # the planted mistake
            np.sort(counts.steps)
        return counts

    monkeypatch.setattr(CountPlan, "summarise", shortened)
    found = differing(case_for("noisy_counts-laplace"), ("uniform", "degenerate"))
    assert any("sort" in name for name in found)
