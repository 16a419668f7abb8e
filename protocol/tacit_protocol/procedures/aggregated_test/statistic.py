"""The tests that blocks of units take, by name: statistics of a block and of its permutations.

Under the null hypothesis of a permutation test the block's own statistic and those of random permutations (or
of differences with random signs) are exchangeable, so that its rank is uniform once ties are broken by lot:
whatever the statistic, and whatever law the units have. A statistic may so be any that orders permutations as
the test's own does: Student's t orders them as the difference of means, the rank sum as the U statistic.
Only ``conditional_independence`` is valid in the limit alone: residuals of fitted functions are not
exchangeable. Sources: docs/procedures/aggregated_test.md.
"""

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats
from threadpoolctl import threadpool_limits

from tacit_protocol.procedures.aggregation import BLOCK_PERMUTATIONS
from tacit_protocol.procedures.permutation.additive_noise import fit, terms

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

Takes = Literal["groups", "paired", "pair", "table", "times", "given"]
"""A group and a number; two numbers before and after; two numbers; a group and a category; a group, a time
and an event; or two columns and all others."""

Regression = Literal["linear", "polynomial", "forest", "boosting"]

LEVELS_MAX = 50
"""Most levels of a group or an outcome that a test takes."""

FOLDS = 5
"""Parts of a block, each of whose values are predicted by a forest or by boosting from the other parts."""

TREES, ROUNDS = 40, 40
"""Trees of a forest, and rounds of boosting: of a block's few hundred units."""


class RegressionUnavailableError(RuntimeError):
    """A regression needs scikit-learn, which is not installed here."""


def require_regression(regression: Regression) -> None:
    """Raise RegressionUnavailableError where a regression cannot be fitted here, whatever the data."""
    if regression in ("forest", "boosting") and importlib.util.find_spec("sklearn") is None:
        raise RegressionUnavailableError(
            f"regression {regression} needs scikit-learn at every owner: pip install 'tacit[regressions]'"
        )


PAIRS_AT_ONCE = 200
"""Most units of a block all pairs of which are compared for every permutation at once: 32 MB."""


@dataclass(frozen=True)
class UnitBlock:
    """The columns of a block's units, in their parts: (n,) each, ``given`` (n, numbers) and (n, categories).

    ``first`` is what is looked at: the outcome's numbers or codes, the times, the numbers before. ``second``
    is what it is compared with: groups' codes, a number, the numbers after. ``event`` is 1 where a time ended
    with the event, else 0. ``levels`` says of how many levels the codes of both are, and ``categories`` those
    of given categories: declared ones, so that no loop tells which of them a block has.
    """

    first: Floats
    second: Floats
    event: Floats | None = None
    given: tuple[Floats, Codes] | None = None
    regression: Regression = "linear"
    levels: tuple[int, int] = (LEVELS_MAX, LEVELS_MAX)
    categories: tuple[int, ...] = ()


Statistics = Callable[[UnitBlock, np.random.Generator], Floats]
"""Of a block: the statistic as it is, and of BLOCK_PERMUTATIONS permutations, (B + 1,)."""


@dataclass(frozen=True)
class BlockTest:
    """A test, by what it takes and what it says.

    ``words`` name it; ``up`` and ``down`` say what votes of 1 and -1 mean, and ``up`` alone what a rejection
    does where the test has no direction; ``groups`` are the fewest and most levels of the group's column,
    ``levels`` those of the outcome's.
    """

    words: str
    takes: Takes
    statistics: Statistics
    up: str
    down: str | None = None
    groups: tuple[int, int] = (2, 2)
    levels: tuple[int, int] = (2, 2)

    @property
    def directed(self) -> bool:
        """Whether blocks reject towards one side or the other."""
        return self.down is not None


def statistics_of(test: BlockTest, block: UnitBlock, rng: np.random.Generator) -> Floats:
    """Return a block's statistics, (B + 1,): a number or an infinity each, of any block.

    An infinite one is the strongest evidence there is. One that is undefined (0/0) is 0, evidence of nothing:
    a rule that is the same for every permutation leaves them exchangeable. All are 0 where they cannot be
    computed, so that the block votes by lot. Nothing else tells what went wrong: no error, no warning.
    """
    tied = np.zeros(BLOCK_PERMUTATIONS + 1)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = np.asarray(test.statistics(block, rng), dtype=np.float64)
    except Exception:  # whatever a black box raises would tell of the data
        return tied
    return np.where(np.isnan(found), 0.0, found) if found.shape == tied.shape else tied


