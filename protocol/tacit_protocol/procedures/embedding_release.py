"""A private database: the noisy mean embedding of an owner's units on public points, for anyone to keep.

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*
(2018), Algorithm 1. Here the mean is that of the two-sample test (features/mean_embedding.py): one unit
replaced moves it by sqrt 2 / n at most, where P2 adds noise for 2 / n, whatever the number of points is.

The verdict holds points and coordinates of the mean in an orthonormal basis of the points' kernels. Weights
of the points follow from them (statistics/simplex_weights.py) and are left to the reader: solving for them
magnifies the last bits of linear algebra, which differ between machines, beyond what a verifier may allow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import Table
from tacit_protocol.features.choice import FEATURES_DEFAULT, LocationRow
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.features.moment_release import MEAN, MomentRelease, MomentShares
from tacit_protocol.features.public_choices import (
    decode_locations,
    draw_locations,
    encode_locations,
    median_distance,
)
from tacit_protocol.features.sums import FeatureSums
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.gaussian_sums import (
    LayoutError,
    SensitivityError,
    check_layout,
    gaussian_guarantee,
    noise_scales,
    release_sums,
)
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.vector import COORDINATES_MAX
from tacit_protocol.procedures.base import (
    Progress,
    ReleaseError,
    StudyError,
    parse_parameters,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.kernel_two_sample_plan import LOCATIONS_STREAM, KernelTwoSampleParameters
from tacit_protocol.strict import StrictModel

POINTS_DEFAULT = 100
"""Points where the study names none: noise grows with their square root, what they miss shrinks."""

POINTS_MAX = 1000
"""Most points: whitening takes a second, and a verdict names every one."""

CELLS_MAX = 20_000
"""Most values of all points together, columns times points: a verdict then stays within a message."""


class EmbeddingReleaseParameters(StrictModel):
    """What a study may choose; every choice is public.

    ``placement`` says how points are drawn: ``uniform`` over the domain, or around its ``middle`` as the
    two-sample test draws its locations. ``points`` gives them instead: rows of the domain in its own units,
    from a public sample. ``bandwidth`` is in units of the scaled columns.
    """

    method: Literal["subspace"] = "subspace"
    kernel: Literal["gaussian", "laplacian"] = "gaussian"
    n_points: Annotated[int, Field(ge=1, le=POINTS_MAX)] | None = None
    placement: Literal["uniform", "middle"] | None = None
    points: Annotated[tuple[LocationRow, ...], Field(min_length=1, max_length=POINTS_MAX)] | None = None
    bandwidth: Annotated[float, Field(gt=1e-3, le=1e3)] | None = None
    category_similarity: Annotated[float, Field(ge=0, lt=1)] = 0.5


class EmbeddingReleaseVerdict(StrictModel):
    """The public points, one value per column each, and every owner's noisy mean embedding on them.

    ``embedding`` holds coordinates in the orthonormal basis (K + lambda I)^(-1/2) of the points' kernels;
    each carries Gaussian noise of standard deviation ``noise``. ``noise_error`` is the root mean square of
    the noise's norm: no expectation of a function of norm 1 is off by more than that on average, besides
    sampling and what the points miss. ``reject`` is always false: a database tests nothing.
    """

    method: str
    reject: Literal[False]
    level: float
    units: dict[str, int]
    epsilon: float
    delta: float
    columns: tuple[str, ...]
    points: tuple[tuple[float | str | None, ...], ...]
    kernel: Literal["gaussian", "laplacian"]
    bandwidth: float
    category_similarity: float
    embedding: dict[str, tuple[float, ...]]
    noise: dict[str, float]
    noise_error: dict[str, float]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingPlan:
    """What a study fixes before any data."""

    features: WhitenedMeanEmbedding
    kernel: ProductKernel
    guarantee: Guarantee

    @property
    def release(self) -> MomentRelease:
        """The mean alone, with the whole budget."""
        return MomentRelease(self.features, MomentShares(1.0, 0.0))


class EmbeddingRelease:
    """See the module. Registered as ``embedding_release``."""

    name: ClassVar[str] = "embedding_release"
    title: ClassVar[str] = "What do the records look like?"
    Parameters: ClassVar[type[BaseModel]] = EmbeddingReleaseParameters
    Verdict: ClassVar[type[BaseModel]] = EmbeddingReleaseVerdict

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        plan = plan_of(study)
        if plan.features.dimension * len(study.owners) > COORDINATES_MAX:
            raise StudyError("all owners' databases together have too many numbers; use fewer points")

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one Gaussian release."""
        return plan_of(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends: one a point."""
        return plan_of(study).release.numbers

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise is as large as the whole of what is released."""
        plan = plan_of(study)
        drowned = [name for name in units if _noise_error(plan, units[name]) >= 1]
        if not drowned:
            return ()
        return (
            f"the noise exceeds all that is released of {', '.join(drowned)}: use fewer points, a larger "
            "epsilon or more units",
        )

    def summarise(self, study: Study, table: Table) -> FeatureSums:
        """Sum the units' features, exactly. The sums never leave the owner."""
        return plan_of(study).release.sum(table)

    def privatise(self, study: Study, summary: FeatureSums, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to the sums."""
        plan = plan_of(study)
        try:
            vectors = release_sums(plan.release.parts(summary.units, summary), plan.guarantee, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None
        return Release(units=summary.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        plan = plan_of(study)
        try:
            parts = plan.release.parts(release.units)
            check_layout(release.vectors, release.guarantee, parts, plan.guarantee)
        except (LayoutError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return the mean of an earlier two-sample or database release, where its features are this study's.

        Of a two-sample release the second moment is left out; the mean keeps its own noise.

        Raises:
            StudyError: it was made with other features; says which to make the same.
        """
        if source.domain != study.domain:
            raise StudyError("the reused release was made for other columns, bounds or levels")
        if source.budget != study.budget:
            raise StudyError("the reused release was made with another budget; use the same one")
        if source.procedure == "kernel_two_sample":
            theirs = _as_database(source)
        elif source.procedure == self.name:
            theirs = parse_parameters(EmbeddingReleaseParameters, source)
        else:
            raise StudyError("a database is read from releases of kernel_two_sample and embedding_release")
        _require_same_points(study, source, theirs)
        return Release(
            units=release.units, guarantee=release.guarantee, vectors={MEAN: release.vectors[MEAN]}
        )

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a mean that is read again has not this study's coordinates."""
        dimension = plan_of(study).features.dimension
        vector = release.vectors.get(MEAN)
        if len(release.vectors) != 1 or vector is None or len(vector.values) != dimension:
            raise ReleaseError("the earlier mean has not one coordinate for each point")

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> EmbeddingReleaseVerdict:
        """Lay points and noisy means out: post-processing alone, the same for everyone."""
        if progress is not None:
            progress(0.5, "reading the releases")
        plan = plan_of(study)
        means = {owner.name: _mean(releases[owner.name]) for owner in study.owners}
        units = {owner.name: releases[owner.name].units for owner in study.owners}
        rows = decode_locations(study.domain, plan.features.locations)
        names = tuple(column.name for column in study.domain.columns)
        root = float(np.sqrt(plan.features.dimension))
        return EmbeddingReleaseVerdict(
            method=f"mean embedding on {plan.features.dimension} public points, Gaussian noise",
            reject=False,
            level=study.level,
            units=units,
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            columns=names,
            points=tuple(tuple(row[name] for name in names) for row in rows),
            kernel=plan.kernel.shape,
            bandwidth=plan.kernel.bandwidth,
            category_similarity=plan.kernel.similarity,
            embedding={name: values for name, (values, _) in means.items()},
            noise={name: noise for name, (_, noise) in means.items()},
            noise_error={name: root * noise for name, (_, noise) in means.items()},
            warnings=self.warnings(study, units) + reuse_warnings(study),
        )


def plan_of(study: Study) -> EmbeddingPlan:
    """Return what a study fixes; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(EmbeddingReleaseParameters, study)
    try:
        locations = _locations(study.domain, parameters, study.seed)
        kernel = ProductKernel(
            parameters.kernel,
            parameters.bandwidth or median_distance(locations.numeric),
            parameters.category_similarity,
        )
        guarantee = gaussian_guarantee(study.budget)
    except ValueError as error:
        raise StudyError(str(error)) from None
    return EmbeddingPlan(WhitenedMeanEmbedding(kernel, locations), kernel, guarantee)


def _locations(domain: Domain, parameters: EmbeddingReleaseParameters, seed: str) -> Locations:
    if parameters.points is not None:
        if parameters.n_points is not None or parameters.placement is not None:
            raise StudyError("given points are neither counted nor placed; leave n_points and placement out")
        locations = encode_locations(domain, parameters.points)
    else:
        sequence = np.random.SeedSequence(int(seed, 16), spawn_key=(LOCATIONS_STREAM,))
        rng, count = np.random.default_rng(sequence), parameters.n_points or POINTS_DEFAULT
        locations = draw_locations(domain, count, rng)
        if parameters.placement != "middle":
            locations = Locations(rng.random(locations.numeric.shape), locations.categorical)
    if len(locations) * len(domain.columns) > CELLS_MAX:
        raise StudyError(f"points and columns make more than {CELLS_MAX} values; use fewer points")
    return locations


def _as_database(source: Study) -> EmbeddingReleaseParameters:
    """Return the database study whose mean a two-sample study's release holds."""
    asked = parse_parameters(KernelTwoSampleParameters, source)
    if asked.features != "me" or asked.calibration != "tight":
        raise StudyError("a database is read from a two-sample study with features me, calibration tight")
    fields: dict[str, Any] = {"points": asked.locations}
    if asked.locations is None:
        fields = {"n_points": asked.n_features or FEATURES_DEFAULT, "placement": "middle"}
    return EmbeddingReleaseParameters(
        kernel=asked.kernel,
        bandwidth=asked.bandwidth,
        category_similarity=asked.category_similarity,
        **fields,
    )


def _require_same_points(study: Study, source: Study, theirs: EmbeddingReleaseParameters) -> None:
    ours = parse_parameters(EmbeddingReleaseParameters, study)
    for name in ("kernel", "bandwidth", "category_similarity"):
        if getattr(ours, name) != getattr(theirs, name):
            raise StudyError(f"the reused release was made with another {name}; use the same")
    places = [_locations(study.domain, p, s.seed) for p, s in ((ours, study), (theirs, source))]
    first, second = places
    if not (
        np.array_equal(first.numeric, second.numeric)
        and np.array_equal(first.categorical, second.categorical)
    ):
        raise StudyError("the reused release was made on other points; use the same points, number and seed")


def _mean(release: Release) -> tuple[tuple[float, ...], float]:
    vector = release.vectors[MEAN]
    return tuple(vector.mean(release.units).tolist()), vector.scale / release.units


def _noise_error(plan: EmbeddingPlan, units: int) -> float:
    scale = noise_scales(plan.release.parts(units), plan.guarantee)[MEAN]
    return float(np.sqrt(plan.features.dimension)) * scale / units
