"""From the verdicts that testers state, and that are made here, to results."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.errors import VerificationFailedError
from tacit.results.database import DatabaseResult
from tacit.results.rendering import Rendering
from tacit.results.screening import ScreeningResult
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.messages.transcript import VerdictMessage
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.distance_correlation import DistanceCorrelationResult
from tacit_protocol.procedures.distance_correlation.peer import PeerResult
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, ProcedureResult, Source

Result = BaseVerdict
"""Whatever a study's result is: its procedure's verdict, bound to the study."""

RENDERING = Rendering()

SDK_RESULTS: Mapping[type[BaseVerdict], type[BaseVerdict]] = {
    model.__mro__[1]: model for model in (DatabaseResult, ScreeningResult)
}
"""What the SDK makes of verdicts that can do more with it than they state."""


def result_of(
    study: Study,
    verdict: Mapping[str, Any],
    *,
    digest: str | None = None,
    releases: Mapping[str, Release] | None = None,
    kind: type[BaseVerdict] | None = None,
) -> Result:
    """Build the result from a study and its procedure's verdict, as plain values.

    What was agreed on (level and budget) comes from the study, which the parties signed.

    Args:
        study: the study.
        verdict: what its procedure reports, as plain values.
        digest: the study's digest, where it is known.
        releases: by owner as the study reads them, where they are at hand: a result's picture then shows the
            null distribution.
        kind: the verdict's type, where it is not the study's: what a receiver finds in peer mode.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    agreed = {"level": study.level, "epsilon": study.budget.epsilon, "delta": study.budget.delta}
    procedure = PROCEDURES.get(study.procedure)
    try:
        if kind is None:
            kind = ProcedureResult if procedure is None else procedure.verdict_type(study)
        # Keys keep their order: a cell's labels stand in that of the columns.
        read = kind.model_validate_json(json.dumps({**verdict, **agreed}, allow_nan=False))
        return result_from(read, study, digest=digest, releases=releases)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailedError("the verdict is not what the study's procedure reports") from error


def result_from(
    verdict: BaseVerdict,
    study: Study,
    *,
    digest: str | None = None,
    releases: Mapping[str, Release] | None = None,
) -> Result:
    """Bind a verdict to what it was made from, and to what the SDK draws it with."""
    own = SDK_RESULTS.get(type(verdict))
    found = verdict if own is None else own.model_construct(verdict.model_fields_set, **vars(verdict))
    return found.bound(Source(study, digest, releases or {}, RENDERING))


def decides_only(study: Study) -> bool:
    """Whether the study's release is a decision, and no number leaves at all."""
    procedure = PROCEDURES.get(study.procedure)
    return procedure is not None and issubclass(procedure.verdict_type(study), DecisionResult)


@dataclass(frozen=True)
class StudyVerdict:
    """How a study ended: ``outcome`` is completed, incomplete or cancelled.

    ``missing`` names the owners (or the curator) that sent nothing; ``result`` is there where the study was
    completed.
    """

    digest: str
    study: Study
    message: VerdictMessage
    result: Result | None

    @property
    def outcome(self) -> str:
        """How the study ended."""
        return self.message.outcome

    @property
    def missing(self) -> tuple[str, ...]:
        """The owners, or the curator, that sent nothing."""
        return self.message.missing


def study_verdict(
    study: Study, message: VerdictMessage, releases: Mapping[str, Release] | None = None
) -> StudyVerdict:
    """Build the typed outcome from a study and its verdict, whose signature the caller has checked.

    ``releases`` are by owner as the study reads them, where they are at hand.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    result = None
    if message.result is not None:
        result = result_of(study, message.result, digest=message.study, releases=releases)
    return StudyVerdict(message.study, study, message, result)


@dataclass(frozen=True)
class PeerOutcome:
    """Both results of a peer mode played in one process. Unpacks into the finding's ``statistic, pvalue``.

    Attributes:
        finding: what the receiver finds; private for the sender's data alone, and never published.
        stated: what everybody learns.
    """

    finding: DistanceCorrelationResult
    stated: PeerResult

    def __iter__(self) -> Iterator[float]:
        yield from self.finding

    def to_svg(self) -> str:
        """Return the finding's picture as SVG text; it is the receiver's alone."""
        return self.finding.to_svg()

    def plot(self) -> Any:
        """Draw the finding with matplotlib; raises PlottingError where it is not installed."""
        return self.finding.plot()

    def _repr_html_(self) -> str:
        return self.finding._repr_html_()

    def __str__(self) -> str:
        return f"the receiver: {self.finding}; everybody: {self.stated}"
