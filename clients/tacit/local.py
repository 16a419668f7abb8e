"""Whole studies in one process, on the same code as the services: for learning, planning and benchmarks.

The owners' part and the tester's part run one after the other; noise comes from the operating system's
randomness, as in an agent. Nothing here keeps a ledger: results about real people need a federation.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.array_table import ArrayTable
from tacit.bounds import domain_of
from tacit.errors import InputError
from tacit.frames import Sample, read_samples
from tacit.in_process import local_study, run, seed_text
from tacit.planning import PowerPlan, plan_power
from tacit.public_choices import public_parameters
from tacit.results import TwoSampleResult
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.registry import procedure_named

__all__ = ["PowerPlan", "TwoSampleResult", "kernel_two_sample", "plan_power"]

Features = Literal["auto", "columns", "me", "scf"]
Calibration = Literal["tight", "paper"]
Null = Literal["auto", "noise-aware", "weighted", "asymptotic"]
Statistic = Literal["auto", "noise-aware", "mmd", "max"]


def kernel_two_sample(
    *samples: Any,
    epsilon: float,
    delta: float,
    bounds: Any = None,
    columns: Sequence[str] | None = None,
    n_features: int | None = None,
    features: Features = "auto",
    calibration: Calibration = "tight",
    null: Null = "auto",
    statistic: Statistic = "auto",
    alpha: float = 0.05,
    public: Any = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    seed: int | None = None,
    names: Sequence[str] | None = None,
    **parameters: Any,
) -> TwoSampleResult:
    """Test privately whether two or more samples come from one population (Raj et al., corrected).

    Args:
        samples: NumPy arrays (n, D) or pandas, Polars or Arrow tables, one for each owner. Missing values
            are allowed.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1).
        bounds: what is publicly known of the columns: by name a (lower, upper) pair or a list of levels; or
            an array (D, 2); or one pair for every column. Never taken from the data.
        columns: names of an array's columns, or which columns of a table to use.
        n_features: number of features J; chosen by the procedure by default.
        features: feature map; "auto" serves most questions.
        calibration: "tight", or "paper" for the published method to the letter.
        null: null distribution; "asymptotic" is a baseline that is not calibrated.
        statistic: form of the statistic.
        alpha: level of the test, in (0, 0.5).
        public: a public sample with the same columns, from which the "me" features take their locations and
            the "scf" features their bandwidth.
        units: the column that names a row's privacy unit, or for each sample an array (n,) of units; by
            default every row is a unit.
        seed: fixes public choices and simulations. Never the noise: two calls differ.
        names: the owners' names, by default sample-1, sample-2, ...
        parameters: further parameters of the procedure, such as ``bandwidth`` or ``replicates``.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``.

    Raises:
        InputError: the samples or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters.

    Example:
        >>> import numpy as np, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> x, y = rng.normal(0, 1, (20000, 2)), rng.normal(1, 1, (20000, 2))
        >>> result = tacit.local.kernel_two_sample(x, y, epsilon=1, delta=1e-5, bounds=(-5, 5), seed=1)
        >>> result.reject
        True
    """
    if len(samples) < 2:
        raise InputError("pass at least two samples")
    read, unit_values = _read(samples, columns, units)
    domain = domain_of(bounds, list(read[0].columns))
    chosen: dict[str, Any] = {
        "features": features,
        "n_features": n_features,
        "statistic": statistic,
        "null": null,
        "calibration": calibration,
    }
    if public is not None:
        sample = read_samples([public], list(read[0].columns))[0]
        rng = np.random.default_rng(seed)
        chosen |= public_parameters(sample, domain, features, n_features, rng)
    study = local_study(
        domain,
        _owner_names(names, len(read)),
        chosen | parameters,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        seed=seed_text(seed),
    )
    tables = [ArrayTable.of(sample, domain, unit) for sample, unit in zip(read, unit_values, strict=True)]
    return run(procedure_named(study.procedure), study, tables, OpenDPNoise())


def _read(
    samples: Sequence[Any], columns: Sequence[str] | None, units: str | Sequence[npt.ArrayLike] | None
) -> tuple[list[Sample], list[npt.ArrayLike | None]]:
    if isinstance(units, str):
        wanted = None if columns is None else [name for name in columns if name != units] + [units]
        read = read_samples(samples, wanted)
        if units not in read[0].columns:
            raise InputError(f"the samples have no column {units!r} to take units from")
        return [_without(sample, units) for sample in read], [sample.columns[units] for sample in read]
    read = read_samples(samples, columns)
    if units is None:
        return read, [None] * len(read)
    if len(units) != len(read):
        raise InputError(f"units holds {len(units)} arrays for {len(read)} samples: pass one for each")
    return read, list(units)


def _without(sample: Sample, name: str) -> Sample:
    kept = {column: values for column, values in sample.columns.items() if column != name}
    if not kept:
        raise InputError("the unit column is the only column: the test needs others")
    return Sample(kept)


def _owner_names(names: Sequence[str] | None, count: int) -> list[str]:
    listed = [f"sample-{index}" for index in range(1, count + 1)] if names is None else list(names)
    if len(listed) != count:
        raise InputError(f"names holds {len(listed)} names for {count} samples: pass one for each")
    return listed
