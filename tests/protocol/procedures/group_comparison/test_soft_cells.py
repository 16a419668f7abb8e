"""Groups compared in pure epsilon: soft cells, level, coverage, the choice of noise, refusals."""

from typing import Any

import numpy as np
import pytest
from made_studies import MemoryTable, SeededNoise, made_study
from planted import with_mistake
from scipy import stats

import tacit.local
from tacit.errors import InputError
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import laplace_widening
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.group_comparison import GroupComparisonResult, statistic
from tacit_protocol.procedures.group_comparison.plan import separate_plan
from tacit_protocol.procedures.group_comparison.release import (
    FEW_CELLS,
    SOFT_CELLS,
    GroupCells,
    few_cells,
    soft_cells,
)
from tacit_protocol.procedures.group_comparison.statistic import (
    CELL_CONTRASTS,
    FEW_CONTRASTS,
    SQUARES_OF_CELLS,
    SQUARES_OF_FEW,
    NoisyCells,
    compare_cells,
)

PROCEDURE: Any = procedure_named("group_comparison")
FALSE_ALARM = 1e-7


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistic, "CELL_DRAWS", 1999)


SEX = CategoricalColumn(name="sex", levels=("f", "m"))
ILL = CategoricalColumn(name="ill", levels=("no", "yes"))
NUMBERS: tuple[Column, ...] = tuple(NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(9))


def asked(*columns: Column, owners: int = 2, epsilon: float = 1.0, delta: float = 0.0, **given: Any) -> Study:
    study = made_study(
        "group_comparison", Domain(columns=(SEX, *columns)), owners=owners, delta=1e-5, parameters=given
    )
    return study.model_copy(update={"budget": Budget.of(epsilon, delta)})


PURE = asked(NUMBERS[0], ILL, noise="laplace")


def drawn(rng: np.random.Generator, units: int, effect: float, off: float = 0.0) -> MemoryTable:
    """Draw a number, of standard deviation .125, and an illness that go with the group."""
    sex = (rng.random(units) < 0.4 + off).astype(np.int32)
    number = np.clip(0.5 + off + 0.125 * (rng.standard_normal(units) + effect * sex), 0, 1)
    ill = (rng.random(units) < 0.3 + off + 0.2 * effect * sex).astype(np.int32)
    return MemoryTable(PURE.domain, number[:, None], np.stack([sex, ill], axis=1), None)


def verdict(study: Study, tables: list[MemoryTable], seed: int) -> GroupComparisonResult:
    noise, releases = SeededNoise(seed), {}
    for owner, table in zip(study.owners, tables, strict=True):
        release = PROCEDURE.privatise(study, PROCEDURE.summarise(study, table), noise)
        PROCEDURE.check_release(study, release)
        releases[owner.name] = release
    found: GroupComparisonResult = PROCEDURE.assemble(study, releases)
    return found


def test_cells_tell_means_and_squares_exactly() -> None:
    t = np.linspace(-1, 1, 101)
    cells = soft_cells(t)
    assert cells.shape == (101, SOFT_CELLS)
    np.testing.assert_allclose(cells @ CELL_CONTRASTS[0], t, atol=1e-12)
    np.testing.assert_allclose(cells @ SQUARES_OF_CELLS, t**2, atol=1e-12)
    np.testing.assert_allclose(cells @ CELL_CONTRASTS[1], np.where(t >= 0, 1, -1) - t, atol=1e-12)
    np.testing.assert_allclose(cells @ CELL_CONTRASTS[2], np.abs(t) - 0.5, atol=1e-12)
    np.testing.assert_allclose(CELL_CONTRASTS.sum(axis=1), 0)


def test_four_cells_tell_means_exactly_and_bound_squares() -> None:
    t = np.linspace(-1, 1, 101)
    cells = few_cells(t)
    assert cells.shape == (101, FEW_CELLS)
    assert cells.min() >= 0
    np.testing.assert_allclose(cells.sum(axis=1), 1)
    np.testing.assert_allclose(cells @ FEW_CONTRASTS[0], t, atol=1e-12)
    np.testing.assert_allclose(cells @ FEW_CONTRASTS[1], np.where(t >= 0, 1, -1) - t / 2, atol=1e-12)
    np.testing.assert_allclose(cells @ FEW_CONTRASTS[2], np.abs(t) - 0.5, atol=1e-12)
    assert np.all(cells @ SQUARES_OF_FEW >= t**2 - 1e-12)
    np.testing.assert_allclose(FEW_CONTRASTS.sum(axis=1), 0)
    # No variance of a contrast is larger than what these cells are taken to have.
    for values in (t / 4, t**3, np.full(101, 0.5), np.where(t > 0.9, 1.0, -0.3)):
        block = NoisyCells(101, np.stack([few_cells(values).sum(axis=0)] * 2), 1e-9, numeric=True)
        own = few_cells(values) @ FEW_CONTRASTS.T
        assert np.all(np.diag(block.unit_covariance()) >= own.var(axis=0) - 1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("units", "epsilon"), [(150, 0.3), (1500, 2.0)])
