"""How an owner's exact mean embedding becomes a release: noise on its coordinates, or a drawn candidate.

On points drawn from the sender's own noisy histograms, these come first, for a share of the budget; then, for
the rest, the noisy mean on points that are a public function of them and of the seed. One unit moves the
histograms by sqrt(2 d) / n in L2 and the mean by sqrt 2 / n whatever the points are: mu^2 of Gaussian noise,
and epsilon of Laplace noise, add up though the second release depends on the first
(docs/mathematics/database-release.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

import numpy as np

from tacit_protocol.domain import Domain, PooledTable, Table
from tacit_protocol.features.column_histograms import HISTOGRAMS, ColumnHistograms, HistogramSums
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding, decode_locations
from tacit_protocol.features.moments import (
    MEAN,
    FeatureSums,
    MomentRelease,
    MomentShares,
    sum_sensitivity,
)
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.exact_sums import grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart, gaussian_guarantee, mu_of
from tacit_protocol.privacy.guarantee import Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    ChoiceSource,
    ExponentialChoice,
    choice_guarantee,
    laplace_sum_guarantee,
    of_event,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    parse_parameters,
    reuse_warnings,
)
from tacit_protocol.procedures.embedding_release.plan import (
    CELLS_MAX,
    DISTANCE_ERROR,
    Candidates,
    EmbeddingReleaseParameters,
    MeanFeatures,
    as_database,
    draws_from_histograms,
    noise_of,
    points_rng,
    public_features,
    refuse_idle_parameters,
    require_same_database,
    require_same_mean,
    require_shared_ridge,
    ridge_of,
)
from tacit_protocol.procedures.embedding_release.verdict import (
    EmbeddingReleaseVerdict,
    Row,
    database_panels,
    from_histograms,
    from_points,
)
from tacit_protocol.procedures.masking import TOGETHER, SharedNoise, masking_in, shared_noise_in, total_of
from tacit_protocol.procedures.plan import SumPlan
from tacit_protocol.verdicts.presentation import OWNERS_NAMED_MAX, BarsPanel, Meaning, joined

__all__ = ["HISTOGRAMS", "database_plan", "features_of"]

DISTANCE_MAX = 2.125
"""Bound on the distance of two means of norm 1, the rounding of a sum to its grid included."""

POINTS_A_COLUMN, POINTS_DEFAULT = 100, 500
"""Points for each column, and in all, where the study names none: what two columns have to do with each other
takes few points, and weights of 500 take seconds."""

BINS_DEFAULT = 20
"""Equal bins of a numeric column."""

SHARE_DEFAULT = 0.25
"""Part of mu^2, or of epsilon, for the histograms."""

BANDWIDTH = 0.2
"""Of the kernel, times the square root of the number of numeric columns: half the median distance of points
that are uniform over the bounds. A function of the study alone, so that databases can be compared."""

DRAWS_KEPT = 4
"""Drawn points remembered: checking a release and reading it both ask for them, and whitening takes time."""


NEAR = 1e-4
"""Rounding of a scaled whole number is far below this; half-way between two lies far above."""


@dataclass(frozen=True)
class DatabaseSummary:
    """Exact sums, with the public counts of a curator's owners. They never leave their holder."""

    units_by_owner: Mapping[str, int]
    sums: Any = field(repr=False)


