"""Results in the manner of scipy.stats: frozen, and the same from every surface.

Whether a result comes from :mod:`tacit.local`, from a tester or from a transcript, it is the procedure's
verdict, bound to its study. A two-sample result unpacks into ``statistic, pvalue``; a decision cannot be
unpacked, since nothing finer than it is private.
"""

from tacit.results.database import DatabaseResult
from tacit.results.reading import (
    PeerOutcome,
    Result,
    StudyVerdict,
    decides_only,
    result_from,
    result_of,
    study_verdict,
)
from tacit.results.screening import ScreeningResult
from tacit_protocol.procedures.counts.base import NoisyTables
from tacit_protocol.procedures.counts.homogeneity import HomogeneityResult
from tacit_protocol.procedures.counts.independence_table import IndependenceTableResult
from tacit_protocol.procedures.counts.noisy_counts import NoisyCountsResult
from tacit_protocol.procedures.curated_distance_correlation import CuratedDistanceCorrelationResult
from tacit_protocol.procedures.distance_correlation import DistanceCorrelationResult
from tacit_protocol.procedures.distance_correlation.answered import AnsweredCorrelationResult
from tacit_protocol.procedures.distance_correlation.peer import PeerResult
from tacit_protocol.procedures.group_comparison import GroupComparisonResult
from tacit_protocol.procedures.identity import IdentityResult
from tacit_protocol.procedures.joint_independence import JointIndependenceResult
from tacit_protocol.procedures.kernel_two_sample import TwoSampleResult
from tacit_protocol.procedures.kernel_two_sample.statistic import LocationComparison
from tacit_protocol.procedures.means.max_form import Comparison
from tacit_protocol.procedures.screening import ScreenedColumn
from tacit_protocol.procedures.stratified_table import StratifiedTableResult
from tacit_protocol.procedures.survival import SurvivalCurve, SurvivalResult
from tacit_protocol.verdicts.base import DecisionResult, ProcedureResult, Source

__all__ = [
    "AnsweredCorrelationResult",
    "Comparison",
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
    "NoisyCountsResult",
    "NoisyTables",
    "PeerOutcome",
    "PeerResult",
    "ProcedureResult",
    "Result",
    "ScreenedColumn",
    "ScreeningResult",
    "Source",
    "StratifiedTableResult",
    "StudyVerdict",
    "SurvivalCurve",
    "SurvivalResult",
    "TwoSampleResult",
    "decides_only",
    "result_from",
    "result_of",
    "study_verdict",
]
