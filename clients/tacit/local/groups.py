"""The comparison of groups within owners in one process."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import local_study, owner_names, run, seed_text
from tacit.in_process.samples import ArrayTable, domain_of
from tacit.local.inputs import read_with_units
from tacit.results import GroupComparisonResult
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named


def group_comparison(
    *samples: Any,
    group: str,
    epsilon: float,
    delta: float,
    bounds: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int | None = None,
) -> GroupComparisonResult:
    """Test privately whether groups differ within every owner, and estimate by how much.

    Two to eight groups, such as women and men, exist in each of one or more owners; what differs between
    owners neither makes a difference nor hides one. No curator is needed.

    Args:
        samples: pandas, Polars or Arrow tables, one for each owner.
        group: name of the column of the groups; they are compared with the first of its levels.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in (0, 1).
        bounds: what is publicly known: each column's (lower, upper) pair or levels, by name. Never taken from
            the data. Numbers outside count as the bound.
        columns: which columns to compare the groups in; by default all of a table.
        units: name of a column, or one array for each sample, that tells each row's privacy unit; a unit's
            rows are averaged.
        alpha: level of the test, in (0, 0.5); intervals have confidence 1 - alpha, each.
        names: the owners' names, by default sample-1, sample-2, ...
        seed: the study's seed. Never the noise: two calls differ.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``, with ``columns``, ``effects``,
        ``effects_by_owner`` and ``heterogeneity_pvalue``.

    Raises:
        InputError: the samples or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take such a study.

    Example:
        >>> import numpy as np, pyarrow as pa, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> sex = rng.choice(["f", "m"], 20000)
        >>> age = rng.normal(50, 10, 20000) + 3 * (sex == "m")
        >>> bounds = {"sex": ["f", "m"], "age": (0, 100)}
        >>> result = tacit.local.group_comparison(
        ...     pa.table({"sex": sex, "age": age}), group="sex", epsilon=2, delta=1e-5, bounds=bounds, seed=1
        ... )
        >>> result.reject
        True
    """
    if not samples:
        raise InputError("pass one sample for each owner")
    wanted = None if columns is None else [group, *(name for name in columns if name != group)]
    read, unit_values = read_with_units(samples, wanted, units)
    held = list(read[0].columns)
    if group not in held:
        raise InputError(f"the samples have no column {group!r} to take groups from")
    domain = domain_of(bounds, held)
    study = local_study(
        "group_comparison",
        domain,
        owner_names(names, len(read)),
        {"group": group},
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        seed=seed_text(seed),
    )
    tables = [ArrayTable.of(sample, domain, unit) for sample, unit in zip(read, unit_values, strict=True)]
    result = run(procedure_named(study.procedure), study, tables, OpenDPNoise())
    if not isinstance(result, GroupComparisonResult):
        raise TypeError(f"{study.procedure} has no result of its own")
    return result
