"""Effects in units: exact without noise, intervals that hold their truth, what cannot be said, and words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from planted import with_mistake
from scipy import stats

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, NumericColumn
from tacit_protocol.features.moments import AdditiveFeatures, default_choice
from tacit_protocol.procedures.means import effects
from tacit_protocol.procedures.means.private_means import GroupResult, PrivateMeans
from tacit_protocol.verdicts.base import JointEffect, told_between

Floats = npt.NDArray[np.float64]

RUNS = 300
FALSE_ALARM = 1e-7
"""Probability that intervals which hold in .93 of studies fail a test here; there are some forty tests."""

LEVEL = 0.05
NUMBER = Domain(columns=(NumericColumn(name="age", lower=20.0, upper=60.0),))
CATEGORY = Domain(columns=(CategoricalColumn(name="sex", levels=("f", "m")),))
BOTH = Domain(columns=NUMBER.columns + CATEGORY.columns)
NUMERIC = ("mean difference", "standard deviation difference", "standard deviation ratio")
CATEGORICAL = ("risk difference", "risk ratio", "odds ratio")


def features_of(domain: Domain) -> AdditiveFeatures:
    numeric = len(domain.numeric)
    categories = tuple(column.categories for column in domain.categorical)
    return AdditiveFeatures(
        numeric, categories, default_choice(numeric, categories, 0.3, moments=numeric > 0)
    )


def exact_means(features: AdditiveFeatures, numbers: Floats, codes: npt.NDArray[np.int32]) -> Floats:
    """The mean features of rows with numbers (n, numeric) in [0, 1] and codes (n, categorical)."""
    return np.asarray(features(EncodedChunk(numbers, codes, None, len(numbers))).mean(axis=0))


def stated(
    module: Any, domain: Domain, means: Floats, units: Floats, noise: Floats, names: tuple[str, ...]
) -> tuple[tuple[JointEffect, ...], Any]:
    """The effects and summaries of samples' means (k, J); ``noise`` (k, k) is the noise's covariance."""
    groups = [GroupResult("column", str(place), 0.5) for place in range(len(domain.columns))]
    samples = module.Samples(names, means, units, noise)
    found: tuple[tuple[JointEffect, ...], Any] = module.effects_by_column(
        domain, features_of(domain), samples, LEVEL, groups
    )
    return found


def test_without_noise_effects_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    features = features_of(BOTH)
    rows = [
        (rng.beta(2, 3, (n, 1)), rng.choice(2, (n, 1), p=p))
        for n, p in ((900, (0.7, 0.3)), (400, (0.4, 0.6)))
    ]
    means = np.stack([exact_means(features, x, c.astype(np.int32)) for x, c in rows])
    found, summaries = stated(
        effects, BOTH, means, np.array([900.0, 400.0]), np.zeros((2, 2)), ("north", "south")
    )
    ages = [20 + 40 * x[:, 0] for x, _ in rows]
    p, q = (float(c.mean()) for _, c in rows)
    truth = {
        "mean difference": ages[0].mean() - ages[1].mean(),
        "standard deviation difference": ages[0].std() - ages[1].std(),
        "standard deviation ratio": ages[0].std() / ages[1].std(),
        "risk difference": p - q,
        "risk ratio": p / q,
        "odds ratio": p * (1 - q) / (q * (1 - p)),
    }
    assert {effect.kind: effect.estimate for effect in found} == pytest.approx(truth)
    assert {effect.groups for effect in found} == {("north", "south")}
    assert {effect.level for effect in found if effect.column == "sex"} == {"m"}
    told = {(s.owner, s.kind): s.estimate for s in summaries}
    assert told["south", "mean"] == pytest.approx(ages[1].mean())
    assert told["south", "standard deviation"] == pytest.approx(ages[1].std())
    assert told["north", "share"] == pytest.approx(p)
    units = {effect.kind: effect.unit for effect in found}
    assert units["mean difference"] == "units of age"
    assert units["odds ratio"] == ""


def test_the_difference_of_means_has_welchs_interval_without_noise() -> None:
    rng = np.random.default_rng(2)
    features = features_of(NUMBER)
    rows = [rng.beta(2, 3, (n, 1)) for n in (4000, 9000)]
    means = np.stack([exact_means(features, x, np.zeros((len(x), 0), np.int32)) for x in rows])
    found, _ = stated(effects, NUMBER, means, np.array([4000.0, 9000.0]), np.zeros((2, 2)), ("a", "b"))
    ages = [20 + 40 * x[:, 0] for x in rows]
    half = 1.96 * np.sqrt(ages[0].var() / 4000 + ages[1].var() / 9000)
    assert found[0].interval[1] - found[0].interval[0] == pytest.approx(2 * half, rel=0.01)


Draw = Callable[[np.random.Generator, int], Floats]

LAWS: dict[str, tuple[Draw, Draw]] = {
    "normal": (lambda r, n: r.normal(0.5, 0.12, n), lambda r, n: r.normal(0.52, 0.1, n)),
    "skewed": (lambda r, n: r.beta(0.5, 4, n), lambda r, n: r.beta(0.6, 4, n)),
    "rare": (
        lambda r, n: np.where(r.random(n) < 0.01, 0.95, 0.05),
        lambda r, n: np.where(r.random(n) < 0.02, 0.95, 0.05),
    ),
    "five values": (
        lambda r, n: r.choice(5, n, p=(0.4, 0.3, 0.2, 0.05, 0.05)) / 4,
        lambda r, n: r.choice(5, n, p=(0.35, 0.3, 0.2, 0.1, 0.05)) / 4,
    ),
}
SHARES = {"level of .4": (0.4, 0.35), "level of .02": (0.02, 0.04)}
SIZES = {"little noise": (2000, 3000, 5.0), "much noise": (400, 600, 40.0), "unequal": (150, 5000, 15.0)}
"""Units, and the noise on a sum of raw coordinates in units: epsilon of about 3, .3 and 1."""

OWNERS = np.eye(2)
CURATOR = np.array([[1.0, 0.6], [0.6, 1.0]])


def truths(law: str) -> dict[str, float]:
    if law in SHARES:
        p, q = SHARES[law]
        return dict(zip(CATEGORICAL, (p - q, p / q, p * (1 - q) / (q * (1 - p))), strict=True))
    rng = np.random.default_rng(99)
    one, other = (20 + 40 * np.clip(draw(rng, 2_000_000), 0, 1) for draw in LAWS[law])
    return dict(
        zip(
            NUMERIC,
            (one.mean() - other.mean(), one.std() - other.std(), one.std() / other.std()),
            strict=True,
        )
    )


def misses(
    module: Any, law: str, size: str, shared: Floats, runs: int = RUNS
) -> tuple[dict[str, int], dict[str, int], int]:
    """How often intervals miss the truth, and are stated, by kind; how often any joint one misses."""
    domain = CATEGORY if law in SHARES else NUMBER
    features, truth = features_of(domain), truths(law)
    *units, deviation = SIZES[size]
    rng = np.random.default_rng([len(law), units[0], units[1]])
    scale = float(max(c.scale for c in features.column_wise.coordinates))
    noise = shared * scale**2 * deviation**2 / np.outer(units, units)
    root = np.linalg.cholesky(noise)
    missed, said, joint = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0), 0
    for _ in range(runs):
        means = []
        for place, n in enumerate(int(own) for own in units):
            if law in SHARES:
                codes = (rng.random((n, 1)) < SHARES[law][place]).astype(np.int32)
                means.append(exact_means(features, np.zeros((n, 0)), codes))
            else:
                numbers = np.clip(LAWS[law][place](rng, n), 0, 1)[:, None]
                means.append(exact_means(features, numbers, np.zeros((n, 0), np.int32)))
        noisy = np.stack(means) + root @ rng.standard_normal((2, features.dimension))
        found, _ = stated(module, domain, noisy, np.array(units, dtype=float), noise, ("a", "b"))
        any_missed = False
        for effect in found:
            held, all_held = (
                (low is None or low <= truth[effect.kind]) and (high is None or truth[effect.kind] <= high)
                for low, high in (
                    (effect.lower, effect.upper),
                    (effect.simultaneous_lower, effect.simultaneous_upper),
                )
            )
            missed[effect.kind] += not held
            said[effect.kind] += effect.interval is not None
            any_missed |= not all_held
        joint += any_missed
    return missed, said, joint


@pytest.mark.sweep(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("law", [*LAWS, *SHARES])
def test_intervals_hold_the_truth(law: str, size: str) -> None:
    missed, said, joint = misses(effects, law, size, OWNERS)
    allowed = stats.binom.isf(FALSE_ALARM, RUNS, 0.07)
    assert max(missed.values()) <= allowed
    assert joint <= allowed
    assert all(said[kind] == RUNS for kind in said if kind.endswith("difference"))


@pytest.mark.parametrize("law", ["normal", "level of .4"])
def test_intervals_of_samples_with_shared_noise_hold_the_truth(law: str) -> None:
    """At a curator both means are rebuilt from a difference and a centre."""
    missed, _, joint = misses(effects, law, "much noise", CURATOR)
    assert max(*missed.values(), joint) <= stats.binom.isf(FALSE_ALARM, RUNS, 0.07)


MEAN_NOISE = "self.noise + np.diag((self.spreads"
SHARE_NOISE = "self.noise + np.diag((likely"


@pytest.mark.parametrize(
    ("right", "wrong", "law", "kind"),
    [
        (MEAN_NOISE, f"0 * {MEAN_NOISE}", "normal", NUMERIC[0]),
        ("self.noise * (4 / 9 *", "self.noise * (1 / 9 *", "normal", NUMERIC[1]),
        (SHARE_NOISE, f"0.2 * {SHARE_NOISE}", "level of .4", CATEGORICAL[0]),
        ("(v, -2 * c, w)", "(v / 9, -2 * c, w / 9)", "level of .4", CATEGORICAL[1]),
        ("Effects.single(p * (1 - q) + c", "Effects.single(p + c", "level of .4", CATEGORICAL[2]),
    ],
)
def test_a_planted_mistake_is_seen(right: str, wrong: str, law: str, kind: str) -> None:
    missed, _, _ = misses(with_mistake(effects, right, wrong), law, "much noise", OWNERS)
    assert missed[kind] > stats.binom.isf(FALSE_ALARM, RUNS, 0.07)


def test_sampling_left_out_is_seen() -> None:
    planted = with_mistake(
        effects, "clip(self.variances, 0.0, 1 - self.means**2)", "clip(self.variances, 0.0, 0.0)"
    )
    missed, _, _ = misses(planted, "normal", "little noise", OWNERS)
    assert missed[NUMERIC[0]] > stats.binom.isf(FALSE_ALARM, RUNS, 0.07)


def test_a_ratio_whose_denominator_may_be_nothing_is_not_stated() -> None:
    means = np.array([[0.3, 0.4], [0.0, 0.5]])
    shares = effects.Shares(means[:, 0], np.array([100.0, 100.0]), 0.01 * np.eye(2))
    told = {kind: at(LEVEL) for kind, at in shares.between(0, 1).items()}
    assert told["risk ratio"].value is None
    assert told["risk ratio"].upper is None
    assert told["risk difference"].value == pytest.approx(0.3)


def test_a_spread_that_noise_hides_reaches_down_to_nothing() -> None:
    numbers = effects.Numbers(
        (1.0,), np.array([[0.0, -0.52, 0.0, 0.0]] * 2), np.array([50.0, 50.0]), 0.01 * np.eye(2)
    )
    told = numbers.between(0, 1)["standard deviation difference"](LEVEL)
    assert told.lower < 0 < told.upper
    assert numbers.between(0, 1)["standard deviation ratio"](LEVEL).value is None


def test_above_so_many_owners_no_pairs_are_compared_and_each_still_has_its_numbers() -> None:
    features, count = features_of(NUMBER), 33
    means = np.tile(exact_means(features, np.full((10, 1), 0.4), np.zeros((10, 0), np.int32)), (count, 1))
    names = tuple(f"o{place}" for place in range(count))
    found, summaries = stated(effects, NUMBER, means, np.full(count, 10.0), 1e-6 * np.eye(count), names)
    assert found == ()
    assert len(summaries) == 2 * count


def test_the_fit_of_a_moment_is_exact_for_what_the_coordinates_hold() -> None:
    t, columns = effects.design((1.5, 3.0))
    target = 0.3 - 0.2 * columns[:, 1] + columns[:, 4]
    coefficients = effects.fit(columns, target, np.ones(len(t)), 0.0)
    assert columns @ coefficients == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "shares"),
    [((-0.9, 0.9), (0.99, 0.01)), ((-1.0, -0.5, 0.0, 0.5, 1.0), (0.4, 0.3, 0.2, 0.05, 0.05))],
)
def test_the_fourth_moment_of_a_few_far_values_is_found_with_few_waves(
    values: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    """With two waves, as of many columns, a fit of (t - m)^4 itself was a third too small, or a sixth off."""
    at, weights = np.array(values), np.array(shares)
    t, columns = effects.design((1.625, 3.25))
    raw = np.array([weights @ np.interp(at, t, column) for column in columns.T[1:]])
    numbers = effects.Numbers((1.625, 3.25), raw[None], np.array([5000.0]), 1e-6 * np.eye(1))
    mean = weights @ at
    exact = weights @ (at - mean) ** 4 - (weights @ (at - mean) ** 2) ** 2
    spread = numbers.variance_covariance[0, 0] * 5000 - 5000 * 1e-6 * (4 / 9 + 4 * mean**2)
    assert spread == pytest.approx(exact, rel=0.06)


@pytest.mark.parametrize("moments", [False, True])
def test_the_mean_squared_norm_follows_from_the_means(moments: bool) -> None:
    rng = np.random.default_rng(4)
    features = AdditiveFeatures(3, (4,), default_choice(3, (4,), 0.3, moments=moments))
    chunk = EncodedChunk(rng.beta(1, 3, (500, 3)), rng.integers(0, 4, (500, 1)).astype(np.int32), None, 500)
    rows = features(chunk)
    found = effects.squared_lengths(features, rows.mean(axis=0)[None])
    assert found[0] == pytest.approx((rows**2).sum(axis=1).mean(), abs=0.01 if moments else 1e-9)


def effect(kind: str, estimate: float | None, lower: float | None, upper: float | None) -> JointEffect:
    return JointEffect(
        column="age",
        kind=kind,
        groups=("north", "south"),
        estimate=estimate,
        lower=lower,
        upper=upper,
        unit="units of age",
        simultaneous_lower=lower,
        simultaneous_upper=upper,
    )


def test_a_sentence_says_what_is_sure_first_and_in_which_direction() -> None:
    told = told_between(
        [effect("mean difference", 0.1, -0.3, 0.5), effect("standard deviation difference", 1.5, 1.2, 1.8)]
    )
    assert told == [
        "age: spread larger by 1.5 (1.2 to 1.8) in north than in south; means differ by 0.1 (-0.3 to 0.5)"
    ]
    assert told_between([effect("mean difference", -2.0, -3.0, -1.0)]) == [
        "age: mean smaller by 2 (1 to 3) in north than in south"
    ]
    assert told_between([effect("mean difference", 0.1, -0.3, 0.5)]) == [
        "age, north less south: means differ by 0.1 (-0.3 to 0.5)"
    ]
    assert told_between([effect("mean difference", None, None, None)]) == [
        "age, north less south: how means differ cannot be said"
    ]


def test_names_of_owners_reach_the_summaries_with_private_means() -> None:
    means = PrivateMeans(np.zeros((2, 3)), np.array([5.0, 6.0]), np.array([0.1, 0.2]))
    samples = effects.Samples.of_owners(["a", "b"], means)
    assert samples.names == ("a", "b")
    assert samples.noise == pytest.approx(np.diag([0.01, 0.04]))
