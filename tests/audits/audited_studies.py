"""The studies that are audited, and tables of neighbours: one unit among others is replaced by another."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from made_studies import made_study
from release_audit import FixedTable, Neighbours

from tacit.testing.neighbour_search import Codes, Effort, Features, Space, largest_change
from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures import embedding_release
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

BLACK_BOX_EPSILON = 4.0
"""Of studies for the black-box audit: 200 000 runs tell apart 2 % of its mu of 0.92, but 7 % of 0.27."""


def domain(numeric: int, *levels: Iterable[str]) -> Domain:
    """Return numeric columns x0, x1 … in [0, 1], and a categorical one, c0, c1 …, for each set of levels."""
    numbers = [NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(numeric)]
    categories = [CategoricalColumn(name=f"c{i}", levels=tuple(given)) for i, given in enumerate(levels)]
    return Domain(columns=(*numbers, *categories))


def study(
    procedure: str,
    columns: Domain | Iterable[Column],
    parameters: Mapping[str, Any],
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    owners: Mapping[str, tuple[str, ...] | None] | None = None,
    curated: bool = False,
    level: float = 0.05,
    rows: int = 1,
) -> Study:
    """Return a study of ``owners``, each with the columns that it holds: all of them, or those named.

    A unit may have as many as ``rows`` rows: then the study has a column that names it.
    """
    held = {"owner": None} if owners is None else owners
    return made_study(
        procedure,
        columns if isinstance(columns, Domain) else Domain(columns=tuple(columns)),
        parameters,
        owners=tuple(held),
        held=tuple(held.values()),
        curated=curated,
        epsilon=epsilon,
        delta=delta,
        level=level,
        unit_column="person" if rows > 1 else None,
    )


TWO_OWNERS: dict[str, None] = {"owner-0": None, "owner-1": None}


def space_of(columns: Domain) -> Space:
    return Space(len(columns.numeric), tuple(c.categories for c in columns.categorical))


def random_rows(columns: Domain, seed: int, count: int) -> Rows:
    return space_of(columns).random(np.random.default_rng(seed), count)


def rows_at(columns: Domain, value: int, count: int) -> Rows:
    """Rows at the lower (0) or upper (1) end of every column."""
    numeric = np.full((count, len(columns.numeric)), float(value))
    return Rows(numeric, np.full((count, len(columns.categorical)), value, dtype=np.int32))


def stacked(*parts: Rows) -> Rows:
    return Rows(np.concatenate([p.numeric for p in parts]), np.concatenate([p.categorical for p in parts]))


def table(columns: Domain, others: Rows, unit: Rows, several: bool = False) -> FixedTable:
    """Every other row is a unit of its own; so is ``unit``, which is first where units have several rows."""
    rows, owners, units = stacked(others, unit), None, len(others) + len(unit)
    if several:
        rows, units = stacked(unit, others), 1 + len(others)
        owners = np.concatenate([np.zeros(len(unit), np.int64), 1 + np.arange(len(others), dtype=np.int64)])
    return FixedTable(columns, (EncodedChunk(rows.numeric, rows.categorical, owners, units),))


def neighbours(columns: Domain, others: Rows, unit: Rows, other: Rows) -> Neighbours:
    """Two tables of the same other units, and of one unit or the other."""
    several = max(len(unit), len(other)) > 1
    return table(columns, others, unit, several), table(columns, others, other, several)


def farthest_units(
    features: Features, columns: Domain, rows_per_unit: int, anchors: Any = None
) -> tuple[Rows, Rows]:
    """The two units that features tell apart most; the search begins near the anchors too."""
    found = largest_change(
        features,
        space_of(columns),
        seed=3,
        rows_per_unit=rows_per_unit,
        anchors=None if anchors is None else Rows(anchors.numeric, anchors.categorical),
        effort=Effort(200, 4, 2),
    )
    return found.unit, found.other


FEATURES = {
    "kernel_two_sample": lambda asked: KernelTwoSample().plan(asked).release.features,
    "curated_two_sample": lambda asked: CuratedTwoSample().plan(asked).release.features,
    "embedding_release": embedding_release.features_of,
}


def worst_units(asked: Study, rows_per_unit: int = 1) -> tuple[Rows, Rows]:
    """The two units that a study's features tell apart most."""
    return _worst_units(asked.model_dump_json(), rows_per_unit)


@cache
def _worst_units(text: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    asked = Study.model_validate_json(text)
    features: Any = FEATURES[asked.procedure](asked)
    return farthest_units(features, asked.domain, rows_per_unit, getattr(features, "locations", None))


def no_codes(count: int) -> Codes:
    return np.zeros((count, 0), dtype=np.int32)
