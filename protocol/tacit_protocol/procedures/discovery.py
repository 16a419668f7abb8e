"""The registry of procedures: services, SDK, command and pages learn of a procedure here."""

from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.procedures.counts.homogeneity import Homogeneity
from tacit_protocol.procedures.counts.independence_table import IndependenceTable
from tacit_protocol.procedures.counts.noisy_counts import NoisyCounts
from tacit_protocol.procedures.curated_distance_correlation import CuratedDistanceCorrelation
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.embedding_release import EmbeddingRelease
from tacit_protocol.procedures.identity import Identity
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.screening import Screening

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        KernelTwoSample(),
        CuratedTwoSample(),
        JointIndependence(),
        DistanceCorrelation(),
        CuratedDistanceCorrelation(),
        Screening(),
        NoisyCounts(),
        Homogeneity(),
        IndependenceTable(),
        Identity(),
        EmbeddingRelease(),
    )
}


def procedure_named(name: str) -> Procedure:
    """Return the procedure of that name.

    Raises:
        StudyError: there is no such procedure.
    """
    try:
        return PROCEDURES[name]
    except KeyError:
        raise StudyError("unknown procedure; known: " + ", ".join(sorted(PROCEDURES))) from None
