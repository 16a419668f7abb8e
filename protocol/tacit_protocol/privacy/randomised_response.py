"""k-ary randomised response: of every unit one randomised answer to which of k cells it is in. Pure epsilon.

A unit answers with its own cell with probability r, and else uniformly over all k: its own one with
probability r + (1 - r)/k, each other with (1 - r)/k. Their ratio is 1 + k r/(1 - r), at most e^epsilon where

    r <= (e^epsilon - 1) / (e^epsilon - 1 + k),

so that nobody's odds change by more than e^epsilon, whoever holds the answer and whatever else is known. A
unit without a cell answers uniformly, which lies between the two. Retention r is that bound, rounded down to
a multiple of 2**-53 from a lower bound of e^epsilon in integers: no float stands between epsilon and the law.
Answers are drawn from uniform 64-bit integers by comparison and rejection, so that the law is exactly that of
r. Debiasing is post-processing: docs/mathematics/randomised-columns.md.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.guarantee import EPSILON_UNITS, RandomisedAnswers

RETENTION_BITS = 53
"""Retention is a multiple of 2**-53: a float64 holds it, and its complement, exactly."""

SERIES_BITS = 320
"""Fixed point of the series for e^epsilon - 1, at most e^100."""

NO_CELL = -1
"""The code of a unit that is in no cell."""

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@runtime_checkable
class UniformSource(Protocol):
    """Draws uniform 64-bit integers; OpenDPNoise does, from the operating system."""

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` independent integers, uniform in 0..2**64 - 1."""


def retention(epsilon_micro: int, codes: int) -> float:
    """Return the largest retention on the grid that is epsilon-private among so many cells.

    >>> round(retention(1_000_000, 3), 4)
    0.3642
    """
    odds = _expm1_below(epsilon_micro)
    return float((odds << RETENTION_BITS) // (odds + (codes << SERIES_BITS))) * 2.0**-RETENTION_BITS


def _expm1_below(epsilon_micro: int) -> int:
    """Return a lower bound of e^epsilon - 1 in steps of 2**-320: its series, every term rounded down."""
    term, total, place = 1 << SERIES_BITS, 0, 1
    while term:
        term = term * epsilon_micro // (EPSILON_UNITS * place)
        total += term
        place += 1
    return total


def randomise(cells: Integers, codes: int, epsilon_micro: int, source: UniformSource) -> RandomisedAnswers:
    """Return a randomised answer of every unit, whose cells (n,) are in 0..codes - 1, or NO_CELL.

    Raises ValueError where a cell is none of those; quotes no value.
    """
    if cells.min() < NO_CELL or cells.max() >= codes:
        raise ValueError("a cell is none of those that the column has")
    kept = retention(epsilon_micro, codes)
    keeps = (source.uniform(len(cells)) >> np.uint64(64 - RETENTION_BITS)) < np.uint64(
        int(kept * 2.0**RETENTION_BITS)
    )
    answers = np.where(keeps & (cells != NO_CELL), cells, uniform_below(codes, len(cells), source))
    return RandomisedAnswers.of(answers.astype(np.int64), codes, kept)


def uniform_below(codes: int, count: int, source: UniformSource) -> Integers:
    """Return ``count`` integers, each uniform in 0..codes - 1 exactly: incomplete rounds are drawn again."""
    last = np.uint64(2**64 - 1 - 2**64 % codes)
    drawn = np.array(source.uniform(count))
    while (again := np.flatnonzero(drawn > last)).size:
        drawn[again] = source.uniform(again.size)
    return (drawn % np.uint64(codes)).astype(np.int64)


def mixing(codes: int, kept: float) -> Floats:
    """Return the probability of each answer (rows) of a unit in each cell (columns), (codes, codes)."""
    return np.asarray(kept * np.eye(codes) + (1 - kept) / codes)


def unmixing(codes: int, kept: float) -> Floats:
    """Return the inverse of :func:`mixing`: it turns shares of answers into unbiased shares of cells."""
    return np.asarray((np.eye(codes) - (1 - kept) / codes) / kept)
