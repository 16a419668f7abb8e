"""Few features under K-norm noise: level, coverage, choice from public numbers, refusals."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats
from two_sample_cases import MemoryTable, SeededNoise, domain_of, study_of, verdict_of

from tacit_protocol.features.additive import OFFSETS_OF_PARTS, FewFeatures
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.k_norm_mechanism import NODES
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample, TwoSampleResult
from tacit_protocol.procedures.kernel_two_sample.release import fitting_noise, require_same_release
from tacit_protocol.procedures.means import max_form
from tacit_protocol.procedures.means.private_means import PrivateMeans
from tacit_services.agent.policy import Policy

PROCEDURE = KernelTwoSample()
FALSE_ALARM = 1e-7
FEW: dict[str, Any] = {"noise": "k-norm"}
DOUBLED = FEW | {"doubled": True}


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
        (1, 60, 0.3, {"doubled": True}),
        (1, 60, 0.3, {}),
        (2, 400, 3.0, {"resolution": 2}),
        (50, 1000, 1.0, {}),
    ],
)
def test_the_level_is_kept(columns: int, n: int, epsilon: float, given: dict[str, Any]) -> None:
    runs = 300
    found = verdicts(few_study(columns, epsilon=epsilon, **given), n, runs)
    for level in (0.05, 0.01):
        rejected = sum(verdict.pvalue <= level for verdict in found)
        assert rejected <= stats.binom.isf(FALSE_ALARM, runs, level)


TAILS = {"1": (1, ()), "10": (10, ()), "50": (50, ()), "100": (100, ()), "levels": (0, (5,) * 40)}
"""Numeric columns and levels, of 3 to 300 coordinates."""


@pytest.mark.parametrize("name", TAILS)
def test_tails_of_two_owners_noise_are_those_of_draws(name: str) -> None:
    """The difference of two owners' noise, at five places, beside half a million draws: binomial."""
    law, rng, draws = FewFeatures(*TAILS[name], 0).few.body.law, np.random.default_rng(29), 500_000
    for kind, weights in enumerate(law.weights):
        u = (rng.choice(NODES, (2, draws), p=weights) + rng.random((2, draws))) / NODES
        signs = rng.choice([-1, 1], (2, draws))
        noise = rng.gamma(law.dimension + 1, size=(2, draws)) * u * signs
        apart = np.abs(noise[0] - noise[1]) / law.deviations[law.kinds.index(kind)]
        for place in (0.5, 1.5, 2.5, 3.0, 3.5):
            tail = max_form.k_norm_tail(place, 1e-6, law, kind, np.array([1.0, -1.0]))
            beyond = np.count_nonzero(apart > place)
            assert stats.binomtest(int(beyond), draws, tail).pvalue > FALSE_ALARM


@pytest.mark.parametrize("doubled", [True, False])
def test_half_a_standard_deviation_is_seen_and_stated_in_the_columns_own_units(doubled: bool) -> None:
    runs, covered = 200, 0
    found = verdicts(few_study(1, doubled=doubled), 300, runs, 0.5)
    for verdict in found:
        (effect,) = verdict.effects
        assert effect.kind == "mean difference"
        covered += effect.lower <= -0.0625 <= effect.upper
    assert np.mean([verdict.reject for verdict in found]) > 0.9
    assert covered >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)
    assert found[0].squared_mmd is None


def test_a_spread_is_seen_where_two_cycles_tell_how_much_one_varies() -> None:
    """150 units a side, deviations of 1/8 and 3/16: .75 in simulations, and .45 by one cycle alone."""
    study, rng, runs = few_study(1, doubled=True), np.random.default_rng(23), 120
    empty, seen = np.zeros((150, 0), np.int32), 0
    for run in range(runs):
        numbers = [0.5 + spread * rng.standard_normal((150, 1)) for spread in (0.125, 0.1875)]
        tables = [MemoryTable(study.domain, np.clip(own, 0, 1), empty) for own in numbers]
        seen += verdict_of(study, tables, SeededNoise(run)).pvalue <= 0.05
    assert seen > stats.binom.isf(FALSE_ALARM, runs, 0.45)


