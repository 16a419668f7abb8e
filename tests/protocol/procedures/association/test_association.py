"""Association within owners: level, intervals, odd columns, bad studies, releases read again."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from local_noise import seeded_noise
from made_studies import made_study
from masked_sums import sums_read
from scipy.special import ndtr
from scipy.stats import spearmanr
from two_sample_cases import MemoryTable

import tacit.local
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.association.plan import MaskedAssociation, separate_plan
from tacit_protocol.procedures.association.release import RankTransform
from tacit_protocol.procedures.association.statistic import independent_masked
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.within_owners.covariances import PAIR_SHARES

PROCEDURE = procedure_named("association")
BOUNDS: dict[str, Any] = {"x": (-4, 4), "y": (-4, 4)}
X, Y = (NumericColumn(name=name, lower=-4.0, upper=4.0) for name in ("x", "y"))


def owner(rng: np.random.Generator, units: int, rho: float, off: float = 0.0) -> dict[str, Any]:
    x, rest = rng.standard_normal((2, units))
    return {"x": x + off, "y": rho * x + np.sqrt(1 - rho**2) * rest + off}


def associated(*samples: Any, seed: int = 1, **chosen: Any) -> tacit.local.AssociationResult:
    pd = pytest.importorskip("pandas")
    asked: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "noise": "gaussian", "bounds": BOUNDS, "seed": 1}
    asked |= chosen
    with seeded_noise(seed):
        return tacit.local.association(*(pd.DataFrame(sample) for sample in samples), **asked)


def test_the_level_is_kept_where_a_pooled_correlation_always_rejects() -> None:
    """150 studies at level .05: more than 22 rejections have probability below 1e-5."""
    rng, rejected = np.random.default_rng(1), 0
    for seed in range(150):
        rejected += associated(owner(rng, 300, 0.0, -1.0), owner(rng, 300, 0.0, 1.0), seed=seed).reject
    assert rejected <= 22


def test_intervals_hold_the_correlation_within_owners() -> None:
    """60 studies: under 46 that hold it have probability below 1e-6 at 95 %."""
    rng, held = np.random.default_rng(2), {"Pearson correlation": 0, "rank correlation": 0}
    truth = {"Pearson correlation": 0.5, "rank correlation": 6 / np.pi * np.arcsin(0.25)}
    for seed in range(60):
        result = associated(owner(rng, 1500, 0.5, -1.0), owner(rng, 1500, 0.5, 1.0), epsilon=4.0, seed=seed)
        assert result.reject
        for effect in result.effects:
            held[effect.kind] += effect.interval[0] <= truth[effect.kind] <= effect.interval[1]
    assert min(held.values()) >= 46


def graded(mass: Any) -> Any:
    """Grades of a column of so many units in each of its intervals, without noise."""
    plan = separate_plan(made_study("association", Domain(columns=(X, Y)), epsilon=1.0, delta=1e-5))
    (cells, _) = plan.histograms(100_000).columns
    counts = np.zeros(cells.size, dtype=np.int64)
    counts[: len(mass)] = mass
    return RankTransform.of(cells, counts.tolist(), int(counts.sum()), 0.0)


def test_grades_are_mid_ranks_wherever_in_its_cell_a_value_lies() -> None:
    """A third of the units each in the cells 10 and 20, at their left ends and right ones, and in cell 50."""
    grades = graded(np.eye(64, dtype=int)[[10, 20, 50]].sum(axis=0) * 1000)
    u = np.array([[10 / 64, 0.5], [10.99 / 64, 0.5], [20 / 64, 0.5], [20.99 / 64, 0.5], [50.5 / 64, 0.5]])
    _, r = grades.at(SimpleNamespace(numeric=u))
    assert r == pytest.approx([-2 / 3, -2 / 3, 0, 0, 2 / 3])


FEW_LEVELS = [
    (3, 4, 0.9, 0),
    *(
        pytest.param(*own, marks=pytest.mark.long)
        for own in ((5, 4, 0.8, 0), (3, 4, 0.9, 1), (8, 2, 0.5, 40))
    ),
]
"""Numbers of values, the correlation of the normal numbers that they are cut from, by how much bounds reach
beyond the values."""


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("first", "second", "rho", "beyond"), FEW_LEVELS)
def test_intervals_hold_the_rank_correlation_of_few_levels(
    first: int, second: int, rho: float, beyond: int, noise: str
) -> None:
    """60 owners of 5000 at epsilon 10: under 46 intervals of .95 that hold it have probability below 1e-6.

    Where bounds are so wide that levels share a cell, it is the correlation of mid-ranks by cells.
    """
    rng, held, pure = np.random.default_rng(21), 0, noise == "laplace"
    levels = (first, second)
    bounds = {
        name: (0 if name == "x" and not beyond else -beyond, count - 1 + beyond)
        for name, count in zip("xy", levels, strict=True)
    }

    def drawn(units: int) -> dict[str, Any]:
        latent = np.stack(list(owner(rng, units, rho).values()))
        return {
            name: np.floor(ndtr(own) * count) for name, own, count in zip("xy", latent, levels, strict=True)
        }

    many = drawn(1_000_000)
    cells = [np.floor((many[name] - low) / (high - low) * 64 + 1e-9) for name, (low, high) in bounds.items()]
    truth = spearmanr(*cells).statistic
    for seed in range(60):
        chosen = {"noise": noise, "delta": 0.0 if pure else 1e-5, "epsilon": 10.0, "bounds": bounds}
        effect = associated(drawn(5000), seed=seed, **chosen).effects[-1]
        assert effect.kind == "rank correlation"
        held += effect.lower <= truth <= effect.upper
    assert held >= 46


def test_a_correlation_with_a_category_names_the_level_that_goes_with_larger_numbers() -> None:
    """Intervals of .999 miss the sign of a correlation of .8 with probability far below 1e-6."""
    rng = np.random.default_rng(22)
    age = rng.uniform(0, 100, 4000)
    smoker = np.where(age + rng.normal(0, 10, 4000) > 50, "yes", "no")
    stage = np.array(["I", "II", "III"])[np.minimum(age // 34, 2).astype(int)]
    sample = {"age": age, "smoker": smoker, "stage": stage}
    for levels, words in ((["yes", "no"], "age and smoker: rank correlation -"), (["no", "yes"], "age and")):
        bounds = {"age": (0, 100), "smoker": levels, "stage": ["III", "II", "I"]}
        result = associated(sample, bounds=bounds, epsilon=8.0, alpha=1e-3)
        assert words in str(result)
        assert "larger age more often with smoker = yes" in str(result)
        assert "larger age more often with levels of stage near III" in result.report_html()
        assert result.pairs[2].direction == f"smoker = {levels[1]} more often with levels of stage near " + (
            "III" if levels[1] == "yes" else "I"
        )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_bounds_that_are_much_wider_than_the_data_are_warned_of_first(noise: str) -> None:
    """Values within a hundredth of the bounds; not where bounds fit, nor where an association was found."""
    rng, delta = np.random.default_rng(23), 1e-5 if noise == "gaussian" else 0.0
    chosen = {"noise": noise, "delta": delta, "epsilon": 1.0}
    wide = {"x": (-400, 400), "y": (-400, 400)}
    warned = associated(owner(rng, 4000, 0.1, 56.0), bounds=wide, **chosen).warnings
    assert warned[0].startswith("the bounds of x (-400 to 400) are much wider than its values are spread")
    assert "rank correlation of any size" in warned[0]
    assert "narrower public bounds" in warned[0]
    assert 'aggregated_test, test "spearman"' in warned[0]
    assert " lie between 50 and 62.5, one cell of its bounds, and count as ties" in warned[1]
    assert associated(owner(rng, 4000, 0.1), **chosen).warnings == ()


def test_a_result_says_pair_owner_and_size() -> None:
    rng = np.random.default_rng(3)
    result = associated(owner(rng, 4000, 0.6), owner(rng, 3000, 0.6, 1.0), names=["north", "south"])
    assert [(pair.first, pair.second, pair.reject) for pair in result.pairs] == [("x", "y", True)]
    assert {effect.owner for effect in result.effects_by_owner} == {"north", "south"}
    assert "x and y: rank correlation" in str(result)
    assert "rank correlation" in result.report_html()
    assert "correlation" in result.to_svg()
    assert list(result.to_pandas()["kind"][:2]) == ["Pearson correlation", "rank correlation"]


@pytest.mark.parametrize("chosen", [{}, {"noise": "laplace", "delta": 0.0}])
def test_a_curve_without_any_correlation_is_found(chosen: Any) -> None:
    x = np.random.default_rng(4).standard_normal(5000)
    assert associated({"x": x, "y": x**2 - 1}, epsilon=4.0, **chosen).reject


PURE: dict[str, Any] = {"noise": "laplace", "delta": 0.0}
MASKED: dict[str, Any] = {"aggregation": "masked", "colluders": 0}


@pytest.mark.parametrize(
    ("value", "chosen"),
    [*((value, {}) for value in (0.0, np.nan, -9.0, 9.0)), (np.nan, PURE | {"epsilon": 4.0}), (9.0, MASKED)],
)
@pytest.mark.filterwarnings("error", "ignore::tacit.errors.DataWarning")
def test_a_constant_or_missing_column_ends_in_a_verdict_of_the_same_form(value: float, chosen: Any) -> None:
    rng = np.random.default_rng(5)
    samples = [owner(rng, 300, 0.5) | {"x": np.full(300, value)} for _ in range(2)]
    odd = associated(*samples, missing="encode", **chosen)
    kinds = {"Pearson correlation"} if chosen == MASKED else {"rank correlation"}
    assert {effect.kind for effect in odd.effects} == (kinds if chosen else {"Pearson correlation", *kinds})
    assert not odd.reject


@pytest.mark.parametrize("epsilon", [4.0, pytest.param(0.5, marks=pytest.mark.long)])
def test_in_pure_epsilon_the_level_is_kept_with_histograms_and_without(epsilon: float) -> None:
    """30 studies at level .05: more than 10 rejections have probability below 1e-6."""
    rng, rejected = np.random.default_rng(6), 0
    for seed in range(30):
        owners = owner(rng, 300, 0.0, -1.0), owner(rng, 300, 0.0, 1.0)
        rejected += associated(*owners, seed=seed, epsilon=epsilon, **PURE).reject
    assert rejected <= 10


def of_two_levels(rng: np.random.Generator, units: int, share: float, phi: float) -> dict[str, Any]:
    """Two columns of yes and no with one share of yes, whose correlation is ``phi``."""
    apart = phi * share * (1 - share)
    yes, no, mixed = share**2 + apart, (1 - share) ** 2 + apart, share * (1 - share) - apart
    cells = rng.choice(4, units, p=[no, mixed, mixed, yes])
    levels = np.array(["no", "yes"])
    return {"x": levels[cells // 2], "y": levels[cells % 2]}


def sexes(*samples: Any, seed: int, **chosen: Any) -> tacit.local.AssociationResult:
    bounds = {"x": ["no", "yes"], "y": ["no", "yes"]}
    frames = [pl.DataFrame(sample) for sample in samples]
    return tacit.local.association(*frames, bounds=bounds, seed=seed, **chosen)


def test_of_two_levels_signs_alone_are_released_and_found_as_by_a_table_of_four_cells() -> None:
    """With a power of .75 so few of 40 have probability 1e-6; with histograms and ranks it was .17."""
    rng, found = np.random.default_rng(41), 0
    for run in range(40):
        result = sexes(of_two_levels(rng, 1000, 0.5, 0.1), epsilon=0.3, seed=run)
        found += result.reject
    assert found >= 18


@pytest.mark.parametrize(
    "chosen", [{"epsilon": 1.0}, {"epsilon": 0.3}, {"epsilon": 1.0, "noise": "gaussian"}]
)
def test_of_two_levels_the_level_is_kept_and_intervals_hold(chosen: dict[str, Any]) -> None:
    """At .05 each, so many rejections, or misses, of 60 have probability below 1e-7."""
    rng, rejected, missed = np.random.default_rng(42), 0, 0
    given = chosen | ({"delta": 1e-5} if "noise" in chosen else {})
    for run in range(60):
        rejected += sexes(
            of_two_levels(rng, 900, 0.2, 0.0), of_two_levels(rng, 500, 0.6, 0.0), seed=run, **given
        ).reject
        (effect,) = sexes(of_two_levels(rng, 2000, 0.2, 0.4), seed=run, **given).effects
        assert effect.interval is not None
        missed += not effect.interval[0] <= 0.4 <= effect.interval[1]
    assert max(rejected, missed) <= 15


def test_in_pure_epsilon_ranks_are_told_and_of_few_units_only_that_they_go_together() -> None:
    """.5 among 1000 at epsilon 1 is ten standard deviations away; intervals of .999 miss once in 1000."""
    rng = np.random.default_rng(7)
    many = associated(owner(rng, 1000, 0.5), owner(rng, 1000, 0.5, 0.5), epsilon=1.0, alpha=1e-3, **PURE)
    (effect,) = many.effects
    assert many.reject
    assert effect.kind == "rank correlation"
    assert effect.interval[0] <= 6 / np.pi * np.arcsin(0.25) <= effect.interval[1]
    few = associated(owner(rng, 350, 0.9), owner(rng, 350, 0.9), epsilon=0.7, **PURE)
    assert few.reject
    assert [(own.kind, own.estimate) for own in few.effects] == [("rank correlation", None)]
    assert any("middle of their bounds" in warning for warning in few.warnings)


# Owners who mask.

SEX = CategoricalColumn(name="sex", levels=("f", "m"))


def asked_masked(*columns: Any, epsilon: float = 1.0, **changes: Any) -> Study:
    """Return a study of two numbers and a category at three owners who mask."""
    parameters = {"aggregation": "masked", "colluders": 0} | changes
    domain = Domain(columns=columns or (X, SEX, Y))
    return made_study("association", domain, parameters, owners=3, epsilon=epsilon, delta=1e-5)


def plan_masked(*columns: Any, **options: Any) -> MaskedAssociation:
    plan = PROCEDURE.plan(asked_masked(*columns, **options))
    assert isinstance(plan, MaskedAssociation)
    return plan


def test_masked_numbers_are_the_covariances_and_variances_that_the_page_says() -> None:
    """A category that is not listed or missing counts as 0; columns are in the study's order."""
    rng, plan = np.random.default_rng(8), plan_masked()
    numbers, codes = rng.uniform(0, 1, (300, 2)), rng.choice(4, (300, 1)).astype(np.int32)
    found = sums_read(plan, [MemoryTable(Domain(columns=(X, SEX, Y)), numbers, codes)], None)
    t = np.stack([2 * numbers[:, 0] - 1, np.array([-1, 1, 0, 0])[codes[:, 0]], 2 * numbers[:, 1] - 1])
    middle = np.stack([np.clip(4 * t[0], -1, 1), t[1], np.clip(4 * t[2], -1, 1)])
    assert plan.pairs.of_pairs == [range(2), range(2, 4), range(4, 6)]
    for place, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        for at, (square, scores) in enumerate([(0.3, t), (0.7, middle)]):
            own, x, y = 2 * place + at, scores[a], scores[b]
            covariance, variance = 300 * np.cov(x, y, ddof=0)[0, 1], 300**2 * x.var() * y.var() / 299
            assert found.covariances[own] == pytest.approx(square**0.5 * covariance, abs=0.01)
            assert found.variances[own] == pytest.approx(square * variance, abs=0.01)
    assert found.spreads == pytest.approx(300 * t.var(axis=1), abs=0.01)


