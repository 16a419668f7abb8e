"""``check``: read configuration, policy and data as the agent would, locally; spends and sends nothing."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS
from tacit_protocol.procedures.registry import PROCEDURES
from tacit_services.agent.check_local import CAUTION, bounds_report, budget_report
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.source import DataError
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.policy import ANY, Policy
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.shared.compute import look_at_workers
from tacit_services.shared.settings import SettingsError, read_private_key

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
    }
    budgets = budget_report(settings, policy.families(PROCEDURES))
    for item in report["data_sets"]:
        budget = budgets[item["name"]]
        item["budget"] = None if budget.standing is None else asdict(budget.standing)
        item["error"] = item["error"] or budget.error
    faults = [f"{item['name']}: {item['error']}" for item in report["data_sets"] if item["error"]]
    unknown = sorted(set(policy.data_sets) - {data_set.name for data_set in settings.data_sets})
    faults += [f"the policy names {name}, which is no data set of this agent" for name in unknown]
    if report["compute"]["error"]:
        faults.append(f"compute: {report['compute']['error']}")
    report["ok"] = not faults
    if faults:
        report["error"] = "; ".join(faults)
    return report


def _check_data_set(data_set: DataSetSettings, policy: Policy) -> dict[str, Any]:
    report: dict[str, Any] = {"name": data_set.name, "rows": None, "units": None, "columns": None}
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
    names = [column.name for column in data_set.columns]
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
    for item in report["data_sets"]:
        found = item["error"] or f"{item['rows']} rows, {item['units']} units, {item['columns']} columns"
        lines.append(f"data set {item['name']}: {found}")
        if item["unreadable_rows"]:
            lines.append(f"  {UNREADABLE}")
        lines.append(f"  epsilon left: {words_of_budget(item['budget'])}")
        lines += [f"  {column}: {words}" for column, words in item["bounds"].items()]
    if any(item["bounds"] for item in report["data_sets"]):
        lines.append(f"  ({CAUTION})")
    lines.append("ready" if report["ok"] else f"not ready: {report['error']}")
    return "\n".join(lines)
