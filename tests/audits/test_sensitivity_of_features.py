"""No neighbour passes a feature map's bounds, and the search that says so catches bounds that are wrong."""

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from neighbour_cases import Case, cases, random_frequencies, ratios, searched

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit.testing.neighbour_search import Features, Space, largest_change
from tacit_protocol.features.kernels import EVALUATION_ERROR, FloatMatrix, ProductKernel
from tacit_protocol.features.mean_embedding import Locations, SmoothCharacteristic, WhitenedMeanEmbedding
from tacit_protocol.features.moments import ColumnWise, Pairwise

FRESH_SEED = 7
"""The planted bounds are searched from here, not from the seed that found the largest changes."""

PAGE = Path(__file__).parents[2] / "docs" / "mathematics" / "features.md"
CASES = [pytest.param(index, id=case.name) for index, case in enumerate(cases())]

KNOWN = [pytest.param(case, id=case.name) for case in cases() if case.largest is not None]


@cache
def fresh_movement(index: int) -> float:
    return cases()[index].search("movement", seed=FRESH_SEED).value


@pytest.mark.sweep(3)
@pytest.mark.parametrize("index", CASES)
def test_no_neighbour_passes_the_bounds(index: int) -> None:
    case = cases()[index]
    movement, averages, second, norm = searched(index)
    size = case.features.norm
    assert movement <= case.bound("movement") + 2 * EVALUATION_ERROR
    assert averages <= case.bound("movement") + 2 * EVALUATION_ERROR
    assert second <= case.bound("second moment") + 5 * size * EVALUATION_ERROR
    assert norm <= size + EVALUATION_ERROR


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", KNOWN)
def test_the_search_reaches_every_maximum_that_is_known(case: Case) -> None:
    assert case.largest is not None
    index = [each.name for each in cases()].index(case.name)
    assert fresh_movement(index) == pytest.approx(case.largest, abs=2e-6)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("index", CASES)
def test_a_bound_a_tenth_below_the_largest_change_is_caught(index: int) -> None:
    case = cases()[index]
    planted = 0.9 * (case.largest or searched(index)[0])
    assert fresh_movement(index) > planted


@pytest.mark.sweep(3)
@pytest.mark.parametrize("index", CASES)
def test_a_second_moment_bound_a_tenth_below_the_largest_change_is_caught(index: int) -> None:
    planted = 0.9 * searched(index)[2]
    assert cases()[index].search("second moment", seed=FRESH_SEED).value > planted


@pytest.mark.sweep(3)
@pytest.mark.parametrize("index", CASES)
def test_the_documented_table_is_what_the_search_finds(index: int) -> None:
    """To a hundredth: climbs end elsewhere where a processor rounds otherwise."""
    name = cases()[index].name
    row = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None, "run tests/audits/neighbour_cases.py and put its table in the page"
    diameter, movement, averages, second_bound, second, norm = (float(cell) for cell in row[1].split(" | "))
    assert diameter == pytest.approx(cases()[index].bound("movement"), abs=1e-4)
    assert second_bound == pytest.approx(cases()[index].bound("second moment"), abs=1e-4)
    assert (movement, averages, second, norm) == pytest.approx(ratios(index), abs=0.01)


def test_the_table_has_no_row_without_a_case() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| norm reached |\n|---|---|---|---|---|---|---|\n")[1]
    named = [line.split(" | ")[0].removeprefix("| ") for line in table.split("\n\n")[0].splitlines()]
    assert named == [case.name for case in cases()]


def test_p0s_constant_for_smooth_characteristic_features_is_refuted() -> None:
    """P0 states sqrt J for the unscaled map. The truth is sqrt(2 J)."""
    features = SmoothCharacteristic(random_frequencies(5, 5, 4.0), raw=True)
    found = largest_change(features, Space(5), seed=FRESH_SEED).value
    assert found > 4.09 > math.sqrt(10)
    assert found <= math.sqrt(20) + EVALUATION_ERROR