def _permuted(values: Floats, rng: np.random.Generator) -> Floats:
    """Return values, (n,), as they are and permuted, (B + 1, n)."""
    orders = np.tile(values, (BLOCK_PERMUTATIONS + 1, 1))
    rng.permuted(orders[1:], axis=1, out=orders[1:])
    return orders


def _centred(values: Floats) -> Floats:
    """Return values less their mean, of length 1; or zeros where they are all equal."""
    centred = np.where(np.ptp(values) > 0, values - values.mean(), 0.0)
    length = float(np.linalg.norm(centred))
    return np.asarray(centred / (length if length > 0 else 1.0))


def _ranks(values: Floats) -> Floats:
    return np.asarray(stats.rankdata(values), dtype=np.float64)


def _numbers(values: Floats) -> Floats:
    return values


def _linear(of: Callable[[Floats], Floats], other: Callable[[Floats], Floats]) -> Statistics:
    """Return the test of the correlation of functions of both columns; of two groups, of their means."""

    def statistics(block: UnitBlock, rng: np.random.Generator) -> Floats:
        return np.asarray(_permuted(_centred(other(block.second)), rng) @ _centred(of(block.first)))

    return statistics


def _signed(of: Callable[[Floats], Floats]) -> Statistics:
    """Return the test of the sum of functions of differences, whose signs are drawn anew."""

    def statistics(block: UnitBlock, rng: np.random.Generator) -> Floats:
        return _flipped(of(block.second - block.first), rng)

    return statistics


