"""Whole studies in one process, on the same code as the services: for learning, planning and benchmarks.

The part of the owners (or of the curator who holds their data) and the tester's part run one after the other;
noise comes from the operating system's randomness, as in an agent. Nothing here keeps a ledger: results about
real people need a federation.
"""

from tacit.local.counts import homogeneity, independence_table, noisy_counts
from tacit.local.database import release_database
from tacit.local.distance import distance_correlation
from tacit.local.identity import identity
from tacit.local.independence import joint_independence
from tacit.local.screening import screening
from tacit.local.two_sample import kernel_two_sample
from tacit.locations import OptimisedLocations, optimise_locations
from tacit.planning import PowerPlan, plan_power
from tacit.planning_identity import compare_identity_methods, plan_identity
from tacit.planning_sizes import SampleSizePlan
from tacit.released_database import ReleasedDatabase
from tacit.results import (
    CuratedDistanceCorrelationResult,
    DecisionResult,
    DistanceCorrelationResult,
    HomogeneityResult,
    IdentityResult,
    IndependenceTableResult,
    NoisyCountsResult,
    ScreeningResult,
    TwoSampleResult,
)

__all__ = [
    "CuratedDistanceCorrelationResult",
    "DecisionResult",
    "DistanceCorrelationResult",
    "HomogeneityResult",
    "IdentityResult",
    "IndependenceTableResult",
    "NoisyCountsResult",
    "OptimisedLocations",
    "PowerPlan",
    "ReleasedDatabase",
    "SampleSizePlan",
    "ScreeningResult",
    "TwoSampleResult",
    "compare_identity_methods",
    "distance_correlation",
    "homogeneity",
    "identity",
    "independence_table",
    "joint_independence",
    "kernel_two_sample",
    "noisy_counts",
    "optimise_locations",
    "plan_identity",
    "plan_power",
    "release_database",
    "screening",
]
