"""Rows of simulated studies, from a public sample or stand-ins: with a difference, or with a dependence."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from tacit.errors import InputError
from tacit.frames import Sample
from tacit.planning.effects import Amounts, Shape
from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn

STAND_IN_SPREAD = 6.0
"""Without a public sample numeric columns are normal, their bounds six standard deviations apart."""

Floats = npt.NDArray[np.float64]


def draw_rows(sample: Sample | None, domain: Domain, size: int, rng: np.random.Generator) -> Sample:
    """Draw rows of a public sample with replacement, or of independent stand-ins."""
    if sample is not None:
        rows = rng.integers(0, sample.rows, size)
        return Sample({name: values[rows] for name, values in sample.columns.items()})
    return Sample(
        {column.name: _values(None, column, rng.standard_normal(size)) for column in domain.columns}
    )


def _values(sample: Sample | None, column: Column, latent: Floats) -> npt.NDArray[np.generic]:
    """Return a column's values, (n,), increasing in latent numbers (n,), which are standard normal.

    Their distribution is that of the sample, or of a stand-in; levels are in the order of the domain.
    """
    if sample is not None:
        held: npt.NDArray[np.generic] = sample.numeric(column.name)
        keys = held
        if isinstance(column, CategoricalColumn):
            held = sample.categorical(column.name)
            place = {level: number for number, level in enumerate(column.levels)}
            keys = np.array([place.get(str(value), len(place)) for value in held])
        ordered = held[np.argsort(keys, kind="stable")]
        return np.asarray(ordered[np.minimum((ndtr(latent) * sample.rows).astype(int), sample.rows - 1)])
    if isinstance(column, NumericColumn):
        return np.asarray(column.lower / 2 + column.upper / 2 + latent * stand_in_deviation(column))
    levels = np.array(column.levels, dtype=object)
    return np.asarray(levels[np.minimum((ndtr(latent) * len(levels)).astype(int), len(levels) - 1)])


def stand_in_deviation(column: NumericColumn) -> float:
    """Return the standard deviation of a numeric column's stand-in."""
    return (column.upper - column.lower) / STAND_IN_SPREAD


def dependent_rows(
    sample: Sample | None,
    domain: Domain,
    size: int,
    rng: np.random.Generator,
    *,
    pair: tuple[str, str],
    correlation: float,
    shape: Shape,
) -> Sample:
    """Draw rows whose columns are independent, but for one pair.

    The pair are increasing functions of normal numbers of that correlation; or, of shape "quadratic", of x
    and of correlation * (x^2 - 1) / sqrt(2) + sqrt(1 - correlation^2) * noise. Every column has the
    distribution of its stand-in, or of the public sample.
    """
    latent = {column.name: rng.standard_normal(size) for column in domain.columns}
    first, rest = latent[pair[0]], latent[pair[1]]
    carried = first if shape == "linear" else (first**2 - 1) / np.sqrt(2)
    latent[pair[1]] = correlation * carried + np.sqrt(1 - correlation**2) * rest
    return Sample({column.name: _values(sample, column, latent[column.name]) for column in domain.columns})


def by_column(effect: Amounts, domain: Domain, neutral: float) -> dict[str, float]:
    """Return an amount for each numeric column.

    Raises:
        InputError: the effect names what is no numeric column.
    """
    numeric = [column.name for column in domain.numeric]
    if not isinstance(effect, Mapping):
        return dict.fromkeys(numeric, float(effect))
    unknown = [name for name in effect if name not in numeric]
    if unknown:
        raise InputError(f"an effect names {', '.join(map(repr, unknown))}, which is no numeric column")
    return {name: float(effect.get(name, neutral)) for name in numeric}


def with_effect(
    drawn: Sample, sample: Sample | None, domain: Domain, shift: Amounts, scale: Amounts
) -> Sample:
    """Return the rows drawn with an effect on numeric columns, about the public sample's means.

    Values become ``centre + scale * (x - centre) + shift``.

    Raises:
        InputError: an effect names what is no numeric column.
    """
    shifts, scales = by_column(shift, domain, 0.0), by_column(scale, domain, 1.0)
    columns = dict(drawn.columns)
    for column in domain.numeric:
        centre = column.lower / 2 + column.upper / 2
        if sample is not None:
            centre = float(np.nanmean(sample.numeric(column.name)))
        values = drawn.numeric(column.name)
        columns[column.name] = centre + scales[column.name] * (values - centre) + shifts[column.name]
    return Sample(columns)


def first_column(domain: Domain) -> Column:
    """Return the column that a standard effect is on: the first numeric one, or else the first."""
    return domain.numeric[0] if domain.numeric else domain.columns[0]


def with_standard_effect(
    drawn: Sample, sample: Sample | None, domain: Domain, size: float, rng: np.random.Generator
) -> Sample:
    """Return the rows with one column shifted by so many of its standard deviations.

    Without a numeric column the first one's levels are drawn as cuts of a normal number that is shifted.
    """
    column = first_column(domain)
    if isinstance(column, NumericColumn):
        deviation = stand_in_deviation(column)
        if sample is not None:
            deviation = float(np.nanstd(sample.numeric(column.name)))
        return with_effect(drawn, sample, domain, {column.name: size * deviation}, 1.0)
    moved = _values(sample, column, rng.standard_normal(drawn.rows) + size)
    return Sample({**drawn.columns, column.name: moved})
