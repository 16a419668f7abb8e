"""Feature maps the neighbour search is turned on, and the table of how near it comes to their bounds.

``python tests/audits/neighbour_cases.py`` prints the table of docs/mathematics/features.md.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from neighbour_search import Effort, Found, Objective, Rows, Space, largest_change

from tacit_protocol.features.additive import AdditiveFeatures, ColumnWise, DirectSum, Pairwise, default_choice
from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    Locations,
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
)

SEED = 20_240_607
"""Of the table. The tests search again with another one."""

UNIT_ROWS = 3
"""Rows of each unit where averages are searched."""

ROOT_2 = math.sqrt(2)
EMPTY = np.zeros((0, 0), dtype=np.int32)


@dataclass(frozen=True)
class Case:
    """A feature map, its domain, and its largest movement where that is known in closed form."""

    name: str
    features: FeatureMap
    space: Space
    anchors: Rows | None = None
    largest: float | None = None

    def search(self, objective: Objective, *, seed: int = SEED, rows_per_unit: int = 1) -> Found:
        effort = Effort() if rows_per_unit == 1 else Effort(candidates=200, climbs=6, sweeps=3)
        return largest_change(
            self.features,
            self.space,
            objective,
            seed=seed,
            rows_per_unit=rows_per_unit,
            anchors=self.anchors,
            effort=effort,
        )

    def bound(self, objective: Objective) -> float:
        return {
            "movement": self.features.diameter,
            "second moment": self.features.second_moment_diameter,
            "norm": self.features.norm,
        }[objective]


def _locations(numeric: FloatMatrix, categorical: np.typing.NDArray[np.int32] | None = None) -> Locations:
    codes = np.zeros((len(numeric), 0), dtype=np.int32) if categorical is None else categorical
    return Locations(np.asarray(numeric, dtype=np.float64), codes)


def _random_locations(space: Space, count: int) -> Locations:
    rows = space.random(np.random.default_rng(count), count)
    return Locations(rows.numeric, rows.categorical)


def _embedding(
    name: str,
    kernel: ProductKernel,
    space: Space,
    locations: Locations,
    largest: float | None = None,
    raw: bool = False,
) -> Case:
    kind = RawMeanEmbedding if raw else WhitenedMeanEmbedding
    anchors = Rows(locations.numeric, locations.categorical)
    return Case(name, kind(kernel, locations), space, anchors, largest)


def _embeddings() -> list[Case]:
    plane, mixed = Space(2), Space(2, (3, 4))
    corners = _locations(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]]))
    cells = _locations(
        np.zeros((12, 0)), np.array([[a, b] for a in range(3) for b in range(4)], dtype=np.int32)
    )
    twice = _random_locations(plane, 6)
    doubled = _locations(np.concatenate([twice.numeric, twice.numeric]))
    wide = math.sqrt(-2 * math.expm1(-2 / 8))
    return [
        _embedding(
            "ME Gaussian .05, J = 5, 2 columns",
            ProductKernel("gaussian", 0.05),
            plane,
            _random_locations(plane, 5),
            ROOT_2,
        ),
        _embedding(
            "ME Gaussian .05, J = 1, 2 columns",
            ProductKernel("gaussian", 0.05),
            plane,
            _random_locations(plane, 1),
            1.0,
        ),
        _embedding(
            "ME Gaussian .4, J = 40, 3 columns",
            ProductKernel("gaussian", 0.4),
            Space(3),
            _random_locations(Space(3), 40),
        ),
        _embedding(
            "ME Gaussian 2, J = 5, 2 columns",
            ProductKernel("gaussian", 2.0),
            plane,
            _random_locations(plane, 5),
        ),
        _embedding(
            "ME Gaussian 2, J = 3 with opposite corners", ProductKernel("gaussian", 2.0), plane, corners, wide
        ),
        _embedding(
            "ME Gaussian .3, J = 12, each location twice", ProductKernel("gaussian", 0.3), plane, doubled
        ),
        _embedding(
            "ME Laplacian .01, J = 5, 2 columns",
            ProductKernel("laplacian", 0.01),
            plane,
            _random_locations(plane, 5),
            ROOT_2,
        ),
        _embedding(
            "ME Laplacian .5, J = 20, 2 columns",
            ProductKernel("laplacian", 0.5),
            plane,
            _random_locations(plane, 20),
        ),
        _embedding(
            "ME Gaussian .5 x categories, similarity .3, J = 20",
            ProductKernel("gaussian", 0.5, 0.3),
            mixed,
            _random_locations(mixed, 20),
        ),
        _embedding(
            "ME categories alone, similarity .5, every cell",
            ProductKernel("gaussian", 1.0, 0.5),
            Space(0, (3, 4)),
            cells,
            math.sqrt(2 - 2 * 0.25),
        ),
        _embedding(
            "raw ME Gaussian .05, J = 4 at one point",
            ProductKernel("gaussian", 0.05),
            Space(1),
            _locations(np.zeros((4, 1))),
            2.0,
            raw=True,
        ),
        _embedding(
            "raw ME Gaussian .4, J = 10, 3 columns",
            ProductKernel("gaussian", 0.4),
            Space(3),
            _random_locations(Space(3), 10),
            raw=True,
        ),
    ]


def half_turns() -> FloatMatrix:
    """Frequencies that are odd multiples of pi: the corners 0 and (1, 0) are half a turn apart at each."""
    return np.pi * np.array([[1.0, 2.0], [3.0, 0.0], [-1.0, 4.0]])


def random_frequencies(count: int, columns: int, scale: float) -> FloatMatrix:
    return scale * np.random.default_rng(count).standard_normal((count, columns))


def _characteristics() -> list[Case]:
    return [
        Case("SCF, half turns, J = 6, 2 columns", SmoothCharacteristic(half_turns()), Space(2), None, 2.0),
        Case(
            "SCF raw, half turns, J = 6, 2 columns",
            SmoothCharacteristic(half_turns(), raw=True),
            Space(2),
            None,
            math.sqrt(12),
        ),
        Case(
            "SCF raw, J = 10, 5 columns",
            SmoothCharacteristic(random_frequencies(5, 5, 4.0), raw=True),
            Space(5),
        ),
        Case("SCF, J = 40, 2 columns", SmoothCharacteristic(random_frequencies(20, 2, 6.0)), Space(2)),
        Case(
            "SCF, window .5, J = 10, 3 columns",
            SmoothCharacteristic(random_frequencies(5, 3, 6.0), 0.5),
            Space(3),
        ),
    ]


def _columns() -> list[Case]:
    closed = ((1.0, 2.0), (1.0, 1.0))
    default = ((0.8, 1.6, 3.2), (1.0, 1.0, 0.4))
    return [
        Case(
            "column-wise, cycles 1 2, 1 column", ColumnWise(1, (), *closed), Space(1), None, math.sqrt(3.125)
        ),
        Case(
            "column-wise, cycles 1 2, 6 columns", ColumnWise(6, (), *closed), Space(6), None, math.sqrt(3.125)
        ),
        Case(
            "column-wise, a quarter cycle, 2 columns",
            ColumnWise(2, (), (0.25,), (1.0,)),
            Space(2),
            None,
            ROOT_2,
        ),
        Case(
            "column-wise, cycles .8 1.6 3.2, 2 columns + 2 categorical",
            ColumnWise(2, (3, 5), *default),
            Space(2, (3, 5)),
        ),
        Case("column-wise, 2 categorical", ColumnWise(0, (3, 4), *closed), Space(0, (3, 4)), None, ROOT_2),
    ]


def _pairs() -> list[Case]:
    closed = ((1.0, 2.0), (1.0, 1.0))
    cases = [
        Case(f"pairwise, cycles 1 2, {d} columns", Pairwise(d, (), *closed), Space(d)) for d in range(2, 7)
    ]
    one = ((1.0,), (1.0,))
    return [
        *cases,
        Case("pairwise, cycle 1, 2 columns", Pairwise(2, (), *one), Space(2), None, 2.0),
        Case("pairwise, cycle 1, 3 columns", Pairwise(3, (), *one), Space(3), None, math.sqrt(2 + 2 / 3)),
        Case(
            "pairwise, cycles 1 2, 2 columns + 2 categorical", Pairwise(2, (3, 4), *closed), Space(2, (3, 4))
        ),
        Case("pairwise, 3 categorical", Pairwise(0, (3, 3, 4), *one), Space(0, (3, 3, 4)), None, ROOT_2),
    ]


def _sums() -> list[Case]:
    two, five = default_choice(2, (), 0.3), default_choice(4, (3,), 0.3)
    plane = Space(2)
    joint = WhitenedMeanEmbedding(ProductKernel("gaussian", 0.4), _random_locations(plane, 10))
    return [
        Case("default features, 2 columns", AdditiveFeatures(2, (), two), plane),
        Case("default features, 4 columns + 1 categorical", AdditiveFeatures(4, (3,), five), Space(4, (3,))),
        Case(
            "column-wise + ME Gaussian .4, shares .5 .5, 2 columns",
            DirectSum((ColumnWise(2, (), (1.0, 2.0), (1.0, 1.0)), joint), (1.0, 1.0)),
            plane,
        ),
    ]


@cache
def cases() -> tuple[Case, ...]:
    """Every case, in the table's order."""
    return (*_embeddings(), *_characteristics(), *_columns(), *_pairs(), *_sums())


