"""What computes: threads of this process, or a Dask cluster."""

import importlib.util
from typing import TYPE_CHECKING

from tacit_protocol.domain import ThreadWorkers, Workers, WorkersUnavailableError
from tacit_services.shared.compute import ComputeSettings
from tacit_services.shared.settings import SettingsError

if TYPE_CHECKING:
    from tacit_services.shared.cluster import ClusterWorkers


def make_workers(settings: ComputeSettings) -> Workers:
    """Return what computes. Nothing is connected to before the first use, so a cluster may start later.

    Raises:
        SettingsError: Dask is asked for and not installed, or a file of certificates cannot be used.
    """
    return ThreadWorkers(settings.workers) if settings.dask_scheduler is None else _cluster(settings)


def look_at_workers(settings: ComputeSettings) -> dict[str, str | None]:
    """Connect to a cluster and say in words what computes; ``error`` is what keeps it from that, or None."""
    if settings.dask_scheduler is None:
        return {"text": f"{settings.workers} threads of the service's process", "error": None}
    try:
        workers = _cluster(settings)
        try:
            threads = workers.threads()
        finally:
            workers.close()
    except (SettingsError, WorkersUnavailableError) as error:
        return {"text": None, "error": str(error)}
    if not threads:
        return {"text": None, "error": "the Dask cluster has no worker: start workers"}
    text = f"{len(threads)} Dask workers, {sum(threads.values())} threads, compute as this machine does"
    return {"text": text, "error": None}


def _cluster(settings: ComputeSettings) -> "ClusterWorkers":
    if importlib.util.find_spec("distributed") is None:
        raise SettingsError('dask_scheduler is set, but Dask is not installed: pip install "tacit[dask]"')
    from tacit_services.shared.cluster import ClusterWorkers  # noqa: PLC0415 (the extra may be absent)

    return ClusterWorkers.of(settings)
