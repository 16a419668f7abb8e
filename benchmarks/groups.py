"""Comparison of groups within owners: level, power and coverage, beside what people would do otherwise.

    python -m benchmarks.groups --workers 2     # continues where it stopped

Two groups at every owner, and a column that they are compared in: a number, with bounds 4 standard deviations
from its mean, or a category of two. ``shift`` moves the column's mean by so many standard deviations from the
first owner to the last, and the share of the second group by a fifth. Noise is simulated with NumPy;
statistics and intervals are the procedure's own functions.

``pooled t`` is Welch's test of all owners' rows together, without privacy; ``within, not private`` the
inverse-variance mean of the owners' exact differences; ``naive`` the same of noisy counts, sums and sums of
squares by group, each with Laplace noise of a third of epsilon, as if they were exact.

The page ``aggregated-test`` takes known tests by blocks on the same owners, in pure epsilon, with the
procedure's default number of blocks; and the generalised covariance measure of two columns that follow a
third.
Beside another owner's answers: one owner knows the group, another the outcome of the same units. *answers
taken for groups* is the interval of who compares answers as if they were the groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import ttest_ind

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    checks_and_powers,
    level_statement,
    main,
    question,
    seeds,
    table,
)
from tacit_protocol.numerics.inference import Estimated, estimated, laplace_widening
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.guarantee import EPSILON_UNITS
from tacit_protocol.privacy.randomised_response import retention
from tacit_protocol.procedures.aggregated_test.statistic import TESTS, statistics_of
from tacit_protocol.procedures.aggregated_test.statistic import UnitBlock as TestedBlock
from tacit_protocol.procedures.aggregation import REJECTIONS, Vote, VotesLaw, block_places
from tacit_protocol.procedures.group_comparison.plan import FEW_CELLS_FROM
from tacit_protocol.procedures.group_comparison.release import (
    ANSWERED_MOVEMENT,
    ANSWERED_SQUARE,
    CELLS_MOVEMENT,
    FEW_CELLS,
    GroupFeatures,
    chebyshev,
    few_cells,
    soft_cells,
)
from tacit_protocol.procedures.group_comparison.statistic import (
    AnsweredBlock,
    NoisyCells,
    OwnerGroupSums,
    answered_mean_difference,
    answered_risk_effects,
    compare,
    compare_answered,
    compare_cells,
    mean_difference,
    risk_effects,
    variance_ratio,
)

RUNS, POWER_RUNS, LEVEL, DELTA, BOUND = 600, 400, 0.05, 1e-5, 4.0

DESIGNS: dict[str, tuple[int, float, float, float, str]] = {
    "n=1000, ε=.5, normal": (1000, 0.5, 0.5, 0.0, "normal"),
    "n=300, ε=1, share .2, shift 1, normal": (300, 1.0, 0.2, 1.0, "normal"),
    "n=300, ε=.3, share .3, shift 1, heavy tails": (300, 0.3, 0.3, 1.0, "heavy"),
    "n=1000, ε=4, share .05, shift 1, skewed": (1000, 4.0, 0.05, 1.0, "skewed"),
    "n=3000, ε=4, share .1, shift 1, normal": (3000, 4.0, 0.1, 1.0, "normal"),
    "n=1000, ε=1, shift 1, five values": (1000, 1.0, 0.5, 1.0, "discrete"),
    "n=300, ε=2, share .3 or .03, unequal": (300, 2.0, 0.3, 0.0, "unequal"),
    "n=1000, ε=1, share .3, category of .05": (1000, 1.0, 0.3, 0.0, "category .05"),
    "n=1000, ε=.5, shift 1, category of .5": (1000, 0.5, 0.5, 1.0, "category .5"),
}
"""Units of each owner, epsilon, share of the second group, shift, distribution; where it is *unequal*, normal
numbers and a tenth of the share at every other owner."""

POWERS = ((4, 1000, 0.5, 0.3), (4, 300, 1.0, 0.5), (10, 300, 1.0, 0.3))
"""Owners, units of each, epsilon, the difference of means in standard deviations."""

BESIDE: dict[str, tuple[int, float, float, float, str]] = {
    "n=3000, ε=1, normal, .3 sd": (3000, 1.0, 0.5, 0.3, "normal"),
    "n=3000, ε=1, share .2, normal, .3 sd": (3000, 1.0, 0.2, 0.3, "normal"),
    "n=10000, ε=.5, normal, .3 sd": (10_000, 0.5, 0.5, 0.3, "normal"),
    "n=2000, ε=2, share .3, normal, .3 sd": (2000, 2.0, 0.3, 0.3, "normal"),
    "n=300, ε=1, normal, 1 sd": (300, 1.0, 0.5, 1.0, "normal"),
    "n=100, ε=.3, normal, 1 sd": (100, 0.3, 0.5, 1.0, "normal"),
    "n=3000, ε=1, share .2, skewed, .3 sd": (3000, 1.0, 0.2, 0.3, "skewed"),
    "n=1000, ε=4, share .05, skewed, .3 sd": (1000, 4.0, 0.05, 0.3, "skewed"),
    "n=3000, ε=1, heavy tails, .3 sd": (3000, 1.0, 0.5, 0.3, "heavy"),
    "n=3000, ε=1, share .2, five values, .3 sd": (3000, 1.0, 0.2, 0.3, "discrete"),
    "n=3000, ε=1, category of .3, .1 more": (3000, 1.0, 0.5, 0.1, "category .3"),
    "n=3000, ε=1, share .2, category of .05, .1 more": (3000, 1.0, 0.2, 0.1, "category .05"),
    "n=300, ε=1, category of .5, .3 more": (300, 1.0, 0.5, 0.3, "category .5"),
    "n=1000, ε=4, share .05, category of .1, .2 more": (1000, 4.0, 0.05, 0.2, "category .1"),
}
"""Units, epsilon of either owner, share of the second group, effect, distribution."""

BESIDE_RUNS = 2000

SOFT_RUNS, SOFT_DRAWS = 400, 1999

SOFT_POWERS = (*POWERS, (4, 300, 0.5, 0.5), (4, 300, 0.3, 0.5), (1, 300, 1.0, 0.5), (1, 1000, 0.3, 0.5))
"""Of studies in pure epsilon: owners, units of each, epsilon, the difference of means."""

HISTOGRAM = 4
"""Cells of the histograms that a naive analyst takes of each group."""

SOFT_METHODS = ("soft cells, pure", "Gaussian, δ = 1e-5", "histograms by group, pure", "not private")

METHODS = ("group_comparison", "pooled t", "within, not private", "naive")
EFFECTS = ("mean difference", "standard deviation ratio", "risk difference", "odds ratio")

Owners = list[tuple[Floats, Floats]]
"""Values in [-1, 1], or of 0 and 1, and groups (n,) of every owner."""


def owners_of(
    rng: np.random.Generator, owners: int, design: tuple[int, float, float, float, str], effect: float
) -> Owners:
    """Draw every owner's rows."""
    n, _, share, shift, law = design
    found = []
    for place in range(owners):
        off = place / (owners - 1) - 0.5 if owners > 1 and shift else 0.0
        own = share / 10 if law == "unequal" and place % 2 else share
        group = (rng.random(n) < np.clip(own + 0.2 * off, 0.02, 0.98)).astype(float)
        if law.startswith("category"):
            risk = float(law.removeprefix("category ")) + 0.4 * off + effect * group
            found.append(((rng.random(n) < risk).astype(float), group))
            continue
        drawn: dict[str, Callable[[int], Floats]] = {
            "normal": rng.standard_normal,
            "unequal": rng.standard_normal,
            "heavy": lambda size: rng.standard_t(3, size) / np.sqrt(3),
            "skewed": lambda size: rng.exponential(1, size) - 1,
            "discrete": lambda size: rng.choice([-1.0, -0.5, 0.0, 0.5, 3.0], size),
        }
        moved = drawn[law](n) + effect * group + shift * off
        found.append((np.clip(moved / BOUND, -1, 1), group))
    return found


