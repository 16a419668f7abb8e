"""What a study of a private database fixes before any data: points or frequencies, candidates, guarantee.

Everything here is a function of the study alone, so that whoever reads a verdict can compute it again. A
candidate is a public list of weights on public points; its loss is the distance of its embedding from the
data's in the span of the points' kernels, outside which the data's part is at a right angle to every
candidate.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import COLUMNS_MAX, ColumnName, Domain
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import (
    BANDWIDTH_POINTS,
    FEATURES_DEFAULT,
    LocationRow,
    Locations,
    Ridge,
    WhitenedMeanEmbedding,
    draw_locations,
    encode_locations,
    idle_parameter,
    median_distance,
)
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, parse_parameters
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.two_sample.release import (
    LOCATIONS_STREAM,
    KernelTwoSampleParameters,
)

CANDIDATES_MAX = 20_000
"""Most candidates: a draw compares that many sums of a loss and exact noise, in some tenths of a second."""

WEIGHTS_MAX = 4_000_000
"""Most weights, candidates times points: 32 MiB."""

DISTANCE_ERROR = 1e-12
"""Bound on the rounding error of a computed distance of two vectors of 1000 coordinates and norm 1."""

BLOCK = 1024
"""Candidates compared at once."""


class CandidatesError(StudyError):
    """The list of candidates cannot be used. The message says what to change."""


@dataclass(frozen=True)
class Candidates:
    """Weights of every candidate on the points, (candidates, points): non-negative, each row with sum 1."""

    weights: FloatMatrix

    def __len__(self) -> int:
        return len(self.weights)

    @classmethod
    def of_rows(
        cls, rows: Locations, sizes: Sequence[int], points_max: int
    ) -> tuple[Locations, "Candidates"]:
        """Return the distinct rows, and the candidates that hold the next ``sizes`` rows each, equally.

        Raises CandidatesError where there are too many candidates, or distinct rows.
        """
        both = np.concatenate([rows.numeric, rows.categorical.astype(np.float64)], axis=1)
        _, first, place = np.unique(both, axis=0, return_index=True, return_inverse=True)
        if len(first) > points_max:
            raise CandidatesError(f"the candidates have more than {points_max} different rows; use fewer")
        _require_size(len(sizes), len(first))
        weights = np.zeros((len(sizes), len(first)))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        np.add.at(weights, (owner, place.reshape(-1)), 1.0 / np.repeat(sizes, sizes))
        return Locations(rows.numeric[first], rows.categorical[first]), cls(weights)

    @classmethod
    def multisets(cls, points: int, rows: int) -> "Candidates":
        """Return every multiset of so many rows among the points, equally weighted.

        Raises CandidatesError where there are too many, or only one.
        """
        count = math.comb(points + rows - 1, rows)
        if count < 2:
            raise CandidatesError("one point makes one candidate; a choice needs two or more")
        _require_size(count, points)
        chosen = np.array(list(itertools.combinations_with_replacement(range(points), rows)))
        weights = np.zeros((count, points))
        np.add.at(weights, (np.repeat(np.arange(count), rows), chosen.ravel()), 1.0 / rows)
        return cls(weights)

    def distances(self, features: FloatMatrix, mean: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the distance of every candidate's embedding from a mean, (candidates,).

        ``features`` (points, J) are the points' feature vectors, ``mean`` is (J,). The differences are formed
        before their norms: near 0 the square root of a difference of squares would lose half its digits.
        """
        found = np.empty(len(self))
        for start in range(0, len(self), BLOCK):
            part = slice(start, start + BLOCK)
            found[part] = np.linalg.norm(self.weights[part] @ features - mean, axis=1)
        return found


def _require_size(candidates: int, points: int) -> None:
    if candidates > CANDIDATES_MAX or candidates * points > WEIGHTS_MAX:
        raise CandidatesError(
            f"the exponential mechanism is drawn exactly, from at most {CANDIDATES_MAX} candidates with at "
            f"most {WEIGHTS_MAX} weights in all, and the study has more: use fewer points or rows"
        )


POINTS_DEFAULT = 100
"""Points where the study names none: noise grows with their square root, what they miss shrinks."""

CANDIDATE_POINTS_DEFAULT = 10
"""Points of the candidates where the study names none: their multisets are counted in thousands."""

POINTS_MAX = 1000
"""Most points: whitening takes a second, and a verdict names every one."""