def _flipped(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the sum of values, (n,), as they are and with random signs, (B + 1,)."""
    signs = rng.choice([-1.0, 1.0], (BLOCK_PERMUTATIONS + 1, len(values)))
    signs[0] = 1
    length = float(np.linalg.norm(values))
    return np.asarray(signs @ values / (length if length > 0 else 1.0))


def _signed_ranks(differences: Floats) -> Floats:
    """Return Wilcoxon's signed ranks; differences of 0 have none."""
    ranks = stats.rankdata(np.abs(differences)) - np.sum(differences == 0)
    return np.asarray(np.sign(differences) * ranks)


Difference = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Of values, (n,), and groups 0 and 1, (B + 1, n): a difference, (B + 1,), and its estimated variance."""


def _two_groups(of: Difference) -> Statistics:
    """Return the test by a difference between two groups, over its standard deviation.

    Without any variation within groups a difference is infinite, and none is 0.
    """

    def statistics(block: UnitBlock, rng: np.random.Generator) -> Floats:
        difference, variance = of(block.first, _permuted(block.second, rng))
        return np.where(difference == 0, 0.0, difference / np.sqrt(variance))

    return statistics


def _mean_variance(values: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Return the mean of those values that are members', (B + 1,), and its estimated variance: 0 of one."""
    size = members.sum(axis=1)
    mean = (values * members).sum(axis=1) / size
    squares = (np.square(values - mean[:, None]) * members).sum(axis=1)
    return mean, squares / (size * np.maximum(1.0, size - 1))


def _welch(values: Floats, groups: Floats) -> tuple[Floats, Floats]:
    # From their middle, so that the means of values that are all equal do not differ by rounding.
    centred = np.broadcast_to(values - (values.min() + values.max()) / 2, groups.shape)
    (one, first), (other, second) = (_mean_variance(centred, each) for each in (groups, 1 - groups))
    return one - other, first + second


def _brunner_munzel(values: Floats, groups: Floats) -> tuple[Floats, Floats]:
    """Compare how many of the other group are smaller than a unit, of every unit: ties by half, exactly."""
    order = np.argsort(values, kind="stable")
    values, groups = values[order], groups[:, order]
    left, right = (np.searchsorted(values, values, side) for side in ("left", "right"))
    placed = []
    for members, others in ((groups, 1 - groups), (1 - groups, groups)):
        seen = np.zeros((len(groups), len(values) + 1))
        np.cumsum(others, axis=1, out=seen[:, 1:])
        smaller = (seen[:, left] + seen[:, right]) / 2
        total = (smaller * members).sum(axis=1)
        placed.append((total, _mean_variance(smaller, members)[1] / others[0].sum() ** 2))
    (above, first), (below, second) = placed
    return (above - below) / (groups[0].sum() * (1 - groups[0]).sum()), first + second


def _between(outcomes: Floats, groups: Floats, levels: int) -> Floats:
    """Return the groups' share of the sum of squares of (n, k) outcomes, for groups (B + 1, n): (B + 1,)."""
    centred, found = outcomes - outcomes.mean(axis=0), np.zeros(len(groups))
    for code in range(levels):
        members = (groups == code).astype(np.float64)
        found += np.sum((members @ centred) ** 2, axis=1) / max(1.0, members[0].sum())
    total = float(np.sum(centred**2))
    return found / (total if total > 0 else 1.0)


def _variance(of: Callable[[Floats], Floats]) -> Statistics:
    """Return the test of the variance between groups of a function of the outcome."""

    def statistics(block: UnitBlock, rng: np.random.Generator) -> Floats:
        return _between(of(block.first)[:, None], _permuted(block.second, rng), block.levels[1])

    return statistics


def _chi_squared(block: UnitBlock, rng: np.random.Generator) -> Floats:
    """Pearson's statistic, over the number of units: between groups, of levels by the root of their share."""
    indicators = (block.first[:, None] == np.arange(block.levels[0])).astype(np.float64)
    counts = np.maximum(1.0, indicators.sum(axis=0))
    indicators /= np.sqrt(counts / len(block.first))
    return _between(indicators, _permuted(block.second, rng), block.levels[1])


def _kolmogorov_smirnov(block: UnitBlock, rng: np.random.Generator) -> Floats:
    order = np.argsort(block.first, kind="stable")
    ends = np.searchsorted(block.first[order], block.first[order], "right") - 1
    groups = _permuted(block.second[order], rng)
    shares = groups / groups[0].sum() - (1 - groups) / (1 - groups[0]).sum()
    return np.asarray(np.abs(np.cumsum(shares, axis=1)[:, ends]).max(axis=1))


def _jonckheere(block: UnitBlock, rng: np.random.Generator) -> Floats:
    """Pairs of units whose outcomes rise with their groups, less those that fall, of all pairs."""
    order = np.argsort(block.first, kind="stable")
    values, groups = block.first[order], _permuted(block.second[order], rng)
    below, up_to = (np.searchsorted(values, values, side) for side in ("left", "right"))
    units = np.arange(len(values))
    found = np.zeros(len(groups))
    for code in range(block.levels[1] - 1):
        seen = np.zeros((len(groups), len(values) + 1))
        np.cumsum(groups == code, axis=1, out=seen[:, 1:])
        # Units of this group with smaller outcomes, less those with larger ones, of every unit.
        higher = seen[:, below[units]] + seen[:, up_to[units]] - seen[:, -1:]
        found += np.sum(higher * (groups > code), axis=1)
    return found / len(values) ** 2


def _kendall(block: UnitBlock, rng: np.random.Generator) -> Floats:
    others = _permuted(block.second, rng)
    if len(block.first) <= PAIRS_AT_ONCE:
        pairs = np.sign(others[:, :, None] - others[:, None, :]).reshape(len(others), -1)
        signs = np.sign(block.first[:, None] - block.first[None, :]).ravel()
        return np.asarray(pairs @ signs / len(signs))
    return np.array([stats.kendalltau(block.first, other, method="asymptotic").statistic for other in others])


def log_rank_scores(times: Floats, events: Floats) -> Floats:
    """Return events less the Nelson-Aalen hazard up to a unit's time, (n,): a group's sum is its log-rank.

    >>> log_rank_scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0])).round(3).tolist()
    [0.667, -0.333, -0.333]
    """
    order = np.argsort(times, kind="stable")
    ordered, happened = times[order], events[order]
    at_risk = len(times) - np.searchsorted(ordered, ordered, "left")
    hazard = np.cumsum(happened / at_risk)[np.searchsorted(ordered, ordered, "right") - 1]
    scores = np.empty(len(times))
    scores[order] = happened - hazard
    return scores


def _log_rank(block: UnitBlock, rng: np.random.Generator) -> Floats:
    if block.event is None:
        raise TypeError("a log-rank test needs events")
    scores = log_rank_scores(block.first, block.event)
    return np.asarray(_permuted(_centred(block.second), rng) @ _centred(scores))


def _residuals(response: Floats, block: UnitBlock, given: tuple[Floats, Codes], seed: int) -> Floats:
    """Return a column less its regression on the given ones, (n,)."""
    (numbers, codes), regression = given, block.regression
    if regression == "polynomial":
        known = terms(numbers, codes, block.categories)
        return np.asarray(response - fit(known, response)(known))
    indicators = [
        (column[:, None] == np.arange(1, count)).astype(np.float64)
        for column, count in zip(codes.T, block.categories, strict=True)
    ]
    known = np.concatenate([numbers, *indicators], axis=1)
    if regression == "linear":
        known = np.concatenate([np.ones((len(known), 1)), known], axis=1)
        return np.asarray(response - known @ np.linalg.lstsq(known, response)[0])
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor  # noqa: PLC0415
    from sklearn.model_selection import KFold, cross_val_predict  # noqa: PLC0415

    if regression == "forest":
        model = RandomForestRegressor(TREES, min_samples_leaf=5, random_state=seed)
    else:
        model = HistGradientBoostingRegressor(
            max_iter=ROUNDS, max_leaf_nodes=8, min_samples_leaf=5, early_stopping=False, random_state=seed
        )
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(limits=1):  # of so few units threads would wait for each other
        return np.asarray(response - cross_val_predict(model, known, response, cv=folds))


def _generalised_covariance(block: UnitBlock, rng: np.random.Generator) -> Floats:
    """Return the sum of products of both columns' residuals, beside sums with random signs."""
    if block.given is None:
        raise TypeError("a test of conditional independence needs the columns that are given")
    seed = int(rng.integers(2**31))
    first, second = (_residuals(column, block, block.given, seed) for column in (block.first, block.second))
    # Residuals that are rounding errors alone are none: the column is a function of the given ones.
    products = np.ones(len(first))
    for residuals, column in ((first, block.first), (second, block.second)):
        left = np.linalg.norm(residuals) > 1e-9 * max(1.0, float(np.linalg.norm(column)))
        products *= np.where(left, residuals, 0.0)
    return _flipped(products, rng)


LARGER = ("{first} is larger in {b} than in {a}", "{first} is smaller in {b} than in {a}")
DIFFERS = "the distribution of {first} differs between groups of {second}"
ALONG = ("{first} rises along {second}", "{first} falls along {second}")
TOGETHER = ("{first} and {second} rise together", "{first} falls where {second} rises")
AFTER = ("{second} is larger than {first}", "{second} is smaller than {first}")
SHARE = ("{level} is more frequent in {b} than in {a}", "{level} is less frequent in {b} than in {a}")
SHARES = ("{level} is more frequent along {second}", "{level} is less frequent along {second}")
EARLIER = ("the event comes earlier in {b} than in {a}", "the event comes later in {b} than in {a}")
GIVEN = (f"{TOGETHER[0]}, the other columns given", f"{TOGETHER[1]}, the other columns given")

MANY = (2, 8)

TESTS: Mapping[str, BlockTest] = {
    "t": BlockTest("Student's t test", "groups", _linear(_numbers, _numbers), *LARGER),
    "welch": BlockTest("Welch's t test", "groups", _two_groups(_welch), *LARGER),
    "mann_whitney": BlockTest("Mann-Whitney U test", "groups", _linear(_ranks, _numbers), *LARGER),
    "brunner_munzel": BlockTest("Brunner-Munzel test", "groups", _two_groups(_brunner_munzel), *LARGER),
    "kolmogorov_smirnov": BlockTest("Kolmogorov-Smirnov test", "groups", _kolmogorov_smirnov, DIFFERS),
    "anova": BlockTest("analysis of variance", "groups", _variance(_numbers), DIFFERS, groups=MANY),
    "kruskal_wallis": BlockTest("Kruskal-Wallis test", "groups", _variance(_ranks), DIFFERS, groups=MANY),
    "jonckheere": BlockTest("Jonckheere-Terpstra trend test", "groups", _jonckheere, *ALONG, groups=MANY),
    "paired_t": BlockTest("paired t test", "paired", _signed(_numbers), *AFTER),
    "wilcoxon": BlockTest("Wilcoxon signed-rank test", "paired", _signed(_signed_ranks), *AFTER),
    "sign": BlockTest("sign test", "paired", _signed(np.sign), *AFTER),
    "pearson": BlockTest("test of Pearson's correlation", "pair", _linear(_numbers, _numbers), *TOGETHER),
    "spearman": BlockTest("test of Spearman's correlation", "pair", _linear(_ranks, _ranks), *TOGETHER),
    "kendall": BlockTest("test of Kendall's tau", "pair", _kendall, *TOGETHER),
    "fisher": BlockTest("Fisher's exact test", "table", _linear(_numbers, _numbers), *SHARE),
    "cochran_armitage": BlockTest(
        "Cochran-Armitage trend test", "table", _linear(_numbers, _numbers), *SHARES, groups=MANY
    ),
    "chi_squared": BlockTest(
        "chi-squared test",
        "table",
        _chi_squared,
        "{first} depends on {second}",
        groups=(2, LEVELS_MAX),
        levels=(2, LEVELS_MAX),
    ),
    "log_rank": BlockTest("log-rank test", "times", _log_rank, *EARLIER),
    "conditional_independence": BlockTest(
        "generalised covariance measure", "given", _generalised_covariance, *GIVEN
    ),
}
"""Every test that a study may name: a closed list, since an owner's agent runs it beside the rows."""
