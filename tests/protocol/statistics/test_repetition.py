"""Repetition: private by counting, at its level."""

import math

import numpy as np
import pytest

from tacit_protocol.procedures.identity.privit import Repetition, RepetitionRefusedError, replicates_needed

UNIFORM = np.full(4, 0.25)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.3])
def test_one_more_block_that_rejects_changes_no_probability_by_more_than_epsilon(
    epsilon: float, level: float
) -> None:
    found = Repetition(UNIFORM, epsilon, level)
    rejection = np.array([found.rejection(number) for number in range(found.blocks + 1)])
    loss = np.abs(np.diff(np.log(rejection))).max()
    assert max(loss, np.abs(np.diff(np.log(1 - rejection))).max()) <= epsilon
    fewer = found.blocks - 1
    if fewer:
        again = level / 2 + (1 - level) * np.arange(fewer + 1) / fewer
        assert np.abs(np.diff(np.log(again))).max() > epsilon, "one block fewer is not private"


def test_the_levels_add_up() -> None:
    found = Repetition(UNIFORM, 1.0, 0.05)
    assert found.level / 2 + (1 - found.level) * found.block_level == pytest.approx(0.05)


def test_blocks_are_tested_at_their_level() -> None:
    """3000 blocks of the null: 6 standard errors of the level."""
    found = Repetition(UNIFORM, 1.0, 0.3)
    rng = np.random.default_rng(2)
    blocks = rng.multinomial(40, UNIFORM, size=3000)
    rate = found.rejections(blocks, 999, np.random.SeedSequence(3)) / 3000
    assert rate < found.block_level + 6 * math.sqrt(found.block_level / 3000) + 0.02
    assert rate > found.block_level / 2


def test_an_impossible_cell_is_infinitely_far() -> None:
    found = Repetition(np.array([0.5, 0.5, 0.0]), 1.0, 0.3)
    assert found.statistic(np.array([5, 5, 0])) == 0
    assert found.statistic(np.array([5, 4, 1])) == np.inf


def test_too_few_units_are_refused() -> None:
    found = Repetition(UNIFORM, 0.1, 0.05)
    assert found.block_units(found.blocks * 3 + 1) == 3
    with pytest.raises(RepetitionRefusedError, match="blocks"):
        found.block_units(found.blocks - 1)
    with pytest.raises(RepetitionRefusedError, match="larger epsilon"):
        Repetition(UNIFORM, 0.001, 0.05).block_units(10**6)
    drawn = found.draw(np.array([500, 400, 300, 200]), np.random.default_rng(1))
    assert set(drawn.sum(axis=1)) == {1400 // found.blocks}


@pytest.mark.parametrize("level", [0.3, 0.05, 0.01, 0.001])
def test_so_many_simulations_are_the_fewest_by_which_a_block_can_reject(level: float) -> None:
    found, needed = Repetition(UNIFORM, 1.0, level), replicates_needed(level)
    all_in_one_cell = np.array([[1000, 0, 0, 0]])
    seed = np.random.SeedSequence(1)
    assert found.rejections(all_in_one_cell, needed, seed) == 1
    assert found.rejections(all_in_one_cell, needed - 1, seed) == 0
