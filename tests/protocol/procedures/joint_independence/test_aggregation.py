"""Tests by aggregation: one unit moves the count by one, blocks reject as stated, p-values are exact."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from two_sample_cases import SeededNoise, domain_of

from tacit_protocol.domain import PooledTable
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures import aggregation
from tacit_protocol.procedures.aggregation import (
    BLOCK_PERMUTATIONS,
    REJECTIONS,
    VotesLaw,
    block_places,
    laplace_sum_tail,
)
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, planned
from tacit_protocol.procedures.independence.verdict import JointIndependenceDecision, JointIndependenceResult
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult

Floats = np.typing.NDArray[np.float64]

PROCEDURE = JointIndependence()

RIGHT, WRONG = {"n1": ["n0"]}, {"n0": ["n1"]}


def study_of(numeric: int = 2, parameters: dict[str, Any] | None = None, **given: Any) -> Study:
    asked = {"method": "aggregate"} | (parameters or {})
    return made_study(PROCEDURE.name, domain_of(numeric, ()), asked, **({"delta": 0.0} | given))


def linked(units: int, seed: int, correlation: float = 0.8) -> Floats:
    z = np.random.default_rng(seed).standard_normal((units, 2))
    z[:, 1] = correlation * z[:, 0] + math.sqrt(1 - correlation**2) * z[:, 1]
    return np.asarray(0.5 + 0.12 * z)


def rejecting(study: Study, values: Floats, order: int) -> int:
    table = rows_table(study.domain, values)
    return planned(PROCEDURE, study).summarise(table, np.random.default_rng(order)).votes


def largest_move(study: Study, tries: int) -> int:
    """Replace a unit in its place of the secret order, by random rows and by corners: the largest move."""
    rng, moved = np.random.default_rng(3), 0
    for order in range(tries):
        values = linked(40, order, correlation=0.4)
        before = rejecting(study, values, order)
        for _ in range(6):
            other = values.copy()
            other[rng.integers(40)] = rng.integers(0, 2, 2) if rng.random() < 0.7 else rng.random(2)
            moved = max(moved, abs(rejecting(study, other, order) - before))
    return moved


def overlapping(units: int, blocks: int) -> Iterator[slice]:
    """Plant: every block reaches into the next."""
    for place in block_places(units, blocks):
        yield slice(place.start, min(units, place.stop + units // blocks))


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_one_unit_moves_the_count_by_one_and_overlapping_blocks_are_caught(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(parameters={"blocks": 6, "kernel": kernel})
    assert largest_move(study, 30) == 1, "the bound holds, and is reached"
    monkeypatch.setattr(aggregation, "block_places", overlapping)
    assert largest_move(study, 30) == 2


def test_a_graphs_functions_are_fitted_inside_a_block() -> None:
    assert largest_move(study_of(parameters={"blocks": 6, "graph": RIGHT}), 4) <= 1


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
    study = study_of(parameters={"blocks": 150})
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


def test_one_noisy_count_leaves_in_pure_epsilon() -> None:
    study = study_of(delta=1e-5)
    summary, release = released(study, linked(200, 1))
    check_release(PROCEDURE, study, release)
    assert set(release.model_dump(exclude_defaults=True)) == {"units", "guarantee", "vectors"}
    assert [event.mechanism for event in release.guarantee.events] == ["laplace"]
    (vector,) = release.vectors.values()
    assert len(vector.values) == 1
    assert vector.scale == pytest.approx(1.0, rel=1e-6)
    assert "rejecting" not in repr(summary)
    verdict = PROCEDURE.assemble(study, {"owner-0": release})
    assert isinstance(verdict, JointIndependenceResult)
    statistic, pvalue = verdict
    assert statistic == vector.mean(1)[0]
    assert verdict.reject is (pvalue <= 0.05)
    assert verdict.blocks == REJECTIONS.blocks(200, 1.0) == 17
    assert PROCEDURE.null(study, verdict.model_dump(), {}) is not None


def test_the_noise_of_releases_is_that_of_the_noise_module() -> None:
    """With noise of nothing the count itself is released: all else in it is public."""

    class Nothing:
        def laplace(self, values: Any, scale: float) -> Any:
            assert scale == pytest.approx(2**24 / 0.5, rel=1e-6)
            return values

    study = study_of(epsilon=0.5)
    summary, release = released(study, linked(300, 2), Nothing())
    assert release.vectors["rejecting_blocks"].values == (summary.votes * 2**24,)


def test_a_release_of_fewer_units_than_blocks_take_is_refused() -> None:
    study = study_of()
    release = released(study, linked(200, 1))[1]
    with pytest.raises(ReleaseError):
        check_release(PROCEDURE, study, release.model_copy(update={"units": 4}))


@pytest.mark.sweep(1)
def test_owners_counts_add_up_without_a_curator() -> None:
    """Three owners of 150 units: none sees it alone, all together do in 9 of 10 runs (seeded)."""
    study = study_of(owners=3)
    alone = together = 0
    for run in range(10):
        releases = {}
        for place, owner in enumerate(study.owners):
            table = rows_table(study.domain, linked(150, 10 * run + place, correlation=0.6))
            summary = planned(PROCEDURE, study).summarise(table, np.random.default_rng(run))
            releases[owner.name] = PROCEDURE.privatise(study, summary, SeededNoise(10 * run + place))
        together += PROCEDURE.assemble(study, releases).reject
        alone += PROCEDURE.assemble(study_of(), {"owner-0": releases["owner-0"]}).reject
    assert together >= 8
    assert together > alone


def test_a_curator_tests_blocks_of_the_pooled_units() -> None:
    study = study_of(owners=2, curated=True)
    parts = {owner.name: rows_table(study.domain, linked(100, i)) for i, owner in enumerate(study.owners)}
    summary = PROCEDURE.summarise(study, PooledTable(study.domain, parts))
    release = PROCEDURE.privatise(study, summary, OpenDPNoise())
    check_release(PROCEDURE, study, release)
    assert PROCEDURE.assemble(study, {"curator": release}).units == {"owner-0": 100, "owner-1": 100}


@pytest.mark.sweep(1)
def test_independent_columns_are_rejected_at_the_level() -> None:
    """400 studies at level .05, epsilon 1, of 60 units: fails with probability below 1e-6 (exact tails)."""
    study, rng, rejected = study_of(parameters={"blocks": 5}), np.random.default_rng(9), 0
    for run in range(400):
        summary = planned(PROCEDURE, study).summarise(rows_table(study.domain, rng.random((60, 2))), rng)
        release = PROCEDURE.privatise(study, summary, SeededNoise(run))
        rejected += PROCEDURE.assemble(study, {"owner-0": release}).reject
    assert 2 <= rejected <= 46


def test_auto_looks_at_public_numbers_alone() -> None:
    def aggregates(**given: Any) -> bool:
        study = study_of(given.pop("numeric", 2), {"method": "auto"}, **given)
        PROCEDURE.check(study)
        return PROCEDURE.verdict_type(study) is JointIndependenceResult

    assert aggregates(epsilon=0.3, units=300), "a table of so few units is mostly noise"
    assert not aggregates(epsilon=0.3, units=1000)
    assert not aggregates(epsilon=1.0, units=300)
    assert aggregates(epsilon=0.3, units=1000, numeric=5)
    assert not aggregates(epsilon=1.0, units=300, owners=2)
    assert not aggregates(epsilon=1.0), "units that nobody declares are taken to be many"
    assert aggregates(epsilon=1.0, units=1000, numeric=20), "so many columns make no table"
    permuted = study_of(20, {"method": "auto"}, epsilon=5.0)
    assert PROCEDURE.verdict_type(permuted) is JointIndependenceDecision


def test_auto_takes_a_table_of_five_columns_of_500_units() -> None:
    asked = study_of(5, {"method": "auto"}, epsilon=1.0, units=500)
    assert PROCEDURE.with_defaults(asked) == asked
    assert PROCEDURE.verdict_type(asked) is CellsTableResult
    table = study_of(2, {"method": "table"}, units=500)
    bought = PROCEDURE.cost(table).events[0].epsilon / table.budget.epsilon
    assert bought == pytest.approx(0.36, abs=1e-5)


def test_auto_takes_a_kernel_that_is_named() -> None:
    def verdict(numeric: int, epsilon: float, **given: Any) -> type:
        study = study_of(numeric, {"method": "auto", "bandwidth": 0.2}, epsilon=epsilon, **given)
        PROCEDURE.check(study)
        return PROCEDURE.verdict_type(study)

    assert verdict(3, 0.1) is JointIndependenceResult
    assert verdict(2, 0.1) is JointIndependenceDecision
    assert verdict(2, 5.0, owners=2) is JointIndependenceResult
    assert verdict(3, 5.0) is JointIndependenceDecision


def test_a_study_that_says_nothing_takes_what_public_numbers_favour() -> None:
    def verdict(parameters: dict[str, Any], **given: Any) -> type:
        asked = made_study(PROCEDURE.name, domain_of(2, ()), parameters, **({"delta": 0.0} | given))
        study = PROCEDURE.with_defaults(asked)
        PROCEDURE.check(study)
        return PROCEDURE.verdict_type(study)

    assert verdict({}, epsilon=1.0, units=300) is CellsTableResult
    assert verdict({}, epsilon=1.0, units=300, owners=2) is CellsTableResult
    assert verdict({}, epsilon=0.1, units=300) is JointIndependenceResult
    assert verdict({"graph": RIGHT}, epsilon=1.0) is JointIndependenceResult
    assert verdict({"categories": 2}, epsilon=0.1, units=300) is CellsTableResult
    masks = {"aggregation": "masked", "colluders": 0}
    assert verdict(masks, epsilon=1.0, delta=1e-5, owners=2) is JointIndependenceResult


@pytest.mark.parametrize(("units", "epsilon", "cells"), [(300, 1.0, 3), (500, 1.0, 4), (1000, 1.0, 4)])
def test_a_table_has_four_cells_a_number_where_noise_leaves_room(
    units: int, epsilon: float, cells: int
) -> None:
    """Three cells find a ring in a part of 1000 units in .36 where four find .96 (epsilon 1)."""
    study = PROCEDURE.with_defaults(study_of(2, {"method": "auto"}, epsilon=epsilon, units=units))
    counts = PROCEDURE.release_size(study)
    assert counts == cells**2 + 2 * (cells - 1)


@pytest.mark.parametrize(
    ("numeric", "parameters", "message"),
    [
        (2, {"method": "permutation", "blocks": 9}, "of method aggregate"),
        (2, {"method": "permutation", "graph": RIGHT}, "of method aggregate"),
        (2, {"graph": {"n1": ["n0"], "n0": ["n1"]}}, "circle"),
        (2, {"graph": {"secret": ["n0"]}}, "children"),
        (2, {"graph": {"n1": ["secret"]}}, "parents"),
        (3, {"graph": RIGHT, "groups": [["n0", "n1"], ["n2"]]}, "groups"),
        (2, {"kernel": "linear", "bandwidth": 0.1}, "bandwidth"),
    ],
)
def test_wrong_parameters_are_refused(numeric: int, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message) as refused:
        PROCEDURE.check(study_of(numeric, parameters))
    assert "secret" not in str(refused.value)


def test_hopeless_numbers_are_said_before_anything_is_spent() -> None:
    assert PROCEDURE.warnings(study_of(), {"owner-0": 4})[0].startswith("Hopeless")
    assert PROCEDURE.warnings(study_of(), {"owner-0": 10})[0].startswith("Hopeless")
    assert PROCEDURE.warnings(study_of(), {"owner-0": 300}) == ()
    with pytest.raises(StudyError, match="at least 5 units"):
        PROCEDURE.check(study_of(units=4))


@pytest.mark.sweep(1)
def test_a_wrong_graph_is_found_and_the_right_one_seldom() -> None:
    """Blocks of 60 units that reject, of 12: about a third of them where the graph is right (seeded)."""
    rng = np.random.default_rng(4)
    cause = rng.uniform(-1, 1, 720)
    effect = cause**3 + cause + 0.4 * rng.uniform(-1, 1, 720)
    values = 0.5 + np.stack([cause, effect], axis=1) / 5
    counts = [rejecting(study_of(parameters={"blocks": 12, "graph": g}), values, 1) for g in (RIGHT, WRONG)]
    assert counts[0] <= 8
    assert counts[1] >= 9
