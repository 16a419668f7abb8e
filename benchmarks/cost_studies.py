"""The studies whose cost is measured: one question of every procedure, each size of it varied by itself."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.problems import numeric_domain
from tacit_protocol.domain.columns import CategoricalColumn, Domain
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.signing.keys import PrivateKey

DELTA = 1e-6
LEVEL = 0.05
CURATOR = "curator"

ROWS_OF_MANY = 10_000

GROUP_ROWS = 65_536
"""Rows of a row group of the generated files."""

Holders = Literal["each", "one", "split", "curator"]
Kind = Literal["numbers", "categories", "times"]


@dataclass(frozen=True)
class Point:
    """One study: rows (units) of each owner, columns, owners, epsilon, and the procedure's own size."""

    rows: int
    columns: int
    size: int
    owners: int
    epsilon: float = 1.0


@dataclass(frozen=True)
class Question:
    """A procedure with parameters, and the points at which it is measured.

    ``holders``: every owner has all columns (``each``, or ``one`` owner alone), two owners have half of the
    columns each (``split``), or a curator has the tables of all owners. ``size`` names what ``Point.size``
    is. ``varied`` holds, for a field of :class:`Point`, its values; the others stay as in ``base``, where
    many owners have ROWS_OF_MANY rows each.
    """

    name: str
    kind: Kind
    holders: Holders
    size: str
    base: Point
    varied: Mapping[str, tuple[float, ...]]
    parameters: Callable[[Point], dict[str, Any]] = lambda _: {}

    @property
    def procedure(self) -> str:
        """The procedure's name."""
        return self.name.partition(",")[0]

    def points(self) -> Iterator[tuple[str, Point]]:
        """Yield what is varied, and the point; the base may come once for each."""
        for varied, values in self.varied.items():
            for value in values:
                point = Point(**(vars(self.base) | {varied: value}))
                if varied == "owners":
                    point = replace(point, rows=ROWS_OF_MANY)
                yield varied, point

    def domain(self, point: Point) -> Domain:
        """Return the study's columns; of categories, as many levels as make ``size`` cells of them."""
        if self.kind == "numbers":
            return numeric_domain(point.columns, (-5.0, 5.0))
        if self.kind == "times":
            time = numeric_domain(1, (-5.0, 5.0)).columns
            ended = CategoricalColumn(name="c1", levels=("level-0000", "level-0001"))
            return Domain(columns=(*time, ended))
        levels = tuple(f"level-{i:04d}" for i in range(levels_of(point)))
        return Domain(
            columns=tuple(CategoricalColumn(name=f"c{i}", levels=levels) for i in range(point.columns))
        )

    def study(self, point: Point, parties: "Parties", seed: int) -> Study:
        """Write the study; ``seed`` is its public randomness."""
        names = [f"c{i}" for i in range(point.columns)]
        half = point.columns // 2
        held: list[tuple[str, ...] | None] = [None] * point.owners
        if self.holders == "split":
            first = 1 if self.procedure == "screening" else half
            held = [tuple(names[:first]), tuple(names[first:])]
        return Study(
            title="cost",
            procedure=self.procedure,
            parameters=self.parameters(point),
            domain=self.domain(point),
            owners=tuple(
                Owner(name=name, key=key.public_hex, data_set="rows", columns=columns)
                for (name, key), columns in zip(parties.owners.items(), held, strict=True)
            ),
            curator=Party(name=CURATOR, key=parties.curator.public_hex)
            if self.holders == "curator"
            else None,
            tester=Party(name="tester", key=parties.tester.public_hex),
            analyst=Party(name="analyst", key=parties.analyst.public_hex),
            budget=Budget.of(point.epsilon, 0.0 if self.procedure == "identity" else DELTA),
            level=LEVEL,
            created_at=0,
            deadline=1,
            seed=f"{seed:032x}",
        )


@dataclass(frozen=True)
class Parties:
    """The keys of everyone in a study."""

    owners: Mapping[str, PrivateKey]
    tester: PrivateKey = field(default_factory=PrivateKey.generate)
    analyst: PrivateKey = field(default_factory=PrivateKey.generate)
    curator: PrivateKey = field(default_factory=PrivateKey.generate)

    @classmethod
    def of(cls, owners: int) -> "Parties":
        """Make keys for so many owners."""
        return cls({f"owner-{i:04d}": PrivateKey.generate() for i in range(owners)})

    def key_of(self, sender: str) -> PrivateKey:
        """Return the key that signs a sender's release."""
        return self.curator if sender == CURATOR else self.owners[sender]


def levels_of(point: Point) -> int:
    """Return how many levels each column has, so that the columns' cells are about ``size``."""
    return max(2, round(float(point.size) ** (1 / point.columns)))


def write_rows(path: Path, kind: Kind, point: Point) -> None:
    """Write the rows as Parquet: normal numbers, uniform categories; of times one of each, independent."""
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(point.columns)]
    text = np.array([f"level-{i:04d}" for i in range(2 if kind == "times" else levels_of(point))])
    numbers = {"numbers": names, "times": names[:1]}.get(kind, [])
    schema = pa.schema([(name, pa.float64() if name in numbers else pa.string()) for name in names])

    def column(name: str, rows: int) -> npt.NDArray[Any]:
        if name in numbers:
            return rng.standard_normal(rows)
        return text[rng.integers(len(text), size=rows)]

    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, point.rows, GROUP_ROWS):
            rows = min(GROUP_ROWS, point.rows - start)
            writer.write_table(pa.table([pa.array(column(name, rows)) for name in names], schema=schema))


