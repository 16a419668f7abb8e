"""Homogeneity: whether two or more owners' categories have one distribution.

Every owner releases noisy counts over the same public cells (or an earlier release of them is read again,
for nothing), and the tester compares the tables by a chi-square statistic whose null distribution counts
sampling and noise. Derivations: docs/mathematics/categorical.md.

With x_j the noisy shares of owner j, among its units whose values are all listed, and p = sum u_j x_j, cell
i has the spread D_i = sum_j a_j (x_ji - p_i)^2, of mean A p_i (1 - p_i) + B, A and B of units and noise. The
statistic is

    sum_i (D_i - A p_i (1 - p_i) - B) / (A max(p_i, floor) + B).

Its null is a parametric bootstrap, tables and noise drawn anew and everything estimated again, at the pooled
distribution at hand and at a sparser and a more even one that noise cannot tell from it; the largest p-value
counts.

Effects are differences of noisy shares, d = x_a - x_b, of variance s^2, the sum over both owners of (x(1 - x)
+ 2/n)/n and the noise's. Their intervals d +- z s take z from a bootstrap of each owner's own table: the
quantile of |d* - d|/s* for one difference, of the largest of all for those that hold together, and no less
than a normal one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.features.cell_counts import CellGrid, compared_places
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import RARE_UNITS
from tacit_protocol.numerics.noisy_tables import (
    ComparedShares,
    NoisyTable,
    NuisanceNull,
    PairTest,
    TableTest,
    compare_each,
    in_blocks,
    onto_simplex,
    plausible,
    simulated_null,
)
from tacit_protocol.procedures.base import (
    CELL_WORK,
    Fields,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    decided,
    parse_parameters,
    public_seed,
    require_work,
    step,
)
from tacit_protocol.procedures.counts.base import (
    ComparedPair,
    CountProcedure,
    CountsShift,
    CountsTestResult,
    CountTestParameters,
    SimulatedCountTest,
    residual_panel,
    striking_cells,
)
from tacit_protocol.procedures.counts.release import OwnCounts, require_own_releases
from tacit_protocol.procedures.populations import SimulationModel
from tacit_protocol.verdicts.base import (
    EFFECTS,
    BaseVerdict,
    JointEffect,
    ShownTable,
    compared_shown,
    effects_of,
    effects_table,
    forest,
    told_between,
)
from tacit_protocol.verdicts.presentation import (
    CHI_SQUARED,
    NEW_CLASS,
    Citation,
    Meaning,
    RowsPanel,
    names_of,
)

PAIRED_OWNERS_MAX = 10
"""Most owners that are compared in pairs: beyond 45 pairs, p-values of 1999 replicates say little."""

Floats = npt.NDArray[np.float64]

DIFFERENCES_MAX = 1200
"""Most differences of shares, listed cells times pairs of owners, that are estimated."""

STATED_MAX = 120
"""Most of them that a verdict states; of the cells with the smallest p-values."""

TEST_STREAM, PAIRS_STREAM, EFFECTS_STREAM = 1, 2, 3
"""Spawn keys under the study's seed."""


