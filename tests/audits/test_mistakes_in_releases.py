"""Mistakes planted in what procedures release: the audits' search finds neighbours that are told apart."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import group_comparison_cases
import numpy as np
import pytest
from audited_procedures import CASES
from audited_studies import domain
from group_comparison_cases import BESIDE, SOFT
from mean_cases import FOURIER, NARROW, release_study
from release_audit import largest_move

from tacit.testing.neighbour_search import Space, largest_change
from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import aligned_sums, moments, private_cells, sketches
from tacit_protocol.features.aligned_sums import RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.cell_means import CellsOfColumns
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.kernels import DistanceKernel, RandomFourier
from tacit_protocol.features.moments import ColumnWise, MomentShares, sum_features
from tacit_protocol.features.private_cells import ColumnCells
from tacit_protocol.privacy import laplace_mechanism
from tacit_protocol.privacy.exact_sums import GridError
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.k_norm_mechanism import ProductBody
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee
from tacit_protocol.procedures.association import plan as association
from tacit_protocol.procedures.association import release as pair_release
from tacit_protocol.procedures.association.plan import GaussianAssociation, LaplaceAssociation
from tacit_protocol.procedures.association.release import PAIR_WEIGHTS, squared_movement
from tacit_protocol.procedures.counts import release as counts_release
from tacit_protocol.procedures.curated_distance_correlation import plan as distance_plan
from tacit_protocol.procedures.curated_distance_correlation import release as distance_release
from tacit_protocol.procedures.curated_two_sample import release as curated_release
from tacit_protocol.procedures.curated_two_sample.permuted_means import PermutedFeatures
from tacit_protocol.procedures.embedding_release import features_of
from tacit_protocol.procedures.embedding_release import release as embedding_release
from tacit_protocol.procedures.embedding_release.release import HistogramsThenMean, HistogramSums
from tacit_protocol.procedures.group_comparison import release as group_release
from tacit_protocol.procedures.group_comparison.release import GroupFeatures
from tacit_protocol.procedures.joint_independence import plan as joint_independence
from tacit_protocol.procedures.screening.answered import CountedScreening
from tacit_protocol.procedures.two_sample import release as kernel_release

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]
Patch = pytest.MonkeyPatch
BOUND, EVENTS = moments.squared_movement_max, LaplaceAssociation.events


Plant = Callable[[Patch], None]


def put(where: Any, name: str, wrong: Any) -> Plant:
    """Plant something else under a name of a module or a class."""
    return lambda patch: patch.setattr(where, name, wrong)


def scaled(where: Any, name: str, factor: float) -> Plant:
    """Plant a number that is too small or too large: a constant, what a function returns, or a property."""
    right: Any = inspect.getattr_static(where, name)
    if isinstance(right, property):
        return put(where, name, property(lambda self: factor * right.__get__(self)))
    return put(where, name, (lambda *given: factor * right(*given)) if callable(right) else factor * right)


def in_full(where: Any, name: str) -> Plant:
    """Plant parts of a release that each spend the whole budget, as if the others did not leave."""
    right = getattr(where, name)
    return put(
        where, name, lambda *given, **named: tuple(replace(p, share=1.0) for p in right(*given, **named))
    )


def polynomials_that_do_not_move(patch: Patch) -> None:
    """The movement of the waves alone, for parts that have P1 and P2 too."""

    def waves(cycles: tuple[float, ...], weights: tuple[float, ...], moments: float = 0.0) -> float:
        return BOUND(cycles, weights) * sum(weights) / (sum(weights) + moments)

    patch.setattr(moments, "squared_movement_max", waves)


def decision_for_the_data_as_they_are(patch: Patch) -> None:
    """Permuted data move by 4/n, twice as much."""
    stated = distance_release.deviation_sensitivity
    patch.setattr(distance_plan, "permuted_sensitivity", lambda units, _: stated(units))


def origin_far_from_the_data(patch: Patch) -> None:
    """With o at 3/2 of everything k is up to 3, and three variables move by too much."""
    right = DistanceKernel._induced
    patch.setattr(DistanceKernel, "_induced", staticmethod(lambda x, t: right(x, t) + 2))


def unit_in_two_buckets(patch: Patch) -> None:
    once = sketches.add_signed

    def twice(sketch: Integers, steps: Floats, codes: Integers) -> None:
        once(sketch, steps, codes)
        once(sketch, steps, (codes + 2) % (2 * len(sketch)))

    patch.setattr(sketches, "add_signed", twice)


def units_weighed_by(weight: Callable[[Integers], Any]) -> Plant:
    def plant(patch: Patch) -> None:
        averages = moments.unit_averages

        def weighed(rows: Floats, unit: Integers, units: int, bits: int) -> Floats:
            counts = np.bincount(unit, minlength=units)
            return np.asarray(averages(rows, unit, units, bits) * weight(counts)[:, None])

        patch.setattr(moments, "unit_averages", weighed)

    return plant


def places_that_follow_values(patch: Patch) -> None:
    """One unit's values decide where the others are."""
    genuine = aligned_sums._places

    def by_value(chunk: EncodedChunk, done: int) -> Integers:
        return np.roll(genuine(chunk, done), int(chunk.numeric[0, 0] > 0.5))

    patch.setattr(aligned_sums, "_places", by_value)


