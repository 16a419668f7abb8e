"""A private database: one release of an owner's units, for anyone to keep and compute from.

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*
(2018). ``subspace`` (its Algorithm 1) releases the noisy mean embedding on public points, the mean of the
two-sample test: one unit replaced moves it by sqrt 2 / n at most, where P2 adds noise for 2 / n, whatever the
number of points is. ``random-features`` (Algorithm 2) releases the noisy mean of random Fourier features, to
which a reader fits points blindly. ``exponential`` draws one of a finite public list of databases, exactly.
Every derivation is in docs/mathematics/database-release.md.

For noisy means the verdict holds coordinates, and leaves points and weights that match them to the reader:
solving for those magnifies the last bits of linear algebra, which differ between machines, beyond what a
verifier may allow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from tacit_protocol.domain.table import PooledTable, Table
from tacit_protocol.features.moment_release import MEAN
from tacit_protocol.features.public_choices import decode_locations
from tacit_protocol.features.random_fourier import RandomFourier
from tacit_protocol.features.sums import FeatureSums
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.gaussian_sums import SensitivityError
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.laplace_statistic import StatisticError
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.privacy.vector import COORDINATES_MAX
from tacit_protocol.procedures.base import (
    Progress,
    ReleaseError,
    StudyError,
    parse_parameters,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.embedding_release_mechanism import (
    DrawnCandidate,
    NoisyMean,
    deviation_of,
    mechanism_of,
)
from tacit_protocol.procedures.embedding_release_plan import (
    CELLS_MAX,
    EmbeddingPlan,
    EmbeddingReleaseParameters,
    as_database,
    features_of,
    plan_of,
    require_same_mean,
)
from tacit_protocol.strict import StrictModel

__all__ = ["CELLS_MAX", "EmbeddingRelease", "EmbeddingReleaseVerdict", "features_of", "plan_of"]

HOPELESS = "Hopeless: "
"""What a warning starts with where the study should not be run as planned."""


class EmbeddingReleaseVerdict(StrictModel):
    """The public points, one value per column each, and every database on them, by its sender.

    A sender is an owner, or the curator of all owners, and ``units`` counts its units.

    ``embedding`` holds coordinates of the noisy mean: with ``subspace`` in the orthonormal basis
    (K + lambda I)^(-1/2) of the points' kernels, with ``random-features`` those of ``frequencies`` random
    ones, which ``features_of`` draws again from the study (there are no points then). ``noise`` is the
    standard deviation of the noise on each coordinate, of the law ``noise_law``, and ``noise_error`` the root
    mean square of the noise's norm: no expectation of a function of norm 1 is off by more than that on
    average, besides sampling and what points or frequencies miss.

    With ``exponential`` a database is candidate number ``chosen`` of ``candidates``: ``weights`` on the
    points, each 0 or more, with sum 1, and ``embedding`` is its own. But for a probability of ``level`` its
    distance from the data is within ``excess`` of the nearest candidate's. Fields that a method has not are
    absent. ``reject`` is always false: a database tests nothing.
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
    noise_law: Literal["gaussian", "laplace"] | None = None
    frequencies: int | None = None
    candidates: int | None = None
    chosen: dict[str, int] | None = None
    weights: dict[str, tuple[float, ...]] | None = None
    excess: dict[str, float] | None = None

    @model_serializer(mode="wrap")
    def _without_absent_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class DatabaseSummary:
    """Exact sums, with the public counts of a curator's owners. They never leave their holder."""

    units_by_owner: Mapping[str, int]
    sums: FeatureSums = field(repr=False)


