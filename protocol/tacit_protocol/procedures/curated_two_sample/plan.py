"""What a curated two-sample study chooses: parameters, the form they stand for, and what is released.

The difference that a hopeless study could not see is a very large one: half of a sample's units moved across
a column, or a squared MMD of the squared norm of the features.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, PooledTable, Table
from tacit_protocol.features.additive import AdditiveRelease
from tacit_protocol.features.kernels import FeatureMap, ProductKernel
from tacit_protocol.features.mean_embedding import (
    BANDWIDTH_POINTS,
    FeatureParameters,
    Share,
    acting_parameters,
    additive_features,
    draw_locations,
    idle_parameter,
    kernel_features,
    median_distance,
)
from tacit_protocol.features.moments import FeatureSums, MomentRelease, MomentShares
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX
from tacit_protocol.messages.study import PartyName, Study
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    gaussian_guarantee,
    halved_guarantee,
    mu_of,
    noise_scales,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.privacy.permutation_test import decision_guarantee, decision_xi, rank_max
from tacit_protocol.procedures.aggregation import BLOCKS_MAX
from tacit_protocol.procedures.base import (
    PublicRuleError,
    ReleaseError,
    StudyError,
    parse_parameters,
    planned_once,
    public_seed,
    require_noise,
)
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    KERNEL_UNITS_MAX,
    PermutationSizeError,
    PermutedFeatures,
    PermutedKernel,
    check_choices,
    check_kernel,
)
from tacit_protocol.procedures.curated_two_sample.release import (
    MOMENT_CENTRE_SHARE,
    CuratedAdditiveRelease,
    CuratedMomentRelease,
    CuratedSums,
    ExactStatistic,
    PairedRelease,
    RidgeRelease,
    UnequalSamplesError,
    centre_share,
    require_equal,
)
from tacit_protocol.procedures.joint_independence import as_joint_study
from tacit_protocol.procedures.two_sample.statistic import (
    DETECTABLE_MAX,
    POWER,
    detectable_difference,
    detectable_squared_mmd,
)

MEAN_SHARE = 0.9
"""Part of mu^2 for the means where a second moment is released too: half of what two owners spend on theirs
gives one pooled second moment the same noise."""

REPLICATES_DEFAULT = 1999
"""Simulated null statistics of the noise-aware form: p-values down to 5e-4."""

PERMUTATIONS_DEFAULT = 999
PERMUTATIONS_MIN, PERMUTATIONS_MAX = 99, 9999
"""Fewer than 99 cannot reject at level .01; more than some thousands gain nothing under the noise."""

PAPER_REGULARISATION = 1e-3
"""P0's gamma, public."""

STATISTIC_REGULARISATION = 0.03
"""Default gamma of the private statistic: its noise falls with gamma, and so does the signal once gamma is
above the features' variance where they differ (docs/mathematics/trusted-curator.md)."""

STATISTIC_FEATURES_MAX = 1000
"""Most coordinates behind the private statistic, which needs their second moment; default features leave out
pairs of columns above it."""

Form = Literal["max", "mmd", "noise-aware", "paired", "ridge", "permutation", "aggregate", "table", "auto"]
Vectors = CuratedAdditiveRelease | CuratedMomentRelease | PairedRelease | RidgeRelease
Permuted = PermutedFeatures | PermutedKernel


JOINT_RELEASES = ("aggregate", "table", "auto")
"""Releases that are joint independence's."""


class ChoiceError(StudyError):
    """The choices do not fit each other or the domain. The message says what to change."""


