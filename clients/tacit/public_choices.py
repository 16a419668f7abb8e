"""From a public sample to a study's public parameters: test locations and bandwidths."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.array_table import ArrayTable
from tacit.errors import InputError
from tacit.frames import Sample
from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.public_choices import median_distance

LOCATIONS_DEFAULT = 40
"""Locations taken from a public sample unless told otherwise."""

BANDWIDTH_ROWS_MAX = 1000
"""Public rows from which a bandwidth is found: its median needs no more, and all pairs are compared."""


def public_parameters(
    sample: Sample, domain: Domain, features: str, n_features: int | None, rng: np.random.Generator
) -> Mapping[str, Any]:
    """Choose ME locations, or the SCF bandwidth, from a public sample with the study's columns.

    Raises:
        InputError: the features do not use a public sample.
    """
    if features == "scf":
        return {"bandwidth": _bandwidth(sample, domain, rng)}
    if features != "me":
        raise InputError('a public sample serves features="me" and features="scf"; the others need none')
    count = min(n_features or LOCATIONS_DEFAULT, sample.rows)
    rows = rng.choice(sample.rows, count, replace=False)
    columns = [_values(sample, domain, column.name, rows) for column in domain.columns]
    return {"locations": [list(row) for row in zip(*columns, strict=True)]}


def _values(sample: Sample, domain: Domain, name: str, rows: Any) -> list[Any]:
    if name in {column.name for column in domain.numeric}:
        return [None if np.isnan(value) else float(value) for value in sample.numeric(name)[rows]]
    return [None if value is None else str(value) for value in sample.categorical(name)[rows]]


def _bandwidth(sample: Sample, domain: Domain, rng: np.random.Generator) -> float:
    rows = rng.permutation(sample.rows)[:BANDWIDTH_ROWS_MAX]
    chosen = Sample({name: values[rows] for name, values in sample.columns.items()})
    points = np.concatenate([chunk.numeric for chunk in ArrayTable.of(chosen, domain).chunks()])
    return median_distance(points)
