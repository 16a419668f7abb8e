"""What the intervals of results cover, in default, skewed, rare, discrete and many-column cells; the worst.

    python -m benchmarks.coverage                       # everything; continues where it stopped
    python -m benchmarks.coverage --cells "Cramér" --runs 0.2 --folder /tmp/glance

Every run draws rows from a law whose value is known, and asks ``tacit.local`` with OpenDP's noise, or, of
Cramér's V, the statistic that the procedure calls (its test alone takes ten times as long).
"""

import functools
import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import tacit.local
from benchmarks import coverage_databases, coverage_dependence
from benchmarks.harness import Answers, Cell, Counts, covered, main, table
from tacit.in_process.runner import local_study, seed_text, two_sample_procedure
from tacit.in_process.samples import ArrayTable, Sample
from tacit.results import TwoSampleResult
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.features.moments import sum_features
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.counts.statistic import cramers_v
from tacit_protocol.procedures.curated_two_sample.plan import plan_of as curated_plan
from tacit_protocol.procedures.kernel_two_sample.release import plan_of as two_sample_plan

Floats = npt.NDArray[np.float64]

LEVEL, DELTA = 0.05, 1e-5
RUNS_V, RUNS_COUNTS, RUNS_MMD = 100, 200, 100
POPULATION = 400_000
"""Rows that stand for a law whose squared MMD has no formula: its error is far smaller."""

UNIFORM, SKEWED, RARE = "uniform", "skewed", "rare"


def margin(kind: str, size: int) -> Floats:
    """Return equal shares, shares that fall by .46 from level to level, or one level with the most of all."""
    if kind == UNIFORM:
        return np.full(size, 1 / size)
    if kind == RARE:
        return np.array([1 - 0.01 * (size - 1), *[0.01] * (size - 1)])
    shares = 0.6 ** (1.5 * np.arange(size))
    return np.asarray(shares / shares.sum())


def phi(joint: Floats) -> float:
    """Return phi^2 of a table without empty margins."""
    fitted = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(np.sum((joint - fitted) ** 2 / fitted))


def joined(shares: Floats, strength: float) -> Floats:
    """Mix independence with the increasing coupling of two such margins until Cramér's V is ``strength``."""
    ends = np.concatenate([[0], np.cumsum(shares)])
    low, high = np.maximum.outer(ends[:-1], ends[:-1]), np.minimum.outer(ends[1:], ends[1:])
    coupled, apart = np.maximum(high - low, 0), np.outer(shares, shares)
    inside, outside = 0.0, 1.0
    for _ in range(50):
        middle = (inside + outside) / 2
        weak = phi((1 - middle) * apart + middle * coupled) < strength**2 * (len(shares) - 1)
        inside, outside = (middle, outside) if weak else (inside, middle)
    return np.asarray((1 - inside) * apart + inside * coupled)


def cramer_run(
    size: int, kind: str, strength: float, units: int, noise: CellNoise, unlisted: float, number: int
) -> Answers:
    """Draw the default design's table, with cells for unlisted and missing values, and ask for V."""
    rng = np.random.default_rng([number, size, units])
    joint = np.zeros((size + 2, size + 2))
    shares = margin(kind, size)
    joint[:size, :size] = (1 - unlisted) * joined(shares, strength)
    joint[size, :size] += unlisted / 2 * shares
    joint[:size, size + 1] += unlisted / 2 * shares
    drawn = rng.multinomial(units, joint.ravel()) + noise.draw(rng, (joint.size,))
    drawn_table = NoisyTable(drawn, units, (noise,))
    seed = np.random.SeedSequence([number, size, units])
    found = cramers_v(drawn_table, joint.shape, (size, size), LEVEL, seed)
    return covered((found.lower, found.upper), strength, found.value)


def gaussian(epsilon: float) -> CellNoise:
    """Return the noise on a count that a Gaussian release of this budget has."""
    return CellNoise("gaussian", math.sqrt(2) / gaussian_mu(epsilon, DELTA))


