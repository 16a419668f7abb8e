"""What a study of the kernel two-sample test fixes before any data: features, form, guarantee.

Two studies that fix the same release can share it: :func:`require_same_release`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tacit_protocol.features.additive import (
    COLUMN_MEANS,
    AdditiveFeatures,
    AdditiveRelease,
    AdditiveSums,
)
from tacit_protocol.features.cell_means import (
    CELLS_DEFAULT,
    CELLS_MAX,
    FINE_CELLS,
    FINE_COUNTS,
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
from tacit_protocol.features.moments import FeatureSums, MomentRelease, MomentShares
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    halved_guarantee,
    noise_scales,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, Guarantee, NoisyVector
from tacit_protocol.privacy.k_norm_mechanism import (
    check_k_norm,
    k_norm_guarantee,
    k_norm_scale,
    release_k_norm,
    require_k_norm,
)
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    laplace_sum_guarantee,
    release_laplace_sums,
    require_laplace,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    ReleaseError,
    StudyError,
    parse_parameters,
    planned_once,
    public_seed,
)
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


@dataclass(frozen=True)
class TwoSamplePlan:
    """What a study fixes before any data: the release of its features, the form and the guarantee.

    ``bought`` says of cells what buys each vector, in their order: of one all of ``guarantee``.
    """

    parameters: KernelTwoSampleParameters
    release: AdditiveRelease | MomentRelease
    form: Form
    guarantee: Guarantee
    bought: tuple[Guarantee, ...]

    def privatise(self, sums: FeatureSums | AdditiveSums, noise: NoiseSource) -> dict[str, NoisyVector]:
        """Add the noise that the guarantee states, jointly, to the sums."""
        if isinstance(self.release, CellRelease) and isinstance(sums, AdditiveSums):
            coarse, *fine = self.release.parts(sums.units, sums)
            vectors = release_k_norm(coarse, self.release.body, self.bought[0], noise)
            return vectors | {part.name: release_laplace_sums(part, self.bought[1], noise) for part in fine}
        return release_sums(self.parts(sums), self.guarantee, noise)

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ReleaseError where the noise of so many units cannot be drawn."""
        if isinstance(self.release, CellRelease):
            coarse, *fine = self.layout(units)
            require_k_norm(self.release.body, -coarse.exponent, self.bought[0].budget.epsilon)
            for part in fine:
                require_laplace(part, self.bought[1])
        else:
            require_drawable(self.layout(units), self.guarantee)

    def check(self, vectors: Mapping[str, NoisyVector], stated: Guarantee, units: int) -> None:
        """Raise ReleaseError where vectors of so many units are not as the study fixes."""
        if isinstance(self.release, CellRelease):
            coarse, *fine = self.layout(units)
            if stated != self.guarantee:
                raise LayoutError("the release states another guarantee than the study")
            if set(vectors) != {coarse.name, *(part.name for part in fine)}:
                raise LayoutError("the release has not the vectors that the study asks for")
            own, paid = {COLUMN_MEANS: vectors[COLUMN_MEANS]}, self.bought[0]
            check_k_norm(own, paid, coarse, self.release.body, paid)
            for part in fine:
                check_laplace_sums(vectors[FINE_COUNTS], self.bought[1], part, self.bought[1])
        else:
            check_layout(vectors, stated, self.layout(units), self.guarantee)

    def mean_noise(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of a mean over so many units."""
        if isinstance(self.release, CellRelease):
            bits = self.release.bits(units)
            scale = k_norm_scale(self.release.body, bits, self.bought[0].budget.epsilon)
            return float(np.ldexp(scale, -bits)) / units
        # The mean comes first in every layout.
        return next(iter(noise_scales(self.layout(units), self.guarantee).values())) / units

    def layout(self, units: int) -> tuple[SumPart, ...]:
        """Lay out the release of so many units, without values."""
        try:
            return self.release.parts(units)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def parts(self, sums: FeatureSums | AdditiveSums) -> tuple[SumPart, ...]:
        """Lay out the release of sums."""
        if isinstance(self.release, AdditiveRelease) and isinstance(sums, AdditiveSums):
            return self.release.parts(sums.units, sums)
        if isinstance(self.release, MomentRelease) and isinstance(sums, FeatureSums):
            return self.release.parts(sums.units, sums)
        raise TypeError("the sums are not those of this study's features")


@planned_once
def plan_of(study: Study) -> TwoSamplePlan:
    """Return what a study fixes; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(KernelTwoSampleParameters, study)
    form = _form(parameters, len(study.owners))
    _refuse_idle_parameters(parameters, form)
    release = _release(study, parameters)
    if isinstance(release, CellRelease) and release.numbers < 2:
        raise StudyError("k-norm noise needs two numbers or more: list another level, or another column")
    if release.numbers > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or features")
    if parameters.fine_cells:
        bought = fine_guarantees(study.budget)
        events = tuple(event for paid in bought for event in paid.events)
        guarantee = Guarantee(budget=study.budget, events=events)
        return TwoSamplePlan(parameters, release, form, guarantee, bought)
    guarantee = _guarantee(parameters, study.budget)
    return TwoSamplePlan(parameters, release, form, guarantee, (guarantee,))


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


def _guarantee(parameters: KernelTwoSampleParameters, budget: Budget) -> Guarantee:
    if parameters.noise == "k-norm":
        return k_norm_guarantee(budget)
    return halved_guarantee(budget) if parameters.calibration == "paper" else gaussian_guarantee(budget)


def _form(parameters: KernelTwoSampleParameters, owners: int) -> Form:
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


def _refuse_idle_parameters(parameters: KernelTwoSampleParameters, form: Form) -> None:
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


def _release(study: Study, parameters: KernelTwoSampleParameters) -> AdditiveRelease | MomentRelease:
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


PAIRED = 2
"""Columns whose pair is compared where numbers of units are not known: it costs their own test little."""


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
    plan = plan_of(study)
    features = plan.release.features
    if not isinstance(features, AdditiveFeatures):
        raise TypeError("only features of columns have coordinates with spans")
    span = {"P1": 2.0, "category": 1.0}
    spans = [span[c.part] * c.scale for c in features.column_wise.coordinates if c.part in span]
    return plan.mean_noise(units) / min(spans)


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
    if _draws_features(now) and source.seed != study.seed:
        raise StudyError("the reused release was made with features of another seed; use the same seed")


def supports_mean_only(parameters: KernelTwoSampleParameters) -> bool:
    """Whether the test can use a mean without a second moment: the MMD form, which bounds what it misses."""
    return parameters.statistic in ("auto", "mmd") and parameters.null == "auto"


def _draws_features(parameters: KernelTwoSampleParameters) -> bool:
    given = {"me": parameters.locations, "scf": parameters.frequencies}
    return parameters.features in given and given[parameters.features] is None
