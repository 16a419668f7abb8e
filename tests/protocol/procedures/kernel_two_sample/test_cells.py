"""Cells and means under K-norm noise, and fine cells: moves, laws, level, power, choice by public numbers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from planted import with_mistake
from scipy import stats
from two_sample_cases import MemoryTable, SeededNoise, domain_of, study_of, verdict_of

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import cell_means
from tacit_protocol.features.cell_means import FINE_CELLS, FINE_COUNTS, CellFeatures, waves
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import compose_epsilon_micro, fits
from tacit_protocol.privacy.exact_sums import unit_averages
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import factor_points
from tacit_protocol.procedures.base import StudyError, planned
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample, fitting_noise
from tacit_protocol.procedures.means import private_means as max_form
from tacit_protocol.procedures.means.private_means import RARE_UNITS, PrivateMeans
from tacit_protocol.procedures.two_sample.release import (
    fine_guarantees,
)
from tacit_protocol.procedures.two_sample.verdict import FINER, TwoSampleResult, two_sample_meaning
from tacit_services.agent.study.policy import Policy

PROCEDURE = KernelTwoSample()
FALSE_ALARM = 1e-7
FEW: dict[str, Any] = {"noise": "k-norm"}


def few_study(columns: int, categories: tuple[int, ...] = (), epsilon: float = 1.0, **given: Any) -> Study:
    study = study_of(domain_of(columns, categories), FEW | given, epsilon=epsilon)
    return study.model_copy(update={"budget": Budget.of(epsilon, 0)})


def drawn(study: Study, n: int, rng: np.random.Generator, shift: float = 0.0) -> MemoryTable:
    numeric = np.clip(0.5 + 0.125 * (rng.standard_normal((n, len(study.domain.numeric))) + shift), 0, 1)
    codes = rng.integers(0, 2, (n, len(study.domain.categorical))).astype(np.int32)
    return MemoryTable(study.domain, numeric, codes)


def verdicts(study: Study, n: int, runs: int, shift: float = 0.0, owners: int = 2) -> list[TwoSampleResult]:
    rng, found = np.random.default_rng(17), []
    for run in range(runs):
        tables = [drawn(study, n, rng, shift * (place > 0)) for place in range(owners)]
        found.append(verdict_of(study, tables, SeededNoise(run)))
    return found


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("columns", "n", "epsilon", "given"),
    [
        (1, 60, 0.3, {}),
        (1, 60, 5.0, {"resolution": 12}),
        (2, 400, 3.0, {"resolution": 4}),
        (50, 1000, 1.0, {"features": "columns", "resolution": 4}),
    ],
)
def test_the_level_is_kept(columns: int, n: int, epsilon: float, given: dict[str, Any]) -> None:
    runs = 300
    found = verdicts(few_study(columns, epsilon=epsilon, **given), n, runs)
    for level in (0.05, 0.01):
        rejected = sum(verdict.pvalue <= level for verdict in found)
        assert rejected <= stats.binom.isf(FALSE_ALARM, runs, level)


SPIKES = ("one value", "two values", "ends", "few levels")


@pytest.mark.parametrize("kind", SPIKES)
@pytest.mark.parametrize(("units", "epsilon"), [((80, 1500), 5.0), ((400, 400), 1.0)])
def test_the_level_is_kept_for_spikes_ties_and_unequal_owners(
    kind: str, units: tuple[int, int], epsilon: float
) -> None:
    """Binomial, 1e-7 each: two columns and their pair, one of three levels of which one is rare."""
    runs, rng, rejected = 150, np.random.default_rng(31), 0
    study = few_study(1, (5,), epsilon, resolution=5)
    for run in range(runs):
        tables = []
        for n in units:
            u = {
                "one value": np.full(n, 0.4),
                "two values": rng.choice([0.5, 1.0], n, p=[0.98, 0.02]),
                "ends": rng.choice([0.0, 1.0], n),
                "few levels": np.rint(5 * rng.uniform(size=n)) / 5,
            }[kind]
            codes = rng.choice(4, n, p=[0.6, 0.37, 0.01, 0.02]).astype(np.int32)
            tables.append(MemoryTable(study.domain, u[:, None], codes[:, None]))
        rejected += pvalue_of(study, tables, run) <= 0.05
    assert rejected <= stats.binom.isf(FALSE_ALARM, runs, 0.05)


def pvalue_of(study: Study, tables: list[MemoryTable], run: int) -> float:
    """The overall p-value alone: effects take longer than the test."""
    plan, noise = PROCEDURE.plan(study), SeededNoise(run)
    releases = [PROCEDURE.privatise(study, PROCEDURE.summarise(study, table), noise) for table in tables]
    return plan.test.run(plan.evidence(releases)).pvalue


def bimodal(n: int, rng: np.random.Generator) -> Any:
    return rng.choice([-0.9, 0.9], n) + 0.436 * rng.standard_normal(n)


def two_columns(n: int, correlation: float, rng: np.random.Generator) -> Any:
    rows = rng.standard_normal((n, 2))
    rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 1]
    return rows


@pytest.mark.parametrize("what", ["bimodal", "correlation", "trend"])
def test_the_default_sees_shapes_pairs_and_trends(what: str) -> None:
    """As chosen from public numbers, n = 1000, epsilon = 1: today's best ways see these mostly.

    In simulations 1.0, 1.0 and .8; before there were cells .15, .00 and .3.
    """
    n, runs, seen, rng = 1000, 40, 0, np.random.default_rng(37)
    columns, levels = {"bimodal": (1, ()), "correlation": (2, ()), "trend": (0, (12,))}[what]
    study = few_study(columns, levels)
    study = study.model_copy(update={"parameters": fitting_noise(open_study(columns, levels), n)})
    trend = 1 + 0.35 * np.linspace(-1, 1, 10)
    for run in range(runs):
        tables = []
        for other in (False, True):
            rows = rng.standard_normal((n, columns))
            codes = np.zeros((n, 0), np.int32)
            if what == "bimodal" and other:
                rows = bimodal(n, rng)[:, None]
            elif what == "correlation":
                rows = two_columns(n, 0.5 * other, rng)
            elif what == "trend":
                codes = rng.choice(10, (n, 1), p=trend / 10 if other else None).astype(np.int32)
            tables.append(MemoryTable(study.domain, np.clip(0.5 + rows / 8, 0, 1), codes))
        seen += pvalue_of(study, tables, run) <= 0.05
    assert seen > stats.binom.isf(FALSE_ALARM, runs, 0.2)


TAILS = {
    "one": CellFeatures(1, (), 5, pairs=False),
    "squares": CellFeatures(2, (), 8, pairs=False),
    "pairs": CellFeatures(3, (), 4, pairs=True),
    "ten levels": CellFeatures(0, (10,), 5, pairs=False),
    "50": CellFeatures(50, (), 4, pairs=False),
    "60": CellFeatures(60, (), 4, pairs=False),
}
"""Of 6 to 300 numbers."""


@pytest.mark.parametrize("name", TAILS)
def test_tails_of_two_owners_noise_are_those_of_draws(name: str) -> None:
    """The difference of two owners' noise, at four places, against draws: binomial, two sides.

    A part in 25 is left aside for the law's own points.
    """
    cells, rng, draws = TAILS[name].cells, np.random.default_rng(29), 200_000
    law, rows = cells.law, cells.rows
    for kind in range(len(law.weights)):
        row = rows[law.kinds.index(kind)]
        apart = np.zeros(draws)
        for sign in (1, -1):
            sums = np.zeros(draws)
            for start, size in zip(cells.body.starts, cells.body.sizes, strict=True):
                own = row[start : start + size]
                if np.any(own):
                    sums += factor_points(size, draws, rng) @ own
            apart += sign * rng.gamma(law.dimension + 1, size=draws) * sums
        apart = np.abs(apart) / law.of_kinds[kind]
        for place in (0.5, 1.5, 2.5, 3.2):
            tail = max_form.k_norm_tail(place, 1e-6, law, kind, np.array([1.0, -1.0]))
            beyond = int(np.count_nonzero(apart > place))
            low = stats.binomtest(beyond, draws, tail * 0.96, alternative="greater").pvalue
            high = stats.binomtest(beyond, draws, tail * 1.04, alternative="less").pvalue
            assert low > FALSE_ALARM or beyond <= draws * tail * 1.04
            assert high > FALSE_ALARM or beyond >= draws * tail * 0.96


def test_half_a_standard_deviation_is_seen_and_stated_in_the_columns_own_units() -> None:
    runs, covered = 200, 0
    found = verdicts(few_study(1, resolution=4), 300, runs, 0.5)
    for verdict in found:
        (effect,) = verdict.effects
        assert effect.kind == "mean difference"
        covered += effect.lower <= -0.0625 <= effect.upper
    assert np.mean([verdict.reject for verdict in found]) > 0.9
    assert covered >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)
    assert found[0].squared_mmd is None


def test_squares_tell_standard_deviations() -> None:
    """Deviations of 1/8 and 3/16, n = 3000: coverage binomial at 1e-7."""
    study, rng, runs, covered = few_study(1, resolution=8), np.random.default_rng(23), 100, 0
    empty = np.zeros((3000, 0), np.int32)
    for run in range(runs):
        numbers = [0.5 + spread * rng.standard_normal((3000, 1)) for spread in (0.08, 0.12)]
        tables = [MemoryTable(study.domain, np.clip(own, 0, 1), empty) for own in numbers]
        told = {effect.kind: effect for effect in verdict_of(study, tables, SeededNoise(run)).effects}
        ratio = told["standard deviation ratio"]
        covered += ratio.lower <= 2 / 3 <= ratio.upper
    assert covered >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)


def test_a_spread_is_seen() -> None:
    """150 units a side, deviations of 1/8 and 3/16: .7 in simulations."""
    study, rng, runs = few_study(1, resolution=4), np.random.default_rng(23), 120
    empty, seen = np.zeros((150, 0), np.int32), 0
    for run in range(runs):
        numbers = [0.5 + spread * rng.standard_normal((150, 1)) for spread in (0.125, 0.1875)]
        tables = [MemoryTable(study.domain, np.clip(own, 0, 1), empty) for own in numbers]
        seen += pvalue_of(study, tables, run) <= 0.05
    assert seen > stats.binom.isf(FALSE_ALARM, runs, 0.4)


@pytest.mark.parametrize("cells", range(2, 65))
def test_waves_are_orthonormal_and_span_all_differences(cells: int) -> None:
    np.testing.assert_allclose(waves(cells) @ waves(cells).T, np.eye(cells), atol=1e-9)


@pytest.mark.parametrize("resolution", [2, 4, 5, 8, 12])
@pytest.mark.parametrize("kind", ["normal", "two values", "uniform", "ends"])
@pytest.mark.parametrize("pairs", [False, True])
def test_variances_are_bounds_where_nothing_is_noisy(resolution: int, kind: str, pairs: bool) -> None:
    """Exact means of a thousand million units: no bound is below the variance, and contrasts' are exact."""
    features, rng = CellFeatures(1, (3,), resolution, pairs=pairs), np.random.default_rng(4)
    u = {
        "normal": np.clip(0.5 + 0.125 * rng.standard_normal((50_000, 1)), 0, 1),
        "two values": rng.choice([0.5, 1.0], (50_000, 1), p=[0.8, 0.2]),
        "uniform": rng.uniform(size=(50_000, 1)),
        "ends": rng.choice([0.0, 0.25, 1.0], (50_000, 1)),
    }[kind]
    rows = SimpleNamespace(numeric=u, categorical=rng.integers(0, 5, (50_000, 1)))
    read = features.cells.read(features.cells(rows))
    means = PrivateMeans(np.tile(read.mean(axis=0), (2, 1)), np.full(2, 1e9), np.zeros(2))
    bounds = max_form.cell_variances(features.cells, means)[0]
    for contrast in (own for group in features.cells.groups for own in group.contrasts):
        exact = read[:, contrast.place].var()
        assert bounds[contrast.place] >= exact * (1 - 1e-6)
        if not contrast.spread or contrast.square is not None:
            assert bounds[contrast.place] == pytest.approx(exact, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("pairs", [False, True])
def test_cells_that_are_left_out_are_read_again(pairs: bool) -> None:
    """Shares of all cells, and the mean, from what is summed; a level that is not listed has no cell."""
    features, rng = CellFeatures(1, (3,), 4, pairs=pairs), np.random.default_rng(6)
    u, codes = rng.uniform(size=(900, 1)) ** 2, rng.integers(0, 4, (900, 1))
    cells = features.cells
    read = cells.read(cells(SimpleNamespace(numeric=u, categorical=codes)).mean(axis=0))
    raw = read / np.array([coordinate.scale for coordinate in cells.coordinates])
    assert cells.body.sizes == ((4 * 4 - 1, 1) if pairs else (4 - 1, 3, 1))
    for column, shares in enumerate((np.bincount((4 * u[:, 0]).astype(int)), np.bincount(codes[:, 0])[:3])):
        start = cells.column_groups[column][0] + (column == 0)
        np.testing.assert_allclose(raw[start : start + len(shares)], shares / 900, atol=1e-12)
    assert raw[0] == pytest.approx(float(2 * u.mean() - 1))


def test_three_owners_and_categories_are_compared() -> None:
    study = few_study(1, (4,), 3.0, resolution=5)
    study = study.model_copy(
        update={"owners": (*study.owners, study.owners[0].model_copy(update={"name": "z"}))}
    )
    rng = np.random.default_rng(2)
    tables = [drawn(study, 800, rng) for _ in study.owners]
    tables[2].categorical[:] = 0
    verdict = verdict_of(study, tables, SeededNoise(1))
    assert [column.reject for column in verdict.columns if column.kind == "column"] == [False, True]
    assert [pair.reject for pair in verdict.pairs] == [False, True, True]


def test_pvalues_that_forget_the_noise_are_caught() -> None:
    planted = with_mistake(
        max_form,
        "float(spread[place]), law, kind, noise[:, place]",
        "float(spread[place]), law, kind, 0.2 * noise[:, place]",
    )
    cells, rng = CellFeatures(1, (), 4, pairs=False).cells, np.random.default_rng(0)
    wrong = right = 0
    place = cells.groups[0].contrasts[1].place
    for _ in range(200):
        noise = rng.gamma(cells.body.dimension + 1, 1.0, (2, 1)) * cells.body.points(2, rng)
        means = PrivateMeans(0.05 * cells.read(noise), np.full(2, 1e4), np.full(2, 0.05))
        variances = np.full((2, len(cells.rows)), 0.1)
        right += max_form.k_norm_pvalues(means, variances, cells.law, [place])[1][0] <= 0.05
        wrong += planted.k_norm_pvalues(means, variances, cells.law, [place])[1][0] <= 0.05
    assert right <= stats.binom.isf(FALSE_ALARM, 200, 0.08)
    assert wrong > stats.binom.isf(FALSE_ALARM, 200, 0.05)


def open_study(columns: int, categories: tuple[int, ...] = (), delta: float = 0.0) -> Study:
    study = study_of(domain_of(columns, categories), {}, epsilon=1.0)
    return study.model_copy(update={"budget": Budget.of(1.0, delta)})


def test_resolution_grows_with_units_and_never_falls() -> None:
    found = [fitting_noise(open_study(1), 10**power)["resolution"] for power in range(2, 8)]
    assert found == sorted(found)
    assert found[0] == 4
    assert found[-1] > 16


def test_an_account_of_this_procedure_alone_keeps_its_whole_gaussian_share() -> None:
    """The pure studies that its analysts may ask for take nobody's share; the owner states one for them."""
    rules: dict[str, Any] = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-5, "analysts": ("*",)}
    policy = Policy(**rules, procedures=("kernel_two_sample",))
    assert policy.families(PROCEDURES) == frozenset({"gaussian"})
    without = Policy(**(rules | {"delta_per_study_max": 0.0}), procedures=("kernel_two_sample",))
    assert without.families(PROCEDURES) == frozenset({"pure"})


