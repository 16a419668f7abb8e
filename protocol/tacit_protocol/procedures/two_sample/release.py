"""What a study of the kernel two-sample test releases: parameters, features and what buys them.

Two studies that fix the same release can share it: :func:`require_same_release`.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tacit_protocol.features.cell_means import (
    CELLS_DEFAULT,
    CELLS_MAX,
    FINE_CELLS,
    SQUARES_FROM,
    CellFeatures,
    CellRelease,
)
from tacit_protocol.features.mean_embedding import (
    FeatureParameters,
    Share,
    acting_parameters,
    additive_features,
    idle_parameter,
    kernel_features,
)
from tacit_protocol.features.moments import AdditiveRelease, MomentRelease, MomentShares
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, halved_guarantee
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, Guarantee
from tacit_protocol.privacy.k_norm_mechanism import k_norm_guarantee
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee
from tacit_protocol.procedures.base import StudyError, parse_parameters, public_seed
from tacit_protocol.procedures.two_sample.statistic import Form

MEAN_SHARE = 0.8
"""Part of mu^2 that the mean gets where a second moment is released too."""

REPLICATES_DEFAULT = 1999
"""Simulated null statistics of the noise-aware form: p-values down to 5e-4."""

REGULARISATION_DEFAULT = 1e-3
"""P0's gamma, public."""

LOCATIONS_STREAM = 1
"""Spawn key under the study's seed for public choices; that of simulated null distributions is 2."""

OF_THE_TEST = frozenset({"statistic", "null", "regularisation", "replicates"})
"""Parameters that choose what is done with releases, and nothing of what is released."""


class KernelTwoSampleParameters(FeatureParameters):
    """What a study of this procedure may choose; ``paper`` has P0's raw features and its bounds."""

    features: Literal["auto", "columns", "me", "scf"] = Field(
        "auto",
        description=(
            "What is compared: auto (columns and their pairs), columns, me (places), scf (frequencies)."
        ),
    )
    calibration: Literal["tight", "paper"] = Field(
        "tight", description="tight, or paper: the published release, for comparison."
    )
    statistic: Literal["auto", "noise-aware", "mmd", "max"] = Field(
        "auto", description="Form of the test; auto suits the features."
    )
    null: Literal["auto", "noise-aware", "weighted", "asymptotic"] = Field(
        "auto", description="How the p-value is computed; auto is the statistic's own."
    )
    mean_share: Share = Field(
        MEAN_SHARE, description="Part of the budget that buys means; the rest buys covariances (me and scf)."
    )
    regularisation: Annotated[float, Field(ge=1e-12, le=1e3)] = Field(
        REGULARISATION_DEFAULT, description="Of the published statistic."
    )
    replicates: Annotated[int, Field(ge=99, le=100_000)] = Field(
        REPLICATES_DEFAULT, description="Simulated nulls of the noise-aware form."
    )
    noise: Literal["gaussian", "k-norm"] = Field(
        "gaussian",
        description=(
            "gaussian, of many features, needs a delta; k-norm, of cells and means, costs epsilon alone."
        ),
    )
    resolution: Annotated[int, Field(ge=2, le=CELLS_MAX)] = Field(
        CELLS_DEFAULT,
        description=(
            f"Cells of each numeric column under k-norm noise; below {SQUARES_FROM} no standard deviation is "
            "told."
        ),
    )
    fine_cells: bool = Field(
        False,
        description=(
            f"A fifth of epsilon buys counts of {FINE_CELLS} cells of each numeric column, beside those of "
            "k-norm noise: they show differences of data that lie close together."
        ),
    )


FINE_PART = 5
"""Fine cells get one part of epsilon in so many, rounded down to a micro-unit; K-norm noise gets the rest.

In a prototype .15 of epsilon saw .74 where .2 saw .94 (n = 1000, epsilon 1, data within 1 % of the range)."""


def fine_guarantees(budget: Budget) -> tuple[Guarantee, Guarantee]:
    """Return what K-norm noise and fine cells are bought with: amounts of epsilon that add up to the whole.

    Raises StudyError where epsilon is too few micro-units to be divided.
    """
    fine = budget.epsilon_micro // FINE_PART
    if not fine:
        raise StudyError("the budget is too small for fine cells; give the study a larger epsilon")
    rest = budget.model_copy(update={"epsilon_micro": budget.epsilon_micro - fine})
    return k_norm_guarantee(rest), laplace_sum_guarantee(budget.model_copy(update={"epsilon_micro": fine}))


def guarantee_of(parameters: KernelTwoSampleParameters, budget: Budget) -> Guarantee:
    """Return what buys a release but for fine cells."""
    if parameters.noise == "k-norm":
        return k_norm_guarantee(budget)
    return halved_guarantee(budget) if parameters.calibration == "paper" else gaussian_guarantee(budget)