class CuratedChoice(FeatureParameters):
    """What may be chosen, but for the samples. ``paper`` is P0's release of paired differences."""

    release: Literal["auto", "mean-covariance", "statistic", "permutation", "aggregate", "table"] = Field(
        "auto",
        description=(
            "What leaves the curator: noisy means and covariances; one number (weak, kept for history); one "
            "decision; the noisy number of blocks of units that reject; or a noisy table of the sample and "
            "the columns' cells. The last two are joint_independence's, and pure; auto is one of the last "
            "three, by public numbers, or means and covariances where a parameter of theirs is named."
        ),
    )
    blocks: Annotated[int, Field(ge=1, le=BLOCKS_MAX)] | None = Field(
        None, description="Blocks of all units, of release aggregate; by default 5 + 12/epsilon."
    )
    categories: Annotated[int, Field(ge=2, le=QUANTILE_CELLS_MAX)] | None = Field(
        None,
        description="Cells of every numeric column, of release table; by default by the number of units.",
    )
    features: Literal["auto", "columns", "me", "scf", "kernel"] = Field(
        "auto", description="What is compared; kernel, the whole product kernel, with permutation alone."
    )
    calibration: Literal["tight", "paper"] = Field(
        "tight", description="tight, or paper: the published release, for comparison."
    )
    statistic: Literal["auto", "noise-aware", "mmd", "max"] = Field(
        "auto", description="Form of the test; auto suits the features."
    )
    mean_share: Share = Field(
        MEAN_SHARE, description="Part of the budget that buys means; the rest buys covariances (me and scf)."
    )
    regularisation: Annotated[float, Field(ge=1e-4, le=1e3)] | None = Field(
        None, description="Of the published statistic."
    )
    replicates: Annotated[int, Field(ge=99, le=100_000)] = Field(
        REPLICATES_DEFAULT, description="Simulated nulls of the noise-aware form."
    )
    permutations: Annotated[int, Field(ge=PERMUTATIONS_MIN, le=PERMUTATIONS_MAX)] = Field(
        PERMUTATIONS_DEFAULT,
        description="Permutations of a decision, or simulations of a table; they cost no privacy.",
    )

    @property
    def additive(self) -> bool:
        """Whether the features are column-wise, with or without pairs of columns."""
        return self.features in ("auto", "columns")


def form_of(choice: CuratedChoice) -> Form:
    """Return the form of the test. Raises ChoiceError where choices exclude or ignore each other."""
    if choice.release in JOINT_RELEASES:
        if choice.features != "auto":
            raise ChoiceError(f"release '{choice.release}' has no features: leave parameter features out")
        joint = cast(Form, choice.release)
        _refuse_idle_parameters(choice, joint)
        return joint
    if choice.release == "permutation":
        form: Form = "permutation"
    elif choice.features == "kernel":
        raise ChoiceError("features 'kernel' need release 'permutation'; use 'me' for features of the kernel")
    else:
        form = _statistic_form(choice) if choice.release == "statistic" else _means_form(choice)
    _refuse_idle_parameters(choice, form)
    return form


def _statistic_form(choice: CuratedChoice) -> Form:
    if choice.calibration == "paper":
        raise ChoiceError(
            "P0's bound for its private statistic is false, so that there is no calibration to claim: "
            "see docs/errata.md; leave calibration at 'tight'"
        )
    return "ridge"


def _means_form(choice: CuratedChoice) -> Form:
    if choice.calibration == "paper":
        if choice.additive:
            raise ChoiceError("calibration 'paper' needs features 'me' or 'scf'")
        return "paired"
    if choice.additive:
        if choice.statistic not in ("auto", "max"):
            raise ChoiceError("features 'auto' and 'columns' have the max form alone; use 'me' or 'scf'")
        return "max"
    if choice.statistic == "max":
        raise ChoiceError("the max form needs features 'auto' or 'columns'")
    return "noise-aware" if choice.statistic == "noise-aware" else "mmd"


def _refuse_idle_parameters(choice: CuratedChoice, form: Form) -> None:
    acting = acting_parameters(choice.features, choice)
    if form in JOINT_RELEASES:
        acting = dict.fromkeys(acting, False)
    if choice.features == "kernel":
        acting |= {"kernel": True, "bandwidth": True, "category_similarity": True}
    acting |= {
        "calibration": choice.release == "mean-covariance",
        "statistic": choice.release == "mean-covariance" and form != "paired",
        "mean_share": form in ("mmd", "noise-aware"),
        "regularisation": form in ("ridge", "paired"),
        "replicates": form == "noise-aware",
        "permutations": form in ("permutation", "table", "auto"),
        "blocks": form in ("aggregate", "auto"),
        "categories": form in ("table", "auto"),
    }
    name = idle_parameter(choice, acting)
    if name is not None:
        raise ChoiceError(f"parameter {name} has no effect with the other choices; leave it out")