# Fine cells: what one unit moves, what they are bought with, their law, level and power, refusals.


FINE: dict[str, Any] = {"noise": "k-norm", "features": "columns", "fine_cells": True}
BITS = 20


def fine_study(columns: int = 1, epsilon: float = 1.0, owners: int = 2, **given: Any) -> Study:
    study = study_of(domain_of(columns, ()), FINE | given, epsilon=epsilon)
    names = [study.owners[0].model_copy(update={"name": name}) for name in "xyz"[:owners]]
    return study.model_copy(update={"budget": Budget.of(epsilon, 0), "owners": tuple(names)})


def narrow(n: int, rng: np.random.Generator, shift: float = 0.0) -> npt.NDArray[np.float64]:
    """Within 1 % of the bounds; a shift is in standard deviations."""
    return 0.57 + 0.0025 * (rng.standard_normal((n, 1)) + shift)


def fine_pvalue_of(study: Study, numbers: list[npt.NDArray[np.float64]], run: int) -> float:
    """The overall p-value alone: effects take longer than the test."""
    plan, noise, empty = PROCEDURE.plan(study), SeededNoise(run), np.zeros
    tables = [MemoryTable(study.domain, own, empty((len(own), 0), np.int32)) for own in numbers]
    releases = [PROCEDURE.privatise(study, PROCEDURE.summarise(study, table), noise) for table in tables]
    return plan.test.run(plan.evidence(releases)).pvalue


