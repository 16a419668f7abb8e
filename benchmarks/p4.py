"""Private distance correlations of several columns a side, on the eight data sets of P4's experiments.

    python -m benchmarks.p4      # all pages; continues where it stopped; skips data sets that are not there
    python -m benchmarks.p4 --page p4-frequencies

Errors against epsilon: one owner holds the first half of the columns, the other the second. Data are fixed;
what varies is the noise and the public choices. The sketch runs as ``tacit.local.distance_correlation``; P4's
projections go through the procedure's parts, without its test, with simulated noise. The page p4-projections
has them for K = 3 and 7, the boundaries of their test, and P4's error term beside the values that P4 prints.

Frequencies: how many, on which interval. Laws are real data sets or drawn rows, of which every covariance of
features is known; the error is that of the law of the estimate's variance, and of what is left out; power is
of the procedure's test on normal buckets and on covariances with their noise. Nothing is private here.
"""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.spatial.distance import cdist

import tacit.local
from benchmarks.distance_correlation import noise_multiplier
from benchmarks.harness import (
    FOLDER,
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    Line,
    cells_of,
    curves,
    extent,
    grid,
    main,
    table,
)
from benchmarks.problems import MemoryTable, chunk_of
from tacit.errors import StudyRefusedError
from tacit.in_process.runner import local_study, terms
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections, deal_out
from tacit_protocol.features.brownian import BrownianFeatures, crowded_half_width, random_directions
from tacit_protocol.features.moments import DIAGONAL
from tacit_protocol.features.sketches import SKETCH as SKETCHED
from tacit_protocol.features.sketches import Side, SketchRelease
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr, projection_constant
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.curated_distance_correlation import CuratedDistanceCorrelation
from tacit_protocol.procedures.curated_distance_correlation.plan import DistanceSummary
from tacit_protocol.procedures.distance_correlation.release import (
    DistanceCorrelationParameters,
    SketchPlan,
    aimed,
)
from tacit_protocol.procedures.distance_covariance.statistic import (
    NoisyProjections,
    Permutations,
    RawCorrelation,
    permutation_test,
    raw_correlation,
)

BOUND_PERCENTILES = (0.5, 99.5)
"""Columns are clipped to these percentiles, which stand in for the public bounds that these data lack."""

BLOCK_ROWS = 512


DATA_SETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "parkinsons": ("parkinsons_telemonitoring.csv", ("subject",)),
    "wine": ("wine_white.csv", ()),
    "boston": ("boston_housing.csv", ()),
    "bike": ("seoul_bike.csv", ("date", "season", "holiday", "functioning_day")),
    "skillcraft": ("skillcraft1.csv", ("GameID",)),
    "naval": ("naval_propulsion.csv.gz", ()),
    "music": ("music_origin.csv.gz", ()),
    "madelon": ("madelon.csv.gz", ("split", "label")),
}
"""A file, and its columns that are no measurements."""


@dataclass(frozen=True)
class Halves:
    """Two owners' columns, (n, p) and (n, q), in [0, 1]."""

    x: Floats
    y: Floats

    @property
    def units(self) -> int:
        """Number of rows, each taken as a unit."""
        return len(self.x)


@functools.cache
def read(name: str) -> Halves:
    """Read complete rows, scale every column to [0, 1], and cut the columns into halves.

    Raises FileNotFoundError where the data are not there.
    """
    file, left_out = DATA_SETS[name]
    frame = pl.read_csv(FOLDER / file, null_values=["", "NA"], infer_schema_length=None)
    values = frame.drop(left_out).drop_nulls().to_numpy().astype(np.float64)
    low, high = np.percentile(values, BOUND_PERCENTILES, axis=0)
    varies = high > low
    scaled = np.clip((values[:, varies] - low[varies]) / (high - low)[varies], 0.0, 1.0)
    middle = scaled.shape[1] // 2
    return Halves(scaled[:, :middle], scaled[:, middle:])


