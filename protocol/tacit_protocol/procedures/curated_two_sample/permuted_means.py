"""Distances between two samples' means under permutations: the square root of the V-statistic MMD^2.

T_b = |mean of the features of n_x chosen units - mean of the others'|; replication 0 chooses sample x itself.
One unit changes one feature in one of the means: T_b moves by at most diameter / min(n_x, n_y). The random
choices are secret: averaged over them the bound holds for any order of the table, also one that depends on
the data.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import ONE_WORKER, EncodedChunk, PooledTable, Workers
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, ProductKernel
from tacit_protocol.features.moments import UnitCountError, contributions
from tacit_protocol.features.unit_gram import UnitGram, gather_units
from tacit_protocol.privacy.exact_sums import FLOAT_BITS, GRID_BITS_MAX, rounding_sensitivity
from tacit_protocol.strict import StudyError

UNIT_ROUNDOFF = 2.0**-53

Choices = npt.NDArray[np.uint8]
"""Which units each replication puts into the first mean: bits, (replications, ceil(N / 8))."""

Units = tuple[int, int]
Samples = tuple[PooledTable, PooledTable]
Progress = Callable[[float], None]

CHOICE_BYTES_MAX = 2**30
"""Most memory for the choices: a million units with 8000 replications."""

ROWS_AT_ONCE = 512
"""Rows and columns of a kernel matrix multiplied at once."""

KERNEL_ROUNDINGS = 512
"""Rounding errors, in units in the last place, that a kernel value may have: its exponent is at most 40 where
it matters, and is good to a few units of its own last place."""

KERNEL_UNITS_MAX = 50_000
"""Most units of the full kernel, whose time grows with their square: some minutes."""


class PermutationSizeError(StudyError):
    """There are too many units for so many permutations. Says what to change; units are public."""


def check_choices(units: Units, permutations: int) -> None:
    """Raise PermutationSizeError where the choices would not fit CHOICE_BYTES_MAX."""
    if (permutations + 1) * -(-sum(units) // 8) > CHOICE_BYTES_MAX:
        raise PermutationSizeError("too many units for so many permutations; ask for fewer of either")


def check_kernel(units: Units) -> None:
    """Raise PermutationSizeError where there are too many units for the full kernel."""
    if sum(units) > KERNEL_UNITS_MAX:
        raise PermutationSizeError("too many units for the full kernel; use features instead")


def draw_choices(units: Units, permutations: int, seed: np.random.SeedSequence) -> Choices:
    """Draw the choices; the first replication is the samples as they are. One child of ``seed`` for each.

    Raises PermutationSizeError where they would not fit CHOICE_BYTES_MAX.
    """
    total = sum(units)
    check_choices(units, permutations)
    choices = np.empty((permutations + 1, -(-total // 8)), dtype=np.uint8)
    chosen = np.arange(total) < units[0]
    choices[0] = np.packbits(chosen)
    for replication in range(permutations):
        child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, replication))
        choices[1 + replication] = np.packbits(np.random.default_rng(child).permutation(chosen))
    return choices


def _unpacked(choices: Choices, start: int, stop: int) -> FloatMatrix:
    """Return the choices of units ``start`` to ``stop`` - 1 as 0 and 1, (replications, units) float64."""
    first = start // 8
    bits = np.unpackbits(choices[:, first : -(-stop // 8)], axis=1)
    return bits[:, start - 8 * first : stop - 8 * first].astype(np.float64)


def _bits(units: int) -> int:
    """Return the grid on which sums over so many units are exact in float64."""
    return min(GRID_BITS_MAX, FLOAT_BITS - units.bit_length())


@dataclass(frozen=True)
class PermutedFeatures:
    """Distances of explicit features' means: one matrix product for every chunk of rows."""

    features: FeatureMap

    @property
    def norm(self) -> float:
        """Bound on the norm of a unit's features."""
        return self.features.norm

    def sensitivity(self, units: Units) -> float:
        """Bound the change of every T_b when one unit is replaced, all rounding included."""
        dimension = self.features.dimension
        rounding = rounding_sensitivity(dimension, _bits(sum(units)))
        length = self.features.norm + rounding
        # Two means, their difference, its squares and their sum: a few units in the last place each.
        arithmetic = 2 * (2 * dimension + 12) * length * UNIT_ROUNDOFF
        return (self.features.diameter + rounding) / min(units) + arithmetic

    def distances(
        self,
        samples: Samples,
        choices: Choices,
        progress: Progress | None = None,
        workers: Workers = ONE_WORKER,
    ) -> npt.NDArray[np.float64]:
        """Return T_b, (replications,), in constant memory but for the choices and their means.

        The same bits for any ``workers``, who sum a chunk each: sums are exact. Raises UnitCountError where
        the units are not as many as the tables say.
        """
        units = samples[0].units, samples[1].units
        bits = _bits(sum(units))
        chosen = np.zeros((len(choices), self.features.dimension))
        total = np.zeros(self.features.dimension)
        place = 0
        for found in workers.map(_chunk_sums, (self.features, bits), _pieces(samples, choices)):
            chosen += found.chosen
            total += found.total
            place += found.units
            if progress is not None:
                progress(place / sum(units))
        difference = chosen / units[0]
        difference -= (total - chosen) / units[1]
        squared = np.einsum("bj,bj->b", difference, difference)
        return np.asarray(np.ldexp(np.sqrt(squared), -bits))


