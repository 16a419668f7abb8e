"""Distance correlation in one process, of columns that one trusted party holds."""

from typing import Any

import numpy.typing as npt

from tacit.array_table import ArrayTable, drawing
from tacit.in_process import local_study, run, seed_text
from tacit.local.callers_words import in_callers_words
from tacit.local.variables import Variables
from tacit.results import CuratedDistanceCorrelationResult
from tacit_protocol.messages.study import UnitRows
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.registry import procedure_named

OWNER = "owner"
"""Name of the one owner."""


def curated_distance_correlation(
    read: Variables,
    parameters: dict[str, Any],
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    units: npt.ArrayLike | None,
    unit_rows: UnitRows,
    seed: int | None,
    progress: Progress | None,
) -> CuratedDistanceCorrelationResult:
    """Play a study of ``curated_distance_correlation`` of two variables at one owner.

    Raises:
        StudyRefusedError: the procedure does not take these parameters, or so few or so many rows.
    """
    procedure = procedure_named("curated_distance_correlation")
    study = local_study(
        procedure.name,
        read.domain,
        [OWNER],
        {"groups": [list(group) for group in read.groups]} | parameters,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        seed=seed_text(seed),
    )
    table = ArrayTable.of(read.sample, read.domain, units, drawing(unit_rows, units))
    with in_callers_words():
        result = run(procedure, study, [table], OpenDPNoise(), progress)
    if not isinstance(result, CuratedDistanceCorrelationResult):
        raise TypeError("curated_distance_correlation has a result of another type")
    return result