def blocks_of(
    rng: np.random.Generator, owners: Owners, epsilon: float, numeric: bool
) -> list[OwnerGroupSums]:
    """Return the owners' noisy numbers."""
    features = GroupFeatures(0, 2, 1, ()) if numeric else GroupFeatures(0, 2, 0, ((1, 2),))
    scale = features.diameter / gaussian_mu(epsilon, DELTA)
    found = []
    for values, group in owners:
        rows = chebyshev(values) if numeric else np.stack([1 - values, values], axis=1)
        sums = np.stack([rows[group == own].sum(axis=0) for own in (0, 1)])
        deviations = scale / (features.scales if numeric else np.full(2, features.indicator))
        sums += deviations * rng.standard_normal(sums.shape)
        if numeric:
            deviation = scale / features.count_scale
            sizes = np.bincount(group.astype(int), minlength=2) + deviation * rng.standard_normal(2)
            found.append(OwnerGroupSums(len(values), sizes, sums, deviation**2, deviations**2, numeric=True))
        else:
            noise = float(np.sum(deviations**2))
            found.append(
                OwnerGroupSums(len(values), sums.sum(axis=1), sums, noise, deviations**2, numeric=False)
            )
    return found


def checked(name: str, owners: int, design: str, run: int) -> Answers:
    """Test one study without any effect, and ask of each interval whether it holds the truth."""
    rng, _ = seeds(name, run)
    settings = DESIGNS[design]
    numeric = not settings[-1].startswith("category")
    blocks = blocks_of(rng, owners_of(rng, owners, settings, 0.0), settings[1], numeric)
    answers: dict[str, float] = {question("test", design, LEVEL): compare(blocks).pvalue <= LEVEL}
    if numeric:
        effects = {EFFECTS[0]: mean_difference(blocks, 1, 0), EFFECTS[1]: variance_ratio(blocks, 1, 0)}
    else:
        effects = dict(zip(EFFECTS[2:], risk_effects(blocks, 1, 0, 1), strict=True))
    for kind, effect in effects.items():
        found = estimated(effect, LEVEL, kind)
        truth = 0.0 if kind.endswith("difference") else 1.0
        answers[kind] = (found.lower is None or found.lower <= truth) and (
            found.upper is None or truth <= found.upper
        )
        answers[f"{kind} said"] = found.value is not None and found.lower is not None
    if owners > 1:
        pvalue = effects[EFFECTS[0] if numeric else EFFECTS[2]].heterogeneity()
        answers[question("one effect", design, LEVEL)] = pvalue is not None and pvalue <= LEVEL
    return answers