@dataclass(frozen=True)
class Exact:
    """Without privacy, of distances over the public diameter: unbiased and V-statistics, squared."""

    covariance: float
    variances: tuple[float, float]
    covariance_biased: float
    variances_biased: tuple[float, float]

    @property
    def correlation(self) -> float:
        """The distance correlation, from unbiased parts."""
        return _root(self.covariance, self.variances)

    @property
    def correlation_biased(self) -> float:
        """The distance correlation of Szekely, Rizzo and Bakirov, from V-statistics."""
        return _root(self.covariance_biased, self.variances_biased)


def _root(covariance: float, variances: tuple[float, float]) -> float:
    return math.sqrt(max(0.0, covariance) / math.sqrt(variances[0] * variances[1]))


def exact(halves: Halves) -> Exact:
    """Compare all pairs of rows, block by block: O(n^2 (p + q)) time, little memory."""
    x, y = (side / math.sqrt(side.shape[1]) for side in (halves.x, halves.y))
    n = len(x)
    rows = np.zeros((2, n))
    products = np.zeros(3)
    for start in range(0, n, BLOCK_ROWS):
        part = slice(start, min(start + BLOCK_ROWS, n))
        a, b = cdist(x[part], x), cdist(y[part], y)
        rows[0, part], rows[1, part] = a.sum(axis=1), b.sum(axis=1)
        products += np.array([np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)])
    pairs = ((0, 1), (0, 0), (1, 1))
    unbiased, biased = [], []
    for total, (first, second) in zip(products, pairs, strict=True):
        crossed, sums = float(rows[first] @ rows[second]), float(rows[first].sum() * rows[second].sum())
        unbiased.append((total - 2 * crossed / (n - 2) + sums / ((n - 1) * (n - 2))) / (n * (n - 3)))
        biased.append(total / n**2 - 2 * crossed / n**3 + sums / n**4)
    return Exact(
        float(unbiased[0]),
        (float(unbiased[1]), float(unbiased[2])),
        float(biased[0]),
        (float(biased[1]), float(biased[2])),
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
def exact_values(name: str) -> Exact:
    """Return a data set's exact values, computed once."""
    return exact(read(name))


def run(name: str, number: int) -> Answers:
    """Ask every method at every epsilon, with noise and public choices of their own."""
    halves, truth = read(name), exact_values(name)
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
            method="sketch",
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
        **terms(epsilon, DELTA, 0.05, 0),
    )


@functools.cache
def exact_roots(name: str) -> DistanceSummary:
    """Return what the holder computes, the same at every epsilon."""
    halves, study = read(name), curated_study(name, 1.0)
    table = MemoryTable(study.domain, chunk_of(np.hstack([halves.x, halves.y])))
    return CuratedDistanceCorrelation().summarise(study, table)


def projected_estimates(
    halves: Halves, epsilon: float, rng: np.random.Generator, directions: int = DIRECTIONS
) -> dict[str, tuple[float, float | None]]:
    """Return P4's raw values: noise at both owners for a unit; and at one, for one attribute."""
    sides = [halves.x, halves.y]
    features = [RowProjections(random_directions(side.shape[1], directions, rng)) for side in sides]
    projected = [map_(chunk_of(side)) for map_, side in zip(features, sides, strict=True)]
    multiplier, blocks = noise_multiplier(epsilon), deal_out(halves.units, directions, rng)
    repeated, dealt = [], []
    for map_, side, values in zip(features, sides, projected, strict=True):
        columns = side.shape[1]
        scale = multiplier * ProjectionRelease(map_, False).parts(1)[0].sensitivity
        repeated.append(_noisy(values, scale, columns, rng))
        scale = multiplier * ProjectionRelease(map_, True).parts(1)[0].sensitivity
        dealt.append(_noisy(np.take_along_axis(values, blocks[:, None], axis=1), scale, columns, rng))
    # P4: one attribute of a row in the ball moves by 2/sqrt p; the other owner's projections are raw.
    columns = halves.x.shape[1]
    published = _noisy(projected[0], multiplier * _attribute_move(features[0], columns), columns, rng)
    raw = NoisyProjections(projected[1] / 2, 0.0, halves.y.shape[1])
    return {
        PNC: _both(raw_correlation(repeated[0], repeated[1], None)),
        DISJOINT: _both(raw_correlation(dealt[0], dealt[1], blocks)),
        ATTRIBUTE: _both(raw_correlation(published, raw, None)),
    }


