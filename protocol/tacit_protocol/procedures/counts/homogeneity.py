"""Homogeneity: whether two or more owners' categories have one distribution.

Every owner releases noisy counts over the same public cells (or an earlier release of them is read again,
for nothing), and the tester compares the tables by a chi-square statistic whose null distribution counts
sampling and noise. Derivations: docs/mathematics/categorical.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import NoisyTable, onto_simplex
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.base import Fields, Progress, Question, Releases, StudyError, reuse_warnings
from tacit_protocol.procedures.counts.base import (
    Cells,
    ComparedPair,
    CountsTestResult,
    CountTest,
    require_work,
    residual_panel,
    shown_counts,
    silent,
    simulation_seed,
    simulations,
    striking_cells,
    tables_of,
)
from tacit_protocol.procedures.counts.statistic import PairTest, Weights, compare_pairs, homogeneity_test
from tacit_protocol.procedures.populations import Population
from tacit_protocol.verdicts.base import BaseVerdict, ShownTable
from tacit_protocol.verdicts.panels import Null, RowsPanel, affordable, from_draws
from tacit_protocol.verdicts.words import CHI_SQUARED, NEW_CLASS, Meaning, Work, either, names_of

PAIRED_OWNERS_MAX = 10
"""Most owners that are compared in pairs: beyond 45 pairs, p-values of 1999 replicates say little."""

TEST_STREAM, PAIRS_STREAM = 1, 2
"""Spawn keys under the study's seed."""


class HomogeneityResult(CountsTestResult):
    """Whether the owners' units come from one distribution over the cells, and who and what differs.

    ``cells`` are those with the smallest p-values, adjusted for all cells; ``counts`` are the noisy tables
    themselves, None where they are large.

    Attributes:
        pairs: owners compared with each other; empty for more than ten.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue")

    pairs: tuple[ComparedPair, ...]

    def __str__(self) -> str:
        return self._told(self._decided("the distributions differ" if self.reject else "no difference shown"))

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        pairs = [{"names": p.names, "pvalue": p.pvalue, "reject": p.reject} for p in self.pairs]
        return super().fields() | {"pairs": pairs}

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the owners' distributions DIFFER" if self.reject else "no difference shown"
        rows = tuple(
            (" and ".join(p.names), f"{p.pvalue:.3g}", "differ" if p.reject else "no difference shown")
            for p in self.pairs
        )
        return self._shown(
            finding, *([ShownTable(("Owners", "p (Holm)", ""), rows)] if len(rows) > 1 else [])
        )


class Homogeneity(CountTest):
    """See the module. Registered as ``homogeneity``."""

    name: ClassVar[str] = "homogeneity"
    title: ClassVar[str] = "Do the owners' categories have one distribution?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    Verdict: ClassVar[type[BaseVerdict]] = HomogeneityResult
    question: ClassVar[Question | None] = Question(
        "Do the owners' categories have one distribution?",
        r"categor.*(same|alike|equal|homogen|distribution)|homogen|shares",
        "two or more",
        rank=7,
        categories=True,
        pure=True,
    )
    population: ClassVar[type[Population] | None] = Cells

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        super().check(study)
        if len(study.owners) < 2:
            raise StudyError("homogeneity is of two or more owners")
        parameters, plan = self.parameters(study), self.plan(study)
        if plan.grid.size < 2:
            raise StudyError("a single cell holds every unit: there is nothing to compare")
        owners = len(study.owners)
        tables = owners + owners * (owners - 1) if 2 < owners <= PAIRED_OWNERS_MAX else owners
        require_work(plan.grid.size * tables, parameters.replicates)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        names = names_of(study)
        return either(
            study,
            verdict,
            f"The owners' categories are distributed differently: {names} do not share one distribution",
            f"No difference in the owners' categories was shown: {names} may share one distribution",
        )

    def works(self, study: Study) -> tuple[Work, ...]:  # noqa: ARG002
        """Return the works that the study's method comes from."""
        return (CHI_SQUARED, NEW_CLASS)

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the first of the verdict's."""
        tables = tables_of(self.plan(study), study, verdict, releases)
        if tables is None:
            return None
        replicates = affordable(self.parameters(study).replicates, sum(len(t.counts) for t in tables))
        if replicates is None:
            return None
        test = homogeneity_test(tables, replicates, simulation_seed(study, TEST_STREAM))
        return from_draws(simulations(replicates, "tables of one distribution"), test.simulated, study.level)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:
        """Return the cells with the largest residuals; none where the tables are not at hand."""
        tables = tables_of(self.plan(study), study, verdict, releases)
        if tables is None:
            return []
        found = between_owners(tables)
        names = [owner.name for owner in study.owners]
        if len(names) == 2:
            found, names = found[:1], names[:1]  # the other owner's are the same with the other sign
        one = f"Cells of {names[0]} against both owners"
        title = one if len(names) == 1 else "Owners' cells against all"
        residuals = dict(zip(names, found, strict=True))
        return residual_panel(title, self.plan(study).grid, residuals, verdict)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> HomogeneityResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan, parameters = self.plan(study), self.parameters(study)
        names = [owner.name for owner in study.owners]
        tables = [plan.read_owner(owner, releases) for owner in study.owners]
        report = progress if progress is not None else silent
        test = homogeneity_test(
            tables,
            parameters.replicates,
            simulation_seed(study, TEST_STREAM),
            lambda part: report(0.5 * part, "simulating the null"),
        )
        alone = PairTest(0, 1, test.statistic, test.pvalue) if len(names) == 2 else None
        pairs = _pairs(study, tables, parameters.replicates, report) if alone is None else (alone,)
        units = {name: table.units for name, table in zip(names, tables, strict=True)}
        return HomogeneityResult(
            method=f"chi-square test of homogeneity over {plan.grid.size} cells with {plan.noise.kind} noise "
            f"in its null, {parameters.replicates} replicates",
            statistic=test.statistic,
            pvalue=test.pvalue,
            reject=test.pvalue <= study.level,
            level=study.level,
            units=units,
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            columns=plan.grid.names,
            shape=plan.grid.shape,
            counts=shown_counts(dict(zip(names, tables, strict=True))),
            pairs=tuple(
                ComparedPair(
                    first=names[pair.first],
                    second=names[pair.second],
                    statistic=pair.statistic,
                    pvalue=pair.pvalue,
                    reject=pair.pvalue <= study.level,
                )
                for pair in pairs
            ),
            cells=striking_cells(plan.grid, test, _shares(names, tables), study.level),
            warnings=self.warnings(study, units) + _unpaired(len(names)) + reuse_warnings(study),
        )


