"""The decisions of ``identity``, audited exactly: the probability of either answer, on both neighbours.

For one column of two levels every table of n units is told by one number, and what a decision does to it is a
finite sum: over the number of units that Priv'IT draws, over the draw, and over discrete noise, whose law is
known. No runs are needed and no chance is left.
"""

import math

import numpy as np
import pytest
from scipy.stats import hypergeom, poisson

from tacit_protocol.procedures.identity.privit import PrivitInstance, PrivitPlan, Repetition, samples_max

HALF = np.array([0.5, 0.5])
NEGLIGIBLE = 1e-13
"""Sums leave out draws of less probability; both answers have more than 0.04."""


Accepted = dict[int, np.ndarray]


def accepted(plan: PrivitPlan, units: int) -> Accepted:
    """The exact probability to accept, by the units drawn and by those of them in the second cell."""
    assert plan.blocks == 1
    sizes = [n for n in range(units + 1) if poisson.pmf(n, plan.instance.samples) > NEGLIGIBLE]
    return {
        size: np.array([plan.instance.acceptance(np.array([size - ones, ones])) for ones in range(size + 1)])
        for size in sizes
    }


def rejection(plan: PrivitPlan, acceptance: Accepted, units: int, ones: int) -> float:
    """The probability that Priv'IT rejects a table with so many units in the second cell."""
    total = 0.5 * poisson.sf(units, plan.instance.samples)
    for size, accepts in acceptance.items():
        drawn = hypergeom.pmf(np.arange(size + 1), units, ones, size)
        total += poisson.pmf(size, plan.instance.samples) * float(drawn @ (1 - accepts))
    return float(total)


def largest_loss(plan: PrivitPlan, units: int, step: int) -> float:
    """The largest |log ratio| of an answer's probability between tables that differ in one unit."""
    worst, acceptance = 0.0, accepted(plan, units)
    for ones in range(0, units, step):
        one, other = (rejection(plan, acceptance, units, number) for number in (ones, ones + 1))
        worst = max(worst, abs(math.log(one / other)), abs(math.log((1 - one) / (1 - other))))
    return worst


def test_privit_with_its_draw_stays_within_epsilon() -> None:
    units, epsilon = 260, 2.0
    plan = PrivitPlan(PrivitInstance(HALF, samples_max(units), epsilon, 1.0), 1)
    plan.instance.require_private()
    loss = largest_loss(plan, units, 26)
    assert loss < epsilon
    assert loss > 0.001, "the tables are too much alike to say anything"


def test_an_instance_that_is_refused_would_give_more_away() -> None:
    """A tenth of the units that the check asks for: exactly why it asks."""
    units, epsilon = 30, 0.1
    plan = PrivitPlan(PrivitInstance(HALF, 12.0, epsilon, 0.3), 1)
    assert plan.instance.proved_epsilon > epsilon
    assert largest_loss(plan, units, 1) > epsilon


def block_rejections(test: Repetition, units: int, draws: int) -> np.ndarray:
    """Whether a block with so many units in the second cell rejects, by the number, (block units + 1,)."""
    size = test.block_units(units)
    blocks = np.array([[size - ones, ones] for ones in range(size + 1)])
    return np.array(
        [test.rejections(block[None, :], draws, np.random.SeedSequence(1)) for block in blocks], dtype=float
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_repetition_stays_within_epsilon(epsilon: float) -> None:
    """A block drawn at random from the table has the law of every block, and the answer is linear in them."""
    units, test = 400, Repetition(HALF, epsilon, 0.2)
    rejects = block_rejections(test, units, 999)
    size = len(rejects) - 1
    assert 0 < rejects.mean() < 1
    rates = []
    for ones in range(units + 1):
        drawn = hypergeom.pmf(np.arange(size + 1), units, ones, size)
        rates.append(test.level / 2 + (1 - test.level) * float(drawn @ rejects))
    assert np.abs(np.diff(np.log(rates))).max() < epsilon
    assert np.abs(np.diff(np.log1p(-np.array(rates)))).max() < epsilon


@pytest.mark.parametrize("blocks", [2, 5, 9])
def test_repetition_with_too_few_blocks_is_caught(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst partition: one unit turns one block's answer."""
    monkeypatch.setattr(Repetition, "blocks", property(lambda self: blocks))
    test = Repetition(HALF, 0.5, 0.2)
    rates = np.array([test.rejection(number) for number in range(blocks + 1)])
    assert np.abs(np.diff(np.log(rates))).max() > 0.5
