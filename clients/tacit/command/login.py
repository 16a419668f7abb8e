"""`tacit … login`: print a one-time link to a service's pages."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.sign_in import Door


def print_link(door: "Callable[[Path], Door]", configuration: Path, as_json: bool) -> None:
    """Ask the service for a link, and print it."""
    from tacit.command.connect import told_ca_file
    from tacit.command.output import lines, print_json, time_text
    from tacit.sign_in import make_sign_in_link

    link = make_sign_in_link(door(configuration), ca_file=told_ca_file())
    if as_json:
        print_json({"url": link.url, "expires_at": link.expires_at})
        return
    lines(f"Open this in your browser, once, until {time_text(link.expires_at)}:", f"  {link.url}")