class _Piece(NamedTuple):
    """A chunk, and the choices of its units: from bit ``first`` on."""

    chunk: EncodedChunk
    choices: Choices
    first: int


class _ChunkSums(NamedTuple):
    """Sums of a chunk's contributions in steps: those of chosen units, (replications, J), and all, (J,)."""

    chosen: FloatMatrix
    total: FloatMatrix
    units: int


def _pieces(samples: Samples, choices: Choices) -> Iterator[_Piece]:
    place = 0
    for sample in samples:
        left = sample.units
        for chunk in sample.chunks():
            left -= chunk.units
            if left < 0:
                break
            stop = place + chunk.units
            yield _Piece(chunk, choices[:, place // 8 : -(-stop // 8)], place % 8)
            place = stop
        if left:
            raise UnitCountError("the data changed while they were read")


def _chunk_sums(shared: tuple[FeatureMap, int], piece: _Piece) -> _ChunkSums:
    features, bits = shared
    chosen = np.zeros((len(piece.choices), features.dimension))
    total = np.zeros(features.dimension)
    count = 0
    for rows in contributions(features, piece.chunk, bits):
        steps = np.rint(np.ldexp(rows, bits))
        place = piece.first + count
        chosen += _unpacked(piece.choices, place, place + len(steps)) @ steps
        total += steps.sum(axis=0)
        count += len(steps)
    return _ChunkSums(chosen, total, count)


@dataclass(frozen=True)
class PermutedKernel:
    """Distances in the full space of a product kernel, from blocks of the kernel matrix."""

    kernel: ProductKernel
    columns: tuple[int, int]
    """Numbers of numeric and of categorical columns."""

    @property
    def norm(self) -> float:
        """Norm of every unit's k(x, .): at most 1."""
        return 1.0

    def sensitivity(self, units: Units) -> float:
        """Bound the change of every T_b when one unit is replaced, evaluation included.

        T_b^2 is a sum of N^2 kernel values with weights whose absolute values add up to 4. Blocks of
        ROWS_AT_ONCE keep its error below that of as many additions, one a block, and the kernel's own; an
        error e in T_b^2 is at most sqrt e in T_b.
        """
        additions = 4 * ROWS_AT_ONCE + sum(units) / ROWS_AT_ONCE + KERNEL_ROUNDINGS
        error = math.sqrt(4 * additions * 2 * UNIT_ROUNDOFF)
        return self.kernel.distance_max(*self.columns) / min(units) + 2 * error

    def distances(
        self,
        samples: Samples,
        choices: Choices,
        progress: Progress | None = None,
        workers: Workers = ONE_WORKER,
    ) -> npt.NDArray[np.float64]:
        """Return T_b, (replications,): the same bits for any ``workers``. The matrix is never held whole.

        Raises PermutationSizeError above KERNEL_UNITS_MAX units.
        """
        units = samples[0].units, samples[1].units
        total = sum(units)
        check_kernel(units)
        chunks = [chunk for sample in samples for chunk in sample.chunks()]
        # Of a study of one row a unit, chunks number no units.
        several = any(chunk.unit is not None for chunk in chunks)
        gram = UnitGram(self.kernel, gather_units(chunks), several_rows=several)
        if gram.size != total:
            raise UnitCountError("the data changed while they were read")
        squared = np.zeros(len(choices))
        starts = range(0, total, ROWS_AT_ONCE)
        done = 0
        for start, found in zip(
            starts, workers.map(_block_row, _Blocks(gram, choices, units), starts), strict=True
        ):
            squared += found
            # A block of rows takes as long as there are columns from it on.
            done += total - start
            if progress is not None:
                progress(done / sum(total - begin for begin in starts))
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


class _Blocks(NamedTuple):
    gram: UnitGram
    choices: Choices
    units: Units


def _block_row(blocks: _Blocks, start: int) -> FloatMatrix:
    """Return what rows from ``start`` on add to every T_b^2, (replications,), and the columns like them."""
    gram, choices, units = blocks
    stop = min(start + ROWS_AT_ONCE, gram.size)
    signed = _signed(choices, units, start, stop)
    inner = gram.tile(start, stop, start, stop) @ signed.T
    # The matrix is symmetric: blocks to the right of the diagonal count twice.
    for left in range(stop, gram.size, ROWS_AT_ONCE):
        right = min(left + ROWS_AT_ONCE, gram.size)
        inner += 2 * gram.tile(start, stop, left, right) @ _signed(choices, units, left, right).T
    return np.asarray(np.einsum("bi,ib->b", signed, inner))


def _signed(choices: Choices, units: Units, start: int, stop: int) -> FloatMatrix:
    chosen = _unpacked(choices, start, stop)
    return chosen * (1 / units[0] + 1 / units[1]) - 1 / units[1]