def largest_move(features: CellFeatures, seed: int) -> int:
    """The largest L1 change of fine sums, in grid steps, over units of one row and of several.

    Rows of a unit are all in other cells: rounding then moves most.
    """
    rng, largest, numeric = np.random.default_rng(seed), 0, features.numeric
    for rows in (1, 2, 3, 7, 11, 100):
        for other in (1, 3, rows):
            cells = rng.permuted(np.tile(np.arange(FINE_CELLS), (numeric, 1)), axis=1)[:, : rows + other]
            numbers = ((cells + 0.5) / FINE_CELLS).T
            unit = np.repeat([0, 1], [rows, other])
            chunk = EncodedChunk(numbers, np.zeros((len(unit), 0), np.int32), unit, 2)
            own = unit_averages(features.cells(chunk), unit, 2, BITS)[:, features.cells.body.dimension :]
            largest = max(largest, int(np.abs(own[0] - own[1]).sum() * 2**BITS))
    return largest


@pytest.mark.parametrize("columns", [1, 3])
def test_no_unit_moves_fine_cells_by_more_than_is_stated_and_forgotten_rounding_is_found(
    columns: int,
) -> None:
    right = CellFeatures(columns, (), 5, pairs=False, fine=True)
    planted = with_mistake(cell_means, " + self.fine * 2.0**-bits", "")
    wrong = planted.CellFeatures(columns, (), 5, pairs=False, fine=True)
    moved = largest_move(right, 7)
    assert moved <= right.cells.fine_sensitivity(BITS) * 2**BITS
    assert moved > wrong.cells.fine_sensitivity(BITS) * 2**BITS + 1