def noise_for_one_attribute(patch: Patch) -> None:
    """P4's: the most that one attribute moves is the largest column of the directions, times its range."""
    patch.setattr(
        RowProjections,
        "diameter",
        property(lambda self: 2 / np.sqrt(3) * np.linalg.norm(self.directions, axis=0).max()),
    )


def mean_that_costs_nothing(patch: Patch) -> None:
    """The mean calibrated to the whole budget, as if the sketch were not released."""
    right = sketches.SumPart

    def whole(name: str, *fields: Any) -> SumPart:
        part = right(name, *fields)
        return replace(part, share=1.0) if name == "mean" else part

    patch.setattr(sketches, "SumPart", whole)


def histograms_of_one_column(patch: Patch) -> None:
    patch.setattr(ColumnHistograms, "l2_sensitivity", math.sqrt(2))
    patch.setattr(ColumnHistograms, "l1_sensitivity", 2.0)


def points_drawn_from_the_exact_histograms(patch: Patch) -> None:
    """The mean's coordinates then depend on the data in a second way."""
    right = HistogramsThenMean.adapted

    def peeking(self: HistogramsThenMean, sums: HistogramSums, noise: Any) -> HistogramSums:
        found = right(self, sums, noise)
        exact = found.noisy.model_copy(update={"values": tuple(sums.steps.tolist())})
        features = self.drawn(exact, sums.units).features
        return replace(found, then=sum_features(features, sums.table, products=False, bits=sums.bits))

    patch.setattr(HistogramsThenMean, "adapted", peeking)


def cuts_of_each_column_in_full(patch: Patch) -> None:
    """The two columns' cuts share the part that buys them; here each has all of it."""
    right = ColumnCells.draw_cuts
    patch.setattr(
        ColumnCells, "draw_cuts", lambda self, values, own, source: right(self, values, 2 * own, source)
    )


JUST = 1 + 1e-9
CORRELATION = "distance_correlation: "
SKETCH = CORRELATION + "sketch, "


def k_norm_of_smaller_moves(patch: Patch) -> None:
    """A hundredth less than what one unit can move."""
    stated = ProductBody.sensitivity
    patch.setattr(ProductBody, "sensitivity", lambda self, bits: int(0.99 * stated(self, bits)))


def units_in_two_cells(patch: Patch) -> None:
    """Every unit counts in its cell and in the next one."""
    stated = CellsOfColumns.__call__

    def twice(self: CellsOfColumns, rows: Any) -> Floats:
        found = stated(self, rows)
        own = found[:, : self.body.sizes[0]]
        own += np.roll(own, 1, axis=1)
        return found

    patch.setattr(CellsOfColumns, "__call__", twice)


