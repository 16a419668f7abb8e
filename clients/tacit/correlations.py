"""Correlation matrices, and the results of screenings, which have them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, pandas_module
from tacit_protocol.procedures.screening.verdict import AnsweredScreeningVerdict, ScreeningVerdict

if TYPE_CHECKING:
    import pandas as pd


Floats = npt.NDArray[np.float64]

PROJECTIONS_MAX = 2000
"""Most alternating projections: they converge linearly, and a matrix of 128 columns takes some hundreds."""

CONVERGED = 1e-10
"""Change of the matrix, relative to its norm, at which projections stop."""

HALVINGS = 50
"""Halvings of [0, 1] that find a correlation: to 1e-15."""


@dataclass(frozen=True)
class CorrelationMatrix:
    """A correlation matrix, (p, p), with its columns' names: unit diagonal, positive semidefinite."""

    columns: tuple[str, ...]
    values: Floats

    def to_pandas(self) -> "pd.DataFrame":
        """Return it as a data frame. Raises InputError where pandas is not installed."""
        names = list(self.columns)
        found: pd.DataFrame = pandas_module().DataFrame(self.values, index=names, columns=names)
        return found


def nearest_correlation(matrix: Floats) -> Floats:
    """Return the correlation matrix nearest to a symmetric one, (p, p), in the Frobenius norm.

    Alternating projections with Dykstra's correction (Higham, IMA Journal of Numerical Analysis 22, 2002).

    >>> nearest_correlation(np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])).round(3)[0]
    array([ 1. ,  0.5, -0.5])
    """
    found, correction = np.array(matrix, dtype=np.float64), np.zeros(matrix.shape)
    for _ in range(PROJECTIONS_MAX):
        shifted = found - correction
        values, vectors = np.linalg.eigh(shifted)
        semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = semidefinite - shifted
        before, found = found, semidefinite.copy()
        np.fill_diagonal(found, 1.0)
        if np.linalg.norm(found - before) <= CONVERGED * np.linalg.norm(found):
            break
    # The last projection leaves eigenvalues a hair below 0: one more, scaled back to a unit diagonal.
    values, vectors = np.linalg.eigh(found)
    semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
    roots = np.sqrt(np.diagonal(semidefinite))
    scaled = semidefinite / np.outer(roots, roots)
    np.fill_diagonal(scaled, 1.0)
    return np.asarray((scaled + scaled.T) / 2)


def normal_distance_correlation(correlation: npt.ArrayLike) -> Floats:
    """Return the distance correlation of two jointly normal variables with these correlations, in [-1, 1].

    Szekely, Rizzo and Bakirov, Annals of Statistics 35 (2007), theorem 7.

    >>> float(normal_distance_correlation(1.0)), round(float(normal_distance_correlation(0.5)), 4)
    (1.0, 0.4541)
    """
    r = np.abs(np.asarray(correlation, dtype=np.float64))
    squared = (r * np.arcsin(r) + np.sqrt(1 - r**2) - r * np.arcsin(r / 2) - np.sqrt(4 - r**2) + 1) / (
        1 + np.pi / 3 - np.sqrt(3)
    )
    # Near 0 the terms cancel to a few 1e-16 about 0.
    return np.asarray(np.sqrt(np.clip(squared, 0.0, 1.0)))


def normal_correlation(distance_correlation: npt.ArrayLike) -> Floats:
    """Return the correlations of jointly normal variables that have these signed distance correlations.

    The inverse of :func:`normal_distance_correlation`, with the sign given: valid where margins are normal,
    and not otherwise.
    """
    signed = np.asarray(distance_correlation, dtype=np.float64)
    target = np.abs(signed)
    low, high = np.zeros(signed.shape), np.ones(signed.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = normal_distance_correlation(middle) >= target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray(np.sign(signed) * high)


def symmetric(below: npt.ArrayLike, columns: int) -> Floats:
    """Put entries below the diagonal, row by row, into a symmetric matrix with unit diagonal."""
    matrix = np.eye(columns)
    rows, places = np.tril_indices(columns, -1)
    matrix[rows, places] = matrix[places, rows] = np.asarray(below, dtype=np.float64)
    return matrix


def filled(matrix: Floats, unknown: float | None) -> Floats:
    """Return the matrix with ``unknown`` where it is nan; raises InputError where there is nothing to put."""
    gaps = np.isnan(matrix)
    if not gaps.any():
        return matrix
    if unknown is None:
        raise InputError(
            "some columns' own variances are lost in the noise: pass unknown=0 to take them as uncorrelated, "
            "or leave those columns out of the study"
        )
    return np.where(gaps, unknown, matrix)


NO_MATRIX = "the study asked for no correlation matrix: set its parameter matrix = true"


class AnsweredScreeningResult(AnsweredScreeningVerdict):
    """Outcome of ``screening`` by randomised answers. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    @property
    def matrix(self) -> None:
        """None: answers tell nothing of one owner's columns among each other."""

    def correlation_matrix(self, **_: Any) -> CorrelationMatrix:
        """Raise InputError: only a screening with matrix = true has such a matrix."""
        raise InputError(NO_MATRIX)


class ScreeningResult(ScreeningVerdict):
    """Outcome of ``screening`` by sketches. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    def correlation_matrix(self, *, normal: bool = False, unknown: float | None = None) -> CorrelationMatrix:
        """Return the correlation matrix nearest to the signed distance correlations of all columns.

        Of both owners' columns, those of one owner among each other too; for columns without an order
        (groups) without sign. It is positive semidefinite with unit diagonal.

        Args:
            normal: first turn each distance correlation into the correlation of the bivariate normal that
                has it: what a Gaussian copula takes. Valid for columns with normal margins alone, whose
                bounds leave little of them out.
            unknown: what to put for columns whose own variance is lost in the noise.

        Raises:
            InputError: a correlation is unknown.
        """
        below = [float("nan") if value is None else value for value in self.matrix.correlations]
        signed = filled(symmetric(below, len(self.matrix.columns)), unknown)
        return CorrelationMatrix(
            self.matrix.columns, nearest_correlation(normal_correlation(signed) if normal else signed)
        )
