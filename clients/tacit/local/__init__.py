"""Whole studies in one process, on the same code as the services: for learning, planning and benchmarks.

The part of the owners (or of the curator who holds their data) and the tester's part run one after the other;
noise comes from the operating system's randomness, as in an agent. Nothing here keeps a ledger: results about
real people need a federation.

An argument means the same in every function that has it; a function's own text adds what is its own.

- ``samples``: one for each owner, all with the same columns: a NumPy array (n, D) or (n,), a list of rows, or
  a column or a table of pandas, Polars or Arrow. Tables are of any of the last three.
- ``variables``: over the same rows, each an array (n,) or (n, D), or a column or a table.
- ``epsilon``, ``delta``: budget that every owner spends, greater than 0, and in [0, 1).
- ``bounds``: what is publicly known of the columns, never taken from the data: by name a (lower, upper) pair
  or a list of levels; or an array (D, 2); or one pair, or one list of levels, for every column; of variables
  also a list with each one's bounds. A number outside counts as the bound.
- ``columns``: names of an array's columns, or which columns of a table to use; by default all.
- ``units``: the column that names a row's privacy unit, or for each sample an array (n,) of units; of
  variables one array (n,). By default every row is a unit; a unit's rows are averaged.
- ``unit_rows``: "average", or "one": of a unit's rows one counts, drawn by lot and in secret. Take "one"
  where numbers of rows differ: averages of independent columns depend on each other through them.
- ``missing``: "refuse" raises where a value is missing; "encode" reads a missing number as the middle of its
  bounds and a missing category as a level of its own, as studies do, and warns with the share.
- ``alpha``: level of the test, in (0, 0.5); intervals have confidence 1 - alpha, each.
- ``names``: the owners' names, by default sample-1, sample-2, ...; or the variables', by default x1, x2, ...
  or a table's columns.
- ``seed``: fixes public choices, permutations and simulations. Never the noise: two calls differ.
- ``progress``: called with the part done, in [0, 1], and the step.
- ``n_permutations``, ``n_replicates``: random permutations, or simulated null statistics (at least 999), of
  the test; chosen by default.
- ``categories``: cells of a numeric column, 2 to 4; chosen by default.
- ``aggregation``: "separate", or "masked": only the sum of all owners' releases is read, with shares of one
  Gaussian noise, as owners do who show nobody their own.
- ``colluders``: of how many owners it is reckoned that they collude with the tester; where masked.
- ``parameters``: further parameters of the procedure, by the names that studies have for them.

Of counts:

- ``noise``: "laplace" (pure epsilon) or "gaussian", which alone uses delta.
- ``rho``: variance 1/rho of Gaussian noise on each cell, rho-zCDP; by default the whole budget is used.
- ``cuts``: inner edges of each numeric column, by name.
- ``unlisted``: whether other and missing values have "cells" of their own, or count with the "last" level.

Of plans, which simulate studies and take their budget, level and columns as those do:

- ``n``: units of each owner; one number stands for all of them.
- ``runs``: simulated studies, at least 1.
- ``procedure``: its name; by default the two-sample test of the ``setting``.
- ``real_noise``: draw the noise of production, which no seed fixes, and not NumPy's of the same law, which a
  seed does.
- ``question``: what :func:`plan_power` takes beside: the procedure, columns, effect and parameters.

Results are frozen. A test unpacks into ``statistic, pvalue``; a decision has neither. Every function raises
:class:`~tacit.errors.InputError` where data, bounds or ids cannot be used, with what to change, and
:class:`~tacit.errors.StudyRefusedError` where the procedure does not take the study.
"""

from typing import TYPE_CHECKING

from tacit.lazy_names import lazy_names

if TYPE_CHECKING:
    from tacit.correlations import AnsweredScreeningResult, CorrelationMatrix, ScreeningResult
    from tacit.database.released import ReleasedDatabase
    from tacit.local.any_procedure import run
    from tacit.local.counts import (
        homogeneity,
        identity,
        independence_table,
        noisy_counts,
        stratified_table,
        survival,
    )
    from tacit.local.distance import distance_correlation, screening
    from tacit.local.groups import aggregated_test, association, conditional_independence, group_comparison
    from tacit.local.independence import joint_independence, mutual_independence
    from tacit.local.randomised import RandomisedColumn, randomise_column
    from tacit.local.synthetic import CopulaSample, Margin, copula_sample, release_database
    from tacit.local.two_sample import kernel_two_sample
    from tacit.planning import (
        ChoicePlan,
        ErrorPlan,
        PowerCurve,
        PowerPlan,
        SmallestPlan,
        plan_choice,
        plan_curve,
        plan_error,
        plan_power,
        plan_smallest,
    )
    from tacit.planning.locations import OptimisedLocations, optimise_locations
    from tacit.results import (
        AggregatedTestResult,
        AnsweredCorrelationResult,
        AssociationResult,
        CellsTableResult,
        CuratedDistanceCorrelationResult,
        DecisionResult,
        DistanceCorrelationResult,
        GroupComparisonResult,
        HomogeneityResult,
        IdentityResult,
        IndependenceTableResult,
        JointIndependenceResult,
        MutualIndependenceResult,
        NoisyCountsResult,
        StratifiedTableResult,
        SurvivalResult,
        TwoSampleResult,
    )

__all__ = [
    "AggregatedTestResult",
    "AnsweredCorrelationResult",
    "AnsweredScreeningResult",
    "AssociationResult",
    "CellsTableResult",
    "ChoicePlan",
    "CopulaSample",
    "CorrelationMatrix",
    "CuratedDistanceCorrelationResult",
    "DecisionResult",
    "DistanceCorrelationResult",
    "ErrorPlan",
    "GroupComparisonResult",
    "HomogeneityResult",
    "IdentityResult",
    "IndependenceTableResult",
    "JointIndependenceResult",
    "Margin",
    "MutualIndependenceResult",
    "NoisyCountsResult",
    "OptimisedLocations",
    "PowerCurve",
    "PowerPlan",
    "RandomisedColumn",
    "ReleasedDatabase",
    "ScreeningResult",
    "SmallestPlan",
    "StratifiedTableResult",
    "SurvivalResult",
    "TwoSampleResult",
    "aggregated_test",
    "association",
    "conditional_independence",
    "copula_sample",
    "distance_correlation",
    "group_comparison",
    "homogeneity",
    "identity",
    "independence_table",
    "joint_independence",
    "kernel_two_sample",
    "mutual_independence",
    "noisy_counts",
    "optimise_locations",
    "plan_choice",
    "plan_curve",
    "plan_error",
    "plan_power",
    "plan_smallest",
    "randomise_column",
    "release_database",
    "run",
    "screening",
    "stratified_table",
    "survival",
]

if not TYPE_CHECKING:  # type checkers know the names above alone
    __getattr__, __dir__ = lazy_names(__name__)