@pytest.mark.parametrize("narrower", [0.0, max_form.NARROWER])
def test_a_square_is_below_what_cosines_bound_it_by(narrower: float) -> None:
    t = np.linspace(-1, 1, 20_001)
    most = (1 - np.cos(np.pi * t)) / 2 - narrower * (1 - np.cos(2 * np.pi * t))
    assert np.all(t**2 <= most + 1e-12)
    too_much = (1 - np.cos(np.pi * t)) / 2 - 0.08 * (1 - np.cos(2 * np.pi * t))
    assert np.any(t**2 > too_much)


@pytest.mark.parametrize("resolution", [0, 1, 2])
@pytest.mark.parametrize("kind", ["normal", "two values", "uniform", "ends"])
def test_variances_are_bounds_where_nothing_is_noisy(resolution: int, kind: str) -> None:
    """Exact means of a thousand million units: no bound is below the variance, and cosines' are exact."""
    features, rng = FewFeatures(1, (), resolution, doubled=True), np.random.default_rng(4)
    u = {
        "normal": np.clip(0.5 + 0.125 * rng.standard_normal((50_000, 1)), 0, 1),
        "two values": rng.choice([0.5, 1.0], (50_000, 1), p=[0.8, 0.2]),
        "uniform": rng.uniform(size=(50_000, 1)),
        "ends": rng.choice([0.0, 0.25, 1.0], (50_000, 1)),
    }[kind]
    few = features.few(SimpleNamespace(numeric=u, categorical=np.zeros((50_000, 0), np.int32)))
    offsets = [OFFSETS_OF_PARTS.get(c.part, 0.0) for c in features.few.coordinates]
    scaled = (few + offsets) / features.few.body.law.deviations
    means = PrivateMeans(np.tile(scaled.mean(axis=0), (2, 1)), np.full(2, 1e9), np.zeros(2))
    bounds = max_form.additive_variances(features, means)[0]
    assert np.all(bounds >= scaled.var(axis=0) * (1 - 1e-6))
    for place, coordinate in enumerate(features.few.coordinates):
        if coordinate.part in ("cos", "sin") and coordinate.cycles == 1:
            assert bounds[place] == pytest.approx(scaled[:, place].var(), abs=1e-6)


def test_three_owners_and_categories_are_compared() -> None:
    study = few_study(1, (4,), 3.0, resolution=1)
    study = study.model_copy(
        update={"owners": (*study.owners, study.owners[0].model_copy(update={"name": "z"}))}
    )
    rng = np.random.default_rng(2)
    tables = [drawn(study, 800, rng) for _ in study.owners]
    tables[2].categorical[:] = 0
    verdict = verdict_of(study, tables, SeededNoise(1))
    assert [column.reject for column in verdict.columns] == [False, True]
    assert [pair.reject for pair in verdict.pairs] == [False, True, True]


def test_pvalues_that_forget_the_noise_are_caught() -> None:
    planted = with_mistake(
        max_form,
        "float(spread[place]), law, kind, noise[:, place]",
        "float(spread[place]), law, kind, 0.2 * noise[:, place]",
    )
    law, rng = FewFeatures(1, (), 0).few.body.law, np.random.default_rng(0)
    wrong = right = 0
    for _ in range(200):
        radius = rng.gamma(4, 1.0, (2, 1))
        values = radius * rng.choice(max_form.np.linspace(-1, 1, 99), (2, 3)) / law.deviations
        means = PrivateMeans(0.05 * values, np.full(2, 1e4), np.full(2, 0.05))
        variances = np.full((2, 3), 0.1)
        right += max_form.k_norm_pvalues(means, variances, law)[1][1] <= 0.05
        wrong += planted.k_norm_pvalues(means, variances, law)[1][1] <= 0.05
    assert right <= stats.binom.isf(FALSE_ALARM, 200, 0.08)
    assert wrong > stats.binom.isf(FALSE_ALARM, 200, 0.05)