def _attribute_move(features: RowProjections, columns: int) -> float:
    """Return P4's w_2: how far one attribute of a row moves its projections."""
    return 2 / math.sqrt(columns) * float(np.linalg.norm(features.directions, axis=0).max())


def _noisy(values: Floats, scale: float, columns: int, rng: np.random.Generator) -> NoisyProjections:
    """Add noise and halve, as a reader of the release does: the ball then has diameter 1."""
    noisy = (values + scale * rng.standard_normal(values.shape)) / 2
    return NoisyProjections(noisy, scale / 2, columns)


def _both(raw: RawCorrelation) -> tuple[float, float]:
    return raw.covariance_sqr, math.sqrt(min(1.0, max(0.0, raw.correlation_sqr)))


def cells() -> list[Cell]:
    """List a cell for every data set that is there."""
    made: list[Cell] = []
    for name, (file, _) in DATA_SETS.items():
        if (FOLDER / file).exists():
            made += cells_of("{}", FEWER_RUNS.get(name, RUNS), run, [name])
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


TOP = 100
"""Pictures end at so many times the error of saying 0: above it nothing is of use."""


def draw(counts: Counts, folder: Path) -> None:
    """Draw the errors against epsilon, a panel a data set, where half of the runs or more state a value."""
    for quantity, words in QUANTITIES.items():
        panels: dict[str, dict[str, list[Line]]] = {}
        for name in _present(counts):
            zero = counts.rate(name, f"exact {quantity}") or 0.0
            panels[name] = {NOTHING: [(EPSILONS, [zero] * len(EPSILONS))]}
            for method in METHODS:
                asked = [error_of(method, epsilon, quantity) for epsilon in EPSILONS]
                often = [2 * counts.answered.get((name, one), 0) >= counts.runs[name] for one in asked]
                rates = zip(asked, often, strict=True)
                errors = [counts.rate(name, one) if stated else None for one, stated in rates]
                shown = [None if error is None or error > TOP * zero else error for error in errors]
                label = f"{method}: does not protect a person" if method == ATTRIBUTE else method
                panels[name][label] = [(EPSILONS, shown)]
        curves(folder / f"p4-{quantity}.svg", panels, "ε", f"mean error of the {words}", rows=2)


FEW_DIRECTIONS = (3, 7)
"""P4's other numbers of projections: what naval's 11 934 rows leave room for, and wine's 4898."""

PROJECTED = (PNC, DISJOINT, ATTRIBUTE)

PROJECTION_RUNS, BOUNDARY_RUNS, BOUNDARY_PERMUTATIONS = 7, 2, 99

WITHOUT_NOISE = math.inf
BOUNDARY_EPSILONS = (1.0, 10.0, WITHOUT_NOISE)


def projections_run(name: str, directions: int, number: int) -> Answers:
    """Return the errors of so many projections at every epsilon."""
    halves, truth = read(name), exact_values(name)
    rng = np.random.default_rng([number, halves.units, directions])
    answers: dict[str, float] = {"exact covariance": truth.covariance}
    for epsilon in EPSILONS:
        found = projected_estimates(halves, epsilon, rng, directions)
        for method, (covariance, _) in found.items():
            answers[error_of(method, epsilon, "covariance")] = abs(covariance - truth.covariance)
    return answers


