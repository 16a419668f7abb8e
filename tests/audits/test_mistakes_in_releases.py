"""Mistakes planted in what procedures release: the audits' search finds neighbours that are told apart."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audited_procedures import CASES
from audited_studies import domain
from mean_cases import FOURIER, NARROW, release_study
from release_audit import largest_move

from tacit.testing.neighbour_search import Space, largest_change
from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import additive, aligned_sums, moments, private_cells, sketches
from tacit_protocol.features.additive import ColumnWise
from tacit_protocol.features.aligned_sums import RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.cell_means import CellsOfColumns
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.kernels import DistanceKernel, RandomFourier
from tacit_protocol.features.moments import MomentShares, sum_features, sum_sensitivity
from tacit_protocol.features.private_cells import ColumnCells
from tacit_protocol.privacy import laplace_mechanism
from tacit_protocol.privacy.exact_sums import GridError
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.k_norm_mechanism import ProductBody
from tacit_protocol.procedures.counts import release as counts_release
from tacit_protocol.procedures.curated_distance_correlation import plan as distance_plan
from tacit_protocol.procedures.curated_distance_correlation import release as distance_release
from tacit_protocol.procedures.curated_two_sample import release as curated_release
from tacit_protocol.procedures.curated_two_sample.permuted_means import PermutedFeatures
from tacit_protocol.procedures.curated_two_sample.release import ridge_sensitivity
from tacit_protocol.procedures.embedding_release import features_of
from tacit_protocol.procedures.embedding_release import release as embedding_release
from tacit_protocol.procedures.embedding_release.release import HistogramsThenMean, HistogramSums
from tacit_protocol.procedures.joint_independence import plan as joint_independence
from tacit_protocol.procedures.screening.answered import CountedScreening
from tacit_protocol.procedures.two_sample import release as kernel_release

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]
Patch = pytest.MonkeyPatch
BOUND = additive.squared_movement_max


def diameter_of_columns(patch: Patch) -> None:
    stated = vars(ColumnWise)["diameter"].fget
    patch.setattr(ColumnWise, "diameter", property(lambda self: 0.9 * stated(self)))


def polynomials_that_do_not_move(patch: Patch) -> None:
    """The movement of the waves alone, for parts that have P1 and P2 too."""

    def waves(cycles: tuple[float, ...], weights: tuple[float, ...], moments: float = 0.0) -> float:
        return BOUND(cycles, weights) * sum(weights) / (sum(weights) + moments)

    patch.setattr(additive, "squared_movement_max", waves)


def second_moments_that_forget_the_mean(patch: Patch) -> None:
    """Each part calibrated to the whole mu, as if the other were not released."""
    patch.setattr(kernel_release, "MomentShares", lambda *_: MomentShares(1.0, 1.0))


def difference_of_means(patch: Patch) -> None:
    patch.setattr(curated_release, "sum_sensitivity", lambda *given: 0.9 * sum_sensitivity(*given))


def ridge_statistic(patch: Patch) -> None:
    patch.setattr(curated_release, "ridge_sensitivity", lambda *given: 0.9 * ridge_sensitivity(*given))


def permuted_distances(patch: Patch) -> None:
    stated = PermutedFeatures.sensitivity
    patch.setattr(PermutedFeatures, "sensitivity", lambda self, units: 0.9 * stated(self, units))


def observed_statistic_alone(patch: Patch) -> None:
    """The sharper bound holds for the data as they are; permuted data move by more."""
    patch.setattr(joint_independence, "permuted_sensitivity", joint_independence.observed_sensitivity)


def roots_two_percent_too_small(patch: Patch) -> None:
    stated = distance_release.deviation_sensitivity
    patch.setattr(distance_release, "deviation_sensitivity", lambda units: 0.98 * stated(units))


def squares_to_first_order(patch: Patch) -> None:
    """27/32 belongs to the squared variance; its root moves by 2."""
    patch.setattr(distance_release, "deviation_sensitivity", lambda units: 27 / 32 / units)


def each_root_as_if_alone(patch: Patch) -> None:
    parts: Any = distance_plan.release_parts
    patch.setattr(
        distance_plan, "release_parts", lambda *given: tuple(replace(p, share=1.0) for p in parts(*given))
    )


def decision_for_the_data_as_they_are(patch: Patch) -> None:
    """Permuted data move by 4/n, twice as much."""
    stated = distance_release.deviation_sensitivity
    patch.setattr(distance_plan, "permuted_sensitivity", lambda units, _: stated(units))


def origin_far_from_the_data(patch: Patch) -> None:
    """With o at 3/2 of everything k is up to 3, and three variables move by too much."""
    right = DistanceKernel._induced
    patch.setattr(DistanceKernel, "_induced", staticmethod(lambda x, t: right(x, t) + 2))


def diameter_of_a_sketch(patch: Patch) -> None:
    patch.setattr(BrownianFeatures, "diameter", property(lambda self: 0.9))


def unit_in_two_buckets(patch: Patch) -> None:
    once = sketches.add_signed

    def twice(sketch: Integers, steps: Floats, codes: Integers) -> None:
        once(sketch, steps, codes)
        once(sketch, steps, (codes + 2) % (2 * len(sketch)))

    patch.setattr(sketches, "add_signed", twice)


def units_weighed_by(weight: Callable[[Integers], Any]) -> Callable[[Patch], None]:
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


def noise_for_one_column(patch: Patch) -> None:
    """A person has all of the columns."""
    patch.setattr(sketches, "_root_of_squares", max)


def mean_that_costs_nothing(patch: Patch) -> None:
    """The mean calibrated to the whole budget, as if the sketch were not released."""
    right = sketches.SumPart

    def whole(name: str, *fields: Any) -> SumPart:
        part = right(name, *fields)
        return replace(part, share=1.0) if name == "mean" else part

    patch.setattr(sketches, "SumPart", whole)


def laplace_noise_for_the_l2_sensitivity(patch: Patch) -> None:
    patch.setattr(laplace_mechanism, "l1_sensitivity", lambda part: part.sensitivity)


def histograms_of_one_column(patch: Patch) -> None:
    patch.setattr(ColumnHistograms, "l2_sensitivity", math.sqrt(2))
    patch.setattr(ColumnHistograms, "l1_sensitivity", 2.0)


def histograms_and_mean_in_full(patch: Patch) -> None:
    """Each spends the whole budget."""
    right = HistogramsThenMean.parts

    def whole(*given: Any, **named: Any) -> tuple[SumPart, ...]:
        return tuple(replace(part, share=1.0) for part in right(*given, **named))

    patch.setattr(HistogramsThenMean, "parts", whole)


def points_drawn_from_the_exact_histograms(patch: Patch) -> None:
    """The mean's coordinates then depend on the data in a second way."""
    right = HistogramsThenMean.adapted

    def peeking(self: HistogramsThenMean, sums: HistogramSums, noise: Any) -> HistogramSums:
        found = right(self, sums, noise)
        exact = found.noisy.model_copy(update={"values": tuple(sums.steps.tolist())})
        features = self.drawn(exact, sums.units).features
        return replace(found, then=sum_features(features, sums.table, products=False, bits=sums.bits))

    patch.setattr(HistogramsThenMean, "adapted", peeking)


