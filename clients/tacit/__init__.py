"""Tacit's SDK: run private statistical tests between institutions, or try them in one process.

``tacit.Client`` and ``tacit.AsyncClient`` talk to a tester, ``tacit.AgentClient`` to one's own agent;
``tacit.local`` runs whole studies in this process, on the same code as the services. Names load when first
used, so that ``import tacit`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import local
    from tacit.agent_client import AgentClient
    from tacit.async_client import AsyncClient
    from tacit.client import Client
    from tacit.draft import StudyDraft
    from tacit.errors import TacitError
    from tacit.results import DecisionResult, ProcedureResult, TwoSampleResult

__version__ = "0.1.0"

__all__ = [
    "AgentClient",
    "AsyncClient",
    "Client",
    "DecisionResult",
    "ProcedureResult",
    "StudyDraft",
    "TacitError",
    "TwoSampleResult",
    "__version__",
    "local",
]

_HOMES = {
    "AgentClient": "tacit.agent_client",
    "AsyncClient": "tacit.async_client",
    "Client": "tacit.client",
    "DecisionResult": "tacit.results",
    "ProcedureResult": "tacit.results",
    "StudyDraft": "tacit.draft",
    "TacitError": "tacit.errors",
    "TwoSampleResult": "tacit.results",
}


def __getattr__(name: str) -> Any:
    if name == "local":
        return importlib.import_module("tacit.local")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
