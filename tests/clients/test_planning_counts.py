"""How many units tests on noisy counts need: the power is reached; less noise or more effect needs fewer."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.command.app import app
from tacit.errors import InputError
from tacit.local import homogeneity
from tacit.planning.counts import plan_homogeneity, plan_independence

TABLE = [[0.3, 0.1, 0.1], [0.1, 0.2, 0.2]]


def test_the_planned_units_reach_the_power_in_whole_studies() -> None:
    plan = plan_homogeneity(4, epsilon=1, distance=0.15, seed=1)
    assert plan.interval[0] < 0.8 <= plan.interval[1]
    assert plan.found == round(plan.power * plan.runs)
    rng = np.random.default_rng(1)
    other = [0.325, 0.175, 0.325, 0.175]
    found = 0
    for _ in range(40):
        counts = [rng.multinomial(plan.units, shares) for shares in (np.full(4, 0.25), other)]
        found += homogeneity(*counts, epsilon=1, n_replicates=999).reject
    # At a power of .75 fewer than 16 of 40 have probability 1e-6.
    assert found >= 16


@pytest.mark.long
def test_more_budget_and_larger_effects_need_fewer_units() -> None:
    base = plan_homogeneity(10, epsilon=0.5, distance=0.1, seed=1).units
    assert plan_homogeneity(10, epsilon=5, distance=0.1, seed=1).units < base
    assert plan_homogeneity(10, epsilon=0.5, distance=0.2, seed=1).units < base
    table = plan_independence(TABLE, epsilon=0.5, seed=1)
    assert plan_independence(TABLE, epsilon=5, seed=1).units < table.units
    assert table.distance == pytest.approx(0.15, abs=0.06)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0.5, 0.5], "two axes"),
        ([[0.25, 0.25], [0.25, 0.25]], "nothing to be found"),
        ([[0.5, 0.1], [0.1, 0.1]], "add up to 1"),
        ([[0.5, 0.1], [0.4]], "rows of one length"),
        ([[float("nan"), 0.5], [0.25, 0.25]], "probabilities"),
        ([[-0.5, 0.5], [0.5, 0.5]], "probabilities"),
    ],
)
def test_tables_that_cannot_be_planned_are_refused(table: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_independence(table, epsilon=1)  # type: ignore[arg-type]


def test_the_command_prints_a_plan() -> None:
    runner = CliRunner()
    done = runner.invoke(
        app,
        ["plan", "homogeneity", "--cells", "4", "--epsilon", "1", "--runs", "50", "--seed", "1", "--json"],
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["units"] > 0
    done = runner.invoke(
        app,
        ["plan", "independence", "--row", ".4,.1", "--row", ".1,.4", "--epsilon", "1", "--runs", "50"],
    )
    assert done.exit_code == 0, done.output
    assert "units" in done.stdout
