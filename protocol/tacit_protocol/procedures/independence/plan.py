"""Tests of whether variables are independent, of units that a sender holds all columns of.

By blocks of units that vote, with a permutation test of the d-variable Hilbert-Schmidt criterion in each
(aggregation.py), or by one noisy table of the columns' cells (quantile_tables). A procedure whose question is
one of independence makes its plans of these, with its own words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import PooledTable, Table, Workers, workers_of
from tacit_protocol.features.fixed_rank import features_of
from tacit_protocol.features.kernels import DistanceKernel, KernelMixture, LinearKernel, ProductKernel
from tacit_protocol.features.unit_gram import EvaluatedKernel, UnitGram, UnitRows, gather_units
from tacit_protocol.messages.study import UNITS_MAX, Release, Study
from tacit_protocol.numerics.noisy_tables import SimulatedTest
from tacit_protocol.privacy.gaussian_mechanism import same_guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.aggregation import (
    BLOCK_LEVEL,
    BLOCK_PERMUTATIONS,
    BLOCK_UNITS_MIN,
    REJECTIONS,
    VotePlan,
    Votes,
    drawn_law,
    sum_of_votes,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    PublicRuleError,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    public_seed,
    require_work,
    row_warnings,
    step,
)
from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.permutation.statistic import squared_statistics, units_max
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.quantile_tables.release import UNITS_MIN, HeldUnits, TableLayout
from tacit_protocol.procedures.quantile_tables.statistic import (
    Statistic,
    Variable,
    independence_test,
    pair_estimates,
)
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult, PairOfVariables, pair_panels
from tacit_protocol.procedures.randomised_answers.sides import SIGNAL_HOPELESS
from tacit_protocol.procedures.randomised_answers.verdict import measures_of
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    Meaning,
    Null,
    RowsPanel,
    affordable,
    decision_sentence,
    from_draws,
    joined,
)

Floats = npt.NDArray[np.float64]
Variables = tuple[tuple[str, ...], ...]
"""The columns of each variable, by name."""

BANDWIDTH_PER_COLUMN = 0.12
"""Default bandwidth, times the root of the number of numeric columns of a variable. Public bounds are usually
wider than the data: this serves data whose standard deviation is a twentieth to a quarter of the range
(docs/procedures/joint_independence.md has the table)."""

EXTREME = 4.0
"""Standard deviations from a block's mean at which its numeric columns are clipped before they are scaled to
[0, 1], where no bandwidth is given: the default bandwidth suits them, however wide the public bounds are."""

BLOCK_BANDWIDTH_PER_COLUMN = 0.8 / (2 * EXTREME)
"""Default bandwidth of a block so scaled: eight tenths of a standard deviation."""

BLOCKS_STREAM, TEST_STREAM = 4, 5
"""Spawn keys under the study's seed: of each block's permutations, and of simulated tables."""

AUTO_UNITS = 1000
AUTO_NOISE = (1.5, 5.0)
"""How much variance, over n, auto lets the noise on a table of two cells a column have, of fewer units than
AUTO_UNITS and of so many or more: weak dependence of many is what tables see, strong dependence of few what
blocks do (docs/benchmarks/quantile-tables.md). Of variables of several columns, whose dependence is spread
over many contrasts, it counts times the square of the columns a variable."""

CELLS_CAVEAT = "estimates and intervals are of cells: dependence within a cell is in none of them"

JOINED_CAVEAT = (
    "cells too rare to be told from noise were joined with their neighbours for estimates, or none is stated"
)

Shape = Literal["gaussian", "laplacian", "distance", "linear"]


@dataclass(frozen=True)
class UnitKernel:
    """The kernel of a variable's columns, as a study names it.

    Attributes:
        shape: of the kernel of numeric columns; "distance" and "linear" have no bandwidth.
        bandwidth: in units of the scaled columns; several are averaged over; None is by their number.
        category_similarity: the kernel's value of two rows that differ in one category, in [0, 1).
    """

    shape: Shape = "gaussian"
    bandwidth: float | tuple[float, ...] | None = None
    category_similarity: float = 0.0

    @property
    def has_bandwidth(self) -> bool:
        """Whether the kernel has a bandwidth."""
        return self.shape not in ("distance", "linear")

    def of(self, numeric: int, bandwidth_per_column: float = BANDWIDTH_PER_COLUMN) -> EvaluatedKernel:
        """Return the kernel of so many numeric columns, and of any categorical ones."""
        if self.shape == "distance":
            return DistanceKernel()
        if self.shape == "linear":
            return LinearKernel()
        bandwidth = self.bandwidth
        if bandwidth is None:
            bandwidth = bandwidth_per_column * math.sqrt(max(1, numeric))
        bandwidths = bandwidth if isinstance(bandwidth, tuple) else (bandwidth,)
        kernels = tuple(ProductKernel(self.shape, value, self.category_similarity) for value in bandwidths)
        return KernelMixture(kernels, (1 / len(kernels),) * len(kernels))


DISTANCES = UnitKernel("distance")
"""What blocks are tested with where nobody names a kernel: a test of distance covariance."""


class JointPlan(Plan):
    """Variables of units that a sender holds all of: what every method has in common."""

    variables: Variables
    units_min: int
    """Fewest units that the test takes of a sender."""
    units_max: int
    """Most units that the test takes of a sender."""

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> Any:
        """Compute what the method privatises; ``progress`` is told how far it is."""
        raise NotImplementedError

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:
        """Return a verdict's fields that the releases tell, by sender; ``units`` are by owner."""
        raise NotImplementedError

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what limits the study with so many units, of all owners."""
        raise NotImplementedError

    @property
    def cautions(self) -> tuple[str, ...]:
        """What limits the study whatever the units."""
        return row_warnings(self.study)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a verdict adds."""
        return ()

    def check_units(self, units: Mapping[str, int]) -> None:
        known = {owner.name: units.get(owner.name) for owner in self.study.owners}
        for count in by_sender(self.study, known).values():
            if count is not None:
                self.check_count(count)

    def check_count(self, units: int) -> None:
        """Raise PublicRuleError where a sender has too few units, or too many to compare."""
        if units < 2:
            raise PublicRuleError("too-few-units", "the test needs at least two units")
        if units < self.units_min:
            raise PublicRuleError(
                "too-few-units", f"the test needs at least {self.units_min} units of each owner"
            )
        if units > self.units_max:
            rows = self.study.averages_rows
            advice = "or one row a unit" if rows else "fewer variables or fewer permutations"
            raise PublicRuleError(
                "too-many-units",
                f"too many units: all pairs of them are compared, {self.units_max} units at most; use a "
                f"subset, {advice}",
            )

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        if any(owner.name not in units for owner in self.study.owners):
            return self.cautions
        return self.limits(units)

    def check_sender(self, release: Release) -> None:
        """Raise ReleaseError where a release states units of others, or as many as the test does not take."""
        study = self.study
        owners = {owner.name for owner in study.owners} if study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if not self.units_min <= release.units <= self.units_max:
            raise ReleaseError("the release states a number of units that the test does not take")

    def check_stated(self, release: Release) -> None:
        """Raise ReleaseError where a release states another guarantee or other units than the study."""
        if not same_guarantee(release.guarantee, self.guarantee):
            raise ReleaseError("the release states another guarantee than the study")
        self.check_sender(release)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> BaseVerdict:
        study, shared = self.study, self.shared
        sent = {sender.name: releases[sender.name] for sender in study.senders}
        units = {
            owner: count
            for sender, release in sent.items()
            for owner, count in (release.units_by_owner or {sender: release.units}).items()
        }
        common: dict[str, Any] = {
            **common_fields(study, units, None if shared is None else shared.own),
            "warnings": self.warnings(units) + self.caveats,
            "variables": self.variables,
        }
        made = self.verdict_type or JointIndependenceResult
        return made(**common | self.found(sent, units, progress))

    def meaning(self, verdict: Fields) -> Meaning:
        of = of_variables(verdict)
        return decision_sentence(
            self.study,
            verdict,
            f"The columns depend on each other:{of} are not jointly independent",
            f"No dependence of the columns was shown:{of} may be independent",
        )

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[RowsPanel]:  # noqa: ARG002
        return pair_panels(verdict.get("pairs", ()))