BINS_MAX = 1000
"""Most bins of a numeric column, as many as a categorical one may have levels."""

CELLS_MAX = 20_000
"""Most values of all points together, columns times points: a verdict then stays within a message."""

FREQUENCIES_DEFAULT = 100
"""Random frequencies where the study names none: two coordinates each."""

FREQUENCIES_MAX = 1000
"""Most random frequencies: two thousand noisy numbers."""

CANDIDATE_ROWS_MAX = 1000
"""Most rows of a candidate that is made of the points."""

PLANS_KEPT = 4
"""Plans remembered: every check of a study, its cost and its warnings ask for it again, and whitening a
thousand points takes a second."""

Method = Literal["subspace", "random-features", "exponential"]
Candidate = Annotated[tuple[LocationRow, ...], Field(min_length=1, max_length=CANDIDATE_ROWS_MAX)]


class EmbeddingReleaseParameters(MaskedParameters):
    """What a study may choose; every choice is public.

    The default ``placement`` of ``subspace`` is from histograms of every column; ``middle`` draws points as
    the two-sample test draws its locations. ``points`` and ``candidates`` are rows of the domain in its own
    units, from a public sample; without candidates every multiset of ``candidate_rows`` points is one.
    """

    method: Method = Field(
        "subspace",
        description="subspace (noisy mean on points), random-features, or exponential (a candidate, drawn).",
    )
    noise: Literal["gaussian", "laplace"] | None = Field(
        None, description="By default gaussian where the study has a delta, else laplace."
    )
    kernel: Literal["gaussian", "laplacian"] = Field("gaussian", description="The kernel's shape.")
    n_points: Annotated[int, Field(ge=1, le=POINTS_MAX)] | None = Field(
        None, description="Points that are drawn: noise grows with their square root, what they miss shrinks."
    )
    placement: Literal["histograms", "uniform", "middle"] | None = Field(
        None,
        description="Where points are drawn: over the whole domain, around its middle, or from histograms.",
    )
    n_bins: Annotated[int, Field(ge=1, le=BINS_MAX)] | None = Field(
        None, description="Equal bins of each numeric column's histogram; by default 20."
    )
    histogram_share: Annotated[float, Field(ge=0.01, le=0.99)] | None = Field(
        None, description="Part of the budget that buys the histograms; by default a quarter."
    )
    whole_numbers: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=COLUMNS_MAX)] | None = (
        Field(
            None, description="Columns publicly known to hold whole numbers: a bin for each, points on them."
        )
    )
    points: Annotated[tuple[LocationRow, ...], Field(min_length=1, max_length=POINTS_MAX)] | None = Field(
        None,
        description="Public points in place of drawn ones: rows with one value per column, in its own units.",
    )
    n_frequencies: Annotated[int, Field(ge=1, le=FREQUENCIES_MAX)] | None = Field(
        None, description="Random frequencies of random-features."
    )
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=2, max_length=CELLS_MAX)] | None = Field(
        None, description="Databases that exponential chooses from, each a list of rows."
    )
    candidate_rows: Annotated[int, Field(ge=1, le=CANDIDATE_ROWS_MAX)] | None = Field(
        None, description="Every multiset of so many of the points is a candidate (exponential)."
    )
    bandwidth: Annotated[float, Field(gt=1e-3, le=1e3)] | None = Field(
        None, description="In units of the scaled columns; by default the points' median distance."
    )
    category_similarity: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="Kernel value of two different categories of one column."
    )


@dataclass(frozen=True)
class MeanFeatures:
    """The features of which a mean is released: a function of the study, or of a release's histograms.

    ``points`` is None for random features, and ``candidates`` but for the exponential mechanism.
    """

    features: FeatureMap
    kernel: ProductKernel
    points: Locations | None = None
    candidates: Candidates | None = None


def draws_from_histograms(parameters: EmbeddingReleaseParameters) -> bool:
    """Say whether every sender's points are drawn from its own noisy histograms."""
    if parameters.placement is not None:
        return parameters.placement == "histograms" and parameters.method == "subspace"
    # Of masked sums nobody reads histograms before the mean's points are needed.
    masked = parameters.aggregation == "masked"
    return parameters.method == "subspace" and parameters.points is None and not masked


