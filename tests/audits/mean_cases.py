"""The audited studies of means of features: both two-sample tests, and ``embedding_release``.

The features' farthest units are found by the search. At the curator the replaced unit stands in the first
sample or in the second, by turns, among samples of equal and of unequal sizes: the noise on the difference
and on the centre has to hide either. The ridge statistic and the permuted distances have neighbours of their
own, made from the proofs of their bounds.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from audited_studies import (
    BLACK_BOX_EPSILON,
    TWO_OWNERS,
    domain,
    farthest_units,
    neighbours,
    no_codes,
    random_rows,
    rows_at,
    space_of,
    study,
    table,
    worst_units,
)
from release_audit import Neighbours, ReleaseCase, release

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import Domain, PooledTable
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.embedding_release.release import HISTOGRAMS, database_plan

ONE_NUMBER, NUMBERS, MIXED, CATEGORIES = domain(1), domain(2), domain(2, "ab"), domain(0, "a", "a")

ME: dict[str, Any] = {"features": "me"}
NARROW: dict[str, Any] = {"bandwidth": 0.02}
COLUMNS: dict[str, Any] = {"features": "columns", "cycles": (1.0, 2.0)}
HALF_CYCLE: dict[str, Any] = {"features": "columns", "cycles": (0.5,)}
PAPER: dict[str, Any] = {"calibration": "paper"}


def case(asked: Study, find: Callable[..., Neighbours], *given: Any, **parts: Any) -> ReleaseCase:
    return ReleaseCase(asked, partial(find, asked, *given), **parts)


# kernel_two_sample.


def kernel_study(columns: Domain, parameters: Mapping[str, Any], epsilon: float = 1.0) -> Study:
    return study("kernel_two_sample", columns, parameters, epsilon, owners=TWO_OWNERS)


KERNEL_STUDIES = {
    "default, 2 numbers": kernel_study(NUMBERS, {}),
    "default, mixed": kernel_study(MIXED, {}),
    "columns, mixed": kernel_study(MIXED, COLUMNS, 0.3),
    "moments, columns, mixed": kernel_study(MIXED, {"features": "columns"}, 0.3),
    "ME, narrow": kernel_study(NUMBERS, ME | NARROW | {"n_features": 6}),
    "ME, wide": kernel_study(NUMBERS, ME | {"n_features": 20, "bandwidth": 2.0}),
    "ME, mixed": kernel_study(MIXED, ME | {"n_features": 15, "kernel": "laplacian"}, 0.5),
    "ME, one location": kernel_study(NUMBERS, ME | {"n_features": 1}),
    "SCF": kernel_study(NUMBERS, {"features": "scf", "n_features": 10}),
    "SCF, window": kernel_study(NUMBERS, {"features": "scf", "n_features": 10, "window": 0.3}),
    "P0's ME": kernel_study(NUMBERS, ME | PAPER | {"n_features": 4}),
    "P0's SCF": kernel_study(NUMBERS, PAPER | {"features": "scf", "n_features": 4}),
}

FEW_NUMBERS = {
    name: kernel_study(columns, parameters, BLACK_BOX_EPSILON)
    for name, columns, parameters in (
        ("columns, 1 number", ONE_NUMBER, HALF_CYCLE),
        ("default, 2 categories", CATEGORIES, {}),
        ("ME, 1 narrow location", NUMBERS, ME | NARROW | {"n_features": 1}),
        ("ME, 2 narrow locations", NUMBERS, ME | NARROW | {"n_features": 2}),
        ("SCF, 1 frequency", NUMBERS, {"features": "scf", "n_features": 2}),
        ("P0's ME, 2 locations", NUMBERS, ME | PAPER | {"n_features": 2}),
        ("P0's SCF, 1 frequency", NUMBERS, PAPER | {"features": "scf", "n_features": 2}),
    )
}
"""Studies whose release is a handful of numbers, so that it can be run some hundred thousand times."""


def worst_neighbours(asked: Study, index: int) -> Neighbours:
    """The worst pair among other units: the rounding differs between tables."""
    return neighbours(asked.domain, random_rows(asked.domain, index, 1 + 7 * index), *worst_units(asked))


REACHED = {
    "columns, mixed": 0.999,
    "default, 2 numbers": 0.9,
    "moments, columns, mixed": 0.999,
    "ME, narrow": 0.999,
    "SCF": 0.8,
}
"""Where the search is known to come so near to the noise's sensitivity."""