def boundaries_run(name: str, directions: int, number: int) -> Answers:
    """Return n Omega and the boundary above which the permutation test rejects at the level."""
    halves = read(name)
    rng = np.random.default_rng([number, halves.units, directions, BOUNDARY_PERMUTATIONS])
    sides, features, answers = [halves.x, halves.y], [], {}
    for side in sides:
        features.append(RowProjections(random_directions(side.shape[1], directions, rng)))
    for epsilon in BOUNDARY_EPSILONS:
        released = []
        for map_, side in zip(features, sides, strict=True):
            sensitivity = ProjectionRelease(map_, False).parts(1)[0].sensitivity
            scale = 0.0 if epsilon == WITHOUT_NOISE else noise_multiplier(epsilon) * sensitivity
            released.append(_noisy(map_(chunk_of(side)), scale, side.shape[1], rng))
        observed = _omega(released[0], released[1].values, released[1].columns)
        null = [
            _omega(released[0], rng.permutation(released[1].values), released[1].columns)
            for _ in range(BOUNDARY_PERMUTATIONS)
        ]
        # With 99 permutations the test rejects where at most 4 of them reach the statistic.
        boundary = sorted(null)[-math.floor(LEVEL * (BOUNDARY_PERMUTATIONS + 1))]
        answers[f"{epsilon:g} | boundary"] = halves.units * boundary
        answers[f"{epsilon:g} | observed"] = halves.units * observed
    return answers


def _omega(first: NoisyProjections, second: Floats, columns: int) -> float:
    """Return Omega, averaged over projections, of one side's values and another's, in some order."""
    constants = projection_constant(first.columns) * projection_constant(columns)
    pairs = zip(first.values.T, second.T, strict=True)
    return constants * float(np.mean([distance_covariance_sqr(x, y) for x, y in pairs]))


PRINTED = {
    "parkinsons": (0.0689, 0.0827),
    "wine": (0.03687, 0.0475),
    "boston": (0.0106, 0.0263),
    "bike": (0.1740, 0.1844),
    "skillcraft": (0.1368, 0.1662),
    "naval": (0.0583, 0.0641),
    "music": (0.1784, 0.2547),
    "madelon": (0.0919, 0.1046),
}
"""The least and largest t_bd of P4's appendix A."""

TERM_EPSILONS, TERM_DRAWS = (1.0, 10.0, 100.0), 20


def term_run(name: str, directions: int, _: int) -> Answers:
    """Return the least and largest error term of P4's theorem 1, over draws of directions and P4's noise.

    With C = C_p C_q, 4 C / (K n (n - 2)(n - 3)) times the sum, over projections k and rows i, of
    sum_l |N_i - N_l| sum_l |v_k'(Y_i - Y_l)|.
    """
    halves, rng = read(name), np.random.default_rng([read(name).units, directions])
    n, (p, q) = halves.units, (halves.x.shape[1], halves.y.shape[1])
    factor = 4 * projection_constant(p) * projection_constant(q) / (directions * n * (n - 2) * (n - 3))
    found: dict[float, list[float]] = {epsilon: [] for epsilon in TERM_EPSILONS}
    for _ in range(TERM_DRAWS):
        first, second = (RowProjections(random_directions(c, directions, rng)) for c in (p, q))
        noise = _row_sums(rng.standard_normal((n, directions)))
        # In distances over the public diameter, as all values of the page.
        crossed = float(np.sum(noise * _row_sums(second(chunk_of(halves.y)) / 2)))
        for epsilon, drawn in found.items():
            scale = noise_multiplier(epsilon) * _attribute_move(first, p) / 2
            drawn.append(factor * scale * crossed)
    return {
        f"{epsilon:g} | {end}": pick(drawn)
        for epsilon, drawn in found.items()
        for end, pick in (("least", min), ("most", max))
    }


def _row_sums(values: Floats) -> Floats:
    """Return the sum of distances to all rows, (n, K), in every column of (n, K), by sorting."""
    order, n = np.argsort(values, axis=0), len(values)
    ranked = np.take_along_axis(values, order, axis=0)
    before = np.cumsum(ranked, axis=0) - ranked
    sums = ranked * (2 * np.arange(n)[:, None] - n) + ranked.sum(axis=0) - 2 * before
    np.put_along_axis(ranked, order, sums, axis=0)
    return ranked


def projection_cells() -> list[Cell]:
    """List the cells of every data set that is there: errors, boundaries, and error terms."""
    there = [name for name, (file, _) in DATA_SETS.items() if (FOLDER / file).exists()]
    return [
        *cells_of("{}, K={}", PROJECTION_RUNS, projections_run, there, FEW_DIRECTIONS),
        *cells_of("{}, K={}, boundary", BOUNDARY_RUNS, boundaries_run, there, FEW_DIRECTIONS),
        *cells_of("{}, K={}, error term", 1, term_run, there, FEW_DIRECTIONS),
    ]


