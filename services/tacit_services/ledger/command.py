"""The verb ``verify`` of the services that keep a ledger."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy.engine import make_url

from tacit_services.ledger.verification import inspect
from tacit_services.shared.commands import Report, Verb, show_report
from tacit_services.shared.database import create_engine, read_from
from tacit_services.shared.settings import DatabaseSettings, SettingsError


def verifying(settings: type[DatabaseSettings]) -> Verb:
    """Return the verb of a service."""

    def add_arguments(command: argparse.ArgumentParser) -> None:
        command.add_argument("--kept", action="append", default=[], help="a head hash kept elsewhere")

    def run(chosen: argparse.Namespace) -> int:
        report = verify_ledger(settings.load(chosen.config).database_url, chosen.kept)
        return show_report(report, _text, chosen.json)

    return Verb("check the ledger, without the service", run, add_arguments, reports=True)


def verify_ledger(database_url: str, kept_hashes: Iterable[str] = ()) -> Report:
    """Return what a service answers to ``GET /v1/ledger/verification``, from its database alone.

    Raises:
        SettingsError: there is no database yet.
        DatabaseError: the database cannot be read.
    """
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise SettingsError("there is no ledger yet: the service makes it when it first starts")
    engine = create_engine(database_url)
    try:
        return read_from(engine, inspect, kept_hashes=list(kept_hashes)).view()
    finally:
        engine.dispose()


def _text(report: Report) -> str:
    lines = [
        f"{account['data_set']}: {account['entries']} entries, head {account['head_hash']}"
        for account in report["accounts"]
    ]
    lines += [f"damaged: {fault}" for fault in report["faults"]]
    return "\n".join([*lines, "the ledger is whole" if report["ok"] else "the ledger is damaged"])