FINE: Mapping[str, Any] = {"features": "columns", "fine_cells": True}

K_NORM = {
    name: study("kernel_two_sample", columns, {"noise": "k-norm"} | more, epsilon, 0.0, owners=TWO_OWNERS)
    for name, columns, more, epsilon in (
        ("K-norm, 1 number", ONE_NUMBER, {}, 1.0),
        ("K-norm, 2 numbers, squares", NUMBERS, {"features": "columns", "resolution": 8}, 1.0),
        ("K-norm, mixed", MIXED, {"features": "columns"}, 0.3),
        ("K-norm, pairs, mixed", MIXED, {"resolution": 4}, 0.3),
        ("K-norm, pairs, squares", NUMBERS, {"resolution": 8}, 1.0),
        ("K-norm, categories", CATEGORIES, {}, BLACK_BOX_EPSILON),
        ("K-norm, 20 numbers", domain(20), {"features": "columns"}, 1.0),
        ("K-norm, fine cells", ONE_NUMBER, FINE, 1.0),
        ("K-norm, fine cells, mixed", MIXED, FINE | {"features": "auto", "resolution": 4}, 5.0),
    )
}
"""Studies of cells and means in pure epsilon."""


def far_pairs(asked: Study, index: int) -> Neighbours:
    """Units at the two ends of columns, or half or a third of them apart, in other cells."""
    rng, numeric = np.random.default_rng(index), len(asked.domain.numeric)
    one, other = rows_at(asked.domain, 0, 1 + index % 3), rows_at(asked.domain, 1, 1)
    one.numeric[:] = rng.choice([0.0, 0.1, 0.25, 0.5], numeric)
    other.numeric[:] = one.numeric[0] + rng.choice([0.5, 1 / 3, 0.4], numeric)
    if index < 2:
        one.numeric[:], other.numeric[:] = index * 0.25, 1 - index * 0.25
    return neighbours(asked.domain, random_rows(asked.domain, index, 1 + 7 * index), one, other)


KERNEL_TWO_SAMPLE = {
    name: case(asked, worst_neighbours, reached=REACHED.get(name, 0.3), black_box=name in FEW_NUMBERS)
    for name, asked in (KERNEL_STUDIES | FEW_NUMBERS).items()
} | {
    name: case(asked, far_pairs, reached=0.98, black_box="1 number" in name) for name, asked in K_NORM.items()
}


# curated_two_sample.

REGULARISATION = 0.1
"""Gamma of the audited statistic."""


def curated_study(
    columns: Domain, parameters: Mapping[str, Any], epsilon: float = 1.0, **fields: Any
) -> Study:
    return study(
        "curated_two_sample",
        columns,
        {"release": "mean-covariance"} | dict(parameters),
        epsilon,
        owners=TWO_OWNERS,
        curated=True,
        **fields,
    )


def pooled(asked: Study, first: Rows, second: Rows, unit: Rows, place: int = 0) -> PooledTable:
    """Two samples of one-row units; ``unit`` is one more, of any number of rows, in the sample ``place``."""
    parts = {}
    for index, (owner, rows) in enumerate(zip(asked.owners, (first, second), strict=True)):
        own = unit if index == place else rows.take(slice(0, 0))
        parts[owner.name] = table(asked.domain, rows, own, len(own) > 1)
    return PooledTable(asked.domain, parts)


def means_neighbours(asked: Study, ratio: int, rows_per_unit: int, index: int) -> Neighbours:
    """The worst pair of units in a sample of 2 + index units, the other sample being ``ratio`` times larger.

    In the larger sample for odd indices.
    """
    unit, other = worst_units(asked, rows_per_unit)
    rng = np.random.default_rng(index)
    space, place = space_of(asked.domain), index % 2
    sizes = [1 + index, ratio * (2 + index)] if place == 0 else [2 + index, ratio * (2 + index) - 1]
    first, second = (space.random(rng, size) for size in sizes)
    return pooled(asked, first, second, unit, place), pooled(asked, first, second, other, place)


