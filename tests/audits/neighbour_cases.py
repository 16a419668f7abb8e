"""Feature maps the neighbour search is turned on, and the table of how near it comes to their bounds.

``python tests/audits/neighbour_cases.py`` prints the table of docs/mathematics/features.md.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tacit.testing.neighbour_search import Effort, Objective, Space, largest_change
from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit.testing.neighbour_search import LargestChange as Found
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, ProductKernel
from tacit_protocol.features.mean_embedding import (
    Locations,
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
)
from tacit_protocol.features.moments import AdditiveFeatures, ColumnWise, DirectSum, Pairwise, default_choice

SEED = 20_240_607
"""Of the table. The tests search again with another one."""

UNIT_ROWS = 3
"""Rows of each unit where averages are searched."""

ROOT_2 = math.sqrt(2)


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


def half_turns() -> FloatMatrix:
    """Frequencies that are odd multiples of pi: the corners 0 and (1, 0) are half a turn apart at each."""
    return np.pi * np.array([[1.0, 2.0], [3.0, 0.0], [-1.0, 4.0]])


def random_frequencies(count: int, columns: int, scale: float) -> FloatMatrix:
    return scale * np.random.default_rng(count).standard_normal((count, columns))


def _embedding(
    name: str, space: Space, at: int | FloatMatrix | Locations, *kernel: Any, largest: float | None = None
) -> Case:
    """Of a kernel at that many random locations, or at those; raw where the name says so."""
    if isinstance(at, int):
        rows = space.random(np.random.default_rng(at), at)
        at = Locations(rows.numeric, rows.categorical)
    if not isinstance(at, Locations):
        at = Locations(at, np.zeros((len(at), 0), dtype=np.int32))
    kind = RawMeanEmbedding if name.startswith("raw") else WhitenedMeanEmbedding
    anchors = Rows(at.numeric, at.categorical)
    return Case(name, kind(ProductKernel(*kernel), at), space, anchors, largest)


def _embeddings() -> list[Case]:
    line, plane, cube, mixed = Space(1), Space(2), Space(3), Space(2, (3, 4))
    corners = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]])
    cells = np.array([[a, b] for a in range(3) for b in range(4)], dtype=np.int32)
    twice = np.tile(plane.random(np.random.default_rng(6), 6).numeric, (2, 1))
    wide = math.sqrt(-2 * math.expm1(-2 / 8))
    every_cell = Locations(np.zeros((12, 0)), cells)
    return [
        _embedding("ME Gaussian .05, J = 5, 2 columns", plane, 5, "gaussian", 0.05, largest=ROOT_2),
        _embedding("ME Gaussian .05, J = 1, 2 columns", plane, 1, "gaussian", 0.05, largest=1.0),
        _embedding("ME Gaussian .4, J = 40, 3 columns", cube, 40, "gaussian", 0.4),
        _embedding("ME Gaussian 2, J = 5, 2 columns", plane, 5, "gaussian", 2.0),
        _embedding(
            "ME Gaussian 2, J = 3 with opposite corners", plane, corners, "gaussian", 2.0, largest=wide
        ),
        _embedding("ME Gaussian .3, J = 12, each location twice", plane, twice, "gaussian", 0.3),
        _embedding("ME Laplacian .01, J = 5, 2 columns", plane, 5, "laplacian", 0.01, largest=ROOT_2),
        _embedding("ME Laplacian .5, J = 20, 2 columns", plane, 20, "laplacian", 0.5),
        _embedding("ME Gaussian .5 x categories, similarity .3, J = 20", mixed, 20, "gaussian", 0.5, 0.3),
        _embedding(
            "ME categories alone, similarity .5, every cell",
            Space(0, (3, 4)),
            every_cell,
            "gaussian",
            1.0,
            0.5,
            largest=math.sqrt(2 - 2 * 0.25),
        ),
        _embedding(
            "raw ME Gaussian .05, J = 4 at one point",
            line,
            np.zeros((4, 1)),
            "gaussian",
            0.05,
            largest=2.0,
        ),
        _embedding("raw ME Gaussian .4, J = 10, 3 columns", cube, 10, "gaussian", 0.4),
    ]


def _scf(name: str, columns: int, frequencies: FloatMatrix, *given: Any, **named: Any) -> Case:
    largest = named.pop("largest", None)
    return Case(name, SmoothCharacteristic(frequencies, *given, **named), Space(columns), None, largest)


def _characteristics() -> list[Case]:
    draw = random_frequencies
    return [
        _scf("SCF, half turns, J = 6, 2 columns", 2, half_turns(), largest=2.0),
        _scf("SCF raw, half turns, J = 6, 2 columns", 2, half_turns(), raw=True, largest=math.sqrt(12)),
        _scf("SCF raw, J = 10, 5 columns", 5, draw(5, 5, 4.0), raw=True),
        _scf("SCF, J = 40, 2 columns", 2, draw(20, 2, 6.0)),
        _scf("SCF, window .5, J = 10, 3 columns", 3, draw(5, 3, 6.0), 0.5),
        _scf("SCF, window .2, J = 40, 2 columns", 2, draw(20, 2, 5.0), 0.2),
        _scf("SCF raw, window .5, J = 10, 5 columns", 5, draw(5, 5, 2.0), 0.5, raw=True),
        _scf("SCF, window .3, J = 2, 1 column", 1, np.array([[40.0]]), 0.3),
    ]


Cycles = tuple[tuple[float, ...], tuple[float, ...]]
ONE_TWO: Cycles = ((1.0, 2.0), (1.0, 1.0))
ONE: Cycles = ((1.0,), (1.0,))
MOMENTS: tuple[tuple[float, ...], tuple[float, ...], float] = ((1.625, 3.25), (1.0, 0.4), 0.75)


def _columns(name: str, cycles: Cycles, columns: int, *categories: int, largest: float | None = None) -> Case:
    """Column-wise or pairwise features, as the name begins."""
    kind = ColumnWise if name.startswith("column") else Pairwise
    features: FeatureMap = kind(columns, categories, *cycles)
    return Case(name, features, Space(columns, categories), None, largest)


def _additive() -> list[Case]:
    two, five = default_choice(2, (), 0.3), default_choice(4, (3,), 0.3)
    joint = _embedding("", Space(2), 10, "gaussian", 0.4).features
    both = DirectSum((ColumnWise(2, (), *ONE_TWO), joint), (1.0, 1.0))
    largest, third = math.sqrt(3.125), math.sqrt(2 + 2 / 3)
    default: Cycles = ((0.8, 1.6, 3.2), (1.0, 1.0, 0.4))
    with_moments = [default_choice(n, c, 0.3, moments=True) for n, c in ((2, ()), (4, (3,)))]
    ends = math.sqrt((3 + 2 + math.sqrt(2) + 0.8) / 2.15)
    return [
        _columns("column-wise, cycles 1 2, 1 column", ONE_TWO, 1, largest=largest),
        _columns("column-wise, cycles 1 2, 6 columns", ONE_TWO, 6, largest=largest),
        _columns("column-wise, a quarter cycle, 2 columns", ((0.25,), (1.0,)), 2, largest=ROOT_2),
        _columns("column-wise, cycles .8 1.6 3.2, 2 columns + 2 categorical", default, 2, 3, 5),
        Case(
            "column-wise, P1 P2 and cycles 1.625 3.25, 1 column",
            ColumnWise(1, (), *MOMENTS),
            Space(1),
            None,
            ends,
        ),
        Case(
            "column-wise, P1 P2 and cycles 1.625 3.25, equal weights, 2 columns + 1 categorical",
            ColumnWise(2, (3,), (1.625, 3.25), (1.0, 1.0), 1.0),
            Space(2, (3,)),
        ),
        _columns("column-wise, 2 categorical", ONE_TWO, 0, 3, 4, largest=ROOT_2),
        *(_columns(f"pairwise, cycles 1 2, {d} columns", ONE_TWO, d) for d in range(2, 7)),
        _columns("pairwise, cycle 1, 2 columns", ONE, 2, largest=2.0),
        _columns("pairwise, cycle 1, 3 columns", ONE, 3, largest=third),
        _columns("pairwise, cycles 1 2, 2 columns + 2 categorical", ONE_TWO, 2, 3, 4),
        _columns("pairwise, 3 categorical", ONE, 0, 3, 3, 4, largest=ROOT_2),
        Case("default features, 2 columns", AdditiveFeatures(2, (), two), Space(2)),
        Case("default features, 4 columns + 1 categorical", AdditiveFeatures(4, (3,), five), Space(4, (3,))),
        Case("default features with effects, 2 columns", AdditiveFeatures(2, (), with_moments[0]), Space(2)),
        Case(
            "default features with effects, 4 columns + 1 categorical",
            AdditiveFeatures(4, (3,), with_moments[1]),
            Space(4, (3,)),
        ),
        Case("column-wise + ME Gaussian .4, shares .5 .5, 2 columns", both, Space(2)),
    ]


@cache
def cases() -> tuple[Case, ...]:
    """Every case, in the table's order."""
    return (*_embeddings(), *_characteristics(), *_additive())


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
