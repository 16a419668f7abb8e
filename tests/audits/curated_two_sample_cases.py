"""The studies of ``curated_two_sample`` whose releases are audited, and their worst neighbours.

The replaced unit stands in the first sample or in the second, by turns, among samples of equal and of unequal
sizes: the noise on the difference and on the centre has to hide either. The ridge statistic and the
permuted distances have neighbours of their own, made from the proofs of their bounds.
"""

from collections.abc import Callable, Mapping
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
from release_audit import Neighbours, ReleaseCase

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import PooledTable
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.curated_two_sample.plan import plan_of

REGULARISATION = 0.1
"""Gamma of the audited statistic."""


def study(
    domain: Domain, parameters: Mapping[str, Any], epsilon: float, *, delta: float = 1e-5, level: float = 0.05
) -> Study:
    key = [f"{i:064x}" for i in range(5)]
    return Study(
        title="audit",
        procedure="curated_two_sample",
        parameters=dict(parameters),
        domain=domain,
        owners=tuple(Owner(name=f"owner-{i}", key=key[i], data_set="data") for i in range(2)),
        curator=Party(name="curator", key=key[4]),
        tester=Party(name="tester", key=key[2]),
        analyst=Party(name="analyst", key=key[3]),
        budget=Budget.of(epsilon, delta),
        level=level,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def pooled(asked: Study, first: Rows, second: Rows, unit: Rows | None = None, place: int = 0) -> PooledTable:
    """Two samples of one-row units; ``unit`` is one more, of any number of rows, in the sample ``place``."""
    parts = {}
    for index, (owner, rows) in enumerate(zip(asked.owners, (first, second), strict=True)):
        own = unit if unit is not None and index == place else rows.take(slice(0, 0))
        build = one_row_units if len(own) < 2 else many_row_units
        parts[owner.name] = build(asked.domain, rows, own)
    return PooledTable(asked.domain, parts)


def worst_units(asked: Study, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that the study's features tell apart most."""
    return _worst_units(asked.model_dump_json(), rows_per_unit)


@cache
def _worst_units(text: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    asked = Study.model_validate_json(text)
    features = plan_of(asked).release.features
    locations = getattr(features, "locations", None)
    anchors = None if locations is None else Rows(locations.numeric, locations.categorical)
    found = largest_change(
        features,
        space_of(asked),
        seed=3,
        rows_per_unit=rows_per_unit,
        anchors=anchors,
        effort=Effort(200, 4, 2),
    )
    return found.unit, found.other


def means_neighbours(asked: Study, ratio: int, rows_per_unit: int, index: int) -> Neighbours:
    """The worst pair of units in a sample of 2 + index units, the other sample being ``ratio`` times larger.

    In the larger sample for odd indices.
    """
    unit, other = worst_units(asked, rows_per_unit)
    rng = np.random.default_rng(index)
    space, place = space_of(asked), index % 2
    sizes = [1 + index, ratio * (2 + index)] if place == 0 else [2 + index, ratio * (2 + index) - 1]
    first, second = (space.random(rng, size) for size in sizes)
    return pooled(asked, first, second, unit, place), pooled(asked, first, second, other, place)


def at_angle(angle: float, count: int) -> Rows:
    """Rows of one number whose feature (cos, sin of a whole turn) lies at that angle."""
    turns = (angle / (2 * np.pi)) % 1.0
    return Rows(np.full((count, 1), turns), np.zeros((count, 0), dtype=np.int32))


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
    unit, other = worst_units(asked, 1)
    size = 3 + index
    first = unit.take(np.zeros(size - 1, dtype=np.int64))
    second = unit.take(np.zeros(size * ratio, dtype=np.int64))
    return pooled(asked, first, second, unit), pooled(asked, first, second, other)


def kernel_neighbours(asked: Study, index: int) -> Neighbours:
    """All units but one at one corner of the domain, that one there or at the opposite corner."""
    size, columns = 3 + index, len(asked.domain.numeric)
    low, high = (
        Rows(np.full((count, columns), end), np.zeros((count, 0), dtype=np.int32))
        for end, count in ((0.0, 2 * size), (1.0, 1))
    )
    first, second = low.take(slice(0, size - 1)), low.take(slice(0, size))
    return pooled(asked, first, second, low.take(slice(0, 1))), pooled(asked, first, second, high)


def case(asked: Study, neighbours: Callable[..., Neighbours], *given: Any, **parts: Any) -> ReleaseCase:
    return ReleaseCase(asked, partial(neighbours, asked, *given), **{"tables": 6, **parts})


PERMUTED = {"release": "permutation", "permutations": 99}
RIDGE = {
    "release": "statistic",
    "features": "columns",
    "cycles": (1.0,),
    "regularisation": REGULARISATION,
}

CASES = {
    "default, 2 numbers": case(study(NUMBERS, {}, 1.0), means_neighbours, 1, 1, reached=0.9),
    "default, mixed, 1 : 4": case(study(MIXED, {}, 1.0), means_neighbours, 4, 1, reached=0.9),
    "columns, 1 : 30, units of 4 rows": case(
        study(MIXED, {"features": "columns", "cycles": (1.0, 2.0)}, 0.3), means_neighbours, 30, 4, reached=0.9
    ),
    "ME": case(study(NUMBERS, {"features": "me", "n_features": 8}, 1.0), means_neighbours, 1, 1),
    "ME, mixed, 1 : 2": case(
        study(MIXED, {"features": "me", "n_features": 15, "kernel": "laplacian"}, 0.5), means_neighbours, 2, 1
    ),
    "SCF": case(study(NUMBERS, {"features": "scf", "n_features": 10}, 1.0), means_neighbours, 1, 1),
    "P0's ME": case(
        study(NUMBERS, {"features": "me", "n_features": 4, "calibration": "paper"}, 1.0),
        means_neighbours,
        1,
        1,
        reached=0.1,
    ),
    "P0's SCF": case(
        study(NUMBERS, {"features": "scf", "n_features": 4, "calibration": "paper"}, 1.0),
        means_neighbours,
        1,
        1,
    ),
    "statistic": case(study(ONE_NUMBER, RIDGE, 1.0), ridge_neighbours, reached=0.97),
    "permutation": case(study(NUMBERS, PERMUTED, 1.0, delta=0.0), gathered_neighbours, 1, reached=0.9),
    "permutation, 1 : 3": case(
        study(MIXED, PERMUTED | {"features": "columns"}, 1.0), gathered_neighbours, 3, reached=0.9
    ),
    "permutation, ME": case(
        study(NUMBERS, PERMUTED | {"features": "me", "n_features": 6}, 1.0), gathered_neighbours, 1
    ),
    "permutation, kernel": case(
        study(NUMBERS, PERMUTED | {"features": "kernel", "bandwidth": 0.02}, 1.0),
        kernel_neighbours,
        reached=0.9,
    ),
    "columns, 1 number": case(
        study(ONE_NUMBER, {"features": "columns", "cycles": (0.5,)}, BLACK_BOX_EPSILON),
        means_neighbours,
        1,
        1,
        black_box=True,
    ),
    "default, 2 categories, 1 : 4": case(
        study(CATEGORIES, {}, BLACK_BOX_EPSILON), means_neighbours, 4, 1, black_box=True
    ),
    "ME, 1 narrow location": case(
        study(NUMBERS, {"features": "me", "n_features": 1, "bandwidth": 0.02}, BLACK_BOX_EPSILON),
        means_neighbours,
        1,
        1,
        black_box=True,
    ),
    "statistic, few steps": case(
        study(ONE_NUMBER, RIDGE, BLACK_BOX_EPSILON), ridge_neighbours, reached=0.97, black_box=True
    ),
    "permutation of 6 units": case(
        study(ONE_NUMBER, PERMUTED | {"features": "columns"}, BLACK_BOX_EPSILON, level=0.3),
        gathered_neighbours,
        1,
        black_box=True,
    ),
}
