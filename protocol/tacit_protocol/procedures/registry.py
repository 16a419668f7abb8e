"""The registry of procedures: services, SDK, command and pages learn of a procedure here."""

from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure for procedure in (KernelTwoSample(), CuratedTwoSample(), JointIndependence())
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
