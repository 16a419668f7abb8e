"""What a study of a private database says: every sender's database, laid out from its release."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.mean_embedding import Locations
from tacit_protocol.features.moment_release import MEAN
from tacit_protocol.features.public_choices import decode_locations
from tacit_protocol.features.random_fourier import RandomFourier
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.embedding_release_histograms import (
    HISTOGRAMS,
    HistogramsThenMean,
    noisy_shares,
)
from tacit_protocol.procedures.embedding_release_mechanism import (
    DrawnCandidate,
    NoisyMean,
    deviation_of,
)
from tacit_protocol.procedures.embedding_release_plan import EmbeddingPlan
from tacit_protocol.verdicts.base import BaseVerdict, ShownTable

NEAR = 1e-4
"""Rounding of a scaled whole number is far below this; half-way between two lies far above."""

Row = tuple[float | str | None, ...]
"""A point: one value per column, in its own units."""


class EmbeddingReleaseVerdict(BaseVerdict):
    """The public points, one value per column each, and every database on them, by its sender.

    A sender is an owner, or the curator of all owners, and ``units`` counts its units.

    Where points are drawn from histograms ``points`` are none, and every sender has ``drawn_points`` of its
    own, and ``histograms``: each column's noisy shares of the units by public cell, with noise of standard
    deviation ``histogram_noise``. A number's cells are ``bins`` equal bins, or its whole numbers where the
    study's ``whole_numbers`` name it; its lower bound, its upper bound, and what stands for a missing value,
    where that is neither; a category's are levels, unlisted, missing.

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

    absent_fields: ClassVar[bool] = True

    reject: Literal[False]
    columns: tuple[str, ...]
    points: tuple[Row, ...]
    kernel: Literal["gaussian", "laplacian"]
    bandwidth: float
    category_similarity: float
    embedding: dict[str, tuple[float, ...]]
    noise: dict[str, float]
    noise_error: dict[str, float]
    noise_law: Literal["gaussian", "laplace"] | None = None
    frequencies: int | None = None
    candidates: int | None = None
    chosen: dict[str, int] | None = None
    weights: dict[str, tuple[float, ...]] | None = None
    excess: dict[str, float] | None = None
    drawn_points: dict[str, tuple[Row, ...]] | None = None
    bins: int | None = None
    histograms: dict[str, dict[str, tuple[float, ...]]] | None = None
    histogram_noise: dict[str, float] | None = None

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: who released a database."""
        return (
            f"Released: {', '.join(f'{name} ({units} units)' for name, units in self.units.items())}",
            f"  {self.method}",
            "  keep the transcript, and ask it as often as you like: tacit release show",
        )


def databases_of(
    study: Study, mechanism: NoisyMean | DrawnCandidate | HistogramsThenMean, made: Mapping[str, Release]
) -> dict[str, Any]:
    """Return a verdict's fields that depend on how its releases, by sender, were made."""
    if isinstance(mechanism, HistogramsThenMean):
        return _on_drawn_points(mechanism, made)
    plan = mechanism.plan
    found = (
        _noisy_means(mechanism, made)
        if isinstance(mechanism, NoisyMean)
        else _drawn(mechanism, made, study.level)
    )
    return found | {
        "method": _method(plan),
        "points": () if plan.points is None else _rows(study.domain, plan.points),
        "kernel": plan.kernel.shape,
        "bandwidth": plan.kernel.bandwidth,
        "category_similarity": plan.kernel.similarity,
    }


def _rows(domain: Domain, points: Locations) -> tuple[Row, ...]:
    return tuple(tuple(row.values()) for row in decode_locations(domain, points))


def _rows_on_whole_numbers(how: HistogramsThenMean, points: Locations) -> tuple[Row, ...]:
    """Return the points as rows; whole numbers lose what scaling has added to them."""
    whole = set(how.histograms.whole)
    return tuple(
        tuple(
            float(round(value)) if name in whole and isinstance(value, float) and is_near(value) else value
            for name, value in row.items()
        )
        for row in decode_locations(how.domain, points)
    )


def is_near(value: float) -> bool:
    """Say whether a number is a whole one but for rounding; a missing value's place may lie between."""
    return abs(value - round(value)) < NEAR


def _on_drawn_points(how: HistogramsThenMean, made: Mapping[str, Release]) -> dict[str, Any]:
    plans = {name: how.drawn(r.vectors[HISTOGRAMS], r.units) for name, r in made.items()}
    points = {name: plan.points for name, plan in plans.items() if plan.points is not None}
    law = "Gaussian" if how.noise == "gaussian" else "Laplace"
    return _embeddings(made) | {
        "method": (
            f"histograms of {how.histograms.size} cells, and mean embedding on {how.count} points drawn from "
            f"them, {law} noise"
        ),
        "noise_law": how.noise,
        "points": (),
        "drawn_points": {name: _rows_on_whole_numbers(how, found) for name, found in points.items()},
        "kernel": how.parameters.kernel,
        "bandwidth": how.kernel.bandwidth,
        "category_similarity": how.parameters.category_similarity,
        "bins": how.histograms.bins,
        "histograms": {name: noisy_shares(how, r.vectors[HISTOGRAMS], r.units) for name, r in made.items()},
        "histogram_noise": {name: deviation_of(r.vectors[HISTOGRAMS]) / r.units for name, r in made.items()},
    }


def _embeddings(made: Mapping[str, Release]) -> dict[str, Any]:
    noise = {name: deviation_of(r.vectors[MEAN]) / r.units for name, r in made.items()}
    return {
        "embedding": {name: tuple(r.vectors[MEAN].mean(r.units).tolist()) for name, r in made.items()},
        "noise": noise,
        "noise_error": {
            name: float(len(made[name].vectors[MEAN].values) ** 0.5) * value for name, value in noise.items()
        },
    }


def _noisy_means(mechanism: NoisyMean, made: Mapping[str, Release]) -> dict[str, Any]:
    plan = mechanism.plan
    return _embeddings(made) | {
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


def _method(plan: EmbeddingPlan) -> str:
    law = "Gaussian" if plan.noise == "gaussian" else "Laplace"
    if plan.candidates is not None:
        return f"one of {len(plan.candidates)} candidate databases, drawn by the exponential mechanism"
    if isinstance(plan.features, RandomFourier):
        return f"mean embedding on {plan.features.count} random frequencies, {law} noise"
    return f"mean embedding on {plan.features.dimension} public points, {law} noise"