def test_one_cosine_with_a_random_phase_per_frequency_breaks_the_norm() -> None:
    frequencies = random_frequencies(8, 3, 3.0)
    phases = np.random.default_rng(1).uniform(0, 2 * np.pi, 8)

    def single_cosines(rows: Rows) -> FloatMatrix:
        return np.asarray(math.sqrt(2 / 8) * np.cos(rows.numeric @ frequencies.T + phases))

    assert largest_change(single_cosines, Space(3), "norm").value > 1.2


WRONG_CLAIMS: list[tuple[str, Features, Space, float]] = [
    (
        "a column-wise kernel taken for a positive one",
        ColumnWise(1, (), (1.0, 2.0), (1.0, 1.0)),
        Space(1),
        math.sqrt(2),
    ),
    ("pairs taken for a positive kernel", Pairwise(6, (), (1.0, 2.0), (1.0, 1.0)), Space(6), math.sqrt(2)),
    ("2 cycles searched over half a turn alone", ColumnWise(1, (), (0.8,), (1.0,)), Space(1), math.sqrt(3)),
    (
        "P1 and P2 that move most between the bounds, where P2 is the same",
        ColumnWise(1, (), (1.625, 3.25), (1.0, 1.0), 1.0),
        Space(1),
        math.sqrt((4 + 2 + math.sqrt(2) + 2) / 3),
    ),
    (
        "a polynomial's part taken for one of norm 1",
        ColumnWise(1, (), (1.625,), (0.05,), 1.0),
        Space(1),
        math.sqrt(4 / 1.05),
    ),
    (
        "frequencies under a window taken for a positive kernel",
        SmoothCharacteristic(np.array([[40.0]]), 0.3),
        Space(1),
        math.sqrt(2),
    ),
    (
        "a categorical column taken for a number in [0, 1]",
        ColumnWise(0, (2,), (1.0,), (1.0,)),
        Space(0, (2,)),
        1.0,
    ),
]


@pytest.mark.parametrize(
    ("features", "space", "claim"),
    [pytest.param(features, space, claim, id=name) for name, features, space, claim in WRONG_CLAIMS],
)
def test_a_plausible_mistake_is_caught(features: Features, space: Space, claim: float) -> None:
    assert largest_change(features, space, seed=FRESH_SEED).value > claim + 0.01


def test_whitening_with_the_gram_matrix_of_another_kernel_is_caught() -> None:
    rows = Space(2).random(np.random.default_rng(3), 10)
    locations = Locations(rows.numeric, rows.categorical)
    features = WhitenedMeanEmbedding(ProductKernel("gaussian", 0.3), locations)
    narrow, wide = ProductKernel("gaussian", 0.3), ProductKernel("gaussian", 0.4)
    eigenvalues, vectors = np.linalg.eigh(wide.gram(locations, locations))
    whitener = (vectors / np.sqrt(eigenvalues + 1e-7)) @ vectors.T

    def mismatched(at: Rows) -> FloatMatrix:
        return np.asarray(narrow.gram(at, locations) @ whitener)

    assert largest_change(features, Space(2), "norm", seed=FRESH_SEED).value <= 1
    assert largest_change(mismatched, Space(2), "norm", seed=FRESH_SEED).value > 1.1
    assert largest_change(mismatched, Space(2), seed=FRESH_SEED).value > math.sqrt(2)


def test_units_that_sum_their_rows_instead_of_averaging_are_caught() -> None:
    features = ColumnWise(1, (), (1.0, 2.0), (1.0, 1.0))

    def thrice(rows: Rows) -> FloatMatrix:
        return 3 * features(rows)

    averaged = largest_change(features, Space(1), rows_per_unit=3, seed=FRESH_SEED).value
    summed = largest_change(thrice, Space(1), rows_per_unit=3, seed=FRESH_SEED).value
    assert averaged <= features.diameter + 2 * EVALUATION_ERROR < summed
