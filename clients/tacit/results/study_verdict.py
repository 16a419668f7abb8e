"""How a study ended, with the typed result where it has one."""

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.results.registry import Result, result_of
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.messages.verdict import VerdictMessage


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
