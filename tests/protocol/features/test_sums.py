"""Sums of units in cells, histograms, sketches and Gram matrices, and cuts that are drawn."""

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import PlacedTable, rows_table
from scipy.special import log_softmax
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, NumericColumn, encode
from tacit_protocol.features import unit_gram
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.cell_counts import CellGrid, CellsError, CountError, count_cells, unit_steps
from tacit_protocol.features.column_histograms import ColumnHistograms, nearest_counts
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations
from tacit_protocol.features.moments import (
    AdditiveFeatures,
    UnitCountError,
    default_choice,
    sum_features,
    sum_sensitivity,
)
from tacit_protocol.features.private_cells import (
    CUT_SENSITIVITY,
    GRIDS,
    ColumnCells,
    cut_lists,
    cut_losses,
    read_units,
)
from tacit_protocol.features.sketches import BucketDesign, SketchRelease
from tacit_protocol.features.unit_gram import KernelMixture, UnitGram, UnitRows, gather_units
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import NO_CELL
from tacit_protocol.strict import StudyError

DOMAIN = Domain(
    columns=(
        CategoricalColumn(name="sex", levels=("f", "m")),
        NumericColumn(name="age", lower=0.0, upper=100.0),
        CategoricalColumn(name="race", levels=("a", "b", "c")),
    )
)


def rows_of(
    unit: list[int] | None = None, declared: int | None = None, **columns: list[object]
) -> MemoryTable:
    """Rows whose other columns are all alike, in two chunks of whole units."""
    rows = len(next(iter(columns.values())))
    alike: dict[str, list[object]] = {"sex": ["f"] * rows, "age": [1.0] * rows, "race": ["a"] * rows}
    held = {name: np.array(values, dtype=object) for name, values in (alike | columns).items()}
    chunk, owner = encode(DOMAIN, held), None if unit is None else np.array(unit)
    return MemoryTable(DOMAIN, chunk.numeric, chunk.categorical, owner, (1,), declared)


EDGES = {"age": (18.0, 65.0)}
AGES: list[object] = [-3.0, 17.9, 18.0, 64.0, 65.0, 1e9]


def test_columns_are_counted() -> None:
    """Levels, then other, then missing; folded; between public edges; a cross product, last column first."""
    races = rows_of(race=["a", "a", "c", "z", None, "b", "a"])
    plain, folded = CellGrid.of(DOMAIN, ["race"]), CellGrid.of(DOMAIN, ["race"], folded=True)
    assert plain.labels == (("a", "b", "c", "(other)", "(missing)"),)
    assert count_cells(races, plain).tolist() == [3, 1, 1, 1, 1]
    assert folded.labels == (("a", "b", "c (and unlisted)"),)
    assert count_cells(races, folded).tolist() == [3, 1, 3]
    assert count_cells(rows_of(age=AGES), CellGrid.of(DOMAIN, ["age"], EDGES)).tolist() == [2] * 3
    crossed = CellGrid.of(DOMAIN, ["race", "sex"])
    counts = count_cells(rows_of(sex=["m", "f"], race=["c", "a"]), crossed)
    assert np.flatnonzero(counts).tolist() == [0, 2 * 4 + 1]


def test_a_units_rows_are_averaged() -> None:
    grid = CellGrid.of(DOMAIN, ["sex"])
    table = rows_of([0, 0, 0, 1, 1], sex=["f", "m", "f", "m", "m"])
    assert np.allclose(count_cells(table, grid), [2 / 3, 4 / 3, 0, 0], atol=2.0**-20)
    assert count_cells(table, grid).sum() == 2


def test_every_unit_weighs_exactly_one_and_no_cell_is_negative() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        rows, bits = int(rng.integers(1, 60)), int(rng.integers(1, 21))
        unit = rng.integers(0, 5, rows)
        index = rng.integers(0, 7, rows)
        cell, steps = unit_steps(index, unit, bits)
        order = np.lexsort((index, unit))
        owners = unit[order][
            np.flatnonzero(np.diff(unit[order], prepend=-1) | np.diff(index[order], prepend=-1))
        ]
        assert len(cell) == len(owners)
        assert (steps >= 0).all()
        assert all(steps[owners == owner].sum() == 1 << bits for owner in set(unit.tolist()))


