"""What every procedure must hand in to be audited: a procedure in the registry and not here fails a test."""

import curated_distance_cases
import curated_two_sample_cases
import distance_correlation_cases
import embedding_release_cases
import group_comparison_cases
import identity_cases
import joint_independence_cases
import kernel_two_sample_cases
import noisy_counts_cases
import screening_cases
from release_audit import ReleaseCase

AUDITED: dict[str, dict[str, ReleaseCase]] = {
    "kernel_two_sample": kernel_two_sample_cases.CASES,
    "curated_two_sample": curated_two_sample_cases.CASES,
    "joint_independence": joint_independence_cases.CASES,
    "distance_correlation": distance_correlation_cases.CASES,
    "curated_distance_correlation": curated_distance_cases.CASES,
    "screening": screening_cases.CASES,
    "group_comparison": group_comparison_cases.CASES,
    "identity": identity_cases.CASES,
    "noisy_counts": noisy_counts_cases.CASES,
    "homogeneity": noisy_counts_cases.HOMOGENEITY_CASES,
    "independence_table": noisy_counts_cases.INDEPENDENCE_CASES,
    "stratified_table": noisy_counts_cases.STRATIFIED_CASES,
    "survival": noisy_counts_cases.SURVIVAL_CASES,
    "embedding_release": embedding_release_cases.CASES,
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