@dataclass(frozen=True)
class Weights:
    """What the owners' sizes and noise fix: u and a (..., J); A, B, and the floor of a share (..., 1)."""

    mean: Floats
    spread: Floats
    sampling: Floats
    noise: Floats
    floor: Floats

    @classmethod
    def of(cls, units: Floats, noise_variances: Floats, cells: int) -> "Weights":
        """Weigh owners by the inverse variance that a cell of share 1/k would have.

        ``units`` and ``noise_variances`` are (..., J). The floor is one unit of all, plus one standard
        deviation of the pooled noise: of smaller shares the tables know nothing.
        """
        noise = noise_variances / units**2
        spread = 1 / (1 / (cells * units) + noise)
        mean = spread / spread.sum(axis=-1, keepdims=True)
        left = 1 - 2 * mean

        def summed(values: Floats) -> Floats:
            return np.asarray(values.sum(axis=-1, keepdims=True))

        def expected(variances: Floats) -> Floats:
            return summed(spread * (left * variances + summed(mean**2 * variances)))

        floor = 1 / summed(units) + np.sqrt(summed(mean**2 * noise))
        return cls(mean, spread, expected(1 / units), expected(noise), floor)

    def pooled(self, shares: Floats) -> Floats:
        """Return the pooled shares, (..., k), of (..., J, k)."""
        return np.asarray(np.einsum("...j,...jk->...k", self.mean, shares))

    def cells(self, shares: Floats) -> tuple[Floats, Floats]:
        """Return each cell's spread over what is expected, less 1 and less the expected part: (..., k) both.

        The second is what the statistic sums; the first, D_i over its floor, tells which cells stand out.
        """
        pooled = self.pooled(shares)
        deviations = shares - pooled[..., None, :]
        found = np.einsum("...j,...jk->...k", self.spread, deviations**2)
        scale = self.sampling * np.maximum(pooled, self.floor) + self.noise
        explained = self.sampling * pooled * (1 - pooled) + self.noise
        return found / scale, (found - explained) / scale


