"""The kernel two-sample test between 2..k owners who trust no one.

P0 is Raj, Law, Sejdinovic and Park, *A differentially private kernel two-sample test*; what is corrected and
sharpened is derived in docs/mathematics/features.md and docs/mathematics/kernel-two-sample.md.

Every owner releases the noisy mean of bounded features of its units (and, for the ME and SCF features, their
noisy second moment) in one joint Gaussian release; the tester asks whether one distribution explains all.
By default it asks by the max form (chi-squared laws and Sidak's correction); all forms are in
means/private_means.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.domain import Table
from tacit_protocol.features.cell_means import CELLS_DEFAULT, FINE_CELLS, FINE_COUNTS, CellRelease
from tacit_protocol.features.moments import (
    COLUMN_MEANS,
    DIAGONAL,
    MEAN,
    AdditiveFeatures,
    AdditiveRelease,
    AdditiveSums,
    FeatureSums,
    MomentRelease,
    read_second_moment,
)
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart, noise_scales
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee, NoisyVector
from tacit_protocol.privacy.k_norm_mechanism import check_k_norm, k_norm_scale, release_k_norm, require_k_norm
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    release_laplace_sums,
    require_laplace,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    require_noise,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.means.effects import OWNERS_COMPARED_MAX, Samples, effects_by_column
from tacit_protocol.procedures.means.private_means import (
    CoordinateFamily,
    PrivateMeans,
    additive_families,
    max_null,
    mmd_law,
    named_groups,
    noise_aware_test,
    simulated_test_work,
)
from tacit_protocol.procedures.plan import SumPlan
from tacit_protocol.procedures.populations import Difference, SimulationModel
from tacit_protocol.procedures.two_sample.release import (
    FINE_PART,
    OF_THE_TEST,
    KernelTwoSampleParameters,
    fine_guarantees,
    form_of,
    guarantee_of,
    refuse_idle_parameters,
    release_of,
    require_same_release,
)
from tacit_protocol.procedures.two_sample.statistic import (
    DETECTABLE_MAX,
    Finding,
    Form,
    MeanEmbedding,
    PairFinding,
    PrivateMoments,
    TwoSampleTest,
    detectable_difference,
    detectable_squared_mmd,
    locations_of_owners,
    published_law,
)
from tacit_protocol.procedures.two_sample.verdict import (
    FEATURE_CHOICES,
    ONE_POPULATION,
    PairComparison,
    TwoSampleResult,
    effect_panels,
    two_sample_meaning,
)
from tacit_protocol.verdicts.base import BaseVerdict, Stated, stated
from tacit_protocol.verdicts.presentation import (
    DRAWN_MAX,
    KERNEL,
    SIMULATED,
    WEIGHTED,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    chi_square,
    from_draws,
    quadratic,
)

NULL_STREAM = 2
"""Spawn key under the study's seed of simulated null distributions; public choices have another."""

SAMPLING = 0.25
"""Standard deviation of a typical column's coordinate, as a part of its span, before division by sqrt n."""

GAUSSIAN_FROM = (0.5, 1.4)
"""Gaussian noise is taken from where it is so many times sampling's standard deviation: in studies of one
column, which gain finer features, and of several, which gain pairs of columns that few features lack."""

FINER_FROM = 0.33
"""K-norm noise buys more cells as long as it stays below this part of sampling's standard deviation."""

FEW_TO = 1.4
"""Few features are taken up to so many times the noise of many: there are fewer to correct for, and steeper
ones. In simulations of a shift in one column of 20 they see more, of 30, at 1.5 times the noise, as much."""