def projection_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    errors: dict[str, dict[str, str]] = {}
    boundaries: dict[str, dict[str, str]] = {}
    terms: dict[str, dict[str, str]] = {}
    for name in DATA_SETS:
        for directions in FEW_DIRECTIONS:
            cell = f"{name}, K={directions}"
            if not counts.runs.get(cell):
                continue
            for method in PROJECTED:
                label = f"{method} (not protecting a person)" if method == ATTRIBUTE else method
                asked = {f"ε={epsilon:g}": error_of(method, epsilon, "covariance") for epsilon in SHOWN}
                found = {head: counts.rate(cell, one) for head, one in asked.items()}
                errors[f"{cell}, {label}"] = {head: _figure(one or 0.0) for head, one in found.items()}
            zero = counts.rate(cell, "exact covariance") or 0.0
            errors[f"{cell}, {NOTHING}"] = {f"ε={epsilon:g}": _figure(zero) for epsilon in SHOWN}
            boundaries[cell] = {}
            for epsilon in BOUNDARY_EPSILONS:
                head = "no noise" if epsilon == WITHOUT_NOISE else f"ε={epsilon:g}"
                for what, words in (("boundary", "boundary"), ("observed", "n Ω")):
                    value = counts.rate(f"{cell}, boundary", f"{epsilon:g} | {what}")
                    boundaries[cell][f"{head}, {words}"] = "" if value is None else f"{value:.3g}"
            terms[cell] = {"t_bd of P4": "{:g} to {:g}".format(*PRINTED[name])}
            for epsilon in TERM_EPSILONS:
                ends = (f"{epsilon:g} | least", f"{epsilon:g} | most")
                shown = [counts.shown(f"{cell}, error term", end, ".3g") for end in ends]
                terms[cell][f"term, ε={epsilon:g}"] = " to ".join(shown)
            terms[cell]["boundary, no noise"] = boundaries[cell]["no noise, boundary"]
    return {
        "runs": extent(counts.runs.get(cell, 0) for cell in boundaries),
        "permutations": f"{BOUNDARY_PERMUTATIONS} permutations, mean of {BOUNDARY_RUNS} runs",
        "error": table(errors, "data set, K, method"),
        "boundaries": table(boundaries, "data set, K"),
        "draws": str(TERM_DRAWS),
        "terms": table(terms, "data set, K"),
    }


def draw_projections(counts: Counts, folder: Path) -> None:
    """Draw the errors against epsilon, a panel a data set; K = 3 solid, K = 7 dashed."""
    panels: dict[str, dict[str, list[Line]]] = {}
    for name in DATA_SETS:
        cells_there = [f"{name}, K={directions}" for directions in FEW_DIRECTIONS]
        zero = counts.rate(cells_there[0], "exact covariance")
        if zero is None:
            continue
        panels[name] = {NOTHING: [(EPSILONS, [zero] * len(EPSILONS))]}
        for method in PROJECTED:
            label = f"{method}: does not protect a person" if method == ATTRIBUTE else method
            panels[name][label] = [
                (
                    EPSILONS,
                    [counts.rate(cell, error_of(method, epsilon, "covariance")) for epsilon in EPSILONS],
                )
                for cell in cells_there
            ]
    curves(
        folder / "p4-projections.svg", panels, "ε", f"mean error of the {QUANTITIES['covariance']}", rows=2
    )


DELTA, LEVEL = 1e-5, 0.05
ROWS, DRAWS, POWER_RUNS, PERMUTATIONS = 3000, 4, 60, 99
"""Rows of a law at most, draws of directions, runs of a power and permutations of each."""

SETTINGS = (
    (100, 10.0),
    (1000, 1.0),
    (1000, 10.0),
    (5000, 1.0),
    (5000, 10.0),
    (20_000, 1.0),
    (20_000, 10.0),
)
POWER_SETTINGS = ((100, 10.0), (1000, 10.0), (5000, 1.0), (5000, 10.0), (20_000, 1.0))
"""At the others every choice has power near the level, or near 1."""

