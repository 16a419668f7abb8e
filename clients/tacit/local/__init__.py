"""Whole studies in one process, on the same code as the services: for learning, planning and benchmarks.

The part of the owners (or of the curator who holds their data) and the tester's part run one after the other;
noise comes from the operating system's randomness, as in an agent. Nothing here keeps a ledger: results about
real people need a federation.
"""

from tacit.local.independence import joint_independence
from tacit.local.two_sample import kernel_two_sample
from tacit.locations import OptimisedLocations, optimise_locations
from tacit.planning import PowerPlan, plan_power
from tacit.results import DecisionResult, TwoSampleResult

__all__ = [
    "DecisionResult",
    "OptimisedLocations",
    "PowerPlan",
    "TwoSampleResult",
    "joint_independence",
    "kernel_two_sample",
    "optimise_locations",
    "plan_power",
]