@pytest.mark.parametrize("micro", [5, 7, 9, 10**6, 10**6 + 3, 123_457, 10**8])
def test_both_vectors_cost_the_budget_and_no_more(micro: int) -> None:
    budget = Budget(epsilon_micro=micro, delta_pico=0)
    coarse, fine = fine_guarantees(budget)
    assert coarse.budget.epsilon_micro + fine.budget.epsilon_micro == micro
    study = fine_study().model_copy(update={"budget": budget})
    events = PROCEDURE.cost(study).events
    assert events == coarse.events + fine.events
    assert fits(events, budget)
    assert compose_epsilon_micro(events, 0) == micro
    assert not fits((*events, *fine.events), budget)


def test_the_noise_is_that_of_each_part_of_epsilon() -> None:
    """Of a fifth: two cells over .2 epsilon. K-norm noise is wider by 5/4 than alone."""
    study, alone = fine_study(), fine_study(fine_cells=False)
    release = PROCEDURE.privatise(study, summed(study), SeededNoise(1))
    assert release.vectors[FINE_COUNTS].scale == pytest.approx(10, rel=1e-3)
    assert len(release.vectors[FINE_COUNTS].values) == FINE_CELLS
    assert PROCEDURE.plan(study).mean_noise(100) == pytest.approx(
        1.25 * PROCEDURE.plan(alone).mean_noise(100), rel=1e-6
    )


