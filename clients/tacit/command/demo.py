"""`tacit demo`: a whole federation on this machine, on real hospital data."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.output import Json

if TYPE_CHECKING:
    from tacit.demo import DemoOutcome
    from tacit.draft import PreparedStudy
    from tacit.federation import LocalFederation

FOLDER = Path("demo-federation")
STEPS = 7
TERMINATED = 143
"""Exit code of a process ended by SIGTERM."""


class ScreenNarrator:
    """Prints the demo's steps; prints nothing where ``quiet``."""

    def __init__(self, quiet: bool) -> None:
        from tacit.command.output import console

        self._console = console()
        self._quiet = quiet
        self._count = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._count += 1
        self._print(f"{self._count}/{STEPS} {text}", style="bold")

    def progress(self, text: str) -> None:
        """Say how far the step is."""
        self._print(f"      {text}")

    def prepared(self, study: "PreparedStudy") -> None:
        """Show what the study will cost, before it is sent."""
        from tacit.command.study_view import print_prepared

        if not self._quiet:
            print_prepared(study)

    def _print(self, text: str, style: str | None = None) -> None:
        if not self._quiet:
            self._console.print(text, style=style, markup=False)
            sys.stdout.flush()


def demo(
    folder: Annotated[
        Path | None, typer.Option(help="Where to leave the federation's files; must be new.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What every hospital spends.", min=1e-3, max=30)] = 1.0,
    delta: Annotated[float, typer.Option(help="What every hospital spends.", min=1e-9, max=0.01)] = 1e-5,
    keep_running: Annotated[bool, typer.Option(help="Leave it running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Run four hospitals here, who ask without sharing a row whether their patients are alike."""
    import signal

    from tacit.demo import ask, running_federation
    from tacit.errors import ServiceError

    # SIGTERM unwinds like Ctrl-C, so that no service is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    place = _new_folder(folder)
    narrator = ScreenNarrator(quiet=as_json)
    with running_federation(place, epsilon, delta, narrator) as federation:
        outcome = ask(federation, place, epsilon, delta, narrator)
        _show(outcome, place, as_json)
        if keep_running:
            if not as_json:
                _tell_where(federation, outcome)
            _keep_running(federation)
    if outcome.verdict.result is None:
        raise ServiceError(f"the demo has no verdict; the logs in {place} say why")


def _new_folder(folder: Path | None) -> Path:
    from datetime import UTC, datetime

    from tacit.errors import InputError

    place = folder or FOLDER / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S-%f")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} exists already and is not empty: name another folder with --folder")
    return place.resolve()


def _show(outcome: "DemoOutcome", folder: Path, as_json: bool) -> None:
    from tacit.command.output import epsilon_text, lines, print_json, table
    from tacit.command.study_view import print_verdict, verdict_fields
    from tacit.demo import ATTRIBUTION

    remaining = [
        (hospital.name, epsilon_text(hospital.epsilon_spent_micro), epsilon_text(hospital.epsilon_left_micro))
        for hospital in outcome.remaining
    ]
    if as_json:
        fields = verdict_fields(outcome.verdict) | {
            "verified": outcome.verified.study_digest == outcome.digest,
            "folder": str(folder),
            "transcript": str(outcome.transcript),
            "epsilon_left": {name: left for name, _, left in remaining},
        }
        print_json(fields)
        return
    lines("")
    print_verdict(outcome.verdict)
    table(("Hospital", "Epsilon spent", "Epsilon left"), remaining)
    lines(
        ATTRIBUTION,
        f"Transcript verified: recomputed here, study {outcome.digest[:12]} ends the same.",
        f"The federation's files are in {folder}",
        f"Check the transcript again with: tacit verify {outcome.transcript}",
    )


def _tell_where(federation: "LocalFederation", outcome: "DemoOutcome") -> None:
    from tacit.command.output import lines

    lines("", "Still running; Ctrl-C stops it. Try, in another terminal:")
    lines(f"  tacit study list --party {federation.analyst.configuration}")
    lines(f"  tacit study show {outcome.digest[:12]} --party {federation.analyst.configuration}")
    lines(f"Tester: {federation.tester.url}")
    for site in federation.agents:
        lines(f"{site.name}: {site.url}", f"  tacit ledger show --config {site.configuration}")
    sys.stdout.flush()


def _keep_running(federation: "LocalFederation") -> None:
    import time

    while True:
        federation.check_running()
        time.sleep(1.0)
