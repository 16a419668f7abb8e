"""Checks of configuration, policy, data and ledger as the agent would read them: nothing is spent or sent.

What columns hold is a fact of the data. It is for the steward's eyes on this machine: bounds that are changed
after a look at the data tell what was seen.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tacit_protocol.domain import DataError, Domain, NumericColumn
from tacit_protocol.messages.answers import BudgetBalance
from tacit_protocol.messages.catalogue import ANY
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Cap, Family
from tacit_protocol.privacy.guarantee import EPSILON_UNITS
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.data.column_facts import CAUTION, columns_of, data_findings, faults_in, line_of
from tacit_services.agent.data.encoders import EncoderFolders
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.schema import STUDIES
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.study.readings import all_locks
from tacit_services.agent.study.studies import newest_studies
from tacit_services.agent.study.tester_client import CarriedStudy
from tacit_services.ledger.accounts import (
    Account,
    DivisionRefusedError,
    all_accounts,
    changed_account,
    new_account,
    standing,
)
from tacit_services.shared.database import DatabaseError, create_engine, read_from
from tacit_services.shared.settings import SettingsError, read_private_key
from tacit_services.shared.workers import look_at_workers


@dataclass(frozen=True)
class BudgetReport:
    """What a data set's account may spend once the agent starts with this configuration.

    ``standing`` is None where the ledger cannot be read; ``error`` says what is wrong with the configuration.
    """

    standing: BudgetBalance | None
    error: str | None = None


def budget_report(settings: AgentSettings, families: frozenset[Family]) -> dict[str, BudgetReport]:
    """Return what each data set's account may spend; nothing is opened that is not there, nothing written.

    ``families`` are the kinds of mechanism events that the policy's studies may cost.
    """
    accounts: dict[str, Account] = {}  # those that are missing are opened when the agent starts
    if _has_database(settings):
        engine = create_engine(settings.database_url)
        try:
            accounts = read_from(engine, all_accounts)
        except (DatabaseError, sa.exc.SQLAlchemyError):
            return {item.name: BudgetReport(None) for item in settings.data_sets}
        finally:
            engine.dispose()
    return {item.name: _report_of(accounts.get(item.account), item, families) for item in settings.data_sets}


def _has_database(settings: AgentSettings) -> bool:
    url = make_url(settings.database_url)
    return url.get_backend_name() != "sqlite" or bool(url.database and Path(url.database).exists())


def _report_of(account: Account | None, item: DataSetSettings, families: frozenset[Family]) -> BudgetReport:
    cap, division = Cap.of(item.caps), item.division(families)
    if account is None:
        account = new_account(item.account, cap, division)
    try:
        after = changed_account(account, cap, division)
    except DivisionRefusedError as error:
        return BudgetReport(standing(account), str(error))
    return BudgetReport(standing(after))


def locks_at(database_url: str) -> dict[str, dict[str, Any]]:
    """Return why accounts of a service's database are locked; nothing is opened that is not there."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return {}
    engine = create_engine(database_url)
    try:
        return {lock.account: lock.view() for lock in read_from(engine, all_locks)}
    except (DatabaseError, sa.exc.SQLAlchemyError):
        return {}  # whoever asks is told by another check that the database cannot be read
    finally:
        engine.dispose()


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
        return {"ok": False, "error": str(error), "data_sets": [], "text": f"not ready: {error}"}
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
    locks = locks_at(settings.database_url)
    for item in report["data_sets"]:
        item["locked"] = locks.get(item["account"])
        budget = budgets[item["name"]]
        item["budget"] = None if budget.standing is None else budget.standing.model_dump()
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
    return report | {"text": text_of_report(report)}


NO_STUDY = "there is no such study: give a file of `tacit study envelope`, or the digest of one asked here"