def summed(study: Study, n: int = 100) -> Any:
    numbers = np.random.default_rng(3).uniform(size=(n, len(study.domain.numeric)))
    return PROCEDURE.summarise(study, MemoryTable(study.domain, numbers, np.zeros((n, 0), np.int32)))


def test_noise_without_room_is_refused_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """For either vector, by its own part of epsilon."""
    study = fine_study()
    PROCEDURE.check(study)
    for refused in ("require_k_norm", "require_laplace"):
        with monkeypatch.context() as patch:

            def refuse(*_: Any) -> None:
                raise StudyError("no room")

            patch.setattr(f"tacit_protocol.procedures.kernel_two_sample.{refused}", refuse)
            with pytest.raises(StudyError, match="no room"):
                PROCEDURE.plan(study)
            with pytest.raises(StudyError, match="no room"):
                planned(PROCEDURE, study).check_units({"x": 10, "y": 10})


@pytest.mark.parametrize("summands", [2, 8, 32])
@pytest.mark.parametrize("owners", [1, 2])
def test_tails_of_sums_of_laplace_noise_are_those_of_draws(summands: int, owners: int) -> None:
    """Beside a normal variable and alone; binomial, two sides."""
    rng, draws = np.random.default_rng(5), 400_000
    law, scales = max_form.LaplaceSums((summands,)), np.array([1.0, -0.5])[:owners]
    noise = sum(
        scale * rng.laplace(size=(draws, summands)).sum(axis=1) / np.sqrt(2 * summands) for scale in scales
    )
    for variance in (1e-6, 0.7):
        drawn = np.abs(noise + np.sqrt(variance) * rng.standard_normal(draws))
        for place in (0.5, 1.5, 3.0, 4.0):
            tail = max_form.k_norm_tail(place, variance, law, summands, scales)
            assert stats.binomtest(int(np.count_nonzero(drawn > place)), draws, tail).pvalue > FALSE_ALARM


