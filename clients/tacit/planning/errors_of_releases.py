"""How far a release is from what its owner holds: what stands for power where nothing is tested."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.frames import Sample
from tacit.released_database import ReleasedDatabase
from tacit.results import DatabaseResult, NoisyCountsResult
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.study import Study


def count_error(result: NoisyCountsResult, counts: Sequence[Any]) -> float:
    """Return how far the worst cell of an owner's table is off, as a share of its units; the owners' mean."""
    errors = [
        np.abs(noisy.ravel() - held).max() / held.sum()
        for noisy, held in zip(result.tables.counts.values(), counts, strict=True)
    ]
    return float(np.mean(errors))


def database_error(result: DatabaseResult, study: Study, samples: Sequence[Sample]) -> float:
    """Return how far a database's columns are off, one with another; the databases' mean.

    Of a numeric column the error of its mean, as a part of its range; of a categorical one the total
    variation distance of its levels' shares.
    """
    held = samples
    if study.curator is not None:
        names = samples[0].columns
        held = [Sample({name: np.concatenate([part.columns[name] for part in samples]) for name in names})]
    errors = [
        _column_errors(database, sample, study.domain)
        for database, sample in zip(result.databases.values(), held, strict=True)
    ]
    return float(np.mean(errors))


def _column_errors(database: ReleasedDatabase, sample: Sample, domain: Domain) -> list[float]:
    errors = []
    for column in domain.columns:
        points = database.points[column.name]
        if isinstance(column, NumericColumn):
            values = np.nan_to_num(np.clip(sample.numeric(column.name), column.lower, column.upper))
            off = float(database.weights @ np.asarray(points, dtype=np.float64)) - float(values.mean())
            errors.append(abs(off) / (column.upper - column.lower))
            continue
        levels = sample.categorical(column.name)
        off = sum(
            abs(float(database.weights @ (points == level)) - float(np.mean(levels == level)))
            for level in column.levels
        )
        errors.append(off / 2)
    return errors