def two_sided(differences: Floats, variances: Floats) -> float:
    """Return the p-value of an inverse-variance mean."""
    return float(2 * ndtr(-abs(np.sum(differences / variances)) / np.sqrt(np.sum(1 / variances))))


def moments(owners: Owners) -> Floats:
    """Return counts, sums and sums of squares of every owner's groups, (k, 2, 3)."""
    return np.array(
        [[[np.sum(g == a), v[g == a].sum(), (v[g == a] ** 2).sum()] for a in (0, 1)] for v, g in owners]
    )


def meta_analysis(sums: Floats) -> float:
    """Return the p-value of a meta-analysis of groups' means and variances (k, 2, 3), taken as exact."""
    sizes = np.maximum(sums[..., 0], 2.0)
    means = sums[..., 1] / sizes
    variances = np.maximum(sums[..., 2] / sizes - means**2, 1e-3) / sizes
    return two_sided(means[:, 1] - means[:, 0], variances.sum(axis=1))


def powers(name: str, cell: Sequence[float], shift: float, part: float, run: int) -> Answers:
    """Test one study by every method; ``part`` times the effect is there."""
    rng, _ = seeds(name, run)
    owners, n, epsilon, effect = cell
    held = owners_of(rng, int(owners), (int(n), epsilon, 0.5, shift, "normal"), part * effect)
    blocks = blocks_of(rng, held, epsilon, numeric=True)
    exact = moments(held)
    values, group = (np.concatenate(each) for each in zip(*held, strict=True))
    # Replacing a unit moves counts, sums and sums of squares by at most 2 in L1, each with epsilon/3.
    pvalues = {
        "group_comparison": compare(blocks).pvalue,
        "pooled t": ttest_ind(values[group == 1], values[group == 0], equal_var=False).pvalue,
        "within, not private": meta_analysis(exact),
        "naive": meta_analysis(exact + rng.laplace(0, 6 / epsilon, exact.shape)),
    }
    found = estimated(mean_difference(blocks, 1, 0), LEVEL, "mean difference", 2 * BOUND)
    held_by = (
        found.lower is not None and found.upper is not None and (found.lower <= part * effect <= found.upper)
    )
    answers: dict[str, float] = {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}
    return answers | {"coverage": bool(held_by or found.lower is None)}


