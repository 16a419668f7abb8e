"""What is asked within owners, in one process: groups, associations, and known tests by blocks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import terms
from tacit.in_process.samples import Missing
from tacit.local.any_procedure import run_samples
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
        samples: tables; one beside a randomised column.
        group: name of the column of the groups; they are compared with the first of its levels. Or what
            :func:`randomise_column` released of them, a row a unit, which costs its owner nothing more.
        columns: those to compare the groups in.
        noise: "gaussian", which needs a delta and tells of standard deviations too; "laplace", pure epsilon,
            with less noise for few columns; or "auto", which chooses by the numbers of units, groups and
            columns, epsilon and delta. Not beside a randomised column.
        aggregation: masked, of covariances within owners: of two groups; of a unit's rows one is drawn; no
            finding is of one owner.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with ``columns``, ``effects``, ``effects_by_owner`` and ``heterogeneity_pvalue``.

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
    found: GroupComparisonResult
    if isinstance(group, RandomisedColumn):
        if noise != "auto" or aggregation != "separate":
            raise InputError("sums beside a randomised group are pure: leave noise and aggregation out")
        found = run_beside(
            "group_comparison",
            group,
            one_sample(samples, bounds, columns, missing),
            {"group": group.column.name},
            given=(units, names),
            at=at,
        )
    else:
        found = run_samples(
            "group_comparison",
            samples,
            {"group": group, "noise": None if noise == "auto" else noise} | _masks(aggregation, colluders),
            at=at,
            bounds=bounds,
            columns=None if columns is None else [group, *(name for name in columns if name != group)],
            units=units,
            missing=missing,
            names=names,
            unit_rows="one" if aggregation == "masked" else "average",
            group=group,
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
        samples: tables.
        bounds: levels count in the order given.
        columns: two to twenty, every pair of which is looked at.
        noise: "gaussian", which needs a delta and tells of numbers' own correlation too; "laplace", pure
            epsilon, of ranks alone, with less noise for few columns; or "auto", which chooses by the numbers
            of units and columns, epsilon and delta.
        aggregation: masked, as of :func:`group_comparison`: a correlation has no interval, and what is no
            trend is not seen.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with ``pairs``, ``effects``, ``effects_by_owner`` and ``heterogeneity_pvalue``.

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
    found: AssociationResult = run_samples(
        "association",
        samples,
        {"noise": None if noise == "auto" else noise} | _masks(aggregation, colluders),
        at=terms(epsilon, delta, alpha, seed),
        bounds=bounds,
        columns=columns,
        units=units,
        missing=missing,
        names=names,
        unit_rows="one" if aggregation == "masked" else "average",
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
        samples: tables.
        test: "t", "welch", "mann_whitney", "brunner_munzel", "kolmogorov_smirnov", "anova", "kruskal_wallis"
            or "jonckheere" of a group and a number; "paired_t", "wilcoxon" or "sign" of two numbers, before
            and after; "pearson", "spearman" or "kendall" of two numbers; "fisher", "cochran_armitage" or
            "chi_squared" of a group and a category; "log_rank" of a time, an event and a group;
            "conditional_independence" of two columns and those that are given.
        delta: budget of masked sums, above 0; others do not use it.
        group: the column of the groups; by default the first categorical one.
        columns: in the test's order.
        units: of a unit's rows one counts, drawn by lot.
        alpha: of both sides.
        seed: never fixes the blocks.
        aggregation: masked, of votes: less noise with seven honest owners or more, at epsilon 1 and delta
            1e-5; with fewer it hides, and sees less.
        parameters: such as ``blocks`` and ``block_level``.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test, with ``direction``, ``finding`` and ``votes``.

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
    found: AggregatedTestResult = run_samples(
        "aggregated_test",
        samples,
        {"test": test, "group": group} | _masks(aggregation, colluders) | parameters,
        at=terms(epsilon, delta, alpha, seed),
        bounds=bounds,
        columns=columns,
        units=units,
        missing=missing,
        names=names,
        unit_rows="one",
        group=group,
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
        samples: tables.
        columns: the two columns: numbers, or categories of two levels.
        given: the columns that are given.
        regression: "linear"; "polynomial", of powers up to the third and products of two; "forest" or
            "boosting", which need scikit-learn.
        asked: further arguments of :func:`aggregated_test`.

    Other arguments: :mod:`tacit.local`.
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
