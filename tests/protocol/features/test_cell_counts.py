"""Counts over public cells: what they are, and that one unit moves them by at most 2 in L1, sqrt 2 in L2."""

import numpy as np
import numpy.typing as npt
import pytest
from two_sample_cases import MemoryTable

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn, encode
from tacit_protocol.features.cell_counts import CellGrid, CellsError, CountError, count_cells, unit_steps

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