def answered_of(
    rng: np.random.Generator, values: Floats, group: Floats, epsilon: float, *, numeric: bool
) -> AnsweredBlock:
    """Return one owner's randomised answers to two groups, and the other's noisy sums by them."""
    kept = retention(round(epsilon * EPSILON_UNITS), 2)
    own = group.astype(int)
    answers = np.where(rng.random(len(own)) < kept, own, rng.integers(0, 2, len(own)))
    features = (values, 2 * values**2 - 1) if numeric else (1 - values, values)
    sums = np.stack([np.bincount(answers, each, 2) for each in features], axis=1)
    scales = np.array([1.0, 1 / ANSWERED_SQUARE] if numeric else [1.0, 1.0]) * ANSWERED_MOVEMENT / epsilon
    noisy = sums + scales * rng.laplace(0.0, 1.0, sums.shape)
    return AnsweredBlock(np.bincount(answers, minlength=2), noisy, scales, kept, numeric=numeric)


def beside(name: str, design: str, part: float, run: int) -> Answers:
    """Test one study of a group known to another owner; ``part`` times the effect is there."""
    rng, null = seeds(name, run)
    n, epsilon, share, effect, law = BESIDE[design]
    numeric = not law.startswith("category")
    ((values, group),) = owners_of(rng, 1, (n, epsilon, share, 0.0, law), part * effect)
    block = answered_of(rng, values, group, epsilon, numeric=numeric)
    raw = replace(block, kept=1.0)
    kind = EFFECTS[0] if numeric else EFFECTS[2]

    def stated(own: AnsweredBlock) -> Estimated:
        found = answered_mean_difference(own, 1, 0) if numeric else answered_risk_effects(own, 1, 0, 1)[0]
        return estimated(found, LEVEL, kind, 2 * BOUND if numeric else 1.0)

    def holds(found: Estimated, truth: float) -> bool:
        low, high = found.lower, found.upper
        return (low is None or low <= truth) and (high is None or truth <= high)

    found, exact = stated(block), ttest_ind(values[group == 1], values[group == 0], equal_var=False).pvalue
    answers: dict[str, float] = {
        question("test", design, LEVEL): compare_answered(block, null).pvalue <= LEVEL,
        "not private": bool(exact <= LEVEL),
        "coverage": bool(holds(found, part * effect)),
        "said": found.lower is not None,
        "raw": bool(holds(stated(raw), part * effect)),
    }
    if not numeric:
        base = float(law.removeprefix("category "))
        risk = base + part * effect
        odds = risk / (1 - risk) / (base / (1 - base))
        ratio = estimated(answered_risk_effects(block, 1, 0, 1)[1], LEVEL, EFFECTS[3])
        answers[EFFECTS[3]] = bool(holds(ratio, odds))
    return answers


def soft_of(
    rng: np.random.Generator, owners: Owners, epsilon: float, numeric: bool, hard: int = 0
) -> list[NoisyCells]:
    """Return the owners' noisy soft cells, of one column; or ``hard`` cells of a histogram."""
    scale, found = CELLS_MOVEMENT / epsilon, []
    for values, group in owners:
        few = 2 * FEW_CELLS * scale**2 > FEW_CELLS_FROM * len(values) / 2
        weights = few_cells if few else soft_cells
        rows = weights(values) if numeric else np.stack([1 - values, values], axis=1)
        if hard:
            rows = np.eye(hard)[np.minimum((values + 1) / 2 * hard, hard - 1).astype(int)]
        sums = np.stack([rows[group == own].sum(axis=0) for own in (0, 1)])
        noisy = sums + rng.laplace(0.0, scale, sums.shape)
        found.append(NoisyCells(len(values), noisy, scale, numeric=numeric and not hard))
    return found


