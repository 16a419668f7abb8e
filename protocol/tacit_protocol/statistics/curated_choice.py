"""What a curated two-sample study chooses: its parameters, the form they stand for, and what is released."""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.additive_release import AdditiveRelease
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.choice import (
    FeatureParameters,
    acting_parameters,
    additive_features,
    idle_parameter,
    kernel_features,
)
from tacit_protocol.features.curated_release import (
    MOMENT_CENTRE_SHARE,
    CuratedAdditiveRelease,
    CuratedMomentRelease,
    centre_share,
)
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.moment_release import MomentRelease, MomentShares
from tacit_protocol.features.paired_release import PairedRelease
from tacit_protocol.features.public_choices import BANDWIDTH_POINTS, draw_locations, median_distance
from tacit_protocol.statistics.permuted_means import PermutedFeatures, PermutedKernel
from tacit_protocol.statistics.private_statistic import RidgeRelease

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

Form = Literal["max", "mmd", "noise-aware", "paired", "ridge", "permutation"]
Vectors = CuratedAdditiveRelease | CuratedMomentRelease | PairedRelease | RidgeRelease
Permuted = PermutedFeatures | PermutedKernel


class ChoiceError(ValueError):
    """The choices do not fit each other or the domain. The message says what to change."""


class CuratedChoice(FeatureParameters):
    """What may be chosen, but for the samples. ``paper`` is P0's release of paired differences."""

    release: Literal["mean-covariance", "statistic", "permutation"] = Field(
        "mean-covariance",
        description="What leaves the curator: noisy means and covariances, one decision, or one number.",
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
    mean_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        MEAN_SHARE, description="Part of the budget that buys means; the rest buys covariances (me and scf)."
    )
    regularisation: Annotated[float, Field(ge=1e-4, le=1e3)] | None = Field(
        None, description="Of the published statistic."
    )
    replicates: Annotated[int, Field(ge=99, le=100_000)] = Field(
        REPLICATES_DEFAULT, description="Simulated nulls of the noise-aware form."
    )
    permutations: Annotated[int, Field(ge=PERMUTATIONS_MIN, le=PERMUTATIONS_MAX)] = Field(
        PERMUTATIONS_DEFAULT, description="Permutations of the permutation release; they cost no privacy."
    )

    @property
    def additive(self) -> bool:
        """Whether the features are column-wise, with or without pairs of columns."""
        return self.features in ("auto", "columns")


def form_of(choice: CuratedChoice) -> Form:
    """Return the form of the test. Raises ChoiceError where choices exclude or ignore each other."""
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
    if choice.features == "kernel":
        acting |= {"kernel": True, "bandwidth": True, "category_similarity": True}
    acting |= {
        "calibration": choice.release == "mean-covariance",
        "statistic": choice.release == "mean-covariance" and form != "paired",
        "mean_share": form in ("mmd", "noise-aware"),
        "regularisation": form in ("ridge", "paired"),
        "replicates": form == "noise-aware",
        "permutations": form == "permutation",
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