def at_angle(angle: float, count: int) -> Rows:
    """Rows of one number whose feature (cos, sin of a whole turn) lies at that angle."""
    return Rows(np.full((count, 1), (angle / (2 * np.pi)) % 1.0), no_codes(count))


def ridge_neighbours(asked: Study, index: int) -> Neighbours:
    """All signed features have sin(angle) = sqrt gamma, where the regression's optimum is longest.

    One of them turns from where the optimum predicts its label to straight against the optimum.
    """
    size = 200 * (1 + index)
    angle = float(np.arcsin(np.sqrt(REGULARISATION)))
    first, second = at_angle(angle, size - 1), at_angle(-angle, size)
    predicted = at_angle(float(np.arcsin(2 * np.sqrt(REGULARISATION))), 1)
    opposed = at_angle(-np.pi / 2, 1)
    return pooled(asked, first, second, predicted), pooled(asked, first, second, opposed)


def gathered_neighbours(asked: Study, ratio: int, index: int) -> Neighbours:
    """All units but one lie at one point: the samples' distance rises from nothing, however permuted."""
    unit, other = worst_units(asked)
    size = 3 + index
    first, second = (unit.take(np.zeros(count, dtype=np.int64)) for count in (size - 1, size * ratio))
    return pooled(asked, first, second, unit), pooled(asked, first, second, other)


def kernel_neighbours(asked: Study, index: int) -> Neighbours:
    """All units but one at one corner of the domain, that one there or at the opposite corner."""
    first, second = (rows_at(asked.domain, 0, count) for count in (2 + index, 3 + index))
    low, high = (rows_at(asked.domain, value, 1) for value in (0, 1))
    return pooled(asked, first, second, low), pooled(asked, first, second, high)


def means(asked: Study, ratio: int = 1, rows: int = 1, **parts: Any) -> ReleaseCase:
    return case(asked, means_neighbours, ratio, rows, tables=6, **parts)


def cut_neighbours(asked: Study, index: int) -> Neighbours:
    """All units but one lie just above the lowest place for cuts; that one goes from one end to the other."""
    first, second = (rows_at(asked.domain, 0, count) for count in (14 + index, 15))
    for rows in (first, second):
        rows.numeric[:] = (1 + (index + 0.5) / 4) / 128
    low, high = (rows_at(asked.domain, value, 1) for value in (0, 1))
    return pooled(asked, first, second, low), pooled(asked, first, second, high)


PERMUTED = {"release": "permutation", "permutations": 99}
RIDGE: dict[str, Any] = {
    "release": "statistic",
    "features": "columns",
    "cycles": (1.0,),
    "regularisation": REGULARISATION,
}

TABLED = {"release": "table", "categories": 2}

