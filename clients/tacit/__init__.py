"""Tacit's SDK: run private statistical tests between institutions, or try them in one process.

``tacit.Client`` and ``tacit.AsyncClient`` talk to a tester, ``tacit.AgentClient`` to one's own agent;
``tacit.local`` runs whole studies in this process, on the same code as the services. Names load when first
used, so that ``import tacit`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import local
    from tacit.adjusting import Adjustment, adjust
    from tacit.agent_client import AgentClient
    from tacit.client import AsyncClient, Client
    from tacit.curator_client import AsyncCuratorClient, CuratorClient
    from tacit.data_set import DataSetDescription
    from tacit.draft import StudyDraft
    from tacit.errors import TacitError
    from tacit.results import DecisionResult, ProcedureResult, TwoSampleResult
    from tacit.saved_results import load_result

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
    "Adjustment": "tacit.adjusting",
    "AgentClient": "tacit.agent_client",
    "AsyncClient": "tacit.client",
    "AsyncCuratorClient": "tacit.curator_client",
    "Client": "tacit.client",
    "CuratorClient": "tacit.curator_client",
    "DataSetDescription": "tacit.data_set",
    "DecisionResult": "tacit.results",
    "ProcedureResult": "tacit.results",
    "StudyDraft": "tacit.draft",
    "TacitError": "tacit.errors",
    "TwoSampleResult": "tacit.results",
    "adjust": "tacit.adjusting",
    "load_result": "tacit.saved_results",
}


def __getattr__(name: str) -> Any:
    if name == "local":
        return importlib.import_module("tacit.local")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