@pytest.mark.parametrize(
    ("columns", "epsilon", "delta", "n", "chosen"),
    [
        (1, 0.3, 1e-5, 500, DOUBLED),
        (3, 1.0, 1e-5, 400, DOUBLED),
        (3, 0.3, 1e-5, 700, FEW | {"doubled": False}),
        (10, 1.0, 1e-5, 700, {"noise": "k-norm"}),
        (1, 1.0, 1e-5, 20_000, {}),
        (5, 1.0, 1e-5, 2000, {}),
        (20, 1.0, 1e-5, 1300, {"noise": "k-norm"}),
        (30, 1.0, 1e-5, 700, {}),
        (30, 1.0, 0.0, 700, {"noise": "k-norm"}),
        (1, 1.0, 0.0, 100_000, DOUBLED | {"resolution": 8}),
    ],
)
def test_noise_is_chosen_from_public_numbers(
    columns: int, epsilon: float, delta: float, n: int, chosen: dict[str, Any]
) -> None:
    study = study_of(domain_of(columns), {}, epsilon=epsilon)
    study = study.model_copy(update={"budget": Budget.of(epsilon, delta)})
    assert fitting_noise(study, n) == chosen


def test_resolution_grows_with_units_and_never_falls() -> None:
    study = study_of(domain_of(2), {}, epsilon=1.0).model_copy(update={"budget": Budget.of(1, 0)})
    found = [fitting_noise(study, 10**power).get("resolution", 0) for power in range(2, 8)]
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] > 4


def test_a_new_study_has_gaussian_noise_where_it_has_a_delta_and_fits_where_no_ledger_is() -> None:
    study = study_of(domain_of(1), {}, epsilon=0.3)
    assert "noise" not in PROCEDURES["kernel_two_sample"].with_new_defaults(study).parameters
    fitted = PROCEDURES["kernel_two_sample"].with_new_defaults(study, {"x": 500, "y": 900})
    assert fitted.parameters == DOUBLED
    pure = study.model_copy(update={"budget": Budget.of(0.3, 0)})
    assert PROCEDURES["kernel_two_sample"].with_new_defaults(pure).parameters == DOUBLED
    asked = study.model_copy(update={"parameters": {"features": "me"}})
    assert PROCEDURES["kernel_two_sample"].with_new_defaults(asked, {"x": 500, "y": 900}).parameters == {
        "features": "me"
    }


@pytest.mark.parametrize(
    ("columns", "categories", "doubled"),
    [(0, (3, 4), False), (1, (), True), (3, (4,), True), (3, (9, 9), False), (4, (), False)],
)
def test_a_new_study_in_pure_noise_has_two_cycles_where_they_pay(
    columns: int, categories: tuple[int, ...], doubled: bool
) -> None:
    study = few_study(columns, categories)
    stated = PROCEDURES["kernel_two_sample"].with_new_defaults(study).parameters
    assert stated == (DOUBLED if doubled else FEW)
    kept = study.model_copy(update={"parameters": FEW | {"doubled": False}})
    assert not PROCEDURES["kernel_two_sample"].with_new_defaults(kept).parameters["doubled"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"features": "me"}, "few features of columns"),
        ({"cycles": [1.0]}, "cycles has no effect"),
        ({"pair_share": 0.2}, "pair_share has no effect"),
        ({"noise": "gaussian", "resolution": 2}, "resolution has no effect"),
        ({"noise": "gaussian", "doubled": True}, "doubled has no effect"),
    ],
)
def test_what_does_not_act_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError, match=reason):
        PROCEDURE.check(study_of(domain_of(2), FEW | given))


def test_one_number_is_refused_and_another_resolution_is_no_same_release() -> None:
    with pytest.raises(StudyError, match="two numbers"):
        PROCEDURE.check(few_study(0, (3,)))
    with pytest.raises(StudyError, match="another resolution"):
        require_same_release(few_study(1), few_study(1, resolution=2))
    with pytest.raises(StudyError, match="another doubled"):
        require_same_release(few_study(1), few_study(1, doubled=True))


def test_an_account_of_this_procedure_alone_keeps_its_whole_gaussian_share() -> None:
    """The pure studies that its analysts may ask for take nobody's share; the owner states one for them."""
    rules: dict[str, Any] = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-5, "analysts": ("*",)}
    policy = Policy(**rules, procedures=("kernel_two_sample",))
    assert policy.families(PROCEDURES) == frozenset({"gaussian"})
    without = Policy(**(rules | {"delta_per_study_max": 0.0}), procedures=("kernel_two_sample",))
    assert without.families(PROCEDURES) == frozenset({"pure"})