def masked_owners(rng: np.random.Generator, domain: Domain, units: int = 300) -> list[MemoryTable]:
    """Return three owners who differ in everything, and in whom nothing goes together."""
    found = []
    for off in (-1.0, 0.0, 1.0):
        normal, skew = rng.standard_normal(units) + off, np.exp(rng.standard_normal(units)) - 3 + off
        numbers = np.clip((np.stack([normal, skew], axis=1) + 4) / 8, 0, 1)
        codes = (rng.random((units, 1)) < 0.3 + 0.25 * off).astype(np.int32)
        found.append(MemoryTable(domain, numbers, codes))
    return found


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(10.0, marks=pytest.mark.long)])
def test_masked_pairs_keep_the_level_where_owners_differ_in_all_else(epsilon: float) -> None:
    """Of 200 studies, every one of three pairs; .05 + 4.9 standard errors: 1e-6."""
    rng, plan, runs = np.random.default_rng(11), plan_masked(epsilon=epsilon), 200
    rejected = np.zeros(3)
    for _ in range(runs):
        found = sums_read(plan, masked_owners(rng, Domain(columns=(X, SEX, Y))), rng)
        rejected += [independent_masked(found, own).pvalue <= 0.05 for own in plan.pairs.of_pairs]
    assert (rejected / runs <= 0.05 + 4.9 * (0.05 * 0.95 / runs) ** 0.5).all()


