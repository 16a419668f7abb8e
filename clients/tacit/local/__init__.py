"""Whole studies in one process, on the same code as the services: for learning, planning and benchmarks.

The part of the owners (or of the curator who holds their data) and the tester's part run one after the other;
noise comes from the operating system's randomness, as in an agent. Nothing here keeps a ledger: results about
real people need a federation.
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
