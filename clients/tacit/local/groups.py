"""What is asked within owners, in one process: groups, associations, and known tests by blocks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import Terms, owner_names, run_tables, terms
from tacit.in_process.samples import Missing, read_tables
from tacit.local.randomised import RandomisedColumn, one_sample, run_beside
from tacit_protocol.procedures.masking import Aggregation

if TYPE_CHECKING:
    from tacit.results import AggregatedTestResult, AssociationResult, GroupComparisonResult
    from tacit_protocol.procedures.aggregated_test import TestName
    from tacit_protocol.procedures.aggregated_test.statistic import Regression


def _masks(aggregation: str, colluders: int | None) -> dict[str, Any]:
    """Return what a study states of masks: nothing where neither was asked for."""
    asked = aggregation != "separate" or colluders is not None
    return {"aggregation": aggregation, "colluders": colluders} if asked else {}


def group_comparison(
    *samples: Any,
    group: str | RandomisedColumn,
    epsilon: float,
    delta: float = 0.0,
    bounds: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    noise: Literal["auto", "gaussian", "laplace"] = "auto",
    aggregation: Aggregation = "separate",
    colluders: int | None = None,
) -> "GroupComparisonResult":
    """Test privately whether groups differ within every owner, and estimate by how much.

    Two to eight groups, such as women and men, exist in each of one or more owners; what differs between
    owners neither makes a difference nor hides one. No curator is needed.

    Where another owner knows the group of the same rows, pass what it released of it: effects are then of the
    groups themselves, their intervals count the randomness of the answers, and no delta is needed.

    Args:
        samples: pandas, Polars or Arrow tables, one for each owner; one beside a randomised column.
        group: name of the column of the groups; they are compared with the first of its levels. Or what
            :func:`randomise_column` released of them, a row a unit, which costs its owner nothing more.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1); 0 beside a randomised column.
        bounds: what is publicly known: each column's (lower, upper) pair or levels, by name. Never taken from
            the data. Numbers outside count as the bound.
        columns: which columns to compare the groups in; by default all of a table.
        units: name of a column, or one array for each sample, that tells each row's privacy unit; a unit's
            rows are averaged.
        missing: "refuse" raises where a value is missing; "encode" reads a missing number as the middle of
            its bounds and a missing category as a level of its own, as studies do, and warns with the share.
        alpha: level of the test, in (0, 0.5); intervals have confidence 1 - alpha, each.
        names: the owners' names, by default sample-1, sample-2, ...
        seed: the study's seed. Never the noise: two calls differ.
        noise: "gaussian", which needs a delta and tells of standard deviations too; "laplace", pure epsilon,
            with less noise for few columns; or "auto", which chooses by the numbers of units, groups and
            columns, epsilon and delta. Not beside a randomised column.
        aggregation: "separate", or "masked": only the sum of all samples' covariances within themselves is
            read, with shares of one Gaussian noise, as owners do who show nobody their own. Of two groups;
            of a unit's rows one is drawn; no finding is of one owner.
        colluders: of how many samples' owners it is reckoned that they collude with the tester; where masked.

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
    at = terms(epsilon, delta, alpha, seed)
    if isinstance(group, RandomisedColumn):
        if noise != "auto" or aggregation != "separate":
            raise InputError("sums beside a randomised group are pure: leave noise and aggregation out")
        found: GroupComparisonResult = run_beside(
            "group_comparison",
            group,
            one_sample(samples, bounds, columns, missing),
            {"group": group.column.name},
            given=(delta, units, names),
            at=at,
        )
        return found
    wanted = None if columns is None else [group, *(name for name in columns if name != group)]
    masks = _masks(aggregation, colluders)
    found = _asked(
        "group_comparison",
        samples,
        wanted,
        {"group": group},
        parameters=masks | ({} if noise == "auto" else {"noise": noise}),
        units=units,
        bounds=bounds,
        missing=missing,
        names=names,
        at=at,
    )
    return found


