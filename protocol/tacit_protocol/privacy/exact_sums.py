"""Dyadic grids and sums on them that are exact, so that they depend neither on order nor on chunks.

A float sum can move by more than the ideal sensitivity when one unit is replaced. Here each unit's
contribution, a vector with coordinates in [-1, 1], is rounded to multiples of 2**-bits first; every later sum
and product is then an integer that float64 or int64 holds exactly. What the rounding costs is derived in
docs/mathematics/privacy.md.
"""

import math

import numpy as np
import numpy.typing as npt

GRID_BITS_MAX = 20
"""Finest grid: 2**-20 is far below any noise that is worth its budget, and leaves chunks of 8192 rows."""

SUM_BITS = 61
"""Exact sums stay within 2**61, as 64 scales of noise do, so that their sum stays within 2**62 (noise.py)."""

FLOAT_BITS = 53
"""Integers up to 2**53 are exact in float64, and so is any matrix product whose partial sums stay there."""

FEATURE_ERROR_STEPS = 1 / 16
"""Largest error of a computed feature coordinate, in grid steps, that the sensitivities allow for: 6e-8 on
the finest grid, where float64 features with a condition number of 1e8 are good to 1e-11."""

BLOCK_ROWS = 8192
"""Rows worked on at once, more than most slices of features have: parts of whole columns take up to twice as
long a value. The result does not depend on it."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class GridError(ValueError):
    """A contribution does not fit its grid. The message quotes no value."""


def grid_bits(units: int, products: bool) -> int:
    """Return the finest grid on which sums over ``units`` units, or of their products, cannot overflow.

    Raises ValueError where ``units`` is not positive or is too many for a grid of 8 bits.
    """
    if units < 1:
        raise ValueError("a grid needs at least one unit")
    room = SUM_BITS - (units - 1).bit_length()
    bits = min(GRID_BITS_MAX, room // 2 if products else room)
    if bits < 8:
        raise ValueError("too many units for exact sums: split the data set")
    return bits


def chunk_rows_max(bits: int) -> int:
    """Return how many rows a float64 matrix product may sum and stay exact: rows * 2**(2 bits) <= 2**53."""
    return 1 << (FLOAT_BITS - 2 * bits)


def round_to_grid(x: npt.ArrayLike, bits: int) -> Floats:
    """Round to multiples of 2**-bits, half to even. Same shape as ``x``; coordinates must lie in [-1, 1]."""
    values = np.asarray(x, dtype=np.float64)
    rounded = np.add(values, _shift(bits), out=np.empty_like(values))
    _require_bounded(rounded, bits)
    rounded -= _shift(bits)
    return rounded


def whole_steps(x: npt.ArrayLike, bits: int) -> Floats:
    """Round to multiples of 2**-bits, half to even, and return how many: whole numbers, shaped as ``x``."""
    steps = round_to_grid(x, bits)
    steps *= 2.0**bits
    return steps


def rounding_sensitivity(coordinates: int, bits: int) -> float:
    """Bound the L2 change that rounding adds to the change of one unit's contribution, (coordinates,).

    Rows are rounded by half a step per coordinate, their average over a unit by another half, and features
    are computed with an error; so each of two neighbours lies within 1 + 1/16 steps of its ideal.
    """
    return 2 * _displacement(coordinates, bits)


def second_moment_rounding_sensitivity(coordinates: int, bits: int, norm: float = 1.0) -> float:
    """Bound the Frobenius change that rounding adds to the change of one unit's outer product.

    For contributions of norm at most ``norm``: |(z + e)(z + e)' - zz'| <= 2 norm |e| + |e|^2, at both.
    """
    error = _displacement(coordinates, bits)
    return 2 * (2 * norm * error + error**2)


class ExactSum:
    """Exact sums of contributions and, where asked for, of their outer products.

    ``total`` is (coordinates,) int64 in steps of 2**-bits; ``second`` is (coordinates, coordinates) int64 in
    steps of 2**-(2 bits). Both are the same bits whatever the order, the chunks and the merges.
    """

    def __init__(self, coordinates: int, bits: int, products: bool) -> None:
        if not 1 <= bits <= GRID_BITS_MAX:
            raise ValueError("bits must lie between 1 and 20")
        self.bits, self.products, self.units = bits, products, 0
        self.total: Integers = np.zeros(coordinates, dtype=np.int64)
        self.second: Integers = np.zeros((coordinates, coordinates) if products else (0, 0), dtype=np.int64)

    def add(self, rows: Floats) -> None:
        """Round contributions, (units, coordinates) in [-1, 1], to the grid and add them.

        Raises GridError where a coordinate is outside [-1, 1] or not a number, or the sums could overflow;
        the sums are then no longer to be used.
        """
        if rows.ndim != 2 or rows.shape[1] != self.total.size:
            raise GridError("contributions must be a matrix with one column per coordinate")
        self._count(rows.shape[0])
        block = min(BLOCK_ROWS, chunk_rows_max(self.bits))
        flat = np.empty(min(block, rows.shape[0]) * self.total.size)
        # The buffer is laid out as the rows are: whole columns, or whole rows, one after the other.
        by_column = abs(rows.strides[0]) < abs(rows.strides[1])
        for start in range(0, rows.shape[0], block):
            part = rows[start : start + block]
            shape = part.shape[::-1] if by_column else part.shape
            buffer = flat[: part.size].reshape(shape)
            self._add_block(part, buffer.T if by_column else buffer)

    def _add_block(self, part: Floats, buffer: Floats) -> None:
        np.add(part, _shift(self.bits), out=buffer)
        _require_bounded(buffer, self.bits)
        self.total += _sum_of_steps(buffer, self.bits)
        if self.products:
            buffer -= _shift(self.bits)
            self.second += np.multiply(buffer.T @ buffer, 4.0**self.bits).astype(np.int64)

    def merge(self, other: "ExactSum") -> None:
        """Add the sums of another part of the same data set, made on the same grid."""
        if (other.bits, other.products, other.total.size) != (self.bits, self.products, self.total.size):
            raise GridError("only sums of the same shape on the same grid can be merged")
        self._count(other.units)
        self.total += other.total
        self.second += other.second

    def _count(self, units: int) -> None:
        self.units += units
        if self.units and self.bits > grid_bits(self.units, self.products):
            raise GridError("too many units for this grid")


class UnitSums:
    """Sums of rows by privacy unit, for units that own several rows, possibly in different chunks."""

    def __init__(self, units: int, coordinates: int, bits: int) -> None:
        if not 1 <= bits <= GRID_BITS_MAX:
            raise ValueError("bits must lie between 1 and 20")
        self.bits = bits
        self._sums: Integers = np.zeros((units, coordinates), dtype=np.int64)
        self._counts: Integers = np.zeros(units, dtype=np.int64)

    def add(self, rows: Floats, unit: Integers) -> None:
        """Round rows, (rows, coordinates) in [-1, 1], and add each to its unit, numbered from 0."""
        if rows.ndim != 2 or unit.shape != (rows.shape[0],) or rows.shape[1] != self._sums.shape[1]:
            raise GridError("rows must be a matrix, with one unit number per row")
        if rows.shape[0] == 0:
            return
        if unit.min() < 0 or unit.max() >= self._counts.size:
            raise GridError("a unit number is outside its range")
        groups = self._counts.size
        self._sums += sums_by_group(whole_steps(rows, self.bits), unit, groups).astype(np.int64)
        self._counts += np.bincount(unit, minlength=groups)

    def averages(self) -> Floats:
        """Return each unit's average on the grid, (units, coordinates), rounded once, halves upward.

        Raises GridError where a unit has no row.
        """
        if np.any(self._counts == 0):
            raise GridError("every unit needs at least one row")
        counts = self._counts[:, None]
        return np.asarray(
            np.ldexp(((2 * self._sums + counts) // (2 * counts)).astype(np.float64), -self.bits)
        )


def unit_averages(rows: Floats, unit: Integers, units: int, bits: int) -> Floats:
    """Return the average of the rounded rows of each unit, on the grid: exact, whatever the rows' order."""
    sums = UnitSums(units, rows.shape[-1], bits)
    sums.add(rows, unit)
    return sums.averages()


