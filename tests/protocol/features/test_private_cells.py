"""Cells of columns: the sensitivity of private cuts, whose row counts, and what lies where."""

import numpy as np
import pytest
from made_studies import rows_table
from scipy.special import log_softmax
from two_sample_cases import domain_of

from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.features.private_cells import (
    CUT_SENSITIVITY,
    GRIDS,
    ColumnCells,
    cut_lists,
    cut_losses,
    read_units,
)
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import NO_CELL
from tacit_protocol.strict import StudyError

NUMBER = NumericColumn(name="x", lower=-1.0, upper=3.0)


def cells_of(count: int) -> ColumnCells:
    return ColumnCells(NUMBER, 0, count, bought=True)


def largest_move(count: int, losses: object = cut_losses) -> float:
    """The most that a loss was seen to move, over neighbours that differ in one value, missing ones too."""
    rng, moved = np.random.default_rng(1), 0.0
    for trial in range(60):
        values = rng.random(30) if trial % 2 else np.repeat(rng.random(3), 10)
        other = values.copy()
        values[0], other[0] = [(0.0, 1.0), (np.nan, 0.5), (rng.random(), rng.random())][trial % 3]
        grid = GRIDS[count]
        moved = max(moved, float(np.abs(losses(values, grid, count) - losses(other, grid, count)).max()))
    return moved


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_neighbour_moves_a_loss_by_more_than_its_sensitivity_and_some_move_it_by_all(count: int) -> None:
    assert largest_move(count) == pytest.approx(CUT_SENSITIVITY)


def test_a_loss_that_moves_by_more_would_be_seen() -> None:
    """The sum, and not half of it."""
    assert largest_move(3, lambda *given: 2 * cut_losses(*given)) > 1.5 * CUT_SENSITIVITY


@pytest.mark.parametrize("count", [2, 3])
def test_no_list_of_cuts_is_likelier_than_epsilon_allows(count: int) -> None:
    """All probabilities, exactly, of neighbours at either end: the log ratio stays within epsilon."""
    own, epsilon, units = cells_of(count), 0.15, 40
    # Cuts below one half have too few units on their left, cuts above it too many.
    values = np.concatenate([np.zeros(6), np.full(34, 0.5)])
    other = values.copy()
    other[0] = 1.0
    logs = []
    for held in (values, other):
        choice = own.mechanism(units, epsilon)
        scores = choice.scores(cut_losses(held, own.grid, count))
        steps = choice.scale * -choice.scores(np.array([1.0]))[0]
        logs.append(log_softmax(scores / steps))
    ratio = float(np.abs(logs[0] - logs[1]).max())
    assert 0.4 * epsilon < ratio <= epsilon


@pytest.mark.parametrize("count", [2, 3, 4])
def test_cuts_divide_the_units_evenly(count: int) -> None:
    """At 4000 units and epsilon 1 a list whose loss is 400 has weight e^-200; there are 39 711 of them."""
    own, values = cells_of(count), np.random.default_rng(3).random(4000) ** 2
    cuts = own.draw_cuts(values, 1.0, OpenDPNoise())
    own.check_cuts(cuts)
    codes = own.codes(values[:, None], np.zeros((4000, 0), np.int32), cuts)
    assert np.abs(np.bincount(codes, minlength=count) - 4000 / count).sum() / 2 < 400


def test_losses_are_those_of_the_cells() -> None:
    values = np.array([0.0, 1 / 128, np.nextafter(1 / 128, 0), 0.5, 1.0])
    own = cells_of(3)
    lists = cut_lists(own.grid, 3)
    for place in (0, 100, 8000):
        codes = own.codes(values[:, None], np.zeros((5, 0), np.int32), tuple(lists[place]))
        counts = np.bincount(codes, minlength=3)
        loss = np.abs(counts - 5 / 3).sum() / 2
        assert cut_losses(values, own.grid, 3)[place] == pytest.approx(loss)


@pytest.mark.parametrize("cuts", [None, (), (3,), (3, 3), (4, 3), (0, 3), (3, 128), (1, 2, 3)])
def test_other_cuts_than_the_study_fixes_are_refused(cuts: tuple[int, ...] | None) -> None:
    with pytest.raises(StudyError, match="cuts"):
        cells_of(3).check_cuts(cuts)
    cells_of(3).check_cuts((1, 127))


def test_cells_say_where_they_end() -> None:
    assert cells_of(2).labels((32,)) == ("-1 to 0", "0 to 3")
    even = ColumnCells(NUMBER, 0, 4, bought=False)
    assert even.labels(even.even_cuts()) == ("-1 to 0", "0 to 1", "1 to 2", "2 to 3")
    levels = CategoricalColumn(name="g", levels=("a", "b"))
    both = ColumnCells(levels, 0, 4, bought=False), ColumnCells(levels, 0, 2, bought=False)
    assert both[0].labels(()) == ("a", "b", "(other)", "(missing)")
    codes = np.array([[0], [1], [2], [3]], dtype=np.int32)
    assert both[0].codes(np.zeros((4, 0)), codes, ()).tolist() == [0, 1, 2, 3]
    assert both[1].codes(np.zeros((4, 0)), codes, ()).tolist() == [0, 1, NO_CELL, NO_CELL]


def test_a_unit_of_several_rows_counts_by_one_of_them_whichever_values_others_have() -> None:
    domain = domain_of(1)
    values, unit = np.linspace(0, 1, 12)[:, None], np.repeat([0, 1, 2], [1, 5, 6])
    drawn = [
        read_units(rows_table(domain, values, unit), np.random.default_rng(seed)).numeric[:, 0]
        for seed in range(40)
    ]
    for place, rows in enumerate((values[:1], values[1:6], values[6:])):
        found = {row[place] for row in drawn}
        assert found <= set(rows[:, 0].tolist())
        assert len(found) >= min(len(rows), 3)
    other = values.copy()
    other[1:6] = 0.5
    changed = read_units(rows_table(domain, other, unit), np.random.default_rng(0)).numeric[:, 0]
    assert changed.tolist() == [drawn[0][0], 0.5, drawn[0][2]]