def cramer_cells() -> list[Cell]:
    """List cells of Cramér's V: the issue's, and around them."""
    laplace = {epsilon: CellNoise("laplace", 2 / epsilon) for epsilon in (0.3, 1.0, 4.0)}
    found = []

    def add(
        words: str, size: int, kind: str, strength: float, units: int, noise: CellNoise, part: float = 0.0
    ) -> None:
        name = f"Cramér's V, {size}x{size} {kind}, V={strength:g}, n={units}, {words}"
        found.append(
            Cell(name, RUNS_V, functools.partial(cramer_run, size, kind, strength, units, noise, part))
        )

    for epsilon, noise in laplace.items():
        for strength in (0.0, 0.1, 0.5):
            add(f"ε={epsilon:g}", 2, UNIFORM, strength, 2000, noise)
        add(f"ε={epsilon:g}", 4, SKEWED, 0.3, 5000, noise)
        add(f"ε={epsilon:g}", 4, RARE, 0.3, 5000, noise)
        add(f"ε={epsilon:g}", 6, UNIFORM, 0.1, 500, noise)
        add(f"ε={epsilon:g}", 6, UNIFORM, 0.7, 1000, noise)
    add("ε=1, 5 % unlisted", 2, UNIFORM, 0.5, 2000, laplace[1.0], 0.05)
    add("ε=1, 5 % unlisted", 4, SKEWED, 0.3, 5000, laplace[1.0], 0.05)
    add("ε=1", 2, UNIFORM, 0.3, 200, laplace[1.0])
    add("ε=1", 4, UNIFORM, 0.7, 5000, laplace[1.0])
    add("ε=1, Gaussian", 2, UNIFORM, 0.5, 2000, gaussian(1.0))
    add("ε=1, Gaussian", 4, SKEWED, 0.3, 5000, gaussian(1.0))
    add("ε=1, a pair of three columns", 3, UNIFORM, 0.3, 5000, CellNoise("laplace", 2.0, 5))
    return found


def counts_run(levels: int, noise: str, number: int) -> Answers:
    """Count units of rare levels: the noisy counts' own interval, of all cells together."""
    rng = np.random.default_rng([number, levels])
    names = [f"level {place}" for place in range(levels)]
    rows = rng.choice(levels, 500, p=margin(SKEWED, levels))
    values = np.array(names, dtype=object)[rows]
    found = tacit.local.noisy_counts(
        values[:, None],
        epsilon=1.0,
        delta=DELTA if noise == "gaussian" else 0.0,
        noise=noise,
        bounds={"x1": names},
    )
    own = np.concatenate([np.bincount(rows, minlength=levels), [0, 0]])
    off = np.abs(found.table.ravel() - own)
    return {
        "held": bool(off.max() <= found.half_width_all),
        "width": 2 * found.half_width_all,
        "estimate": 0.0,
    }


def counts_cells() -> list[Cell]:
    """List cells of noisy counts."""
    return [
        Cell(
            f"noisy counts, {levels} levels, {noise}",
            RUNS_COUNTS,
            functools.partial(counts_run, levels, noise),
        )
        for levels in (3, 300)
        for noise in ("laplace", "gaussian")
    ]