def soft_checked(name: str, owners: int, design: str, run: int) -> Answers:
    """Test one study in pure epsilon without any effect, and ask of each interval whether it holds that."""
    rng, null = seeds(name, run)
    settings = DESIGNS[design]
    numeric = not settings[-1].startswith("category")
    held = soft_of(rng, owners_of(rng, owners, settings, 0.0), settings[1], numeric)
    blocks = [own.block(laplace_widening(LEVEL)) for own in held]
    effects = {EFFECTS[0]: mean_difference(blocks, 1, 0)} if numeric else {}
    if not numeric:
        effects = dict(zip(EFFECTS[2:], risk_effects(blocks, 1, 0, 1), strict=True))
    answers: dict[str, float] = {
        question("test", design, LEVEL): compare_cells(held, null, SOFT_DRAWS).pvalue <= LEVEL
    }
    for kind, effect in effects.items():
        found = estimated(effect, LEVEL, kind)
        truth = 0.0 if kind.endswith("difference") else 1.0
        answers[kind] = (found.lower is None or found.lower <= truth) and (
            found.upper is None or truth <= found.upper
        )
        answers[f"{kind} said"] = found.value is not None and found.lower is not None
    return answers


def soft_powers(name: str, cell: Sequence[float], shift: float, part: float, run: int) -> Answers:
    """Test one study in pure epsilon, and by Gaussian noise, histograms and without privacy."""
    rng, null = seeds(name, run)
    owners, n, epsilon, effect = cell
    held = owners_of(rng, int(owners), (int(n), epsilon, 0.5, shift, "normal"), part * effect)
    soft = soft_of(rng, held, epsilon, numeric=True)
    pvalues = {
        SOFT_METHODS[0]: compare_cells(soft, null, SOFT_DRAWS).pvalue,
        SOFT_METHODS[1]: compare(blocks_of(rng, held, epsilon, numeric=True)).pvalue,
        SOFT_METHODS[2]: compare_cells(
            soft_of(rng, held, epsilon, numeric=True, hard=HISTOGRAM), null, SOFT_DRAWS
        ).pvalue,
        SOFT_METHODS[3]: meta_analysis(moments(held)),
    }
    blocks = [own.block(laplace_widening(LEVEL)) for own in soft]
    found = estimated(mean_difference(blocks, 1, 0), LEVEL, "mean difference", 2 * BOUND)
    answers: dict[str, float] = {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}
    if found.lower is None or found.upper is None:
        return answers | {"coverage": True, "half width": 2 * BOUND}
    held_by = found.lower <= part * effect <= found.upper
    return answers | {"coverage": bool(held_by), "half width": (found.upper - found.lower) / 2}


def cells() -> list[Cell]:
    """Return all cells."""
    pure = cells_of("pure {} owners, {}", SOFT_RUNS, soft_checked, (1, 4), DESIGNS, seeded=True)
    pure += cells_of(
        "soft {0[0]} x {0[1]}, ε={0[2]:g}, {0[3]} sd, shift {1:g}, effect times {2:g}",
        SOFT_RUNS,
        soft_powers,
        SOFT_POWERS,
        (0.0,),
        (0.0, 1.0),
        seeded=True,
    )
    found = cells_of("check {} owners, {}", RUNS, checked, (1, 2, 4, 10), DESIGNS, seeded=True)
    found += cells_of("beside {}, effect times {:g}", BESIDE_RUNS, beside, BESIDE, (0.0, 1.0), seeded=True)
    return (pure + found) + cells_of(
        "power {0[0]} x {0[1]}, ε={0[2]:g}, {0[3]} sd, shift {1:g}, effect times {2:g}",
        POWER_RUNS,
        powers,
        POWERS,
        (0.0, 1.0),
        (0.0, 1.0),
        seeded=True,
    )