def test_a_masked_association_is_found_and_told_without_an_interval_and_of_no_owner() -> None:
    """Noise on the correlation has a standard deviation below .06: off by .3 with probability below 1e-6."""
    rng = np.random.default_rng(12)
    samples = [owner(rng, 4000, 0.5, off) for off in (-1.0, 0.0, 1.0)]
    result = associated(*samples, epsilon=4.0, aggregation="masked", colluders=1)
    (effect,) = result.effects
    assert result.reject
    assert effect.kind == "Pearson correlation"
    assert abs(effect.estimate - 0.5) < 0.3
    assert effect.interval is None
    assert result.effects_by_owner == ()
    assert result.heterogeneity_pvalue is None
    assert any("only their sum was read" in words for words in result.warnings)
    assert any("cannot be said" in words for words in result.warnings)
    assert set(result.source.releases["sample-1"].masked) == set(PAIR_SHARES)


def test_owners_who_mask_are_warned_of_bounds_that_are_much_wider_than_the_data() -> None:
    """Values within a hundredth of the bounds; not where bounds fit, nor where an association was found."""
    rng, wide = np.random.default_rng(24), {"x": (-400, 400), "y": (-400, 400)}
    masked: dict[str, Any] = {"aggregation": "masked", "colluders": 0, "epsilon": 1.0}
    for units, words in (
        (2000, "noise hides how far values are spread within the bounds of x"),
        (60_000, "the bounds of x"),
    ):
        samples = [owner(rng, units, 0.1, 56.0) for _ in range(2)]
        first, second = associated(*samples, bounds=wide, **masked).warnings[:2]
        assert first.startswith(f"{words} (-400 to 400)")
        assert "a Pearson correlation " in first
        assert " could not be seen; ask again, at new cost, with narrower public bounds" in first
        assert 'aggregated_test, test "spearman"' in first
        assert "y (-400 to 400)" in second
    for rho, bounds in ((0.0, BOUNDS), (0.9, {"x": (-20, 20), "y": (-20, 20)})):
        result = associated(*(owner(rng, 4000, rho) for _ in range(2)), bounds=bounds, **masked)
        assert result.reject == (rho > 0)
        assert not any("could not be seen" in words for words in result.warnings)
