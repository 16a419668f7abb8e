"""Cosines and sines of whole and fractional turns, a few times faster than a mathematical library's.

With r the turns less the nearest whole number, e^(i pi r) is the eighth diagonal Pade approximant of exp to
5e-16, and its square the wave; multiples of a frequency follow by multiplication. Everything is additions,
multiplications, one division and roundings, which IEEE 754 fixes to the last bit: a value's wave is the same
bits wherever it stands in an array and on whatever processor. Derivations: docs/mathematics/features.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatMatrix = npt.NDArray[np.float64]


WAVE_ERROR = 2e-14
"""Bound on the error of a cosine or a sine at the turns as they are given, in float64."""

FACTORS_MAX = 64
"""Most waves that are multiplied into one: errors add up to 64 WAVE_ERROR at most, far below what a feature's
evaluation may be wrong by (EVALUATION_ERROR)."""

BLOCK_VALUES = 16_384
"""Values worked on at once: their five arrays stay in a processor's second cache, and NumPy's own cost of
some 30 calls, half a microsecond each, is shared by many."""

_DEGREE = 8


def _pade_coefficients() -> list[float]:
    """Return the coefficients of N, lowest first: (16 - k)! 8! / (16! k! (8 - k)!)."""
    whole = 2 * _DEGREE
    return [
        math.factorial(whole - k) * math.factorial(_DEGREE)
        / (math.factorial(whole) * math.factorial(k) * math.factorial(_DEGREE - k))
        for k in range(_DEGREE + 1)
    ]  # fmt: skip


def _scaled(first: int) -> tuple[float, ...]:
    """Return the coefficients in r^2 of N's even part or of its odd part over ir, highest first.

    Both are divided by the even part's leading one, which is then 1: a common factor of N cancels.
    """
    pade = _pade_coefficients()
    leading = pade[_DEGREE] * math.pi**_DEGREE
    signed = [(-1) ** (k // 2) * pade[k] * math.pi**k / leading for k in range(first, _DEGREE + 1, 2)]
    return tuple(reversed(signed))


_EVEN, _ODD = _scaled(0), _scaled(1)


@dataclass(frozen=True)
class Wave:
    """Cosines and sines at the same places: two arrays of one shape."""

    cosines: FloatMatrix
    sines: FloatMatrix

    def times(self, other: "Wave") -> "Wave":
        """Return the wave whose turns are the sum of both waves' turns; its error is the sum of theirs."""
        cosines = self.cosines * other.cosines
        cosines -= self.sines * other.sines
        sines = self.sines * other.cosines
        sines += self.cosines * other.sines
        return Wave(cosines, sines)

    def doubled(self) -> "Wave":
        """Return the wave of twice as many turns."""
        sines = self.sines * self.cosines
        sines += sines
        cosines = self.sines * self.sines
        cosines *= -2.0
        cosines += 1.0
        return Wave(cosines, sines)


def wave(turns: FloatMatrix) -> Wave:
    """Return cos(2 pi t) and sin(2 pi t) for every t, finite, in an array of any shape and layout."""
    if not (turns.flags.c_contiguous or turns.flags.f_contiguous):
        turns = np.array(turns, order="C")
    cosines, sines = np.empty_like(turns), np.empty_like(turns)
    given, even, odd = (array.ravel(order="K") for array in (turns, cosines, sines))
    rest, square = (np.empty(min(BLOCK_VALUES, turns.size)) for _ in range(2))
    for start in range(0, turns.size, BLOCK_VALUES):
        part = slice(start, start + BLOCK_VALUES)
        count = min(BLOCK_VALUES, turns.size - start)
        _block(given[part], rest[:count], square[:count], even[part], odd[part])
    return Wave(cosines, sines)


def _block(
    turns: FloatMatrix, rest: FloatMatrix, square: FloatMatrix, even: FloatMatrix, odd: FloatMatrix
) -> None:
    """Write the cosines to ``even`` and the sines to ``odd``; the other two are for what is on the way."""
    np.rint(turns, out=rest)
    np.subtract(turns, rest, out=rest)
    np.multiply(rest, rest, out=square)
    np.multiply(square, _ODD[0], out=odd)
    odd += _ODD[1]
    for coefficient in _ODD[2:]:
        odd *= square
        odd += coefficient
    odd *= rest
    np.add(square, _EVEN[1], out=even)
    for coefficient in _EVEN[2:]:
        even *= square
        even += coefficient
    # (even + i odd)^2 / (even^2 + odd^2) = c + is has half of the turns; the wave, 1 - 2 s^2 + 2 i s c, is 1
    # to the last bit where there is no turn at all.
    np.multiply(odd, odd, out=rest)
    np.multiply(even, even, out=square)
    odd *= even
    np.subtract(square, rest, out=even)
    square += rest
    np.divide(2.0, square, out=square)
    even *= square
    odd *= square
    np.multiply(odd, odd, out=rest)
    odd *= even
    np.multiply(rest, -2.0, out=even)
    even += 1.0


class Harmonics:
    """The waves of several frequencies at the same places, with as few evaluations as can be.

    A frequency that is the sum of two others among them is their waves' product: of the frequencies f, 2f and
    4f one is evaluated. ``cycles`` are the frequencies in turns per unit, positive.
    """

    def __init__(self, cycles: Sequence[float]) -> None:
        self._cycles = tuple(cycles)
        factors: dict[int, int] = {}
        self._plan: list[tuple[int, tuple[int, int] | None]] = []
        for index in sorted(range(len(self._cycles)), key=self._cycles.__getitem__):
            sources = self._sources(index, factors)
            factors[index] = 1 if sources is None else factors[sources[0]] + factors[sources[1]]
            self._plan.append((index, sources))

    def _sources(self, index: int, factors: dict[int, int]) -> tuple[int, int] | None:
        known = {self._cycles[other]: other for other in factors}
        found = [
            (other, known[self._cycles[index] - cycle])
            for cycle, other in known.items()
            if self._cycles[index] - cycle in known
            and cycle + (self._cycles[index] - cycle) == self._cycles[index]
        ]
        counted = [(factors[first] + factors[second], first, second) for first, second in found]
        # Doubling costs least, and is what most sets of frequencies are made of.
        counted = [entry for entry in counted if entry[0] <= FACTORS_MAX]
        if not counted:
            return None
        _, first, second = min(counted, key=lambda entry: (entry[1] != entry[2], entry[0]))
        return first, second

    def at(self, values: FloatMatrix) -> Iterator[tuple[int, Wave]]:
        """Yield every frequency's index among ``cycles`` with its wave at the values, in ascending order."""
        waves: dict[int, Wave] = {}
        for index, sources in self._plan:
            if sources is None:
                found = wave(values * self._cycles[index])
            elif sources[0] == sources[1]:
                found = waves[sources[0]].doubled()
            else:
                found = waves[sources[0]].times(waves[sources[1]])
            waves[index] = found
            yield index, found