def largest_moves(steps_of: object) -> tuple[float, float]:
    """Search replacements of one unit among random tables; returns the largest L1 and L2 moves of counts."""
    rng = np.random.default_rng(7)
    largest_l1 = largest_l2 = 0.0
    for _ in range(400):
        cells, bits = int(rng.integers(2, 9)), 3
        vectors = []
        for _ in range(2):
            rows = int(rng.integers(1, 9))
            # Rows of one cell, or of several: the extremes are one cell against another.
            index = rng.integers(0, rng.integers(1, cells + 1), rows)
            if rng.random() < 0.3:
                index = np.full(rows, rng.integers(0, cells))
            vector = np.zeros(cells, dtype=np.int64)
            np.add.at(vector, *steps_of(index, np.zeros(rows, dtype=np.int64), bits))  # type: ignore[operator]
            vectors.append(vector / 2.0**bits)
        move = vectors[0] - vectors[1]
        largest_l1 = max(largest_l1, float(np.abs(move).sum()))
        largest_l2 = max(largest_l2, float(np.sqrt(move @ move)))
    return largest_l1, largest_l2


def test_replacing_a_unit_moves_counts_by_at_most_two_and_reaches_it() -> None:
    assert largest_moves(unit_steps) == (2.0, np.sqrt(2.0))


def test_the_search_catches_fractions_rounded_one_by_one() -> None:
    def rounded(
        index: npt.NDArray[np.int64], unit: npt.NDArray[np.int64], bits: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        cell, rows = np.unique(index, return_counts=True)
        return cell, np.ceil(rows * 2.0**bits / len(index)).astype(np.int64)

    assert largest_moves(rounded)[0] > 2.0


def test_a_table_that_holds_other_units_than_declared_is_refused() -> None:
    table = rows_of(declared=3, sex=["f", "m"])
    with pytest.raises(CountError, match="changed while they were read"):
        count_cells(table, CellGrid.of(DOMAIN, ["sex"]))


@pytest.mark.parametrize(
    ("columns", "cuts"),
    [
        *((["unknown"], {}), (["sex", "sex"], {}), ([], {}), (["age"], {}), (["sex"], {"age": (5.0,)})),
        *((["age"], {"age": cuts}) for cuts in ((5.0, 5.0), (0.0,), (float("nan"),))),
    ],
)
def test_cells_that_do_not_fit_the_columns_are_refused(
    columns: list[str], cuts: dict[str, tuple[float, ...]]
) -> None:
    with pytest.raises(CellsError):
        CellGrid.of(DOMAIN, columns, cuts)


def test_too_many_cells_are_refused_before_anything_is_counted() -> None:
    levels = tuple(f"l{i}" for i in range(300))
    wide = Domain(columns=tuple(CategoricalColumn(name=name, levels=levels) for name in "ab"))
    with pytest.raises(CellsError, match="more than 36000 cells"):
        CellGrid.of(wide)


def test_a_coarser_grid_sums_the_cells_of_a_finer_one() -> None:
    finer, coarser = CellGrid.of(DOMAIN, ["race", "sex"]), CellGrid.of(DOMAIN, ["sex"])
    table = rows_of(sex=["m", "f", "m", None], race=["c", "a", "b", "a"])
    index = coarser.within(finer)
    assert index is not None
    summed = np.bincount(index, count_cells(table, finer), minlength=coarser.size)
    assert summed.tolist() == count_cells(table, coarser).tolist()
    assert finer.within(coarser) is None


# Histograms of every column over public cells, and the points that are drawn from noisy ones.


MIXED = Domain(
    columns=(
        NumericColumn(name="x", lower=0, upper=10, missing=2.5),
        CategoricalColumn(name="c", levels=("a", "b")),
        NumericColumn(name="y", lower=-1, upper=1, missing=1),
    )
)
CELLS = ColumnHistograms(MIXED, 4)


def rows(x: list[float], c: list[int], y: list[float]) -> Locations:
    return Locations(np.column_stack([x, y]), np.array(c, dtype=np.int32)[:, None])


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_cells_are_bins_bounds_what_stands_for_missing_and_categories() -> None:
    """y's missing value is its upper bound, which has a cell already."""
    assert [cells.size for cells in CELLS.columns] == [4 + 3, 4, 4 + 2]
    values = [0.0, 0.1, 0.25, 0.3, 0.999999, 1.0]
    found = CELLS.indicators(rows(values, [0, 1, 2, 3, 0, 0], values))
    codes = [np.argmax(part, axis=1).tolist() for part in np.split(found, [7, 11], axis=1)]
    assert codes == [[4, 0, 6, 1, 3, 5], [0, 1, 2, 3, 0, 0], [4, 0, 1, 1, 3, 5]]
    assert (CELLS.size, found.shape, found.sum()) == (17, (6, 17), 18)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30), st.integers(1, 2**61))