ROWS = (10_000, 100_000, 1_000_000)
EPSILONS = (0.1, 1.0, 10.0)
OWNERS = (2, 10, 100, 1000)
NUMBERS: dict[str, tuple[float, ...]] = {"rows": ROWS, "columns": (2, 5, 20), "epsilon": EPSILONS}
TABLES: dict[str, tuple[float, ...]] = {
    "rows": ROWS,
    "columns": (1, 2, 3),
    "size": (100, 1000, 10_000),
    "epsilon": EPSILONS,
}


def _identity(point: Point) -> dict[str, Any]:
    cells = levels_of(point) ** point.columns
    return {"unlisted": "last", "probabilities": [1 / cells] * cells}


def _samples(point: Point) -> dict[str, Any]:
    names = [f"owner-{i:04d}" for i in range(point.owners)]
    return {"samples": [names[0::2], names[1::2]]}


def _features(point: Point) -> dict[str, Any]:
    return {"features": "me", "n_features": point.size}


def _permutations(point: Point) -> dict[str, Any]:
    return {"permutations": point.size}


def _cells(_: Point) -> dict[str, Any]:
    return {"unlisted": "last"}


def _survival(point: Point) -> dict[str, Any]:
    return {"cuts": {"c0": np.linspace(-5, 5, point.size // 2 + 1)[1:-1].tolist()}, "unlisted": "last"}


FEWER, REPLICATES = {"rows": (1000, 10_000, 100_000)}, (99, 199, 999)

QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        Question(
            *("kernel_two_sample", "numbers", "each", ""),
            Point(100_000, 5, 0, 2),
            NUMBERS | {"owners": OWNERS},
        ),
        Question(
            *("kernel_two_sample, me", "numbers", "each", "features J"),
            Point(100_000, 5, 20, 2),
            {"rows": ROWS, "columns": (2, 5, 20), "size": (5, 20, 100), "owners": OWNERS},
            _features,
        ),
        Question(
            *("curated_two_sample, me", "numbers", "curator", "features J"),
            Point(100_000, 5, 20, 2),
            NUMBERS | {"size": (5, 20, 100), "owners": (2, 10)},
            lambda point: _features(point) | _samples(point),
        ),
        Question(
            *("curated_two_sample, permutation", "numbers", "curator", "permutations B"),
            Point(10_000, 5, 199, 2),
            FEWER | {"columns": (2, 5, 20), "size": REPLICATES},
            lambda point: {"release": "permutation"} | _permutations(point) | _samples(point),
        ),
        Question(
            *("joint_independence", "numbers", "one", "permutations B"),
            Point(1000, 3, 199, 1),
            {"rows": (500, 1000, 2000, 4000), "columns": (2, 3, 5), "size": REPLICATES, "epsilon": EPSILONS},
            _permutations,
        ),
        Question(
            *("distance_correlation", "numbers", "split", "frequencies F"),
            Point(100_000, 4, 4, 2),
            {"rows": ROWS, "columns": (2, 4, 20), "size": (2, 4, 16), "epsilon": EPSILONS},
            lambda point: {"n_features": point.size},
        ),
        Question(
            *("curated_distance_correlation", "numbers", "curator", "permutations B"),
            Point(10_000, 2, 199, 1),
            FEWER | {"size": REPLICATES, "epsilon": EPSILONS},
            _permutations,
        ),
        Question(
            *("screening", "numbers", "split", ""),
            Point(100_000, 5, 0, 2),
            {"rows": ROWS, "columns": (5, 20, 100), "epsilon": EPSILONS},
        ),
        Question(
            *("noisy_counts", "categories", "each", "cells k"),
            Point(100_000, 2, 30, 2),
            TABLES | {"owners": OWNERS},
            _cells,
        ),
        Question(
            *("homogeneity", "categories", "each", "cells k"),
            Point(100_000, 1, 30, 2),
            {"rows": ROWS, "size": (10, 30, 100, 1000), "epsilon": EPSILONS, "owners": OWNERS},
            _cells,
        ),
        Question(
            *("independence_table", "categories", "each", "cells k"),
            Point(100_000, 2, 100, 2),
            {"rows": ROWS, "columns": (2, 3, 4), "size": (25, 100, 900), "epsilon": EPSILONS},
            _cells,
        ),
        Question(
            *("stratified_table", "categories", "each", "cells k"),
            Point(100_000, 2, 16, 2),
            {"rows": ROWS, "size": (16, 36, 100), "owners": OWNERS},
            _cells,
        ),
        Question(
            *("survival", "times", "each", "cells k"),
            Point(100_000, 2, 16, 2),
            {"rows": ROWS, "size": (16, 64, 200), "owners": OWNERS},
            _survival,
        ),
        Question(
            *("identity", "categories", "one", "cells k"),
            Point(100_000, 1, 100, 1),
            {"rows": ROWS, "size": (10, 100, 1000), "epsilon": EPSILONS},
            _identity,
        ),
        Question(
            *("embedding_release", "numbers", "each", "points J"),
            Point(100_000, 5, 30, 2),
            NUMBERS | {"size": (10, 30, 100), "owners": (2, 10, 100)},
            lambda point: {"n_points": point.size},
        ),
    )
}


def name_of(question: str, point: Point) -> str:
    """Return a cell's name: the question and the point."""
    return f"{question} | {json.dumps(vars(point), separators=(',', ':'))}"