def check_study(config: Path | None, asked: str) -> dict[str, Any]:
    """Return what this owner's rows hold of the columns of one study, as the study would read them.

    ``asked`` is a file with the signed study, or the first digits of the digest of one that came in.
    """
    try:
        settings = AgentSettings.load(config)
        digest, study = _study_named(settings, asked)
        report = {"study": digest, "title": study.title} | study_report(settings, study)
    except (SettingsError, DatabaseError, sa.exc.SQLAlchemyError) as error:
        words = str(error) if isinstance(error, SettingsError) else "the ledger's database cannot be read"
        return {"ok": False, "error": words, "data_sets": [], "text": f"not ready: {words}"}
    return report | {"text": text_of_report(report)}


def _study_named(settings: AgentSettings, asked: str) -> tuple[str, Study]:
    if Path(asked).is_file():
        carried = CarriedStudy(Path(asked).read_bytes())
        return carried.item.digest, carried.study
    if not re.fullmatch("[0-9a-f]{4,64}", asked) or not _has_database(settings):
        raise SettingsError(NO_STUDY)
    engine = create_engine(settings.database_url)
    try:
        found = read_from(engine, newest_studies, 2, STUDIES.c.digest.startswith(asked))
    finally:
        engine.dispose()
    if len(found) != 1 or found[0].envelope is None:
        raise SettingsError(NO_STUDY)
    return found[0].digest, CarriedStudy(found[0].envelope).study


def study_report(settings: AgentSettings, study: Study) -> dict[str, Any]:
    """Return what this owner's rows hold of a study's columns, as :func:`check` says it of declared ones.

    Raises:
        SettingsError: the study does not ask this agent for a data set that it has.
    """
    owner = next((owner for owner in study.owners if owner.name == settings.name), None)
    data_set = None if owner is None else settings.data_set(owner.data_set)
    if owner is None or data_set is None or study.curator is not None:
        raise SettingsError("the study does not ask this agent for a data set that it has")
    item: dict[str, Any] = {"name": data_set.name, "findings": [], "error": None}
    try:
        item["findings"] = data_findings(data_set.open(), columns_of(study, owner))
        item["error"] = faults_in(item["findings"])
    except DataError as error:
        item["error"] = str(error)
    report = {"ok": item["error"] is None, "data_sets": [item]}
    return report if item["error"] is None else report | {"error": f"{data_set.name}: {item['error']}"}


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
    report["findings"] = []
    report["error"] = None
    try:
        source = data_set.open()
        report["columns"] = len(source.column_names())
        table = SourceTable(source, _used_columns(data_set, policy), data_set.unit_column)
        report["rows"], report["units"] = table.rows, table.units
        report["findings"] = data_findings(source, (*data_set.columns, *data_set.vectors))
    except DataError as error:
        report["error"] = str(error)
        return report
    report["error"] = faults_in(report["findings"])
    if report["error"] is not None:
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
    """Say what is left of a data set's cap."""
    if budget is None:
        return "the ledger cannot be read"
    return f"{budget['left_percent']:g} % of epsilon {budget['epsilon_cap_micro'] / EPSILON_UNITS:g}"


def text_of_report(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    named = ("study", "title", "party", "tester", "approval")
    lines = [f"{name}: {report[name]}" for name in named if name in report]
    if "compute" in report:
        lines.append(f"compute: {report['compute']['error'] or report['compute']['text']}")
    lines += [f"encoder {digest}: {fault or 'there'}" for digest, fault in report.get("encoders", {}).items()]
    for item in report["data_sets"]:
        sizes = [f"{item[what]} {what}" for what in ("rows", "units", "columns") if item.get(what)]
        said = ", ".join(sizes) or ("read" if item["error"] is None else item["error"])
        lines.append(f"data set {item['name']}: {said}")
        if "budget" in item:
            paid = "" if item["account"] == item["name"] else f", paid by the account {item['account']}"
            lines.append(f"  left: {words_of_budget(item['budget'])}{paid}")
        if item.get("locked") is not None:
            lines.append(f"  locked: study {item['locked']['study'][:12]} failed after its rows were read")
        lines += [f"  {line_of(found)}" for found in item["findings"]]
    if any(item["findings"] for item in report["data_sets"]):
        lines.append(f"  ({CAUTION})")
    lines += [f"note: {note}" for note in report.get("notes", ())]
    lines.append("ready" if report["ok"] else f"not ready: {report['error']}")
    return "\n".join(lines)