CURATED_TWO_SAMPLE = {
    "table, 1 number": case(
        curated_study(ONE_NUMBER, TABLED, delta=0.0), cut_neighbours, tables=3, reached=0.9, adaptive=True
    ),
    "table, mixed": case(
        curated_study(MIXED, TABLED, delta=0.0), cut_neighbours, tables=3, reached=0.9, adaptive=True
    ),
    "default, 2 numbers": means(curated_study(NUMBERS, {}), reached=0.9),
    "default, mixed, 1 : 4": means(curated_study(MIXED, {}), 4, reached=0.9),
    "columns, 1 : 30, units of 4 rows": means(curated_study(MIXED, COLUMNS, 0.3), 30, 4, reached=0.9),
    "ME": means(curated_study(NUMBERS, ME | {"n_features": 8})),
    "ME, mixed, 1 : 2": means(curated_study(MIXED, ME | {"n_features": 15, "kernel": "laplacian"}, 0.5), 2),
    "SCF": means(curated_study(NUMBERS, {"features": "scf", "n_features": 10})),
    "P0's ME": means(curated_study(NUMBERS, ME | PAPER | {"n_features": 4}), reached=0.1),
    "P0's SCF": means(curated_study(NUMBERS, PAPER | {"features": "scf", "n_features": 4})),
    "statistic": case(curated_study(ONE_NUMBER, RIDGE), ridge_neighbours, tables=6, reached=0.97),
    "permutation": case(
        curated_study(NUMBERS, PERMUTED, delta=0.0), gathered_neighbours, 1, tables=6, reached=0.9
    ),
    "permutation, 1 : 3": case(
        curated_study(MIXED, PERMUTED | {"features": "columns"}),
        gathered_neighbours,
        3,
        tables=6,
        reached=0.9,
    ),
    "permutation, ME": case(
        curated_study(NUMBERS, PERMUTED | ME | {"n_features": 6}), gathered_neighbours, 1, tables=6
    ),
    "permutation, kernel": case(
        curated_study(NUMBERS, PERMUTED | NARROW | {"features": "kernel"}),
        kernel_neighbours,
        tables=6,
        reached=0.9,
    ),
    "columns, 1 number": means(curated_study(ONE_NUMBER, HALF_CYCLE, BLACK_BOX_EPSILON), black_box=True),
    "default, 2 categories, 1 : 4": means(
        curated_study(CATEGORIES, {}, BLACK_BOX_EPSILON), 4, black_box=True
    ),
    "ME, 1 narrow location": means(
        curated_study(NUMBERS, ME | NARROW | {"n_features": 1}, BLACK_BOX_EPSILON), black_box=True
    ),
    "statistic, few steps": case(
        curated_study(ONE_NUMBER, RIDGE, BLACK_BOX_EPSILON),
        ridge_neighbours,
        tables=6,
        reached=0.97,
        black_box=True,
    ),
    "permutation of 6 units": case(
        curated_study(ONE_NUMBER, PERMUTED | {"features": "columns"}, BLACK_BOX_EPSILON, level=0.3),
        gathered_neighbours,
        1,
        tables=6,
        black_box=True,
    ),
}


# embedding_release.


def release_study(
    columns: Domain, parameters: Mapping[str, Any], epsilon: float = 1.0, delta: float = 1e-5
) -> Study:
    return study("embedding_release", columns, parameters, epsilon, delta)


FOURIER: dict[str, Any] = {"method": "random-features"}
UNIFORM: dict[str, Any] = {"placement": "uniform"}
EXPONENTIAL: dict[str, Any] = {"method": "exponential"}
LAPLACE: dict[str, Any] = {"noise": "laplace"}
APART: dict[str, Any] = {"category_similarity": 0.0}
FAR = ([0.0, 0.0], [1.0, 1.0])
"""Two rows that a narrow kernel tells apart completely."""


def placed_neighbours(asked: Study, rows_per_unit: int, index: int) -> Neighbours:
    """As of ``kernel_two_sample``; a choice moves most where the replaced unit is alone."""
    alone = index == 0 and asked.parameters.get("method") == "exponential"
    others = random_rows(asked.domain, index, 0 if alone else 1 + 7 * index)
    return neighbours(asked.domain, others, *worst_units(asked, rows_per_unit))


