"""Association within owners: level, intervals, odd columns, bad studies, releases read again."""

from typing import Any

import numpy as np
import pytest
from local_noise import seeded_noise
from made_studies import made_study

import tacit.local
from tacit.errors import InputError
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.procedures.association.release import fitting_noise
from tacit_protocol.procedures.base import Rereads, StudyError
from tacit_protocol.procedures.discovery import procedure_named

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


def test_a_result_says_pair_owner_and_size() -> None:
    rng = np.random.default_rng(3)
    result = associated(owner(rng, 4000, 0.6), owner(rng, 3000, 0.6, 1.0), names=["north", "south"])
    assert [(pair.first, pair.second, pair.reject) for pair in result.pairs] == [("x", "y", True)]
    assert {effect.owner for effect in result.effects_by_owner} == {"north", "south"}
    assert "x and y: rank correlation" in str(result)
    assert "rank correlation" in result.report_html()
    assert "correlation" in result.to_svg()
    assert list(result.to_pandas()["kind"][:2]) == ["Pearson correlation", "rank correlation"]


def test_a_curve_without_any_correlation_is_found() -> None:
    x = np.random.default_rng(4).standard_normal(5000)
    assert associated({"x": x, "y": x**2 - 1}, epsilon=4.0).reject


@pytest.mark.parametrize("values", [0.0, np.nan, -9.0, 9.0])
@pytest.mark.filterwarnings("error")
def test_a_constant_or_missing_column_ends_in_a_verdict_of_the_same_form(values: float) -> None:
    rng = np.random.default_rng(5)
    odd = associated(owner(rng, 300, 0.5) | {"x": np.full(300, values)})
    assert not odd.reject
    assert [effect.kind for effect in odd.effects] == ["Pearson correlation", "rank correlation"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ((X,), "two to 20 columns"),
        ((X, CategoricalColumn(name="one", levels=("a",))), "two to 16 levels"),
    ],
)
def test_a_study_that_cannot_be_asked_says_what_to_change(columns: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        PROCEDURE.check(made_study("association", Domain(columns=columns), owners=2, delta=1e-5))
    with pytest.raises(InputError, match="one sample for each owner"):
        associated()


def test_a_release_is_read_again_for_the_same_columns_and_budget() -> None:
    source = made_study("association", Domain(columns=(X, Y)), owners=1, delta=1e-5)
    other = made_study("association", Domain(columns=(Y, X)), owners=1, delta=1e-5)
    assert isinstance(PROCEDURE, Rereads)
    release: Any = object()
    assert PROCEDURE.reread(source, source.owners[0], source, release) is release
    with pytest.raises(StudyError, match="other columns"):
        PROCEDURE.reread(other, other.owners[0], source, release)


PURE: dict[str, Any] = {"noise": "laplace", "delta": 0.0}


@pytest.mark.parametrize("epsilon", [4.0, pytest.param(0.5, marks=pytest.mark.long)])
def test_in_pure_epsilon_the_level_is_kept_with_histograms_and_without(epsilon: float) -> None:
    """30 studies at level .05: more than 10 rejections have probability below 1e-6."""
    rng, rejected = np.random.default_rng(6), 0
    for seed in range(30):
        owners = owner(rng, 300, 0.0, -1.0), owner(rng, 300, 0.0, 1.0)
        rejected += associated(*owners, seed=seed, epsilon=epsilon, **PURE).reject
    assert rejected <= 10


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


@pytest.mark.filterwarnings("error")
def test_in_pure_epsilon_a_constant_column_ends_in_a_verdict_and_a_curve_is_found() -> None:
    rng = np.random.default_rng(8)
    odd = associated(owner(rng, 300, 0.5) | {"x": np.full(300, np.nan)}, epsilon=4.0, **PURE)
    assert not odd.reject
    x = rng.standard_normal(5000)
    assert associated({"x": x, "y": x**2 - 1}, epsilon=4.0, **PURE).reject


@pytest.mark.parametrize(
    ("units", "epsilon", "delta", "columns", "chosen"),
    [
        (1000, 1.0, 0.0, 2, {"noise": "laplace"}),
        (1000, 1.0, 1e-5, 2, {"noise": "laplace"}),
        (1000, 1.0, 1e-5, 8, {}),
        (1_000_000, 1.0, 1e-5, 2, {}),
        (1_000_000, 1.0, 0.0, 2, {"noise": "laplace"}),
    ],
)
def test_the_noise_is_chosen_by_public_numbers(
    units: int, epsilon: float, delta: float, columns: int, chosen: dict[str, str]
) -> None:
    domain = Domain(columns=tuple(X.model_copy(update={"name": f"x{place}"}) for place in range(columns)))
    study = made_study("association", domain, owners=1, delta=delta, epsilon=epsilon)
    assert fitting_noise(study, units) == chosen
    assert PROCEDURE.new_defaults(study) == ({} if delta else {"noise": "laplace"})


def test_a_pure_study_costs_epsilon_alone_and_says_why() -> None:
    study = made_study("association", Domain(columns=(X, Y)), {"noise": "laplace"}, owners=1, delta=0.0)
    assert PROCEDURE.cost(study).budget.delta_pico == 0
    assert "there is no delta" in " ".join(PROCEDURE.asks(study))
    assert "ranks" in PROCEDURE.what_is_released(study)


def test_a_release_in_another_noise_is_not_read_again() -> None:
    source = made_study("association", Domain(columns=(X, Y)), owners=1, delta=1e-5)
    other = source.model_copy(update={"parameters": {"noise": "laplace"}})
    assert isinstance(PROCEDURE, Rereads)
    release: Any = object()
    with pytest.raises(StudyError, match="another noise"):
        PROCEDURE.reread(other, other.owners[0], source, release)
