"""Tacit's SDK: run private statistical tests between institutions, or try them in one process.

``tacit.Client`` and ``tacit.AsyncClient`` talk to a tester, ``tacit.AgentClient`` to one's own agent;
``tacit.local`` runs whole studies in this process, on the same code as the services. Names load when first
used, so that ``import tacit`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import local
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

_HOMES = {
    "Adjustment": "tacit.studies.multiple_testing",
    "AgentClient": "tacit.client.agent",
    "AsyncClient": "tacit.client.tester",
    "AsyncCuratorClient": "tacit.client.curator",
    "Client": "tacit.client.tester",
    "CuratorClient": "tacit.client.curator",
    "DataSetDescription": "tacit.client.data_set",
    "DecisionResult": "tacit.results",
    "ProcedureResult": "tacit.results",
    "StudyDraft": "tacit.studies.draft",
    "TacitError": "tacit.errors",
    "TwoSampleResult": "tacit.results",
    "adjust": "tacit.studies.multiple_testing",
    "load_result": "tacit.client.transcripts",
}


def __getattr__(name: str) -> Any:
    if name == "local":
        return importlib.import_module("tacit.local")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
