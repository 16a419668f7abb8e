"""Audits of releases that are one bit: a private decision among permuted statistics.

The bit is a function of comparisons of noisy integers, the observed statistic's and the permuted ones'. With
the other noises held fixed it is {noise on the observed one > threshold}, and replacing one unit moves the
threshold by at most |change of the observed| + max |change of a permuted|: over the scale of the noise, that
is to stay below the decision's epsilon. The audits hold the order of the units, and so every permutation,
fixed on both sides.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.discovery import procedure_named

Integers = npt.NDArray[np.int64]

BULK = 200_000
"""Noises drawn at once: OpenDP draws each by itself, but a call takes as long as fifty draws."""


class BulkNoise:
    """Hands out noise drawn in bulk: as independent as if drawn when asked for, and faster."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._drawn: Integers = np.empty(0, dtype=np.int64)
        self._scale = 0.0

    def laplace(self, values: Integers, scale: float) -> Integers:
        if scale != self._scale or len(self._drawn) < len(values):
            count = max(BULK, len(values))
            self._drawn = self._noise.laplace(np.zeros(count, dtype=np.int64), scale)
            self._scale = scale
        noise, self._drawn = self._drawn[: len(values)], self._drawn[len(values) :]
        return values + noise

    def gaussian(self, values: Integers, scale: float) -> Integers:
        raise AssertionError("decisions use Laplace noise alone")


class DecisionRuns:
    """Independent decisions on either of two neighbours; the score of a run is its bit."""

    def __init__(self, study: Study, summaries: tuple[Any, Any], noise: NoiseSource) -> None:
        self._study, self._summaries = study, summaries
        self._procedure: Procedure = procedure_named(study.procedure)
        self._noise = BulkNoise(noise)

    def scores(self, other: bool, runs: int) -> npt.NDArray[np.float64]:
        summary = self._summaries[1 if other else 0]
        privatise = self._procedure.privatise
        decisions = (privatise(self._study, summary, self._noise).decision for _ in range(runs))
        return np.fromiter((float(bool(decision)) for decision in decisions), dtype=np.float64, count=runs)


def summarise(study: Study, table: Table) -> Any:
    """Return a procedure's summary, with the units in the same order for every table of a size."""
    procedure: Any = procedure_named(study.procedure)
    if "order" not in procedure.summarise.__annotations__:
        return procedure.summarise(study, table)
    return procedure.summarise(study, table, order=np.random.default_rng(0))


def threshold_move(one: Integers, other: Integers, scale: float) -> float:
    """Bound the threshold's move by what the integers behind two decisions differ in, in scales."""
    moves = np.abs(one - other)
    return float(moves[0] + moves[1:].max()) / scale
