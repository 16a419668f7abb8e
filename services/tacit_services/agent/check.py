"""Checks of configuration, policy, data and ledger as the agent would read them: nothing is spent or sent.

Whether values lie within the declared bounds is a fact of the data. It is for the steward's eyes on this
machine: bounds that are changed after a look at the data tell what was seen.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tacit_protocol.arrow_columns import numbers, text
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn, encode_categorical
from tacit_protocol.messages.catalogue import ANY
from tacit_protocol.privacy.accounting import Cap, Family
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.terminal import printable_lines
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.encoders import EncoderFolders
from tacit_services.agent.data.source import Columns, DataError, Source
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.policy import Policy
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.views import ledger_verification
from tacit_services.ledger.accounts import (
    Account,
    DivisionRefusedError,
    Standing,
    all_accounts,
    changed_account,
    new_account,
    standing,
)
from tacit_services.ledger.entries import ENTRIES
from tacit_services.ledger.verification import inspect
from tacit_services.shared.compute import look_at_workers
from tacit_services.shared.database import DatabaseError, create_engine, read_from
from tacit_services.shared.settings import SettingsError, read_private_key

BATCH_ROWS = 65_536
"""Rows that are read at a time."""

FEW = 0.01
"""Share of values beyond the bounds up to which clipping does little."""

CAUTION = (
    "for your eyes alone, on this machine; do not change bounds or levels because of it: "
    "those that follow the data leak it"
)


def bounds_report(source: Source, columns: tuple[Column, ...]) -> dict[str, str]:
    """Say in words, for each declared column, whether its values lie within what is declared.

    No count is told: a word for none, for few and for many is enough to find a unit that was mistaken.

    Raises:
        DataError: the rows cannot be read.
    """
    if not columns:
        return {}
    asked = Columns(
        tuple(column.name for column in columns if isinstance(column, NumericColumn)),
        tuple(column.name for column in columns if isinstance(column, CategoricalColumn)),
    )
    beyond, present = dict.fromkeys(asked.names, 0), dict.fromkeys(asked.names, 0)
    for batch in source.batches(asked, BATCH_ROWS):
        for column in columns:
            outside, there = _outside(column, batch.column(column.name))
            beyond[column.name] += outside
            present[column.name] += there
    return {name: _words(beyond[name], present[name]) for name in asked.names}


def _outside(column: Column, values: Any) -> tuple[int, int]:
    """Return how many values lie beyond what is declared, and how many there are."""
    if isinstance(column, NumericColumn):
        found = numbers(column.name, values)
        there = np.isfinite(found)
        return int(((found < column.lower) | (found > column.upper))[there].sum()), int(there.sum())
    codes = encode_categorical(column, text(values))
    other, missing = len(column.levels), len(column.levels) + 1
    return int((codes == other).sum()), int((codes != missing).sum())


def _words(beyond: int, present: int) -> str:
    if not present:
        return "no value can be read"
    if not beyond:
        return "all values lie within"
    return "a few values lie beyond" if beyond <= FEW * present else "many values lie beyond"


@dataclass(frozen=True)
class BudgetReport:
    """What a data set's account may spend once the agent starts with this configuration.

    ``standing`` is None where the ledger cannot be read; ``error`` says what is wrong with the configuration.
    """

    standing: Standing | None
    error: str | None = None


def budget_report(settings: AgentSettings, families: frozenset[Family]) -> dict[str, BudgetReport]:
    """Return what each data set's account may spend; nothing is opened that is not there, nothing written.

    ``families`` are the kinds of mechanism events that the policy's studies may cost.
    """
    accounts: dict[str, Account] = {}  # those that are missing are opened when the agent starts
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite" or (url.database and Path(url.database).exists()):
        engine = create_engine(settings.database_url)
        try:
            accounts = read_from(engine, all_accounts)
        except (DatabaseError, sa.exc.SQLAlchemyError):
            return {item.name: BudgetReport(None) for item in settings.data_sets}
        finally:
            engine.dispose()
    return {item.name: _report_of(accounts.get(item.account), item, families) for item in settings.data_sets}


def _report_of(account: Account | None, item: DataSetSettings, families: frozenset[Family]) -> BudgetReport:
    cap, division = Cap.of(item.caps), item.division(families)
    if account is None:
        account = new_account(item.account, cap, division)
    try:
        after = changed_account(account, cap, division)
    except DivisionRefusedError as error:
        return BudgetReport(standing(account), str(error))
    return BudgetReport(standing(after))


UNREADABLE = (
    "some rows do not have the header's values: each counts as a row without values. Repair the file before "
    "the first study; if values hold line breaks, set quoted_line_breaks = true"
)


def check(config: Path | None) -> dict[str, Any]:
    """Return a report; its ``error`` is the first thing that keeps the agent from working, or absent.

    The report stays with the owner: the number of units is public, but that of rows is not where units own
    several.
    """
    try:
        settings = AgentSettings.load(config)
        key = read_private_key(settings.key_file)
        policy = Policy.load(settings.policy_file)
    except SettingsError as error:
        return {"ok": False, "error": str(error), "data_sets": []}
    report: dict[str, Any] = {
        "party": settings.name,
        "key": key.public_hex,
        "tester": settings.tester_url,
        "approval": policy.approval,
        "compute": look_at_workers(settings.compute),
        "data_sets": [_check_data_set(data_set, policy) for data_set in settings.data_sets],
        "notes": settings.accounts_on_one_database(),
        "encoders": {digest: _encoder_fault(settings, digest) for digest in policy.encoders},
    }
    budgets = budget_report(settings, policy.families(PROCEDURES))
    for item in report["data_sets"]:
        budget = budgets[item["name"]]
        item["budget"] = None if budget.standing is None else asdict(budget.standing)
        item["error"] = item["error"] or budget.error
    faults = [f"{item['name']}: {item['error']}" for item in report["data_sets"] if item["error"]]
    unknown = sorted(set(policy.data_sets) - {data_set.name for data_set in settings.data_sets})
    faults += [f"the policy names {name}, which is no data set of this agent" for name in unknown]
    faults += policy.unknown_procedures(list(PROCEDURES))
    faults += [fault for fault in report["encoders"].values() if fault is not None]
    if report["compute"]["error"]:
        faults.append(f"compute: {report['compute']['error']}")
    report["ok"] = not faults
    if faults:
        report["error"] = "; ".join(faults)
    return report


def _encoder_fault(settings: AgentSettings, digest: str) -> str | None:
    """Say what is wrong with a public file that the policy lists; None where it is there."""
    try:
        EncoderFolders(settings.encoders_folder).content(digest)
    except DataError as error:
        return str(error)
    return None


def _check_data_set(data_set: DataSetSettings, policy: Policy) -> dict[str, Any]:
    names = {"name": data_set.name, "account": data_set.account}
    report: dict[str, Any] = {**names, "rows": None, "units": None, "columns": None}
    report["bounds"] = {}
    report["error"] = None
    report["unreadable_rows"] = False
    try:
        source = data_set.open()
        report["columns"] = len(source.column_names())
        table = SourceTable(source, _used_columns(data_set, policy), data_set.unit_column)
        report["rows"], report["units"] = table.rows, table.units
        report["bounds"] = bounds_report(source, data_set.columns)
        if isinstance(source, CsvSource):
            report["unreadable_rows"] = source.unreadable_rows() > 0
    except DataError as error:
        report["error"] = str(error)
        return report
    if data_set.name not in policy.data_sets:
        report["error"] = "the policy does not name this data set, so every study of it is refused"
    elif table.units < policy.units_min:
        report["error"] = "it has fewer units than the policy asks for, so every study of it is refused"
    return report


def _used_columns(data_set: DataSetSettings, policy: Policy) -> Domain:
    """Return a domain that names every column which settings or policy name; only its names are used."""
    allowed = policy.data_sets.get(data_set.name)
    names = [column.name for column in (*data_set.columns, *data_set.vectors)]
    names += [name for name in (allowed.columns if allowed else ()) if name not in {*names, ANY}]
    columns = [NumericColumn(name=name, lower=0.0, upper=1.0) for name in names]
    return Domain.model_construct(columns=tuple(columns))


def words_of_budget(budget: dict[str, Any] | None) -> str:
    """Say what is left of each share of a data set's cap."""
    if budget is None:
        return "the ledger cannot be read; the agent brings one of an older release up to date when it starts"
    pure, gaussian = budget["pure_left_micro"], budget["gaussian_left_micro"]
    found = []
    if budget["pure_share_micro"]:
        found.append(f"{pure / EPSILON_UNITS:g} of {budget['pure_share_micro'] / EPSILON_UNITS:g} pure")
    if budget["gaussian_share_micro"]:
        of, delta = budget["gaussian_share_micro"], budget["gaussian_delta_pico"]
        words = f"{gaussian / EPSILON_UNITS:g} of {of / EPSILON_UNITS:g} Gaussian"
        found.append(f"{words} at delta {delta / DELTA_UNITS:g}")
    return ", ".join(found) or "nothing"