@cache
def searched(index: int) -> tuple[float, float, float, float]:
    """Largest values found for a case: movement, movement of averages, second moment, norm."""
    case = cases()[index]
    return (
        case.search("movement").value,
        case.search("movement", rows_per_unit=UNIT_ROWS).value,
        case.search("second moment").value,
        case.search("norm").value,
    )


def ratios(index: int) -> tuple[float, float, float, float]:
    """The values found, each over its bound."""
    case = cases()[index]
    movement, averages, second, norm = searched(index)
    return (
        movement / case.bound("movement"),
        averages / case.bound("movement"),
        second / case.bound("second moment"),
        norm / case.bound("norm"),
    )


def table_row(index: int) -> str:
    """One line of the table: bounds, and the part of each that the search reached."""
    case = cases()[index]
    movement, averages, second, norm = ratios(index)
    bounds = case.bound("movement"), case.bound("second moment")
    cells = (
        f"{bounds[0]:.4f}",
        _part(movement),
        _part(averages),
        f"{bounds[1]:.4f}",
        _part(second),
        _part(norm),
    )
    return f"| {case.name} | " + " | ".join(cells) + " |"


def _part(ratio: float) -> str:
    return f"{math.floor(ratio * 1e4 + 0.5) / 1e4:.4f}"


def main() -> None:
    print("| features | diameter | reached | by averages | second moment | reached | norm reached |")  # noqa: T201
    print("|---|---|---|---|---|---|---|")  # noqa: T201
    for index in range(len(cases())):
        print(table_row(index), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