def features_of(
    domain: Domain, choice: CuratedChoice, rng: np.random.Generator, *, raw: bool = False
) -> FeatureMap:
    """Build the features; ``rng`` is public. Raises ChoiceError where they do not fit the domain."""
    if choice.additive:
        return additive_features(domain, choice, pairs=choice.features == "auto")
    try:
        return kernel_features(domain, choice, "me" if choice.features == "me" else "scf", rng, raw=raw)
    except ValueError as error:
        raise ChoiceError(str(error)) from None


def permuted_of(domain: Domain, choice: CuratedChoice, rng: np.random.Generator) -> Permuted:
    """Build the statistic of a permutation test. Raises ChoiceError where it does not fit the domain."""
    if choice.features != "kernel":
        return PermutedFeatures(features_of(domain, choice, rng))
    points = draw_locations(domain, BANDWIDTH_POINTS, rng).numeric
    bandwidth = choice.bandwidth or median_distance(points)
    kernel = ProductKernel(choice.kernel, bandwidth, choice.category_similarity)
    return PermutedKernel(kernel, (len(domain.numeric), len(domain.categorical)))


def vectors_of(
    domain: Domain, choice: CuratedChoice, form: Form, mu: float, rng: np.random.Generator
) -> Vectors:
    """Build the release of noisy vectors. Raises ChoiceError where it does not fit the domain."""
    if form == "max":
        features = additive_features(domain, choice, pairs=choice.features == "auto")
        weight = max(coordinate.scale for coordinate in features.column_wise.coordinates)
        weight *= math.sqrt(1 - features.choice.pair_share)
        share = centre_share(weight, features.diameter, mu)
        return CuratedAdditiveRelease(AdditiveRelease(features), share)
    if form == "ridge":
        gamma = choice.regularisation or STATISTIC_REGULARISATION
        return RidgeRelease(_ridge_features(domain, choice, rng), gamma)
    embedded = features_of(domain, choice, rng, raw=form == "paired")
    if form == "paired":
        return PairedRelease(embedded)
    shares = MomentShares(choice.mean_share, 1 - choice.mean_share)
    return CuratedMomentRelease(MomentRelease(embedded, shares), MOMENT_CENTRE_SHARE)


def _ridge_features(domain: Domain, choice: CuratedChoice, rng: np.random.Generator) -> FeatureMap:
    features = features_of(domain, choice, rng)
    if features.dimension > STATISTIC_FEATURES_MAX and choice.features == "auto":
        features = additive_features(domain, choice, pairs=False)
    if features.dimension > STATISTIC_FEATURES_MAX:
        raise ChoiceError("the private statistic takes fewer columns, levels or features")
    return features


def method_of(choice: CuratedChoice, form: Form) -> str:
    """Say in words what is computed."""
    forms = {
        "max": "private means, max form",
        "mmd": "private means and covariance, MMD form",
        "noise-aware": "private means and covariance, noise-aware form, simulated null",
        "paired": "private mean and covariance of paired differences, P0's statistic and null",
        "ridge": "private ridge statistic",
        "permutation": f"private decision of {choice.permutations} permutations",
        "aggregate": "blocks that reject",
        "table": "table of cells",
        "auto": "blocks or cells",
    }
    features = {
        "auto": "column-wise and pairwise features",
        "columns": "column-wise features",
        "me": "mean-embedding features",
        "scf": "smooth characteristic features",
        "kernel": f"{choice.kernel} product kernel",
    }
    raw = ", P0's calibration" if form == "paired" else ""
    return f"two-sample test at a curator: {forms[form]}, {features[choice.features]}{raw}"


Units = tuple[int, int]


def decision_hopes(statistic: Permuted, units: Units, xi: float, level: float) -> bool:
    """Say whether a private decision with that xi could reject with probability one half.

    Raising the observed statistic by M changes the density of its noise by exp(M / scale) at most.
    """
    scale = 2 * statistic.sensitivity(units) / xi
    return math.log(2 * level) + statistic.norm / scale >= 0


