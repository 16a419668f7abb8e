"""Peer mode in one process: the sender's part, the receiver's, and what the tester would state."""

from collections.abc import Sequence

from tacit.errors import StudyRefusedError
from tacit.results import DistanceCorrelationResult, PeerOutcome, PeerResult, result_from
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, Progress, StudyError, check_release
from tacit_protocol.procedures.relay import conclude, relay_of
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.sealing import certify


def with_receiver(study: Study, name: str) -> Study:
    """Return a local study whose owner of that name has a key of its own, that others may seal to."""
    key = PrivateKey.generate()
    owners = tuple(
        owner.model_copy(update={"key": key.public_hex, "sealing": certify(key)})
        if owner.name == name
        else owner
        for owner in study.owners
    )
    return study.model_copy(update={"owners": owners})


def run_peer(
    procedure: Procedure,
    study: Study,
    tables: Sequence[Table],
    noise: NoiseSource,
    progress: Progress | None = None,
) -> PeerOutcome:
    """Play both owners' parts (a table for each, in the study's order), then the tester's.

    Raises:
        StudyRefusedError: the procedure does not take the study.
    """
    held = {owner.name: table for owner, table in zip(study.owners, tables, strict=True)}
    try:
        procedure.check(study)
        relay = relay_of(procedure, study)
        if relay is None:
            raise StudyError("this study has no receiver")
        sent = procedure.privatise(study, procedure.summarise(study, held[relay.sender.name]), noise)
        relay.procedure.check_received(study, sent)
        combined = relay.procedure.combine(study, sent, held[relay.receiver.name])
        releases: dict[str, Release] = {}
        if relay.publishes:
            published = procedure.privatise(study, combined.summary, noise)
            check_release(procedure, study, published)
            releases[relay.receiver.name] = published
        units = dict.fromkeys(held, sent.units)
        verdict = conclude(procedure, study, releases, units, progress)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    stated, found = result_from(verdict, study), result_from(combined.finding, study)
    if not isinstance(stated, PeerResult) or not isinstance(found, DistanceCorrelationResult):
        raise TypeError("the procedure has a result of another type")
    return PeerOutcome(finding=found, stated=stated)
