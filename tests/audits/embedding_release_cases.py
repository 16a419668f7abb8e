"""The studies of ``embedding_release`` whose releases are audited, and their worst neighbours."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from kernel_two_sample_cases import (
    BLACK_BOX_EPSILON,
    CATEGORIES,
    MIXED,
    NUMBERS,
    ONE_NUMBER,
    many_row_units,
    one_row_units,
    space_of,
)
from neighbour_search import Effort, Rows, largest_change
from release_audit import Neighbours, ReleaseCase, release

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.embedding_release import plan_of
from tacit_protocol.procedures.embedding_release.release import HISTOGRAMS, histograms_then_mean

FOURIER = {"method": "random-features"}
UNIFORM = {"placement": "uniform"}
TWO_NARROW = UNIFORM | {"n_points": 2, "bandwidth": 0.02}


def study(domain: Domain, parameters: Mapping[str, Any], epsilon: float, delta: float = 1e-5) -> Study:
    key = [f"{i:064x}" for i in range(3)]
    return Study(
        title="audit",
        procedure="embedding_release",
        parameters=dict(parameters),
        domain=domain,
        owners=(Owner(name="owner", key=key[0], data_set="data"),),
        tester=Party(name="tester", key=key[1]),
        analyst=Party(name="analyst", key=key[2]),
        budget=Budget.of(epsilon, delta),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


FAR = ([0.0, 0.0], [1.0, 1.0])
"""Two rows that a narrow kernel tells apart completely."""

STUDIES = {
    "subspace, narrow": study(NUMBERS, UNIFORM | {"n_points": 6, "bandwidth": 0.02}, 1.0),
    "subspace, mixed": study(MIXED, UNIFORM | {"n_points": 15, "kernel": "laplacian"}, 0.5),
    "subspace, around the middle": study(NUMBERS, {"n_points": 30, "placement": "middle"}, 1.0),
    "subspace, Laplace": study(MIXED, UNIFORM | {"n_points": 8, "noise": "laplace"}, 1.0),
    "random features": study(NUMBERS, FOURIER | {"n_frequencies": 20}, 1.0),
    "random features, mixed": study(MIXED, FOURIER | {"n_frequencies": 10, "kernel": "laplacian"}, 1.0),
    "random features, Laplace": study(ONE_NUMBER, FOURIER | {"n_frequencies": 4}, 1.0, 0),
    "random features, categories": study(CATEGORIES, FOURIER | {"n_frequencies": 6}, 1.0),
    "exponential, multisets": study(NUMBERS, {"method": "exponential", "candidate_rows": 3}, 1.0),
}

FEW_NUMBERS = {
    "subspace, 2 narrow points": study(
        NUMBERS, UNIFORM | {"n_points": 2, "bandwidth": 0.02}, BLACK_BOX_EPSILON
    ),
    "subspace, 2 narrow points, Laplace": study(
        NUMBERS, UNIFORM | {"n_points": 2, "bandwidth": 0.02}, 2.0, 0
    ),
    "random features, 1 frequency": study(NUMBERS, FOURIER | {"n_frequencies": 1}, BLACK_BOX_EPSILON),
    "exponential, one against many": study(
        NUMBERS,
        {"method": "exponential", "bandwidth": 0.02, "candidates": [[FAR[0]], *([FAR[1]],) * 200]},
        2.0,
    ),
}
"""Studies whose release is a handful of numbers, so that it can be run some hundred thousand times."""

ONE_LEVEL = Domain(columns=CATEGORIES.columns[:1])
APART: dict[str, Any] = {"category_similarity": 0.0}

HISTOGRAM_STUDIES = {
    "histograms, categories": study(CATEGORIES, APART | {"n_points": 12}, 1.0),
    "histograms, narrow": study(NUMBERS, {"n_points": 40, "n_bins": 4, "bandwidth": 0.05}, 1.0),
    "histograms, mixed": study(MIXED, {"n_points": 20, "n_bins": 7, "kernel": "laplacian"}, 0.5),
    "histograms, nine tenths": study(MIXED, {"n_points": 9, "histogram_share": 0.9}, 1.0),
    "histograms, Laplace": study(CATEGORIES, APART | {"n_points": 2}, 1.0, 0),
}

FEW_CELLS = {
    "histograms, 1 level": study(ONE_LEVEL, APART | {"n_points": 2}, BLACK_BOX_EPSILON),
    "histograms, 1 level, Laplace": study(ONE_LEVEL, APART | {"n_points": 2}, 2.0, 0),
}

ALL = STUDIES | FEW_NUMBERS | HISTOGRAM_STUDIES | FEW_CELLS


@cache
def worst_units_of_histograms(name: str, rows_per_unit: int = 1) -> tuple[Rows, Rows]:
    """The two units that histograms and mean together tell apart most, each in units of its noise.

    The points are those drawn where every unit is among ``others_of`` the first table.
    """
    asked = ALL[name]
    how = histograms_then_mean(asked)
    assert how is not None
    others = others_of(asked, 0)
    exact = release(asked, one_row_units(asked.domain, others, others.take(slice(0, 1))))
    drawn = how.drawn(exact.vectors[HISTOGRAMS], exact.units)
    assert drawn.points is not None
    scales = [exact.vectors[name].scale for name in (HISTOGRAMS, MEAN)]

    def together(rows: Rows) -> np.typing.NDArray[np.float64]:
        return np.hstack([how.histograms.indicators(rows) / scales[0], drawn.features(rows) / scales[1]])

    anchors = Rows(drawn.points.numeric, drawn.points.categorical)
    found = largest_change(
        together,
        space_of(asked),
        seed=3,
        rows_per_unit=rows_per_unit,
        anchors=anchors,
        effort=Effort(200, 4, 2),
    )
    return found.unit, found.other


def others_of(asked: Study, index: int) -> Rows:
    return space_of(asked).random(np.random.default_rng(index), 20 + 7 * index)


def worst_neighbours_of_histograms(name: str, rows_per_unit: int, index: int) -> Neighbours:
    asked = ALL[name]
    unit, other = worst_units_of_histograms(name, rows_per_unit)
    build = one_row_units if rows_per_unit == 1 else many_row_units
    others = others_of(asked, index)
    return build(asked.domain, others, unit), build(asked.domain, others, other)


@cache
def worst_units(name: str, rows_per_unit: int = 1) -> tuple[Rows, Rows]:
    """The two units that the study's features tell apart most."""
    plan = plan_of(ALL[name])
    anchors = None if plan.points is None else Rows(plan.points.numeric, plan.points.categorical)
    found = largest_change(
        plan.features,
        space_of(ALL[name]),
        seed=3,
        rows_per_unit=rows_per_unit,
        anchors=anchors,
        effort=Effort(200, 4, 2),
    )
    return found.unit, found.other