def vectors_hope(release: Vectors, units: Units, noise: float, level: float) -> bool:
    """Say whether noisy vectors could show the difference; ``noise`` is that on the first of them."""
    if isinstance(release, RidgeRelease):
        return _statistic_hopes(release, units, noise, level)
    if isinstance(release, PairedRelease):
        noise /= units[0]
    split = noise / math.sqrt(2), noise / math.sqrt(2)
    if isinstance(release, CuratedAdditiveRelease):
        block = release.features.column_wise
        weight = max(coordinate.scale for coordinate in block.coordinates)
        share = level * (1.0 - release.features.choice.pair_share) / block.dimension
        return detectable_difference(split, units, weight, share) < DETECTABLE_MAX
    features = release.features
    return detectable_squared_mmd(split, features.dimension, level) < features.norm**2


def _statistic_hopes(release: RidgeRelease, units: Units, noise: float, level: float) -> bool:
    energy, gamma = release.features.norm**2, release.regularisation
    eigenvalue = energy / release.features.dimension
    null = release.features.dimension * eigenvalue / (eigenvalue + gamma)
    seen = null + noise * float(ndtri(POWER) - ndtri(level))
    return units[0] * units[1] / sum(units) * energy / (energy / 2 + gamma) >= seen


LOCATIONS_STREAM, NULL_STREAM = 1, 2
"""Spawn keys under the study's seed: one for public choices, one for simulated null distributions."""

SampleOwners = Annotated[tuple[PartyName, ...], Field(min_length=1)]


class CuratedTwoSampleParameters(CuratedChoice):
    """What a study of this procedure may choose; every choice is public."""

    samples: Annotated[tuple[SampleOwners, ...], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="The two lists of owners' names that are compared; by default two owners, one in each.",
    )


Exact = CuratedSums | FeatureSums | ExactStatistic | npt.NDArray[np.float64]
"""The exact numbers of a release, by its form: of a permutation test its statistics."""


