"""The error of private distance correlations on the eight data sets of P4's experiments, against epsilon.

    python -m benchmarks.p4_data_sets      # continues where it stopped; skips data sets that are not there

One owner holds the first half of the columns, the other the second. Data are fixed; what varies is the noise
and the public choices. The sketch runs as ``tacit.local.distance_correlation``; P4's projections go through
the procedure's parts, without its test, with simulated noise.
"""

import functools
import math
from pathlib import Path

import numpy as np

import tacit.local
from benchmarks.distance_correlation import DELTA, noise_multiplier
from benchmarks.harness import Answers, Cell, Counts, extent, main, picture, table
from benchmarks.p4_data import DATA_SETS, Exact, Floats, Halves, exact, read
from benchmarks.problems import MemoryTable, chunk_of
from tacit.errors import StudyRefusedError
from tacit.in_process.runner import local_study, seed_text
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections, deal_out
from tacit_protocol.features.brownian import random_directions
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.curated_distance_correlation import CuratedDistanceCorrelation, DistanceSummary
from tacit_protocol.procedures.distance_correlation.statistic import (
    NoisyProjections,
    RawCorrelation,
    raw_correlation,
)

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SKETCH, PNC, DISJOINT, CURATOR = "sketch", "pnc", "pnc-disjoint", "curator"
ATTRIBUTE = "P4 as published"
NOTHING = "saying 0"
METHODS = (SKETCH, PNC, DISJOINT, CURATOR, ATTRIBUTE)
SHOWN = (0.1, 1.0, 10.0)
"""Epsilons of the tables; pictures have all."""

QUANTITIES = {"covariance": "squared distance covariance", "correlation": "distance correlation"}

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
    table = MemoryTable(study.domain, chunk_of(np.hstack([halves.x, halves.y])))
    return CuratedDistanceCorrelation().summarise(study, table)


def projected_estimates(
    halves: Halves, epsilon: float, rng: np.random.Generator
) -> dict[str, tuple[float, float | None]]:
    """Return P4's raw values: noise at both owners for a unit; and at one, for one attribute."""
    sides = [halves.x, halves.y]
    features = [RowProjections(random_directions(side.shape[1], DIRECTIONS, rng)) for side in sides]
    projected = [map_(chunk_of(side)) for map_, side in zip(features, sides, strict=True)]
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


def _noisy(values: Floats, scale: float, columns: int, rng: np.random.Generator) -> NoisyProjections:
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


def error_of(method: str, epsilon: float, quantity: str) -> str:
    """Name the error of one method at one epsilon."""
    return f"{method} | {epsilon:g} | {quantity}"


def _present(counts: Counts) -> list[str]:
    return [name for name in DATA_SETS if counts.runs.get(name)]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    return {
        "runs": extent(counts.runs.values()),
        "exact values": _exact_table(counts),
        "sets": str(len(_present(counts))),
        "order": _order(counts),
    } | {f"error of the {quantity}": _errors(counts, quantity) for quantity in QUANTITIES}


def _exact_table(counts: Counts) -> str:
    columns = (
        ("rows", "units", ".0f"),
        ("dCov²", "exact covariance", ".2e"),
        ("dCor, unbiased", "exact correlation", ".3f"),
        ("dCor, V-statistic", "biased correlation", ".3f"),
    )
    rows = {
        name: {head: counts.shown(name, asked, form) for head, asked, form in columns}
        for name in _present(counts)
    }
    return table(rows, "data set")


