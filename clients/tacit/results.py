"""Results in the manner of scipy.stats: frozen, and the same from every surface.

Whether a result comes from :mod:`tacit.local`, from a tester or from a transcript, it is the procedure's
verdict, bound to its study. A two-sample result unpacks into ``statistic, pvalue``; a decision cannot be
unpacked, since nothing finer than it is private. Types of results load when first used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.errors import VerificationFailedError
from tacit.lazy_names import lazy_names
from tacit.plotting import RENDERING
from tacit_protocol.messages.study import Release, Study, VerdictMessage
from tacit_protocol.procedures.base import spent_budget
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, ProcedureResult, VerdictSource

if TYPE_CHECKING:
    from tacit.correlations import AnsweredScreeningResult, ScreeningResult
    from tacit.database.result import DatabaseResult
    from tacit.peer_outcome import PeerOutcome
    from tacit_protocol.procedures.aggregated_test.verdict import AggregatedTestResult
    from tacit_protocol.procedures.association.verdict import AssociationResult
    from tacit_protocol.procedures.counts.base import NoisyTables
    from tacit_protocol.procedures.curated_distance_correlation.verdict import (
        CuratedDistanceCorrelationResult,
    )
    from tacit_protocol.procedures.distance_correlation.peer import PeerResult
    from tacit_protocol.procedures.distance_correlation.verdict import DistanceCorrelationResult
    from tacit_protocol.procedures.group_comparison.verdict import GroupComparisonResult
    from tacit_protocol.procedures.homogeneity import HomogeneityResult
    from tacit_protocol.procedures.identity import IdentityResult
    from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
    from tacit_protocol.procedures.independence_table import IndependenceTableResult
    from tacit_protocol.procedures.means.private_means import TestedHypothesis
    from tacit_protocol.procedures.mutual_independence import MutualIndependenceResult
    from tacit_protocol.procedures.noisy_counts import NoisyCountsResult
    from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult
    from tacit_protocol.procedures.randomised_answers.verdict import AnsweredCorrelationResult
    from tacit_protocol.procedures.screening.verdict import AnsweredColumn, ScreenedColumn
    from tacit_protocol.procedures.stratified_table import StratifiedTableResult
    from tacit_protocol.procedures.survival import SurvivalCurve, SurvivalResult
    from tacit_protocol.procedures.two_sample.statistic import LocationComparison
    from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult

__all__ = [
    "AggregatedTestResult",
    "AnsweredColumn",
    "AnsweredCorrelationResult",
    "AnsweredScreeningResult",
    "AssociationResult",
    "CellsTableResult",
    "CuratedDistanceCorrelationResult",
    "DatabaseResult",
    "DecisionResult",
    "DistanceCorrelationResult",
    "GroupComparisonResult",
    "HomogeneityResult",
    "IdentityResult",
    "IndependenceTableResult",
    "JointIndependenceResult",
    "LocationComparison",
    "MutualIndependenceResult",
    "NoisyCountsResult",
    "NoisyTables",
    "PeerOutcome",
    "PeerResult",
    "ProcedureResult",
    "Result",
    "ScreenedColumn",
    "ScreeningResult",
    "StratifiedTableResult",
    "StudyVerdict",
    "SurvivalCurve",
    "SurvivalResult",
    "TestedHypothesis",
    "TwoSampleResult",
    "VerdictSource",
    "decides_only",
    "result_from",
    "result_of",
    "study_verdict",
]

if not TYPE_CHECKING:  # type checkers know the names above alone
    __getattr__, __dir__ = lazy_names(__name__)

Result = BaseVerdict
"""Whatever a study's result is: its procedure's verdict, bound to the study."""

SDK_RESULTS = {
    "embedding_release.verdict.EmbeddingReleaseVerdict": "tacit.database.result.DatabaseResult",
    "screening.verdict.AnsweredScreeningVerdict": "tacit.correlations.AnsweredScreeningResult",
    "screening.verdict.ScreeningVerdict": "tacit.correlations.ScreeningResult",
}
"""What the SDK makes of verdicts that can do more with it than they state, by the verdict's type."""


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
    procedure = PROCEDURES.get(study.procedure)
    try:
        spent = study.budget if procedure is None else spent_budget(procedure, study)
        agreed = {"level": study.level, "epsilon": spent.epsilon, "delta": spent.delta}
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
    kind = type(verdict)
    own = SDK_RESULTS.get(f"{kind.__module__}.{kind.__name__}".removeprefix("tacit_protocol.procedures."))
    if own is not None:
        module, _, name = own.rpartition(".")
        richer = getattr(import_module(module), name)
        verdict = richer.model_construct(verdict.model_fields_set, **vars(verdict))
    return verdict.bound(VerdictSource(study, digest, releases or {}, RENDERING))


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