def parts(counts: Counts) -> dict[str, str]:
    """Write the page's tables."""
    apart, pure, found = {}, {}, {}
    for cell in counts.runs:
        word, _, named = cell.partition(" ")
        if word == "pure":
            design = named.partition("owners, ")[2]
            row = {"rejected": counts.shown(cell, question("test", design, LEVEL))}
            for effect in (EFFECTS[0], *EFFECTS[2:]):
                said = counts.shown(cell, f"{effect} said", ".2f")
                row[effect] = f"{counts.shown(cell, effect)} ({said})" if said else ""
            pure[named] = row
        if word == "soft":
            found[named] = {method: counts.shown(cell, method, ".2f") for method in SOFT_METHODS} | {
                "coverage": counts.shown(cell, "coverage"),
                "half width, sd": counts.shown(cell, "half width", ".2f"),
            }
        kind, _, name = cell.partition(" ")
        if kind == "beside":
            design = name.partition(", effect times")[0]
            apart[name] = {
                "group_comparison": counts.shown(cell, question("test", design, LEVEL)),
                "Welch's t, not private": counts.shown(cell, "not private"),
                "interval holds": counts.shown(cell, "coverage"),
                "stated": counts.shown(cell, "said", ".2f"),
                "odds ratio holds": counts.shown(cell, EFFECTS[3]),
                "answers taken for groups": counts.shown(cell, "raw"),
            }

    def check(cell: str, design: str) -> dict[str, str]:
        row = {
            "rejected": counts.shown(cell, question("test", design, LEVEL)),
            "one effect rejected": counts.shown(cell, question("one effect", design, LEVEL)),
        }
        for effect in EFFECTS:
            said = counts.shown(cell, f"{effect} said", ".2f")
            row[effect] = f"{counts.shown(cell, effect)} ({said})" if said else ""
        return row

    def power(cell: str) -> dict[str, str]:
        powers = {method: counts.shown(cell, method, ".2f") for method in METHODS}
        return powers | {"coverage": counts.shown(cell, "coverage")}

    return checks_and_powers(counts, check, power, EFFECTS, LEVEL) | {
        "pure runs": counts.runs_of("pure"),
        "soft runs": counts.runs_of("soft"),
        "pure": table(pure, "design") if pure else "",
        "soft": table(found, "design") if found else "",
        "beside runs": counts.runs_of("beside"),
        "beside": table(apart, "design") if apart else "",
    }


KNOWN = ("t", "mann_whitney", "kolmogorov_smirnov")
"""The tests that are taken by blocks."""

BLOCK_RUNS, BLOCK_LEVEL_RUNS, GIVEN_RUNS = 400, 1000, 1000

BLOCK_POWERS = (
    *POWERS,
    (4, 1000, 0.5, 0.15),
    (10, 300, 1.0, 0.2),
    (1, 1000, 1.0, 0.2),
    (1, 1000, 3.0, 0.2),
    (1, 3000, 0.3, 0.2),
)

BLOCK_METHODS = (*KNOWN, "group_comparison", "within, not private", "naive")

GIVEN = tuple(
    (n, epsilon, regression)
    for n, epsilon in ((1000, 1.0), (3000, 1.0), (3000, 0.3))
    for regression in ("linear", "polynomial")
)
"""Units, epsilon, regression."""

GIVEN_EFFECTS = {"linear": 0.0, "curved": 0.0, "dependent": 0.2}
"""How both columns follow the third, and how strongly one follows the other's residual."""


def noisy_pvalue(rng: np.random.Generator, owners: Sequence[TestedBlock], epsilon: float, test: str) -> float:
    """Take a test by blocks of every owner's units, noise simulated."""
    chosen = TESTS[test]
    vote, given = Vote(directed=chosen.directed), chosen.takes == "given"
    total, blocks = 0.0, 0
    for held in owners:
        n, order = len(held.first), rng.permutation(len(held.first))
        count = (REJECTIONS if given else vote).blocks(n, epsilon, None, 40 if given else 10)
        for place in block_places(n, count):
            kept = order[place]
            part = (held.given[0][kept], held.given[1][kept]) if held.given is not None else None
            block = TestedBlock(held.first[kept], held.second[kept], None, part, held.regression)
            total += vote.of(statistics_of(chosen, block, rng), rng.random())
        blocks += count
    scale = vote.sensitivity / epsilon
    total += rng.laplace(0, scale, len(owners)).sum()
    return VotesLaw(blocks, len(owners), scale, 2.0**-24, vote).pvalue(abs(total) if vote.directed else total)