ONE_CELL = put(counts_release, "L1_SENSITIVITY", 1.0)
"""A replaced unit leaves one cell and enters another: 2."""

OBSERVED_ALONE = put(joint_independence, "permuted_sensitivity", joint_independence.observed_sensitivity)
"""The sharper bound holds for the data as they are; permuted data move by more."""

FIRST_ORDER = put(distance_release, "deviation_sensitivity", lambda units: 27 / 32 / units)
"""27/32 belongs to the squared variance; its root moves by 2."""

MEAN_FORGOTTEN = put(kernel_release, "MomentShares", lambda *_: MomentShares(1.0, 1.0))
"""Each part calibrated to the whole mu, as if the other were not released."""

ONE_COLUMN_OF_A_PERSON = put(sketches, "_root_of_squares", max)
L2_FOR_L1 = put(laplace_mechanism, "l1_sensitivity", lambda part: part.sensitivity)
FINE_CELLS_OF_ONE_COLUMN = put(
    CellsOfColumns, "fine_sensitivity", lambda self, bits: 2 * (1 + 2.0 ** (8 - bits))
)
"""A unit's cells of one column, where it moves those of all."""

GROUPS, SUMS_OF_GROUPS = "group_comparison: ", ("a number", "numbers and categories", "categories, epsilon 4")
PAIRS = "association: "
PURE_PAIRS = ("pure, two numbers", "pure, two numbers, few units", "pure, two levels")


def counts_that_weigh_too_much(patch: Patch) -> None:
    """Counts at twice their weight, and the sensitivity of units that stay in their group."""
    patch.setattr(group_release, "COUNT_SQUARE", 1.0)
    within = property(lambda self: float(group_release.numeric_bounds()[0] ** 0.5))
    patch.setattr(GroupFeatures, "diameter", within)
    patch.setattr(group_comparison_cases, "worst_units", group_comparison_cases.worst_units.__wrapped__)


def weights_above_one(kind: str) -> Plant:
    """Hats of the points of a number, as if both neighbouring ones had all of it at its bounds."""
    stated = getattr(group_release, kind)
    return put(group_release, kind, lambda t: np.minimum(1.05 * stated(t), 1.0))


def without_products(columns: int) -> float:
    """As if t t' and r r' moved by 1, as they do where one of both columns stays in the middle."""
    return float(squared_movement(columns) - 3 * (PAIR_WEIGHTS[0] + PAIR_WEIGHTS[1]))


def all_of_epsilon_each(plan: LaplaceAssociation, units: int) -> tuple[Any, ...]:
    """Histograms and sums of ranks, each at the whole of epsilon."""
    return (laplace_sum_guarantee(plan.guarantee.budget),) * len(EVENTS(plan, units))


