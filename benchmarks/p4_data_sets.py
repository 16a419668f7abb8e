"""The error of private distance correlations on the eight data sets of P4's experiments, against epsilon.

    python -m benchmarks.p4_data_sets      # continues where it stopped; skips data sets that are not there

One owner holds the first half of the columns, the other the second. Data are fixed; what varies is the noise
and the public choices. The sketch runs as ``tacit.local.distance_correlation``; P4's projections go through
the procedure's parts, without its test, with simulated noise.
"""

import functools
import math

import numpy as np

import tacit.local
from benchmarks.p4_data import DATA_SETS, Exact, Halves, exact, read
from benchmarks.p4_page import (
    ATTRIBUTE,
    CURATOR,
    DELTA,
    DISJOINT,
    EPSILONS,
    PNC,
    SKETCH,
    draw,
    error_of,
    text,
)
from benchmarks.resumable import Answers, Cell, main
from benchmarks.two_sample import ArrayTable
from tacit.errors import StudyRefusedError
from tacit.in_process.runner import local_study, seed_text
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections, deal_out
from tacit_protocol.features.brownian import random_directions
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.curated_distance_correlation import CuratedDistanceCorrelation, DistanceSummary
from tacit_protocol.procedures.distance_correlation.statistic import (
    NoisyProjections,
    RawCorrelation,
    raw_correlation,
)

RUNS = 20
DIRECTIONS = 8
"""P4's projections; the procedure's default."""

FEWER_RUNS = {"madelon": 10}
"""A run with 250 columns a side takes as long as four of the others."""


@functools.cache
def exact_of(name: str) -> Exact:
    """Return a data set's exact values, computed once."""
    return exact(read(name))


def run(name: str, number: int) -> Answers:
    """Ask every method at every epsilon, with noise and public choices of their own."""
    halves, truth = read(name), exact_of(name)
    rng = np.random.default_rng([number, halves.units])
    answers: dict[str, float] = {"exact covariance": truth.covariance, "exact correlation": truth.correlation}
    answers |= {"biased correlation": truth.correlation_biased, "units": halves.units}
    for epsilon in EPSILONS:
        found: dict[str, tuple[float, float | None]] = {
            CURATOR: curator_estimate(name, epsilon),
            **projected_estimates(halves, epsilon, rng),
        }
        sketched = sketch_estimate(halves, epsilon, int(rng.integers(2**31)))
        if sketched is not None:
            found[SKETCH] = sketched
        for method, (covariance, correlation) in found.items():
            answers[error_of(method, epsilon, "covariance")] = abs(covariance - truth.covariance)
            if correlation is not None:
                answers[error_of(method, epsilon, "correlation")] = abs(correlation - truth.correlation)
    return answers


def sketch_estimate(halves: Halves, epsilon: float, seed: int) -> tuple[float, float | None] | None:
    """Ask the procedure; None where it refuses so few rows."""
    try:
        found = tacit.local.distance_correlation(
            halves.x,
            halves.y,
            epsilon=epsilon,
            delta=DELTA,
            bounds=(0, 1),
            n_permutations=99,
            seed=seed,
        )
    except StudyRefusedError:
        return None
    return found.distance_covariance_sqr, found.distance_correlation


def noise_multiplier(epsilon: float, delta: float = DELTA) -> float:
    """Return the deviation of a Gaussian mechanism of sensitivity 1."""
    event = gaussian_guarantee(Budget.of(epsilon, delta)).events[0]
    assert isinstance(event, GaussianEvent)
    return event.noise_multiplier


def curator_estimate(name: str, epsilon: float) -> tuple[float, float | None]:
    """Ask ``curated_distance_correlation``: exact roots once for each data set, fresh noise every time."""
    procedure, study = CuratedDistanceCorrelation(), curated_study(name, epsilon)
    release = procedure.privatise(study, exact_roots(name), OpenDPNoise())
    verdict = procedure.assemble(study, {study.senders[0].name: release})
    return verdict.distance_covariance_sqr, verdict.distance_correlation