def form_of(parameters: KernelTwoSampleParameters, owners: int) -> Form:
    """Return the form of the test of so many owners; raises StudyError where the choices do not fit."""
    additive = parameters.features in ("auto", "columns")
    statistic, null = parameters.statistic, parameters.null
    if parameters.noise == "k-norm" and not additive:
        raise StudyError("k-norm noise is for cells of columns: features must be 'auto' or 'columns'")
    if additive:
        if parameters.calibration == "paper":
            raise StudyError("calibration 'paper' needs features 'me' or 'scf'")
        if statistic not in ("auto", "max") or null != "auto":
            raise StudyError("features 'auto' and 'columns' have the max form alone; use 'me' or 'scf'")
        return "max"
    if statistic == "max":
        raise StudyError("the max form needs features 'auto' or 'columns'")
    if null in ("weighted", "asymptotic"):
        if owners != 2 or statistic != "auto":
            raise StudyError("P0's null distributions are for two owners and statistic 'auto'")
        return null
    if statistic == "mmd" and null == "noise-aware":
        raise StudyError("the MMD form has an exact null distribution; leave null at 'auto'")
    if statistic == "noise-aware" or null == "noise-aware":
        return "noise-aware"
    if parameters.calibration == "paper" and statistic == "auto":
        return "weighted" if owners == 2 else "noise-aware"
    return "mmd"


def refuse_idle_parameters(parameters: KernelTwoSampleParameters, form: Form) -> None:
    """Refuse a parameter that the study's other choices ignore: whoever sets it expects it to act."""
    kernel = parameters.features in ("me", "scf")
    acting = acting_parameters(parameters.features, parameters) | {
        "mean_share": kernel and parameters.calibration == "tight",
        "regularisation": form in ("weighted", "asymptotic"),
        "replicates": form == "noise-aware",
        "resolution": parameters.noise == "k-norm",
        "fine_cells": parameters.noise == "k-norm",
    }
    if parameters.noise == "k-norm":
        acting |= {"cycles": False, "pair_share": False}
    name = idle_parameter(parameters, acting)
    if name is not None:
        raise StudyError(f"parameter {name} has no effect with the other choices; leave it out")


def release_of(study: Study, parameters: KernelTwoSampleParameters) -> AdditiveRelease | MomentRelease:
    """Return what an owner sums and releases; raises StudyError where the columns do not suit it."""
    if parameters.noise == "k-norm":
        return CellRelease(_cells(study, parameters))
    if parameters.features == "auto" or parameters.features == "columns":  # noqa: PLR1714 (narrows the type)
        pairs = parameters.features == "auto"
        return AdditiveRelease(additive_features(study.domain, parameters, pairs=pairs))
    seed = public_seed(study, LOCATIONS_STREAM)
    paper = parameters.calibration == "paper"
    shares = MomentShares(parameters.mean_share, 1 - parameters.mean_share)
    if paper:
        # Each of P0's two releases has an event, and a mu, of its own.
        shares = MomentShares(1.0, 1.0)
    try:
        features = kernel_features(
            study.domain, parameters, parameters.features, np.random.default_rng(seed), raw=paper
        )
    except ValueError as error:
        raise StudyError(str(error)) from None
    return MomentRelease(features, shares)


def _cells(study: Study, parameters: KernelTwoSampleParameters) -> CellFeatures:
    resolution, pairs = parameters.resolution, parameters.features == "auto"
    numeric, levels = study.domain.numeric, study.domain.categorical
    if parameters.fine_cells and not numeric:
        raise StudyError("fine cells are of numeric columns, and the study has none: leave fine_cells out")
    several = len(numeric) + len(levels) > 1
    counts = tuple(len(column.levels) for column in levels)
    if pairs and several:
        sizes = [resolution] * len(numeric) + [count + 1 for count in counts]
        if (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2 > COORDINATES_MAX:
            raise StudyError("so many columns have too many pairs: choose features 'columns'")
    fine = parameters.fine_cells
    return CellFeatures(len(numeric), counts, resolution, pairs=pairs and several, fine=fine)


def require_same_release(study: Study, source: Study) -> None:
    """Raise StudyError unless a release for ``source`` is, number by number, one that ``study`` asks for.

    Both are studies of the kernel two-sample test: their releases are means of the same public features of
    the same columns, with the same noise, if these are equal: columns with their bounds and levels, budget,
    the parameters that choose features and shares, and the seed wherever it draws locations or frequencies.
    """
    if source.domain != study.domain:
        raise StudyError("the reused release was made for other columns, bounds or levels")
    if source.budget != study.budget:
        raise StudyError("the reused release was made with another budget; use the same epsilon and delta")
    earlier, now = (parse_parameters(KernelTwoSampleParameters, asked) for asked in (source, study))
    for name in KernelTwoSampleParameters.model_fields:
        if name not in OF_THE_TEST and getattr(earlier, name) != getattr(now, name):
            raise StudyError(f"the reused release was made with another {name}; use the same")
    given = {"me": now.locations, "scf": now.frequencies}
    drawn = now.features in given and given[now.features] is None
    if drawn and source.seed != study.seed:
        raise StudyError("the reused release was made with features of another seed; use the same seed")