class DatabasePlan(SumPlan):
    """A database of every sender: an owner, or the curator of all owners."""

    rereads = True
    lends_to = frozenset({"kernel_two_sample"})

    def __init__(
        self,
        study: Study,
        parameters: EmbeddingReleaseParameters,
        noise: Literal["gaussian", "laplace"],
        guarantee: Guarantee,
        shared: SharedNoise | None = None,
    ) -> None:
        self.study, self.parameters, self.noise, self.shared = study, parameters, noise, shared
        self.guarantee = guarantee if shared is None else shared.own

    @property
    def senders(self) -> list[str]:
        """Who sends a database."""
        study = self.study
        return [study.curator.name] if study.curator is not None else [own.name for own in study.owners]

    # What a mechanism is.

    def sum(self, table: Table) -> Any:
        """Compute the exact sums of a sender's units."""
        raise NotImplementedError

    def release(self, sums: Any, noise: NoiseSource) -> Release:
        """Add the noise to the sums, or draw a candidate."""
        return super().privatise(sums, noise)

    def features_read(self, release: Release | None) -> FeatureMap:
        """Return the features whose mean a release holds; StudyError where it must be given, and is not."""
        raise NotImplementedError

    def fields(self, made: Releases) -> dict[str, Any]:
        """Return a verdict's fields that depend on how its releases, by sender, were made."""
        raise NotImplementedError

    def error(self, units: int) -> float:
        """Return how large the noise is beside a mean of norm 1: the root mean square of its norm."""
        return math.sqrt(len(self.parts(units)[-1].sums)) * self.deviation(units)

    def is_hopeless(self, units: int) -> bool:
        """Whether the noise on each coordinate is as large as the whole mean."""
        return self.deviation(units) >= 1

    def deviation(self, units: int) -> float:
        """Return the standard deviation of the noise on a coordinate of the mean that is read."""
        *before, mean = self.parts(units)
        if self.gaussian:
            scale = mean.scale(mu_of(self.guarantee))
        else:
            scale = math.sqrt(2) * sums_scale(mean, of_event(self.guarantee, len(before)))
        return math.sqrt(1 if self.masking is None else len(self.masking.names)) * scale / units

    # What follows.

    def check_units(self, units: Mapping[str, int]) -> None:
        if (curator := self.study.curator) is not None:
            known = all(owner.name in units for owner in self.study.owners)
            units = {curator.name: sum(units.values())} if known else {}
        super().check_units(units)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        # ``units`` counts those of owners, or of senders.
        study, known = self.study, all(owner.name in units for owner in self.study.owners)
        if study.curator is not None:
            if study.curator.name not in units and not known:
                return ()
            units = {study.curator.name: units.get(study.curator.name) or sum(units.values())}
        if self.shared is not None:
            if not known:
                return ()
            units = {TOGETHER: sum(units.values())}
        drowned = [name for name, count in units.items() if self.error(count) >= 1]
        if not drowned:
            return ()
        hopeless = all(self.is_hopeless(count) for count in units.values())
        return (
            f"{HOPELESS if hopeless else ''}the noise exceeds all that is released of {', '.join(drowned)}: "
            "use fewer points, a larger epsilon or more units",
        )

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> DatabaseSummary:  # noqa: ARG002
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return DatabaseSummary(by_owner, self.sum(table))

    def privatise(self, summary: DatabaseSummary, noise: NoiseSource) -> Release:
        try:
            release = self.release(summary.sums, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        return release.model_copy(update={"units_by_owner": dict(summary.units_by_owner)})

    def check_release(self, release: Release) -> None:
        if release.decision is not None or release.choice is not None:
            raise LayoutError("the release has not the vectors that the study asks for")
        super().check_release(release)

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        # Of a two-sample release the second moment is left out; the mean keeps its own noise.
        if source.procedure == "kernel_two_sample":
            theirs = as_database(source)
        elif source.procedure == self.study.procedure:
            theirs = parse_parameters(EmbeddingReleaseParameters, source)
        else:
            raise StudyError("a database is read from releases of kernel_two_sample and embedding_release")
        require_same_mean(self.study, self.parameters, source, theirs)
        if source.procedure != self.study.procedure:
            require_shared_ridge(self.parameters)
        kept = {name: release.vectors[name] for name in (HISTOGRAMS, MEAN) if name in release.vectors}
        return Release(units=release.units, guarantee=release.guarantee, vectors=kept, choice=release.choice)

    def check_borrower(self, study: Study) -> None:
        require_same_database(study, self.study)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> EmbeddingReleaseVerdict:
        if progress is not None:
            progress(0.5, "reading the releases")
        study, shared = self.study, self.shared
        made: Releases = {name: releases[name] for name in self.senders}
        units = {name: release.units for name, release in made.items()}
        caveats = () if shared is None else shared.caveats(self.masked_numbers)
        if shared is not None:
            made = {TOGETHER: total_of(shared.masking, made)}
        return EmbeddingReleaseVerdict(
            reject=False,
            **common_fields(study, units, None if shared is None else shared.own),
            columns=tuple(column.name for column in study.domain.columns),
            warnings=self.warnings(units) + caveats + reuse_warnings(study),
            **self.fields(made),
        )

    def meaning(self, verdict: Fields) -> Meaning:  # noqa: ARG002
        one = len(self.senders) == 1 or self.shared is not None
        databases = "A private database" if one else "Private databases"
        together = " together" if self.shared is not None else ""
        return Meaning(
            f"{databases} of {joined(self.senders, OWNERS_NAMED_MAX)}{together} {'was' if one else 'were'} "
            "released.",
            "A database tests nothing by itself; questions asked of it cost no privacy, and its answers have "
            "errors that it states.",
            tests=False,
        )


class NoisyMean(DatabasePlan):
    """The mean's coordinates on public points or frequencies, with noise: Gaussian, or Laplace."""

    def __init__(
        self,
        study: Study,
        parameters: EmbeddingReleaseParameters,
        public: MeanFeatures,
        guarantee: Guarantee,
        shared: SharedNoise | None = None,
    ) -> None:
        super().__init__(study, parameters, noise_of(parameters, study.budget), guarantee, shared)
        self.public = public
        # The mean alone, with the whole budget.
        self.layout = MomentRelease(public.features, MomentShares(1.0, 0.0))

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        return self.layout.parts(units, sums)

    def sum(self, table: Table) -> FeatureSums:
        return self.layout.sum(table)

    def features_read(self, release: Release | None) -> FeatureMap:  # noqa: ARG002
        return self.public.features

    def check_release(self, release: Release) -> None:
        if set(release.vectors) != {MEAN}:
            raise LayoutError("the release has not the vectors that the study asks for")
        super().check_release(release)

    def check_reread(self, release: Release) -> None:
        vector, dimension = release.vectors.get(MEAN), self.public.features.dimension
        if len(release.vectors) != 1 or vector is None or len(vector.values) != dimension:
            raise ReleaseError("the earlier mean has not one coordinate for each point")

    @property
    def method(self) -> str:
        """The method, in words."""
        features, law = self.public.features, LAWS[self.noise]
        if isinstance(features, RandomFourier):
            return f"mean embedding on {features.count} random frequencies, {law} noise"
        return f"mean embedding on {features.dimension} public points, {law} noise"

    def fields(self, made: Releases) -> dict[str, Any]:
        public, domain = self.public, self.study.domain
        return self.databases(made) | {
            "method": self.method,
            "points": () if public.points is None else _rows(domain, public.points),
            "kernel": public.kernel.shape,
            "bandwidth": public.kernel.bandwidth,
            "category_similarity": public.kernel.similarity,
        }

    def databases(self, made: Releases) -> dict[str, Any]:
        """Return the databases, by sender."""
        features = self.public.features
        return _embeddings(made) | {
            "noise_law": self.noise,
            "frequencies": features.count if isinstance(features, RandomFourier) else None,
        }

    def panels(self, verdict: Fields, releases: Releases) -> list[BarsPanel]:  # noqa: ARG002
        return database_panels(self.study, verdict, partial(from_points, self.public))


class DrawnCandidate(NoisyMean):
    """One of the candidates, drawn by the exponential mechanism; its loss is its distance from the data."""

    def __init__(
        self,
        study: Study,
        parameters: EmbeddingReleaseParameters,
        public: MeanFeatures,
        candidates: Candidates,
        points: Locations,
    ) -> None:
        super().__init__(study, parameters, public, choice_guarantee(study.budget))
        self.choices, self.points = candidates, points
        self.candidates = len(candidates)
        self.release_size = 1  # a choice counts as one

    @cached_property
    def at(self) -> FloatMatrix:
        """The points' features, (points, J)."""
        return self.public.features(self.points)

    def mechanism(self, units: int) -> ExponentialChoice:
        """Return how a candidate is drawn for so many units: all of it public."""
        moved = sum_sensitivity(self.public.features, grid_bits(units, products=False)) / units
        epsilon = self.guarantee.budget.epsilon
        return ExponentialChoice(moved * (1 + 1e-12) + 2 * DISTANCE_ERROR, DISTANCE_MAX, epsilon)

    def release(self, sums: FeatureSums, noise: NoiseSource) -> Release:
        if not isinstance(noise, ChoiceSource):
            raise TypeError("this noise source draws numbers alone, and the study asks for a choice")
        losses = self.choices.distances(self.at, sums.total * 2.0**-sums.bits / sums.units)
        choice = self.mechanism(sums.units).choose(losses, noise)
        return Release(units=sums.units, guarantee=self.guarantee, choice=choice)

    def require_drawable(self, units: int) -> None:
        self.mechanism(units).scale  # noqa: B018 (raises where there is no grid)

    def check_release(self, release: Release) -> None:
        if release.guarantee != self.guarantee:
            raise ReleaseError("the release states another guarantee than the study")
        self.check_reread(release)

    def check_reread(self, release: Release) -> None:
        if release.vectors or release.decision is not None or release.choice is None:
            raise ReleaseError("the release has not the one choice that the study asks for")
        if release.choice >= self.candidates:
            raise ReleaseError("the release chooses a candidate that the study does not have")

    def error(self, units: int) -> float:
        """Bound how much farther than the nearest the drawn one is, but for a probability of the level."""
        return self.mechanism(units).excess(self.candidates, self.study.level)

    def is_hopeless(self, units: int) -> bool:  # noqa: ARG002
        return False

    @property
    def method(self) -> str:
        return f"one of {self.candidates} candidate databases, drawn by the exponential mechanism"

    def databases(self, made: Releases) -> dict[str, Any]:
        weights = self.choices.weights
        chosen = {name: _choice(release) for name, release in made.items()}
        return {
            "embedding": {name: tuple((weights[c] @ self.at).tolist()) for name, c in chosen.items()},
            "noise": dict.fromkeys(made, 0.0),
            "noise_error": dict.fromkeys(made, 0.0),
            "candidates": self.candidates,
            "chosen": chosen,
            "weights": {name: tuple(weights[c].tolist()) for name, c in chosen.items()},
            "excess": {name: self.error(release.units) for name, release in made.items()},
        }


class HistogramsThenMean(DatabasePlan):
    """Noisy histograms of each column, then the noisy mean on points that are drawn from them."""

    def __init__(
        self,
        study: Study,
        parameters: EmbeddingReleaseParameters,
        noise: Literal["gaussian", "laplace"],
        guarantee: Guarantee,
        count: int,
    ) -> None:
        super().__init__(study, parameters, noise, guarantee)
        self.count, self.share = count, parameters.histogram_share or SHARE_DEFAULT

    @cached_property
    def histograms(self) -> ColumnHistograms:
        """The public cells."""
        return _histograms(self.study.domain, self.parameters)

    @property
    def kernel(self) -> ProductKernel:
        """The kernel: the same for every sender, whatever its points are."""
        return _kernel(self.study.domain, self.parameters)

    def sum(self, table: Table) -> HistogramSums:
        return HistogramSums.of(self.histograms, table)

    def parts(self, units: int, sums: HistogramSums | None = None) -> tuple[SumPart, ...]:
        bits, cells, domain = grid_bits(units, products=False), self.histograms, self.study.domain
        diameter = self.kernel.distance_max(len(domain.numeric), len(domain.categorical))
        mean = None if sums is None else sums.then
        return (
            SumPart(
                HISTOGRAMS,
                np.zeros(cells.size, dtype=np.int64) if sums is None else sums.steps,
                -bits,
                cells.l2_sensitivity,
                self.share,
                l1=cells.l1_sensitivity,
            ),
            SumPart(
                MEAN,
                np.zeros(self.count, dtype=np.int64) if mean is None else mean.total,
                -bits,
                diameter + rounding_sensitivity(self.count, bits),
                1 - self.share,
            ),
        )

    def adapt(self, summary: DatabaseSummary, noise: NoiseSource) -> DatabaseSummary:
        try:
            return replace(summary, sums=self.adapted(summary.sums, noise))
        except NoiseError as error:
            raise StudyError(str(error)) from None

    def adapted(self, sums: HistogramSums, noise: NoiseSource) -> HistogramSums:
        """Draw the histograms' noise, and sum the features on the points that follow from it."""
        self.require_drawable(sums.units)
        noisy = self.noisy(self.parts(sums.units, sums)[:1], noise)[HISTOGRAMS]
        return sums.followed(noisy, self.drawn(noisy, sums.units).features)

    def release(self, sums: HistogramSums, noise: NoiseSource) -> Release:
        if sums.noisy is None or sums.then is None:
            sums = self.adapted(sums, noise)
        if sums.noisy is None:
            raise TypeError("the histograms' noise comes before the mean's")
        vectors = {HISTOGRAMS: sums.noisy, **self.noisy(self.parts(sums.units, sums)[1:], noise, 1)}
        return Release(units=sums.units, guarantee=self.guarantee, vectors=vectors)

    def drawn(self, noisy: NoisyVector, units: int) -> MeanFeatures:
        """Return the features on the points that follow from noisy histograms: the same for everyone."""
        study, count, bits = self.study, self.count, -noisy.exponent
        return _drawn(
            study.domain,
            self.parameters,
            study.seed,
            count=count,
            values=noisy.values,
            units=units,
            bits=bits,
        )

    def features_read(self, release: Release | None) -> FeatureMap:
        if release is None or HISTOGRAMS not in release.vectors:
            raise StudyError("the points of this study are drawn from each sender's release: give one")
        return self.drawn(release.vectors[HISTOGRAMS], release.units).features

    def fields(self, made: Releases) -> dict[str, Any]:
        drawn = {name: self.drawn(r.vectors[HISTOGRAMS], r.units) for name, r in made.items()}
        points = {name: own.points for name, own in drawn.items() if own.points is not None}
        return _embeddings(made) | {
            "method": (
                f"histograms of {self.histograms.size} cells, and mean embedding on {self.count} points "
                f"drawn from them, {LAWS[self.noise]} noise"
            ),
            "noise_law": self.noise,
            "points": (),
            "drawn_points": {name: self.rows_on_whole_numbers(found) for name, found in points.items()},
            "kernel": self.parameters.kernel,
            "bandwidth": self.kernel.bandwidth,
            "category_similarity": self.parameters.category_similarity,
            "bins": self.histograms.bins,
            "histograms": {
                name: self.noisy_shares(r.vectors[HISTOGRAMS], r.units) for name, r in made.items()
            },
            "histogram_noise": {
                name: _deviation_of(r.vectors[HISTOGRAMS]) / r.units for name, r in made.items()
            },
        }

    def rows_on_whole_numbers(self, points: Locations) -> tuple[Row, ...]:
        """Return the points as rows; whole numbers lose what scaling has added to them."""
        whole = set(self.histograms.whole)

        def near(name: str, value: float | str | None) -> float | str | None:
            # A missing value's place may lie between two whole numbers.
            if name in whole and isinstance(value, float) and abs(value - round(value)) < NEAR:
                return float(round(value))
            return value

        rows = decode_locations(self.study.domain, points)
        return tuple(tuple(near(name, value) for name, value in row.items()) for row in rows)

    def noisy_shares(self, vector: NoisyVector, units: int) -> Mapping[str, tuple[float, ...]]:
        """Return each column's noisy shares of the units, by cell."""
        ends = np.cumsum([cells.size for cells in self.histograms.columns])[:-1]
        parts = np.split(vector.mean(units), ends)
        return {
            cells.column.name: tuple(part.tolist())
            for cells, part in zip(self.histograms.columns, parts, strict=True)
        }

    def panels(self, verdict: Fields, releases: Releases) -> list[BarsPanel]:  # noqa: ARG002
        return database_panels(self.study, verdict, from_histograms)


LAWS = {"gaussian": "Gaussian", "laplace": "Laplace"}


def database_plan(study: Study) -> DatabasePlan:
    """Return the plan of a study, whatever its columns are and whether its noise can be drawn.

    Raises:
        StudyError: it cannot be run as written.
    """
    parameters = parse_parameters(EmbeddingReleaseParameters, study)
    try:
        refuse_idle_parameters(parameters)
        if draws_from_histograms(parameters):
            return _histograms_then_mean(study, parameters)
        public = public_features(parameters, study.domain, study.seed)
        if public.candidates is not None and public.points is not None:
            masking_in(study, parameters)  # refuses what is idle
            return DrawnCandidate(study, parameters, public, public.candidates, public.points)
        noise = noise_of(parameters, study.budget)
        guarantee = (gaussian_guarantee if noise == "gaussian" else laplace_sum_guarantee)(study.budget)
        shared = shared_noise_in(study, parameters, noise, lambda: guarantee)
        return NoisyMean(study, parameters, public, guarantee, shared)
    except ValueError as error:
        raise StudyError(str(error)) from None


def _histograms_then_mean(study: Study, parameters: EmbeddingReleaseParameters) -> HistogramsThenMean:
    noise, share = noise_of(parameters, study.budget), parameters.histogram_share or SHARE_DEFAULT
    if noise == "gaussian":
        guarantee = gaussian_guarantee(study.budget)
    else:
        guarantee = shared_laplace_guarantee(study.budget, (share, 1 - share))
    databases = 1 if study.curator is not None else len(study.owners)
    columns = len(study.domain.columns)
    room = CELLS_MAX // (columns * databases)
    count = parameters.n_points or max(1, min(POINTS_A_COLUMN * columns, POINTS_DEFAULT, room))
    if count > room:
        raise StudyError(
            f"all owners' points and columns make more than {CELLS_MAX} values; use fewer points"
        )
    found = HistogramsThenMean(study, parameters, noise, guarantee, count)
    found.histograms.columns  # noqa: B018 (raises where whole numbers do not fit the columns)
    return found


def _histograms(domain: Domain, chosen: EmbeddingReleaseParameters) -> ColumnHistograms:
    return ColumnHistograms(domain, chosen.n_bins or BINS_DEFAULT, chosen.whole_numbers or ())


def _kernel(domain: Domain, chosen: EmbeddingReleaseParameters) -> ProductKernel:
    bandwidth = BANDWIDTH * math.sqrt(len(domain.numeric)) or 1.0
    return ProductKernel(chosen.kernel, chosen.bandwidth or bandwidth, chosen.category_similarity)


@lru_cache(DRAWS_KEPT)
def _drawn(
    domain: Domain,
    parameters: EmbeddingReleaseParameters,
    seed: str,
    *,
    count: int,
    values: tuple[int, ...],
    units: int,
    bits: int,
) -> MeanFeatures:
    points = _histograms(domain, parameters).draw(values, units << bits, count, points_rng(seed))
    kernel = _kernel(domain, parameters)
    return MeanFeatures(WhitenedMeanEmbedding(kernel, points, ridge_of(parameters)), kernel, points)


def features_of(study: Study, release: Release | None = None) -> FeatureMap:
    """Return the map whose mean, exact or noisy, a study releases: of J coordinates, and norm 1 at most.

    Args:
        study: a study of ``embedding_release``.
        release: a sender's release, from which points are drawn where the study's ``placement`` says so.

    Raises:
        StudyError: the study cannot be run as written, or its points are drawn from a release, and none of
            it is given.
    """
    return database_plan(study).features_read(release)


def _rows(domain: Domain, points: Locations) -> tuple[Row, ...]:
    return tuple(tuple(row.values()) for row in decode_locations(domain, points))


def _deviation_of(vector: NoisyVector) -> float:
    """Return the standard deviation of the noise that a vector states."""
    return vector.scale * (math.sqrt(2) if vector.noise == "laplace" else 1.0)


def _embeddings(made: Releases) -> dict[str, Any]:
    noise = {name: _deviation_of(r.vectors[MEAN]) / r.units for name, r in made.items()}
    return {
        "embedding": {name: tuple(r.vectors[MEAN].mean(r.units).tolist()) for name, r in made.items()},
        "noise": noise,
        "noise_error": {
            name: float(len(made[name].vectors[MEAN].values) ** 0.5) * value for name, value in noise.items()
        },
    }


def _choice(release: Release) -> int:
    if release.choice is None:
        raise ReleaseError("the release has not the one choice that the study asks for")
    return release.choice