def curated_study(name: str, epsilon: float) -> Study:
    """Build the study of one holder of all columns, without a test."""
    halves = read(name)
    groups = [[f"{side}{i}" for i in range(v.shape[1])] for side, v in (("x", halves.x), ("y", halves.y))]
    columns = tuple(NumericColumn(name=column, lower=0, upper=1) for column in (*groups[0], *groups[1]))
    return local_study(
        "curated_distance_correlation",
        Domain(columns=columns),
        ["owner"],
        {"groups": groups, "test": False},
        epsilon=epsilon,
        delta=DELTA,
        alpha=0.05,
        seed=seed_text(0),
    )


@functools.cache
def exact_roots(name: str) -> DistanceSummary:
    """Return what the holder computes, the same at every epsilon."""
    halves, study = read(name), curated_study(name, 1.0)
    table = ArrayTable(study.domain, np.hstack([halves.x, halves.y]))
    return CuratedDistanceCorrelation().summarise(study, table)


def projected_estimates(
    halves: Halves, epsilon: float, rng: np.random.Generator
) -> dict[str, tuple[float, float | None]]:
    """Return P4's raw values: noise at both owners for a unit; and at one, for one attribute."""
    sides = [halves.x, halves.y]
    features = [RowProjections(random_directions(side.shape[1], DIRECTIONS, rng)) for side in sides]
    projected = [map_(_chunk(side)) for map_, side in zip(features, sides, strict=True)]
    multiplier, blocks = noise_multiplier(epsilon), deal_out(halves.units, DIRECTIONS, rng)
    repeated, dealt = [], []
    for map_, side, values in zip(features, sides, projected, strict=True):
        columns = side.shape[1]
        scale = multiplier * ProjectionRelease(map_, False).parts(1)[0].sensitivity
        repeated.append(_noisy(values, scale, columns, rng))
        scale = multiplier * ProjectionRelease(map_, True).parts(1)[0].sensitivity
        dealt.append(_noisy(np.take_along_axis(values, blocks[:, None], axis=1), scale, columns, rng))
    # P4: one attribute of a row in the ball moves by 2/sqrt p; the other owner's projections are raw.
    columns = halves.x.shape[1]
    moved = 2 / math.sqrt(columns) * float(np.linalg.norm(features[0].directions, axis=0).max())
    published = _noisy(projected[0], multiplier * moved, columns, rng)
    raw = NoisyProjections(projected[1] / 2, 0.0, halves.y.shape[1])
    return {
        PNC: _both(raw_correlation(repeated[0], repeated[1], None)),
        DISJOINT: _both(raw_correlation(dealt[0], dealt[1], blocks)),
        ATTRIBUTE: _both(raw_correlation(published, raw, None)),
    }


def _chunk(side: np.typing.NDArray[np.float64]) -> EncodedChunk:
    return EncodedChunk(side, np.zeros((len(side), 0), dtype=np.int32), None, len(side))


def _noisy(
    values: np.typing.NDArray[np.float64], scale: float, columns: int, rng: np.random.Generator
) -> NoisyProjections:
    """Add noise and halve, as a reader of the release does: the ball then has diameter 1."""
    noisy = (values + scale * rng.standard_normal(values.shape)) / 2
    return NoisyProjections(noisy, scale / 2, columns)


def _both(raw: RawCorrelation) -> tuple[float, float]:
    return raw.covariance_sqr, math.sqrt(min(1.0, max(0.0, raw.correlation_sqr)))


def cells() -> list[Cell]:
    """List a cell for every data set that is there."""
    made = []
    for name, data_set in DATA_SETS.items():
        if data_set.path.exists():
            made.append(Cell(name, FEWER_RUNS.get(name, RUNS), functools.partial(run, name)))
        else:
            print(f"skipped {name}: {data_set.file} is not there")
    return made


if __name__ == "__main__":
    main(__doc__, "p4-data-sets", cells(), text, draw)
