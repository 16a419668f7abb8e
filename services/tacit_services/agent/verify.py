"""``verify``: check the ledger in the agent's database, without the agent; changes and sends nothing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.views import ledger_verification
from tacit_services.ledger.schema import ENTRIES
from tacit_services.ledger.verification import inspect
from tacit_services.shared.database import create_engine, run_transaction
from tacit_services.shared.settings import SettingsError


def verify_offline(config: Path | None, kept_hashes: Iterable[str] = ()) -> dict[str, Any]:
    """Return what the agent's interface answers to ``GET /v1/ledger/verification``.

    Raises:
        SettingsError: the settings cannot be read, or there is no database yet.
        DatabaseError: the database cannot be read.
    """
    return verify_ledger(AgentSettings.load(config).database_url, kept_hashes)


def verify_ledger(database_url: str, kept_hashes: Iterable[str] = ()) -> dict[str, Any]:
    """Check the ledger in an agent's or a curator's database.

    Raises:
        SettingsError: there is no database yet, or it is of an older release.
        DatabaseError: the database cannot be read.
    """
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise SettingsError("there is no ledger yet: the service makes it when it first starts")
    engine = create_engine(database_url)
    kept = list(kept_hashes)
    try:
        if not run_transaction(engine, _has_shares, read_only=True):
            raise SettingsError(
                "the ledger is of an older release: start the service on it once, then verify"
            )
        found = run_transaction(engine, lambda c: inspect(c, kept_hashes=kept), read_only=True)
    finally:
        engine.dispose()
    return ledger_verification(found)


def _has_shares(connection: sa.Connection) -> bool:
    looked_at = sa.inspect(connection)
    columns = looked_at.get_columns(ENTRIES.name) if looked_at.has_table(ENTRIES.name) else []
    return not columns or any(column["name"] == ENTRIES.c.form.name for column in columns)


def text_of_verification(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    lines = [
        f"{account['data_set']}: {account['entries']} entries, head {account['head_hash']}"
        for account in report["accounts"]
    ]
    lines += [f"damaged: {fault}" for fault in report["faults"]]
    return "\n".join([*lines, "the ledger is whole" if report["ok"] else "the ledger is damaged"])
