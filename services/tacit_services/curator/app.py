"""The curator's app: the boundary that all services have, and the owners' routes."""

import re
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version

from fastapi import FastAPI
from sqlalchemy.engine import Connection

from tacit_services.curator.data_set_routes import OwnerRoutes
from tacit_services.curator.surroundings import CuratorSurroundings
from tacit_services.curator.uploads import UPLOAD_BYTES_MAX
from tacit_services.shared.database import check_database, run_transaction
from tacit_services.shared.http_app import Lifespan, create_app
from tacit_services.shared.limits import BodyLimit, StreamedBodies
from tacit_services.shared.observation import Gauges

IDLE_S = 30.0
"""How long an upload may stand still."""

BYTES_PER_S_MIN = 64_000.0
"""Slowest upload in the long run: below it, a few senders could keep every place for days."""

ROWS_PATH = re.compile(r"/v1/data-sets/[^/]+/[^/]+/rows")


def create_curator_app(
    curator: CuratorSurroundings,
    *,
    upload_bytes_max: int = UPLOAD_BYTES_MAX,
    check_ready: Callable[[], None] = lambda: None,
    gauges: Gauges = dict,
    lifespan: Lifespan | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """Create the app with everything but the routes of studies.

    Args:
        curator: what the routes work with; its database is up to date and its storage open.
        upload_bytes_max: largest upload.
        check_ready: more that has to hold for the service to be ready, beside its database.
        gauges: more figures for ``/metrics``, beside those of data sets and uploads.
        lifespan: what runs beside the app.
        hosts: the names by which browsers may reach the pages; None for any.
    """

    def ready() -> None:
        check_database(curator.engine)
        check_ready()

    def figures() -> Mapping[str, float]:
        def count(connection: Connection) -> int:
            return len(curator.data_sets.held_data_sets(connection))

        held = run_transaction(curator.engine, count, read_only=True)
        return {"data_sets": float(held), "uploads": float(curator.uploads.under_way), **gauges()}

    limit = BodyLimit(upload_bytes_max, IDLE_S, BYTES_PER_S_MIN, "upload-too-large")
    app = create_app(
        title="Tacit curator",
        version=version("tacit"),
        metrics_prefix="tacit_curator",
        check_ready=ready,
        gauges=figures,
        lifespan=lifespan,
        hosts=hosts,
        streamed=StreamedBodies("PUT", ROWS_PATH, limit),
    )
    app.include_router(OwnerRoutes(curator).router())
    return app
