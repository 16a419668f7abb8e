"""Typed results in the manner of scipy.stats: frozen, and the same from every surface.

Whether a result comes from :mod:`tacit.local`, from a tester or from a transcript, it is built from the
procedure's verdict. A two-sample result unpacks into ``statistic, pvalue``; a decision cannot be unpacked,
since nothing finer than it is private.
"""

from tacit.results.comparison import Comparison, LocationComparison
from tacit.results.count_tables import NoisyTables
from tacit.results.counts import HomogeneityResult, IndependenceTableResult, NoisyCountsResult
from tacit.results.curated_distance import CuratedDistanceCorrelationResult
from tacit.results.database import DatabaseResult
from tacit.results.decision import DecisionResult
from tacit.results.distance import DistanceCorrelationResult
from tacit.results.generic import ProcedureResult
from tacit.results.identity import IdentityResult
from tacit.results.peer import PeerOutcome, PeerResult
from tacit.results.registry import RESULTS, Result, decides_only, result_of
from tacit.results.screening import ScreenedColumn, ScreeningResult
from tacit.results.study_verdict import StudyVerdict, study_verdict
from tacit.results.two_sample import TwoSampleResult

__all__ = [
    "RESULTS",
    "Comparison",
    "CuratedDistanceCorrelationResult",
    "DatabaseResult",
    "DecisionResult",
    "DistanceCorrelationResult",
    "HomogeneityResult",
    "IdentityResult",
    "IndependenceTableResult",
    "LocationComparison",
    "NoisyCountsResult",
    "NoisyTables",
    "PeerOutcome",
    "PeerResult",
    "ProcedureResult",
    "Result",
    "ScreenedColumn",
    "ScreeningResult",
    "StudyVerdict",
    "TwoSampleResult",
    "decides_only",
    "result_of",
    "study_verdict",
]
