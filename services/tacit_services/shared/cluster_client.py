"""A connection to a Dask scheduler: made at its first use, in a loop of its own, and anew once it is lost."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dask
import structlog
from distributed import Client, Security

from tacit_protocol.workers import WorkersUnavailableError
from tacit_services.shared.cluster_task import difference, versions
from tacit_services.shared.settings import SettingsError

UNLIMITED = 2**62

CONFIGURATION = {
    # The source lines that called would go to the scheduler with every task.
    "distributed.diagnostics.computations.nframes": 0,
    # A chunk of rows may be an item; how many are under way is bounded.
    "distributed.admin.large-graph-warning-threshold": UNLIMITED,
}

LOGGERS = ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "tornado.application")
"""Those that Dask gives handlers of their own when it is imported."""

CERTIFICATE_WORDS = ("CERTIFICATE", "certificate", "SSLError", "SSLCert", "alert")
"""What a connection's error speaks of when the other end was reached and refused, or was refused here."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Patience:
    """How long is waited for a cluster, in seconds, and how often what was lost is sent again."""

    connect_s: float = 10.0
    """For the scheduler on the first use, and for its answers."""
    reconnect_s: float = 60.0
    """For the scheduler, once it was lost."""
    workers_s: float = 60.0
    """For a first or another worker, while there is none."""
    look_s: float = 5.0
    """Between two looks at whether there are workers, while an item is waited for."""
    send_s: float = 300.0
    """For what all items share to reach the workers."""
    attempts: int = 4
    """Losses in a row, without a result between them, after which a map is given up."""
    pause_s: float = 0.5
    """Before what was lost is sent again; twice as long each time."""


@dataclass(frozen=True)
class Certificates:
    """The files of a TLS connection that both ends prove themselves in, PEM."""

    authority: Path
    certificate: Path
    key: Path

    def require_usable(self) -> None:
        """Raise SettingsError where they cannot be read or do not belong together."""
        try:
            self.security().get_connection_args("client")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "what they hold is no PEM, or does not fit together"
            raise SettingsError(
                f"the certificates of the Dask cluster cannot be used ({reason}): look at dask_ca_file, "
                "dask_certificate_file and dask_key_file"
            ) from None

    def security(self) -> Security:
        """Return them in Dask's form; the files are read whenever a connection is made."""
        return Security(
            require_encryption=True,
            tls_ca_file=str(self.authority),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
        )


class ClusterClient:
    """The client of one scheduler; its coroutines run in one loop."""

    def __init__(self, address: str, certificates: Certificates | None, patience: Patience) -> None:
        self.patience = patience
        self._address = address
        self._certificates = certificates
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._before = False
        dask.config.set(CONFIGURATION)
        take_over_logs()

    async def connected(self) -> Client:
        """Return a client that is connected and whose workers have this service's versions.

        Raises:
            WorkersUnavailableError: the scheduler cannot be reached, or a worker's versions differ.
        """
        async with self._connecting:
            if self._client is not None and self._client.status == "running":
                return self._client
            await self.close()
            client = await self._connect()
            try:
                await self._require_versions(client)
            except BaseException:
                await _close(client)
                raise
            self._client, self._before = client, True
            log.info("dask_connected", scheduler=self._address)
            return client

    async def _connect(self) -> Client:
        wait_s = self.patience.reconnect_s if self._before else self.patience.connect_s
        try:
            if self._certificates is not None:
                self._certificates.require_usable()
        except SettingsError as error:
            raise WorkersUnavailableError(str(error)) from None
        security = None if self._certificates is None else self._certificates.security()
        try:
            client: Client = await Client(
                self._address, asynchronous=True, timeout=wait_s, security=security, set_as_default=False
            )
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            raise WorkersUnavailableError(self._fault(error)) from None
        return client

    def _fault(self, error: BaseException) -> str:
        text = f"{error} {error.__cause__ or ''}"
        if self._certificates is not None and any(word in text for word in CERTIFICATE_WORDS):
            return f"the Dask scheduler at {self._address} and this service refuse each other's certificates"
        return f"the Dask scheduler at {self._address} cannot be reached"

    async def _require_versions(self, client: Client) -> None:
        """Raise WorkersUnavailableError where a worker's versions or arithmetic are not this service's.

        A worker that does not answer, or joins later, is looked at with every item.
        """
        try:
            async with asyncio.timeout(self.patience.connect_s):
                answers: dict[str, object] = await client.run(versions, on_error="return")
        except (OSError, TimeoutError):
            return
        for worker, theirs in answers.items():
            if isinstance(theirs, dict):
                differs = difference(versions(), theirs)
            else:
                differs = None if isinstance(theirs, OSError) else "no tacit that understands this one"
            if differs is not None:
                raise WorkersUnavailableError(not_alike(worker, differs))

    async def threads(self) -> dict[str, int]:
        """Return the addresses of the workers, each with its number of threads.

        Raises:
            WorkersUnavailableError: as for :meth:`connected`.
        """
        client = await self.connected()
        try:
            async with asyncio.timeout(self.patience.connect_s):
                found: dict[str, int] = await client.nthreads()
        except (OSError, TimeoutError):
            raise WorkersUnavailableError(f"the Dask scheduler at {self._address} does not answer") from None
        return dict(found)

    async def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            await _close(client)


def take_over_logs() -> None:
    """Have what Dask logs in this process go the way of its other logs, which hides arguments and messages.

    What its client says of a lost connection, with tracebacks, is said here in one line.
    """
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("distributed").setLevel(logging.WARNING)
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)


async def _close(client: Client) -> None:
    with suppress(OSError, TimeoutError):
        await client.close()


def not_alike(worker: str, differs: str) -> str:
    """Say what to do about a worker that might compute other bits."""
    return (
        f"the Dask worker {worker} has {differs}: all workers need this service's packages "
        "(requirements/dask.txt) and processors that compute alike (docs/how-to/dask.md)"
    )
