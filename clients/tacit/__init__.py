"""Tacit's SDK: run private statistical tests between institutions, or try them in one process.

``tacit.Client`` and ``tacit.AsyncClient`` talk to a tester, ``tacit.AgentClient`` to one's own agent;
``tacit.local`` runs whole studies in this process, on the same code as the services. Names load when first
used, so that ``import tacit`` is quick.
"""

from typing import TYPE_CHECKING

from tacit import local
from tacit.lazy_names import lazy_names

if TYPE_CHECKING:
    from tacit.client.agent import AgentClient
    from tacit.client.curator import AsyncCuratorClient, CuratorClient
    from tacit.client.data_set import DataSetDescription
    from tacit.client.tester import AsyncClient, Client
    from tacit.client.transcripts import load_result
    from tacit.errors import TacitError
    from tacit.results import DecisionResult, ProcedureResult, TwoSampleResult
    from tacit.studies.draft import StudyDraft
    from tacit.studies.multiple_testing import Adjustment, adjust

__version__ = "0.1.0"

__all__ = [
    "Adjustment",
    "AgentClient",
    "AsyncClient",
    "AsyncCuratorClient",
    "Client",
    "CuratorClient",
    "DataSetDescription",
    "DecisionResult",
    "ProcedureResult",
    "StudyDraft",
    "TacitError",
    "TwoSampleResult",
    "__version__",
    "adjust",
    "load_result",
    "local",
]

if not TYPE_CHECKING:  # type checkers know the names above alone
    __getattr__, __dir__ = lazy_names(__name__)