def test_nearest_counts_are_the_projection_on_a_simplex(values: list[int], total: int) -> None:
    found = nearest_counts(values, total)
    assert all(isinstance(value, int) and value >= 0 for value in found)
    assert total <= sum(found) < total + len(values)
    taken = {value - kept for value, kept in zip(values, found, strict=True) if kept}
    assert len(taken) == 1, "the same is taken off all that are left"
    assert all(value <= min(taken) for value, kept in zip(values, found, strict=True) if not kept)


def test_draws_follow_the_histograms_to_one_point_a_cell() -> None:
    """Systematic: of J points a cell with share p has J p, up to one on either side."""
    shares = np.array([400, 0, 100, 0, 300, 0, 200, 10, 20, 970, 0, 0, 0, 1000, 0, 0, 0])
    points = CELLS.draw((shares << 20).tolist(), 1000 << 20, 200, rng())
    counts = CELLS.indicators(points).sum(axis=0)
    assert np.abs(counts - shares / 5).max() <= 1
    assert set(points.numeric[:, 0][points.numeric[:, 0] == 0.25]) == {0.25}
    inside = points.numeric[:, 1]
    assert (np.floor(inside * 4) == 2).all()
    assert np.sort(inside) == pytest.approx(0.5 + (np.arange(200) + 0.5) / 800, abs=1 / 800), "and spread"
    again = CELLS.draw((shares << 20).tolist(), 1000 << 20, 200, rng())
    assert np.array_equal(again.numeric, points.numeric)
    assert np.array_equal(again.categorical, points.categorical)


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1])
def test_any_noise_gives_points_of_the_domain(value: int) -> None:
    """Where nothing is told apart, all cells are alike: the points are uniform over the cells."""
    points = CELLS.draw([value] * 17, 1, 50, rng())
    assert points.numeric.min() >= 0
    assert points.numeric.max() <= 1
    assert set(points.categorical[:, 0].tolist()) == {0, 1, 2, 3}


# Exact sums of features: the same bits however a table is cut, and a sensitivity no neighbour passes.


NUMBERS = domain_of(3, (4,))
ADDITIVE = AdditiveFeatures(3, (4,), default_choice(3, (4,), 0.3))