@dataclass(frozen=True)
class CuratedPlan:
    """What a study fixes before any data."""

    parameters: CuratedTwoSampleParameters
    samples: tuple[tuple[str, ...], tuple[str, ...]]
    form: Form
    release: Vectors | Permuted
    guarantee: Guarantee

    def units(self, by_owner: Mapping[str, int]) -> tuple[int, int]:
        """Return the samples' numbers of units."""
        first, second = (sum(by_owner[name] for name in names) for names in self.samples)
        return first, second

    def check_units(self, units: tuple[int, int]) -> None:
        """Raise PublicRuleError where samples of these sizes cannot be paired, or not be permuted."""
        try:
            if isinstance(self.release, PairedRelease):
                require_equal(units)
            if isinstance(self.release, Permuted):
                check_choices(units, self.parameters.permutations)
            if isinstance(self.release, PermutedKernel):
                check_kernel(units)
        except UnequalSamplesError as error:
            raise PublicRuleError("unequal-sizes", str(error)) from None
        except PermutationSizeError as error:
            raise PublicRuleError("too-many-units", str(error)) from None
        if not isinstance(self.release, Permuted):
            require_noise(lambda: require_drawable(self.layout(units), self.guarantee))

    def tables(self, table: PooledTable) -> tuple[PooledTable, PooledTable]:
        """Return the two samples."""
        first, second = (
            PooledTable(table.domain, {name: table.parts[name] for name in names}) for names in self.samples
        )
        return first, second

    def layout(self, units: tuple[int, int], exact: Exact | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``exact`` the values are zeros. Raises ReleaseError."""
        if isinstance(self.release, Permuted):
            raise TypeError("a decision has no layout")
        try:
            # summarise and privatise read one study, so that the exact numbers are of the release's type.
            return self.release.parts(units, cast(Any, exact))
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    @property
    def caveats(self) -> tuple[str, ...]:
        """What limits a verdict of this form, in words."""
        if self.form == "ridge":
            return ("one noisy statistic is a weak release by nature: mean-covariance sees much more",)
        if self.form != "paired":
            return ()
        return (
            "this null distribution treats the noisy covariance as exact: "
            "its level is not kept under privacy",
        )

    def hopes(self, study: Study, units: tuple[int, int]) -> bool:
        """Say whether a great difference could be seen at these numbers of units."""
        if isinstance(self.release, Permuted):
            return decision_hopes(self.release, units, decision_xi(study.budget), study.level)
        try:
            scales = noise_scales(self.layout(units), self.guarantee)
        except ReleaseError:
            # Samples of two sizes, planned to be paired: the curator refuses them, whatever could be seen.
            return True
        return vectors_hope(self.release, units, next(iter(scales.values())), study.level)


SAMPLE = "sample"
"""Name of the column that says which sample a unit is in."""


def parameters_of(study: Study) -> CuratedTwoSampleParameters:
    """Read a study's parameters; ``auto`` is the private decision of the whole kernel.

    Where a parameter of means and covariances is named, it is they. It is joint independence's where the
    study says how many blocks or categories; and of one column of more units than the kernel is computed for,
    or of samples whose sizes are not stated.
    """
    asked = parse_parameters(CuratedTwoSampleParameters, study)
    if asked.release == "auto":
        try:
            form_of(asked)
        except ChoiceError:
            return asked.model_copy(update={"release": "mean-covariance"})
    named = asked.blocks or asked.categories
    sizes = [owner.units for owner in study.owners]
    many = sum(size or KERNEL_UNITS_MAX + 1 for size in sizes) > KERNEL_UNITS_MAX
    if asked.release != "auto" or named or (many and len(study.domain.columns) == 1):
        return asked
    return asked.model_copy(update={"release": "permutation", "features": "kernel"})


def joint_study(study: Study) -> Study | None:
    """Return the study of joint independence that one by blocks or a table asks for; None of other releases.

    The sample, which is public, is the last column of its domain.
    """
    parameters = parameters_of(study)
    if form_of(parameters) not in JOINT_RELEASES:
        return None
    samples_of(study, parameters)
    names = [column.name for column in study.domain.columns]
    name = SAMPLE
    while name in names:
        name += "_"
    sample = CategoricalColumn(name=name, levels=("first", "second"))
    chosen = {
        "method": parameters.release,
        "groups": [[name], names],
        "permutations": parameters.permutations,
        "blocks": parameters.blocks,
        "categories": parameters.categories,
        "kernel": "distance" if parameters.release == "aggregate" else None,
    }
    return as_joint_study(study, chosen, Domain(columns=(*study.domain.columns, sample)))


@dataclass(frozen=True)
class OfSample:
    """An owner's table with a last categorical column: which of two samples its units are in."""

    own: Table
    domain: Domain
    sample: int

    @property
    def units(self) -> int:
        """Number of privacy units."""
        return self.own.units

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the chunks, each row with its sample."""
        for chunk in self.own.chunks():
            codes = np.full((chunk.rows, 1), self.sample, dtype=np.int32)
            yield replace(chunk, categorical=np.concatenate([chunk.categorical, codes], axis=1))


def with_samples(study: Study, joint: Study, table: PooledTable) -> PooledTable:
    """Return the owners' tables with the column of their samples."""
    samples = samples_of(study, parameters_of(study))
    parts = {
        name: OfSample(table.parts[name], joint.domain, place)
        for place, names in enumerate(samples)
        for name in names
    }
    return PooledTable(joint.domain, {owner.name: parts[owner.name] for owner in study.owners})


@planned_once
def plan_of(study: Study) -> CuratedPlan:
    """Read a study; raises StudyError where it cannot be run as written."""
    parameters = parameters_of(study)
    samples = samples_of(study, parameters)
    seed = public_seed(study, LOCATIONS_STREAM)
    rng = np.random.default_rng(seed)
    form = form_of(parameters)
    if form == "permutation":
        if rank_max(study.level, parameters.permutations + 1) < 1:
            raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
        permuted = permuted_of(study.domain, parameters, rng)
        return CuratedPlan(parameters, samples, form, permuted, decision_guarantee(study.budget))
    guarantee = (halved_guarantee if form == "paired" else gaussian_guarantee)(study.budget)
    release = vectors_of(study.domain, parameters, form, mu_of(guarantee), rng)
    if release.numbers > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or features")
    return CuratedPlan(parameters, samples, form, release, guarantee)


def samples_of(
    study: Study, parameters: CuratedTwoSampleParameters
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the owners of either sample; raises StudyError where they are not shared out."""
    names = [owner.name for owner in study.owners]
    if parameters.samples is None:
        if len(names) != 2:
            raise StudyError("with more or fewer than two owners, share them out: samples = [[...], [...]]")
        return (names[0],), (names[1],)
    first, second = parameters.samples
    if sorted((*first, *second)) != sorted(names):
        raise StudyError("parameter samples: every owner of the study must be in exactly one sample")
    return first, second