@lru_cache(PLANS_KEPT)
def public_features(parameters: EmbeddingReleaseParameters, domain: Domain, seed: str) -> MeanFeatures:
    """Return the features of a study with public points or frequencies."""
    if parameters.method == "random-features":
        rng = points_rng(seed)
        kernel = _kernel(parameters, _uniform(domain, BANDWIDTH_POINTS, rng))
        categories = [column.categories for column in domain.categorical]
        count = parameters.n_frequencies or FREQUENCIES_DEFAULT
        frequencies = RandomFourier.draw(kernel, len(domain.numeric), categories, count, rng)
        return MeanFeatures(frequencies, kernel)
    points, candidates = public_points(domain, parameters, seed)
    kernel = _kernel(parameters, points)
    features = WhitenedMeanEmbedding(kernel, points, ridge_of(parameters))
    return MeanFeatures(features, kernel, points, candidates)


def ridge_of(parameters: EmbeddingReleaseParameters) -> Ridge:
    """Return the ridge of the points' coordinates: fine, which tells points that lie close apart.

    Coarse where two-sample tests can read the release, whose locations are drawn alike and have that ridge.
    """
    shared = parameters.placement == "middle" and parameters.aggregation == "separate"
    return "coarse" if shared or parameters.method != "subspace" else "fine"


def noise_of(parameters: EmbeddingReleaseParameters, budget: Budget) -> Literal["gaussian", "laplace"]:
    """Return the noise of a study's mean: what it asks for, or what its delta allows."""
    return parameters.noise or ("gaussian" if budget.delta_pico else "laplace")


def refuse_idle_parameters(parameters: EmbeddingReleaseParameters) -> None:
    """Refuse a parameter that the study's other choices ignore: whoever sets it expects it to act."""
    drawn = parameters.method != "random-features" and parameters.candidates is None
    if drawn and parameters.points is not None and (parameters.n_points or parameters.placement):
        raise StudyError("given points are neither counted nor placed; leave n_points and placement out")
    if parameters.aggregation == "masked" and (
        parameters.method == "exponential" or parameters.placement == "histograms"
    ):
        raise StudyError(
            "masked sums are of coordinates that all owners have in common: method subspace with points, or "
            "with placement uniform or middle, or method random-features"
        )
    if parameters.placement == "histograms" and parameters.method != "subspace":
        raise StudyError("points are drawn from histograms with method subspace alone; leave placement out")
    histograms = draws_from_histograms(parameters)
    acting = {
        "n_bins": histograms,
        "histogram_share": histograms,
        "whole_numbers": histograms,
        "noise": parameters.method != "exponential",
        "n_points": drawn,
        "placement": drawn,
        "points": drawn,
        "n_frequencies": parameters.method == "random-features",
        "candidates": parameters.method == "exponential",
        "candidate_rows": parameters.method == "exponential" and drawn,
    }
    name = idle_parameter(parameters, acting)
    if name is not None:
        raise StudyError(f"parameter {name} has no effect with the other choices; leave it out")


def points_rng(seed: str) -> np.random.Generator:
    """Return what a study's points or frequencies are drawn with."""
    return np.random.default_rng(np.random.SeedSequence(int(seed, 16), spawn_key=(LOCATIONS_STREAM,)))


def _kernel(parameters: EmbeddingReleaseParameters, points: Locations) -> ProductKernel:
    bandwidth = parameters.bandwidth or median_distance(points.numeric)
    return ProductKernel(parameters.kernel, bandwidth, parameters.category_similarity)


def public_points(
    domain: Domain, parameters: EmbeddingReleaseParameters, seed: str
) -> tuple[Locations, Candidates | None]:
    """Return the points that a study gives or draws, and the candidates on them where it has any."""
    if parameters.candidates is not None:
        rows = [row for candidate in parameters.candidates for row in candidate]
        _require_cells(len(rows), domain)
        sizes = [len(candidate) for candidate in parameters.candidates]
        return Candidates.of_rows(encode_locations(domain, rows), sizes, POINTS_MAX)
    points = _single_points(domain, parameters, seed)
    _require_cells(len(points), domain)
    if parameters.method != "exponential":
        return points, None
    if parameters.candidate_rows is None:
        raise StudyError("method exponential needs candidates, or candidate_rows to make them of the points")
    return points, Candidates.multisets(len(points), parameters.candidate_rows)


