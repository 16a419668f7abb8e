"""Joint independence: decisions by permutation, and votes of blocks whose p-values are exact."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from threadpoolctl import threadpool_limits
from two_sample_cases import MemoryTable, SeededNoise, domain_of

from tacit_protocol.domain import PooledTable
from tacit_protocol.features.unit_gram import gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.permutation_test import permutation_decision
from tacit_protocol.procedures import aggregation
from tacit_protocol.procedures.aggregation import (
    BLOCK_PERMUTATIONS,
    REJECTIONS,
    VotesLaw,
    block_places,
    laplace_sum_tail,
)
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, planned
from tacit_protocol.procedures.joint_independence import (
    JointIndependence,
)
from tacit_protocol.procedures.permutation.statistic import permuted_statistics

Floats = np.typing.NDArray[np.float64]

PROCEDURE = JointIndependence()


def study_of(
    numeric: int, parameters: dict[str, Any] | None = None, categories: tuple[int, ...] = (), **given: Any
) -> Study:
    asked = {"method": "permutation"} | (parameters or {})
    return made_study(PROCEDURE.name, domain_of(numeric, categories), asked, **({"delta": 0.0} | given))


def table_of(study: Study, values: Floats, unit: Any = None, codes: Any = None) -> MemoryTable:
    return rows_table(study.domain, values, unit, codes)


def dependent(kind: str, units: int, seed: int = 0) -> Floats:
    z = np.random.default_rng(seed).standard_normal((units, 3))
    if kind == "linear":
        z[:, 1] = 0.6 * z[:, 0] + 0.8 * z[:, 1]
    if kind == "quadratic":
        z[:, 1] = (z[:, 0] ** 2 - 1 + z[:, 1]) / math.sqrt(3)
    if kind == "three variables":
        z[:, 2] = np.abs(z[:, 2]) * np.sign(z[:, 0] * z[:, 1])
    return np.asarray(0.5 + 0.15 * z[:, : 3 if kind == "three variables" else 2])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["linear", "quadratic", "three variables"])
def test_dependence_is_found(kind: str) -> None:
    """By each of five private decisions: at 1500 units the statistic is many scales above the noise."""
    values = dependent(kind, 1500)
    study = study_of(values.shape[1], {"permutations": 199}, epsilon=4.0)
    summary = PROCEDURE.summarise(study, table_of(study, values))
    assert all(PROCEDURE.privatise(study, summary, SeededNoise(i)).decision for i in range(5))


def independent(kind: str, rng: np.random.Generator, units: int, variables: int) -> Floats:
    if kind == "ties":
        return np.asarray(rng.integers(0, 2, (units, variables)).astype(np.float64))
    if kind == "heavy tails":
        return np.asarray(0.5 + 0.02 * rng.standard_cauchy((units, variables)))
    return rng.random((units, variables))


LEVEL_RUNS = 1000


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variables", [2, 3])
@pytest.mark.parametrize("kind", ["ties", "heavy tails", "uniform"])
def test_independence_is_rejected_at_most_at_the_level(kind: str, variables: int) -> None:
    """1000 tables of 12 units, 19 permutations each, level .1; each cell fails with probability below 1e-8.

    At epsilon 1 the noise decides, at 50 the data.
    """
    rng, noise = np.random.default_rng(7), SeededNoise(8)
    planned = study_of(variables, {"bandwidth": 0.3})
    plan = PROCEDURE.plan(planned)
    sensitivity, permuted = plan.sensitivities(12)
    rejected = {1.0: 0, 50.0: 0}
    with threadpool_limits(1):
        for run in range(LEVEL_RUNS):
            table = table_of(planned, independent(kind, rng, 12, variables))
            rows = gather_units(list(table.chunks()))
            grams = [plan.gram(names, rows) for names in plan.variables]
            values = permuted_statistics(grams, 19, np.random.SeedSequence(run))
            for epsilon in rejected:
                rejected[epsilon] += permutation_decision(
                    values, sensitivity, 0.1, Budget.of(epsilon, 0), noise, permuted_sensitivity=permuted
                )
    # Bernstein: P(Bin(1000, .1) > 100 + 60) < 1e-8.
    assert max(rejected.values()) <= 160
    if kind != "ties":
        assert min(rejected.values()) >= 50, "the level is exact where there are no ties"


def test_the_order_of_units_is_secret_so_that_the_tables_order_says_nothing() -> None:
    """The permutations are public: without a secret order, units that trade places would change them."""
    study = study_of(2, {"permutations": 99})
    table = table_of(study, dependent("linear", 30))
    one, other = (PROCEDURE.summarise(study, table).values for _ in range(2))
    assert one[0] == pytest.approx(other[0], abs=1e-12)
    assert not np.allclose(one[1:], other[1:])


def test_too_many_units_are_refused_before_any_row_is_read() -> None:
    class Unread:
        domain = domain_of(2)
        units = 150_000

        def chunks(self) -> Any:
            raise AssertionError("rows were read")

    with pytest.raises(StudyError, match="too many units"):
        PROCEDURE.summarise(study_of(2), Unread())
    with pytest.raises(StudyError, match="at least two units"):
        PROCEDURE.summarise(study_of(2), table_of(study_of(2), np.zeros((1, 2))))


@pytest.mark.parametrize("units", [1, 2**30])
def test_a_release_of_units_that_the_test_does_not_take_is_refused(units: int) -> None:
    study = study_of(2, {"permutations": 99})
    release = Release(units=units, guarantee=PROCEDURE.cost(study), decision=True)
    with pytest.raises(ReleaseError, match="number of units"):
        PROCEDURE.check_release(study, release)


# Tests by aggregation: one unit moves the count by one, blocks reject as stated, p-values are exact.


RIGHT, WRONG = {"n1": ["n0"]}, {"n0": ["n1"]}


def aggregated_study(numeric: int = 2, parameters: dict[str, Any] | None = None, **given: Any) -> Study:
    asked = {"method": "aggregate"} | (parameters or {})
    return made_study(PROCEDURE.name, domain_of(numeric, ()), asked, **({"delta": 0.0} | given))


def linked(units: int, seed: int, correlation: float = 0.8) -> Floats:
    z = np.random.default_rng(seed).standard_normal((units, 2))
    z[:, 1] = correlation * z[:, 0] + math.sqrt(1 - correlation**2) * z[:, 1]
    return np.asarray(0.5 + 0.12 * z)


def rejecting(study: Study, values: Floats, order: int) -> int:
    table = rows_table(study.domain, values)
    return planned(PROCEDURE, study).summarise(table, np.random.default_rng(order)).votes


def largest_move(study: Study, tries: int, enough: float = math.inf) -> int:
    """Replace a unit in its place of the secret order, by random rows and by corners: the largest move.

    The search ends at a move that is ``enough``.
    """
    rng, moved = np.random.default_rng(3), 0
    for order in range(tries):
        values = linked(40, order, correlation=0.4)
        before = rejecting(study, values, order)
        for _ in range(6):
            other = values.copy()
            other[rng.integers(40)] = rng.integers(0, 2, 2) if rng.random() < 0.7 else rng.random(2)
            moved = max(moved, abs(rejecting(study, other, order) - before))
        if moved >= enough:
            break
    return moved


def overlapping(units: int, blocks: int) -> Iterator[slice]:
    """Plant: every block reaches into the next."""
    for place in block_places(units, blocks):
        yield slice(place.start, min(units, place.stop + units // blocks))


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_one_unit_moves_the_count_by_one_and_overlapping_blocks_are_caught(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = aggregated_study(parameters={"blocks": 6, "kernel": kernel})
    assert largest_move(study, 30) == 1, "the bound holds, and is reached"
    monkeypatch.setattr(aggregation, "block_places", overlapping)
    assert largest_move(study, 30, 2) == 2


def test_a_graphs_functions_are_fitted_inside_a_block() -> None:
    assert largest_move(aggregated_study(parameters={"blocks": 6, "graph": RIGHT}), 4) <= 1


@pytest.mark.parametrize(("units", "blocks"), [(5, 1), (23, 4), (1000, 17), (1000, 45)])
def test_blocks_are_disjoint_and_hold_every_unit_once(units: int, blocks: int) -> None:
    places = list(block_places(units, blocks))
    sizes = [place.stop - place.start for place in places]
    assert [place.start for place in places] == [0, *(place.stop for place in places[:-1])]
    assert places[-1].stop == units
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["normal", "ties", "constant"])
def test_a_block_rejects_independent_units_just_as_often_as_stated(kind: str) -> None:
    """1500 blocks of 8 units: 6 standard deviations, so that each case fails with probability below 1e-8."""
    rng, found, runs = np.random.default_rng(5), 0, 10
    study = aggregated_study(parameters={"blocks": 150})
    for run in range(runs):
        values = rng.standard_normal((1200, 2)) * 0.1 + 0.5
        values = {"normal": values, "ties": (values > 0.55) * 1.0, "constant": np.full((1200, 2), 0.3)}[kind]
        found += rejecting(study, values, run)
    probability = REJECTIONS.probability
    spread = math.sqrt(150 * runs * probability * (1 - probability))
    assert abs(found - 150 * runs * probability) < 6 * spread


def test_ties_are_broken_by_lot() -> None:
    tied = np.zeros(BLOCK_PERMUTATIONS + 1)
    lots = (np.arange(1000) + 0.5) / 1000
    assert np.mean([REJECTIONS.of(tied, lot) for lot in lots]) == pytest.approx(
        REJECTIONS.probability, abs=1e-3
    )
    # Differences that roundings make are ties; others are not.
    first = tied.copy()
    first[0] = 1e-12
    assert not REJECTIONS.of(first, 0.999)
    first[0] = 1e-8
    assert REJECTIONS.of(first, 0.999)


@pytest.mark.parametrize("terms", [1, 2, 5, 40])
def test_the_tail_of_a_sum_of_laplace_noises_is_that_of_their_convolution(terms: int) -> None:
    """By the characteristic function, (1 + t^2)^-terms, inverted numerically."""
    t = np.linspace(1e-9, 400 / math.sqrt(terms), 400_001)
    for value in (-1.5, 0.0, 0.4, 2.0, 9.0):
        integral = np.trapezoid(np.sin(t * value) / t * (1 + t * t) ** -float(terms), t)
        expected = 0.5 - integral / math.pi
        assert laplace_sum_tail(np.array([value]), terms)[0] == pytest.approx(expected, abs=2e-5)


def test_the_p_value_is_never_below_the_exact_one_of_discrete_noise() -> None:
    """Of one owner P(L >= s) is q^s / (1 + q) for whole s > 0, else 1 - q^(1 - s) / (1 + q)."""
    law, bits = VotesLaw(9, 1, 1.0, 2.0**-24), 24
    ratio = math.exp(-(2.0**-bits))
    for value in (-3.0, 0.0, 2.7, 6.25, 12.0):
        exact = 0.0
        for count in range(10):
            steps = round((value - count) * 2**bits)
            upper = ratio**steps if steps > 0 else 1 + ratio - ratio ** (1 - steps)
            exact += math.comb(9, count) * 0.3**count * 0.7 ** (9 - count) * upper / (1 + ratio)
        assert exact <= law.tail(value) <= exact * (1 + 1e-6)
    assert law.tail(law.critical(0.05)) <= 0.05 < law.tail(law.critical(0.05) - 0.01)


def test_many_owners_law_is_worked_out_and_never_zero() -> None:
    law = VotesLaw(20_000, 500, 1.0, 2.0**-24)
    assert law.tail(law.mean) == pytest.approx(0.5, abs=0.01)
    assert 0 < law.tail(1e9) < 1e-29


def released(study: Study, values: Floats, noise: Any = None) -> Any:
    summary = PROCEDURE.summarise(study, rows_table(study.domain, values))
    return summary, PROCEDURE.privatise(study, summary, noise or OpenDPNoise())


def test_a_release_of_fewer_units_than_blocks_take_is_refused() -> None:
    study = aggregated_study()
    release = released(study, linked(200, 1))[1]
    with pytest.raises(ReleaseError):
        check_release(PROCEDURE, study, release.model_copy(update={"units": 4}))


@pytest.mark.sweep(1)
def test_owners_counts_add_up_without_a_curator() -> None:
    """Three owners of 150 units: none sees it alone, all together do in 9 of 10 runs (seeded)."""
    study = aggregated_study(owners=3)
    alone = together = 0
    for run in range(10):
        releases = {}
        for place, owner in enumerate(study.owners):
            table = rows_table(study.domain, linked(150, 10 * run + place, correlation=0.6))
            summary = planned(PROCEDURE, study).summarise(table, np.random.default_rng(run))
            releases[owner.name] = PROCEDURE.privatise(study, summary, SeededNoise(10 * run + place))
        together += PROCEDURE.assemble(study, releases).reject
        alone += PROCEDURE.assemble(aggregated_study(), {"owner-0": releases["owner-0"]}).reject
    assert together >= 8
    assert together > alone


def test_a_curator_tests_blocks_of_the_pooled_units() -> None:
    study = aggregated_study(owners=2, curated=True)
    parts = {owner.name: rows_table(study.domain, linked(100, i)) for i, owner in enumerate(study.owners)}
    summary = PROCEDURE.summarise(study, PooledTable(study.domain, parts))
    release = PROCEDURE.privatise(study, summary, OpenDPNoise())
    check_release(PROCEDURE, study, release)
    assert PROCEDURE.assemble(study, {"curator": release}).units == {"owner-0": 100, "owner-1": 100}


@pytest.mark.sweep(1)
def test_independent_columns_are_rejected_at_the_level() -> None:
    """400 studies at level .05, epsilon 1, of 60 units: fails with probability below 1e-6 (exact tails)."""
    study, rng, rejected = aggregated_study(parameters={"blocks": 5}), np.random.default_rng(9), 0
    for run in range(400):
        summary = planned(PROCEDURE, study).summarise(rows_table(study.domain, rng.random((60, 2))), rng)
        release = PROCEDURE.privatise(study, summary, SeededNoise(run))
        rejected += PROCEDURE.assemble(study, {"owner-0": release}).reject
    assert 2 <= rejected <= 46


@pytest.mark.parametrize(("units", "epsilon", "cells"), [(300, 1.0, 3), (500, 1.0, 4), (1000, 1.0, 4)])
def test_a_table_has_four_cells_a_number_where_noise_leaves_room(
    units: int, epsilon: float, cells: int
) -> None:
    """Three cells find a ring in a part of 1000 units in .36 where four find .96 (epsilon 1)."""
    study = PROCEDURE.with_defaults(aggregated_study(2, {"method": "auto"}, epsilon=epsilon, units=units))
    counts = PROCEDURE.release_size(study)
    assert counts == cells**2 + 2 * (cells - 1)


def test_hopeless_numbers_are_said_before_anything_is_spent() -> None:
    assert PROCEDURE.warnings(aggregated_study(), {"owner-0": 4})[0].startswith("Hopeless")
    assert PROCEDURE.warnings(aggregated_study(), {"owner-0": 10})[0].startswith("Hopeless")
    assert PROCEDURE.warnings(aggregated_study(), {"owner-0": 300}) == ()


@pytest.mark.sweep(1)
def test_a_wrong_graph_is_found_and_the_right_one_seldom() -> None:
    """Blocks of 60 units that reject, of 12: about a third of them where the graph is right (seeded)."""
    rng = np.random.default_rng(4)
    cause = rng.uniform(-1, 1, 720)
    effect = cause**3 + cause + 0.4 * rng.uniform(-1, 1, 720)
    values = 0.5 + np.stack([cause, effect], axis=1) / 5
    counts = [
        rejecting(aggregated_study(parameters={"blocks": 12, "graph": g}), values, 1) for g in (RIGHT, WRONG)
    ]
    assert counts[0] <= 8
    assert counts[1] >= 9