RESOLUTIONS = (4, 5, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of cells of a numeric column that are chosen from."""

PAIR_RESOLUTIONS = (4, 5, 8, 12, 16)
"""The same where pairs of columns are compared: their tables have the square of as many."""

PAIR_NUMBERS_MAX = 1000
"""Most cells of all pairs together with which a default compares them."""

PAIRS_TO = 1.4
"""Pairs of columns are compared where noise is at most so many times sampling's: as Gaussian noise is taken,
for the same gain."""


FINE_UNITS = 100
"""Fine cells are bought where units times their epsilon, for each numeric column, are so many: fewer units
cannot be told from their noise."""

FINE_TO = 0.5
"""And where the other noise stays below this part of sampling's all the same."""

PAIRED = 2
"""Columns whose pair is compared where numbers of units are not known: it costs their own test little."""


class TwoSamplePlan(SumPlan):
    """Means of one kind of features, and one form of the test of them."""

    rereads = True
    form: ClassVar[Form] = "max"
    told: ClassVar[str]
    """The form and its null distribution, in words."""

    def __init__(
        self,
        study: Study,
        parameters: KernelTwoSampleParameters,
        release: AdditiveRelease | MomentRelease,
        guarantee: Guarantee,
    ) -> None:
        self.study, self.parameters, self.guarantee = study, parameters, guarantee
        self.release = release
        self.release_size = release.numbers

    def parts(self, units: int, sums: Any = None) -> tuple[SumPart, ...]:
        try:
            return self.release.parts(units, sums)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def mean_noise(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of a mean over so many units."""
        # The mean comes first in every layout.
        return next(iter(noise_scales(self.parts(units), self.guarantee).values())) / units

    def detectable(self, units: tuple[int, int]) -> float:
        """Return the detectable difference of two owners, relative to the one that is called hopeless."""
        raise NotImplementedError

    def evidence(self, releases: Sequence[Release]) -> PrivateMoments:
        """Read the releases of a study, in the order of its owners."""
        raise NotImplementedError

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        if len(units) < 2:
            return ()
        owners = sorted(units, key=lambda owner: units[owner], reverse=True)
        detectable = [self.detectable((units[owners[0]], units[owner])) for owner in owners[1:]]
        advice = "ask for more units, a larger epsilon, or fewer columns"
        if detectable[0] >= 1:
            return (
                f"{HOPELESS}even its two largest owners could differ greatly and not be told apart; {advice}",
            )
        blind = [owner for owner, value in zip(owners[1:], detectable, strict=True) if value >= 1]
        if not blind:
            return ()
        return (f"differences of {', '.join(blind)} from the largest owner will not be seen; {advice}",)

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> FeatureSums | AdditiveSums:  # noqa: ARG002
        return self.release.sum(table)

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        # A database's mean is read by the MMD form (``EmbeddingRelease.check_borrower``).
        if source.procedure != self.study.procedure:
            raise StudyError(
                f"{self.study.procedure} reads releases of {self.study.procedure} and embedding_release, "
                "no others"
            )
        require_same_release(self.study, source)
        return release

    def meaning(self, verdict: Fields) -> Meaning:
        return two_sample_meaning(self.study, verdict)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        return effect_panels(self.study, verdict)

    @property
    def method(self) -> str:
        """The method, in words."""
        features = {
            "auto": "column-wise and pairwise features",
            "columns": "column-wise features",
            "me": "mean-embedding features",
            "scf": "smooth characteristic features",
        }
        raw = ", P0's calibration" if self.parameters.calibration == "paper" else ""
        return f"kernel two-sample test: {self.told}, {features[self.parameters.features]}{raw}"

    @property
    def test(self) -> TwoSampleTest:
        """The test of the evidence."""
        return TwoSampleTest(
            form=self.form,
            features=None,
            families=(),
            replicates=self.parameters.replicates,
            regularisation=self.parameters.regularisation,
            seed=public_seed(self.study, NULL_STREAM),
            trace_max=self.release.features.norm**2,
        )

    def details(self, names: list[str], evidence: PrivateMoments, overall: Finding) -> dict[str, Any]:
        """Return a verdict's fields that say where and by how much owners differ, as the features tell."""
        raise NotImplementedError

    @property
    def caveats(self) -> tuple[str, ...]:
        """What limits the form of the test."""
        return ()

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> TwoSampleResult:
        study = self.study
        report = step(progress, "testing all owners together")
        names = [owner.name for owner in study.owners]
        evidence = self.evidence([releases[name] for name in names])
        test = self.test
        report(0.05)
        overall = test.run(evidence, progress=step(progress, "simulating the null", 0.05, 0.5))
        compared = step(progress, "comparing pairs of owners", 0.5)
        compared(0.0)
        pairs = tuple(
            _compared(names, found, study.level)
            for found in test.compare_pairs(
                evidence,
                overall,
                # Bonferroni over the pairs, so that their average is covered too.
                1 - study.level / max(1, len(names) * (len(names) - 1) // 2),
                compared,
            )
        )
        units = {name: releases[name].units for name in names}
        average = _average(pairs)
        return TwoSampleResult(
            method=self.method,
            **decided(study, overall.statistic, overall.pvalue),
            **common_fields(study, units),
            squared_mmd=None if average is None else average.value,
            squared_mmd_unbiased=None if average is None else average.unbiased,
            lower=None if average is None else average.lower,
            upper=None if average is None else average.upper,
            pairs=pairs,
            columns=named_groups(study.domain, overall.groups, study.level),
            **self.details(names, evidence, overall),
            warnings=self.warnings(units) + self.caveats + reuse_warnings(study),
        )


class ColumnMeans(TwoSamplePlan):
    """Means of features of columns, and of pairs of them, in Gaussian noise: the max form."""

    told = "max form"
    release: AdditiveRelease

    @property
    def features(self) -> AdditiveFeatures:
        """The features of columns."""
        return self.release.features

    @property
    def tested(self) -> int:
        """How many coordinates share the columns' level."""
        return self.features.column_wise.dimension

    def detectable(self, units: tuple[int, int]) -> float:
        noise = (self.mean_noise(units[0]), self.mean_noise(units[1]))
        coordinates = self.features.column_wise.coordinates
        weight = max(own.scale for own in coordinates if own.part not in ("cell", "contrast"))
        level = self.study.level * (1.0 - self.features.choice.pair_share) / self.tested
        return detectable_difference(noise, units, weight, level) / DETECTABLE_MAX

    def evidence(self, releases: Sequence[Release]) -> PrivateMoments:
        return PrivateMoments(_means(self.release, releases))

    @property
    def families(self) -> tuple[CoordinateFamily, ...]:
        """The coordinates that are tested together."""
        return additive_families(self.features)

    @property
    def test(self) -> TwoSampleTest:
        return replace(super().test, features=self.features, families=self.families)

    def samples(self, names: list[str], evidence: PrivateMoments) -> Samples:
        """Return what effects are computed from."""
        return Samples.of_owners(names, evidence.means, None)

    def details(self, names: list[str], evidence: PrivateMoments, overall: Finding) -> dict[str, Any]:
        samples, level = self.samples(names, evidence), self.study.level
        effects, summaries = effects_by_column(
            self.study.domain, self.features, samples, level, overall.groups
        )
        return {"effects": effects, "summaries": summaries}

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        owners, statistic = len(verdict["units"]), float(verdict["statistic"])
        return max_null(self.features, owners, statistic, self.study.level)


class CellMeans(ColumnMeans):
    """Counts of cells, and means within them, in K-norm noise; of fine cells in Laplace noise.

    ``bought`` is what buys each vector, in their order: of one all of ``guarantee``.
    """

    release: CellRelease

    def __init__(
        self,
        study: Study,
        parameters: KernelTwoSampleParameters,
        release: CellRelease,
        bought: tuple[Guarantee, ...],
    ) -> None:
        events = tuple(event for paid in bought for event in paid.events)
        super().__init__(study, parameters, release, Guarantee(budget=study.budget, events=events))
        self.bought = bought

    def noisy(self, parts: Sequence[SumPart], noise: NoiseSource, first: int = 0) -> dict[str, NoisyVector]:  # noqa: ARG002
        coarse, *fine = parts
        vectors = release_k_norm(coarse, self.release.body, self.bought[0], noise)
        return vectors | {part.name: release_laplace_sums(part, self.bought[1], noise) for part in fine}

    def require_drawable(self, units: int) -> None:
        coarse, *fine = self.parts(units)
        require_k_norm(self.release.body, -coarse.exponent, self.bought[0].budget.epsilon)
        for part in fine:
            require_laplace(part, self.bought[1])

    def check_release(self, release: Release) -> None:
        coarse, *fine = self.parts(release.units)
        vectors = release.vectors
        if release.guarantee != self.guarantee:
            raise LayoutError("the release states another guarantee than the study")
        if set(vectors) != {coarse.name, *(part.name for part in fine)}:
            raise LayoutError("the release has not the vectors that the study asks for")
        own, paid = {COLUMN_MEANS: vectors[COLUMN_MEANS]}, self.bought[0]
        check_k_norm(own, paid, coarse, self.release.body, paid)
        for part in fine:
            check_laplace_sums(vectors[FINE_COUNTS], self.bought[1], part, self.bought[1])

    def mean_noise(self, units: int) -> float:
        bits = self.release.bits(units)
        scale = k_norm_scale(self.release.body, bits, self.bought[0].budget.epsilon)
        return float(np.ldexp(scale, -bits)) / units

    @property
    def tested(self) -> int:
        return self.release.body.dimension

    def evidence(self, releases: Sequence[Release]) -> PrivateMoments:
        means = _means(self.release, releases)
        if not self.release.features.cells.fine:
            return PrivateMoments(means)
        found = [self.release.read_fine(release.vectors, release.units) for release in releases]
        shares, noise = np.stack([own for own, _ in found]), np.array([scale for _, scale in found])
        return PrivateMoments(means, fine=PrivateMeans(shares, means.units, noise))

    @property
    def families(self) -> tuple[CoordinateFamily, ...]:
        return ()

    def samples(self, names: list[str], evidence: PrivateMoments) -> Samples:
        return Samples.of_owners(names, evidence.means, self.release.features.cells.law)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        return None

    def describe_request(self) -> tuple[str, ...]:
        pure = self.study.budget.delta_pico == 0
        why = "there is no delta" if pure else "so few numbers carry less noise so"
        cells = self.release.features.cells
        found = (
            f"releases {cells.body.dimension} numbers, counts of cells of columns"
            f"{' and of their pairs' * cells.pairs} and means, in "
            f"noise of pure epsilon that fits them (k-norm): {why}",
        )
        if not cells.fine:
            return found
        return (
            *found,
            f"releases {cells.fine} counts of fine cells of numeric columns, in Laplace noise of a fifth of "
            "epsilon: they show differences of data that lie close together",
        )

    @property
    def released(self) -> str:
        fine = ", and counts of fine cells" * bool(self.release.features.cells.fine)
        return f"counts of cells of the columns, and means of numbers within them{fine}"

    @property
    def method(self) -> str:
        of = "columns and pairs" if self.release.features.cells.pairs else "columns"
        return f"two-sample test: largest contrast of cells, {of}, K-norm noise in its null"


class KernelMeans(TwoSamplePlan):
    """Means and second moments of kernel features at locations or frequencies, in Gaussian noise."""

    release: MomentRelease

    def detectable(self, units: tuple[int, int]) -> float:
        noise, features = (self.mean_noise(units[0]), self.mean_noise(units[1])), self.release.features
        return detectable_squared_mmd(noise, features.dimension, self.study.level) / features.norm**2

    def check_reread(self, release: Release) -> None:
        if set(release.vectors) != {MEAN}:
            self.check_release(release)
            return
        vector, dimension = release.vectors[MEAN], self.release.features.dimension
        if len(vector.values) != dimension or vector.noise != "gaussian":
            raise ReleaseError(
                "the earlier mean has not one coordinate with Gaussian noise for each location"
            )

    def evidence(self, releases: Sequence[Release]) -> PrivateMoments:
        means = _means(self.release, releases)
        moments = np.stack([_second_moment(release, means.dimension) for release in releases])
        scales = [r.vectors[DIAGONAL].scale if DIAGONAL in r.vectors else np.inf for r in releases]
        return PrivateMoments(means, moments, np.array(scales) / means.units)

    def details(self, names: list[str], evidence: PrivateMoments, overall: Finding) -> dict[str, Any]:  # noqa: ARG002
        domain, features = self.study.domain, self.release.features
        if not isinstance(features, MeanEmbedding):
            return {}
        return {"locations": locations_of_owners(domain, features, names, evidence, self.study.level)}

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        if not releases:
            return None
        evidence = self.evidence([releases[owner.name] for owner in self.study.owners])
        return self.null_of(evidence, float(verdict["statistic"]))

    def null_of(self, evidence: PrivateMoments, statistic: float) -> Null | None:
        """Work out the null distribution that the evidence gives."""
        raise NotImplementedError


class MmdForm(KernelMeans):
    """The MMD, against its exact law."""

    form = "mmd"
    told = "MMD form, exact weighted chi-squared null"

    def null_of(self, evidence: PrivateMoments, statistic: float) -> Null | None:
        _, law = mmd_law(evidence.means, evidence.covariance(), self.test.trace_max)
        return quadratic(WEIGHTED, (law,), statistic, self.study.level)


class NoiseAwareForm(KernelMeans):
    """A statistic that counts the noise of the covariance, against a simulated law."""

    form = "noise-aware"
    told = "noise-aware form, simulated null"

    def require_work(self) -> None:
        """Raise StudyError where the verdict would simulate too long."""
        owners, dimension = len(self.study.owners), self.release.features.dimension
        pairs = owners * (owners - 1) // 2 if 2 < owners <= OWNERS_COMPARED_MAX else 0
        one, pair = simulated_test_work(owners, dimension), simulated_test_work(2, dimension)
        require_work(one + pairs * pair, self.parameters.replicates)

    def null_of(self, evidence: PrivateMoments, statistic: float) -> Null | None:  # noqa: ARG002
        covariance, test = evidence.covariance(), self.test
        if covariance is None:
            return None
        # The verdict's own seed: the first test of the study has number 0.
        seed = np.random.SeedSequence(test.seed.entropy, spawn_key=(*test.seed.spawn_key, 0))
        replicates = min(DRAWN_MAX, test.replicates)
        _, _, draws = noise_aware_test(evidence.means, covariance, replicates, seed, trace_max=test.trace_max)
        return from_draws(SIMULATED, draws, self.study.level)


class PublishedForm(KernelMeans):
    """P0's statistic, against a weighted chi-squared law that treats the noisy covariance as exact."""

    form: ClassVar[Form] = "weighted"
    told = "P0's statistic, weighted chi-squared null"

    @property
    def caveats(self) -> tuple[str, ...]:
        words = "treats the noisy covariance as exact: its level is not kept under privacy"
        return (f"this null distribution {words}",)

    def null_of(self, evidence: PrivateMoments, statistic: float) -> Null | None:
        if (covariance := evidence.covariance()) is None:
            return None
        _, law = published_law(evidence.means, covariance, self.test.regularisation)
        words = "a weighted sum of chi-squared values, in which the noisy covariance counts as exact"
        return quadratic(words, (law,), statistic, self.study.level)


class AsymptoticForm(PublishedForm):
    """P0's statistic, against the chi-squared law of no noise."""

    form = "asymptotic"
    told = "P0's statistic, chi-squared null"

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        return chi_square(self.release.features.dimension, float(verdict["statistic"]), self.study.level)


KERNEL_FORMS: Mapping[Form, type[KernelMeans]] = {
    own.form: own for own in (MmdForm, NoiseAwareForm, PublishedForm, AsymptoticForm)
}


def two_sample_plan(study: Study) -> ColumnMeans | KernelMeans:
    """Return the plan of a study, whatever its owners are and whether its noise can be drawn.

    Raises:
        StudyError: the parameters or columns do not suit the test.
    """
    parameters = parse_parameters(KernelTwoSampleParameters, study)
    form = form_of(parameters, len(study.owners))
    refuse_idle_parameters(parameters, form)
    release = release_of(study, parameters)
    if isinstance(release, CellRelease) and release.numbers < 2:
        raise StudyError("k-norm noise needs two numbers or more: list another level, or another column")
    if release.numbers > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or features")
    if isinstance(release, CellRelease):
        fine = parameters.fine_cells
        bought = fine_guarantees(study.budget) if fine else (guarantee_of(parameters, study.budget),)
        return CellMeans(study, parameters, release, bought)
    guarantee = guarantee_of(parameters, study.budget)
    if isinstance(release, AdditiveRelease):
        return ColumnMeans(study, parameters, release, guarantee)
    return KERNEL_FORMS[form](study, parameters, release, guarantee)


def _means(release: AdditiveRelease | MomentRelease, releases: Sequence[Release]) -> PrivateMeans:
    units = np.array([own.units for own in releases], dtype=np.float64)
    read = [release.read(own.vectors, own.units) for own in releases]
    return PrivateMeans(np.stack([mean for mean, _ in read]), units, np.array([noise for _, noise in read]))


def _second_moment(release: Release, dimension: int) -> npt.NDArray[np.float64]:
    """Return a release's second moment, (J, J); zeros of a database, whose noise counts as infinite."""
    if DIAGONAL not in release.vectors:
        return np.zeros((dimension, dimension))
    return read_second_moment(release.vectors, release.units)


def _compared(names: list[str], found: PairFinding, level: float) -> PairComparison:
    mmd = None if found.mmd is None else stated(found.mmd.squared_mmd, (found.mmd.lower, found.mmd.upper))
    return PairComparison(
        first=names[found.first],
        second=names[found.second],
        pvalue=found.pvalue,
        reject=found.pvalue <= level,
        squared_mmd=None if mmd is None else mmd.value,
        squared_mmd_unbiased=None if mmd is None else mmd.unbiased,
        lower=None if mmd is None else mmd.lower,
        upper=None if mmd is None else mmd.upper,
    )


def _average(pairs: tuple[PairComparison, ...]) -> Stated | None:
    """Average over pairs of owners: of unbiased estimates, whose mean is unbiased too."""
    told = [(pair.squared_mmd_unbiased, pair.lower, pair.upper) for pair in pairs]
    if not told or told[0][0] is None:
        return None
    estimate, lower, upper = np.array(told, dtype=np.float64).mean(axis=0).tolist()
    return stated(estimate, (lower, upper))


def cells_by_default(study: Study, units: int | None) -> dict[str, str | int]:
    """Return the cells that suit K-norm noise, with so many units if known, as parameters.

    The most cells whose noise is at most FINER_FROM of sampling's; pairs of two columns, and of more where
    noise with them is at most PAIRS_TO of sampling's; fine cells where FINE_UNITS and FINE_TO say so.
    """
    sampling = np.inf if units is None else SAMPLING / np.sqrt(units)
    numeric, levels = len(study.domain.numeric), [len(c.levels) for c in study.domain.categorical]
    columns = numeric + len(levels)

    def noise(features: str, resolution: int, *, fine: bool = False) -> float:
        asked = {"noise": "k-norm", "features": features, "resolution": resolution, "fine_cells": fine}
        return _relative_noise(study.model_copy(update={"parameters": asked}), units or 1)

    def numbers(resolution: int) -> int:
        sizes = [resolution] * numeric + [count + 1 for count in levels]
        return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2

    least = PAIR_RESOLUTIONS[0]
    pairs = columns > 1 and numbers(least) <= PAIR_NUMBERS_MAX
    if pairs and (columns > PAIRED or units is not None):
        pairs = units is not None and noise("auto", least) <= PAIRS_TO * sampling
    features, choices = ("auto", PAIR_RESOLUTIONS) if pairs else ("columns", RESOLUTIONS)
    chosen = choices[0] if pairs or units is not None else CELLS_DEFAULT
    if not numeric:
        return {"features": features}
    fine = (
        units is not None
        and units * study.budget.epsilon / FINE_PART >= FINE_UNITS * numeric
        and FINE_CELLS * numeric <= COORDINATES_MAX // 2
        and bool(noise(features, choices[0], fine=True) <= FINE_TO * sampling)
    )
    for resolution in choices[1:] if units is not None else ():
        if pairs and numbers(resolution) > PAIR_NUMBERS_MAX:
            break
        if noise(features, resolution, fine=fine) <= FINER_FROM * sampling:
            chosen = resolution
    stated: dict[str, str | int] = {"features": features, "resolution": chosen}
    return stated | {"fine_cells": True} if fine else stated


def leaves_noise(study: Study) -> bool:
    """Say whether a study leaves it open what is released: noise and features."""
    return not set(study.parameters) - OF_THE_TEST


def fitting_noise(study: Study, units: int) -> dict[str, str | int]:
    """Return the noise, and its resolution, that suit a study of so many units an owner, as parameters.

    From public numbers alone: units, budget, columns and their kinds. Nothing where it is Gaussian noise with
    the many features of auto. The noise that counts is that on a coordinate, as a part of its span.
    """
    sampling = SAMPLING / np.sqrt(units)
    numeric = len(study.domain.numeric)
    levels = tuple(len(column.levels) for column in study.domain.categorical)
    gaussian = np.inf
    if study.budget.delta_pico:
        gaussian = _relative_noise(study.model_copy(update={"parameters": {}}), units)
        if gaussian <= GAUSSIAN_FROM[numeric + len(levels) > 1] * sampling:
            return {}
    chosen: dict[str, str | int] = {"noise": "k-norm", **cells_by_default(study, units)}
    few = _relative_noise(study.model_copy(update={"parameters": chosen}), units)
    return chosen if few < FEW_TO * gaussian else {}


def _relative_noise(study: Study, units: int) -> float:
    """Return the noise on the columns' foremost coordinates, as a part of their spans: the largest."""
    plan = two_sample_plan(study)
    if not isinstance(plan, ColumnMeans):
        raise TypeError("only features of columns have coordinates with spans")
    span = {"P1": 2.0, "category": 1.0}
    spans = [span[c.part] * c.scale for c in plan.features.column_wise.coordinates if c.part in span]
    return plan.mean_noise(units) / min(spans)


class KernelTwoSample(Procedure):
    """See the module. Registered as ``kernel_two_sample``."""

    name: ClassVar[str] = "kernel_two_sample"
    title: ClassVar[str] = "Do the owners' records come from one population?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = KernelTwoSampleParameters
    Verdict: ClassVar[type[BaseVerdict]] = TwoSampleResult
    released: ClassVar[str] = "the mean of bounded features of its units"
    cited: ClassVar[tuple[Citation, ...]] = (KERNEL,)
    question: ClassVar[QuestionTemplate | None] = ONE_POPULATION
    population: ClassVar[type[SimulationModel] | None] = Difference
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = FEATURE_CHOICES

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise and features that suit numbers of units, where the study leaves both.

        Without ``units`` it is K-norm noise where there is no delta, of the units if all owners declare them.
        """
        given, declared = study.parameters, units_declared(study)
        known = min(declared.values()) if len(declared) == len(study.owners) else None
        if units is not None and leaves_noise(study):
            fitting = fitting_noise(study, min(units.values()))
            if fitting:
                return fitting
        if given.get("noise") == "k-norm":
            return cells_by_default(study, known)
        if study.budget.delta_pico == 0 and leaves_noise(study):
            if known is not None:
                return fitting_noise(study, known)
            return {"noise": "k-norm", **cells_by_default(study, None)}
        return {}

    def plan(self, study: Study) -> ColumnMeans | KernelMeans:
        """Return the plan of a study: means of columns, of cells, or of kernel features in one form."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; with a curator use curated_two_sample")
        if len(study.owners) < 2:
            raise StudyError("a two-sample test needs at least two owners")
        plan = two_sample_plan(study)
        if isinstance(plan, NoiseAwareForm):
            plan.require_work()
        # Noise is widest, in grid steps, of the fewest units: their grid is the finest.
        require_noise(lambda: plan.require_drawable(1))
        return plan