class EmbeddingRelease:
    """See the module. Registered as ``embedding_release``."""

    name: ClassVar[str] = "embedding_release"
    title: ClassVar[str] = "What do the records look like?"
    Parameters: ClassVar[type[BaseModel]] = EmbeddingReleaseParameters
    Verdict: ClassVar[type[BaseModel]] = EmbeddingReleaseVerdict

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        plan = plan_of(study)
        databases = 1 if study.curator is not None else len(study.owners)
        if plan.features.dimension * databases > COORDINATES_MAX:
            raise StudyError("all owners' databases together have too many numbers; use fewer points")

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one release."""
        return plan_of(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one sender sends: one a coordinate; a choice counts as one."""
        return mechanism_of(plan_of(study)).numbers

    def candidates(self, study: Study) -> int:
        """Return how many candidates the exponential mechanism draws from; 0 with the other methods."""
        candidates = plan_of(study).candidates
        return 0 if candidates is None else len(candidates)

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise is as large as the whole of what is released.

        ``units`` counts those of owners, or of senders.
        """
        if study.curator is not None:
            if study.curator.name not in units and any(owner.name not in units for owner in study.owners):
                return ()
            units = {study.curator.name: units.get(study.curator.name) or sum(units.values())}
        mechanism = mechanism_of(plan_of(study))
        drowned = [name for name, count in units.items() if _error(mechanism, count, study.level) >= 1]
        if not drowned:
            return ()
        hopeless = isinstance(mechanism, NoisyMean) and all(
            mechanism.deviation(count) >= 1 for count in units.values()
        )
        return (
            f"{HOPELESS if hopeless else ''}the noise exceeds all that is released of {', '.join(drowned)}: "
            "use fewer points, a larger epsilon or more units",
        )

    def summarise(self, study: Study, table: Table) -> DatabaseSummary:
        """Sum the units' features, exactly. The sums never leave the owner or the curator."""
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return DatabaseSummary(by_owner, mechanism_of(plan_of(study)).sum(table))

    def privatise(self, study: Study, summary: DatabaseSummary, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to the sums, or draw a candidate."""
        try:
            release = mechanism_of(plan_of(study)).release(summary.sums, noise)
        except (SensitivityError, NoiseError, StatisticError) as error:
            raise StudyError(str(error)) from None
        return release.model_copy(update={"units_by_owner": dict(summary.units_by_owner)})

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        mechanism_of(plan_of(study)).check(release)

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return an earlier database, or a two-sample release's mean, where it is what the study asks for.

        Of a two-sample release the second moment is left out; the mean keeps its own noise.

        Raises:
            StudyError: it was made with other features; says which to make the same.
        """
        ours = parse_parameters(EmbeddingReleaseParameters, study)
        if source.procedure == "kernel_two_sample":
            theirs = as_database(source)
        elif source.procedure == self.name:
            theirs = parse_parameters(EmbeddingReleaseParameters, source)
        else:
            raise StudyError("a database is read from releases of kernel_two_sample and embedding_release")
        require_same_mean(study, ours, source, theirs)
        kept = {MEAN: release.vectors[MEAN]} if MEAN in release.vectors else {}
        return Release(units=release.units, guarantee=release.guarantee, vectors=kept, choice=release.choice)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a release that is read again is not a database of this study."""
        mechanism_of(plan_of(study)).check_reread(release)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> EmbeddingReleaseVerdict:
        """Lay points and databases out: post-processing alone, the same for everyone."""
        if progress is not None:
            progress(0.5, "reading the releases")
        plan = plan_of(study)
        names = [study.curator.name] if study.curator is not None else [owner.name for owner in study.owners]
        made = {name: releases[name] for name in names}
        units = {name: release.units for name, release in made.items()}
        columns = tuple(column.name for column in study.domain.columns)
        rows = [] if plan.points is None else decode_locations(study.domain, plan.points)
        mechanism = mechanism_of(plan)
        found = (
            _noisy_means(mechanism, made)
            if isinstance(mechanism, NoisyMean)
            else _drawn(mechanism, made, study.level)
        )
        return EmbeddingReleaseVerdict(
            method=_method(plan),
            reject=False,
            level=study.level,
            units=units,
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            columns=columns,
            points=tuple(tuple(row[name] for name in columns) for row in rows),
            kernel=plan.kernel.shape,
            bandwidth=plan.kernel.bandwidth,
            category_similarity=plan.kernel.similarity,
            warnings=self.warnings(study, units) + reuse_warnings(study),
            **found,
        )


def _noisy_means(mechanism: NoisyMean, made: Mapping[str, Release]) -> dict[str, Any]:
    plan = mechanism.plan
    noise = {name: deviation_of(r.vectors[MEAN]) / r.units for name, r in made.items()}
    return {
        "embedding": {name: tuple(r.vectors[MEAN].mean(r.units).tolist()) for name, r in made.items()},
        "noise": noise,
        "noise_error": {name: float(mechanism.numbers**0.5) * value for name, value in noise.items()},
        "noise_law": plan.noise,
        "frequencies": plan.features.count if isinstance(plan.features, RandomFourier) else None,
    }


def _drawn(mechanism: DrawnCandidate, made: Mapping[str, Release], level: float) -> dict[str, Any]:
    plan, weights = mechanism.plan, mechanism.candidates.weights
    if plan.points is None:
        raise TypeError("candidates lie on points")
    chosen = {name: _choice(release) for name, release in made.items()}
    features = plan.features(plan.points)
    return {
        "embedding": {name: tuple((weights[c] @ features).tolist()) for name, c in chosen.items()},
        "noise": dict.fromkeys(made, 0.0),
        "noise_error": dict.fromkeys(made, 0.0),
        "candidates": len(mechanism.candidates),
        "chosen": chosen,
        "weights": {name: tuple(weights[c].tolist()) for name, c in chosen.items()},
        "excess": {name: mechanism.excess(release.units, level) for name, release in made.items()},
    }


def _choice(release: Release) -> int:
    if release.choice is None:
        raise ReleaseError("the release has not the one choice that the study asks for")
    return release.choice


def _error(mechanism: NoisyMean | DrawnCandidate, units: int, level: float) -> float:
    """How large the noise is beside a mean of norm 1: its norm, or what a choice may lose by it."""
    if isinstance(mechanism, NoisyMean):
        return mechanism.noise_error(units)
    return mechanism.excess(units, level)


def _method(plan: EmbeddingPlan) -> str:
    law = "Gaussian" if plan.noise == "gaussian" else "Laplace"
    if plan.candidates is not None:
        return f"one of {len(plan.candidates)} candidate databases, drawn by the exponential mechanism"
    if isinstance(plan.features, RandomFourier):
        return f"mean embedding on {plan.features.count} random frequencies, {law} noise"
    return f"mean embedding on {plan.features.dimension} public points, {law} noise"