@cache
def worst_units_of_histograms(text: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that histograms and mean together tell apart most, each in units of its noise.

    The points are those drawn where every unit is among the others of the first table.
    """
    asked = Study.model_validate_json(text)
    how = database_plan(asked)
    others = random_rows(asked.domain, 0, 20)
    exact = release(asked, table(asked.domain, others, others.take(slice(0, 1))))
    drawn = how.drawn(exact.vectors[HISTOGRAMS], exact.units)
    scales = [exact.vectors[name].scale for name in (HISTOGRAMS, MEAN)]

    def together(rows: Rows) -> np.typing.NDArray[np.float64]:
        return np.hstack([how.histograms.indicators(rows) / scales[0], drawn.features(rows) / scales[1]])

    return farthest_units(together, asked.domain, rows_per_unit, drawn.points)


def histogram_neighbours(asked: Study, rows_per_unit: int, index: int) -> Neighbours:
    units = worst_units_of_histograms(asked.model_dump_json(), rows_per_unit)
    return neighbours(asked.domain, random_rows(asked.domain, index, 20 + 7 * index), *units)


def placed(asked: Study, rows: int = 1, **parts: Any) -> ReleaseCase:
    return case(asked, placed_neighbours, rows, tables=12 if rows == 1 else 4, **parts)


def histograms(asked: Study, rows: int = 1, **parts: Any) -> ReleaseCase:
    return case(asked, histogram_neighbours, rows, tables=6 if rows == 1 else 4, adaptive=True, **parts)


SUBSPACE_LAPLACE = release_study(MIXED, UNIFORM | LAPLACE | {"n_points": 8})
FOURIER_MIXED = release_study(MIXED, FOURIER | {"n_frequencies": 10, "kernel": "laplacian"})
MULTISETS = release_study(NUMBERS, EXPONENTIAL | {"candidate_rows": 3})
TWO_NARROW = UNIFORM | NARROW | {"n_points": 2}
HISTOGRAMS_MIXED = release_study(MIXED, {"n_points": 20, "n_bins": 7, "kernel": "laplacian"}, 0.5)
ONE_LEVEL = Domain(columns=CATEGORIES.columns[:1])
MASKED = study(
    "embedding_release",
    NUMBERS,
    UNIFORM | NARROW | {"n_points": 6, "aggregation": "masked", "colluders": 0},
    owners=TWO_OWNERS,
)
"""One owner's share of the noise, which all others know to be all that hides it."""

EMBEDDING_RELEASE = {
    "subspace, narrow": placed(release_study(NUMBERS, UNIFORM | NARROW | {"n_points": 6}), reached=0.999),
    "subspace, mixed": placed(release_study(MIXED, UNIFORM | {"n_points": 15, "kernel": "laplacian"}, 0.5)),
    "subspace, around the middle": placed(release_study(NUMBERS, {"n_points": 30, "placement": "middle"})),
    "subspace, Laplace": placed(SUBSPACE_LAPLACE),
    "subspace, masked": placed(MASKED, reached=0.999),
    "random features": placed(release_study(NUMBERS, FOURIER | {"n_frequencies": 20}), reached=0.9),
    "random features, mixed": placed(FOURIER_MIXED),
    "random features, Laplace": placed(release_study(ONE_NUMBER, FOURIER | {"n_frequencies": 4}, 1.0, 0)),
    "random features, categories": placed(
        release_study(CATEGORIES, FOURIER | {"n_frequencies": 6}), reached=0.999
    ),
    "exponential, multisets": placed(MULTISETS),
    "subspace, 2 narrow points": placed(
        release_study(NUMBERS, TWO_NARROW, BLACK_BOX_EPSILON), reached=0.999, black_box=True
    ),
    "subspace, 2 narrow points, Laplace": placed(
        release_study(NUMBERS, TWO_NARROW, 2.0, 0), reached=0.999, black_box=True
    ),
    "random features, 1 frequency": placed(
        release_study(NUMBERS, FOURIER | {"n_frequencies": 1}, BLACK_BOX_EPSILON),
        reached=0.999,
        black_box=True,
    ),
    "exponential, one against many": placed(
        release_study(NUMBERS, EXPONENTIAL | NARROW | {"candidates": [[FAR[0]], *([FAR[1]],) * 200]}, 2.0),
        reached=0.98,
        black_box=True,
    ),
    "histograms, categories": histograms(release_study(CATEGORIES, APART | {"n_points": 12}), reached=0.999),
    "histograms, narrow": histograms(
        release_study(NUMBERS, {"n_points": 40, "n_bins": 4, "bandwidth": 0.05}), reached=0.9
    ),
    "histograms, mixed": histograms(HISTOGRAMS_MIXED),
    "histograms, nine tenths": histograms(release_study(MIXED, {"n_points": 9, "histogram_share": 0.9})),
    "histograms, Laplace": histograms(release_study(CATEGORIES, APART | {"n_points": 2}, 1.0, 0)),
    "histograms, 1 level": histograms(
        release_study(ONE_LEVEL, APART | {"n_points": 2}, BLACK_BOX_EPSILON), reached=0.999, black_box=True
    ),
    "histograms, 1 level, Laplace": histograms(
        release_study(ONE_LEVEL, APART | {"n_points": 2}, 2.0, 0), reached=0.9, black_box=True
    ),
    "histograms, mixed, units of 3 rows": histograms(HISTOGRAMS_MIXED, 3),
    "subspace, Laplace, units of 3 rows": placed(SUBSPACE_LAPLACE, 3),
    "random features, mixed, units of 3 rows": placed(FOURIER_MIXED, 3),
    "exponential, multisets, units of 3 rows": placed(MULTISETS, 3),
}