CHOICES = (("whole", 2), ("whole", 4), ("crowded", 1), ("crowded", 2), ("crowded", 4), ("crowded", 8))
REAL = ("parkinsons", "wine", "boston", "bike", "skillcraft", "naval", "music")
DRAWN = (1, 2, 3, 5)
NOISE = 0.5
"""Deviation of what is added to every drawn column."""


@dataclass(frozen=True)
class Moments:
    """Covariances of one choice's features, and how both sides release them."""

    columns: tuple[int, int]
    sketches: tuple[SketchRelease, SketchRelease]
    own: tuple[Floats, Floats]
    cross: Floats

    @property
    def kept(self) -> float:
        """The squared distance covariance in the frequencies kept."""
        return 4 * float(np.sum(self.cross**2))


@functools.cache
def law(name: str) -> Halves:
    """Read or draw a law's rows."""
    rng = np.random.default_rng(1)
    if name in REAL:
        halves = read(name)
        chosen = rng.permutation(halves.units)[:ROWS]
        return Halves(halves.x[chosen], halves.y[chosen])
    x = rng.random((ROWS, int(name.rsplit(maxsplit=1)[-1])))
    return Halves(x, np.clip(x + NOISE * rng.standard_normal(x.shape), 0, 1))


@functools.cache
def exact_covariance(name: str) -> float:
    """Return the law's squared distance covariance."""
    return exact(law(name)).covariance


@functools.cache
def moments(name: str, placement: str, count: int, draw: int) -> Moments:
    """Compute the covariances of features; directions of one draw are the same for every choice."""
    rng, sketches, values = np.random.default_rng([2, draw]), [], []
    for side in (law(name).x, law(name).y):
        columns = side.shape[1]
        directions = np.ones((1, 1)) if columns == 1 else random_directions(columns, aimed(columns), rng)
        half_width = crowded_half_width(columns) if placement == "crowded" else None
        features = BrownianFeatures(directions, count, half_width=half_width)
        found = features(chunk_of(side))
        sketches.append(SketchRelease(features))
        values.append(found - found.mean(axis=0))
    f, g = values
    own = (f.T @ f / len(f), g.T @ g / len(g))
    columns = (law(name).x.shape[1], law(name).y.shape[1])
    return Moments(columns, (sketches[0], sketches[1]), own, f.T @ g / len(f))


@dataclass(frozen=True)
class Released:
    """The law of what a tester reads at so many units: buckets' covariances, and the noise on moments."""

    buckets: int
    units: int
    noises: tuple[float, float]
    moment_noises: tuple[float, float]
    own: tuple[Floats, Floats]
    cross: Floats

    @classmethod
    def of(cls, found: Moments, units: int, epsilon: float) -> "Released":
        """Lay both releases out as the procedure does."""
        plan = SketchPlan(
            None,  # its sketches are not those of a study
            DistanceCorrelationParameters(),
            gaussian_guarantee(Budget.of(epsilon, DELTA)),
            found.columns,
            found.sketches,
        )
        design, noises, moment_noises = plan.design(units), [], []
        for side in (0, 1):
            scales = {part.name: part.scale(plan.mu) for part in plan.layout(side, units)}
            noises.append(scales[SKETCHED] / math.sqrt(design.bucket_units))
            moment_noises.append(scales[DIAGONAL] / units)
        return cls(
            design.buckets,
            units,
            (noises[0], noises[1]),
            (moment_noises[0], moment_noises[1]),
            found.own,
            found.cross,
        )

    def spreads(self) -> list[Floats]:
        """Return both covariances of a bucket."""
        return [own + noise**2 * np.eye(len(own)) for own, noise in zip(self.own, self.noises, strict=True)]

    def deviation(self) -> float:
        """Return the standard deviation of the estimate, by the law of its variance."""
        a, b = self.spreads()
        pair = float(np.sum(a * a) * np.sum(b * b))
        single = float(np.sum((a @ self.cross @ b) * self.cross) + np.sum((self.cross.T @ self.cross) ** 2))
        return 4 * math.sqrt(4 * single / self.buckets + 2 * pair / self.buckets**2)

    def power(self, runs: int) -> float:
        """Return how often the test rejects."""
        a, b = self.spreads()
        joint, rejected = np.block([[a, self.cross], [self.cross.T, b]]), 0
        values, vectors = np.linalg.eigh(joint)
        root = vectors * np.sqrt(np.maximum(values, 0))
        for run in range(runs):
            rng = np.random.default_rng(run)
            drawn = rng.standard_normal((self.buckets, len(joint))) @ root.T
            sides = [
                Side(
                    *(part, noise, own + _symmetric(len(own), scale, rng), scale),
                    *(1.0, 0.0, self.units, np.zeros(len(own)), 0.0),
                )
                for part, noise, own, scale in zip(
                    (drawn[:, : len(a)], drawn[:, len(a) :]),
                    self.noises,
                    self.own,
                    self.moment_noises,
                    strict=True,
                )
            ]
            rejected += permutation_test(sides[0], sides[1], Permutations(PERMUTATIONS, rng)).pvalue <= LEVEL
        return rejected / runs


