"""Fine cells: what one unit moves, what they are bought with, their law, level and power, refusals."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from planted import with_mistake
from scipy import stats
from two_sample_cases import MemoryTable, SeededNoise, domain_of, study_of, verdict_of

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import cell_means
from tacit_protocol.features.cell_means import FINE_CELLS, FINE_COUNTS, CellFeatures
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import compose_epsilon_micro, fits
from tacit_protocol.privacy.exact_sums import unit_averages
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, planned
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.kernel_two_sample.defaults import fitting_noise
from tacit_protocol.procedures.means import max_form
from tacit_protocol.procedures.means.private_means import RARE_UNITS, PrivateMeans
from tacit_protocol.procedures.two_sample.release import (
    fine_guarantees,
    require_same_release,
)
from tacit_protocol.procedures.two_sample.verdict import FINER, two_sample_meaning

PROCEDURE = KernelTwoSample()
FALSE_ALARM = 1e-7
FINE: dict[str, Any] = {"noise": "k-norm", "features": "columns", "fine_cells": True}
BITS = 20


def fine_study(columns: int = 1, epsilon: float = 1.0, owners: int = 2, **given: Any) -> Study:
    study = study_of(domain_of(columns, ()), FINE | given, epsilon=epsilon)
    names = [study.owners[0].model_copy(update={"name": name}) for name in "xyz"[:owners]]
    return study.model_copy(update={"budget": Budget.of(epsilon, 0), "owners": tuple(names)})


def narrow(n: int, rng: np.random.Generator, shift: float = 0.0) -> npt.NDArray[np.float64]:
    """Within 1 % of the bounds; a shift is in standard deviations."""
    return 0.57 + 0.0025 * (rng.standard_normal((n, 1)) + shift)


def pvalue_of(study: Study, numbers: list[npt.NDArray[np.float64]], run: int) -> float:
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

            patch.setattr(f"tacit_protocol.procedures.kernel_two_sample.plan.{refused}", refuse)
            with pytest.raises(StudyError, match="no room"):
                PROCEDURE.plan(study)
            with pytest.raises(StudyError, match="no room"):
                planned(PROCEDURE, study).check_units({"x": 10, "y": 10})


def test_releases_without_fine_cells_are_not_read_again() -> None:
    with pytest.raises(StudyError, match="another fine_cells"):
        require_same_release(fine_study(), fine_study(fine_cells=False))


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
def test_the_level_is_kept(kind: str, units: tuple[int, ...], epsilon: float) -> None:
    """Binomial, 1e-7 each."""
    runs, rng, study = 150, np.random.default_rng(41), fine_study(epsilon=epsilon, owners=len(units))
    found = [pvalue_of(study, [data(kind, n, rng) for n in units], run) for run in range(runs)]
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
    seen = sum(pvalue_of(study, [narrow(n, rng), narrow(n, rng, 0.5)], run) <= 0.05 for run in range(runs))
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