def _pairs(study: Study, tables: list[NoisyTable], replicates: int, report: Progress) -> tuple[PairTest, ...]:
    if len(tables) > PAIRED_OWNERS_MAX:
        return ()
    return compare_pairs(
        tables,
        replicates,
        simulation_seed(study, PAIRS_STREAM),
        lambda part: report(0.5 + 0.5 * part, "comparing pairs of owners"),
    )


def _unpaired(owners: int) -> tuple[str, ...]:
    if owners <= PAIRED_OWNERS_MAX:
        return ()
    return (f"more than {PAIRED_OWNERS_MAX} owners are not compared in pairs",)


def _shares(names: list[str], tables: list[NoisyTable]) -> dict[str, npt.NDArray[np.float64]]:
    return {name: table.counts / table.units for name, table in zip(names, tables, strict=True)}


def between_owners(tables: Sequence[NoisyTable]) -> npt.NDArray[np.float64]:
    """Return every owner's residuals, (J, k), from the pooled shares.

    With public weights u, var(x_j - p) = (1 - 2 u_j) v_j + sum_l u_l^2 v_l, v_j = p (1 - p)/n_j + noise.
    """
    units = np.array([table.units for table in tables], dtype=np.float64)
    noise = np.array([table.noise_variance for table in tables])
    weights = Weights.of(units, noise, len(tables[0].counts))
    shares = np.stack([table.counts / table.units for table in tables])
    pooled = weights.pooled(shares)
    likely = np.maximum(onto_simplex(pooled), weights.floor)
    each = (likely * np.maximum(1 - likely, 0.0))[None, :] / units[:, None] + (noise / units**2)[:, None]
    spread = (1 - 2 * weights.mean)[:, None] * each + np.sum(weights.mean[:, None] ** 2 * each, axis=0)
    return np.asarray((shares - pooled) / np.sqrt(spread))