def text_of_report(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    lines = [f"{name}: {report[name]}" for name in ("party", "tester", "approval") if name in report]
    if "compute" in report:
        lines.append(f"compute: {report['compute']['error'] or report['compute']['text']}")
    lines += [f"encoder {digest}: {fault or 'there'}" for digest, fault in report.get("encoders", {}).items()]
    for item in report["data_sets"]:
        found = item["error"] or f"{item['rows']} rows, {item['units']} units, {item['columns']} columns"
        lines.append(f"data set {item['name']}: {found}")
        if item["unreadable_rows"]:
            lines.append(f"  {UNREADABLE}")
        paid = "" if item["account"] == item["name"] else f", paid by the account {item['account']}"
        lines.append(f"  epsilon left: {words_of_budget(item['budget'])}{paid}")
        lines += [f"  {column}: {words}" for column, words in item["bounds"].items()]
    if any(item["bounds"] for item in report["data_sets"]):
        lines.append(f"  ({CAUTION})")
    lines += [f"note: {note}" for note in report.get("notes", ())]
    lines.append("ready" if report["ok"] else f"not ready: {report['error']}")
    return "\n".join(lines)


def verify_ledger(database_url: str, kept_hashes: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a service answers to ``GET /v1/ledger/verification``, from its database alone.

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
        if not read_from(engine, _has_shares):
            raise SettingsError(
                "the ledger is of an older release: start the service on it once, then verify"
            )
        found = read_from(engine, inspect, kept_hashes=kept)
    finally:
        engine.dispose()
    return ledger_verification(found)


def _has_shares(connection: sa.Connection) -> bool:
    looked_at = sa.inspect(connection)
    columns = looked_at.get_columns(ENTRIES.name) if looked_at.has_table(ENTRIES.name) else []
    return not columns or any(column["name"] == ENTRIES.c.form.name for column in columns)


def show_report(report: dict[str, Any], text: Callable[[dict[str, Any]], str], as_json: bool) -> int:
    """Print a report; returns the exit status."""
    sys.stdout.write((json.dumps(report) if as_json else printable_lines(text(report))) + "\n")
    return 0 if report["ok"] else 1


def text_of_verification(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    lines = [
        f"{account['data_set']}: {account['entries']} entries, head {account['head_hash']}"
        for account in report["accounts"]
    ]
    lines += [f"damaged: {fault}" for fault in report["faults"]]
    return "\n".join([*lines, "the ledger is whole" if report["ok"] else "the ledger is damaged"])
