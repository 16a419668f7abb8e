"""What every procedure must hand in to be audited: a procedure in the registry and not here fails a test."""

import association_cases
import counts_cases as counts
import dependence_cases as dependence
import group_comparison_cases
import mean_cases as means
from release_audit import ReleaseCase

AUDITED: dict[str, dict[str, ReleaseCase]] = {
    "kernel_two_sample": means.KERNEL_TWO_SAMPLE,
    "curated_two_sample": means.CURATED_TWO_SAMPLE,
    "joint_independence": dependence.JOINT_INDEPENDENCE,
    "aggregated_test": dependence.AGGREGATED_TEST,
    "distance_correlation": dependence.DISTANCE_CORRELATION,
    "curated_distance_correlation": dependence.CURATED_DISTANCE_CORRELATION,
    "screening": dependence.SCREENING,
    "mutual_independence": dependence.MUTUAL_INDEPENDENCE,
    "group_comparison": group_comparison_cases.CASES,
    "association": association_cases.CASES,
    "identity": counts.IDENTITY,
    "noisy_counts": counts.NOISY_COUNTS,
    "homogeneity": counts.HOMOGENEITY,
    "independence_table": counts.INDEPENDENCE_TABLE,
    "stratified_table": counts.STRATIFIED_TABLE,
    "survival": counts.SURVIVAL,
    "embedding_release": means.EMBEDDING_RELEASE,
}
"""Cases of each procedure, by its name in the registry: at least one for every way its release is made, and
at least one with so few numbers that the black-box audit can run it (``black_box``)."""

CASES = {f"{procedure}: {name}": case for procedure, cases in AUDITED.items() for name, case in cases.items()}
"""All cases; the audits are parametrised by these names."""

FIRST = {f"{procedure}: {next(iter(cases))}" for procedure, cases in AUDITED.items()}
"""One case of each procedure: those that the default tier searches."""


def missing(procedures: set[str], audited: dict[str, dict[str, ReleaseCase]]) -> set[str]:
    """The procedures without a case, without one for the black-box audit, or with another's study."""
    return {
        name
        for name in procedures
        if not any(case.black_box for case in audited.get(name, {}).values())
        or any(case.study.procedure != name for case in audited[name].values())
    }
