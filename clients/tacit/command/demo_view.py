"""Output of `tacit demo`: its steps, verdicts, pages and transcripts, and what was spent."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tacit.client.sign_in import Door, agent_door, curator_owner_door, make_sign_in_link, party_door
from tacit.command.output import console, foreign, lines, print_json, table
from tacit.command.study_view import print_prepared, print_verdict, verdict_fields
from tacit.demo.hospitals import ATTRIBUTION, DemoOutcome
from tacit.setup.federation import LocalFederation
from tacit_protocol.preparation import PreparedStudy

ONE_STUDY_STEPS = 7


class ScreenNarrator:
    """Prints the demo's steps, of which there are ``steps``; prints nothing where ``quiet``."""

    def __init__(self, steps: int, quiet: bool) -> None:
        self._console = console()
        self._steps = steps
        self._quiet = quiet
        self._count = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._count += 1
        self._print(f"{self._count}/{self._steps} {text}", style="bold")

    def progress(self, text: str) -> None:
        """Say how far the step is."""
        self._print(f"      {text}")

    def prepared(self, study: PreparedStudy) -> None:
        """Show what the study will cost, before it is sent."""
        if not self._quiet:
            print_prepared(study)

    def _print(self, text: str, style: str | None = None) -> None:
        if not self._quiet:
            self._console.print(foreign(text), style=style, soft_wrap=True)
            sys.stdout.flush()


def show_outcome(outcome: DemoOutcome, folder: Path, as_json: bool) -> None:
    """Print the hospitals' verdict, what they have left, and where the transcript is."""
    if as_json:
        fields = verdict_fields(outcome.verdict) | {
            "verified": outcome.verified.study_digest == outcome.digest,
            "folder": str(folder),
            "transcript": str(outcome.transcript),
            "left_percent": {one.name: one.standing.left_percent for one in outcome.remaining},
        }
        print_json(fields)
        return
    lines("")
    print_verdict(outcome.verdict)
    table(("Hospital", "Left"), [(one.name, one.standing.left_words) for one in outcome.remaining])
    lines(
        ATTRIBUTION,
        f"Transcript verified: recomputed here, study {outcome.digest[:12]} ends the same.",
        f"The federation's files are in {from_here(folder)}",
        f"Check the transcript again with: {program()} verify {from_here(outcome.transcript)}",
    )


def program() -> str:
    """Return what starts this command in the reader's shell: its name, or else its path."""
    if shutil.which("tacit") is not None:
        return "tacit"
    beside = Path(sys.executable).parent / "tacit"
    return str(from_here(beside)) if beside.is_file() else "tacit"


def from_here(path: Path) -> Path:
    """Return the path as seen from the working folder, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def tell_where(federation: LocalFederation, links: Mapping[str, str], digest: str) -> None:
    """Say how to look at the running federation: its pages, by their links, and commands."""
    tacit, analyst = program(), from_here(federation.analyst.configuration)
    lines("", "Still running; Ctrl-C stops it. Its pages, each by a link that works once, for five minutes:")
    for who, url in links.items():
        lines(f"  {who}: {url}")
    lines(
        "Another link, and the same from the command line, in another terminal:",
        f"  {tacit} party login --party {analyst}",
        f"  {tacit} study list --party {analyst}",
        f"  {tacit} study show {digest[:12]} --party {analyst}",
    )
    for site in federation.agents:
        lines(f"  {tacit} ledger show --config {from_here(site.configuration)}")
    sys.stdout.flush()


def sign_in_links(federation: LocalFederation) -> dict[str, str]:
    """Make a one-time link for the analyst at the tester, every steward, and every owner at the curator."""
    doors: list[tuple[str, Callable[[Path], Door], Path]] = [
        ("the analyst, at the tester", party_door, federation.analyst.configuration)
    ]
    doors += [(f"{site.name}, at its agent", agent_door, site.configuration) for site in federation.agents]
    if federation.curator is not None:
        files = federation.curator.owner_files
        doors += [(f"{name}, at the curator", curator_owner_door, file) for name, file in files.items()]
    return {who: make_sign_in_link(door(file)).url for who, door, file in doors}