def _single_points(domain: Domain, parameters: EmbeddingReleaseParameters, seed: str) -> Locations:
    if parameters.points is not None:
        return encode_locations(domain, parameters.points)
    default = CANDIDATE_POINTS_DEFAULT if parameters.method == "exponential" else POINTS_DEFAULT
    rng, count = points_rng(seed), parameters.n_points or default
    if parameters.placement == "middle":
        return draw_locations(domain, count, rng)
    return _uniform(domain, count, rng)


def _uniform(domain: Domain, count: int, rng: np.random.Generator) -> Locations:
    drawn = draw_locations(domain, count, rng)
    return Locations(rng.random(drawn.numeric.shape), drawn.categorical)


def _require_cells(points: int, domain: Domain) -> None:
    if points * len(domain.columns) > CELLS_MAX:
        raise StudyError(f"points and columns make more than {CELLS_MAX} values; use fewer points")


POINT_TOLERANCE = 1e-12
"""Points, on [0, 1], that are nearer than this are one: as given, or as a verdict wrote them."""


def as_database(source: Study) -> EmbeddingReleaseParameters:
    """Return the database study whose mean a two-sample study's release holds.

    Raises:
        StudyError: its features are others.
    """
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


def require_same_database(study: Study, source: Study) -> None:
    """Raise StudyError unless a database release for ``source`` is a mean that a two-sample study can use.

    It has no second moment: the MMD form alone, which bounds what it misses, can do without, and with
    Gaussian noise.
    """
    ours, asked = as_database(study), parse_parameters(KernelTwoSampleParameters, study)
    theirs = parse_parameters(EmbeddingReleaseParameters, source)
    if asked.statistic not in ("auto", "mmd") or asked.null != "auto":
        raise StudyError("a database has no second moment: leave statistic and null at auto, or ask for mmd")
    require_same_mean(study, ours, source, theirs)
    require_shared_ridge(theirs)


def require_shared_ridge(database: EmbeddingReleaseParameters) -> None:
    """Raise StudyError unless a database's coordinates are those of a two-sample test of the same points."""
    if ridge_of(database) != "coarse":
        raise StudyError(
            "a two-sample test and a database read each other's means with placement middle alone"
        )


def require_same_mean(
    study: Study, ours: EmbeddingReleaseParameters, source: Study, theirs: EmbeddingReleaseParameters
) -> None:
    """Raise StudyError unless a release for ``source`` tells of the same columns what ``study`` asks for.

    The parameters are those of the database that each of them releases, or could read from its releases.
    """
    if draws_from_histograms(ours) != draws_from_histograms(theirs):
        raise StudyError(
            "points drawn from histograms are those of one release alone; to use a database in other "
            "studies, state points (or placement uniform or middle) in all of them"
        )
    if source.domain != study.domain:
        raise StudyError("the reused release was made for other columns, bounds or levels")
    if source.budget != study.budget:
        raise StudyError("the reused release was made with another budget; use the same one")
    for name in ("method", "kernel", "bandwidth", "category_similarity", "n_frequencies", "candidate_rows"):
        if getattr(ours, name) != getattr(theirs, name):
            raise StudyError(f"the reused release was made with another {name}; use the same")
    if noise_of(ours, study.budget) != noise_of(theirs, source.budget):
        raise StudyError("the reused release was made with another noise; use the same")
    if draws_from_histograms(ours):
        _require_same_draws(study, ours, source, theirs)
        return
    if ours.method == "random-features":
        if study.seed != source.seed:
            raise StudyError("the reused release has frequencies of another seed; use the same seed")
        return
    first, one = public_points(study.domain, ours, study.seed)
    second, other = public_points(source.domain, theirs, source.seed)
    alike = len(first) == len(second) and np.array_equal(first.categorical, second.categorical)
    if not alike or not np.allclose(first.numeric, second.numeric, rtol=0, atol=POINT_TOLERANCE):
        raise StudyError("the reused release was made on other points; use the same points, number and seed")
    if one is not None and other is not None and not np.array_equal(one.weights, other.weights):
        raise StudyError("the reused release was made with other candidates; use the same")


def _require_same_draws(
    study: Study, ours: EmbeddingReleaseParameters, source: Study, theirs: EmbeddingReleaseParameters
) -> None:
    """Raise StudyError unless the same points follow from the same histograms."""
    for name in ("n_points", "n_bins", "histogram_share", "whole_numbers"):
        if getattr(ours, name) != getattr(theirs, name):
            raise StudyError(f"the reused release was made with another {name}; use the same")
    if study.seed != source.seed:
        raise StudyError("the reused release has points of another seed; use the same seed")