def worst_ratio(units: float) -> float:
    """A count's two-sided tail against the normal law's level, its variance rounded up by so many units."""
    worst = 0.0
    for level in (1e-3, 1e-5, 1e-7):
        for mean in np.geomspace(0.05, 1e4, 200):
            reach = stats.norm.isf(level / 2) * np.sqrt(mean + units)
            above = stats.poisson.sf(np.floor(mean + reach), mean)
            below = stats.poisson.cdf(np.ceil(mean - reach) - 1, mean) if reach < mean else 0.0
            worst = max(worst, float(above + below) / level)
    return worst


def test_variances_are_rounded_up_by_what_counts_need_at_such_levels() -> None:
    """Up to what whole numbers jump by."""
    assert worst_ratio(max_form.FINE_RARE) < 1.05
    assert worst_ratio(RARE_UNITS) > 5


def data(kind: str, n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return {
        "narrow": lambda: narrow(n, rng),
        "normal": lambda: np.clip(0.5 + 0.125 * rng.standard_normal((n, 1)), 0, 1),
        "one value": lambda: np.full((n, 1), 0.4),
        "two values": lambda: rng.choice([0.5, 1.0], (n, 1), p=[0.98, 0.02]),
        "few levels": lambda: np.rint(5 * rng.uniform(size=(n, 1))) / 5,
    }[kind]()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["narrow", "normal", "one value", "two values", "few levels"])