def one_cell_for_a_replaced_unit(patch: Patch) -> None:
    """The unit leaves one cell and enters another: 2."""
    patch.setattr(counts_release, "L1_SENSITIVITY", 1.0)


def noise_for_one_table(patch: Patch) -> None:
    """A unit is counted in a table of every column: 2 in L1 for each, the root of 2 in L2."""
    patch.setattr(CountedScreening, "tables_of_unit", 1)


def cuts_of_each_column_in_full(patch: Patch) -> None:
    """The two columns' cuts share the part that buys them; here each has all of it."""
    right = ColumnCells.draw_cuts
    patch.setattr(
        ColumnCells, "draw_cuts", lambda self, values, own, source: right(self, values, 2 * own, source)
    )


def half_the_sensitivity_of_cuts(patch: Patch) -> None:
    patch.setattr(private_cells, "CUT_SENSITIVITY", 0.5)


def half_the_sensitivity_of_a_distance(patch: Patch) -> None:
    right = embedding_release.sum_sensitivity
    patch.setattr(embedding_release, "sum_sensitivity", lambda *given: right(*given) / 2)


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


def one_fine_cell_for_a_replaced_unit(patch: Patch) -> None:
    """Half of what a unit moves that leaves one cell for another."""
    stated = CellsOfColumns.fine_sensitivity
    patch.setattr(CellsOfColumns, "fine_sensitivity", lambda self, bits: stated(self, bits) / 2)


def fine_cells_of_one_column(patch: Patch) -> None:
    """A unit's cells of one column, where it moves those of all."""
    patch.setattr(CellsOfColumns, "fine_sensitivity", lambda self, bits: 2 * (1 + 2.0 ** (8 - bits)))


