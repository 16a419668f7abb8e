"""`tacit demo`: a whole federation on this machine, on real data."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.output import Json

if TYPE_CHECKING:
    from tacit.setup.federation import LocalFederation

FOLDER = Path("demo-federation")
TERMINATED = 143
"""Exit code of a process ended by SIGTERM."""

EPSILON, DELTA = 1.0, 1e-5
"""What the one question of the hospitals costs each of them, unless told."""


def demo(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every system: eleven studies of hospitals and registers.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where to leave the federation's files; must be new.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="What every hospital spends; 1 unless told.", min=1e-3, max=30)
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="What every hospital spends; 1e-5 unless told.", min=1e-9, max=0.01)
    ] = None,
    keep_running: Annotated[bool, typer.Option(help="Leave it running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Run four hospitals here, who ask without sharing a row whether their patients are alike."""
    import signal

    from tacit.errors import InputError

    if everything and (epsilon is not None or delta is not None):
        raise InputError("--epsilon and --delta are for the one study; with --all each study has its own")
    # SIGTERM unwinds like Ctrl-C, so that no service is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    with _kept_when_done(_new_folder(folder)) as (place, done):
        run = _Run(place, done, keep_running, as_json)
        if everything:
            _run_all(run)
        else:
            _run_one(run, EPSILON if epsilon is None else epsilon, DELTA if delta is None else delta)


@dataclass(frozen=True)
class _Run:
    """Where and how a demo runs; ``done`` is to be called once its files are whole."""

    folder: Path
    done: Callable[[], None]
    keep_running: bool
    as_json: bool


def _run_one(run: _Run, epsilon: float, delta: float) -> None:
    from tacit.command.demo_view import (
        ONE_STUDY_STEPS,
        ScreenNarrator,
        show_outcome,
        sign_in_links,
        tell_where,
    )
    from tacit.demo.hospitals import ask, running_federation
    from tacit.errors import ServiceError

    narrator = ScreenNarrator(ONE_STUDY_STEPS, quiet=run.as_json)
    with running_federation(run.folder, epsilon, delta, narrator) as federation:
        outcome = ask(federation, run.folder, epsilon, delta, narrator)
        run.done()
        show_outcome(outcome, run.folder, run.as_json)
        if run.keep_running:
            if not run.as_json:
                tell_where(federation, sign_in_links(federation), outcome.digest)
            _keep_running(federation)
    if outcome.verdict.result is None:
        raise ServiceError(f"the demo has no verdict; the logs in {run.folder} say why")


def _run_all(run: _Run) -> None:
    from tacit.command.demo_view import ALL_STEPS, ScreenNarrator, show_all, sign_in_links, tell_where
    from tacit.demo.all_systems import ask_all, running_federation_of_all
    from tacit.errors import ServiceError

    narrator = ScreenNarrator(ALL_STEPS, quiet=run.as_json)
    with running_federation_of_all(run.folder, narrator) as (federation, alignment):
        found = ask_all(federation, alignment, narrator)
        run.done()
        links = sign_in_links(federation) if run.keep_running else {}
        show_all(found, links, run.as_json)
        if run.keep_running:
            if not run.as_json:
                tell_where(federation, links, found.answers[0].study.digest)
            _keep_running(federation)
    without = [answer.question.system for answer in found.answers if answer.verdict.result is None]
    if without:
        raise ServiceError(f"no verdict on {', '.join(without)}; the logs in {run.folder} say why")


def _new_folder(folder: Path | None) -> Path:
    from datetime import UTC, datetime

    from tacit.errors import InputError

    place = folder or FOLDER / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S-%f")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} exists already and is not empty: name another folder with --folder")
    return place.resolve()


@contextmanager
def _kept_when_done(place: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Give the folder, and what to call once its files are whole; an ending before that removes them."""
    from tacit.errors import ServiceError

    existing = next(parent for parent in (place, *place.parents) if parent.exists())
    finished: list[bool] = []
    try:
        yield place, lambda: finished.append(True)
    except ServiceError as error:
        raise error if finished else ServiceError(f"{error}\n{place} was removed again") from error
    finally:
        if not finished:
            _remove(place, existing)


def _remove(place: Path, existing: Path) -> None:
    """Remove what the demo has made: everything in ``place``, and folders up to ``existing``."""
    import shutil

    from tacit.setup.processes import interruptions_deferred

    with interruptions_deferred():
        if place == existing:
            for path in place.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            return
        shutil.rmtree(place, ignore_errors=True)
        for parent in place.parents:
            if parent == existing or any(parent.iterdir()):
                return
            parent.rmdir()


def _keep_running(federation: "LocalFederation") -> None:
    import time

    while True:
        federation.check_running()
        time.sleep(1.0)