def _order(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {method: {} for method in (*METHODS, NOTHING)}
    for epsilon in EPSILONS:
        places: dict[str, list[int]] = {method: [] for method in rows}
        nearer = dict.fromkeys(rows, 0)
        for name in _present(counts):
            errors = {m: counts.rate(name, error_of(m, epsilon, "covariance")) for m in METHODS}
            errors[NOTHING] = counts.rate(name, "exact covariance")
            known = {method: error for method, error in errors.items() if error is not None}
            for place, method in enumerate(sorted(known, key=known.__getitem__), start=1):
                places[method].append(place)
                nearer[method] += known[method] < known[NOTHING]
        for method, own in places.items():
            mean = f"{sum(own) / len(own):.1f}" if own else "–"
            rows[method][f"ε={epsilon:g}"] = mean if method == NOTHING else f"{mean} ({nearer[method]})"
    return table(rows, "method")


def _errors(counts: Counts, quantity: str) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name in _present(counts):
        zero = counts.rate(name, f"exact {quantity}") or 0.0
        for method in METHODS:
            label = f"{method} (not protecting a person)" if method == ATTRIBUTE else method
            row = rows.setdefault(f"{name}, {label}", {})
            for epsilon in SHOWN:
                row[f"ε={epsilon:g}"] = _shown(counts, name, error_of(method, epsilon, quantity))
        rows[f"{name}, {NOTHING}"] = {f"ε={epsilon:g}": _figure(zero) for epsilon in SHOWN}
    return table(rows, "data set, method")


def _shown(counts: Counts, name: str, question: str) -> str:
    error, answered = counts.rate(name, question), counts.answered.get((name, question), 0)
    if error is None:
        return "not stated"
    part = answered / counts.runs[name]
    return _figure(error) if part == 1 else f"{_figure(error)} ({part:.0%})"


def _figure(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= value < 10 else f"{value:.1e}"


STYLES = {
    SKETCH: ("#1f77b4", "-", "o"),
    PNC: ("#d62728", "-", "s"),
    DISJOINT: ("#ff7f0e", "-", "^"),
    CURATOR: ("#2ca02c", "-", "D"),
    ATTRIBUTE: ("#7f7f7f", "--", "x"),
}


TOP = 100
"""Pictures end at so many times the error of saying 0: above it nothing is of use."""


def _points(counts: Counts, name: str, method: str, quantity: str) -> list[tuple[float, float]]:
    """Return epsilons with errors, where half of the runs or more state a value."""
    points = []
    for epsilon in EPSILONS:
        question = error_of(method, epsilon, quantity)
        error, answered = counts.rate(name, question), counts.answered.get((name, question), 0)
        if error is not None and 2 * answered >= counts.runs[name]:
            points.append((epsilon, error))
    return points


def draw(counts: Counts, folder: Path) -> None:
    """Draw the errors against epsilon, a panel for each data set."""
    names = _present(counts)
    for quantity, words in QUANTITIES.items():
        path = folder / f"p4-{quantity}.svg"
        with picture(path, 2, 4, font_size=8, figsize=(11, 5.8)) as (figure, panels):
            for panel, name in zip(panels.flat, names, strict=False):
                zero = counts.rate(name, f"exact {quantity}") or 0.0
                shown = [zero]
                for method in METHODS:
                    points = _points(counts, name, method, quantity)
                    shown += [error for _, error in points]
                    colour, line, marker = STYLES[method]
                    label = f"{method}: does not protect a person" if method == ATTRIBUTE else method
                    xs, ys = [epsilon for epsilon, _ in points], [error for _, error in points]
                    panel.plot(xs, ys, line, color=colour, marker=marker, ms=4, mfc="none", label=label)
                panel.axhline(zero, color="black", lw=1.2, ls=":", label=NOTHING)
                panel.set(xscale="log", yscale="log", title=f"{name}, {counts.rate(name, 'units'):.0f} rows")
                panel.set_xticks(SHOWN, [f"{epsilon:g}" for epsilon in SHOWN])
                panel.set_xlim(EPSILONS[0] / 1.3, EPSILONS[-1] * 1.3)
                panel.set_ylim(min(shown) / 2, zero * TOP if max(shown) > zero * TOP else max(shown) * 2)
            for panel in panels.flat[len(names) :]:
                panel.set_visible(False)
            for panel in panels[1]:
                panel.set_xlabel("ε")
            figure.supylabel(f"mean error of the {words}")
            handles, labels = panels.flat[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)


if __name__ == "__main__":
    main(__doc__, "p4-data-sets", cells(), parts, draw)
