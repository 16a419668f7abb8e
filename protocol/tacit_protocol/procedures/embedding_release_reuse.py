"""Which earlier releases are the mean that a study of a private database, or a two-sample study, asks for."""

from typing import Any

import numpy as np

from tacit_protocol.features.choice import FEATURES_DEFAULT
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import StudyError, parse_parameters
from tacit_protocol.procedures.embedding_release_plan import (
    EmbeddingReleaseParameters,
    draws_from_histograms,
    noise_of,
    public_points,
)
from tacit_protocol.procedures.kernel_two_sample_plan import KernelTwoSampleParameters, reads_means

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

    It has no second moment: the MMD form alone can do without, and with Gaussian noise.
    """
    ours = as_database(study)
    theirs = parse_parameters(EmbeddingReleaseParameters, source)
    if not reads_means(parse_parameters(KernelTwoSampleParameters, study)):
        raise StudyError("a database has no second moment: leave statistic and null at auto, or ask for mmd")
    require_same_mean(study, ours, source, theirs)


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