def samples(kind: str, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw two samples of two columns in [0, 1], (n, 2) each; of "same" from one law."""
    first, second = (rng.random((size, 2)) for size in sizes)
    if kind == "shifted":
        second = np.clip(second + 0.1, 0, 1)
    if kind == RARE:
        # One value in 250 of the first sample, none of the second, where nothing else is.
        first, second = np.clip(first, 0, 0.2), np.clip(second, 0, 0.2)
        first[rng.random(sizes[0]) < 0.004] = 1.0
    if kind == SKEWED:
        first, second = first**8, second**6
    if kind == "discrete":
        first, second = np.rint(first), np.rint(np.clip(second + 0.05, 0, 1))
    return first, second


def mmd_study(features: str, curated: bool, epsilon: float) -> Study:
    """Return the study that ``tacit.local`` plays with these choices, whose public seed is 1."""
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("x1", "x2"))
    return local_study(
        two_sample_procedure("curator" if curated else "owners"),
        Domain(columns=columns),
        ("sample-1", "sample-2"),
        {} if curated else {"features": features},
        epsilon=epsilon,
        delta=DELTA,
        alpha=LEVEL,
        seed=seed_text(1),
        curated=curated,
    )


@functools.cache
def mmd_truth(kind: str, features: str, curated: bool, epsilon: float) -> float:
    """Return the squared MMD of the law, in the study's own public features."""
    study = mmd_study(features, curated, epsilon)
    release = curated_plan(study).release if curated else two_sample_plan(study).release
    drawn = samples(kind, (POPULATION, POPULATION), np.random.default_rng(1))
    means = []
    for values in drawn:
        table = ArrayTable.of(Sample({"x1": values[:, 0], "x2": values[:, 1]}), study.domain)
        found = sum_features(release.features, table, products=False)
        means.append(found.total / 2.0**found.bits / found.units)
    return float(np.sum((means[0] - means[1]) ** 2))


def mmd_run(
    kind: str, features: str, curated: bool, sizes: tuple[int, int], epsilon: float, number: int
) -> Answers:
    """Ask owners, or a curator, for the squared MMD of two samples."""
    x, y = samples(kind, sizes, np.random.default_rng([number, *sizes]))
    chosen: dict[str, Any] = {} if curated else {"features": features}
    found = tacit.local.kernel_two_sample(
        x,
        y,
        epsilon=epsilon,
        delta=DELTA,
        bounds=(0, 1),
        columns=["x1", "x2"],
        alpha=LEVEL,
        seed=1,
        setting="curator" if curated else "owners",
        **chosen,
    )
    if not isinstance(found, TwoSampleResult) or found.interval is None or found.estimate is None:
        raise TypeError("this study states no squared MMD")
    return covered(found.interval, mmd_truth(kind, features, curated, epsilon), found.estimate)


def mmd_cells() -> list[Cell]:
    """List cells of the squared MMD: the default features, mean embeddings, and at a curator."""
    settings = product(
        (("auto", "auto", False), ("me", "me", False), ("curator", "", True)),
        ("same", "shifted", SKEWED, RARE, "discrete"),
        (((1000, 1000), 1.0), ((200, 5000), 20.0)),
    )
    return [
        Cell(
            f"squared MMD, {words}, {kind}, n={sizes[0]}, {sizes[1]}, ε={epsilon:g}",
            RUNS_MMD,
            functools.partial(mmd_run, kind, features, curated, sizes, epsilon),
        )
        for (words, features, curated), kind, (sizes, epsilon) in settings
    ]


def cells() -> list[Cell]:
    """Return everything that is run."""
    return (
        cramer_cells()
        + counts_cells()
        + mmd_cells()
        + coverage_dependence.cells()
        + coverage_databases.cells()
    )


CLAIMED = ("held", "held, correlation", "held, of these units")
"""What results claim to cover."""

BESIDE = ("held, whole", "held, whole, with truncation")
"""What they do not claim, and the page shows."""


WORST_SHOWN = 10
"""Cells that the page lists first."""


def parts(counts: Counts) -> dict[str, str]:
    """Write the table of the page, and its worst cells."""
    rows: dict[str, dict[str, str]] = {}
    found: list[tuple[float, str]] = []
    for cell in [cell for cell in counts.runs if counts.rate(cell, "held") is not None]:
        rows[cell] = {"runs": str(counts.runs[cell]), "covered": counts.shown(cell, "held")}
        rows[cell] |= {"width": counts.shown(cell, "width", ".3g")}
        rows[cell] |= {"mean estimate": counts.shown(cell, "estimate", ".3g")}
        for asked in (*CLAIMED, *BESIDE):
            rate = counts.rate(cell, asked)
            if asked in CLAIMED and rate is not None:
                found.append((rate, cell + asked.removeprefix("held")))
            if asked != "held":
                rows[cell][asked.removeprefix("held, ")] = counts.shown(cell, asked)
    return {
        "rates": str(len(found)),
        "worst": "".join(f"- {cell}: **{rate:.3f}**\n" for rate, cell in sorted(found)[:WORST_SHOWN]),
        "table": table(rows, "cell"),
    }


if __name__ == "__main__":
    main(__doc__, "coverage", cells(), parts)
