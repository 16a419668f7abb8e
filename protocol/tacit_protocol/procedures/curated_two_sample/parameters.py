"""What a curated two-sample study chooses: parameters, the form that they stand for, and its features."""

from typing import Annotated, Literal, cast

import numpy as np
from pydantic import Field

from tacit_protocol.domain import Domain
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
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX
from tacit_protocol.messages.study import PartyName, Study
from tacit_protocol.procedures.aggregation import BLOCKS_MAX
from tacit_protocol.procedures.base import (
    StudyError,
    parse_parameters,
)
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    KERNEL_UNITS_MAX,
    PermutedFeatures,
    PermutedKernel,
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
Permuted = PermutedFeatures | PermutedKernel


FEATURE_WORDS = {
    "auto": "column-wise and pairwise features",
    "columns": "column-wise features",
    "me": "mean-embedding features",
    "scf": "smooth characteristic features",
}
"""Features but those of a kernel, in words."""


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


def ridge_features(domain: Domain, choice: CuratedChoice, rng: np.random.Generator) -> FeatureMap:
    """Build the features behind the private statistic: without pairs of columns where they are too many."""
    features = features_of(domain, choice, rng)
    if features.dimension > STATISTIC_FEATURES_MAX and choice.features == "auto":
        features = additive_features(domain, choice, pairs=False)
    if features.dimension > STATISTIC_FEATURES_MAX:
        raise ChoiceError("the private statistic takes fewer columns, levels or features")
    return features


LOCATIONS_STREAM, NULL_STREAM = 1, 2
"""Spawn keys under the study's seed: one for public choices, one for simulated null distributions."""

SampleOwners = Annotated[tuple[PartyName, ...], Field(min_length=1)]


class CuratedTwoSampleParameters(CuratedChoice):
    """What a study of this procedure may choose; every choice is public."""

    samples: Annotated[tuple[SampleOwners, ...], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="The two lists of owners' names that are compared; by default two owners, one in each.",
    )


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