def sums_by_group(steps: Floats, group: Integers, groups: int, signs: Floats | None = None) -> Floats:
    """Return the sums of the rows, (rows, coordinates), of each group, (groups, coordinates).

    ``group`` is (rows,), numbered from 0; ``signs``, (rows,), multiply the rows. Whole numbers are summed
    exactly while their sums stay within 2**53.
    """
    from scipy.sparse import csc_array  # noqa: PLC0415 (slow to import)

    rows = len(group)
    weights = np.ones(rows) if signs is None else signs
    # Column i of the matrix says which group row i is added to.
    members = csc_array((weights, group, np.arange(rows + 1)), shape=(groups, rows))
    return np.asarray(members @ np.ascontiguousarray(steps), dtype=np.float64)


def _shift(bits: int) -> float:
    """Return what rounds to the grid when added: float64 numbers near it lie one step apart.

    It is an even number of steps, so that halves go to even steps, and the floats' own bits count steps.
    """
    return 1.5 * 2.0 ** (FLOAT_BITS - 1 - bits)


def _require_bounded(shifted: Floats, bits: int) -> None:
    """Refuse contributions outside [-1, 1], and those that are not numbers, by their shifted values."""
    if shifted.size and not (shifted.max() <= _shift(bits) + 1 and shifted.min() >= _shift(bits) - 1):
        raise GridError("a contribution lies outside [-1, 1] or is not a number")


def _sum_of_steps(shifted: Floats, bits: int) -> Integers:
    """Return the sums over rows of shifted contributions, (rows, coordinates), in steps.

    Sums of the floats' bits, modulo 2**64, less the shift's as often as there are rows.
    """
    zero = int(np.float64(_shift(bits)).view(np.uint64))
    sums = shifted.view(np.uint64).sum(axis=0, dtype=np.uint64)
    return np.asarray((sums - np.uint64(zero * len(shifted) % 2**64)).view(np.int64))


def _displacement(coordinates: int, bits: int) -> float:
    """Bound the L2 distance between one unit's contribution on the grid and its ideal."""
    steps = 1 + FEATURE_ERROR_STEPS
    return math.nextafter(steps * math.sqrt(coordinates) * 2.0**-bits, math.inf)