MISTAKES: list[tuple[Plant, str, float]] = [
    (scaled(ColumnWise, "diameter", 0.9), "kernel_two_sample: columns, mixed", 1.05),
    (scaled(ColumnWise, "diameter", 0.9), "kernel_two_sample: moments, columns, mixed", 1.05),
    (polynomials_that_do_not_move, "kernel_two_sample: moments, columns, mixed", 1.05),
    (k_norm_of_smaller_moves, "kernel_two_sample: K-norm, mixed", 1.005),
    (units_in_two_cells, "kernel_two_sample: K-norm, pairs, mixed", 1.9),
    (scaled(CellsOfColumns, "fine_sensitivity", 0.5), "kernel_two_sample: K-norm, fine cells", 1.15),
    (scaled(CellsOfColumns, "fine_sensitivity", 0.5), "kernel_two_sample: K-norm, fine cells, mixed", 1.15),
    (FINE_CELLS_OF_ONE_COLUMN, "kernel_two_sample: K-norm, fine cells, mixed", 1.15),
    (polynomials_that_do_not_move, "curated_two_sample: default, mixed, 1 : 4", 1.01),
    (MEAN_FORGOTTEN, "kernel_two_sample: ME, narrow", 1.2),
    (
        scaled(curated_release, "sum_sensitivity", 0.9),
        "curated_two_sample: columns, 1 : 30, units of 4 rows",
        1.05,
    ),
    (scaled(curated_release, "sum_sensitivity", 0.9), "curated_two_sample: columns, 1 number", 1.05),
    (scaled(curated_release, "ridge_sensitivity", 0.9), "curated_two_sample: statistic", 1.05),
    (scaled(PermutedFeatures, "sensitivity", 0.9), "curated_two_sample: permutation, 1 : 3", 1.05),
    (OBSERVED_ALONE, "joint_independence: 2 variables", 1.05),
    (ONE_CELL, "joint_independence: table, 2 categories", 1.9),
    (cuts_of_each_column_in_full, "joint_independence: table, 2 numbers", 1.2),
    (put(private_cells, "CUT_SENSITIVITY", 0.5), "joint_independence: table, 2 numbers", 1.2),
    (ONE_CELL, "curated_two_sample: table, 1 number", 1.2),
    (put(private_cells, "CUT_SENSITIVITY", 0.5), "curated_two_sample: table, 1 number", 1.1),
    (ONE_CELL, "curated_distance_correlation: table, 2 numbers", 1.2),
    (origin_far_from_the_data, "joint_independence: 3 variables, distances", JUST),
    (
        scaled(distance_release, "deviation_sensitivity", 0.98),
        "curated_distance_correlation: 2 numbers",
        JUST,
    ),
    (FIRST_ORDER, "curated_distance_correlation: 2 numbers", JUST),
    (in_full(distance_plan, "release_parts"), "curated_distance_correlation: 2 numbers", JUST),
    (decision_for_the_data_as_they_are, "curated_distance_correlation: 2 numbers, with the test", JUST),
    (put(BrownianFeatures, "diameter", property(lambda _: 0.9)), SKETCH + "1 number", JUST),
    (unit_in_two_buckets, SKETCH + "1 number", JUST),
    (units_weighed_by(lambda rows: np.minimum(rows, 1.4)), SKETCH + "aligned, a unit of 1 row or of 5", JUST),
    (places_that_follow_values, SKETCH + "aligned, a unit of 1 row or of 5", JUST),
    (
        places_that_follow_values,
        CORRELATION + "pnc-disjoint, aligned, a unit of 4 rows or of 1",
        JUST,
    ),
    (noise_for_one_attribute, "distance_correlation: pnc, 3 numbers", JUST),
    (ONE_COLUMN_OF_A_PERSON, "screening: sketch, 3 columns", JUST),
    (put(BrownianFeatures, "diameter", property(lambda _: 0.9)), "screening: sketch, 3 columns", JUST),
    (mean_that_costs_nothing, "screening: sketch, 3 columns", JUST),
    (put(CountedScreening, "tables_of_unit", 1), "screening: beside answers, 20 groups", 19),
    (put(CountedScreening, "tables_of_unit", 1), "screening: beside answers, 20 groups, Gaussian", 4),
    (L2_FOR_L1, "embedding_release: subspace, 2 narrow points, Laplace", 1.4),
    (histograms_of_one_column, "embedding_release: histograms, categories", 1.1),
    (histograms_of_one_column, "embedding_release: histograms, Laplace", 1.2),
    (in_full(HistogramsThenMean, "parts"), "embedding_release: histograms, categories", 1.4),
    (points_drawn_from_the_exact_histograms, "embedding_release: histograms, narrow", 1.15),
    (
        scaled(embedding_release, "sum_sensitivity", 0.5),
        "embedding_release: exponential, one against many",
        1.8,
    ),
    *((scaled(GroupFeatures, "diameter", 0.99), GROUPS + name, JUST) for name in SUMS_OF_GROUPS),
    # As if a unit that changes its group left one and came to none.
    (put(GroupFeatures, "diameter", property(lambda self: self.norm)), GROUPS + "a number", JUST),
    (counts_that_weigh_too_much, GROUPS + "a number", JUST),
    *((put(group_release, "CELLS_MOVEMENT", 1.98), GROUPS + name, JUST) for name in SOFT),
    (put(group_release, "CELLS_MOVEMENT", 1.0), GROUPS + "soft cells, a number", JUST),
    *((put(group_release, "ANSWERED_MOVEMENT", 1.98), GROUPS + name, JUST) for name in BESIDE),
    (weights_above_one("soft_cells"), GROUPS + "soft cells, numbers and categories", JUST),
    (weights_above_one("few_cells"), GROUPS + "four soft cells, numbers and a category", JUST),
    # Of an association nine tenths of a bound are found, so that a constant must be wrong by more.
    (scaled(association, "squared_movement", 0.8**2), PAIRS + "two numbers", JUST),
    (put(association, "squared_movement", without_products), PAIRS + "two numbers", JUST),
    (in_full(GaussianAssociation, "parts"), PAIRS + "two numbers", JUST),
    (scaled(association, "squared_movement_of_signs", 0.9**2), PAIRS + "two levels", JUST),
    *((scaled(association, "absolute_movement", 0.9), PAIRS + name, JUST) for name in PURE_PAIRS),
    # q at its whole weight, as if it moved only with r.
    *((put(pair_release, "CONVEX_WEIGHT", 1.0), PAIRS + name, JUST) for name in PURE_PAIRS[:2]),
    # Every column's own movement, and none of the pair's.
    (
        put(association, "absolute_movement", lambda columns, weights: 2 * columns * weights.rank),
        PAIRS + PURE_PAIRS[0],
        JUST,
    ),
    (put(LaplaceAssociation, "events", all_of_epsilon_each), PAIRS + PURE_PAIRS[0], JUST),
]
"""Each with a case that catches it, and how far beyond the promise its neighbours then lie at least.

That nothing is caught without them, test_sensitivity_of_releases.py says."""