def test_the_level_is_kept_where_owners_differ(units: int, epsilon: float) -> None:
    rng, runs, study = (
        np.random.default_rng(31),
        200,
        asked(NUMBERS[0], ILL, epsilon=epsilon, noise="laplace"),
    )
    rejected = 0
    for run in range(runs):
        tables = [drawn(rng, units, 0.0, off) for off in (-0.2, 0.2)]
        rejected += verdict(study, tables, run).reject
    assert rejected <= stats.binom.isf(FALSE_ALARM, runs, 0.05)


@pytest.mark.long
def test_effects_are_found_and_covered() -> None:
    rng, runs = np.random.default_rng(32), 150
    covered, rejected = np.zeros(2), 0
    for run in range(runs):
        found = verdict(PURE, [drawn(rng, 600, 0.5), drawn(rng, 400, 0.5)], run)
        rejected += found.reject
        differences = {e.kind: e for e in found.effects}
        assert set(differences) == {"mean difference", "risk difference", "odds ratio"}
        for place, (kind, truth) in enumerate((("mean difference", 0.0625), ("risk difference", 0.1))):
            effect = differences[kind]
            covered[place] += (
                effect.interval is not None and effect.interval[0] <= truth <= effect.interval[1]
            )
    assert rejected > 0.8 * runs
    assert min(covered) >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)


@pytest.mark.long
def test_a_null_that_forgets_the_noise_is_caught() -> None:
    planted = with_mistake(statistic, "rng.laplace(0.0, own.scale, shape)", "rng.laplace(0.0, 0.3, shape)")
    rng, wrong, right = np.random.default_rng(33), 0, 0
    for run in range(100):
        cells = soft_cells(np.clip(rng.standard_normal((2, 100)) / 4, -1, 1)).sum(axis=1)
        block = NoisyCells(200, cells + rng.laplace(0.0, 4.0, cells.shape), 4.0, numeric=True)
        seed = np.random.SeedSequence(run)
        right += compare_cells([block], seed).pvalue <= 0.05
        wrong += planted.compare_cells([block], seed).pvalue <= 0.05
    assert right <= stats.binom.isf(FALSE_ALARM, 100, 0.05)
    assert wrong > stats.binom.isf(FALSE_ALARM, 100, 0.05)


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_normal_intervals_are_widened_to_the_sum_of_two_laplace_numbers(level: float) -> None:
    widening = laplace_widening(level)
    sums = np.random.default_rng(1).laplace(size=(400_000, 2)).sum(axis=1) / 2
    outside = np.mean(np.abs(sums) > stats.norm.isf(level / 2) * np.sqrt(widening))
    assert abs(outside - level) < 6 * np.sqrt(level / 400_000)
    assert laplace_widening(0.4) == 1.0


@pytest.mark.parametrize(
    ("columns", "epsilon", "delta", "units", "noise", "cells"),
    [
        (1, 1.0, 1e-5, 300, "laplace", 6),
        (1, 0.3, 0.0, 300, "laplace", 4),
        (5, 1.0, 1e-5, 1000, "laplace", 4),
        (9, 1.0, 1e-5, 1000, "gaussian", None),
        (1, 1.0, 1e-5, 100_000, "gaussian", None),
        (9, 1.0, 0.0, 1000, "laplace", 4),
        (9, 1.0, 0.0, 100_000, "laplace", 6),
    ],
)
def test_noise_and_cells_are_chosen_from_public_numbers(
    columns: int, epsilon: float, delta: float, units: int, noise: str, cells: int | None
) -> None:
    study = declared(asked(*NUMBERS[:columns], epsilon=epsilon, delta=delta), units)
    found = PROCEDURE.with_defaults(study, {owner.name: units for owner in study.owners})
    assert found.parameters.get("noise", "gaussian") == noise
    assert getattr(separate_plan(found).features, "cells", None) == cells


def declared(study: Study, *units: int | None) -> Study:
    """Return a study whose owners declare so many units: the first ones these, the others the last."""
    counts = [*units, *[units[-1]] * len(study.owners)]
    owners = [own.model_copy(update={"units": n}) for own, n in zip(study.owners, counts, strict=False)]
    return study.model_copy(update={"owners": tuple(owners)})


def test_a_number_has_six_cells_where_an_owner_declares_no_units_and_else_the_smallest_owner_s() -> None:
    study = asked(NUMBERS[0], epsilon=0.3, noise="laplace")
    for units, cells in (((), 6), ((300, None), 6), ((300, 10**6), 4), ((10**6, 300), 4), ((2**50,), 6)):
        features = separate_plan(declared(study, *units) if units else study).features
        assert isinstance(features, GroupCells)
        assert features.cells == cells


def test_noise_is_refused_beside_answers() -> None:
    pa = pytest.importorskip("pyarrow")
    arm = np.random.default_rng(1).choice(["a", "b"], 300)
    released = tacit.local.randomise_column(arm, epsilon=1, bounds=["a", "b"])
    with pytest.raises(InputError, match="noise"):
        tacit.local.group_comparison(
            pa.table({"x": np.ones(300)}),
            group=released,
            epsilon=1,
            bounds={"x": (0, 2)},
            noise="laplace",
        )