def table(rows: int, *, several: bool, seed: int = 1) -> MemoryTable:
    rng = np.random.default_rng(seed)
    unit = np.sort(rng.integers(0, rows // 3, rows)) if several else None
    return MemoryTable(NUMBERS, rng.random((rows, 3)), rng.integers(0, 4, (rows, 1)).astype(np.int32), unit)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_table_with_another_number_of_units_than_declared_is_refused(several: bool, change: int) -> None:
    whole = table(90, several=several)
    wrong = MemoryTable(NUMBERS, whole.numeric, whole.categorical, whole.unit, (), whole.units + change)
    with pytest.raises(UnitCountError):
        sum_features(ADDITIVE, wrong, products=True)


def test_rounding_is_part_of_the_sensitivity() -> None:
    """On a coarse grid neighbours do pass the diameter, by less than the rounding that is counted."""
    features, bits = AdditiveFeatures(0, (2,) * 7, default_choice(0, (2,) * 7, 0.0)), 8
    ends = np.array([[0] * 7, [1] * 7], dtype=np.int32)
    values = features(MemoryTable(NUMBERS, np.zeros((2, 0)), ends))
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(features.diameter, rel=1e-12)
    rounded = np.rint(values * 2.0**bits) * 2.0**-bits
    moved = float(np.linalg.norm(rounded[0] - rounded[1]))
    assert features.diameter < moved <= sum_sensitivity(features, bits)


# Units at places of their own: cuts and order of a table change nothing, and no place is taken twice.


Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]

UNITS = 120
SKETCH = SketchRelease(BrownianFeatures(np.eye(2), 2))
PROJECTIONS = ProjectionRelease(RowProjections(np.eye(2)), disjoint=False)
DISJOINT = ProjectionRelease(RowProjections(np.eye(2)), disjoint=True)


def placed(seed: int = 0) -> PlacedTable:
    """Units of one to three rows, at random places."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(UNITS), 1 + np.arange(UNITS) % 3)
    shuffled = rng.permutation(len(unit))
    numeric, places = rng.random((len(unit), 2)), rng.permutation(UNITS)
    return PlacedTable(domain_of(2), numeric[shuffled], unit[shuffled], places, np.arange(UNITS))


def sketched(table: PlacedTable) -> Integers:
    design = BucketDesign.near(UNITS, 20)
    return SKETCH.sum(table, design, design.assign(np.random.default_rng(1))).sketch


def projected(table: PlacedTable, release: ProjectionRelease = PROJECTIONS) -> Integers:
    return release.project(table, np.arange(UNITS) % 2).values.reshape(UNITS, -1)


def test_neither_cuts_nor_order_change_a_sum_or_a_projection() -> None:
    whole, rng = placed(), np.random.default_rng(9)
    for cuts in ((), (1,), (60,), tuple(range(1, UNITS)), (3, 50, 119)):
        other = replace(whole, order=rng.permutation(UNITS), cuts=cuts)
        assert np.array_equal(sketched(other), sketched(whole))
        for release in (PROJECTIONS, DISJOINT):
            assert np.array_equal(projected(other, release), projected(whole, release))


def test_every_unit_is_at_its_place_and_counts_as_the_average_of_its_rows() -> None:
    table = placed()
    ball = (2 * table.numeric - 1) / np.sqrt(2)
    expected = np.zeros((UNITS, 2))
    for unit in range(UNITS):
        expected[table.places[unit]] = ball[table.unit == unit].mean(axis=0)
    np.testing.assert_allclose(projected(table) / 2**20, expected, atol=2**-19)


def test_places_matter() -> None:
    """Were places passed over, the owners' rows would be matched by chance: the tests above would not see."""
    table = placed()
    moved = replace(table, places=np.roll(table.places, 1))
    assert not np.array_equal(sketched(moved), sketched(table))
    assert not np.array_equal(projected(moved), projected(table))


@pytest.mark.parametrize("wrong", [0, UNITS, -1])
def test_a_place_that_is_taken_or_does_not_exist_is_refused(wrong: int) -> None:
    table = placed()
    places = table.places.copy()
    taken = int(np.flatnonzero(places == 0)[0])
    places[(taken + 1) % UNITS] = wrong
    for cuts in ((), tuple(range(1, UNITS))):
        for release in (sketched, projected):
            with pytest.raises(UnitCountError):
                release(replace(table, places=places, cuts=cuts))


def test_a_unit_too_few_or_too_many_is_refused() -> None:
    table = placed()
    for order in (table.order[:-1], np.append(table.order, 0)):
        for release in (sketched, projected):
            with pytest.raises(UnitCountError):
                release(replace(table, order=order, cuts=(60, UNITS - 1)))


# Kernel matrices between units: averages over pairs of rows, whatever the order and the block sizes.


NARROW = ProductKernel("gaussian", 0.1, 0.3)
KERNELS = {
    "gaussian": NARROW,
    "laplacian": ProductKernel("laplacian", 0.2, 0.0),
    "mixture": KernelMixture((NARROW, ProductKernel("gaussian", 0.7, 0.3)), (0.25, 0.75)),
}


def chunk_of(rng: np.random.Generator, rows: int, units: int | None) -> EncodedChunk:
    unit = None
    if units is not None:
        unit = rng.permutation(np.concatenate([np.arange(units), rng.integers(0, units, rows - units)]))
    codes = rng.integers(0, 3, (rows, 1)).astype(np.int32)
    return EncodedChunk(rng.random((rows, 2)), codes, unit, rows if units is None else units)


def mixed_chunks(seed: int = 0) -> list[EncodedChunk]:
    rng = np.random.default_rng(seed)
    return [chunk_of(rng, 30, 7), chunk_of(rng, 5, None), chunk_of(rng, 40, 2)]


def rows_of_unit(rows: UnitRows, unit: int) -> UnitRows:
    start, stop = rows.starts[unit : unit + 2]
    return UnitRows(rows.numeric[start:stop], rows.categorical[start:stop], np.arange(stop - start + 1))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("block", [1, 100, 2**22])
def test_entries_are_means_over_pairs_of_rows(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_gram, "BLOCK_ENTRIES", block)
    rows = gather_units(mixed_chunks())
    gram = UnitGram(KERNELS[name], rows, several_rows=True)
    assert gram.size == rows.units == 14
    units = [rows_of_unit(rows, unit) for unit in range(14)]
    expected = [[KERNELS[name].gram(u, v).mean() for v in units] for u in units]
    assert np.allclose(gram.rows(0, 14), expected, atol=1e-15, rtol=0)
    assert np.allclose(gram.rows(3, 9), np.array(expected)[3:9], atol=1e-15, rtol=0)


def test_a_unit_of_very_many_rows_keeps_its_accuracy() -> None:
    """Its value would be off by 1e-12 if rows were added up one after the other."""
    rng = np.random.default_rng(2)
    numeric = np.full((100_001, 1), 0.3)
    numeric[-1] = rng.random()
    rows = UnitRows(numeric, np.zeros((100_001, 0), np.int32), np.array([0, 100_000, 100_001]))
    kernel = ProductKernel("laplacian", 0.37)
    value = UnitGram(kernel, rows, several_rows=True).rows(1, 2)[0, 0]
    assert value == pytest.approx(float(np.exp(-abs(numeric[-1, 0] - 0.3) / 0.37)), rel=4e-16)


@pytest.mark.parametrize("columns", [1, 7, 200])
@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
def test_kernel_values_are_as_accurate_as_stated(
    shape: Literal["gaussian", "laplacian"], columns: int
) -> None:
    """Of rows far apart and near, at bandwidths on both sides of the one where kernels are expanded."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (60, columns)).astype(np.float64)
    x[30:] = np.clip(x[:30] + 0.01 * rng.standard_normal((30, columns)), 0, 1)
    rows = UnitRows(x, np.zeros((60, 0), np.int32), np.arange(61))
    exact = x.astype(np.longdouble)
    apart = np.abs(exact[:, None, :] - exact[None, :, :])
    for bandwidth in (0.02, 0.999 * np.sqrt(columns / 64), 1.001 * np.sqrt(columns / 64), 1000.0):
        mixture = KernelMixture((ProductKernel(shape, float(bandwidth)),), (1.0,))
        values = mixture.gram(rows, rows)
        width = np.longdouble(float(bandwidth))
        exponent = (apart**2).sum(2) / (2 * width**2) if shape == "gaussian" else apart.sum(2) / width
        assert float(np.abs(values - np.exp(-exponent)).max()) < mixture.error(columns)


def test_a_unit_without_rows_is_refused() -> None:
    chunk = EncodedChunk(np.zeros((2, 1)), np.zeros((2, 0), np.int32), np.array([0, 2]), 3)
    with pytest.raises(ValueError, match="at least one row"):
        gather_units([chunk])


# Cells of columns: the sensitivity of private cuts, whose row counts, and what lies where.


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
