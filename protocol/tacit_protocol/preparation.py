"""A study before anyone signs it: its exact bytes, what it costs, what limits it, what stewards will read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.strict import HOPELESS


@dataclass(frozen=True)
class PreparedStudy:
    """A frozen study and what it would cost, before anything is sent.

    ``payload`` holds its exact bytes; ``warnings`` says what limits it at the declared numbers of units, and
    ``units_declared`` whether every owner declares one, without which that is not looked at.
    """

    study: Study
    payload: bytes
    digest: str
    guarantee: Guarantee
    release_size: int
    warnings: tuple[str, ...]
    units_declared: bool

    @property
    def hopeless(self) -> tuple[str, ...]:
        """Those warnings for which the study should not be sent."""
        return tuple(warning for warning in self.warnings if warning.startswith(HOPELESS))

    def but_refused(self, refusals: Sequence[str]) -> "PreparedStudy":
        """Return it with what owners' policies would refuse it for among its warnings."""
        return replace(self, warnings=(*self.warnings, *(HOPELESS + words for words in refusals)))


def prepared(study: Study) -> PreparedStudy:
    """Check a study, write it in its canonical bytes and work out its cost, without sending anything.

    Raises:
        StudyError: the procedure does not take the study as written.
    """
    from tacit_protocol.procedures.base import (  # noqa: PLC0415 (statistics load when needed)
        canonical,
        check_study,
        require_units,
        units_declared,
        warnings_of,
    )
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415

    units = units_declared(study)
    procedure = procedure_named(study.procedure)
    study = procedure.with_defaults(study.model_copy(update={"procedure_origin": procedure.origin}))
    check_study(procedure, study)
    require_units(procedure, study, units)
    study = canonical(procedure, study)
    payload = encode(study)
    return PreparedStudy(
        study=study,
        payload=payload,
        digest=digest(payload),
        guarantee=procedure.cost(study),
        release_size=procedure.release_size(study),
        warnings=warnings_of(procedure, study, units),
        units_declared=len(units) == len(study.owners),
    )


def stewards_words(prepared: PreparedStudy) -> dict[str, str]:
    """Return what the steward of whoever answers will read, by its name."""
    from tacit_protocol.procedures.disclosure import StudyTerms  # noqa: PLC0415 (statistics load when needed)
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415
    from tacit_protocol.procedures.relay import cost_for  # noqa: PLC0415

    study, procedure = prepared.study, procedure_named(prepared.study.procedure)
    if study.curator is not None:
        asked = StudyTerms.of(procedure, study, prepared.guarantee, study.curator.name)
        # Each of these owners reads the same of its own data set at the curator.
        accounts = {owner.name: f"{owner.name}/{owner.data_set}" for owner in study.owners}
        return {name: asked.plain_words(study, None, account) for name, account in accounts.items()}
    words = {}
    for owner in study.owners:
        if owner.reuses is None:
            asked = StudyTerms.of(procedure, study, cost_for(procedure, study, owner.name), owner.name)
            words[owner.name] = asked.plain_words(study, owner, owner.data_set)
    return words