def association(
    *samples: Any,
    epsilon: float,
    delta: float = 0.0,
    bounds: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    noise: Literal["auto", "gaussian", "laplace"] = "auto",
    aggregation: Aggregation = "separate",
    colluders: int | None = None,
) -> "AssociationResult":
    """Test privately whether columns go together within every owner, and estimate how strongly.

    What differs between owners neither makes an association nor hides one. No curator is needed.

    Args:
        samples: pandas, Polars or Arrow tables, one for each owner.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1).
        bounds: what is publicly known: each column's (lower, upper) pair or levels, by name; levels count in
            the order given. Never taken from the data. Numbers outside count as the bound.
        columns: two to twenty columns, every pair of which is looked at; by default all of a table.
        units: name of a column, or one array for each sample, that tells each row's privacy unit; a unit's
            rows are averaged.
        missing: "refuse" raises where a value is missing; "encode" reads a missing number as the middle of
            its bounds and a missing category as a level of its own, as studies do, and warns with the share.
        alpha: level of the test, in (0, 0.5); intervals have confidence 1 - alpha, each.
        names: the owners' names, by default sample-1, sample-2, ...
        seed: the study's seed. Never the noise: two calls differ.
        noise: "gaussian", which needs a delta and tells of numbers' own correlation too; "laplace", pure
            epsilon, of ranks alone, with less noise for few columns; or "auto", which chooses by the numbers
            of units and columns, epsilon and delta.
        aggregation: "separate", or "masked", as in :func:`group_comparison`: a correlation has no interval,
            and what is no trend is not seen.
        colluders: as in :func:`group_comparison`.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``, with ``pairs``, ``effects``,
        ``effects_by_owner`` and ``heterogeneity_pvalue``.

    Raises:
        InputError: the samples or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take such a study.

    Example:
        >>> import numpy as np, pyarrow as pa, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> age = rng.normal(50, 10, 20000)
        >>> pressure = 100 + 0.5 * age + rng.normal(0, 8, 20000)
        >>> bounds = {"age": (0, 100), "pressure": (60, 200)}
        >>> result = tacit.local.association(
        ...     pa.table({"age": age, "pressure": pressure}), epsilon=2, delta=1e-5, bounds=bounds, seed=1
        ... )
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    masks = _masks(aggregation, colluders)
    found: AssociationResult = _asked(
        "association",
        samples,
        columns,
        {},
        parameters=masks | ({} if noise == "auto" else {"noise": noise}),
        units=units,
        bounds=bounds,
        missing=missing,
        names=names,
        at=at,
    )
    return found


def aggregated_test(
    *samples: Any,
    test: "TestName",
    epsilon: float,
    delta: float = 0.0,
    bounds: Mapping[str, Any],
    group: str | None = None,
    columns: Sequence[str] | None = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    aggregation: Aggregation = "separate",
    colluders: int | None = None,
    **parameters: Any,
) -> "AggregatedTestResult":
    """Take privately a test that people know: blocks of every owner's units vote, and the sum is released.

    Pure epsilon unless masked, with no curator; what differs between owners makes no difference.

    Args:
        samples: pandas, Polars or Arrow tables, one for each owner.
        test: "t", "welch", "mann_whitney", "brunner_munzel", "kolmogorov_smirnov", "anova", "kruskal_wallis"
            or "jonckheere" of a group and a number; "paired_t", "wilcoxon" or "sign" of two numbers, before
            and after; "pearson", "spearman" or "kendall" of two numbers; "fisher", "cochran_armitage" or
            "chi_squared" of a group and a category; "log_rank" of a time, an event and a group;
            "conditional_independence" of two columns and those that are given.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget of masked sums, above 0; others do not use it.
        bounds: what is publicly known: each column's (lower, upper) pair or levels, by name. Never taken from
            the data. Numbers outside count as the bound.
        group: the column of the groups; by default the first categorical one.
        columns: the columns, in the test's order; by default all of a table.
        units: name of a column, or one array for each sample, that tells each row's privacy unit; of a unit's
            rows one counts, drawn by lot.
        missing: "refuse" raises where a value is missing; "encode" reads a missing number as the middle of
            its bounds and a missing category as a level of its own, as studies do, and warns with the share.
        alpha: level of the test, in (0, 0.5); of both sides.
        names: the owners' names, by default sample-1, sample-2, ...
        seed: fixes the permutations. Never the blocks or the noise: two calls differ.
        aggregation: "separate", or "masked": only the sum of all samples' votes is read, with shares of one
            Gaussian noise, as owners do who show nobody their own. Less noise with seven honest owners or
            more, at epsilon 1 and delta 1e-5; with fewer it hides, and sees less.
        colluders: of how many samples' owners it is reckoned that they collude with the tester; where masked.
        parameters: further parameters of the procedure, such as ``blocks`` and ``block_level``.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``, with ``direction``, ``finding`` and
        ``votes``.

    Raises:
        InputError: the samples or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take such a study.

    Example:
        >>> import numpy as np, pyarrow as pa, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> arm = rng.choice(["placebo", "drug"], 2000)
        >>> pain = rng.normal(5, 2, 2000) - 1 * (arm == "drug")
        >>> trial = pa.table({"arm": arm, "pain": pain})
        >>> bounds = {"arm": ["placebo", "drug"], "pain": (0, 10)}
        >>> result = tacit.local.aggregated_test(trial, test="mann_whitney", epsilon=2, bounds=bounds, seed=1)
        >>> result.reject, result.direction
        (True, 'down')
    """
    at = terms(epsilon, delta, alpha, seed)
    masks = _masks(aggregation, colluders)
    found: AggregatedTestResult = _asked(
        "aggregated_test",
        samples,
        columns,
        {} if group is None else {"group": group},
        units=units,
        parameters={"test": test} | masks | parameters,
        bounds=bounds,
        missing=missing,
        names=names,
        at=at,
    )
    return found


def conditional_independence(
    *samples: Any,
    columns: tuple[str, str],
    given: Sequence[str],
    epsilon: float,
    bounds: Mapping[str, Any],
    regression: "Regression" = "polynomial",
    **asked: Any,
) -> "AggregatedTestResult":
    """Test privately whether two columns are independent given others (generalised covariance measure).

    In every block both columns are regressed on the given ones, and the residuals' products are tested; see
    :func:`aggregated_test`. The level is approximate: what the regression misses counts as dependence.

    Args:
        samples: pandas, Polars or Arrow tables, one for each owner.
        columns: the two columns: numbers, or categories of two levels.
        given: the columns that are given.
        epsilon: budget that every owner spends, greater than 0.
        bounds: what is publicly known of every column, as of :func:`aggregated_test`.
        regression: "linear"; "polynomial", of powers up to the third and products of two; "forest" or
            "boosting", which need scikit-learn.
        asked: further arguments of :func:`aggregated_test`.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``.

    Raises:
        InputError: the samples or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take such a study.
    """
    return aggregated_test(
        *samples,
        test="conditional_independence",
        epsilon=epsilon,
        bounds=bounds,
        columns=[*columns, *given],
        regression=regression,
        **asked,
    )


def _asked(
    procedure: str,
    samples: Sequence[Any],
    columns: Sequence[str] | None,
    named: Mapping[str, str],
    *,
    units: str | Sequence[npt.ArrayLike] | None,
    parameters: Mapping[str, Any] | None = None,
    bounds: Mapping[str, Any],
    missing: Missing,
    names: Sequence[str] | None,
    at: Terms,
) -> Any:
    """Run a study of one sample an owner; ``named`` are parameters that name columns."""
    chosen = {**named, **(parameters or {})}
    one = procedure == "aggregated_test" or chosen.get("aggregation") == "masked"
    owners = owner_names(names, len(samples))
    tables = read_tables(
        samples,
        columns,
        units=units,
        bounds=bounds,
        missing=missing,
        names=owners,
        unit_rows="one" if one else "average",
    )
    held = {column.name for column in tables[0].domain.columns}
    for name in named.values():
        if name not in held:
            raise InputError(f"neither samples nor bounds have a column {name!r} to take groups from")
    return run_tables(procedure, tables, owners, chosen, at=at)
