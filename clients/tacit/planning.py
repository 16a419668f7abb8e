"""Power by simulation: how often a study would find a given effect. Public inputs only; spends nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.array_table import ArrayTable
from tacit.bounds import domain_of
from tacit.errors import InputError
from tacit.frames import Sample, read_samples
from tacit.in_process import Setting, local_study, run, seed_text, two_sample_procedure
from tacit_protocol.domain.columns import Domain
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.registry import procedure_named

RUNS = 100
"""Simulated studies by default: a standard error of at most .05."""

STAND_IN_SPREAD = 6.0
"""Without a public sample numeric columns are normal, their bounds six standard deviations apart."""

Effect = float | Mapping[str, float]


@dataclass(frozen=True)
class PowerPlan:
    """Estimated power: the share of simulated studies that found the effect.

    Attributes:
        power: share of rejections, in [0, 1].
        standard_error: of ``power``.
        runs: number of simulated studies.
        n: privacy units of each owner.
        epsilon: what every owner would spend.
        delta: what every owner would spend.
        alpha: level of the test.
        warnings: what the procedure says of a study of this size.
    """

    power: float
    standard_error: float
    runs: int
    n: tuple[int, ...]
    epsilon: float
    delta: float
    alpha: float
    warnings: tuple[str, ...]


def plan_power(
    n: int | Sequence[int],
    *,
    epsilon: float,
    delta: float,
    bounds: Any,
    columns: Sequence[str] | None = None,
    public: Any = None,
    shift: Effect = 0.0,
    scale: Effect = 1.0,
    alpha: float = 0.05,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
    setting: Setting = "owners",
    **parameters: Any,
) -> PowerPlan:
    """Estimate the power of a two-sample test for an effect, by running whole simulated studies.

    Samples are drawn from the public sample with replacement, or, without one, from independent columns:
    normal within the bounds, levels equally often. The last owner's numeric columns get the effect
    ``centre + scale * (x - centre) + shift``, where the centre is the public mean.

    Args:
        n: units of each owner; one number stands for two owners of that size.
        epsilon: what every owner would spend.
        delta: what every owner would spend.
        bounds: as in :func:`tacit.local.kernel_two_sample`.
        columns: as there; also needed where neither ``public`` nor ``bounds`` names the columns.
        public: a public sample.
        shift: amount added to the last owner's numeric columns, in their own units; one number or by column.
        scale: factor of the last owner's spread; one number or by column.
        alpha: level of the test.
        runs: simulated studies, at least 1.
        seed: fixes the simulated samples; the noise stays random.
        progress: called with the part done, in [0, 1], and the step.
        setting: "owners", who trust no one, or "curator", who holds both samples.
        parameters: the procedure's, such as ``n_features``, or a curator's ``release``.

    Raises:
        InputError: the inputs do not fit together; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters.
    """
    sizes = [n, n] if isinstance(n, int) else list(n)
    if len(sizes) < 2 or min(sizes) < 1 or runs < 1:
        raise InputError("n must be one positive number, or at least two; runs must be at least 1")
    sample = None if public is None else read_samples([public], columns)[0]
    names = _column_names(sample, bounds, columns)
    domain = domain_of(bounds, names)
    shifts, scales = _by_column(shift, domain, 0.0), _by_column(scale, domain, 1.0)
    procedure = procedure_named(two_sample_procedure(setting))
    owners = [f"owner-{index}" for index in range(1, len(sizes) + 1)]
    rejections = 0
    warnings: tuple[str, ...] = ()
    for index, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
        study_seed = seed_text(None if seed is None else seed * runs + index)
        study = local_study(
            procedure.name,
            domain,
            owners,
            parameters,
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            seed=study_seed,
            curated=setting == "curator",
        )
        rng = np.random.default_rng(child)
        drawn = [_draw(sample, domain, size, rng) for size in sizes]
        drawn[-1] = _with_effect(drawn[-1], sample, domain, shifts, scales)
        warnings = procedure.warnings(study, dict(zip(owners, sizes, strict=True)))
        tables = [ArrayTable.of(one, domain) for one in drawn]
        rejections += run(procedure, study, tables, OpenDPNoise()).reject
        if progress is not None:
            progress((index + 1) / runs, f"simulated {index + 1} of {runs} studies")
    power = rejections / runs
    error = math.sqrt(power * (1 - power) / runs)
    return PowerPlan(power, error, runs, tuple(sizes), epsilon, delta, alpha, warnings)


def _column_names(sample: Sample | None, bounds: Any, columns: Sequence[str] | None) -> list[str]:
    if sample is not None:
        return list(sample.columns)
    if columns is not None:
        return list(columns)
    if isinstance(bounds, Domain):
        return [column.name for column in bounds.columns]
    if isinstance(bounds, Mapping):
        return [str(name) for name in bounds]
    shape = np.shape(bounds)
    if len(shape) == 2:
        return [f"x{index}" for index in range(1, shape[0] + 1)]
    raise InputError("name the columns: pass columns=[...], or bounds by name")


def _by_column(effect: Effect, domain: Domain, neutral: float) -> dict[str, float]:
    numeric = [column.name for column in domain.numeric]
    if not isinstance(effect, Mapping):
        return dict.fromkeys(numeric, float(effect))
    unknown = [name for name in effect if name not in numeric]
    if unknown:
        raise InputError(f"an effect names {', '.join(map(repr, unknown))}, which is no numeric column")
    return {name: float(effect.get(name, neutral)) for name in numeric}


def _draw(sample: Sample | None, domain: Domain, size: int, rng: np.random.Generator) -> Sample:
    if sample is not None:
        rows = rng.integers(0, sample.rows, size)
        return Sample({name: values[rows] for name, values in sample.columns.items()})
    columns: dict[str, npt.NDArray[Any]] = {}
    for numeric in domain.numeric:
        centre = numeric.lower / 2 + numeric.upper / 2
        columns[numeric.name] = rng.normal(centre, (numeric.upper - numeric.lower) / STAND_IN_SPREAD, size)
    for categorical in domain.categorical:
        levels = np.array(categorical.levels, dtype=object)
        columns[categorical.name] = levels[rng.integers(0, len(levels), size)]
    return Sample(columns)


def with_effect(drawn: Sample, sample: Sample | None, domain: Domain, shift: Effect, scale: Effect) -> Sample:
    """Return the rows drawn with an effect on numeric columns, about the public sample's means.

    Raises:
        InputError: an effect names what is no numeric column.
    """
    shifts, scales = _by_column(shift, domain, 0.0), _by_column(scale, domain, 1.0)
    return _with_effect(drawn, sample, domain, shifts, scales)


def _with_effect(
    drawn: Sample,
    sample: Sample | None,
    domain: Domain,
    shifts: Mapping[str, float],
    scales: Mapping[str, float],
) -> Sample:
    columns = dict(drawn.columns)
    for column in domain.numeric:
        centre = column.lower / 2 + column.upper / 2
        if sample is not None:
            centre = float(np.nanmean(sample.numeric(column.name)))
        values = drawn.numeric(column.name)
        columns[column.name] = centre + scales[column.name] * (values - centre) + shifts[column.name]
    return Sample(columns)