MISTAKES: list[tuple[Callable[[Patch], None], str, float]] = [
    (diameter_of_columns, "kernel_two_sample: columns, mixed", 1.05),
    (diameter_of_columns, "kernel_two_sample: moments, columns, mixed", 1.05),
    (polynomials_that_do_not_move, "kernel_two_sample: moments, columns, mixed", 1.05),
    (k_norm_of_smaller_moves, "kernel_two_sample: K-norm, mixed", 1.005),
    (units_in_two_cells, "kernel_two_sample: K-norm, pairs, mixed", 1.9),
    (one_fine_cell_for_a_replaced_unit, "kernel_two_sample: K-norm, fine cells", 1.15),
    (one_fine_cell_for_a_replaced_unit, "kernel_two_sample: K-norm, fine cells, mixed", 1.15),
    (fine_cells_of_one_column, "kernel_two_sample: K-norm, fine cells, mixed", 1.15),
    (polynomials_that_do_not_move, "curated_two_sample: default, mixed, 1 : 4", 1.01),
    (second_moments_that_forget_the_mean, "kernel_two_sample: ME, narrow", 1.2),
    (difference_of_means, "curated_two_sample: columns, 1 : 30, units of 4 rows", 1.05),
    (difference_of_means, "curated_two_sample: columns, 1 number", 1.05),
    (ridge_statistic, "curated_two_sample: statistic", 1.05),
    (permuted_distances, "curated_two_sample: permutation, 1 : 3", 1.05),
    (observed_statistic_alone, "joint_independence: 2 variables", 1.05),
    (one_cell_for_a_replaced_unit, "joint_independence: table, 2 categories", 1.9),
    (cuts_of_each_column_in_full, "joint_independence: table, 2 numbers", 1.2),
    (half_the_sensitivity_of_cuts, "joint_independence: table, 2 numbers", 1.2),
    (one_cell_for_a_replaced_unit, "curated_two_sample: table, 1 number", 1.2),
    (half_the_sensitivity_of_cuts, "curated_two_sample: table, 1 number", 1.1),
    (one_cell_for_a_replaced_unit, "curated_distance_correlation: table, 2 numbers", 1.2),
    (origin_far_from_the_data, "joint_independence: 3 variables, distances", JUST),
    (roots_two_percent_too_small, "curated_distance_correlation: 2 numbers", JUST),
    (squares_to_first_order, "curated_distance_correlation: 2 numbers", JUST),
    (each_root_as_if_alone, "curated_distance_correlation: 2 numbers", JUST),
    (decision_for_the_data_as_they_are, "curated_distance_correlation: 2 numbers, with the test", JUST),
    (diameter_of_a_sketch, SKETCH + "1 number", JUST),
    (unit_in_two_buckets, SKETCH + "1 number", JUST),
    (units_weighed_by(lambda rows: np.minimum(rows, 1.4)), SKETCH + "aligned, a unit of 1 row or of 5", JUST),
    (places_that_follow_values, SKETCH + "aligned, a unit of 1 row or of 5", JUST),
    (
        places_that_follow_values,
        CORRELATION + "pnc-disjoint, aligned, a unit of 4 rows or of 1",
        JUST,
    ),
    (noise_for_one_attribute, "distance_correlation: pnc, 3 numbers", JUST),
    (noise_for_one_column, "screening: sketch, 3 columns", JUST),
    (diameter_of_a_sketch, "screening: sketch, 3 columns", JUST),
    (mean_that_costs_nothing, "screening: sketch, 3 columns", JUST),
    (noise_for_one_table, "screening: beside answers, 20 groups", 19),
    (noise_for_one_table, "screening: beside answers, 20 groups, Gaussian", 4),
    (laplace_noise_for_the_l2_sensitivity, "embedding_release: subspace, 2 narrow points, Laplace", 1.4),
    (histograms_of_one_column, "embedding_release: histograms, categories", 1.1),
    (histograms_of_one_column, "embedding_release: histograms, Laplace", 1.2),
    (histograms_and_mean_in_full, "embedding_release: histograms, categories", 1.4),
    (points_drawn_from_the_exact_histograms, "embedding_release: histograms, narrow", 1.15),
    (half_the_sensitivity_of_a_distance, "embedding_release: exponential, one against many", 1.8),
]
"""Each with a case that catches it, and how far beyond the promise its neighbours then lie at least.

That nothing is caught without them, test_sensitivity_of_releases.py says."""


@pytest.mark.parametrize(("plant", "case", "beyond"), MISTAKES)
def test_a_planted_mistake_is_caught(
    monkeypatch: Patch, plant: Callable[[Patch], None], case: str, beyond: float
) -> None:
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