def _symmetric(size: int, scale: float, rng: np.random.Generator) -> Floats:
    """Draw noise on a second moment: entries above the diagonal have half the variance."""
    noise = np.triu(rng.standard_normal((size, size)) * scale / math.sqrt(2), 1)
    return np.asarray(noise + noise.T + np.diag(rng.standard_normal(size) * scale))


def frequencies_run(name: str, _: int) -> Answers:
    """Work out every choice for a law: what is kept, its spread over draws, errors and powers."""
    answers: dict[str, float] = {}
    for choice in CHOICES:
        label = "{}, {}".format(*choice)
        draws = [moments(name, *choice, draw) for draw in range(DRAWS)]
        kept = np.array([found.kept for found in draws]) / exact_covariance(name)
        answers |= {f"{label} | kept": float(kept.mean()), f"{label} | spread": float(kept.std(ddof=1))}
        for units, epsilon in SETTINGS:
            row = f"{label} | n={units}, ε={epsilon:g}"
            laws = [Released.of(found, units, epsilon) for found in draws]
            spread = np.array([found.deviation() for found in laws]) / exact_covariance(name)
            answers[f"{row} | error"] = math.sqrt(np.mean(spread**2 + (kept - 1) ** 2))
            if name not in REAL and (units, epsilon) in POWER_SETTINGS:
                answers[f"{row} | power"] = laws[0].power(POWER_RUNS)
    return answers


def frequency_cells() -> list[Cell]:
    """List a cell for every law."""
    return cells_of("{}", 1, frequencies_run, [*REAL, *(f"drawn, {columns}" for columns in DRAWN)])


def frequency_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    choices = [(label, label) for label in ("{}, {}".format(*choice) for choice in CHOICES)]
    laws = [(name, name) for name in counts.runs]
    settings = [f"n={units}, ε={epsilon:g}" for units, epsilon in SETTINGS]
    rows = [(f"{name}, {setting}", (name, setting)) for name in counts.runs for setting in settings]

    def kept(name: str, label: str) -> str:
        spread = counts.shown(name, f"{label} | spread", ".2f")
        return f"{counts.shown(name, f'{label} | kept', '.2f')} ({spread})"

    def shown(what: str, form: str) -> str:
        def cell(row: tuple[str, str], label: str) -> str:
            return counts.shown(row[0], f"{label} | {row[1]} | {what}", form)

        return grid("law, units, epsilon", rows, choices, cell)

    return {
        "kept": grid("law", laws, choices, kept),
        "error": shown("error", ".2g"),
        "power": shown("power", ".2f"),
    }


BENCHMARKS = (
    Benchmark("p4-data-sets", cells, parts, draw),
    Benchmark("p4-projections", projection_cells, projection_parts, draw_projections),
    Benchmark("p4-frequencies", frequency_cells, frequency_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