def worst_neighbours(name: str, rows_per_unit: int, index: int) -> Neighbours:
    """The worst pair among other units: the rounding differs between tables, and distances with the others.

    A choice moves most where the replaced unit is alone.
    """
    asked = ALL[name]
    unit, other = worst_units(name, rows_per_unit)
    alone = index == 0 and asked.parameters.get("method") == "exponential"
    others = space_of(asked).random(np.random.default_rng(index), 0 if alone else 1 + 7 * index)
    build = one_row_units if rows_per_unit == 1 else many_row_units
    return build(asked.domain, others, unit), build(asked.domain, others, other)


REACHED = {
    "subspace, narrow": 0.999,
    "subspace, 2 narrow points": 0.999,
    "subspace, 2 narrow points, Laplace": 0.999,
    "random features": 0.9,
    "random features, 1 frequency": 0.999,
    "random features, categories": 0.999,
    "exponential, one against many": 0.98,
    "histograms, categories": 0.999,
    "histograms, narrow": 0.9,
    "histograms, 1 level": 0.999,
    "histograms, 1 level, Laplace": 0.9,
}
"""Where the search is known to come so near to the noise's sensitivity."""

CASES = {
    name: ReleaseCase(
        study=asked,
        neighbours=partial(worst_neighbours, name, 1),
        reached=REACHED.get(name, 0.3),
        black_box=name in FEW_NUMBERS,
    )
    for name, asked in (STUDIES | FEW_NUMBERS).items()
}

CASES |= {
    name: ReleaseCase(
        study=asked,
        neighbours=partial(worst_neighbours_of_histograms, name, 1),
        tables=6,
        reached=REACHED.get(name, 0.3),
        black_box=name in FEW_CELLS,
        adaptive=True,
    )
    for name, asked in (HISTOGRAM_STUDIES | FEW_CELLS).items()
}

CASES["histograms, mixed, units of 3 rows"] = ReleaseCase(
    HISTOGRAM_STUDIES["histograms, mixed"],
    partial(worst_neighbours_of_histograms, "histograms, mixed", 3),
    tables=4,
    adaptive=True,
)

CASES |= {
    f"{name}, units of 3 rows": ReleaseCase(ALL[name], partial(worst_neighbours, name, 3), tables=4)
    for name in ("subspace, Laplace", "random features, mixed", "exponential, multisets")
}