class KernelPlan(JointPlan):
    """A permutation test of the d-variable Hilbert-Schmidt criterion, of all units or of blocks."""

    kernel: UnitKernel

    def gathered(self, table: Table, order: np.random.Generator) -> tuple[UnitRows, Mapping[str, int]]:
        """Return all units in a secret random order, whatever the table's, and a curator's by owner."""
        self.check_count(table.units)
        rows = gather_units(list(table.chunks()))
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return rows.reordered(order.permutation(rows.units)), by_owner

    def gram(
        self, names: tuple[str, ...], rows: UnitRows, bandwidth_per_column: float = BANDWIDTH_PER_COLUMN
    ) -> UnitGram:
        """Return the kernel matrix of one variable."""
        domain = self.study.domain
        numeric = [i for i, column in enumerate(domain.numeric) if column.name in names]
        categorical = [i for i, column in enumerate(domain.categorical) if column.name in names]
        kernel = self.kernel.of(len(numeric), bandwidth_per_column)
        features = features_of(kernel, len(numeric), [domain.categorical[i].categories for i in categorical])
        own = rows.columns(numeric, categorical)
        return UnitGram(kernel, own, features, several_rows=self.study.averages_rows)


class BlocksTested(KernelPlan, VotePlan):
    """The noisy number of blocks of units that reject."""

    verdict_type: type[BaseVerdict] = JointIndependenceResult
    masked_numbers = "numbers of rejecting blocks"
    number = "number of blocks"
    of: ClassVar[str] = ""
    """What is tested in the place of columns, in words."""
    block_units_min: ClassVar[int] = BLOCK_UNITS_MIN
    """Fewest units of a block."""

    def __init__(
        self,
        study: Study,
        variables: Variables,
        kernel: UnitKernel,
        blocks: int | None,
        masked: MaskedParameters,
    ) -> None:
        VotePlan.__init__(self, study, masked, REJECTIONS, blocks, self.block_units_min)
        self.variables, self.kernel = variables, kernel
        self.units_max = units_max(len(variables), BLOCK_PERMUTATIONS, study.averages_rows)

    @property
    def released(self) -> str:
        return (
            "the number of blocks of units in which a permutation test of the d-variable Hilbert-Schmidt "
            "criterion rejects"
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        return self.masks_caveats

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        senders = {name: count or 0 for name, count in by_sender(self.study, units).items()}
        return self.hopes(senders) + self.cautions

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> Votes:
        order = order or np.random.default_rng()
        rows, by_owner = self.gathered(table, order)
        workers = workers_of(table)

        def squares(block: UnitRows, number: int) -> Floats:
            return self.squares(block, public_seed(self.study, BLOCKS_STREAM, number), workers)

        votes = self.voted(rows, order, squares, step(progress, "permuting"))
        return Votes(rows.units, votes, by_owner)

    def squares(self, rows: UnitRows, seed: np.random.SeedSequence, workers: Workers) -> Floats:
        """Return a block's squared statistics, (B + 1,), the observed one first."""
        return squared_statistics(self.grams(rows), BLOCK_PERMUTATIONS, seed, workers)

    def grams(self, rows: UnitRows) -> list[UnitGram]:
        """Return the kernel matrices of a block's variables."""
        if self.kernel.bandwidth is not None or not self.kernel.has_bandwidth:
            return [self.gram(names, rows) for names in self.variables]
        scaled = _scaled(rows)
        return [self.gram(names, scaled, BLOCK_BANDWIDTH_PER_COLUMN) for names in self.variables]

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        if progress is not None:
            progress(1.0, "reading the decision")
        law = self.law([release.units for release in sent.values()])
        statistic = sum_of_votes(sent, self.vote, self.shared)
        pvalue = law.tail(statistic)
        return {
            "method": f"joint independence test{self.of} by aggregation: dHSIC, {self.kernel.shape} "
            f"kernel, blocks tested at level {BLOCK_LEVEL:g}, noisy count",
            **decided(self.study, statistic, pvalue),
            "blocks": law.blocks,
            "expected": law.mean,
            "deviation": law.deviation,
        }

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        law = self.law([count or 0 for count in by_sender(self.study, verdict["units"]).values()])
        words = "a binomial number of rejecting blocks, with the noise"
        return drawn_law(law, self.study.level, float(verdict["statistic"]), words)


class TableTested(JointPlan):
    """One noisy table of the columns' cells, between private quantiles; several owners are strata.

    Whether the variables are independent at every sender is tested with ``permutations`` simulated tables.
    """

    verdict_type = CellsTableResult
    released = (
        "private quantiles of every numeric column, and noisy counts of the units in the cells between them "
        "and of the categories, crossed"
    )
    units_min, units_max = UNITS_MIN, UNITS_MAX

    def __init__(self, study: Study, variables: Variables, layout: TableLayout, permutations: int) -> None:
        require_work(layout.work * len(study.owners), permutations)
        self.study, self.variables = study, variables
        self.layout, self.permutations, self.guarantee = layout, permutations, layout.guarantee
        self.release_size = layout.numbers(max(_declared(study), default=UNITS_MAX))

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        senders = [count or 0 for count in by_sender(self.study, units).values()]
        if 1 / (self.permutations + 1) > self.study.level:
            return (
                f"with so few permutations nothing can be rejected at this level; ask for at least "
                f"{math.ceil(1 / self.study.level) - 1}",
            )
        if min(senders) < UNITS_MIN:
            return (f"{HOPELESS}a table needs at least {UNITS_MIN} units of each sender",)
        if self.layout.signal(senders) < SIGNAL_HOPELESS:
            return (
                f"{HOPELESS}even equal columns would hardly be told from independent ones; ask for more "
                "units, a larger epsilon, or fewer columns",
            )
        return ()

    def summarise(
        self,
        table: Table,
        order: np.random.Generator | None = None,
        progress: Progress | None = None,  # noqa: ARG002
    ) -> HeldUnits:
        self.check_count(table.units)
        return self.layout.read(table, order or np.random.default_rng())

    def privatise(self, summary: HeldUnits, noise: NoiseSource) -> Release:
        return self.layout.release(summary, noise)

    def check_release(self, release: Release) -> None:
        self.check_stated(release)
        self.layout.check_release(release)

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:
        releases = list(sent.values())
        for release in releases:
            self.check_release(release)
        test = self.simulated(releases, self.permutations, progress)
        step(progress, "estimating")(0.9)
        pairs, joined = self.estimated(releases)
        caveats = [CELLS_CAVEAT, JOINED_CAVEAT] if joined else [CELLS_CAVEAT]
        shape = " x ".join(str(size) for size in self.layout.shape(releases[0].units))
        cuts = " between private quantiles" if self.layout.bought else ""
        within = "" if len(releases) == 1 else f", {len(releases)} owners as strata"
        return {
            "method": (
                f"noisy table of {shape} cells{cuts}, mixed likelihood ratios of contrasts of two and more "
                f"variables{within}, {self.permutations} simulations"
            ),
            **decided(self.study, test.statistic, test.pvalue),
            "pairs": pairs,
            "labels": {sender: self.layout.cell_labels(release) for sender, release in sent.items()},
            "warnings": (*self.warnings(units), *caveats),
        }

    def simulated(
        self, releases: Sequence[Release], replicates: int, progress: Progress | None = None
    ) -> SimulatedTest:
        """Test whether the variables are independent at every sender."""
        tables = [self.layout.table(release) for release in releases]
        cells = iter(self.layout.cells(releases[0].units))
        variables = []
        for group in self.variables:
            own = [next(cells) for _ in group]
            variables.append(Variable.of([each.cells for each in own], [each.ordered for each in own]))
        seed, report = public_seed(self.study, TEST_STREAM), step(progress, "simulating the null", 0.0, 0.9)
        return independence_test(Statistic(tuple(variables)), tables, replicates, seed, report)

    def estimated(self, releases: Sequence[Release]) -> tuple[tuple[PairOfVariables, ...], bool]:
        """Return the measures of every two columns of different variables, and whether cells were joined."""
        tables, units = [self.layout.table(release) for release in releases], releases[0].units
        cells, shape = self.layout.cells(units), self.layout.shape(units)
        variable_of = [number for number, group in enumerate(self.variables) for _ in group]
        found, joined = [], False
        for i, first in enumerate(cells):
            for j, second in enumerate(cells[i + 1 :], start=i + 1):
                if variable_of[i] == variable_of[j]:
                    continue
                ordered = (first.ordered, second.ordered)
                measured = pair_estimates(tables, shape, (i, j), ordered, 1 - self.study.level)
                joined = joined or any(len(own) != int(own.max()) + 1 for own in measured.joined)
                measures = measures_of(measured)
                found.append(PairOfVariables(first=first.column.name, second=second.column.name, **measures))
        return tuple(found), joined

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        if any(sender.name not in releases for sender in self.study.senders):
            return None
        sent = [releases[sender.name] for sender in self.study.senders]
        numbers = sum(len(self.layout.table(release).counts) for release in sent)
        count = affordable(self.permutations, 3 * numbers)
        if count is None:
            return None
        words = "the statistic of independent columns, simulated with all noise"
        return from_draws(words, self.simulated(sent, count).simulated, self.study.level)


def require_all_columns(study: Study, variables: Variables) -> None:
    """Raise StudyError unless every column of the study is in exactly one variable."""
    grouped = [name for group in variables for name in group]
    if len(set(grouped)) != len(grouped):
        raise StudyError("parameter groups: a column may be in one group only")
    if set(grouped) != {column.name for column in study.domain.columns}:
        raise StudyError("parameter groups: the groups together must name the study's columns, all of them")


def table_layout(study: Study, variables: Variables, categories: int | None) -> TableLayout:
    """Return what a table fixes; raises StudyError where the study's columns make none."""
    units = None
    if study.curator is None and len(study.owners) > 1:
        declared = _declared(study)
        units = sum(declared) // len(declared) if len(declared) == len(study.owners) else UNITS_MIN
    layout = TableLayout(study.domain, variables, study.budget, categories, units)
    layout.check()
    return layout


def is_favoured(layout: TableLayout, study: Study) -> bool:
    """Say whether auto takes this table: cells are asked for, or its noise is not above AUTO_NOISE.

    A function of the study alone, units as far as it declares them: unknown numbers are taken to be large.
    """
    declared = _declared(study)
    if layout.categories is not None or len(declared) < len(study.senders):
        return True
    units = sum(declared) / len(declared)
    cells = math.prod(replace(layout, categories=2).shape(0))
    share = layout.noise.variance * cells / units if units else math.inf
    share *= (len(layout.names) / len(layout.groups)) ** 2
    return share <= AUTO_NOISE[units >= AUTO_UNITS]


def table_or_blocks(
    study: Study, variables: Variables, method: str, blocks: int | None, categories: int | None
) -> TableLayout | None:
    """Return the table of a study by method ``table``, or None by ``aggregate``; ``auto`` takes either.

    Raises:
        StudyError: a parameter is of the other method, or the columns make no table that is asked for.
    """
    if method == "aggregate" or (method == "auto" and blocks is not None):
        layout = None
    elif method == "table":
        layout = table_layout(study, variables, categories)
    else:
        try:
            layout = table_layout(study, variables, categories)
        except StudyError:
            layout = None
        if layout is not None and not is_favoured(layout, study):
            layout = None
    if layout is None and categories is not None:
        raise StudyError("parameter categories is of method table; leave it out")
    if layout is not None and blocks is not None:
        raise StudyError("parameter blocks is of method aggregate; leave it out")
    return layout


def of_variables(verdict: Fields) -> str:
    """Name a verdict's variables: " x, y with z and w"."""
    variables = [" with ".join(group) for group in verdict.get("variables") or ()]
    return f" {joined(variables, 6)}" if variables else " the columns"


def by_sender(study: Study, units: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return how many units each sender tests; None where not all are known."""
    if study.curator is None:
        return {owner.name: units[owner.name] for owner in study.owners}
    counts = [units[owner.name] for owner in study.owners]
    known = [count for count in counts if count is not None]
    return {study.curator.name: sum(known) if len(known) == len(counts) else None}


def _declared(study: Study) -> list[int]:
    """Return the senders' numbers of units that the study declares."""
    units = {owner.name: owner.units for owner in study.owners}
    return [count for count in by_sender(study, units).values() if count is not None]


def _scaled(rows: UnitRows) -> UnitRows:
    """Return a block's rows with every numeric column scaled by its own mean and standard deviation.

    Inside a block the data may choose the scale: it is the same for every permutation, and costs nothing.
    """
    spread = rows.numeric.std(axis=0)
    scaled = (rows.numeric - rows.numeric.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    clipped = np.clip(scaled, -EXTREME, EXTREME) / (2 * EXTREME) + 0.5
    return UnitRows(clipped, rows.categorical, rows.starts)
