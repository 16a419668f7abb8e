"""``python -m tacit_services.agent align make|compare|list|forget``: what it takes, and what it prints."""

import argparse
from pathlib import Path
from typing import Any, TypeVar

from tacit_protocol.workers import WorkersUnavailableError
from tacit_services.agent.align import AlignmentRefusedError, compare, forget, make, recorded
from tacit_services.agent.data.source import DataError
from tacit_services.shared.clock import system_clock
from tacit_services.shared.settings import SettingsError

Value = TypeVar("Value")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare what ``align`` takes."""
    command.add_argument("step", choices=("make", "compare", "list", "forget"))
    command.add_argument("--data-set", default=None, help="a data set of agent.toml")
    command.add_argument("--unit-column", default=None, help="the shared id; as in agent.toml")
    command.add_argument("--key", type=Path, default=None, help="the key that both owners share")
    command.add_argument("--out", type=Path, default=None, help="make: the file for the other owner")
    command.add_argument("--with", type=Path, default=None, dest="theirs", help="compare: the other's file")
    command.add_argument("--digest", default=None, help="forget: the digest of an alignment")
    command.add_argument("--list", action="store_true", dest="list_ids", help="compare: name the ids")


def align(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return a report; its ``error`` says why the units could not be compared, or is absent."""
    try:
        if chosen.step == "list":
            return recorded(chosen.config)
        if chosen.step == "forget":
            return forget(chosen.config, _given(chosen.digest, "--digest"))
        of = (
            chosen.config,
            _given(chosen.data_set, "--data-set"),
            chosen.unit_column,
            _given(chosen.key, "--key"),
        )
        if chosen.step == "make":
            return make(*of, _given(chosen.out, "--out"))
        theirs = _given(chosen.theirs, "--with")
        return compare(*of, theirs, list_ids=chosen.list_ids, clock=system_clock)
    except (AlignmentRefusedError, DataError, SettingsError, WorkersUnavailableError) as error:
        return {"ok": False, "error": str(error)}


def _given(value: Value | None, option: str) -> Value:
    if value is None:
        raise AlignmentRefusedError(f"{option} is missing")
    return value


def text_of_alignment(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    if "forgotten" in report:
        return f"{report['forgotten']} alignments forgotten"
    if "alignments" in report:
        return "\n".join(_line(item) for item in report["alignments"]) or "no alignments"
    if "peer" not in report:
        return f"{report['units']} units, digest {report['digest']}; give the file to the other owner"
    peer = report["peer"]
    who = f"{peer['name']} ({peer['data_set']}), whose key is\n  {peer['key']}"
    if report["ok"]:
        return (
            f"aligned: {report['units']} units, the same as those of {who}\n"
            f'put this into the study:\n  alignment = "{report["digest"]}"'
        )
    lines = [
        f"not aligned with {who}",
        f"{report['units']} units here, {report['units_of_peer']} there; nothing was recorded",
        f"check {report['ids_to_check']} ids here: {report['buckets_that_differ']} of {report['buckets']} "
        "buckets differ, each by at least one id",
    ]
    return "\n".join([*lines, *report.get("ids", ())])


def _line(item: dict[str, Any]) -> str:
    return (
        f"{item['data_set']} by {item['unit_column']}, with {item['peer_name']} ({item['peer_data_set']}) "
        f"{item['peer_key']}\n  {item['digest']}"
    )