@pytest.mark.parametrize(("plant", "case", "beyond"), MISTAKES, ids=[case for _, case, _ in MISTAKES])
def test_a_planted_mistake_is_caught(monkeypatch: Patch, plant: Plant, case: str, beyond: float) -> None:
    plant(monkeypatch)
    moved, allowed = largest_move(CASES[case])
    assert moved.gaussian > beyond * allowed.gaussian or moved.laplace > beyond * allowed.laplace


def test_units_whose_rows_are_summed_leave_the_grid(monkeypatch: Patch) -> None:
    units_weighed_by(lambda rows: rows)(monkeypatch)
    with pytest.raises(GridError):
        largest_move(CASES["distance_correlation: pnc, aligned, units of 3 rows"])


def test_pairs_in_the_order_of_the_tables_would_break_the_promise() -> None:
    """Tables ordered by units' names: the first unit is replaced by one whose name comes last."""
    values = np.arange(200) % 2
    moved = np.append(values[1:], 0)
    before, after = values - values, moved - values
    assert np.count_nonzero(np.sort(values) != np.sort(moved)) <= 1, "one unit was replaced"
    assert abs(np.sum(before**2) - np.sum(after**2)) > 190, "one pair moves this by at most 1"


def test_random_features_with_the_diameter_of_a_kernel_that_is_never_negative_are_caught() -> None:
    """The estimate of a Gaussian kernel by one frequency is a cosine: at half a turn it is -1."""
    features = features_of(release_study(domain(1), FOURIER | NARROW | {"n_frequencies": 1}))
    found = largest_change(features, Space(1), seed=5)
    assert found.value > 1.4 * math.sqrt(2)
    assert found.value <= features.diameter + 1e-9


def test_what_lies_between_the_points_of_a_grid_is_counted(monkeypatch: Patch) -> None:
    """At both ends and in the middle this frequency's product is 1; the search finds -1 between them."""
    monkeypatch.setattr("tacit_protocol.features.kernels.GRID_POINTS", 3)
    features = RandomFourier(np.array([[2 * np.pi], [2 * np.pi]]))
    assert features.diameter == 2
    assert largest_change(features, Space(1), seed=5).value > 1.99