def homogeneity_test(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> TableTest:
    """Test whether tables of the same k compared cells come from one distribution.

    The p-value is the largest, over plausible pooled distributions, of (1 + simulated statistics at least as
    large) / (replicates + 1).
    """
    ratio, excess = compared_cells([table.held for table in tables])
    null = homogeneity_null(tables, replicates, seed, progress)
    return TableTest.of_cells(float(excess.sum()), ratio, null)


def compared_cells(held: Sequence[ComparedShares]) -> tuple[Floats, Floats]:
    """Return what :meth:`Weights.cells` does of owners' shares (..., k)."""
    return weights_of(held).cells(np.stack([own.shares for own in held], axis=-2))


def weights_of(held: Sequence[ComparedShares]) -> Weights:
    """Weigh owners by the units that are compared, (..., J), and the noise on them."""
    units = np.concatenate([own.units for own in held], axis=-1)
    variances = np.concatenate([own.variance for own in held], axis=-1) * units**2
    return Weights.of(units, variances, held[0].shares.shape[-1])


def homogeneity_null(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible pools; all have the same noise and seeds."""
    pools = plausible_pools(tables)

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noises = [table.draw_noise(rng, count) for table in tables]
        for pool in pools:
            drawn = [table.draw(pool, rng, count, noise) for table, noise in zip(tables, noises, strict=True)]
            ratio, excess = compared_cells(drawn)
            yield excess.sum(axis=-1), ratio.max(axis=-1)

    numbers = len(tables) * len(tables[0].counts)
    return simulated_null(draw, len(pools), replicates, seed, numbers=numbers, progress=progress)


def plausible_pools(tables: Sequence[NoisyTable]) -> tuple[Floats, ...]:
    """Return the pooled distribution (k,), and a sparser and a more even one.

    They are up to REACH standard deviations of the pooled shares away, sampling and noise together.
    """
    held = [table.held for table in tables]
    mean = weights_of(held).mean
    pooled = onto_simplex(mean @ np.stack([own.shares for own in held]))
    noise = float(mean**2 @ [own.variance[0] for own in held])
    return plausible(pooled, noise, 1 / float(mean**2 @ [1 / own.units[0] for own in held]))


def compare_pairs(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> tuple[PairTest, ...]:
    """Test every pair of owners, with Holm's adjustment for all of them."""
    return compare_each(
        len(tables),
        lambda pair, child: homogeneity_test([tables[place] for place in pair], replicates, child),
        seed,
        progress,
    )


def differences(
    tables: Sequence[NoisyTable],
    cells: npt.NDArray[np.int64],
    level: float,
    draws: int,
    seed: np.random.SeedSequence,
) -> tuple[Floats, Floats, Floats]:
    """Return differences of the shares of ``cells`` (c,) between all pairs, with two intervals' half widths.

    Args:
        tables: the owners' noisy tables.
        cells: which of those that are compared.
        level: 1 less the confidence of one interval, and of all those together.
        draws: bootstrapped tables of each owner.
        seed: of the bootstrap.

    Returns:
        Differences of the first owner's shares less the second's, (pairs, c); half widths for each of them
        alone; and for all of them together.
    """
    pairs = np.array(list(combinations(range(len(tables)), 2)))

    def spread(held: Sequence[ComparedShares]) -> tuple[Floats, Floats]:
        """Return differences and their standard deviations, (..., pairs, c), of owners' shares."""
        shares = np.stack([own.shares[..., cells] for own in held], axis=-2)
        units = np.stack([own.units for own in held], axis=-2)
        likely = np.clip(shares, 0.0, 1.0)
        variances = (likely * (1 - likely) + RARE_UNITS / units) / units
        variances += np.stack([own.variance for own in held], axis=-2)
        first, second = pairs.T
        return (
            shares[..., first, :] - shares[..., second, :],
            np.sqrt(variances[..., first, :] + variances[..., second, :]),
        )

    own = [table.held for table in tables]
    found, deviation = spread(own)
    held = [replace(part, shares=onto_simplex(part.shares)) for part in own]
    true = spread(held)[0]
    away = []
    for rng, count in in_blocks(seed, draws, len(tables) * len(tables[0].counts) + true.size):
        value, scale = spread(
            [table.draw(part.shares, rng, count) for table, part in zip(tables, held, strict=True)]
        )
        away.append(np.abs(value - true) / scale)
    ratios = np.concatenate(away)
    place = min(draws, math.ceil((1 - level) * (draws + 1))) - 1
    normal = float(-ndtri(level / 2))
    alone = np.maximum(np.sort(ratios, axis=0)[place], normal)
    together = np.maximum(float(np.sort(ratios.max(axis=(1, 2)))[place]), alone)
    return found, alone * deviation, together * deviation


class HomogeneityResult(CountsTestResult):
    """Whether the owners' units come from one distribution over the cells, and who and what differs.

    Attributes:
        pairs: owners compared with each other; empty for more than ten.
        effects: by how much shares of listed cells differ between pairs of owners, cells with the smallest
            p-values first; each with an interval for itself, and one that holds with all others.
        cells: those with the smallest p-values, adjusted for all cells.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue")
    tabulated: ClassVar[tuple[str, ...]] = ("effects", "pairs")

    pairs: Annotated[tuple[ComparedPair, ...], compared_shown("pairs")]
    effects: Annotated[tuple[JointEffect, ...], EFFECTS] = ()

    def __str__(self) -> str:
        decision = self._decided("the distributions differ" if self.reject else "no difference shown")
        return self._told("; ".join([decision, *told_between(self.effects)]))

    def fields(self) -> dict[str, Any]:
        pairs = [{"names": p.names, "pvalue": p.pvalue, "reject": p.reject} for p in self.pairs]
        effects = {"effects": [effect.model_dump() for effect in self.effects]} if self.effects else {}
        return super().fields() | {"pairs": pairs} | effects

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the owners' distributions DIFFER" if self.reject else "no difference shown"
        rows = tuple(
            (" and ".join(p.names), f"{p.pvalue:.3g}", "differ" if p.reject else "no difference shown")
            for p in self.pairs
        )
        return self._shown(
            finding,
            *([ShownTable(("Owners", "p (Holm)", ""), rows)] if len(rows) > 1 else []),
            *([effects_table(self.effects)] if self.effects else []),
        )


class HomogeneityPlan(SimulatedCountTest, OwnCounts):
    """Every owner's noisy table, compared with those of all others."""

    simulated_null: ClassVar[str] = "tables of one distribution"

    def __init__(self, study: Study, parameters: CountTestParameters) -> None:
        super().__init__(study, parameters)
        owners = len(study.owners)
        if owners < 2:
            raise StudyError("homogeneity is of two or more owners")
        if len(self.grid.compared) < 2:
            raise StudyError("a single cell holds every unit: there is nothing to compare")
        tables = owners + owners * (owners - 1) if 2 < owners <= PAIRED_OWNERS_MAX else owners
        require_work(CELL_WORK * self.grid.size * tables, parameters.replicates)

    def caveats(self) -> tuple[str, ...]:
        """Say where there are too many owners to compare them in pairs, or too many shares to state any."""
        many = len(self.study.owners) > PAIRED_OWNERS_MAX
        found = (f"more than {PAIRED_OWNERS_MAX} owners are not compared in pairs",) if many else ()
        if many or self._compared():
            return found
        return (*found, f"more than {DIFFERENCES_MAX} differences of shares are not estimated")

    def _compared(self) -> list[int]:
        """Return the compared cells whose shares are told: listed ones; none where there are too many."""
        owners, levels = len(self.study.owners), tuple(axis.listed for axis in self.grid.axes)
        listed: list[int] = compared_places(self.grid.compared_shape, levels).tolist()
        few = owners <= PAIRED_OWNERS_MAX and len(listed) * owners * (owners - 1) // 2 <= DIFFERENCES_MAX
        return listed if few else []

    def meaning(self, verdict: Fields) -> Meaning:
        names = names_of(self.study)
        return self.decision(
            verdict,
            f"The owners' categories are distributed differently: {names} do not share one distribution",
            f"No difference in the owners' categories was shown: {names} may share one distribution",
        )

    def test(
        self,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> TableTest:
        """Test whether the tables come from one distribution."""
        return homogeneity_test(tables, replicates, public_seed(self.study, TEST_STREAM), progress)

    def statistics(self, tables: Sequence[NoisyTable]) -> Floats:
        """Return the statistics of owners' tables."""
        return np.asarray(compared_cells([table.held for table in tables])[1].sum(axis=-1))

    def null_of(self, tables: Sequence[NoisyTable], draws: int, seed: np.random.SeedSequence) -> NuisanceNull:
        """Simulate the null at plausible pools."""
        return homogeneity_null(tables, draws, seed)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:
        """Return the cells with the largest residuals; none where the tables are not at hand."""
        tables = self.known_tables(verdict, releases)
        if tables is None:
            return []
        found = between_owners(tables)
        names = [owner.name for owner in self.study.owners]
        if len(names) == 2:
            found, names = found[:1], names[:1]  # the other owner's are the same with the other sign
        one = f"Cells of {names[0]} against both owners"
        title = one if len(names) == 1 else "Owners' cells against all"
        residuals = dict(zip(names, found, strict=True))
        drawn = forest(
            effects_of(verdict.get("effects", ())),
            self.study.level,
            title=lambda effect: f"{effect.groups[0]} less {effect.groups[1]}",
            label=lambda effect: effect.level or "",
        )
        return [*drawn, *residual_panel(title, self.grid, residuals, verdict, self.grid.compared)]

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> HomogeneityResult:
        study, replicates, tables = self.study, self.replicates, self.tables(releases)
        names, own = list(tables), list(tables.values())
        test = self.test(own, replicates, step(progress, "simulating the null", 0.0, 0.5))
        pairs: tuple[PairTest, ...] = (PairTest(0, 1, test.statistic, test.pvalue),)
        if len(own) != 2:
            compared = step(progress, "comparing pairs of owners", 0.5)
            pairs = (
                ()
                if len(own) > PAIRED_OWNERS_MAX
                else compare_pairs(own, replicates, public_seed(study, PAIRS_STREAM), compared)
            )
        shares = {name: table.held.shares for name, table in tables.items()}
        return HomogeneityResult(
            method=f"chi-square test of homogeneity over {len(self.grid.compared)} cells with "
            f"{self.noise.kind} noise in its null, {replicates} replicates",
            **decided(study, test.statistic, test.pvalue),
            **self.shown(tables, releases, self.caveats()),
            pairs=tuple(
                ComparedPair(
                    first=names[pair.first],
                    second=names[pair.second],
                    **decided(study, pair.statistic, pair.pvalue),
                )
                for pair in pairs
            ),
            cells=striking_cells(self.grid, test, shares, study.level),
            effects=tuple(self._effects(tables, test)),
        )

    def _effects(self, tables: Mapping[str, NoisyTable], test: TableTest) -> Iterator[JointEffect]:
        """Yield differences of shares, of the cells that stand out most first."""
        cells = sorted(self._compared(), key=lambda cell: -float(test.ratios[cell]))
        if not cells:
            return
        seed, level = public_seed(self.study, EFFECTS_STREAM), self.study.level
        told = differences(list(tables.values()), np.array(cells), level, self.replicates, seed)
        pairs = list(combinations(tables, 2))
        for place, cell in enumerate(cells[: max(1, STATED_MAX // len(pairs))]):
            for pair, (value, half, wide) in zip(
                pairs, zip(*(part[:, place].tolist() for part in told), strict=True), strict=True
            ):
                yield _difference(self.grid, cell, pair, value, (half, wide))


class Homogeneity(CountProcedure):
    """See the module. Registered as ``homogeneity``."""

    name: ClassVar[str] = "homogeneity"
    title: ClassVar[str] = "Do the owners' categories have one distribution?"
    Parameters: ClassVar[type[BaseModel]] = CountTestParameters
    Verdict: ClassVar[type[BaseVerdict]] = HomogeneityResult
    cited: ClassVar[tuple[Citation, ...]] = (CHI_SQUARED, NEW_CLASS)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do the owners' categories have one distribution?",
        r"categor.*(same|alike|equal|homogen|distribution)|homogen|shares",
        "two or more",
        rank=7,
        categories=True,
        pure=True,
    )
    population: ClassVar[type[SimulationModel] | None] = CountsShift

    def plan(self, study: Study) -> HomogeneityPlan:
        require_own_releases(study)
        return HomogeneityPlan(study, parse_parameters(CountTestParameters, study))


def _difference(
    grid: CellGrid, cell: int, pair: tuple[str, str], value: float, halves: tuple[float, float]
) -> JointEffect:
    """State a difference of shares of a compared cell; shares lie between 0 and 1."""
    (lower, upper), (low, high) = ((max(-1.0, value - half), min(1.0, value + half)) for half in halves)
    value = min(1.0, max(-1.0, value))
    return JointEffect(
        column=", ".join(grid.names),
        kind="risk difference",
        groups=pair,
        estimate=value,
        lower=min(lower, value),
        upper=max(upper, value),
        unit="share of units",
        level=", ".join(grid.label(int(grid.compared[cell]))),
        simultaneous_lower=min(low, value),
        simultaneous_upper=max(high, value),
    )


def between_owners(tables: Sequence[NoisyTable]) -> npt.NDArray[np.float64]:
    """Return every owner's residuals, (J, k) of compared cells, from the pooled shares.

    With public weights u, var(x_j - p) = (1 - 2 u_j) v_j + sum_l u_l^2 v_l, v_j = p (1 - p)/n_j + noise.
    """
    held = [table.held for table in tables]
    weights = weights_of(held)
    units, noise = np.stack([own.units for own in held]), np.stack([own.variance for own in held])
    shares = np.stack([own.shares for own in held])
    pooled = weights.pooled(shares)
    likely = np.maximum(onto_simplex(pooled), weights.floor)
    each = (likely * np.maximum(1 - likely, 0.0))[None, :] / units + noise
    spread = (1 - 2 * weights.mean)[:, None] * each + np.sum(weights.mean[:, None] ** 2 * each, axis=0)
    return np.asarray((shares - pooled) / np.sqrt(spread))
