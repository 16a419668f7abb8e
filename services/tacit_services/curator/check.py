"""``check``: read the curator's settings as it would, and look at what computes; spends and sends nothing."""

from pathlib import Path
from typing import Any

from tacit_services.curator.settings import CuratorSettings
from tacit_services.shared.compute import look_at_workers
from tacit_services.shared.settings import SettingsError


def check(config: Path | None) -> dict[str, Any]:
    """Return a report; its ``error`` is the first thing that keeps the curator from working, or absent."""
    try:
        settings = CuratorSettings.load(config)
    except SettingsError as error:
        return {"ok": False, "error": str(error)}
    compute = look_at_workers(settings.compute)
    report: dict[str, Any] = {"party": settings.name, "tester": settings.tester_url, "compute": compute}
    report["ok"] = compute["error"] is None
    if compute["error"] is not None:
        report["error"] = f"compute: {compute['error']}"
    return report


def text_of_report(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    lines = [f"{name}: {report[name]}" for name in ("party", "tester") if name in report]
    if "compute" in report:
        lines.append(f"compute: {report['compute']['error'] or report['compute']['text']}")
    lines.append("ready" if report["ok"] else f"not ready: {report['error']}")
    return "\n".join(lines)