@pytest.mark.parametrize(
    ("units", "epsilon"), [((1000, 1000), 1.0), ((120, 4000), 30.0), ((300, 300, 900), 5.0)]
)
def test_the_level_is_kept_with_fine_cells(kind: str, units: tuple[int, ...], epsilon: float) -> None:
    """Binomial, 1e-7 each."""
    runs, rng, study = 150, np.random.default_rng(41), fine_study(epsilon=epsilon, owners=len(units))
    found = [fine_pvalue_of(study, [data(kind, n, rng) for n in units], run) for run in range(runs)]
    for level in (0.05, 0.01):
        assert np.count_nonzero(np.array(found) <= level) <= stats.binom.isf(FALSE_ALARM, runs, level)


def fine_noise(runs: int, epsilon: float = 1.0) -> list[PrivateMeans]:
    """Fine cells of two owners of 1000, all at one value, without sampling error."""
    rng, scale, found = np.random.default_rng(43), 2 / (0.2 * epsilon * 1000), []
    shares = np.zeros((2, FINE_CELLS))
    shares[:, 100] = 1.0
    for _ in range(runs):
        noisy = shares + rng.laplace(0, scale, shares.shape)
        found.append(PrivateMeans(noisy, np.full(2, 1000.0), np.full(2, np.sqrt(2) * scale)))
    return found


def test_pvalues_that_forget_the_noise_of_a_sum_are_caught() -> None:
    planted = with_mistake(max_form, "math.sqrt(2 * width) * fine.noise", "fine.noise")
    runs = 300
    right = sum(max_form.fine_pvalues(own)[1][0] <= 0.05 for own in fine_noise(runs))
    wrong = sum(planted.fine_pvalues(own)[1][0] <= 0.05 for own in fine_noise(runs))
    assert right <= stats.binom.isf(FALSE_ALARM, runs, 0.05)
    assert wrong > stats.binom.isf(FALSE_ALARM, runs, 0.05)


def test_what_lies_close_together_is_seen_where_public_numbers_say_so() -> None:
    """Half a standard deviation within 1 % of the range: .97 in simulations, .02 without fine cells."""
    n, runs, rng = 1000, 40, np.random.default_rng(47)
    study = fine_study()
    study = study.model_copy(update={"parameters": {}})
    study = study.model_copy(update={"parameters": dict(fitting_noise(study, n))})
    assert study.parameters["fine_cells"] is True
    seen = sum(
        fine_pvalue_of(study, [narrow(n, rng), narrow(n, rng, 0.5)], run) <= 0.05 for run in range(runs)
    )
    assert seen > stats.binom.isf(FALSE_ALARM, runs, 0.5)


def test_a_column_is_named_and_nothing_is_claimed_that_means_do_not_tell() -> None:
    study, rng = fine_study(2), np.random.default_rng(53)
    numbers = [np.hstack([narrow(2000, rng, shift), rng.uniform(size=(2000, 1))]) for shift in (0.0, 1.0)]
    tables = [MemoryTable(study.domain, own, np.zeros((2000, 0), np.int32)) for own in numbers]
    verdict = verdict_of(study, tables, SeededNoise(2))
    assert [column.reject for column in verdict.columns] == [True, False]
    told = [effect for effect in verdict.effects if effect.column == verdict.columns[0].names[0]]
    assert all(effect.lower <= 0 <= effect.upper for effect in told)
    meaning = two_sample_meaning(study, verdict.model_dump())
    assert meaning.care.endswith(FINER)