def by_blocks(name: str, cell: Sequence[float], shift: float, part: float, run: int) -> Answers:
    """Test one study by known tests in blocks, and by the other methods."""
    rng, _ = seeds(name, run)
    owners, n, epsilon, effect = cell
    held = owners_of(rng, int(owners), (int(n), epsilon, 0.5, shift, "normal"), part * effect)
    exact, tested = moments(held), [TestedBlock(values, group) for values, group in held]
    pvalues = {test: noisy_pvalue(rng, tested, epsilon, test) for test in KNOWN} | {
        "group_comparison": compare(blocks_of(rng, held, epsilon, numeric=True)).pvalue,
        "within, not private": meta_analysis(exact),
        "naive": meta_analysis(exact + rng.laplace(0, 6 / epsilon, exact.shape)),
    }
    return {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}


def blocks_level(name: str, owners: int, design: str, run: int) -> Answers:
    """Take known tests by blocks where nothing differs."""
    rng, _ = seeds(name, run)
    held = owners_of(rng, owners, DESIGNS[design], 0.0)
    tested = [TestedBlock(values, group) for values, group in held]
    return {
        question(test, DESIGNS[design][1], LEVEL): noisy_pvalue(rng, tested, DESIGNS[design][1], test)
        <= LEVEL
        for test in KNOWN
    }


def conditional(name: str, cell: tuple[int, float, str], follows: str, run: int) -> Answers:
    """Take the generalised covariance measure of two columns that follow a third."""
    rng, _ = seeds(name, run)
    n, epsilon, regression = cell
    z, x, y = rng.standard_normal((3, n))
    y = y + GIVEN_EFFECTS[follows] * x
    if follows == "curved":
        x, y = x + np.sin(2 * z), y + np.cos(2 * z) + np.tanh(z)
    else:
        x, y = x + z, y + z
    given = (z[:, None], np.zeros((n, 0), dtype=np.int32))
    tested = [TestedBlock(x, y, None, given, regression)]  # type: ignore[arg-type]
    return {"rejected": noisy_pvalue(rng, tested, epsilon, "conditional_independence") <= LEVEL}


def block_cells() -> list[Cell]:
    """Return the cells of tests by blocks."""
    form = "power {0[0]} x {0[1]}, ε={0[2]:g}, {0[3]} sd, shift {1:g}, effect times {2:g}"
    found = cells_of(form, BLOCK_RUNS, by_blocks, BLOCK_POWERS, (1.0,), (1.0,), seeded=True)
    numbers = [design for design, settings in DESIGNS.items() if not settings[-1].startswith("category")]
    found += cells_of("level {} owners, {}", BLOCK_LEVEL_RUNS, blocks_level, (1, 4), numbers, seeded=True)
    form = "given n={0[0]}, ε={0[1]:g}, {0[2]}, {1}"
    return found + cells_of(form, GIVEN_RUNS, conditional, GIVEN, GIVEN_EFFECTS, seeded=True)


def block_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of tests by blocks."""
    levels, found, given = {}, {}, {}
    for cell in counts.runs:
        kind, _, name = cell.partition(" ")
        if kind == "power":
            found[name] = {method: counts.shown(cell, method, ".2f") for method in BLOCK_METHODS}
        elif kind == "level":
            epsilon = DESIGNS[name.partition(", ")[2]][1]
            levels[name] = {test: counts.shown(cell, question(test, epsilon, LEVEL), ".3f") for test in KNOWN}
        else:
            asked, _, follows = name.rpartition(", ")
            given.setdefault(asked, {})[follows] = counts.shown(cell, "rejected", ".3f")
    return {
        "power runs": counts.runs_of("power"),
        "level runs": counts.runs_of("level"),
        "given runs": counts.runs_of("given"),
        "statement": level_statement(counts),
        "levels": table(levels, "design") if levels else "",
        "powers": table(found, "design") if found else "",
        "given": table(given, "setting") if given else "",
    }


BENCHMARKS = (
    Benchmark("groups", cells, parts),
    Benchmark("aggregated-test", block_cells, block_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
